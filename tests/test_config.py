"""Settings: read, checked, written back; mistakes are named with the nearest right key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from puda.config import Config, accepted, nearest, read
from puda.errors import ConfigError


def round_trip(config: Config, folder: Path) -> Config:
    path = folder / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    return read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("config")


# --- written and read again


def test_the_defaults_come_back_from_toml(tmp_path):
    assert round_trip(Config(), tmp_path) == Config()


def test_an_empty_file_means_the_defaults(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert read(path) == Config()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text("[training]\nepochs = 7\n[scoring.options]\nreciprocal = false\n")
    config = read(path)
    assert config.training.epochs == 7
    assert config.scoring.options == {"reciprocal": False}
    untouched = {"training": Config().training, "scoring": Config().scoring}
    assert config.model_copy(update=untouched) == Config()


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-300, allow_infinity=False)
words = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF))  # beyond: the test below
options = st.dictionaries(words, st.booleans() | st.integers() | finite | words, max_size=4)


@given(
    learning_rate=positive,
    noise_std=positive,
    weight=st.floats(min_value=0, allow_infinity=False),
    minutes=st.none() | positive,
    seed=st.integers(),
    dim=st.integers(min_value=1),
    name=words,
    tables=st.tuples(options, options, options),
)
def test_any_valid_config_comes_back_from_toml(
    folder, learning_rate, noise_std, weight, minutes, seed, dim, name, tables
):
    config = Config.of(
        {
            "scoring": {"name": name, "dim": dim, "options": tables[0]},
            "objective": {"options": tables[1], "weight": weight},
            "sampler": {"options": tables[2]},
            "generator": {"noise_std": noise_std},
            "optimizer": {"learning_rate": learning_rate},
            "training": {"minutes": minutes, "seed": seed},
        }
    )
    again = round_trip(config, folder)
    assert again == config
    for section in ("scoring", "objective", "sampler"):
        one, other = getattr(config, section).options, getattr(again, section).options
        assert {k: type(v) for k, v in one.items()} == {k: type(v) for k, v in other.items()}


def test_a_word_with_an_emoji_comes_back(tmp_path):
    config = Config.of({"objective": {"options": {"note": "\U0001f600"}}})
    assert round_trip(config, tmp_path) == config


@pytest.mark.parametrize("setting", ["training.minutes=inf", "objective.weight=inf"])
def test_an_infinite_setting_is_refused_or_can_be_read_back(tmp_path, setting):
    try:
        config = Config().with_settings([setting])
    except ConfigError as error:
        assert setting.partition("=")[0] in str(error)
    else:
        assert round_trip(config, tmp_path) == config


def test_toml_holds_every_section_and_no_value_that_is_not_set():
    text = Config().to_toml()
    for section in Config.model_fields:
        assert f"[{section}]\n" in text
    assert "minutes" not in text
    assert "scoring.options" not in text  # empty tables are not written


# --- --set


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("training.epochs=20", 20),
        ("training.epochs = 20", 20),
        ("training.epochs=1_000", 1000),
        ("data.seed=-3", -3),
        ("optimizer.learning_rate=0.5", 0.5),
        ("optimizer.learning_rate=1e-3", 0.001),
        ("optimizer.learning_rate=2", 2.0),
        ("optimizer.name=adam", "adam"),
        ('scoring.name="distmult"', "distmult"),
        ("scoring.name='distmult'", "distmult"),
        ("training.minutes=0.25", 0.25),
        ("training.minutes=none", None),
        ("training.minutes=None", None),
        ("scoring.options.reciprocal=false", False),
        ("scoring.options.reciprocal=true", True),
        ("objective.options.ordering=listwise", "listwise"),
        ("objective.options.prior=1e-4", 1e-4),
        ("objective.options.prior=0", 0),
        ("objective.options.ordering=a=b", "a=b"),
    ],
)
def test_set_reads_numbers_truth_values_words_and_none(setting, value):
    found = Config().with_settings([setting]).model_dump()
    for part in setting.partition("=")[0].strip().split("."):
        found = found[part]
    assert found == value
    assert type(found) is type(value)


def test_a_later_setting_wins_and_the_first_config_stays_as_it_is():
    first = Config()
    changed = first.with_settings(["training.epochs=2", "training.seed=5", "training.epochs=3"])
    assert (changed.training.epochs, changed.training.seed) == (3, 5)
    assert first == Config()


def test_settings_keep_the_options_that_a_file_gave():
    config = Config.of({"objective": {"options": {"prior": 0.01}}})
    changed = config.with_settings(["objective.options.ordering=pairwise"])
    assert changed.objective.options == {"prior": 0.01, "ordering": "pairwise"}
    assert config.objective.options == {"prior": 0.01, "ordering": "listwise"}


def test_a_name_takes_its_own_defaults_and_not_the_options_of_the_name_before():
    config = Config.of({"scoring": {"name": "complex", "options": {"reciprocal": False}}})
    assert config.with_settings(["scoring.name=distmult"]).scoring.options == {}


def test_the_order_of_a_name_and_its_options_does_not_matter():
    settings = ["scoring.options.reciprocal=false", "scoring.name=complex"]
    assert Config().with_settings(settings) == Config().with_settings(settings[::-1])


def test_a_setting_means_the_same_in_a_file_and_by_set():
    in_file = Config.of({"objective": {"options": {"prior": 0.1}}})
    assert Config().with_settings(["objective.options.prior=0.1"]) == in_file


@given(st.integers(1, 10**9), st.floats(1e-9, 1e9))
def test_set_of_a_printed_number_gives_that_number(epochs, rate):
    config = Config().with_settings(
        [f"training.epochs={epochs}", f"optimizer.learning_rate={rate}"]
    )
    assert config.training.epochs == epochs
    assert config.optimizer.learning_rate == rate


@pytest.mark.parametrize("setting", ["epochs=3", "training.epochs", "", "=3", "training=3"])
def test_a_setting_that_is_not_section_key_value_says_how_to_write_it(setting):
    with pytest.raises(ConfigError, match="section.key=value") as error:
        Config().with_settings([setting])
    assert repr(setting) in str(error.value)


def test_a_key_below_a_plain_value_is_no_section():
    with pytest.raises(ConfigError, match="'epochs' is no section"):
        Config().with_settings(["training.epochs.more=3"])


# --- mistakes


@pytest.mark.parametrize(
    ("values", "path", "meant"),
    [
        ({"training": {"epocs": 3}}, "training.epocs", "epochs"),
        ({"trainig": {"epochs": 3}}, "trainig", "training"),
        ({"optimizer": {"learningrate": 1}}, "optimizer.learningrate", "learning_rate"),
        ({"sampler": {"num_unlabelled": 1}}, "sampler.num_unlabelled", "num_unlabeled"),
        ({"generator": {"num_sythetic": 1}}, "generator.num_sythetic", "num_synthetic"),
    ],
)
def test_an_unknown_key_is_named_by_its_path_with_the_nearest_known_one(values, path, meant):
    with pytest.raises(ConfigError) as error:
        Config.of(values, source="my.toml")
    assert str(error.value) == f"my.toml: unknown key {path!r}: did you mean {meant!r}?"


def test_an_unknown_key_like_no_other_lists_the_known_ones():
    with pytest.raises(ConfigError) as error:
        Config.of({"optimizer": {"xyzzy": 1}})
    assert str(error.value) == (
        "config: unknown key 'optimizer.xyzzy' (known: name, learning_rate)"
    )


def test_an_unknown_key_of_a_setting_is_named_too():
    with pytest.raises(ConfigError, match=r"'training.epocs': did you mean 'epochs'"):
        Config().with_settings(["training.epocs=3"])


@pytest.mark.parametrize(
    ("setting", "bound"),
    [
        ("training.epochs=0", "greater than or equal to 1"),
        ("training.epochs=-5", "greater than or equal to 1"),
        ("training.minutes=0", "greater than 0"),
        ("training.batch_size=0", "greater than or equal to 1"),
        ("training.patience=-1", "greater than or equal to 0"),
        ("training.threads=-1", "greater than or equal to 0"),
        ("training.validate_every=0", "greater than or equal to 1"),
        ("scoring.dim=0", "greater than or equal to 1"),
        ("objective.weight=-0.1", "greater than or equal to 0"),
        ("sampler.num_unlabeled=-1", "greater than or equal to 0"),
        ("generator.num_synthetic=-1", "greater than or equal to 0"),
        ("generator.noise_std=0", "greater than 0"),
        ("generator.dropout=1", "less than 1"),
        ("optimizer.learning_rate=0", "greater than 0"),
        ("optimizer.learning_rate=nan", "finite number"),
        ("data.valid=1", "less than 1"),
        ("data.test=-0.1", "greater than or equal to 0"),
        ("optimizer.name=sgd", "'adagrad' or 'adam'"),
        ("training.epochs=many", "integer"),
        ("training.epochs=2.5", "integer"),
        ("training.epochs=none", "integer"),
        ("scoring.name=3", "string"),
        ("objective.options.prior=none", ""),
    ],
)
def test_a_value_out_of_range_is_named_with_its_path_its_value_and_the_bound(setting, bound):
    path, _, value = setting.partition("=")
    with pytest.raises(ConfigError) as error:
        Config().with_settings([setting])
    message = str(error.value)
    assert path in message
    assert value.lower() in message.lower()
    assert bound in message
    assert "\n" not in message


def test_a_config_cannot_be_changed_once_read():
    with pytest.raises(ValidationError, match="frozen"):
        Config().training.epochs = 3


def test_bad_toml_is_named_with_its_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("[training]\nepochs = = 3\n")
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML.*line 2"):
        read(path)


def test_a_file_that_is_not_text_is_not_valid_toml(tmp_path):
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match=r"binary\.toml is not valid TOML"):
        read(path)


def test_a_missing_file_and_a_folder_in_its_place_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the config .*nowhere\.toml: No such file"):
        read(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot read the config .*directory"):
        read(tmp_path)


# --- options of a registry entry


def make(graph: object, dim: int, *, reciprocal: bool = True, prior: float = 0.5) -> None:
    """Stand in for an entry of a registry."""


def test_options_in_the_signature_are_accepted_as_they_are():
    options = {"reciprocal": False, "prior": 0.25}
    assert accepted(make, options, given=("graph", "dim"), what="make") == options
    assert accepted(make, {}, given=("graph", "dim"), what="make") == {}


def test_an_option_that_the_signature_does_not_have_names_the_nearest():
    with pytest.raises(ConfigError) as error:
        accepted(make, {"reciprocall": True}, given=("graph", "dim"), what="make")
    assert str(error.value) == "make has no option 'reciprocall': did you mean 'reciprocal'?"


def test_what_the_program_gives_itself_is_not_an_option():
    with pytest.raises(ConfigError, match="make has no option 'dim'"):
        accepted(make, {"dim": 8}, given=("graph", "dim"), what="make")


def test_an_entry_without_options_says_so():
    with pytest.raises(ConfigError) as error:
        accepted(lambda graph: None, {"x": 1}, given=("graph",), what="plain")
    assert str(error.value) == "plain has no option 'x' (it has none)"


@pytest.mark.parametrize(
    "options",
    [{"prior": "high"}, {"prior": "0.5"}, {"reciprocal": "no"}, {"reciprocal": 1}],
    ids=["word", "number in quotes", "word for a truth value", "number for a truth value"],
)
def test_an_option_of_the_wrong_type_is_refused(options):
    (name, value) = next(iter(options.items()))
    with pytest.raises(ConfigError, match=f"make: option {name} = {value!r}"):
        accepted(make, options, given=("graph", "dim"), what="make")


def test_a_whole_number_will_do_where_a_float_is_wanted():
    assert accepted(make, {"prior": 1}, given=("graph", "dim"), what="make") == {"prior": 1.0}


@given(st.text(max_size=8), st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_hint_names_a_known_word(name, known):
    hint = nearest(name, known)
    assert any(repr(word) in hint or word in hint for word in known)
