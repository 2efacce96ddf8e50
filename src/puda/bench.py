"""How fast this machine trains and ranks, how near that is to its bare matrix products, and PyKEEN.

Every figure is a median of repetitions that alternate with what they are compared with, so that a
moment in which the machine is busy with something else falls on both.
"""

import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from typing import Any

import numpy as np
import torch

from puda import native
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.evaluation.ranking import rank
from puda.objectives import USES_SYNTHETIC
from puda.runs import Trained
from puda.seeds import stream
from puda.training.batches import Batches
from puda.training.build import build_learner
from puda.training.step import train_step
from puda.types import Questions, Risk, Scores

Figures = dict[str, Any]

CONFIG = Config().with_settings(
    [
        "scoring.name=distmult",
        "objective.weight=0",
        "sampler.num_unlabeled=512",
        "training.batch_size=4096",
    ]
)
"""What is measured unless one asks for something else: listwise PUDA with 32 synthetic entities."""

BLOCK = 10  # steps at a time
HEIGHT, WIDTH = 512, 2048  # of the tiles of bare products that fill a core's cache best


def timed(action: Callable[[], object], *, times: int = 1) -> float:
    """Return the seconds that something takes, done so many times."""
    start = time.perf_counter()
    for _ in range(times):
        action()
    return time.perf_counter() - start


def stepper(graph: KnowledgeGraph, config: Config) -> Callable[[], tuple[Risk, Scores]]:
    """Return what makes one training step after another, through epochs without end."""
    learner, batches = build_learner(graph, config), Batches(graph, config.training)
    learner.model.train()
    draws = stream(0, "draws")
    queue = (batch for epoch in count() for batch in batches.of_epoch(stream(0, "order", epoch)))
    return lambda: train_step(learner, next(queue), draws)


def time_training(graph: KnowledgeGraph, config: Config, *, steps: int = 100) -> Figures:
    """Time steps, each beside its bare matrix products: scores, and their gradients both ways."""
    step, number = stepper(graph, config), len(Batches(graph, config.training))
    invented = config.generator.num_synthetic if config.objective.name in USES_SYNTHETIC else 0
    candidates = min(config.sampler.num_unlabeled, graph.num_entities) + invented
    size, dim = -(-2 * len(graph.train) // number), config.scoring.dim
    products = _bare_products(size, candidates, dim)
    spent: list[float] = []
    bare: list[float] = []
    for _ in range(steps // BLOCK):  # in blocks: each must not find its memory swept by the other
        for action, seconds in ((step, spent), (products, bare)):
            action()  # to warm up
            seconds += [timed(action) for _ in range(BLOCK)]
    operations = 6 * size * candidates * dim
    one, least = statistics.median(spent), statistics.median(bare)
    return {
        "scoring": config.scoring.name,
        "floats": dim,
        "batch": size,
        "candidates": candidates,  # unlabeled and synthetic, of each of a fact's two questions
        "step_ms": 1000 * one,
        "epoch_seconds": one * number,
        "pairs_a_second": size * candidates / one,
        "times_bare_products": one / least,
        "gflops": operations / one / 1e9,
        "gflops_bare": operations / least / 1e9,
    }


def _bare_products(questions: int, candidates: int, dim: int) -> Callable[[], None]:
    """Return the three products of a step, on memory of their own that is used again and again."""
    question, rows = torch.randn(questions, dim), torch.randn(candidates, dim)
    scores, to_question, to_rows = question @ rows.T, question.clone(), rows.clone()

    def products() -> None:
        torch.mm(question, rows.T, out=scores)
        torch.mm(scores, rows, out=to_question)
        torch.mm(scores.T, question, out=to_rows)

    return products


def time_evaluation(graph: KnowledgeGraph, config: Config, *, rounds: int = 3) -> Figures:
    """Time the filtered ranking of all test facts, beside its bare matrix products."""
    learner = build_learner(graph, config)
    trained = Trained(config, graph, learner.model.eval(), learner.entities.weight)
    known = graph.known("train", "valid", "test")
    questions, _ = Questions.both(torch.tensor(graph.test))
    keys = known.key(questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy())
    distinct = len(np.unique(keys))  # equal questions are scored once
    products = _bare_tiles(distinct, trained.rows)
    rank(trained.score, graph.test[:1000], known)  # indexes are made at first use
    spent, bare = [], []
    for _ in range(rounds):
        spent.append(timed(lambda: rank(trained.score, graph.test, known)))
        bare.append(timed(products))
    seconds, least = statistics.median(spent), statistics.median(bare)
    return {
        "seconds": seconds,
        "times_bare_products": seconds / least,
        "facts": len(graph.test),
        "distinct_questions": distinct,
    }


def _bare_tiles(questions: int, rows: torch.Tensor) -> Callable[[], None]:
    """Return the products of so many questions with all rows (E, d), in tiles of one buffer."""
    asked, tile = torch.randn(HEIGHT, rows.shape[1]), torch.empty(HEIGHT * WIDTH)

    def products() -> None:
        for start in range(0, questions, HEIGHT):
            block = asked[: questions - start]
            for part in rows.split(WIDTH):
                out = tile[: len(block) * len(part)].view(len(block), len(part))
                torch.mm(block, part.T, out=out)

    return products


PYKEEN: dict[str, Callable[[int], Figures]] = {
    "distmult": lambda dim: {"model": "distmult", "embedding_dim": dim},
    "complex": lambda dim: {"model": "complex", "embedding_dim": dim // 2},
    "transe": lambda dim: {"model": "transe", "embedding_dim": dim, "scoring_fct_norm": 1},
    "rotate": lambda dim: {"model": "rotate", "embedding_dim": dim // 2},
}
"""The same scoring functions in PyKEEN's words, which counts complex numbers."""


def time_pykeen(
    graph: KnowledgeGraph,
    config: Config,
    *,
    negatives: int = 64,
    batch: int = 1024,
    batches: int = 12,
    facts: int = 256,
) -> Figures:
    """Time PyKEEN's training on some batches and its evaluation on some test facts.

    The seconds of an epoch and of all test facts follow in proportion: in PyKEEN every batch and
    every test fact costs the same.
    """
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import model_resolver
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    some = np.random.default_rng(0).permutation(graph.train)[: batch * batches]

    def factory(facts: np.ndarray) -> Any:
        return CoreTriplesFactory(
            torch.tensor(facts), num_entities=graph.num_entities, num_relations=graph.num_relations
        )

    options = PYKEEN[config.scoring.name](config.scoring.dim)
    name, whole = options.pop("model"), factory(some)
    model = model_resolver.make(name, triples_factory=whole, random_seed=0, **options)

    def epoch(triples: Any) -> float:
        loop = SLCWATrainingLoop(
            model=model,
            triples_factory=triples,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            negative_sampler_kwargs={"num_negs_per_pos": negatives},
        )
        return timed(lambda: loop.train(triples, num_epochs=1, batch_size=batch, use_tqdm=False))

    epoch(factory(some[: 2 * batch]))  # to warm up
    training = epoch(whole)
    evaluator = RankBasedEvaluator(filtered=True)
    known = [torch.tensor(graph.train), torch.tensor(graph.valid)]
    ranked = torch.tensor(graph.test[:facts])
    evaluation = timed(
        lambda: evaluator.evaluate(
            model, ranked, additional_filter_triples=known, use_tqdm=False, batch_size=32
        )
    )
    pairs = len(some) * negatives
    return {
        "negatives": negatives,
        "epoch_seconds": training * len(graph.train) / len(some),
        "pairs_a_second": pairs / training,
        "evaluation_seconds": evaluation * len(graph.test) / len(ranked),
    }


def peak_memory() -> float | None:
    """Return the most memory that this process has held, in megabytes; None if unknown."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def machine() -> Figures:
    """Say what the figures were measured on."""
    return {
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": native.library is not None,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "torch": torch.__version__,
    }


def bench(graph: KnowledgeGraph, config: Config) -> Figures:
    """Measure training, evaluation and memory on a graph, and PyKEEN's if it is installed."""
    figures: Figures = {
        "machine": machine(),  # first: the load average is then that of others
        "training": time_training(graph, config),
        "evaluation": time_evaluation(graph, config),
        "peak_memory_mb": peak_memory(),
    }
    if find_spec("pykeen") and config.scoring.name in PYKEEN:
        with warnings.catch_warnings():  # of PyKEEN, about graphics cards that are not there
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            figures["pykeen"] = time_pykeen(graph, config)
            logging.disable(logging.NOTSET)
    return figures
