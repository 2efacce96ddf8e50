"""`puda reproduce` and `puda train --preset` as a person meets them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console import Result
from puda import display, paper
from puda.config import Config, preset
from puda.data.source import Loaded
from puda.errors import ConfigError
from puda.experiments import TABLES, ExperimentFile
from toy import checkerboard

TINY = """
# Two epochs on a small board.
tables = ["table1"]
row = "Tiny"
claimed = { mrr = 0.9 }
[config.scoring]
name = "distmult"
dim = 8
[config.generator]
num_synthetic = 0
[config.training]
epochs = 2
validate_every = 1
threads = 1
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Return a folder with two experiments on a small graph; there is no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(paper, "load", lambda name, **_: {"toy": Loaded(checkerboard(4), ())}[name])
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine" / "toy"
    folder.mkdir(parents=True)
    (folder / "tiny.toml").write_text(TINY)
    (folder / "other.toml").write_text(TINY.replace("table1", "ours").replace("Tiny", "Other"))
    return tmp_path


PLACES = ["--folder", "mine", "--runs", "made", "--page", "pages/results.md"]


def refused(result: Result, *words: str) -> None:
    """Assert exit code 2, nothing on stdout, and one line of error that holds the words."""
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("error: ")
    for word in words:
        assert word in result.err


# --- reproduce


def test_a_table_is_run_recorded_and_written_to_the_page(command, here):
    result = command("reproduce", "table1", *PLACES)
    assert result.code == 0, result.err
    assert "toy/tiny seed 0: Tiny" in result.out
    assert "The results are in pages/results.md." in result.out
    assert "puda[plot]" in result.out
    [measured] = ExperimentFile(here / "mine/toy/tiny.toml").measured
    assert measured.epochs == 2
    assert (here / "made/toy/tiny-seed-0/model.safetensors").exists()
    page = (here / "pages/results.md").read_text()
    assert TABLES["table1"] in page
    assert "| Tiny | .900 |" in page
    assert f"{measured.both['mrr']:.3f}".removeprefix("0") in page
    # The other table was not asked for, but is on the page.
    assert ExperimentFile(here / "mine/toy/other.toml").measured == []
    assert "not run yet" in page.partition(TABLES["ours"])[2]


def test_a_second_call_runs_nothing(command, here, monkeypatch):
    assert command("reproduce", "all", *PLACES).code == 0
    kept = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}

    def refuse(*args: object, **named: object) -> None:
        raise AssertionError("a trial was run")

    monkeypatch.setattr(paper, "run", refuse)
    result = command("reproduce", "all", *PLACES)
    assert result.code == 0
    assert "seed" not in result.out
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == kept


def test_seeds_minutes_and_names_narrow_what_is_run(command, here):
    words = ["--only", "tiny", "--dataset", "toy", "--seeds", 2, "--minutes", 0.001]
    assert command("reproduce", "all", *PLACES, *words).code == 0
    measured = ExperimentFile(here / "mine/toy/tiny.toml").measured
    assert [(m.seed, m.minutes) for m in measured] == [(0, 0.001), (1, 0.001)]
    assert ExperimentFile(here / "mine/toy/other.toml").measured == []


def test_findings_of_the_folder_are_on_the_page(command, here):
    (here / "mine/findings.toml").write_text('table1 = "Epochs: few. {toy/tiny tail mrr}"\n')
    assert command("reproduce", "table1", *PLACES).code == 0
    [measured] = ExperimentFile(here / "mine/toy/tiny.toml").measured
    mrr = f"{measured.tail['mrr']:.3f}".removeprefix("0")
    assert f"Epochs: few. {mrr}\n" in (here / "pages/results.md").read_text()


def test_an_interruption_leaves_a_page_and_the_next_call_goes_on(command, here, monkeypatch):
    def stop(event: dict[str, object]) -> None:
        if event["event"] == "validation":
            raise KeyboardInterrupt

    class Stopping:
        """A progress bar during which Ctrl-C is pressed."""

        def __init__(self, config: Config) -> None:
            pass

        def __enter__(self) -> Callable[..., None]:
            return stop

        def __exit__(self, *error: object) -> None:
            pass

    with monkeypatch.context() as patched:
        patched.setattr(display, "training_progress", Stopping)
        result = command("reproduce", "table1", *PLACES)
    assert result.code == 130
    assert "Traceback" not in result.err
    assert "not run yet" in (here / "pages/results.md").read_text()

    assert command("reproduce", "table1", *PLACES).code == 0
    assert len(ExperimentFile(here / "mine/toy/tiny.toml").measured) == 1
    trace = (here / "made/toy/tiny-seed-0/trace.jsonl").read_text()
    assert '"resumed": true' in trace


def test_a_table_that_does_not_exist_is_named(command, here):
    refused(command("reproduce", "table9", *PLACES), "'table9'", *TABLES)
    assert not (here / "pages").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--only", "huge"], ["no such experiment", "toy/tiny"]),
        (["--dataset", "fb15k"], ["no such experiment", "toy/tiny"]),
        (["--folder", "nowhere"], ["nowhere holds no experiments", "--folder"]),
    ],
    ids=["name", "data set", "folder"],
)
def test_experiments_that_are_not_there_are_named(command, here, words, named):
    refused(command("reproduce", "table1", *PLACES, *words), *named)


def test_an_experiment_file_with_a_mistake_is_named(command, here):
    (here / "mine/toy/bad.toml").write_text('tables = ["table1"]\nrow = "Bad"\nsed = 1\n')
    refused(command("reproduce", "table1", *PLACES), "bad.toml", "'sed'")


# --- presets


def test_the_preset_best_is_the_defaults():
    assert preset("best") == Config()


def test_a_preset_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r"no preset 'fats': did you mean 'fast'\?"):
        preset("fats")


def test_training_with_a_preset_that_does_not_exist_is_refused(command, here):
    words = ["train", "world", "--preset", "nonsense", "--out", "run"]
    refused(command(*words), "no preset 'nonsense'", "best, paper, fast")
    assert not (here / "run").exists()


def test_a_preset_and_a_config_exclude_each_other(command, here):
    (here / "mine.toml").write_text("[training]\nepochs = 1\n")
    words = ["train", "world", "--preset", "best", "--config", "mine.toml", "--out", "run"]
    refused(command(*words), "--preset", "--config")
    assert not (here / "run").exists()
