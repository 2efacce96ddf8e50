"""Whatever a user names becomes a graph: a file, a folder, a data set, a frame, a list."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import toy
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.source import load
from puda.errors import DataError

Fact = tuple[str, str, str]

TRAIN = [("ann", "knows", "bob"), ("bob", "knows", "cid"), ("cid", "likes", "ann")]
VALID = [("bob", "likes", "ann")]
TEST = [("ann", "knows", "cid"), ("dan", "knows", "ann")]  # dan is unseen in train
UNTRUE = [("bob", "likes", "cid")]


def write(path: Path, facts: list[Fact], *, order: str = "hrt", header: str = "") -> Path:
    lines = [header] if header else []
    lines += ["\t".join(fact["hrt".index(part)] for part in order) for fact in facts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def grid(size: int) -> list[Fact]:
    """Link each two of some people by one of two relations."""
    people = [f"p{i}" for i in range(size)]
    return [
        (people[i], ("knows", "likes")[(i + j) % 2], people[j])
        for i in range(size)
        for j in range(i)
    ]


def test_a_file_is_split_by_the_shares_asked_for(tmp_path: Path) -> None:
    facts = grid(20)  # 190 facts
    path = write(tmp_path / "people.v2.tsv", facts)
    graph, reports = load(path, valid=0.1, test=0.2)
    assert graph.name == "people"
    assert set().union(*(toy.labels(graph, split) for split in SPLITS)) == set(facts)
    # 100 facts of "likes" (i + j odd) give 10 and 20, 90 of "knows" 9 and 18.
    assert [len(graph.facts(split)) for split in SPLITS] == [133, 19, 38]
    assert [(report.source, report.facts) for report in reports] == [(str(path), 190)]


def test_a_path_as_text_is_the_same_file(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.tsv", grid(8))
    assert load(str(path)).graph.fingerprint == load(path).graph.fingerprint


def test_the_split_of_a_file_depends_on_the_seed_and_not_on_the_order_of_lines(
    tmp_path: Path,
) -> None:
    one = write(tmp_path / "one.tsv", grid(20))
    two = write(tmp_path / "two.tsv", grid(20)[::-1])
    assert load(one).graph.fingerprint == load(two).graph.fingerprint
    tests = {frozenset(toy.labels(load(one, seed=seed).graph, "test")) for seed in range(4)}
    assert len(tests) == 4


def test_a_list_a_frame_and_a_file_make_the_same_graph(tmp_path: Path) -> None:
    facts = grid(8)
    frame = pl.DataFrame(facts, schema=["subject", "predicate", "object"], orient="row")
    graphs = [load(source).graph for source in (facts, frame, write(tmp_path / "f.tsv", facts))]
    assert len({graph.fingerprint for graph in graphs}) == 1


def test_duplicates_of_a_file_are_counted_before_it_is_split(tmp_path: Path) -> None:
    graph = load(write(tmp_path / "facts.tsv", grid(8) + grid(8)[:5])).graph
    assert graph.duplicates == 5
    assert sum(len(graph.facts(split)) for split in SPLITS) == 28


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.tsv", grid(8), header="object\tverb\tactor")
    columns = {"head": "actor", "relation": "verb", "tail": "object"}
    graph = load(path, columns=columns, valid=0, test=0).graph
    assert toy.labels(graph, "train") == {(t, r, h) for h, r, t in grid(8)}


def test_a_graph_is_returned_as_it_is() -> None:
    graph = KnowledgeGraph.from_facts(TRAIN)
    assert load(graph) == (graph, ())


@pytest.mark.parametrize("valid_name", ["valid", "val", "dev", "validation"])
def test_a_folder_keeps_its_split(tmp_path: Path, valid_name: str) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    for name, facts in (("train", TRAIN), (valid_name, VALID), ("test", TEST)):
        write(folder / f"{name}.txt", facts)
    graph, reports = load(folder, valid=0.5, test=0.4, seed=7)  # shares are for files
    assert graph.name == "people"
    assert [toy.labels(graph, split) for split in SPLITS] == [set(TRAIN), set(VALID), set(TEST)]
    assert graph.entities.labels == ["ann", "bob", "cid", "dan"]
    assert [report.facts for report in reports] == [3, 1, 2]
    assert not graph.negatives


def test_a_folder_may_hold_negatives(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", TRAIN)
    write(tmp_path / "test.txt", TEST)
    write(tmp_path / "test_negatives.txt", UNTRUE)
    graph = load(tmp_path).graph
    ids = [graph.entities.find("bob"), graph.relations.find("likes"), graph.entities.find("cid")]
    assert {name: facts.tolist() for name, facts in graph.negatives.items()} == {"test": [ids]}
    assert len(graph.valid) == 0


def test_a_folder_of_a_training_file_alone_has_nothing_held_out(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", TRAIN)
    graph = load(tmp_path).graph
    assert [len(graph.facts(split)) for split in SPLITS] == [3, 0, 0]


def test_small_splits_are_read_with_the_column_order_of_train(tmp_path: Path) -> None:
    # Of 28 facts it can be seen that the third column holds the relations, of one it cannot.
    write(tmp_path / "train.txt", grid(8), order="htr")
    write(tmp_path / "test.txt", [("p0", "knows", "p7")], order="htr")
    graph = load(tmp_path).graph
    assert toy.labels(graph, "train") == set(grid(8))
    assert toy.labels(graph, "test") == {("p0", "knows", "p7")}


def test_a_header_says_more_than_the_columns_of_train(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", TRAIN)
    write(tmp_path / "test.txt", TEST, order="trh", header="tail\trelation\thead")
    assert toy.labels(load(tmp_path).graph, "test") == set(TEST)


def test_an_openke_folder_is_read_with_its_labels(tmp_path: Path) -> None:
    entities, relations = ["dan", "cid", "bob", "ann"], ["likes", "knows"]
    for name, labels in (("entity", entities), ("relation", relations)):
        lines = [f"{label}\t{i}" for i, label in enumerate(labels)]
        (tmp_path / f"{name}2id.txt").write_text("\n".join([str(len(labels)), *lines]) + "\n")
    for name, facts in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        lines = [
            f"{entities.index(h)} {entities.index(t)} {relations.index(r)}" for h, r, t in facts
        ]
        (tmp_path / f"{name}2id.txt").write_text("\n".join([str(len(facts)), *lines]) + "\n")
    graph, reports = load(tmp_path)
    assert [toy.labels(graph, split) for split in SPLITS] == [set(TRAIN), set(VALID), set(TEST)]
    assert {report.format for report in reports} == {"openke"}


def test_a_folder_without_training_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "test.txt", TEST)
    with pytest.raises(DataError, match="holds no training file: expected train.txt"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["world", "World", "WORLD"])
def test_a_data_set_is_found_by_its_name_in_any_case(name: str) -> None:
    graph, reports = load(name)
    assert (graph.name, reports) == ("world", ())
    assert len(graph.train) > 1000


@pytest.mark.parametrize(
    ("name", "meant"), [("umsl", "umls"), ("FB15k237", "fb15k-237"), ("Wrold", "world")]
)
def test_a_misspelt_data_set_is_an_error_that_names_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(DataError, match=f"'{name}'; did you mean '{meant}'"):
        load(name)


def test_a_name_like_nothing_is_an_error_that_lists_the_data_sets() -> None:
    with pytest.raises(DataError, match="data sets: world, umls, fb15k-237, wn18rr"):
        load("no-such-thing")


def test_something_that_holds_no_facts_is_an_error() -> None:
    with pytest.raises(DataError, match="cannot read facts from int"):
        load(42)


def test_a_file_of_ten_facts_can_be_loaded(tmp_path: Path) -> None:
    graph = load(write(tmp_path / "ten.tsv", grid(5))).graph
    assert sum(len(graph.facts(split)) for split in SPLITS) == 10
    assert set(np.unique(graph.train[:, [0, 2]])) == set(range(5))
