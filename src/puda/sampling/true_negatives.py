"""True negatives: facts that are annotated as untrue join the unlabeled ones (PN+, PUDA+)."""

import torch

from puda.config import NonNegative
from puda.data.graph import KnowledgeGraph
from puda.data.index import KnownAnswers
from puda.errors import ConfigError
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.sampling.uniform import Pool, distinct
from puda.types import Batch


class TrueNegativesSampler(Sampler):
    """N uniform unlabeled entities and as many annotated true negatives per question (Table 5).

    A question's true negatives are drawn with replacement; where it has none, only the unlabeled
    count. `split` says whose negatives to train on: those of train, if the graph has them, else
    of valid; test's are for measuring. With a shared `pool`, all questions of the batch see one
    pool of N uniform entities and of the true negatives that any of them has, at most N.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        num_unlabeled: int,
        split: str = "",
        temperature: NonNegative = 0.0,
        pool: Pool = "own",
    ) -> None:
        super().__init__(graph, num_unlabeled, temperature)
        self.pool = pool
        split = split or next((s for s in ("train", "valid") if s in graph.negatives), "")
        if split not in graph.negatives:
            raise ConfigError(
                f"the graph {graph.name} has no true negatives{f' for {split}' if split else ''}:"
                " use the sampler 'uniform'"
            )
        self.untrue = KnownAnswers(
            graph.negatives[split],
            num_entities=graph.num_entities,
            num_relations=graph.num_relations,
        )

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Draw (Q, 2N): unlabeled, then true negatives; or a pool (P,)."""
        keys = self.keys(batch.questions)
        if self.pool == "shared":
            size = min(self.num_unlabeled, self.num_entities)
            uniform = distinct(self.num_entities, size, stream)
            untrue = torch.from_numpy(self.untrue.exclude(keys)[1]).unique()
            chosen = torch.randperm(len(untrue), generator=stream)[:size]
            ids = torch.cat([uniform, untrue[chosen]]).unique()
            return Unlabeled(ids, ~torch.from_numpy(self.known.mask(keys, ids.numpy())))
        unlabeled = self.outside(keys, self.num_unlabeled, stream)
        draws = torch.rand(unlabeled.shape, generator=stream, dtype=torch.float64).numpy()
        untrue, found = self.untrue.sample(keys, draws)
        ids = torch.cat([unlabeled, torch.from_numpy(untrue)], dim=1)
        counted = self.mark(keys, ids)  # what is known as true is not untrue, whatever else says so
        counted[:, self.num_unlabeled :] &= torch.from_numpy(found).unsqueeze(1)
        return Unlabeled(ids, counted)
