"""The command line as a person meets it: answers, one-line errors, JSON that is nothing else."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import puda
from console import Result
from puda import bench
from puda.data.graph import SPLITS, KnowledgeGraph
from toy import checkerboard, labels

SCRIPT = Path(sys.executable).with_name("puda")
SMALL = {
    "scoring.name": "distmult",
    "scoring.dim": 16,
    "generator.num_synthetic": 2,
    "training.epochs": 2,
    "training.validate_every": 1,
    "training.batch_size": 64,
    "training.threads": 1,
}
FLAGS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Return a run on the checkerboard that has learnt it."""
    path = tmp_path_factory.mktemp("cli") / "run"
    settings = {
        "scoring": {"name": "distmult", "dim": 16},
        "generator": {"num_synthetic": 2},
        "training": {"epochs": 60, "validate_every": 20, "batch_size": 32, "threads": 1},
    }
    puda.train(checkerboard(), path, config=settings)
    return path


@pytest.fixture
def run(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture
def facts(tmp_path) -> Path:
    """Return a TSV file with a header and the whole checkerboard."""
    graph = checkerboard()
    rows = sorted(set().union(*(labels(graph, split) for split in SPLITS)))
    path = tmp_path / "board.tsv"
    path.write_text("subject\tpredicate\tobject\n" + "".join("\t".join(r) + "\n" for r in rows))
    return path


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def refused(result: Result, *words: str, after_reading: bool = False) -> None:
    """Assert exit code 2, nothing on stdout, and one line of error that holds the words.

    Once a source was read, what was read has been told on stderr before the error.
    """
    assert "Traceback" not in result.err
    assert result.code == 2, result
    assert result.out == ""
    lines = [line for line in result.err.splitlines() if line.strip()]
    assert lines[-1].startswith("error: "), result.err
    assert sum(line.startswith("error:") for line in lines) == 1
    if not after_reading:
        assert len(lines) == 1, result.err
    for word in words:
        assert word in lines[-1]


# --- bad sources


def test_a_missing_source_names_it_and_the_data_sets(command, tmp_path):
    refused(command("train", tmp_path / "nowhere.tsv"), "nowhere.tsv", "world", "fb15k-237")


def test_a_misspelt_data_set_names_the_nearest(command):
    refused(command("train", "fb15k237"), "fb15k237", "did you mean 'fb15k-237'?")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\x01\x02\x03binary\x00\n" * 20, ["binary"]),
        (bytes(range(128, 256)) * 3, ["UTF-8"]),
        (b"one\ntwo\nthree\n", ["columns", "'one'", "head, relation, tail"]),
        (b"", ["empty"]),
        (b"\n\n  \n", ["empty"]),
        (b"a\tb\nc\nd\te\tf\n\tg\t\n", ["lines hold no fact", "line 1"]),
        (b"head\trelation\ttail\n", ["no facts"]),
    ],
    ids=["binary", "not utf-8", "one column", "empty", "blank", "bad lines", "only a header"],
)
@pytest.mark.parametrize("verb", ["train", "check"])
def test_a_file_without_facts_says_what_is_wrong_with_it(
    command, tmp_path, monkeypatch, verb, content, words
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "facts.tsv"
    path.write_bytes(content)
    refused(command(verb, path), "facts.tsv", *words)
    assert not (tmp_path / "runs").exists()


def test_columns_that_the_file_does_not_have_are_named(command, facts):
    refused(command("check", facts, "--columns", "head=who"), "'who'", "'subject'")
    refused(command("check", facts, "--columns", "head"), "'head'", "head=subject")


# --- bad settings


def test_a_misspelt_key_names_the_nearest(command, facts, tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text("[training]\nepocs = 3\n")
    refused(
        command("train", facts, "--config", config),
        "mine.toml",
        "'training.epocs'",
        "did you mean 'epochs'?",
    )
    refused(
        command("train", facts, "--set", "optimiser.name=adam"),
        "'optimiser'",
        "did you mean 'optimizer'?",
    )


def test_a_config_that_is_missing_or_not_toml_is_named(command, facts, tmp_path):
    refused(command("train", facts, "--config", tmp_path / "no.toml"), "no.toml", "No such file")
    (tmp_path / "bad.toml").write_text("epochs: 3\n")
    refused(command("train", facts, "--config", tmp_path / "bad.toml"), "bad.toml", "line 1")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--minutes", "0"], ["training.minutes = 0.0", "greater than 0"]),
        (["--set", "training.epochs=0"], ["training.epochs = 0"]),
        (["--set", "epochs=3"], ["'epochs=3'", "section.key=value"]),
        (["--set", "data.valid=0.6", "--set", "data.test=0.6"], ["valid=0.6", "test=0.6"]),
    ],
)
def test_a_setting_out_of_range_is_named(command, facts, words, named):
    refused(command("train", facts, *words), *named)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--scoring", "distmul"], ["'distmul'", "did you mean 'distmult'?"]),
        (["--objective", "pudda"], ["'pudda'", "did you mean 'puda'?"]),
        (["--sampler", "unifrom"], ["'unifrom'", "did you mean 'uniform'?"]),
        (["--set", "scoring.name=complex", "--set", "scoring.dim=7"], ["scoring.dim = 7", "even"]),
        (["--set", "objective.options.priors=1"], ["'priors'", "did you mean 'prior'?"]),
    ],
)
def test_a_setting_that_names_nothing_is_refused(command, facts, tmp_path, words, named):
    result = command("train", facts, "--out", tmp_path / "new", *words)
    refused(result, *named, after_reading=True)
    assert not (tmp_path / "new").exists()


def test_an_option_of_the_wrong_type_is_refused(command, facts, tmp_path):
    wrong = ["--set", "objective.options.prior=high"]
    result = command("train", facts, "--out", tmp_path / "new", *FLAGS, *wrong)
    refused(result, "prior", "high", after_reading=True)


def test_a_model_that_does_not_fit_into_memory_is_refused(command, facts, tmp_path):
    huge = ["--set", f"scoring.dim={10**15}"]
    result = command("train", facts, "--out", tmp_path / "new", *FLAGS, *huge)
    refused(result, "scoring.dim", after_reading=True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["train"], "source"),
        (["train", "world", "--minutes", "soon"], "--minutes"),
        (["predict", "run", "--frob"], "--frob"),
    ],
)
def test_words_that_are_no_command_end_with_code_2_and_say_why(command, words, named):
    result = command(*words)
    assert result.code == 2
    assert result.out == ""
    assert named in result.err
    assert "Traceback" not in result.err


# --- bad runs


@pytest.mark.parametrize(
    "words", [("evaluate",), ("predict", "--head", "a", "--relation", "b"), ("resume",)]
)
def test_a_run_that_is_not_there_or_damaged_is_named(command, run, tmp_path, words):
    verb, *rest = words
    refused(command(verb, tmp_path / "nowhere", *rest), "no run folder", "nowhere")
    refused(command(verb, tmp_path, *rest), "not a run folder", "config.toml")
    (run / "entities.txt").unlink()
    refused(command(verb, run, *rest), "damaged", "entities.txt")


@pytest.mark.parametrize("name", ["model.safetensors", "graph.safetensors"])
def test_a_truncated_file_is_named(command, run, name):
    (run / name).write_bytes((run / name).read_bytes()[:64])
    refused(command("predict", run, "--head", "person 0", "--relation", "likes"), "damaged", name)


def test_a_damaged_metrics_file_is_named(command, run):
    (run / "metrics.json").write_text("{")
    refused(command("resume", run), "metrics.json")


def test_an_existing_run_is_not_trained_over(command, facts, run):
    before = (run / "model.safetensors").read_bytes()
    result = command("train", facts, "--out", run, *FLAGS)
    refused(result, str(run), "holds a run already", after_reading=True)
    assert (run / "model.safetensors").read_bytes() == before


# --- places that cannot be written


def test_an_output_folder_below_a_regular_file_is_refused(command, facts, tmp_path):
    (tmp_path / "file").write_text("")
    result = command("train", facts, "--out", tmp_path / "file" / "run", *FLAGS)
    refused(result, "cannot write", str(tmp_path / "file"), after_reading=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", ["entities.txt.part", "config.toml.part", "trace.jsonl.part"])
def test_a_full_disk_is_told(command, facts, tmp_path, name):
    out = tmp_path / "new"
    out.mkdir()
    (out / name).symlink_to("/dev/full")  # every write to it fails with ENOSPC
    result = command("train", facts, "--out", out, *FLAGS)
    refused(result, name.removesuffix(".part"), "No space left on device", after_reading=True)
    assert not list(out.glob("*.part"))


def test_a_disk_that_is_full_when_weights_are_written_is_told(
    command, facts, tmp_path, monkeypatch
):
    def full(tensors: Any, path: Path, header: Any) -> None:
        if path.name.startswith("model"):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_file(tensors, path, header)

    monkeypatch.setattr("puda.runs.save_file", full)
    result = command("train", facts, "--out", tmp_path / "new", *FLAGS)
    refused(result, "model.safetensors", "No space left on device", after_reading=True)
    assert not list((tmp_path / "new").glob("model*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_told_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SCRIPT, "version"], stdout=full, stderr=subprocess.PIPE, text=True)
    refused(Result(done.returncode, "", done.stderr), "No space left on device")


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen(
        [SCRIPT, "datasets", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()  # as `puda datasets --json | true` does
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() != 0
    assert err == ""


# --- questions


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--head", "person 0", "--relation", "lykes"], ["no relation 'lykes'", "'likes'"]),
        (["--head", "persn 0", "--relation", "likes"], ["no entity 'persn 0'", "'person 0'"]),
        (["--head", "person", "--relation", "likes"], ["'person' could be 'person 0'", "more"]),
        (["--head", "person 0"], ["give two of head, relation and tail"]),
        (["--head", "person 0", "--relation", "likes", "-k", "0"], ["k = 0"]),
        (["--head", "person 0", "--relation", "likes", "-k", "-5"], ["k = -5"]),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(command, original, words, named):
    refused(command("predict", original, *words), *named)


def test_an_unknown_split_is_named(command, original):
    refused(command("evaluate", original, "--split", "tset"), "'tset'", "train, valid, test")


def test_a_model_whose_scores_are_not_finite_is_told(command, run):
    tensors = load_file(run / "model.safetensors")
    tensors["entities"].fill_(torch.nan)
    save_file(tensors, run / "model.safetensors")
    words = ["--head", "person 0", "--relation", "likes", "--json"]
    refused(command("predict", run, *words), "finite")


# --- JSON


def test_train_prints_one_json_document(command, facts, tmp_path):
    result = command("train", facts, "--out", tmp_path / "new", "--json", *FLAGS)
    assert result.code == 0, result.err
    document = strict_json(result.out)
    assert document["run"] == str(tmp_path / "new")
    assert document["finished"] is True
    assert 0 < document["test"]["both"]["mrr"] <= 1
    assert document["test"] == strict_json((tmp_path / "new" / "metrics.json").read_text())["test"]


def test_resume_prints_one_json_document(command, run):
    document = strict_json(command("resume", run, "--json").out)
    assert document["run"] == str(run)
    assert document["finished"] is True


def test_evaluate_prints_tail_head_and_both(command, original):
    result = command("evaluate", original, "--json")
    assert (result.code, result.err) == (0, "")
    test = strict_json(result.out)["test"]
    tail, head, both = (test[side]["mrr"] for side in ("tail", "head", "both"))
    assert both == pytest.approx((tail + head) / 2)
    assert both > 0.9
    assert test["both"]["count"] == 16  # both sides of the 8 facts in test
    assert test["baselines"]["popularity"]["both"]["mrr"] < both
    valid = strict_json(command("evaluate", original, "--split", "valid", "--json").out)
    assert valid.keys() == {"valid"}


def test_evaluate_gives_the_same_in_a_megabyte_and_refuses_less(command, original):
    little = command("evaluate", original, "--json", "--memory", 1)
    assert little == command("evaluate", original, "--json")
    result = command("evaluate", original, "--memory", 0)
    assert result.code == 2 and "--memory" in result.err


def test_bench_prints_figures_of_training_and_ranking(command, facts, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)  # as if PyKEEN were not installed
    words = ["--set", "scoring.dim=16", "--set", "training.batch_size=32"]
    figures = strict_json(command("bench", facts, "--json", *words).out)
    assert figures["training"]["scoring"] == "distmult"
    assert figures["training"]["floats"] == 16
    assert figures["evaluation"]["facts"] > 0
    assert "pykeen" not in figures
    shown = command("bench", facts, *words).out
    assert "times its bare matrix products" in shown


def test_bench_on_what_is_not_there_says_so(command, tmp_path):
    refused(command("bench", tmp_path / "nowhere.tsv"), "nowhere.tsv")
    refused(command("bench", "--scoring", "distmlut"), "distmlut", "distmult")
    refused(command("bench", "--set", "training.batchsize=3"), "batchsize", "batch_size")


def test_predict_prints_a_list_of_answers(command, original):
    words = ["--head", "PERSON 3", "--relation", "lik", "-k", 3, "--json"]
    result = command("predict", original, *words)
    assert (result.code, result.err) == (0, "")
    answers = strict_json(result.out)
    assert [answer["rank"] for answer in answers] == [1, 2, 3]
    # Person 3 likes things 1, 3, 5, 7. All are in the graph, so what is left are wrong ones.
    liked = {f"thing {i}" for i in (1, 3, 5, 7)}
    assert not liked & {answer["tail"] for answer in answers}
    known = strict_json(command("predict", original, *words, "--include-known", "-k", 4).out)
    assert {answer["tail"] for answer in known} == liked
    assert all(answer["known"] for answer in known)
    first = known[0]
    facts = {"head", "relation", "tail"}
    said = {"score", "rank", "known", "margin", "probability", "agreement", "members"}
    assert first.keys() == facts | said
    assert (first["head"], first["relation"]) == ("person 3", "likes")


def test_check_datasets_and_version_print_one_json_document(command, facts):
    report = strict_json(command("check", facts, "--json").out)
    assert (report["num_entities"], report["num_relations"]) == (16, 2)
    assert sum(report["num_facts"].values()) == 64
    assert isinstance(report["warnings"], list)
    listed = {row["name"]: row for row in strict_json(command("datasets", "--json").out)}
    assert {"world", "fb15k-237", "wn18rr"} <= listed.keys()
    assert listed["world"]["here"] is True
    assert strict_json(command("version", "--json").out) == {"version": puda.__version__}


def test_labels_of_any_script_are_printed_as_they_are(command, tmp_path):
    facts = [("日本", "国境", "中国"), ("Ελλάδα", "国境", "Türkiye"), ("日本", "国境", "Ελλάδα")]
    graph = KnowledgeGraph.from_facts(facts)
    puda.train(graph, tmp_path / "run", config={"training": {"epochs": 1}})
    out = command("predict", tmp_path / "run", "--head", "日本", "--relation", "国境", "--json").out
    assert "Türkiye" in out
    assert strict_json(out)[0]["head"] == "日本"


def test_a_run_without_held_out_facts_is_finished_all_the_same(command, facts, tmp_path):
    whole = ["--set", "data.valid=0", "--set", "data.test=0"]
    words = ["train", facts, "--out", tmp_path / "new", *FLAGS, *whole]
    assert strict_json(command(*words, "--json").out)["finished"] is True


# --- for the eye


def test_train_on_a_file_with_a_header_then_predict(command, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = command("train", facts, *FLAGS, "--set", "training.epochs=30")
    assert trained.code == 0, trained.err
    assert "64 facts" in trained.err
    assert "head=subject, relation=predicate, tail=object" in trained.err
    for word in ("tail", "head", "both", "MRR", "popularity", "board"):
        assert word in trained.out
    assert (tmp_path / "runs" / "board" / "model.safetensors").exists()

    done = subprocess.run(  # once as a person does it
        [
            SCRIPT,
            "predict",
            "runs/board",
            "--head",
            "person 0",
            "--relation",
            "dislikes",
            "-k",
            "2",
        ],
        capture_output=True,
        text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "person 0 - dislikes - ?" in done.stdout
    shown = [line for line in done.stdout.splitlines() if "thing" in line or "person " in line]
    assert len(shown) == 3  # the question and two answers


def test_named_flags_set_what_they_name(command, facts, tmp_path):
    named = ["--seed", 7, "--scoring", "complex", "--objective", "puda", "--sampler", "uniform"]
    result = command("train", facts, "--out", tmp_path / "new", *FLAGS[2:], *named)
    assert result.code == 0, result.err
    config = puda.open_run(tmp_path / "new").trained.config
    assert (config.training.seed, config.scoring.name) == (7, "complex")


def test_set_wins_over_the_config_file(command, facts, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[training]\nepochs = 50\nseed = 3\n")
    result = command("train", facts, "--config", path, "--out", tmp_path / "new", *FLAGS)
    assert result.code == 0, result.err
    config = puda.open_run(tmp_path / "new").trained.config
    assert (config.training.epochs, config.training.seed) == (2, 3)


def test_columns_can_be_chosen(command, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("what,note,a,b\nlikes,x,Ann,Bob\nlikes,x,Bob,Cid\nknows,x,Cid,Ann\n")
    columns = "head=a,relation=what,tail=b"
    report = strict_json(command("check", path, "--columns", columns, "--json").out)
    assert (report["num_entities"], report["num_relations"]) == (3, 2)


def test_evaluate_shows_relations_when_asked(command, original):
    plain = command("evaluate", original)
    assert plain.code == 0
    assert "dislikes" not in plain.out
    assert "likes, tail" in command("evaluate", original, "--relations").out


def test_an_interrupted_training_says_so_and_resume_goes_on(command, facts, tmp_path, monkeypatch):
    @contextmanager
    def pressing_ctrl_c(config: Any) -> Iterator[Callable[[Any], None]]:
        def listener(event: Any) -> None:
            if event["event"] == "epoch" and event["epoch"] == 2:
                raise KeyboardInterrupt

        yield listener

    run = tmp_path / "new"
    with monkeypatch.context() as patched:
        patched.setattr("puda.display.training_progress", pressing_ctrl_c)
        result = command("train", facts, "--out", run, *FLAGS, "--set", "training.epochs=4")
    assert "Traceback" not in result.err
    assert f"Stopped. The best so far is in {run}" in result.out.replace("\n", " ")
    assert not (run / "metrics.json").exists()
    assert command("predict", run, "--head", "person 0", "--relation", "likes").code == 0
    resumed = command("resume", run, "--json")
    assert strict_json(resumed.out)["finished"] is True


@pytest.mark.parametrize(
    "label",
    [
        "[/red]",
        "[bold]x",
        "\\[y]",
        "end\\",
        pytest.param(":cat:"),
    ],
)
def test_labels_that_look_like_markup_are_shown_as_they_are(command, tmp_path, label):
    facts = [("a", label, "b"), ("b", label, label), (label, label, "c")]
    graph = KnowledgeGraph.from_facts(facts, test=[("b", label, "c")], valid=[("c", label, "a")])
    puda.train(graph, tmp_path / "run", config={"training": {"epochs": 1, "threads": 1}})
    shown = command("predict", tmp_path / "run", "--head", "a", "--relation", label)
    assert shown.code == 0, shown.err
    assert f"a - {label} - ?" in shown.out
    assert any(label in line for line in shown.out.splitlines()[2:])
    assert f"{label}, tail" in command("evaluate", tmp_path / "run", "--relations").out


def test_when_nothing_is_left_to_predict_it_says_so(command, tmp_path):
    graph = KnowledgeGraph.from_facts([(h, "r", t) for h in "ab" for t in "ab"])
    puda.train(graph, tmp_path / "run", config={"training": {"epochs": 1, "threads": 1}})
    result = command("predict", tmp_path / "run", "--head", "a", "--relation", "r")
    assert result.code == 0
    assert "nothing left to predict" in result.out
    json_result = command("predict", tmp_path / "run", "--head", "a", "--relation", "r", "--json")
    assert strict_json(json_result.out) == []


def test_a_hidden_file_gets_a_folder_of_its_own(command, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hidden = facts.rename(tmp_path / ".facts.tsv")
    assert command("train", hidden, *FLAGS).code == 0
    assert not (tmp_path / "runs" / "config.toml").exists()


def test_version_and_help_answer(command):
    assert command("version").out == f"puda {puda.__version__}\n"
    result = command("--help")
    assert result.code == 0
    for verb in ("train", "resume", "evaluate", "predict", "check", "bench", "datasets", "version"):
        assert verb in result.out


# --- torch is not imported until it is needed


def test_import_puda_and_help_do_not_import_torch():
    code = """
import sys
import puda
assert "torch" not in sys.modules, "import puda imports torch"
from puda.cli import main
for words in (["--help"], ["train", "--help"], ["version"]):
    sys.argv = ["puda", *words]
    try:
        main()
    except SystemExit as ending:
        assert not ending.code
    assert "torch" not in sys.modules, f"puda {words} imports torch"
assert callable(puda.train)  # and this is when it is
assert "torch" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_has_no_attribute_that_it_does_not_list():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = puda.trian


# --- add


def test_facts_of_a_new_entity_are_added_to_a_run(command, run, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("person new\tlikes\tthing 0\nperson new\tlikes\tthing 2\n")
    result = command("add", run, new, "--out", tmp_path / "grown")
    assert result.code == 0, result.err
    assert "1 new entities, 2 new facts" in result.out
    told = command("add", run, new, "--out", tmp_path / "again", "--json")
    expected = {"out": str(tmp_path / "again"), "entities": 1, "facts": 2}
    assert json.loads(told.out) == expected
    answers = command("predict", tmp_path / "grown", "--head", "person new", "--relation", "likes")
    assert answers.code == 0
    assert "thing 4" in answers.out


def test_a_new_relation_cannot_be_added(command, run, tmp_path):
    new = tmp_path / "new.tsv"
    new.write_text("person new\tadores\tthing 0\nperson new\tadores\tthing 2\n")
    result = command("add", run, new, "--out", tmp_path / "grown")
    assert result.code == 2
    assert "the relation 'adores' is not in" in result.err
    assert not (tmp_path / "grown").exists()


# --- complete


def test_the_missing_facts_of_the_whole_graph_are_written(command, run, tmp_path):
    path = tmp_path / "missing.tsv"
    result = command("complete", run, "-o", path, "--per-relation", "2")
    assert result.code == 0, result.err
    assert "pairs to score" in result.err
    assert "4 facts are in" in result.out
    header, *rows = path.read_text().splitlines()
    assert header.split("\t") == ["head", "relation", "tail", "score", "rank"]
    assert len(rows) == 4
    known = labels(checkerboard(), "train")
    assert not {tuple(row.split("\t")[:3]) for row in rows} & known


def test_complete_as_json_tells_the_cost(command, run, tmp_path):
    path = tmp_path / "missing.parquet"
    result = command("complete", run, "-o", path, "--relation", "likes", "--no-prune", "--json")
    told = strict_json(result.out)
    assert (told["pairs"], told["all_pairs"]) == (16 * 16, 16 * 16)
    assert told["facts"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "missing.xls"], "cannot write .xls"),
        (["-o", "x.tsv", "--relation", "loves"], "no relation 'loves'"),
        (["-o", "x.tsv", "--top", "0"], "ask for at least one"),
    ],
)
def test_a_completion_that_cannot_be_done_is_refused(command, run, monkeypatch, words, said):
    monkeypatch.chdir(run.parent)
    result = command("complete", run, *words)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


# --- audit


def test_doubtful_facts_are_listed_and_written(command, run, tmp_path):
    path = tmp_path / "doubts.csv"
    result = command("audit", run, "--folds", "2", "-k", "3", "-o", path, "--json")
    assert result.code == 0, result.err
    told = strict_json(result.out)
    assert len(told) == 3
    assert told[0]["doubt"] >= told[1]["doubt"] >= told[2]["doubt"]
    assert len(path.read_text().splitlines()) == 1 + 64  # all facts of the board


def test_an_audit_by_one_fold_is_refused(command, run):
    result = command("audit", run, "--folds", "1")
    assert result.code == 2
    assert "folds = 1" in result.err


# --- explain


def test_a_fact_is_explained_in_words_and_in_a_picture(command, run, tmp_path):
    picture = tmp_path / "why.svg"
    words = ("explain", run, "person 0", "likes", "thing 2", "-k", "2")
    result = command(*words, "--svg", picture)
    assert result.code == 0, result.err
    assert result.out.startswith("person 0 likes thing 2: ")
    assert "Rules that lead to it" in result.out
    assert picture.read_text().startswith("<svg")
    told = strict_json(command(*words, "--json").out)
    assert told["fact"] == {"head": "person 0", "relation": "likes", "tail": "thing 2"}


def test_an_entity_that_is_not_known_cannot_be_explained(command, run):
    result = command("explain", run, "persn 0", "likes", "thing 2")
    assert result.code == 2
    assert "person 0" in result.err


# --- calibrate


def test_too_few_facts_to_calibrate_are_told(command, run):
    result = command("calibrate", run)
    assert result.code == 2
    assert "calibration needs at least 30" in result.err


def test_a_run_is_calibrated_when_it_ends_and_predictions_tell_it(command, tmp_path):
    path = tmp_path / "world"
    flags = ["--set", "scoring.dim=16", "--set", "training.epochs=2", "--set", "training.threads=1"]
    assert command("train", "world", "--out", path, *flags).code == 0
    assert (path / "calibration.json").exists()
    answers = command("predict", path, "--head", "France", "--relation", "borders", "-k", "3")
    assert "probability" in answers.out
    assert "Expected to be true of the 3" in answers.out
    assert "90%" in answers.out
    told = strict_json(command("calibrate", path, "--json").out)
    assert 0 <= told["ece"] <= 1
    assert "came true" in command("calibrate", path).out
