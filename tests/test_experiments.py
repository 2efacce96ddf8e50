"""Experiment files: settings and their bases, what counts as measured, and what is appended."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puda.config import read_toml, toml
from puda.errors import ConfigError
from puda.experiments import TABLES, ExperimentFile, Measured, find

HEAD = 'tables = ["table1"]\nrow = "DistMult"\n'


def write(folder: Path, text: str = HEAD, *, name: str = "mine", dataset: str = "toy") -> Path:
    path = folder / dataset / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


def read(folder: Path, text: str = HEAD) -> ExperimentFile:
    return ExperimentFile(write(folder, text))


def measured(file: ExperimentFile, **changes: Any) -> Measured:
    """Return the measurement of a run that had the file's settings, but for the changes."""
    figures = {"mrr": 0.25, "hits@10": 0.5}
    values: dict[str, Any] = {
        "settings": file.digest,
        "seed": 0,
        "seconds": 12.5,
        "threads": 2,
        "epochs": 7,
        "best_epoch": 5,
        "version": "0.1.0+abc",
        **dict.fromkeys(("valid", "tail", "head", "both"), figures),
    }
    return Measured(**values | changes)


# --- settings and their base


BASE = """
[config.objective]
name = "puda"
weight = 0.3
options = { prior = 0.1, ordering = "pairwise" }
[config.training]
epochs = 9
"""


def test_settings_are_laid_over_those_of_the_base(tmp_path):
    write(tmp_path, BASE, name="base")
    file = read(tmp_path, HEAD + 'base = "base.toml"\n[config.training]\nbatch_size = 64\n')
    assert file.config.training.epochs == 9
    assert file.config.training.batch_size == 64
    assert file.config.objective.options == {"prior": 0.1, "ordering": "pairwise"}


def test_another_objective_has_none_of_the_options_of_the_bases(tmp_path):
    write(tmp_path, BASE, name="base")
    text = HEAD + 'base = "base.toml"\n[config.objective]\nname = "pn"\noptions = { prior = 0.4 }\n'
    objective = read(tmp_path, text).config.objective
    assert objective.name == "pn"
    assert objective.options == {"prior": 0.4}
    assert objective.weight == 0.3  # not an option of the entry's own


def test_the_same_objective_keeps_the_options_that_are_not_said_again(tmp_path):
    write(tmp_path, BASE, name="base")
    for name in ("", 'name = "puda"\n'):
        text = HEAD + f'base = "base.toml"\n[config.objective]\n{name}options = {{ prior = 0.4 }}\n'
        options = read(tmp_path, text).config.objective.options
        assert options == {"prior": 0.4, "ordering": "pairwise"}


def test_a_file_is_named_after_its_data_set(tmp_path):
    file = ExperimentFile(write(tmp_path, name="prior", dataset="wn18rr"))
    assert (file.dataset, file.name) == ("wn18rr", "wn18rr/prior")
    assert [trial.name for trial in file.trials()] == ["wn18rr/prior seed 0"]


# --- the digest of settings, and which measurements count


FULL = HEAD + "[config.scoring]\ndim = 16\n[config.training]\nepochs = 3\nminutes = 10\n"
EDITS = {
    "a setting": ("dim = 16", "dim = 8"),
    "a training setting": ("epochs = 3", "epochs = 4"),
    "one more setting": ("dim = 16", "dim = 16\ndropout = 0.1"),
    "the share hidden": (HEAD, HEAD + "hide = 0.2\n"),
    "the start": (HEAD, HEAD + 'start = "other.toml"\n'),
}
"""Words of the file above, and what stands in their place after an edit."""


@pytest.mark.parametrize("edit", EDITS)
def test_other_settings_have_another_digest(tmp_path, edit):
    write(tmp_path, HEAD, name="other")
    before, after = (read(tmp_path, text) for text in (FULL, FULL.replace(*EDITS[edit])))
    assert before.digest != after.digest


def test_other_settings_of_the_base_are_other_settings(tmp_path):
    text = HEAD + 'base = "base.toml"\n'
    digests = set()
    for base in (BASE, BASE.replace("0.3", "0.4"), BASE):
        write(tmp_path, base, name="base")
        digests.add(read(tmp_path, text).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("minutes = 10", "minutes = 20"),
        ("minutes = 10\n", ""),
        pytest.param(
            "minutes = 10",
            "minutes = 10\nseed = 3",
        ),
        ('row = "DistMult"', 'row = "Other"  # words'),
        (HEAD, HEAD + "seeds = 3\nclaimed = { mrr = 0.3 }\n"),
    ],
    ids=["minutes", "no minutes", "seed", "words", "seeds and claims"],
)
def test_budget_seed_and_words_do_not_change_the_digest(tmp_path, old, new):
    before, after = (read(tmp_path, text) for text in (FULL, FULL.replace(old, new)))
    assert before.digest == after.digest


@pytest.mark.parametrize("edit", EDITS)
def test_an_old_measurement_does_not_count_after_an_edit(tmp_path, edit):
    write(tmp_path, HEAD, name="other")
    file = read(tmp_path, FULL)
    file.record(measured(file, minutes=10.0))
    recorded = file.path.read_text()
    again = ExperimentFile(file.path)
    assert again.measured == [measured(file, minutes=10.0)]
    assert [again.is_done(trial) for trial in again.trials()] == [True]

    edited = read(tmp_path, recorded.replace(*EDITS[edit]))
    assert len(edited.experiment.measured) == 1  # it is still there
    assert edited.measured == []
    assert [edited.is_done(trial) for trial in edited.trials()] == [False]


def test_a_measurement_does_not_count_once_another_setting_varies(tmp_path):
    file = read(tmp_path, HEAD + '[vary]\nsetting = "scoring.dropout"\nvalues = [0.25]\n')
    file.record(measured(file, value=0.25))
    edited = read(tmp_path, file.path.read_text().replace("scoring.dropout", "generator.dropout"))
    assert [edited.is_done(trial) for trial in edited.trials()] == [False]


def test_only_measurements_with_the_longest_budget_count(tmp_path):
    file = read(tmp_path)
    runs = [(0, 10.0), (0, 30.0), (1, 30.0)]
    for seed, minutes in runs:
        file.record(measured(file, seed=seed, minutes=minutes))
    file.record(measured(file, settings="of old", minutes=90.0))
    again = ExperimentFile(file.path)
    assert [(m.seed, m.minutes) for m in again.measured] == [(0, 30.0), (1, 30.0)]
    again.record(measured(file, seed=2))  # a budget in epochs, which nothing cuts short
    assert [m.seed for m in ExperimentFile(file.path).measured] == [2]


def test_nothing_counts_where_nothing_is_measured(tmp_path):
    assert read(tmp_path).measured == []


def test_a_run_is_done_if_its_seed_budget_and_value_were_measured(tmp_path):
    text = HEAD + '[vary]\nsetting = "scoring.dropout"\nvalues = [0.0, 0.25]\n'
    file = read(tmp_path, text)
    file.record(measured(file, value=0.25, seed=1, minutes=10.0))
    again = ExperimentFile(file.path)
    done = {
        (trial.value, trial.config.training.seed, minutes)
        for minutes in (None, 10, 20)
        for trial in again.trials(seeds=2, minutes=minutes)
        if again.is_done(trial)
    }
    assert done == {(0.25, 1, 10)}


# --- trials


def test_each_seed_and_each_value_is_a_trial(tmp_path):
    text = HEAD + 'seeds = 2\n[vary]\nsetting = "objective.options.prior"\nvalues = [0.0, 1e-5]\n'
    trials = list(read(tmp_path, text).trials())
    assert [trial.name for trial in trials] == [
        "toy/mine 0.0 seed 0",
        "toy/mine 1e-05 seed 0",
        "toy/mine 0.0 seed 1",
        "toy/mine 1e-05 seed 1",
    ]
    assert [trial.config.training.seed for trial in trials] == [0, 0, 1, 1]
    assert [trial.config.objective.options["prior"] for trial in trials] == [0, 1e-5, 0, 1e-5]
    assert [trial.value for trial in trials] == [0, 1e-5, 0, 1e-5]


def test_a_word_may_vary(tmp_path):
    text = HEAD + '[vary]\nsetting = "generator.activation"\nvalues = ["relu", "leaky"]\n'
    trials = list(read(tmp_path, text).trials())
    assert [trial.config.generator.activation for trial in trials] == ["relu", "leaky"]


def test_the_share_hidden_may_vary(tmp_path):
    text = HEAD + 'hide = 0.3\n[vary]\nsetting = "hide"\nvalues = [0.0, 0.5]\n'
    file = read(tmp_path, text)
    trials = list(file.trials())
    assert [(trial.hide, trial.value) for trial in trials] == [(0.0, 0.0), (0.5, 0.5)]
    assert all(trial.config == file.config for trial in trials)


def test_without_a_word_on_it_the_files_own_share_is_hidden(tmp_path):
    [trial] = read(tmp_path, HEAD + "hide = 0.3\n").trials()
    assert (trial.hide, trial.value) == (0.3, None)


def test_seeds_and_minutes_can_be_asked_for(tmp_path):
    trials = list(read(tmp_path, FULL).trials(seeds=3, minutes=0.5))
    assert [trial.config.training.seed for trial in trials] == [0, 1, 2]
    assert {trial.config.training.minutes for trial in trials} == {0.5}
    [trial] = read(tmp_path, FULL).trials()
    assert trial.config.training.minutes == 10


# --- what is appended


COMMENTED = """\
# The best of  "all" rows – 東京.

tables = ["table1"]   # where it stands
row = 'Dist\\Mult'
claimed = { mrr = 0.313,   "hits@10" = 0.490 }
[config.training]
  epochs = 3\t# few
# last words"""


@pytest.mark.parametrize(
    "text",
    [
        COMMENTED,
        COMMENTED + "\n",
        pytest.param(
            COMMENTED.replace("\n", "\r\n"),
        ),
    ],
    ids=["no newline at the end", "newline at the end", "CRLF"],
)
def test_a_measurement_is_appended_and_all_before_it_stays_to_the_byte(tmp_path, text):
    file = read(tmp_path, text)
    before = file.path.read_bytes()
    file.record(measured(file))
    once = file.path.read_bytes()
    assert once.startswith(before)
    file.record(measured(file, seed=1))
    assert file.path.read_bytes().startswith(once)
    assert [m.seed for m in ExperimentFile(file.path).measured] == [0, 1]
    assert [p.name for p in file.path.parent.iterdir()] == ["mine.toml"]


number = st.floats(allow_nan=False, allow_infinity=False)
word = st.text(st.characters(codec="utf-8"), max_size=8)
figures = st.dictionaries(st.sampled_from(["mrr", "hits@1", "amri"]) | word, number, max_size=3)


@given(
    entry=st.builds(
        Measured,
        settings=st.just("abc"),
        value=st.none() | number | word,
        seed=st.integers(0, 9),
        minutes=st.none() | number,
        seconds=number,
        threads=st.integers(1, 64),
        epochs=st.integers(0, 99),
        best_epoch=st.integers(0, 99),
        version=word,
        **dict.fromkeys(("valid", "tail", "head", "both", "hidden", "classified"), figures),
        curve=st.lists(st.tuples(number, number), max_size=3).map(tuple),
    )
)
def test_what_is_recorded_comes_back(tmp_path_factory, entry):
    file = read(tmp_path_factory.getbasetemp())
    file.record(entry)
    assert ExperimentFile(file.path).experiment.measured == (entry,)


plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | number | word
lists = st.recursive(plain, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
values = st.recursive(lists, lambda inner: st.dictionaries(word, inner, max_size=3), max_leaves=4)


@given(value=values)
def test_a_value_comes_back_from_toml(value):
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}


# --- finding files


def found(*args: Any, **chosen: Any) -> list[str]:
    return [file.name for file in find(*args, **chosen)]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder of three experiments, a base, and the findings beside the data sets."""
    write(tmp_path, name="one")
    write(tmp_path, HEAD.replace('"table1"', '"table2", "ours"'), name="two")
    write(tmp_path, name="one", dataset="other")
    write(tmp_path, BASE, name="base")
    (tmp_path / "findings.toml").write_text('table1 = "Words."\n')
    return tmp_path


def test_experiments_are_chosen_by_table_data_set_and_name(folder):
    assert found(folder, "all") == ["other/one", "toy/one", "toy/two"]
    assert found(folder, "table1") == ["other/one", "toy/one"]
    assert found(folder, "ours") == found(folder, "table2") == ["toy/two"]
    assert found(folder, "table1", dataset="toy") == ["toy/one"]
    assert found(folder, "all", only="one") == ["other/one", "toy/one"]


@pytest.mark.parametrize(
    ("chosen", "there"),
    [
        ({"table": "table3"}, ""),
        ({"table": "table2", "dataset": "other"}, "toy/two"),
        ({"table": "table1", "only": "two"}, "other/one, toy/one"),
    ],
)
def test_if_no_experiment_is_chosen_those_of_the_table_are_named(folder, chosen, there):
    with pytest.raises(ConfigError) as error:
        find(folder, **chosen)
    assert str(error.value).startswith(f"no such experiment of {chosen['table']} ")
    assert str(error.value).endswith(f"(there are: {there})")


# --- errors


def test_a_table_that_is_not_known_is_named_with_those_that_are(folder):
    with pytest.raises(ConfigError, match=f"no table 'table9' .*{', '.join(TABLES)}, all"):
        find(folder, "table9")


@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_a_folder_without_experiments_is_named(tmp_path, there):
    folder = tmp_path / "nothing"
    if there:
        folder.mkdir()
    with pytest.raises(ConfigError, match="nothing holds no experiments.*--folder"):
        find(folder, "all")


MISTAKES = {
    "a table": (HEAD.replace("table1", "table9"), "no table 'table9' (known: table1"),
    "a key": (HEAD + "see = 3\n", "unknown key 'see': did you mean 'seeds'?"),
    "a setting": (
        HEAD + "[config.training]\nepocs = 3\n",
        "unknown key 'training.epocs': did you mean 'epochs'?",
    ),
    "a missing row": ('tables = ["table1"]\n', "row"),
    "a share": (HEAD + "hide = 1.0\n", "hide = 1.0"),
    "a number of seeds": (HEAD + "seeds = 0\n", "seeds = 0"),
    "broken TOML": (HEAD + "seeds =\n", "is not valid TOML"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path, mistake):
    text, said = MISTAKES[mistake]
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        ExperimentFile(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("section", ["vary", "measured"])
def test_an_unknown_key_further_down_is_named_with_the_nearest(tmp_path, section):
    file = read(tmp_path, HEAD + '[vary]\nsetting = "hide"\nvalues = [0.5]\n')
    file.record(measured(file))
    text = file.path.read_text()
    old, new = {"vary": ("values", "valuess"), "measured": ("seconds", "secondss")}[section]
    with pytest.raises(ConfigError, match=f"{new}'.*did you mean '{old}'"):
        read(tmp_path, text.replace(f"{old} =", f"{new} = 1\n{old} ="))


def test_a_broken_file_is_named_while_others_are_found(folder):
    write(folder, "tables = [", name="broken")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        find(folder, "table1")


def test_a_base_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        read(tmp_path, HEAD + 'base = "nowhere.toml"\n')


def test_a_setting_that_cannot_vary_is_named(tmp_path):
    text = HEAD + '[vary]\nsetting = "scoring.dimm"\nvalues = [1.0]\n'
    with pytest.raises(ConfigError, match=r"'scoring\.dimm': did you mean 'dim'"):
        list(read(tmp_path, text).trials())


def test_a_file_that_is_not_utf_8_is_not_valid_toml(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes("row = 'Zürich'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.toml is not valid TOML"):
        read_toml(path)
