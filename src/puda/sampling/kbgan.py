"""KBGAN (Cai & Wang 2018): a second model picks the unlabeled entities, trained by REINFORCE."""

import torch
from torch import Tensor

from puda.config import Count, Positive, ScoringConfig
from puda.data.graph import KnowledgeGraph
from puda.errors import ConfigError
from puda.runs import RunFolder
from puda.sampling.base import Sampler, Score, Unlabeled
from puda.scoring import build_model
from puda.seeds import ambient
from puda.tables import EntityTable, optimizer_state, restore_optimizer
from puda.types import Batch


class KBGANSampler(Sampler):
    """Of some uniform candidates per question, a picking model draws by softmax(its score).

    Its reward is the score that the trained model gives to what it picked; it steps up
    (reward - baseline) grad ln p(picked), the baseline being a moving mean of rewards. The picking
    model starts from the run folder `run` (the paper pre-trains it), or fresh if none is given.
    Candidates are drawn outside the known answers, the paper's are not.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        num_unlabeled: int,
        run: str = "",
        scoring: str = "distmult",
        dim: Count = 64,
        candidates: Count = 20,
        learning_rate: Positive = 1e-3,
    ) -> None:
        super().__init__(graph, num_unlabeled)
        self.candidates = candidates
        if run:
            picker = RunFolder(run).load()
            if not graph.shares_labels(picker.graph):
                raise ConfigError(
                    f"sampler.options.run = {run!r} was trained on other entities or relations"
                )
            self.model, rows = picker.model, picker.entities
        else:
            with ambient(0, "kbgan"):
                self.model = build_model(ScoringConfig(name=scoring, dim=dim), graph)
                rows = self.model.initial_entities()
        if self.model.whole_graph:
            raise ConfigError("kbgan: the picking model must not be a graph encoder")
        self.entities = EntityTable(rows, optimizer="adam", learning_rate=learning_rate)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        self.baseline = torch.zeros(())
        self._pulled: tuple[Tensor, Tensor] | None = None  # ids, rows of the last draw
        self._chances: Tensor | None = None  # (Q, N) ln p of what was picked

    def draw(self, batch: Batch, score: Score, stream: torch.Generator) -> Unlabeled:
        """Pick (Q, N) of the candidates."""
        questions = batch.questions
        keys = self.keys(questions)
        pool = self.outside(keys, self.candidates, stream)  # (Q, C)
        asked = torch.cat([questions.anchor, pool.flatten()])
        ids, place = torch.unique(asked, return_inverse=True)
        rows = self.entities.pull(ids)
        anchor = rows.index_select(0, place[: len(questions)])
        offered = rows.index_select(0, place[len(questions) :]).view(*pool.shape, -1)
        question = self.model.encode(anchor, questions.relation, questions.side)
        chances = self.model.match(question, offered).log_softmax(1)  # (Q, C)
        picked = torch.empty(len(keys), 0, dtype=torch.long)
        if self.num_unlabeled:
            weights = chances.detach().exp()
            picked = torch.multinomial(weights, self.num_unlabeled, True, generator=stream)
        self._pulled, self._chances = (ids, rows), chances.gather(1, picked)
        return Unlabeled(pool.gather(1, picked), self.open(keys, self.num_unlabeled))

    def observe(self, unlabeled: Tensor) -> None:
        """Take the model's scores as rewards and step the picking model."""
        assert self._pulled is not None and self._chances is not None
        if not unlabeled.numel():
            return
        reward = unlabeled.detach()
        loss = -((reward - self.baseline) * self._chances).mean()
        loss.backward()
        ids, rows = self._pulled
        assert rows.grad is not None
        self.entities.push(ids, rows.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.baseline.lerp_(reward.mean(), 0.05)
        self._pulled = self._chances = None

    def state(self) -> dict[str, Tensor]:
        """The picking model, its optimisers and the baseline."""
        tensors = {"baseline": self.baseline, "entities": self.entities.weight}
        tensors |= {f"entities/{k}": v for k, v in self.entities.optimizer.state.items()}
        tensors |= {f"model/{k}": v for k, v in self.model.state_dict().items()}
        kept = optimizer_state(self.optimizer)
        return tensors | {f"optimizer/{key}": value for key, value in kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a kept state, the optimiser's slots first: they may not exist yet."""
        slots = {k: v for k, v in state.items() if k.startswith("optimizer/")}
        restore_optimizer(
            self.optimizer, {k.removeprefix("optimizer/"): v for k, v in slots.items()}
        )
        super().restore(state)
