"""Known answers for every kind of source, good and bad."""

import builtins
import errno
import gzip
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puda.data.files import BadLine, ReadReport, parse_columns, read_facts
from puda.errors import DataError

FACTS = [("Paris", "capital of", "France"), ("Lyon", "city in", "France")]
TSV = "Paris\tcapital of\tFrance\nLyon\tcity in\tFrance\n"
# A ring of towns: the entity columns share all values, two relations.
RING = [(f"town {i}", ("road", "rail")[i % 2], f"town {(i + 1) % 8}") for i in range(8)]


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: str | bytes, name: str = "facts.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def lines(facts: list[tuple[str, str, str]], order: str = "hrt", delimiter: str = "\t") -> str:
    return "".join(delimiter.join(f["hrt".index(c)] for c in order) + "\n" for f in facts)


def zstd(content: bytes) -> bytes:
    module = pytest.importorskip("backports.zstd", reason="no zstd compressor in this Python")
    compressed: bytes = module.compress(content)
    return compressed


def check(source: object, facts: list[tuple[str, str, str]] = FACTS) -> ReadReport:
    """Read a source without bad lines that must hold exactly these facts."""
    frame, report = read_facts(source)
    assert frame.schema == dict.fromkeys(["head", "relation", "tail"], pl.String)
    assert frame.rows() == facts
    assert (report.facts, report.lines, report.bad) == (len(facts), len(facts), 0)
    return report


def test_plain_tsv(write: Write) -> None:
    path = write(TSV)
    assert check(path) == ReadReport(
        source=str(path),
        format="tsv",
        delimiter="\t",
        header=False,
        columns={"head": "1", "relation": "2", "tail": "3"},
        lines=2,
        facts=2,
        bad=0,
        examples=(),
        notes=(),
    )
    assert check(str(path)) == check(path)


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|", " "])
def test_delimiter_is_found_by_content(write: Write, delimiter: str) -> None:
    facts = [("a", "likes", "b"), ("b", "hates", "c"), ("a", "likes", "b")]
    report = check(write(lines(facts, delimiter=delimiter), "facts.tsv"), facts)
    assert report.delimiter == delimiter


def test_delimiters_inside_labels_do_not_win(write: Write) -> None:
    facts = [("Paris, France", "north of", "Lyon, France")] * 3
    assert check(write(lines(facts, delimiter=";")), facts).delimiter == ";"
    assert check(write(lines(facts, delimiter="\t")), facts).delimiter == "\t"


@pytest.mark.parametrize(
    "content",
    [
        TSV.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + TSV.encode(),
        TSV.rstrip("\n").encode(),
        b"\n \n" + TSV.replace("\n", "\n\n").encode(),
        TSV.replace("\t", " \t ").encode(),
        gzip.compress(TSV.encode()),
        gzip.compress(TSV[:24].encode()) + gzip.compress(TSV[24:].encode()),
    ],
    ids=["crlf", "bom", "no-final-newline", "blank-lines", "padded", "gz", "gz-of-two-members"],
)
def test_bytes_that_do_not_matter(write: Write, content: bytes) -> None:
    check(write(content))


def test_zst(write: Write) -> None:
    check(write(zstd(TSV.encode()), "facts.tsv.zst"))


def test_path_is_not_a_pattern(write: Write) -> None:
    write(TSV, "facts1.tsv")
    check(write(TSV, "facts[1]*.tsv"))


@pytest.mark.parametrize(
    "header",
    ["subject,predicate,object", "Head,Relation,Tail", "#source,type,target", ":START_ID,x,END"],
)
def test_header_names(write: Write, header: str) -> None:
    report = check(write(header + "\n" + lines(FACTS, delimiter=",")))
    assert report.header
    assert list(report.columns.values()) == header.split(",")


def test_header_decides_the_order_and_other_columns_are_ignored(write: Write) -> None:
    path = write("id,target,label,source,type\n1,France,x,Paris,capital of\n2,France,,Lyon,city in")
    assert check(path).columns == {"head": "source", "relation": "type", "tail": "target"}


def test_header_again_is_rejected(write: Write) -> None:
    frame, report = read_facts(write("head\trelation\ttail\n" + TSV + "head\trelation\ttail\n"))
    assert frame.rows() == FACTS
    assert report.examples == (BadLine(4, "the header again", "head"),)


def test_one_letter_labels_are_no_header(write: Write) -> None:
    facts = [("h", "r", "t"), ("t", "r", "o"), ("s", "p", "o")]
    assert not check(write(lines(facts)), facts).header
    facts = [("s", "knows", "t"), ("t", "knows", "u")]
    assert not check(write(lines(facts)), facts).header


def test_header_with_too_few_names_lists_the_columns(write: Write) -> None:
    path = write("source,target,kind,year\na,b,likes,1999\nb,c,likes,1999\n")
    with pytest.raises(DataError, match="which column is the relation.*'kind', 'year'"):
        read_facts(path)


def test_columns_override(write: Write) -> None:
    path = write("gene,disease,link\nG1,D1,causes\nG2,D2,cures\n")
    columns = {"head": "gene", "relation": "link", "tail": "disease"}
    frame, report = read_facts(path, columns=columns)
    assert frame.rows() == [("G1", "causes", "D1"), ("G2", "cures", "D2")]
    assert report.header
    assert report.columns == columns
    frame, report = read_facts(path, columns={"head": "3", "relation": "1", "tail": "2"})
    assert frame.row(1) == ("causes", "G1", "D1")
    with pytest.raises(DataError, match="no column 'protein'.*'gene', 'disease', 'link'"):
        read_facts(path, columns={"head": "protein", "relation": "link", "tail": "disease"})
    with pytest.raises(DataError, match="'subject' is not one of head, relation, tail"):
        read_facts(path, columns={"subject": "gene"})
    with pytest.raises(DataError, match="need a column each"):
        read_facts(path, columns={"head": "1", "relation": "1", "tail": "2"})


def test_columns_by_number_never_eat_a_row_of_ids(write: Write) -> None:
    columns = {"head": "1", "relation": "2", "tail": "3"}
    frame, report = read_facts(write("1\t2\t3\n4\t2\t1\n"), columns=columns)
    assert frame.rows() == [("1", "2", "3"), ("4", "2", "1")]
    assert not report.header


def test_columns_may_name_one_role_only(write: Write) -> None:
    frame, _ = read_facts(write(lines(FACTS, "htr")), columns={"relation": "3"})
    assert frame.rows() == FACTS


def test_parse_columns() -> None:
    assert parse_columns("head=subject, relation = 2,tail=o=x") == {
        "head": "subject",
        "relation": "2",
        "tail": "o=x",
    }
    for text, piece in [
        ("head=a,subject=b", "'subject=b'"),
        ("head", "'head'"),
        ("head=,tail=b", "'head='"),
        ("head=a,head=b", "'head=b'"),
    ]:
        with pytest.raises(DataError, match=piece):
            parse_columns(text)


@pytest.mark.parametrize("order", ["htr", "rht"])
@pytest.mark.parametrize("prefix", ["town ", ""], ids=["labels", "ids"])
def test_other_orders_are_detected(write: Write, order: str, prefix: str) -> None:
    ring = [(h.replace("town ", prefix), r, t.replace("town ", prefix)) for h, r, t in RING]
    report = check(write(lines(ring, order)), ring)
    assert report.columns["relation"] == str(order.index("r") + 1)
    assert "detected" in report.notes[0]


@pytest.mark.parametrize(
    "facts",
    [
        RING,
        FACTS,
        [(f"drug {i}", f"effect {i % 20}", ("yes", "no")[i % 2]) for i in range(40)],
        [(str(i), str(i % 15), ("yes", "no")[i % 2]) for i in range(40)],
        [(str(i % 9), str(i % 7), str(i % 2)) for i in range(40)],
        [("knows", "domain", "Person"), ("domain", "type", "Property"), ("a", "knows", "b")],
    ],
    ids=["ring", "two", "few-tails", "few-tails-of-ids", "ids", "relations-as-entities"],
)
def test_ordinary_order_is_kept(write: Write, facts: list[tuple[str, str, str]]) -> None:
    assert check(write(lines(facts)), facts).notes == ()


def test_more_columns_without_header(write: Write) -> None:
    path = write("Paris\tcapital of\tFrance\t1\t\nLyon\tcity in\tFrance\t\t0.5\n")
    assert check(path).notes == ("5 columns without known names: the first three used",)


def test_tabs_leave_quotes_alone(write: Write) -> None:
    facts = [('"a', "is", 'b"'), ("'c'", '"is"', 'd "e" f')]
    check(write(lines(facts)), facts)


def test_quoted_csv(write: Write) -> None:
    path = write(
        'head,relation,tail\n"Paris, TX",in,"the ""Lone Star"" state"\n'
        '"two\n\nlines",in, "x, y"\nonly,two\nParis,in,Texas\n'
    )
    frame, report = read_facts(path)
    assert frame.rows() == [
        ("Paris, TX", "in", 'the "Lone Star" state'),
        ("two\n\nlines", "in", "x, y"),
        ("Paris", "in", "Texas"),
    ]
    assert report.examples == (BadLine(6, "2 fields instead of 3", "only,two"),)


def test_stray_quotes_cost_one_line_each(write: Write) -> None:
    path = write('"a, b",in,c\na,in,c\n"open,in,c\nd,in,e\n"x"y,in,z\nf,in,g\n')
    frame, report = read_facts(path)
    assert frame["head"].to_list() == ["a, b", "a", "d", "f"]
    assert report.examples == (
        BadLine(3, "stray quote", '"open,in,c'),
        BadLine(5, "stray quote", '"x"y,in,z'),
    )


def test_bad_lines_are_counted_and_named(write: Write) -> None:
    content = b"a\tr\tb\r\n\r\nb\tr\nc\tr\td\tx\n\tr\tc\nc\t \td\nd\tr\t\nd\t\xff\te\n"
    content += b"\xc3\xa9\tr\tb\n" * 7 + ("x" * 200 + "\n").encode()
    frame, report = read_facts(write(content))
    assert frame.rows() == [("a", "r", "b")] + [("é", "r", "b")] * 7
    assert (report.lines, report.facts, report.bad) == (15, 8, 7)
    assert report.examples == (
        BadLine(3, "2 fields instead of 3", "b\tr"),
        BadLine(4, "4 fields instead of 3", "c\tr\td\tx"),
        BadLine(5, "empty head", "\tr\tc"),
        BadLine(6, "empty relation", "c\t\td"),
        BadLine(7, "empty tail", "d\tr\t"),
    )
    summary = report.summary()
    assert "8 facts (tsv, separated by tab, no header, head=1" in summary
    assert "7 of 15 lines rejected" in summary
    assert "line 3: 2 fields instead of 3: 'b\\tr'" in summary
    assert "and 2 more" in summary


def test_invalid_utf8_and_long_lines(write: Write) -> None:
    content = "a\tr\tb\n" * 3 + "d\t\N{REPLACEMENT CHARACTER}\te\n"
    assert read_facts(write(content))[1].bad == 0
    _, report = read_facts(write(content.encode() + b"d\t\xff\te\n" + b"x" * 200))
    assert report.examples[-2:] == (
        BadLine(5, "invalid UTF-8", "d\t\N{REPLACEMENT CHARACTER}\te"),
        BadLine(6, "1 fields instead of 3", "x" * 80),
    )


def test_more_than_half_bad(write: Write) -> None:
    path = write("a\tr\tb\nb\tr\nc\t\td\n")
    with pytest.raises(DataError) as error:
        read_facts(path)
    message = str(error.value)
    assert "2 of 3 lines hold no fact" in message
    assert "1 x 2 fields instead of 3" in message
    assert "1 x empty relation" in message
    assert "line 2: 'b\\tr'" in message
    assert read_facts(write("a\tr\tb\nb\tr\n"))[1].bad == 1


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\xff\n\xfe\n", "2 lines, none in UTF-8"),
        (b"head\trelation\ttail\n", "no lines below the header"),
        (b"one\ntwo\n", "fewer than three columns.*'one'"),
        (
            b"some plain words\nthat are not facts at all\nand differ in number\nx\n",
            "fewer than three",
        ),
        (b"a\tb\nc\td\n", "fewer than three columns"),
        (b"GIF89a\x00\x01\x02", "binary file"),
        (gzip.compress(b"a\x00b"), "binary file"),
        (gzip.compress(TSV.encode() * 100)[:-9], "damaged"),
        (TSV.encode("utf-16"), "UTF-16"),
        (b"PAR1" + b"\x00" * 20 + b"PAR1", "damaged Parquet"),
    ],
)
def test_files_that_hold_no_facts(write: Write, content: bytes, seen: str) -> None:
    path = write(content)
    with pytest.raises(DataError, match=seen) as error:
        read_facts(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent.tsv: No such file"):
        read_facts(tmp_path / "absent.tsv")
    with pytest.raises(DataError, match="is a folder"):
        read_facts(tmp_path)
    with pytest.raises(DataError, match="cannot read"):
        read_facts("x" * 5000)


def test_file_without_permission(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(TSV)

    def refuse(*args: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # mode bits do not stop root
    with pytest.raises(DataError, match="facts.txt: Permission denied"):
        read_facts(path)


def test_comments_at_the_top(write: Write) -> None:
    report = check(write("# made by hand\n\n#\n" + TSV))
    assert report.notes == ("2 comment lines at the top left out",)
    report = check(write("# made by hand\n#head\trelation\ttail\n" + TSV))
    assert report.header


def test_hashes_elsewhere_are_labels(write: Write) -> None:
    facts = [("#a", "r", "#b"), ("c", "r", "d"), ("#e", "r", "f")]
    check(write(lines(facts)), facts)
    frame, report = read_facts(write("# top\n" + lines(facts)))
    assert frame.rows() == facts
    assert report.examples == (BadLine(1, "1 fields instead of 3", "# top"),)


@pytest.mark.parametrize("delimiter", ["\t", " "])
def test_openke(write: Write, delimiter: str) -> None:
    path = write(lines([("0", "1", "2"), ("2", "0", "1")], "htr", delimiter), "train2id.txt")
    path.write_text("2\n" + path.read_text())
    report = check(path, [("0", "1", "2"), ("2", "0", "1")])
    assert (report.format, report.delimiter) == ("openke", delimiter)
    assert report.columns == {"head": "1", "relation": "3", "tail": "2"}
    write("3\nNew York\t0\nb 1\nc\t2\n", "entity2id.txt")
    write("2\nlikes\t0\nhates\t1\n", "relation2id.txt")
    report = check(path, [("New York", "hates", "c"), ("c", "likes", "b")])
    assert "ids replaced by labels of entity2id.txt" in report.notes


def test_openke_with_a_wrong_count(write: Write) -> None:
    report = check(write("7\n0 1 0\n1 2 0\n"), [("0", "0", "1"), ("1", "0", "2")])
    assert "the first line promises 7 facts" in report.notes


@pytest.mark.parametrize(
    ("entities", "relations"),
    [("entities.dict", "relations.dict"), ("entity_ids.del", "relation_ids.del")],
)
def test_id_maps(write: Write, entities: str, relations: str) -> None:
    path = write("0\t0\t2\n1\t1\t2\n", "train.del")
    write("0\tParis\n1\tLyon\n2\tFrance\n", entities)
    write("0\tcapital of\n1\tcity in\n", relations)
    report = check(path)
    assert report.notes == tuple(f"ids replaced by labels of {n}" for n in (entities, relations))
    write("0\tParis\n2\tFrance\n", entities)
    with pytest.raises(DataError, match=f"{entities} does not name id 1 "):
        read_facts(path)
    write("0\tParis\n1\tLyon\n1\tNice\n2\tFrance\n", entities)
    with pytest.raises(DataError, match="names id 1 more than once"):
        read_facts(path)


def test_labels_that_are_numbers_are_no_ids(write: Write) -> None:
    write("0\t00260881\n1\t00260622\n", "entities.dict")
    write("0\t_hypernym\n", "relations.dict")
    facts = [("00260881", "_hypernym", "00260622")]
    assert check(write(lines(facts)), facts).notes == ()


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "facts.data"
    frame = pl.DataFrame(FACTS, schema=["subject", "predicate", "object"], orient="row")
    frame.select("object", pl.lit(1).alias("n"), "subject", "predicate").write_parquet(path)
    report = check(path)
    assert (report.format, report.header) == ("parquet", True)
    assert report.columns["tail"] == "object"


def test_label_par1_is_not_parquet(write: Write) -> None:
    facts = [("PAR1", "activates", "F2R"), ("x", "activates", "PAR1")]
    check(write(lines(facts)), facts)


NTRIPLES = (
    "<http://x/a> <http://x/r> <http://x/b> .\n# a comment\n"
    '_:n <http://x/r> <http://x/a> .\n<http://x/a> <http://x/name> "A" .\n'
)
RDF_FACTS = [("http://x/a", "http://x/r", "http://x/b"), ("_:n", "http://x/r", "http://x/a")]


@pytest.mark.parametrize("name", ["facts.nt", "facts.txt", "facts.nt.gz"])
def test_ntriples(write: Write, name: str) -> None:
    content = NTRIPLES.encode()
    report = check(write(gzip.compress(content) if "gz" in name else content, name), RDF_FACTS)
    assert report.format == "n-triples"
    assert report.notes == ("1 facts with a literal object left out",)


@pytest.mark.parametrize("name", ["facts.ttl", "facts.txt", "facts.ttl.gz"])
def test_turtle(write: Write, name: str) -> None:
    content = b'@prefix : <http://x/> .\n:a :r :b ;\n  :name "A" .\n_:n :r :a .\n'
    report = check(write(gzip.compress(content) if "gz" in name else content, name), RDF_FACTS)
    assert report.format == "turtle"


def test_rdf_errors(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="not valid n-triples.*line 6"):
        read_facts(write("\n" + NTRIPLES + "<http://x/a> <http://x/r> .\n"))
    with pytest.raises(DataError, match="no facts.*1 facts with a literal object"):
        read_facts(write('<http://x/a> <http://x/r> "A" .\n'))

    def refuse(name: str, *args: object) -> object:
        if name == "pyoxigraph":
            raise ImportError(name)
        return original(name, *args)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"pip install 'puda\[rdf\]'"):
        read_facts(write(NTRIPLES))


def test_frames() -> None:
    frame = pl.DataFrame(FACTS, schema=["head", "relation", "tail"], orient="row")
    assert check(frame).format == "frame"
    assert check(frame.rename({"head": "x", "relation": "y", "tail": "z"})).columns["tail"] == "z"
    check(frame.cast(pl.Categorical))
    check(pd.DataFrame(FACTS, columns=["h", "r", "t"]))
    check(pd.DataFrame(FACTS))
    check(pl.DataFrame({"s": [1], "p": ["r"], "o": [2.5]}), [("1", "r", "2.5")])
    with pytest.raises(DataError, match="2 columns.*'head', 'tail'"):
        read_facts(frame.select("head", "tail"))


def test_missing_values_in_frames() -> None:
    table = {"h": ["a", None, "b"], "r": ["r", "r", "r"], "t": ["b", "c", "a"]}
    for frame in (pl.DataFrame(table), pd.DataFrame(table)):
        facts, report = read_facts(frame)
        assert facts.rows() == [("a", "r", "b"), ("b", "r", "a")]
        assert report.examples == (BadLine(2, "empty head", ", r, c"),)


def test_lists() -> None:
    assert check(FACTS).format == "list"
    check(fact for fact in FACTS)
    check([("head", "relation", "tail")], [("head", "relation", "tail")])
    facts, report = read_facts([(1, "r", 2), ("a", "b"), ["c", "r", "d"], ("e", "r", None), *FACTS])
    assert facts.rows() == [("1", "r", "2"), ("c", "r", "d"), *FACTS]
    assert [(bad.number, bad.reason) for bad in report.examples] == [
        (2, "2 fields instead of 3"),
        (4, "empty tail"),
    ]
    for source in ([], ["abc", "def"], 7, None):
        with pytest.raises(DataError):
            read_facts(source)


LABEL = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r\ufeff"), min_size=1
).filter(lambda label: label == label.strip() and not label.startswith("#"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(LABEL, LABEL, LABEL), min_size=1))
def test_labels_come_back_as_written(write: Write, facts: list[tuple[str, str, str]]) -> None:
    check(write("head\trelation\ttail\n" + lines(facts)), facts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=60
    )
)
def test_an_ordinary_graph_is_never_reordered(
    write: Write, ids: list[tuple[int, int, int]]
) -> None:
    facts = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in ids]
    assert check(write(lines(facts)), facts).notes == ()
