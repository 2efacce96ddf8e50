"""Other tools at the same work, as their documentation says to do it, for benchmarks/speed.py."""

import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch

from puda.bench import timed
from puda.data.graph import SPLITS, KnowledgeGraph


def time_torchkge(
    graph: KnowledgeGraph,
    scoring: str,
    dim: int,
    *,
    negatives: int = 64,
    batch: int = 1024,
    batches: int = 12,
    facts: int = 256,
) -> dict[str, Any]:
    """Time TorchKGE's training on some batches and its evaluation on some test facts.

    As for PyKEEN, an epoch and all test facts follow in proportion.
    """
    from torchkge.data_structures import KnowledgeGraph as TheirGraph
    from torchkge.evaluation import LinkPredictionEvaluator
    from torchkge.models import DistMultModel, TransEModel
    from torchkge.sampling import UniformNegativeSampler
    from torchkge.utils import DataLoader, MarginLoss

    known: dict[str, dict[tuple[int, int], set[int]]] = {
        "heads": defaultdict(set),
        "tails": defaultdict(set),
    }
    for split in SPLITS:
        for h, r, t in graph.facts(split).tolist():
            known["heads"][t, r].add(h)
            known["tails"][h, r].add(t)

    def their(rows: np.ndarray) -> Any:
        ids = {"heads": rows[:, 0], "relations": rows[:, 1], "tails": rows[:, 2]}
        return TheirGraph(
            kg={name: torch.tensor(column) for name, column in ids.items()},
            ent2ix={label: i for i, label in enumerate(graph.entities.labels)},
            rel2ix={label: i for i, label in enumerate(graph.relations.labels)},
            dict_of_heads=known["heads"],
            dict_of_tails=known["tails"],
            dict_of_rels=defaultdict(set),
        )

    sizes = graph.num_entities, graph.num_relations
    model = (
        DistMultModel(dim, *sizes)
        if scoring == "distmult"
        else TransEModel(dim, *sizes, dissimilarity_type="L1")
    )
    some = np.random.default_rng(0).permutation(graph.train)[: batch * batches]
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=1e-3), MarginLoss(0.5)

    def epoch(triples: Any) -> None:
        sampler = UniformNegativeSampler(triples, n_neg=negatives)
        for heads, tails, relations in DataLoader(triples, batch_size=batch):
            corrupted = sampler.corrupt_batch(heads, tails, relations)
            optimizer.zero_grad()
            loss(*model(heads, tails, relations, *corrupted)).backward()
            optimizer.step()
        model.normalize_parameters()

    epoch(their(some[: 2 * batch]))  # to warm up
    whole = their(some)
    training = timed(lambda: epoch(whole))
    evaluator = LinkPredictionEvaluator(model, their(graph.test[:facts]))
    evaluation = timed(lambda: evaluator.evaluate(b_size=32, verbose=False))
    return {
        "negatives": negatives,
        "epoch_seconds": training * len(graph.train) / len(some),
        "pairs_a_second": len(some) * negatives / training,
        "evaluation_seconds": evaluation * len(graph.test) / min(facts, len(graph.test)),
    }


def pykeen_to_mrr(graph: KnowledgeGraph, *, minutes: float, facts: int = 500) -> dict[str, Any]:
    """Train PyKEEN's DistMult of 256 floats for a while; the MRR of some validation facts.

    PyKEEN's own loss for it and Adam with its rate of 0.001; 64 negatives a fact, batches of 1,024.
    The clock stands still while the MRR is measured.
    """
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import DistMult
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    sizes = {"num_entities": graph.num_entities, "num_relations": graph.num_relations}
    triples = CoreTriplesFactory(torch.tensor(graph.train), **sizes)
    model = DistMult(triples_factory=triples, embedding_dim=256, random_seed=0)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=triples,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        negative_sampler_kwargs={"num_negs_per_pos": 64},
    )
    evaluator = RankBasedEvaluator(filtered=True)
    chosen = np.random.default_rng(0).permutation(graph.valid)[:facts]
    course, spent, epoch = [], 0.0, 0
    while spent < 60 * minutes:
        epoch += 1
        start = time.perf_counter()
        loop.train(
            triples,
            num_epochs=epoch,  # in all: the loop goes on from where it is
            batch_size=1024,
            use_tqdm=False,
            continue_training=epoch > 1,
        )
        spent += time.perf_counter() - start
        found = evaluator.evaluate(
            model,
            torch.tensor(chosen),
            additional_filter_triples=[triples.mapped_triples],
            batch_size=32,
            use_tqdm=False,
        )
        course.append(
            {"seconds": spent, "epoch": epoch, "mrr": found.get_metric("both.realistic.mrr")}
        )
    return {"course": course, "facts": facts}
