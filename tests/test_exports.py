"""Facts as files: what is written is read back, whatever the labels hold."""

import csv
import json
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import puda
from puda import exports
from puda.data.graph import KnowledgeGraph
from puda.errors import PudaError, RunError
from puda.exports import iri, write_facts

NASTY = [
    "a\tb",
    'say "x"',
    '"',
    "two\nlines",
    "\r",
    "\r\n",
    "",
    " spaced ",
    "a,b",
    "#1",
    "null",
    "3",
    "\ufeffb",
    "\\N",
    "Zürich 🎉",
    "\u2028",
    "<x>",
    "%41",
]
SCHEMA = {
    "head": pl.String,
    "relation": pl.String,
    "tail": pl.String,
    "score": pl.Float32,
    "probability": pl.Float64,
    "rank": pl.Int64,
}
labels = st.one_of(st.sampled_from(NASTY), st.text(max_size=8))
facts = st.lists(st.tuples(labels, labels, labels), max_size=6)


def frame_of(triples: list[tuple[str, str, str]], seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    size = len(triples)
    columns = pl.DataFrame(triples, schema=["head", "relation", "tail"], orient="row")
    return columns.with_columns(
        score=rng.normal(size=size) * 10.0 ** rng.integers(-20, 20, size),
        probability=rng.random(size),
        rank=np.arange(1, size + 1),
    ).cast(SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exports")


READERS = {
    ".parquet": lambda path: pl.read_parquet(path),
    ".tsv": lambda path: pl.read_csv(path, separator="\t", schema=SCHEMA),
    ".csv": lambda path: pl.read_csv(path, schema=SCHEMA),
    ".jsonl": lambda path: pl.read_ndjson(path, schema=SCHEMA),
}


@pytest.mark.parametrize("ending", READERS)
@given(triples=facts, seed=st.integers(0, 100))
@example(triples=[(label, label, label) for label in NASTY], seed=1)
def test_polars_reads_back_what_was_written(folder, ending, triples, seed):
    frame, path = frame_of(triples, seed), folder / f"facts{ending}"
    write_facts(frame, path)
    if ending == ".jsonl" and not triples:
        assert path.read_bytes() == b""
        return
    read = READERS[ending](path)
    assert read.schema == frame.schema
    assert read.rows() == frame.rows()


@pytest.mark.parametrize(("ending", "delimiter"), [(".tsv", "\t"), (".csv", ",")])
@given(triples=facts)
def test_python_reads_the_same_tables(folder, ending, delimiter, triples):
    path = folder / f"table{ending}"
    write_facts(frame_of(triples), path)
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter=delimiter)
    assert header == list(SCHEMA)
    assert [tuple(row[:3]) for row in rows] == triples


def test_plain_labels_are_not_quoted(folder):
    write_facts(frame_of([("Athens", "is near", 'the "sea"')]), folder / "plain.tsv")
    line = (folder / "plain.tsv").read_text(encoding="utf-8").splitlines()[1]
    assert line.startswith('Athens\tis near\t"the ""sea"""\t')


def test_a_line_of_json_is_a_fact(folder):
    write_facts(frame_of([("a\n", "r", "ü")]), folder / "facts.jsonl")
    (line,) = (folder / "facts.jsonl").read_text(encoding="utf-8").splitlines()
    fact = json.loads(line)
    assert list(fact) == list(SCHEMA)
    assert (fact["head"], fact["relation"], fact["tail"], fact["rank"]) == ("a\n", "r", "ü", 1)


@pytest.mark.parametrize(
    "label",
    [
        "http://example.org/Athens",
        "https://user@example.org:8080/a?b=c#d",
        "http://example.org/%41",
        "http://münchen.de/Straße",
        "urn:isbn:0451450523",
        "mailto:a@b.c",
        "x:",
    ],
)
def test_an_absolute_iri_stays_as_it_is(label):
    assert iri(label, "entity") == label


@pytest.mark.parametrize(
    ("label", "encoded"),
    [
        ("Athens", "Athens"),
        ("New York", "New%20York"),
        ("Zürich", "Z%C3%BCrich"),
        ("a/b", "a%2Fb"),
        ("12:30", "12%3A30"),
        ("_:b0", "_%3Ab0"),
        ("", ""),
        ("Alien: Resurrection", "Alien%3A%20Resurrection"),
        ("http://example.org/100%", "http%3A%2F%2Fexample.org%2F100%25"),
        ("http://example.org/<a>", "http%3A%2F%2Fexample.org%2F%3Ca%3E"),
        ("http://a:b:c/", "http%3A%2F%2Fa%3Ab%3Ac%2F"),
        ("http://a/#b#c", "http%3A%2F%2Fa%2F%23b%23c"),
        ("http://a\n", "http%3A%2F%2Fa%0A"),
    ],
)
def test_any_other_label_is_encoded_in_a_name_space_of_its_kind(label, encoded):
    assert iri(label, "entity") == f"urn:puda:entity:{encoded}"
    assert iri(label, "relation") == f"urn:puda:relation:{encoded}"


iri_like = st.builds(
    lambda start, rest: start + rest,
    st.sampled_from(["http://a", "http://a:", "urn:", "x:/", "http://u@", "x:?", "x:#", "http:"]),
    st.text(alphabet="ab1:/?#[]@%4é\ue000\ufffe\U0001fffe\U00010000\U000e0001'| ", max_size=8),
)


@given(st.lists(st.tuples(*[st.one_of(iri_like, labels)] * 3), max_size=6))
def test_ntriples_are_valid_and_tell_every_label(folder, triples):
    pyoxigraph = pytest.importorskip("pyoxigraph")
    path = folder / "facts.nt"
    write_facts(frame_of(triples), path)
    read = list(pyoxigraph.parse(path.read_bytes(), pyoxigraph.RdfFormat.N_TRIPLES))

    def label(node: object, kind: str) -> str:
        start = f"urn:puda:{kind}:"
        value = node.value
        return unquote(value.removeprefix(start)) if value.startswith(start) else value

    assert [
        (label(f.subject, "entity"), label(f.predicate, "relation"), label(f.object, "entity"))
        for f in read
    ] == triples


def test_ntriples_hold_a_fact_a_line_and_no_score(folder):
    write_facts(frame_of([("a b", "near", "http://c.d/e")]), folder / "one.nt")
    assert (folder / "one.nt").read_bytes() == (
        b"<urn:puda:entity:a%20b> <urn:puda:relation:near> <http://c.d/e> .\n"
    )


@pytest.mark.parametrize(
    ("name", "shown"), [("facts.xlsx", r"\.xlsx"), ("facts", "without ending")]
)
def test_an_unknown_ending_names_the_known_ones(tmp_path, name, shown):
    with pytest.raises(PudaError, match=rf"{shown}: choose one of \.parquet, \.tsv, .*\.nt"):
        write_facts(frame_of([]), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_endings_may_be_in_capitals_and_folders_are_made(tmp_path):
    write_facts(frame_of([("a", "r", "b")]), str(tmp_path / "new" / "FACTS.TSV"))
    assert (tmp_path / "new" / "FACTS.TSV").read_text().startswith("head\trelation")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "facts.nt"
    write_facts(frame_of([("a", "r", "b")]), path)
    before = path.read_bytes()
    broken = frame_of([("c", "r", "d"), ("e", "r", "f")]).with_columns(
        tail=pl.Series(["d", None])  # no label, found in the middle of writing
    )
    with pytest.raises(TypeError):
        write_facts(broken, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["facts.nt"]


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*facts\.csv"):
        write_facts(frame_of([]), tmp_path / "file" / "facts.csv")


# --- embeddings


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> puda.Run:
    small = {"scoring": {"dim": 4}, "training": {"epochs": 1, "threads": 1}}
    facts = [("a\tb", "r", "c"), ("c", "r", "d"), ("d", "r", "a\tb"), ("c", "s", "d")]
    graph = KnowledgeGraph.from_facts(facts)
    return puda.train(graph, tmp_path_factory.mktemp("runs") / "run", config=small)


def test_embeddings_are_the_rows_of_entities_with_the_number_of_their_facts(run):
    frame = run.embeddings()
    assert frame["entity"].to_list() == list(run.trained.graph.entities.labels)
    np.testing.assert_array_equal(frame["vector"].to_numpy(), run.trained.rows.numpy())
    assert dict(zip(frame["entity"], frame["facts"], strict=True)) == {"a\tb": 2, "c": 3, "d": 3}


def test_embeddings_come_back_from_parquet(run, tmp_path):
    assert exports.write_embeddings(run.embeddings(), tmp_path / "v.parquet") == [
        tmp_path / "v.parquet"
    ]
    assert pl.read_parquet(tmp_path / "v.parquet").equals(run.embeddings())


def test_the_projector_gets_numbers_and_labels_line_by_line(run, tmp_path):
    vectors, labels = exports.write_embeddings(run.embeddings(), tmp_path / "v.tsv")
    numbers = np.loadtxt(vectors, delimiter="\t")
    np.testing.assert_allclose(numbers, run.trained.rows.numpy(), rtol=1e-5)
    assert labels.read_text().splitlines() == ["entity\tfacts", "a b\t2", "c\t3", "d\t3"]


def test_another_ending_is_refused_for_embeddings(run, tmp_path):
    with pytest.raises(PudaError, match=r"v\.csv: embeddings are written as \.parquet or \.tsv"):
        exports.write_embeddings(run.embeddings(), tmp_path / "v.csv")


def test_the_command_writes_embeddings(run, command, tmp_path):
    told = command("embeddings", run.path, "-o", tmp_path / "v.tsv")
    assert told.code == 0
    assert "v-labels.tsv" in told.out
    files = json.loads(command("embeddings", run.path, "-o", tmp_path / "w.tsv", "--json").out)
    assert files == {"files": [str(tmp_path / "w.tsv"), str(tmp_path / "w-labels.tsv")]}
    refused = command("embeddings", run.path, "-o", tmp_path / "w.txt")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_answers_are_written_beside_being_shown(run, command, tmp_path):
    told = command(
        "predict", run.path, "--head", "c", "--relation", "r", "-o", tmp_path / "answers.tsv"
    )
    assert told.code == 0
    written = pl.read_csv(tmp_path / "answers.tsv", separator="\t")
    assert written["head"].to_list() == ["c"] * len(written)
    assert {"tail", "score", "rank", "known"} <= {*written.columns}
