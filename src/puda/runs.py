"""The run folder: all that a trained model is, pickle-free and readable by a person.

config.toml, entities.txt, relations.txt, graph.safetensors (facts as ids), model.safetensors,
metrics.json, trace.jsonl, card.md, and resume/ while training can go on. Each file is written to
a temporary name and renamed, so that a reader sees the old one or the new one, never a half. An
ensemble's folder holds such folders, members/0, members/1 and so on, and what was measured of all.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from puda import config as configs
from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.vocabulary import Vocabulary
from puda.errors import ConfigError, RunError
from puda.scoring import ScoringFunction, build_model
from puda.scoring.ensemble import Ensemble
from puda.types import Questions

ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
PLAIN = {written: char for char, written in ESCAPED.items()}
STATE = "resume/state.safetensors"
MEMBERS = "members"
ENTITIES = "entities"  # the table's name in model.safetensors; the model's own begin with "model."


@dataclass(frozen=True)
class Trained:
    """A model with the graph that it was trained on."""

    config: Config
    graph: KnowledgeGraph
    model: ScoringFunction
    entities: Tensor  # (E, row) the table

    @cached_property
    def rows(self) -> Tensor:
        """Rows of all entities as they are matched (E, row)."""
        with torch.no_grad():
            return self.model.contextualize(self.entities)

    @torch.no_grad()
    def score(self, questions: Questions) -> Tensor:
        """Score all entities as answers: (Q, E)."""
        return self.model.match(self.model.ask(questions, self.rows), self.rows)


class State(NamedTuple):
    """Where training stands: tensors, and plain values that JSON can hold."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def members(self) -> "list[RunFolder]":
        """The runs of an ensemble, in the order of their seeds; none for a single run."""
        found = [path for path in (self.path / MEMBERS).glob("*") if path.name.isdecimal()]
        return [RunFolder(path) for path in sorted(found, key=lambda path: int(path.name))]

    def create_ensemble(self, config: Config, graph: KnowledgeGraph, seeds: int) -> None:
        """Make the folders of members, which differ by their seeds."""
        self._check_free()
        first = config.training.seed
        for number in range(seeds):
            own = config.with_settings([f"training.seed={first + number}"])
            RunFolder(self.path / MEMBERS / str(number)).create(own, graph)

    def _check_free(self) -> None:
        if (self.path / "config.toml").exists() or self.members:
            raise RunError(f"{self.path} holds a run already: choose another --out or remove it")

    def create(self, config: Config, graph: KnowledgeGraph) -> None:
        """Write what does not change during training."""
        self._check_free()
        for vocabulary in (graph.entities, graph.relations):
            name = {"entity": "entities.txt", "relation": "relations.txt"}[vocabulary.kind]
            self.write_text(name, "".join(f"{_escape(label)}\n" for label in vocabulary.labels))
        facts = {split: torch.tensor(graph.facts(split)) for split in SPLITS}
        facts |= {f"{k} negatives": torch.tensor(v) for k, v in graph.negatives.items()}
        header = {"name": graph.name, "fingerprint": graph.fingerprint}
        self.write_tensors("graph.safetensors", facts, header)
        self.write_text("config.toml", config.to_toml())  # last: with it the folder is a run

    def load_metrics(self) -> dict[str, Any]:
        """Read what was measured when training ended; empty if it has not."""
        if not (self.path / "metrics.json").exists():
            return {}
        try:
            metrics: dict[str, Any] = json.loads(self._text("metrics.json"))
        except json.JSONDecodeError as error:
            raise RunError(f"{self.path} is damaged: metrics.json ({error})") from None
        return metrics

    def write_text(self, name: str, text: str) -> None:
        """Write a text file whole."""
        with replacing(self.path / name) as part:
            part.write_text(text, encoding="utf-8")

    def write_tensors(
        self, name: str, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None
    ) -> None:
        """Write a safetensors file whole."""
        with replacing(self.path / name) as part:
            save_file({k: v.contiguous() for k, v in tensors.items()}, part, dict(header or {}))

    def append_trace(self, event: Mapping[str, Any]) -> None:
        """Add a line to the trace."""
        try:
            with (self.path / "trace.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        except OSError as error:
            raise RunError(f"cannot write {self.path / 'trace.jsonl'}: {error.strerror}") from None

    def write_trace(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Replace the trace, as resuming does with what lies behind its state."""
        self.write_text("trace.jsonl", "".join(json.dumps(event) + "\n" for event in events))

    def trace(self) -> list[dict[str, Any]]:
        """Read the trace; a last line that was cut off by a crash is left out.

        Of an ensemble, that of its first member.
        """
        if self.members:
            return self.members[0].trace()
        lines = self._text("trace.jsonl").splitlines()
        events = []
        for line in lines:
            with suppress(json.JSONDecodeError):
                events.append(json.loads(line))
        return events

    def save_model(self, model: ScoringFunction, entities: Tensor) -> None:
        """Keep weights as the run's result."""
        own = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        self.write_tensors("model.safetensors", {ENTITIES: entities, **own})

    @property
    def resumable(self) -> bool:
        """Whether training has not come to its end."""
        if self.members:
            return any(member.resumable for member in self.members)
        state, model = self.path / STATE, self.path / "model.safetensors"
        return state.exists() or not model.exists()

    def drop_state(self) -> None:
        """Remove what only resuming needs."""
        (self.path / STATE).unlink(missing_ok=True)
        with suppress(OSError):
            (self.path / STATE).parent.rmdir()

    def save_state(self, state: State) -> None:
        """Keep all that is needed to go on; one file, so that it is of one moment."""
        header = {"values": json.dumps(state.values)}
        self.write_tensors(STATE, state.tensors, header)

    def load_state(self) -> State:
        """Read what `save_state` kept."""
        tensors, header = self._tensors(STATE)
        if "values" not in header:
            raise RunError(f"{self.path} is damaged: resume/state.safetensors is not a state")
        return State(tensors, json.loads(header["values"]))

    def load_config(self) -> Config:
        """Read the settings of the run."""
        if not self.path.is_dir():
            raise RunError(f"no run folder {self.path}")
        if self.members:
            return self.members[0].load_config()
        if not (self.path / "config.toml").is_file():
            raise RunError(f"{self.path} is not a run folder: it holds no config.toml")
        try:
            return configs.read(self.path / "config.toml")
        except ConfigError as error:
            raise RunError(f"{self.path} is damaged: {error}") from None

    def load_graph(self) -> KnowledgeGraph:
        """Read the graph that the run was trained on."""
        if self.members:
            return self.members[0].load_graph()
        entities = Vocabulary(self._labels("entities.txt"), kind="entity")
        relations = Vocabulary(self._labels("relations.txt"), kind="relation")
        facts, header = self._tensors("graph.safetensors")
        if not {*SPLITS} <= {*facts} or not {"name", "fingerprint"} <= {*header}:
            raise RunError(f"{self.path} is damaged: graph.safetensors is not a graph")
        train, valid, test = (facts[split].numpy() for split in SPLITS)
        untrue = {k.split()[0]: v.numpy() for k, v in facts.items() if k.endswith(" negatives")}
        graph = KnowledgeGraph(
            header["name"], entities, relations, train, valid, test, negatives=untrue
        )
        if graph.fingerprint != header["fingerprint"]:
            raise RunError(
                f"{self.path} is damaged: entities.txt, relations.txt and the facts of"
                " graph.safetensors do not belong together"
            )
        return graph

    def load(self) -> Trained:
        """Read the trained model with its graph."""
        if self.members:
            return self._load_ensemble()
        config, graph = self.load_config(), self.load_graph()
        model = build_model(config.scoring, graph)
        tensors, _ = self._tensors("model.safetensors")
        entities = tensors.pop(ENTITIES, torch.empty(0))
        own = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
        if entities.shape != (graph.num_entities, model.row_dim):
            raise RunError(
                f"{self.path / 'model.safetensors'} is damaged: its entity table has"
                f" shape {tuple(entities.shape)}, the run has {graph.num_entities}"
                f" entities of {model.row_dim} floats"
            )
        try:
            model.load_state_dict(own)
        except RuntimeError:
            raise RunError(
                f"{self.path / 'model.safetensors'} is damaged: its weights are not"
                f" those of {config.scoring.name}"
            ) from None
        return Trained(config, graph, model.eval(), entities)

    def _load_ensemble(self) -> Trained:
        members = [folder.load() for folder in self.members]
        first = members[0]
        for folder, member in zip(self.members, members, strict=True):
            if (member.graph.fingerprint, member.config.scoring) != (
                first.graph.fingerprint,
                first.config.scoring,
            ):
                raise RunError(f"{folder.path} is not of the same graph and model as the others")
        model = Ensemble([member.model for member in members])
        entities = torch.cat([member.entities for member in members], dim=1)
        return Trained(first.config, first.graph, model.eval(), entities)

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RunError(f"{self.path} is damaged: {name} is missing") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path} is damaged: cannot read {name} ({error})") from None

    def _labels(self, name: str) -> Sequence[str]:
        return [_unescape(line) for line in self._text(name).split("\n")[:-1]]

    def _tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        path = self.path / name
        if not path.is_file():
            raise RunError(f"{self.path} is damaged: {name} is missing")
        try:
            with safe_open(path, "pt") as file:
                header = file.metadata() or {}
            return load_file(path), header
        except (OSError, SafetensorError) as error:
            raise RunError(f"{self.path} is damaged: cannot read {name} ({error})") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes `path` when all went well."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        mode = part.stat().st_mode  # what the user's umask gives; safetensors would shut others out
        yield part
        part.chmod(mode)
        part.replace(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot write {path}: {error}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _escape(label: str) -> str:
    return re.sub(r"[\\\n\r]", lambda found: ESCAPED[found[0]], label)


def _unescape(line: str) -> str:
    return re.sub(r"\\[\\nr]", lambda found: PLAIN[found[0]], line)
