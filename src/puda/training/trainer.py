"""The loop around the step: epochs, validation, early stopping, budget, resuming."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from puda import __version__
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import Diverged
from puda.evaluation.metrics import measure
from puda.evaluation.ranking import rank
from puda.runs import STATE, RunFolder, State, Trained
from puda.seeds import ambient, stream
from puda.tables import optimizer_state, restore_optimizer
from puda.training.average import Average
from puda.training.batches import Batches
from puda.training.build import build_learner
from puda.training.step import Learner, train_step
from puda.types import Risk

Listener = Callable[[Mapping[str, Any]], None]
"""Hears of every event: start, step, epoch, validation, stop."""


def train(
    graph: KnowledgeGraph, config: Config, out: str | Path, *, listener: Listener = lambda e: None
) -> RunFolder:
    """Train on a graph and leave the best weights in a new run folder."""
    learner = build_learner(graph, config)
    folder = RunFolder(out)
    folder.create(config, graph)
    Trainer(graph, config, learner, folder, listener).run()
    return folder


def resume(path: str | Path, *, listener: Listener = lambda e: None) -> RunFolder:
    """Go on with a run from its last validation, to the same bits as if it had not stopped."""
    folder = RunFolder(path)
    config, graph = folder.load_config(), folder.load_graph()
    trainer = Trainer(graph, config, build_learner(graph, config), folder, listener)
    if folder.resumable:
        trainer.run(resumed=True)
    return folder


class Trainer:
    """Runs epochs until the budget ends, the MRR stops rising, or the user interrupts."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: Config,
        learner: Learner,
        folder: RunFolder,
        listener: Listener,
    ) -> None:
        self.graph, self.config, self.learner = graph, config, learner
        self.folder, self.listener = folder, listener
        self.epoch = 0  # epochs done
        self.seconds = 0.0  # spent in earlier processes and in this one up to `_since`
        self.best: dict[str, Any] = {"mrr": None, "epoch": 0}
        self.stale = 0  # validations since the best
        self.batches = Batches(graph, config.training)
        self.average = Average()

    def run(self, *, resumed: bool = False) -> None:
        """Train to the end and keep the best weights."""
        with _threads(self.config.training.threads):
            self._since = time.monotonic()
            if resumed and (self.folder.path / STATE).exists():
                self._restore()
            else:
                self.folder.write_trace([])
                self._save_state()  # so that an interruption at any moment can be resumed
            self._tell(
                "start",
                version=__version__,
                torch=torch.__version__,
                threads=torch.get_num_threads(),
                data=self.graph.fingerprint,
                epoch=self.epoch,
                resumed=resumed,
            )
            reason = self._loop()
            self._tell("stop", reason=reason, epoch=self.epoch, best=self.best)
            if reason != "interrupted":
                self.folder.drop_state()

    def _loop(self) -> str:
        try:
            ended = self.epoch > 0 and self._left() <= 0
            while not ended:
                if self._out_of_patience():
                    return "no better MRR"
                self._epoch(max(self._left(), 0.01))  # the first epoch runs on any budget
                ended = self._left() <= 0
                if ended or self.epoch % self.config.training.validate_every == 0:
                    self._validate()
        except KeyboardInterrupt:
            if not (self.folder.path / "model.safetensors").exists():
                self._keep()
            return "interrupted"
        return "budget"

    def _out_of_patience(self) -> bool:
        return 0 < self.config.training.patience <= self.stale

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._since

    def _left(self) -> float:
        """Return the share of the budget that is left; the learning rate falls with it.

        It falls until averaging begins: a mean of weights that hardly move would be the last ones.
        """
        settings = self.config.training
        if settings.minutes is None:
            return 1 - self.epoch / settings.epochs
        spent = self._elapsed()
        another = spent / self.epoch / 2 if self.epoch else 0.0  # half an epoch may overrun
        return 1 - (spent + another) / (60 * settings.minutes)

    def _epoch(self, left: float) -> None:
        settings = self.config.training
        rate = self.config.optimizer.learning_rate * max(left, settings.averaged)
        self.learner.entities.optimizer.learning_rate = rate
        for group in self.learner.optimizer.param_groups:
            group["lr"] = rate
        draws = stream(settings.seed, "draws", self.epoch)
        batches = self.batches.of_epoch(stream(settings.seed, "order", self.epoch))
        risks, means = torch.zeros(len(Risk._fields)), torch.zeros(3)
        self.learner.model.train()
        with ambient(settings.seed, "dropout", self.epoch):
            for done, batch in enumerate(batches, start=1):
                with self._advice(f"step {done} of epoch {self.epoch + 1}"):
                    risk, scores = train_step(self.learner, batch, draws)
                risks += torch.stack([part.detach() for part in risk])
                means += torch.stack([_mean(part) for part in scores[:3]])
                self.listener({"event": "step", "done": done, "of": len(self.batches)})
        self.epoch += 1
        if left <= settings.averaged:
            self.average.add(self._weights())
        self._tell(
            "epoch",
            epoch=self.epoch,
            learning_rate=rate,
            risks=dict(zip(Risk._fields, (risks / done).tolist(), strict=True)),
            # A synthetic mean far from both others shows a generator that has no say.
            scores=dict(
                zip(("positive", "unlabeled", "synthetic"), (means / done).tolist(), strict=True)
            ),
        )

    def _weights(self) -> dict[str, Tensor]:
        """Name all weights of the model and its entities."""
        own = {f"model/{name}": weight for name, weight in self.learner.model.state_dict().items()}
        return {"entities": self.learner.entities.weight, **own}

    def _trained(self) -> Trained:
        """Return the model as it is, or the mean of its last epochs."""
        model, entities = self.learner.model.eval(), self.learner.entities.weight
        if self.average.number:
            model = copy.deepcopy(model)
            model.load_state_dict(_below(self.average.tensors, "model/"))
            entities = self.average.tensors["entities"]
        return Trained(self.config, self.graph, model, entities)

    def _validate(self) -> None:
        """Measure, keep the weights if they are the best so far, and save the state."""
        report = {}
        if len(self.graph.valid):
            known = self.graph.known("train", "valid")
            with self._advice(f"the validation after epoch {self.epoch}"):
                memory = self.config.training.memory
                ranks = rank(self._trained().score, self.graph.valid, known, memory=memory)
                report = measure(ranks)
        mrr, best = report["both"]["mrr"] if report else None, self.best["mrr"]
        better = mrr is None or best is None or mrr > best  # no validation facts: later is better
        if better or self.config.training.keep == "last":
            self._keep()
        if better:
            self.best, self.stale = {"mrr": mrr, "epoch": self.epoch}, 0
        else:
            self.stale += 1
        sides = {side: figures["mrr"] for side, figures in report.items()}
        self._tell("validation", epoch=self.epoch, mrr=sides, best=self.best)
        self._save_state()

    def _keep(self) -> None:
        """Make the weights as they are, or their mean, the run's result."""
        trained = self._trained()
        probe = trained.score(self.batches.questions[:16])
        for tensor in (probe, trained.entities, *trained.model.parameters()):
            if not torch.isfinite(tensor).all():
                with self._advice(f"epoch {self.epoch}"):
                    raise Diverged("a weight or a score is not finite")
        self.folder.save_model(trained.model, trained.entities)

    @contextmanager
    def _advice(self, place: str) -> Iterator[None]:
        """Say where training diverged and what to do about it."""
        try:
            yield
        except Diverged as error:
            raise Diverged(
                f"{error} at {place}: lower optimizer.learning_rate"
                f" (now {self.config.optimizer.learning_rate:.3g}) or raise objective.weight"
                f" (now {self.config.objective.weight:.3g})"
            ) from None

    def _tell(self, event: str, **values: Any) -> None:
        entry = {"event": event, "seconds": round(self._elapsed(), 3), **values}
        self.folder.append_trace(entry)
        self.listener(entry)

    # State: named tensors of everything that moves. Random streams need none (puda.seeds).

    def _modules(self) -> Iterator[tuple[str, torch.nn.Module, Optimizer]]:
        yield "model", self.learner.model, self.learner.optimizer
        adversary = self.learner.adversary
        if adversary is not None:
            yield "generator", adversary.generator, adversary.optimizer

    def _save_state(self) -> None:
        table = self.learner.entities
        tensors = {"entities": table.weight}
        tensors |= {f"average/{name}": value for name, value in self.average.tensors.items()}
        tensors |= {f"entities/{name}": value for name, value in table.optimizer.state.items()}
        for name, module, optimizer in self._modules():
            tensors |= {f"{name}/{key}": value for key, value in module.state_dict().items()}
            kept = optimizer_state(optimizer)
            tensors |= {f"{name} optimizer/{key}": value for key, value in kept.items()}
        tensors |= {f"sampler/{k}": v for k, v in self.learner.sampler.state().items()}
        values = {
            "epoch": self.epoch,
            "best": self.best,
            "stale": self.stale,
            "averaged": self.average.number,
            "seconds": self._elapsed(),
        }
        self.folder.save_state(State(tensors, values))

    def _restore(self) -> None:
        tensors, values = self.folder.load_state()
        self.epoch, self.best, self.stale = values["epoch"], values["best"], values["stale"]
        self.seconds = values["seconds"]
        self.average.number = values.get("averaged", 0)  # older versions kept none
        self.average.tensors = _below(tensors, "average/")
        table = self.learner.entities
        table.weight.copy_(tensors["entities"])
        for name, value in table.optimizer.state.items():
            value.copy_(tensors[f"entities/{name}"])
        for name, module, optimizer in self._modules():
            module.load_state_dict(_below(tensors, f"{name}/"))
            restore_optimizer(optimizer, _below(tensors, f"{name} optimizer/"))
        self.learner.sampler.restore(_below(tensors, "sampler/"))
        events = [e for e in self.folder.trace() if e.get("epoch", 0) <= self.epoch]
        self.folder.write_trace(events)


def _mean(values: Tensor) -> Tensor:
    return values.detach().mean() if values.numel() else torch.zeros(())


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Use so many threads inside; 0 leaves the choice to torch."""
    before = torch.get_num_threads()
    if number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
