"""Reproducing: what is measured, what is left alone, and how an interrupted run goes on."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import puda
from puda import paper
from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.source import Loaded
from puda.errors import ConfigError, DataError
from puda.evaluation.classification import classify
from puda.evaluation.metrics import measure
from puda.evaluation.ranking import rank
from puda.experiments import ExperimentFile, Measured
from puda.paper import hide
from puda.runs import RunFolder, Trained
from puda.types import Questions
from toy import checkerboard, family_tree, ring

HEAD = 'tables = ["table1"]\nrow = "Small"\n'
SMALL = """
[config.scoring]
name = "distmult"
dim = 8
[config.generator]
num_synthetic = 2
[config.sampler]
num_unlabeled = 8
[config.training]
epochs = 3
validate_every = 1
batch_size = 32
threads = 1
"""


class Watcher:
    """Watches runs, and presses Ctrl-C in the given epoch (1-based) of one of them."""

    def __init__(self, interrupt_in: int | None = None) -> None:
        self.interrupt_in = interrupt_in
        self.configs: list[Config] = []
        self.starts: list[Mapping[str, Any]] = []
        self.told: list[str] = []

    @contextmanager
    def __call__(self, config: Config) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Give the listener of one run."""
        self.configs.append(config)
        epochs = 0

        def listener(event: Mapping[str, Any]) -> None:
            nonlocal epochs
            if event["event"] == "start":
                self.starts.append(event)
            epochs += event["event"] == "epoch"
            if event["event"] == "step" and epochs + 1 == self.interrupt_in:
                raise KeyboardInterrupt

        yield listener


@pytest.fixture
def graph(monkeypatch) -> KnowledgeGraph:
    """Make a small graph with true negatives be the data set of every experiment."""
    board = checkerboard(6)
    untrue = board.test.copy()
    untrue[:, 1] = 1 - untrue[:, 1]  # likes, where dislikes is true, and the reverse
    board = replace(board, negatives={"test": untrue})

    def load(name: str, **_: Any) -> Loaded:
        if name != "toy":
            raise DataError(f"no data set {name!r}")
        return Loaded(board, ())

    monkeypatch.setattr(paper, "load", load)
    return board


def write(
    folder: Path, text: str = HEAD + SMALL, *, name: str = "mine", dataset: str = "toy"
) -> Path:
    path = folder / dataset / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def reproduce(path: Path, *, watcher: Watcher | None = None, **asked: Any) -> Watcher:
    """Run what a file asks for, in runs/ beside its folder."""
    watcher = watcher or Watcher()
    runs = path.parent.parent / "runs"
    file = ExperimentFile(path)
    paper.reproduce([file], runs, watch=watcher, tell=watcher.told.append, **asked)
    return watcher


def recorded(path: Path) -> tuple[Measured, ...]:
    return ExperimentFile(path).experiment.measured


# --- hiding facts


def rows(facts: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(fact) for fact in facts.tolist()}


@pytest.mark.parametrize("make", [ring, family_tree, checkerboard])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_share_is_hidden_and_the_rest_kept(make, share):
    graph = make()
    kept, hidden = hide(graph, share, seed=3)
    assert len(hidden) == round(share * len(graph.train))
    assert len(kept.train) + len(hidden) == len(graph.train)
    assert rows(kept.train) | rows(hidden) == rows(graph.train)
    assert not rows(kept.train) & rows(hidden)


def test_vocabulary_and_the_other_splits_stay(graph):
    kept, hidden = hide(graph, 0.9, seed=0)
    assert kept.shares_labels(graph)
    assert kept.num_entities > len({*kept.train[:, 0], *kept.train[:, 2]})  # some have no fact left
    for split in ("valid", "test"):
        assert np.array_equal(kept.facts(split), graph.facts(split))
    assert kept.negatives == graph.negatives


def test_the_same_seed_hides_the_same_facts_and_another_seed_others(graph):
    first, again, other = (hide(graph, 0.5, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first[1], again[1])
    assert first[0].fingerprint == again[0].fingerprint
    assert rows(first[1]) != rows(other[1])


def test_what_is_known_is_counted_anew(graph):
    graph.known(*SPLITS)  # an index that must not be carried over
    kept, hidden = hide(graph, 0.5, seed=0)
    head, relation, tail = hidden[0].tolist()
    known = [list(g.known(*SPLITS).of(head, relation, 0)) for g in (graph, kept)]
    assert tail in known[0]
    assert tail not in known[1]


# --- what is recorded


def by_hand(
    trained: Trained, facts: np.ndarray, known: set[tuple[int, ...]], sides: str = "both"
) -> dict[str, float]:
    """Compare every fact with every non-fact that differs from it in one place."""
    reciprocal, above, pairs = [], 0.0, 0
    for head, relation, tail in facts.tolist():
        for side in {"tail": [0], "head": [1], "both": [0, 1]}[sides]:
            anchor, answer = ((head, tail), (tail, head))[side]
            asked = Questions(*(torch.tensor([value]) for value in (anchor, relation, side)))
            scores = trained.score(asked)[0].tolist()
            rivals = [
                scores[entity]
                for entity in range(len(scores))
                if ((head, relation, entity), (entity, relation, tail))[side] not in known
                and entity != answer
            ]
            beaten_by = sum((s > scores[answer]) + (s == scores[answer]) / 2 for s in rivals)
            reciprocal.append(1 / (1 + beaten_by))
            above, pairs = above + beaten_by, pairs + len(rivals)
    return {"mrr": sum(reciprocal) / len(reciprocal), "below": above / pairs}


def test_figures_agree_with_a_loop_over_all_non_facts(graph, tmp_path):
    path = write(tmp_path, HEAD + "hide = 0.4\n" + SMALL)
    reproduce(path)
    [measured] = recorded(path)
    trained = RunFolder(tmp_path / "runs/toy/mine-seed-0").load()
    hidden = np.array(sorted(rows(graph.train) - rows(trained.graph.train)))
    assert len(hidden) == round(0.4 * len(graph.train))
    everything = set().union(*(rows(graph.facts(split)) for split in SPLITS))
    shown = everything - rows(graph.test)

    expected = by_hand(trained, hidden, everything)
    assert measured.hidden["below"] == pytest.approx(expected["below"], abs=1e-5)
    assert measured.hidden["mrr"] == pytest.approx(expected["mrr"], abs=1e-5)
    for side in ("tail", "head", "both"):
        mrr = by_hand(trained, graph.test, everything, side)["mrr"]
        assert getattr(measured, side)["mrr"] == pytest.approx(mrr, abs=1e-5)
    mrr = by_hand(trained, graph.valid, shown)["mrr"]
    assert measured.valid["mrr"] == pytest.approx(mrr, abs=1e-5)


def test_a_measurement_tells_how_the_run_went(graph, tmp_path):
    path = write(tmp_path)
    reproduce(path)
    [measured] = recorded(path)
    run = puda.open_run(tmp_path / "runs/toy/mine-seed-0")
    checks = [event for event in run.folder.trace() if event["event"] == "validation"]
    assert measured.settings == ExperimentFile(path).digest
    assert (measured.value, measured.seed, measured.minutes) == (None, 0, None)
    assert (measured.epochs, measured.best_epoch) == (3, checks[-1]["best"]["epoch"])
    assert [mrr for _, mrr in measured.curve] == [round(c["mrr"]["both"], 5) for c in checks]
    told = run.evaluate("test")["test"]
    for side in ("tail", "head", "both"):
        found = getattr(measured, side)
        assert found.keys() == {"mrr", "mr", "hits@1", "hits@3", "hits@10", "amri"}
        assert found == {metric: round(told[side][metric], 5) for metric in found}
    assert measured.version.startswith(puda.__version__)
    assert measured.hidden == {}


def test_facts_are_told_from_true_negatives_where_there_are_any(graph, tmp_path, monkeypatch):
    path = write(tmp_path)
    reproduce(path)
    trained = RunFolder(tmp_path / "runs/toy/mine-seed-0").load()
    figures = classify(trained.score, graph.test, graph.negatives["test"])
    assert recorded(path)[0].classified == {k: round(v, 5) for k, v in figures.items()}

    bare = replace(graph, negatives={})
    monkeypatch.setattr(paper, "load", lambda name, **_: Loaded(bare, ()))
    other = write(tmp_path, name="bare")
    reproduce(other)
    assert recorded(other)[0].classified == {}


def test_what_varies_is_recorded_with_its_value(graph, tmp_path):
    text = HEAD + '[vary]\nsetting = "hide"\nvalues = [0.0, 0.5]\n' + SMALL
    path = write(tmp_path, text)
    watcher = reproduce(path)
    assert [measured.value for measured in recorded(path)] == [0.0, 0.5]
    assert ["mrr" in measured.hidden for measured in recorded(path)] == [False, True]
    assert watcher.told[0] == "toy/mine 0.0 seed 0: Small"
    mrr = recorded(path)[1].tail["mrr"]
    assert watcher.told[-1].startswith(f"toy/mine 0.5 seed 0: test MRR {mrr:.3f} tail")


# --- what is done, and what was interrupted


def test_a_trial_that_is_done_is_not_run_again(graph, tmp_path):
    path = write(tmp_path)
    assert len(reproduce(path).configs) == 1
    before = path.read_bytes()
    watcher = reproduce(path)
    assert (watcher.configs, watcher.told) == ([], [])
    assert path.read_bytes() == before


def test_only_the_seeds_that_are_missing_are_run(graph, tmp_path):
    path = write(tmp_path)
    reproduce(path)
    watcher = reproduce(path, seeds=3)
    assert [config.training.seed for config in watcher.configs] == [1, 2]
    assert [measured.seed for measured in recorded(path)] == [0, 1, 2]


def test_another_budget_is_another_trial(graph, tmp_path):
    path = write(tmp_path)
    reproduce(path)
    watcher = reproduce(path, minutes=0.001)
    assert [config.training.minutes for config in watcher.configs] == [0.001]
    assert [measured.minutes for measured in recorded(path)] == [None, 0.001]


def untimed(measured: Measured) -> Measured:
    curve = tuple((0.0, mrr) for _, mrr in measured.curve)
    return measured.model_copy(update={"seconds": 0.0, "curve": curve})


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interrupted_trial_goes_on_from_its_folder_and_is_then_recorded(graph, tmp_path, epoch):
    whole = write(tmp_path, name="whole")
    reproduce(whole)

    path = write(tmp_path)
    text = path.read_text()
    with pytest.raises(KeyboardInterrupt):
        reproduce(path, watcher=Watcher(interrupt_in=epoch))
    assert path.read_text() == text
    assert RunFolder(tmp_path / "runs/toy/mine-seed-0").resumable

    watcher = reproduce(path)
    assert [(s["resumed"], s["epoch"]) for s in watcher.starts] == [(True, epoch - 1)]
    assert not RunFolder(tmp_path / "runs/toy/mine-seed-0").resumable
    assert [untimed(m) for m in recorded(path)] == [untimed(m) for m in recorded(whole)]


def test_what_was_finished_before_an_interruption_stays_recorded(graph, tmp_path):
    path = write(tmp_path, HEAD + "seeds = 2\n" + SMALL)
    watcher = Watcher()

    @contextmanager
    def second_is_stopped(config: Config) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        watcher.interrupt_in = 2 if config.training.seed == 1 else None
        with watcher(config) as listener:
            yield listener

    file = ExperimentFile(path)
    with pytest.raises(KeyboardInterrupt):
        paper.reproduce([file], tmp_path / "runs", watch=second_is_stopped, tell=lambda text: None)
    assert [measured.seed for measured in recorded(path)] == [0]


def test_a_run_that_ended_but_was_not_recorded_is_measured_without_training(graph, tmp_path):
    path = write(tmp_path)
    text = path.read_text()
    reproduce(path)
    first = recorded(path)
    path.write_text(text)  # as if the process had been killed before it wrote
    assert reproduce(path).starts == []
    assert recorded(path) == first


def test_a_folder_of_other_settings_is_replaced(graph, tmp_path):
    path = write(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        reproduce(path, watcher=Watcher(interrupt_in=3))
    path.write_text(path.read_text().replace("dim = 8", "dim = 4"))
    watcher = reproduce(path)
    assert [start["resumed"] for start in watcher.starts] == [False]
    assert RunFolder(tmp_path / "runs/toy/mine-seed-0").load_config().scoring.dim == 4
    assert len(ExperimentFile(path).measured) == 1


def test_a_folder_with_other_facts_hidden_is_replaced(graph, tmp_path):
    path = write(tmp_path, HEAD + "hide = 0.1\n" + SMALL)
    reproduce(path)
    path.write_text(path.read_text().replace("hide = 0.1", "hide = 0.5"))
    reproduce(path)
    kept = RunFolder(tmp_path / "runs/toy/mine-seed-0").load_graph().train
    assert len(kept) == len(graph.train) - round(0.5 * len(graph.train))


def test_a_run_that_was_killed_while_its_folder_was_made_is_begun_anew(graph, tmp_path):
    path = write(tmp_path)
    folder = tmp_path / "runs/toy/mine-seed-0"
    folder.mkdir(parents=True)
    (folder / "entities.txt").write_text("half\n")
    reproduce(path)
    assert len(recorded(path)) == 1


# --- starting from another run


def test_a_model_starts_from_the_run_of_the_other_file_with_its_seed(graph, tmp_path):
    first = write(tmp_path, name="first")
    path = write(tmp_path, HEAD + 'start = "first.toml"\n' + SMALL)
    reproduce(first, seeds=2)
    watcher = reproduce(path, seeds=2)
    starts = [config.scoring.start for config in watcher.configs]
    assert starts == [str(tmp_path / f"runs/toy/first-seed-{seed}") for seed in (0, 1)]
    assert len(ExperimentFile(path).measured) == 2


@pytest.mark.parametrize("begun", [False, True], ids=["missing", "interrupted"])
def test_a_start_that_is_not_finished_is_trained_first(graph, tmp_path, begun):
    first = write(tmp_path, name="first")
    path = write(tmp_path, HEAD + 'start = "first.toml"\n' + SMALL)
    if begun:
        with pytest.raises(KeyboardInterrupt):
            reproduce(first, watcher=Watcher(interrupt_in=2))
    watcher = reproduce(path)
    assert [start["resumed"] for start in watcher.starts] == [begun, False]
    assert len(recorded(path)) == 1
    assert recorded(first) == ()  # it was not asked for
    assert reproduce(first).starts == []  # and if it is, need not be trained again


def test_members_are_trained_where_need_be_and_measured_as_one(graph, tmp_path):
    members = [write(tmp_path, name=name) for name in ("one", "two")]
    members[1].write_text(members[1].read_text().replace("epochs = 3", "epochs = 2"))
    reproduce(members[0])
    path = write(tmp_path, HEAD + 'members = ["one.toml", "two.toml"]\n')
    assert [config.training.epochs for config in reproduce(path).configs] == [2]
    folders = [RunFolder(tmp_path / f"runs/toy/{name}-seed-0") for name in ("one", "two")]
    trained = [folder.load() for folder in folders]
    mean = lambda asked: (trained[0].score(asked) + trained[1].score(asked)) / 2  # noqa: E731
    expected = measure(rank(mean, graph.test, graph.known(*SPLITS)))
    (found,) = recorded(path)
    assert found.both["mrr"] == pytest.approx(expected["both"]["mrr"], abs=1e-4)
    assert found.epochs == 3 and found.curve == ()
    seconds = sum(folder.trace()[-1]["seconds"] for folder in folders)
    assert found.seconds == pytest.approx(seconds, abs=0.06)
    members[1].write_text(members[1].read_text().replace("epochs = 2", "epochs = 1"))
    assert ExperimentFile(path).measured == []  # of other settings


def test_a_member_that_is_listed_twice_has_two_seeds(graph, tmp_path):
    for name in ("one", "two"):
        write(tmp_path, name=name)
    path = write(tmp_path, HEAD + 'members = ["one.toml", "two.toml", "two.toml"]\n')
    reproduce(path, seeds=2)
    trained = sorted(folder.name for folder in (tmp_path / "runs/toy").iterdir())
    assert trained == [*(f"one-seed-{i}" for i in (0, 1)), *(f"two-seed-{i}" for i in range(4))]
    assert [measured.seed for measured in recorded(path)] == [0, 1]


def test_members_leave_no_room_for_settings(graph, tmp_path):
    write(tmp_path, name="one")
    path = write(tmp_path, HEAD + 'members = ["one.toml"]\n' + SMALL)
    with pytest.raises(ConfigError, match="members have settings of their own"):
        reproduce(path)


def test_a_data_set_that_is_not_here_does_not_keep_others_waiting(graph, tmp_path):
    away = write(tmp_path, name="mine", dataset="away")
    here = write(tmp_path)
    watcher = Watcher()
    paper.reproduce(
        [ExperimentFile(away), ExperimentFile(here)],
        tmp_path / "runs",
        watch=watcher,
        tell=watcher.told.append,
    )
    assert any("away/mine seed 0: not run: no data set" in line for line in watcher.told)
    assert (len(recorded(away)), len(recorded(here))) == (0, 1)


def test_a_file_to_start_from_that_is_missing_is_named(graph, tmp_path):
    path = write(tmp_path, HEAD + 'start = "nowhere.toml"\n' + SMALL)
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        reproduce(path)
