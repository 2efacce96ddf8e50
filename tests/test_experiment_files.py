"""The files in experiments/ and the presets: all can be read, and their settings fit together."""

from pathlib import Path

import pytest

from puda.config import PRESETS, Config, preset
from puda.data.graph import KnowledgeGraph
from puda.experiments import TABLES, ExperimentFile, find
from puda.training.build import build_learner
from toy import checkerboard

FOLDER = Path(__file__).parents[1] / "experiments"
FILES = find(FOLDER, "all")

every = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def graph() -> KnowledgeGraph:
    """A small graph that has true negatives, for samplers that want them."""
    board = checkerboard(4)
    return KnowledgeGraph(
        board.name,
        board.entities,
        board.relations,
        board.train,
        board.valid,
        board.test,
        negatives={"valid": board.test[:2].copy()},
    )


@every
def test_the_settings_of_every_run_make_a_learner(file: ExperimentFile):
    for trial in file.trials():
        build_learner(graph(), trial.config)


@every
def test_every_file_states_its_budget(file: ExperimentFile):
    for part in file.members or [file]:
        assert len({"minutes", "epochs"} & {*part.settings["training"]}) == 1


def test_every_table_has_its_files():
    assert {table for file in FILES for table in file.experiment.tables} == set(TABLES)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_learner(name):
    build_learner(graph(), preset(name))


def test_the_default_is_the_best_preset_and_the_others_differ():
    assert preset("best") == Config()
    assert len({preset(name).to_toml() for name in PRESETS}) == len(PRESETS)
