"""The run folder: what goes in comes out, and damage is named."""

import errno
import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import puda
from puda.config import Config
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import PudaError, RunError
from puda.runs import RunFolder, State
from puda.scoring import build_model
from toy import checkerboard, family_tree

CONFIG = Config.of(
    {
        "scoring": {"name": "complex", "dim": 8, "options": {"reciprocal": False}},
        "training": {"epochs": 2, "validate_every": 1, "threads": 1},
        "generator": {"num_synthetic": 2},
    }
)


def save(path: Path, graph: KnowledgeGraph, config: Config = CONFIG) -> RunFolder:
    """Write a run whose weights are drawn at random."""
    folder = RunFolder(path)
    folder.create(config, graph)
    folder.save_model(
        build_model(config.scoring, graph), torch.randn(graph.num_entities, config.scoring.dim)
    )
    return folder


def files(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Return the folder of a finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    puda.train(checkerboard(), path, config=CONFIG)
    return path


@pytest.fixture
def copy(original, tmp_path) -> Path:
    """Return a copy of it to be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "run"))


# --- identity


def test_what_is_saved_is_loaded(tmp_path):
    graph = family_tree()
    folder = RunFolder(tmp_path / "run")
    folder.create(CONFIG, graph)
    torch.manual_seed(0)
    model = build_model(CONFIG.scoring, graph)
    entities = torch.randn(graph.num_entities, 8)
    folder.save_model(model, entities)

    loaded = RunFolder(tmp_path / "run").load()
    assert loaded.config == CONFIG
    assert loaded.graph.name == graph.name
    assert loaded.graph.entities.labels == graph.entities.labels
    assert loaded.graph.relations.labels == graph.relations.labels
    for split in SPLITS:
        assert (loaded.graph.facts(split) == graph.facts(split)).all()
    assert loaded.graph.fingerprint == graph.fingerprint
    assert torch.equal(loaded.entities, entities)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
    assert not loaded.model.training


def test_annotated_negatives_and_empty_splits_come_back(tmp_path):
    graph = KnowledgeGraph.from_facts(
        [("a", "r", "b"), ("b", "r", "c")],
        negatives={"valid": [("a", "r", "c")], "test": [("c", "r", "a")]},
    )
    loaded = save(tmp_path / "run", graph).load_graph()
    assert loaded.valid.shape == loaded.test.shape == (0, 3)
    assert {k: v.tolist() for k, v in loaded.negatives.items()} == {
        k: v.tolist() for k, v in graph.negatives.items()
    }


LABELS = [
    "two\nlines",
    "carriage\rreturn",
    "windows\r\nend",
    "back\\slash",
    "back\\nslash n",
    "back\\\\\nall",
    "\\",
    "\\r",
    " spaces ",
    "tab\tinside",
    "line\u2028separator and \x85 next line, \x0b and \x0c",
    "Ελλάδα, 日本, العربية",
    "e\u0301 and \u00e9",
    "emoji \U0001f600",
    "nul \0 byte",
]


def test_labels_with_line_ends_backslashes_and_any_script_survive(tmp_path):
    facts = [(label, label, LABELS[i - 1]) for i, label in enumerate(LABELS)]
    graph = KnowledgeGraph.from_facts(facts)
    loaded = save(tmp_path / "run", graph).load_graph()
    assert set(loaded.entities.labels) == set(LABELS)
    assert loaded.entities.labels == graph.entities.labels
    assert loaded.relations.labels == graph.relations.labels
    assert loaded.fingerprint == graph.fingerprint


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.text(st.sampled_from("a\\nr\n\r\t ")), min_size=2, max_size=8, unique=True))
def test_any_mixture_of_what_is_escaped_survives(tmp_path, names):
    graph = KnowledgeGraph.from_facts([(name, names[0], names[1]) for name in names])
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    loaded = save(tmp_path / "run", graph).load_graph()
    assert loaded.entities.labels == graph.entities.labels


def test_a_person_reads_one_label_a_line(tmp_path):
    graph = KnowledgeGraph.from_facts([("Rome", "capital of", "Italy"), ("a\nb", "is", "Rome")])
    save(tmp_path / "run", graph)
    assert (tmp_path / "run" / "entities.txt").read_text() == "Italy\nRome\na\\nb\n"
    assert (tmp_path / "run" / "relations.txt").read_text() == "capital of\nis\n"


def test_the_state_of_training_comes_back(tmp_path):
    folder = RunFolder(tmp_path / "run")
    state = State(
        {"a": torch.arange(6).view(2, 3), "b/0/step": torch.tensor(4.0)},
        {"epoch": 3, "best": {"mrr": 0.1 + 0.2, "epoch": 2}, "seconds": 1e-9},
    )
    folder.save_state(state)
    loaded = folder.load_state()
    assert loaded.values == state.values
    assert loaded.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        assert torch.equal(loaded.tensors[name], tensor)
        assert loaded.tensors[name].dtype == tensor.dtype


def test_the_trace_comes_back_without_a_last_line_that_was_cut_off(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_trace({"event": "start", "label": "日本\n"})
    folder.append_trace({"event": "epoch", "epoch": 1})
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"event": "ep')
    assert folder.trace() == [
        {"event": "start", "label": "日本\n"},
        {"event": "epoch", "epoch": 1},
    ]


# --- pickle-free, atomic, self-contained


def test_a_run_holds_the_files_of_the_design_and_nothing_pickled(original):
    assert files(original) == {
        "config.toml",
        "entities.txt",
        "relations.txt",
        "graph.safetensors",
        "model.safetensors",
        "metrics.json",
        "trace.jsonl",
        "card.md",
    }
    for path in original.rglob("*"):
        assert not path.read_bytes().startswith((b"PK", b"\x80")), f"{path} may be a pickle"
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                assert len(list(file.keys())) > 0
        else:
            path.read_text(encoding="utf-8")
    metrics = json.loads((original / "metrics.json").read_text())
    assert {"tail", "head", "both"} <= metrics["test"].keys()


def test_a_folder_that_was_moved_opens_all_the_same(copy):
    moved = copy.rename(copy.with_name("elsewhere"))
    assert puda.open_run(moved).predict(head="person 0", relation="likes")


def test_no_temporary_file_is_left_behind(original):
    assert not list(original.rglob("*.part"))


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: folder.write_text("config.toml", "new"),
        lambda folder: folder.write_tensors("model.safetensors", {"x": torch.zeros(3)}),
    ],
)
def test_a_write_that_fails_leaves_the_old_file_and_no_part_of_the_new(copy, monkeypatch, write):
    before = {name: (copy / name).read_bytes() for name in files(copy)}

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError, match="cannot write .*No space left on device"):
        write(RunFolder(copy))
    assert {name: (copy / name).read_bytes() for name in files(copy)} == before


def test_a_reader_in_between_sees_the_old_file_or_the_new_one_whole(copy, monkeypatch):
    seen = []
    rename = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append((target.read_text(), self.read_text()))
        return rename(self, target)

    (copy / "card.md").write_text("old")
    monkeypatch.setattr(Path, "replace", watched)
    RunFolder(copy).write_text("card.md", "new")
    assert seen == [("old", "new")]
    assert (copy / "card.md").read_text() == "new"


def test_an_existing_run_is_not_overwritten(copy):
    before = {name: (copy / name).read_bytes() for name in files(copy)}
    with pytest.raises(RunError, match="holds a run already: choose another --out or remove it"):
        puda.train(family_tree(), copy, config=CONFIG)
    assert {name: (copy / name).read_bytes() for name in files(copy)} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_trace_on_a_full_disk_is_told(tmp_path):
    (tmp_path / "trace.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write .*trace\.jsonl: No space left on device"):
        RunFolder(tmp_path).append_trace({"event": "epoch"})


def test_a_folder_below_a_regular_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*file"):
        RunFolder(tmp_path / "file" / "run").create(CONFIG, checkerboard())


# --- damage


def test_a_folder_that_is_not_there_and_one_that_is_no_run_are_told_apart(tmp_path):
    with pytest.raises(RunError, match="no run folder .*nowhere"):
        puda.open_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is not a run folder: it holds no config.toml"):
        puda.open_run(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="no run folder .*file"):
        puda.open_run(tmp_path / "file")


@pytest.mark.parametrize(
    "name",
    ["config.toml", "entities.txt", "relations.txt", "graph.safetensors", "model.safetensors"],
)
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(RunError) as error:
        puda.open_run(copy)
    assert name in str(error.value)
    assert str(copy) in str(error.value)


@pytest.mark.parametrize("name", ["metrics.json", "trace.jsonl", "card.md"])
def test_a_run_opens_without_the_files_that_only_tell_of_it(copy, name):
    (copy / name).unlink()
    assert puda.open_run(copy).predict(head="person 0", relation="likes")


def drop_a_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def swap_two_lines(path: Path) -> None:
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *rest]))


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("model.safetensors", cut_in_half),
        ("model.safetensors", empty),
        ("model.safetensors", garbage),
        ("graph.safetensors", cut_in_half),
        ("graph.safetensors", empty),
        ("graph.safetensors", garbage),
        ("config.toml", garbage),
        ("config.toml", lambda path: path.write_text("[training\n")),
        ("config.toml", lambda path: path.write_text("[training]\nepocs = 3\n")),
        ("entities.txt", drop_a_line),
        ("entities.txt", swap_two_lines),
        ("entities.txt", empty),
        ("entities.txt", garbage),
        ("relations.txt", drop_a_line),
        ("relations.txt", swap_two_lines),
    ],
)
def test_a_damaged_file_is_named(copy, name, harm):
    harm(copy / name)
    with pytest.raises(RunError, match="is damaged") as error:
        puda.open_run(copy)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def edit_model(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def test_weights_of_another_number_of_entities_are_refused_with_both_sizes(copy):
    edit_model(copy, lambda tensors: tensors.update(entities=torch.zeros(5, 8)))
    with pytest.raises(RunError, match=r"model\.safetensors.*\(5, 8\).*16 entities of 8 floats"):
        puda.open_run(copy)


def test_weights_of_another_dimension_are_refused(copy):
    edit_model(copy, lambda tensors: tensors.update(entities=torch.zeros(16, 4)))
    with pytest.raises(RunError, match=r"model\.safetensors.*\(16, 4\).*16 entities of 8 floats"):
        puda.open_run(copy)


def test_a_model_file_without_the_entity_table_is_damaged(copy):
    edit_model(copy, lambda tensors: tensors.pop("entities"))
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: its entity table"):
        puda.open_run(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("model.relations"),
        lambda tensors: tensors.update({"model.relations": torch.zeros(7, 8)}),
        lambda tensors: tensors.update({"model.stranger": torch.zeros(1)}),
    ],
)
def test_weights_that_are_not_those_of_the_model_are_refused(copy, change):
    edit_model(copy, change)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: .*not those of complex"):
        puda.open_run(copy)


def test_the_model_of_another_run_is_refused(copy, tmp_path):
    other = save(tmp_path / "other", family_tree())
    shutil.copy(other.path / "model.safetensors", copy / "model.safetensors")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        puda.open_run(copy)


@pytest.mark.parametrize("header", [None, {"name": "x"}])
def test_a_graph_file_that_holds_something_else_is_damaged(copy, header):
    save_file({"train": torch.zeros(1, 3, dtype=torch.int64)}, copy / "graph.safetensors", header)
    with pytest.raises(RunError, match=r"graph\.safetensors"):
        puda.open_run(copy)


def test_a_state_file_that_holds_something_else_is_damaged(copy):
    (copy / "resume").mkdir()
    save_file({"x": torch.zeros(1)}, copy / "resume" / "state.safetensors")
    with pytest.raises(RunError, match=r"resume/state\.safetensors"):
        puda.resume(copy)


def test_a_damaged_metrics_file_is_named(copy):
    (copy / "metrics.json").write_text('{"test": ')
    with pytest.raises(PudaError, match=r"metrics\.json"):
        _ = puda.Run(RunFolder(copy)).metrics


def test_a_config_that_names_an_unknown_model_is_named(copy):
    path = copy / "config.toml"
    path.write_text(path.read_text().replace('name = "complex"', 'name = "complecks"'))
    with pytest.raises(PudaError, match="complecks.*did you mean 'complex'"):
        puda.open_run(copy)


def test_facts_that_do_not_belong_to_the_labels_are_refused(copy, tmp_path):
    # Same size and dimension everywhere, one fact less: only the fingerprint can tell.
    graph = checkerboard()
    other = save(tmp_path / "other", replace(graph, train=graph.train[1:].copy()))
    tensors = load_file(other.path / "graph.safetensors")
    with safe_open(copy / "graph.safetensors", "pt") as file:
        header = file.metadata()
    save_file(tensors, copy / "graph.safetensors", header)
    with pytest.raises(RunError, match="do not belong together"):
        puda.open_run(copy)


def test_files_may_be_read_by_those_who_may_read_the_folder(original):
    # A temporary file of mode 0600 that is renamed would shut colleagues out.
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in original.iterdir()}
    assert len(set(modes.values())) == 1, modes
