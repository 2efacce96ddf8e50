"""The page of results: tables, words and pictures from what experiment files hold."""

import sys
from pathlib import Path
from typing import Any

import pytest

from puda import results
from puda.errors import ConfigError
from puda.experiments import ExperimentFile, Measured, find

HEAD = 'tables = ["table1"]\nrow = "DistMult"\n'
PRIOR = (
    'tables = ["figure-prior"]\nrow = "PUDA"\n'
    '[vary]\nsetting = "objective.options.prior"\nvalues = [0.0, 0.1, 0.5]\n'
)
HIDDEN = 'tables = ["hidden"]\nrow = "PUDA"\n[vary]\nsetting = "hide"\nvalues = [0.0, 0.5]\n'


@pytest.fixture
def plain(monkeypatch) -> None:
    """Let there be no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def write(
    folder: Path, text: str = HEAD, *runs: dict[str, Any], name: str = "toy/distmult"
) -> Path:
    """Write an experiment file with what was measured: `mrr` of all sides, and other values."""
    path = folder / "experiments" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    file = ExperimentFile(path)
    for number, run in enumerate(runs):
        values = {"seed": number, "mrr": 0.25} | run
        figures = {"mrr": values.pop("mrr"), "hits@1": 0.125, "hits@3": 0.375, "hits@10": 0.5}
        sides = {part: figures for part in ("valid", "tail", "head", "both")}
        spent = {"seconds": 90.0, "threads": 1, "epochs": 3, "best_epoch": 2, "version": "0.1.0"}
        file.record(Measured(**{"settings": file.digest, **spent, **sides, **values}))
    return path


def page(folder: Path, findings: str | None = None) -> str:
    """Write the page from all files and return it."""
    said = folder / "experiments" / "findings.toml"
    if findings is not None:
        said.write_text(findings)
    results.write(find(folder / "experiments", "all"), folder / "docs/results.md", said)
    return (folder / "docs/results.md").read_text(encoding="utf-8")


def tables(text: str) -> list[list[dict[str, str]]]:
    """Read the tables of a page: rows as {column: cell}."""
    found: list[list[dict[str, str]]] = []
    before = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not before.startswith("|"):
            names = cells
            found.append([])
        elif line.startswith("|") and not line.startswith("| ---"):
            found[-1].append(dict(zip(names, cells, strict=True)))
        before = line
    return found


# --- tables


def test_claims_and_measurements_stand_side_by_side(plain, tmp_path):
    claims = 'claimed = { mrr = 0.313, "hits@10" = 0.49 }\nknown = { mrr = 0.345, source = "X" }\n'
    write(tmp_path, HEAD + claims, {"mrr": 0.3456})
    [[row]] = tables(page(tmp_path))
    assert row[""] == "DistMult"
    assert row["claimed MRR"] == ".313"
    assert row["claimed H@10"] == ".490"
    assert row["best known"] == ".345 (X)"
    assert row["**both** MRR"] == row["**tail** MRR"] == row["**head** MRR"] == ".346"
    assert (row["H@1"], row["H@3"]) == (".125", ".375")
    assert (row["seeds"], row["minutes"]) == ("1", "1.5")


def test_each_figure_stands_below_its_own_heading(plain, tmp_path):
    parts = {
        "**both** MRR": ("both", "mrr"),
        "**tail** MRR": ("tail", "mrr"),
        "**head** MRR": ("head", "mrr"),
        "valid MRR": ("valid", "mrr"),
        "hidden MRR": ("hidden", "mrr"),
        "hidden below non-facts": ("hidden", "below"),
        "AUC": ("classified", "auc"),
        "average precision": ("classified", "average_precision"),
    }
    run: dict[str, dict[str, float]] = {}
    for k, (part, metric) in enumerate(parts.values()):
        run.setdefault(part, {})[metric] = k / 10
    write(tmp_path, HEAD, run)
    [[row]] = tables(page(tmp_path))
    assert {name: row[name] for name in parts} == {n: f".{k}00" for k, n in enumerate(parts)}


def test_columns_in_which_nothing_stands_are_left_out(plain, tmp_path):
    write(tmp_path, HEAD, {})
    [[row]] = tables(page(tmp_path))
    absent = {"claimed MRR", "claimed H@10", "best known", "AUC", "average precision"}
    absent |= {"hidden MRR", "hidden below non-facts"}
    assert not absent & row.keys()
    assert absent <= results.COLUMNS.keys()

    write(tmp_path, HEAD.replace("DistMult", "Other"), {"classified": {"auc": 0.7}}, name="toy/z")
    [rows] = tables(page(tmp_path))
    assert [row["AUC"] for row in rows] == ["", ".700"]
    assert "average precision" not in rows[0]


def test_gaps_to_claim_and_best_known_are_told_by_the_side_that_is_meant(plain, tmp_path):
    text = HEAD + "claimed = { mrr = 0.35 }\nknown = { mrr = 0.5 }\n"
    run = {"mrr": 0.3, "tail": {"mrr": 0.4, "hits@10": 0.5}}
    write(tmp_path, text, run)
    write(tmp_path, text + 'side = "tail"\n', run, name="toy/tail")
    [[both, tail]] = tables(page(tmp_path))
    assert (both["less claimed"], both["less best known"]) == ("-.050", "-.200")
    assert (tail["less claimed"], tail["less best known"]) == ("+.050 (tail)", "-.200")


def test_the_spread_is_told_only_of_several_seeds(plain, tmp_path):
    write(tmp_path, HEAD, {"mrr": 0.2})
    # Of .2 and .4 the mean is .3, and the standard deviation .2 / sqrt(2).
    write(tmp_path, HEAD, {"mrr": 0.2}, {"mrr": 0.4}, name="toy/several")
    [[one, several]] = tables(page(tmp_path))
    assert (one["**both** MRR"], one["seeds"]) == (".200", "1")
    assert (several["**both** MRR"], several["seeds"]) == (".300 ± .141", "2")


def test_an_experiment_that_was_not_run_says_so(plain, tmp_path):
    write(tmp_path, HEAD + "claimed = { mrr = 0.3 }\n")
    [[row]] = tables(page(tmp_path))
    assert row == {"": "DistMult", "claimed MRR": ".300", "seeds": "not run yet"}


def test_a_measurement_of_other_settings_is_not_shown(plain, tmp_path):
    write(tmp_path, HEAD, {"settings": "of old"})
    [[row]] = tables(page(tmp_path))
    assert row["seeds"] == "not run yet"


def test_each_value_has_a_row(plain, tmp_path):
    runs = [{"value": 0.0, "mrr": 0.2}, {"value": 0.1, "mrr": 0.3}, {"value": 0.1, "mrr": 0.3}]
    write(tmp_path, PRIOR, *runs)
    [rows] = tables(page(tmp_path))
    assert [(row[""], row["seeds"]) for row in rows] == [
        ("PUDA, prior 0", "1"),
        ("PUDA, prior 0.1", "2"),
        ("PUDA, prior 0.5", "not run yet"),
    ]


def test_a_word_that_varies_is_written_out(plain, tmp_path):
    text = HEAD + '[vary]\nsetting = "generator.activation"\nvalues = ["relu", "leaky"]\n'
    write(tmp_path, text, {"value": "relu"}, {"value": "leaky"})
    [rows] = tables(page(tmp_path))
    assert [row[""] for row in rows] == ["DistMult, activation relu", "DistMult, activation leaky"]


def test_tables_come_in_their_order_with_a_part_for_each_data_set(plain, tmp_path):
    write(tmp_path, HEAD.replace("table1", "ours"), {}, name="a/one")
    write(tmp_path, HEAD.replace('"table1"', '"table2", "table1"'), {}, name="b/two")
    write(tmp_path, HEAD, {}, name="a/three")
    headings = [line for line in page(tmp_path).splitlines() if line.startswith("##")]
    titles = results.TABLES
    assert headings == [
        f"## {titles['table1']}",
        "### a",
        "### b",
        f"## {titles['table2']}",
        "### b",
        f"## {titles['ours']}",
        "### a",
    ]


# --- findings


def test_rows_follow_one_another_as_in_the_paper(plain, tmp_path):
    for name in ("SANS", "ConvKB", "Another, ours", "PUDA, pi = 0", "ComplEx", "DistMult"):
        write(tmp_path, HEAD.replace("DistMult", name), name=f"toy/{name.partition(',')[0]}")
    rows = [row[""] for row in tables(page(tmp_path))[0]]
    assert rows == ["DistMult", "ComplEx", "ConvKB", "SANS", "PUDA, pi = 0", "Another, ours"]


def test_findings_are_filled_with_what_was_measured(plain, tmp_path):
    tail = {"mrr": 0.75, "hits@10": 1.0}
    write(tmp_path, HEAD, {"mrr": 0.2, "tail": tail}, {"mrr": 0.4, "tail": tail})
    said = "From {toy/distmult both mrr} to {toy/distmult tail mrr}; {toy/distmult tail hits@10}."
    assert "\nFrom .300 ± .141 to .750 ± .000; 1.000 ± .000.\n" in page(
        tmp_path, f'table1 = "{said}"\n'
    )


def test_a_finding_may_name_one_value_of_what_varies(plain, tmp_path):
    write(tmp_path, PRIOR, {"value": 0.1, "mrr": 0.3}, {"value": 0.5, "mrr": 0.4})
    said = "{toy/distmult tail mrr =0.5}, not {toy/distmult tail mrr =0.1}."
    assert "\n.400, not .300.\n" in page(tmp_path, f'figure-prior = "{said}"\n')


def test_a_finding_stands_only_below_a_table_that_is_there(plain, tmp_path):
    write(tmp_path, HEAD, {})
    text = page(tmp_path, 'table1 = "One."\ntable2 = "Two."\n')
    assert "One." in text
    assert "Two." not in text


@pytest.mark.parametrize(
    "named",
    [
        "{toy/other tail mrr}",
        "{toy/distmult tail mrr =0.5}",
        "{toy/distmult tail mmr}",
        "{toy/distmult tale mrr}",
    ],
    ids=["no such experiment", "no such value", "no such metric", "no such part"],
)
def test_a_figure_that_was_not_measured_is_named(plain, tmp_path, named):
    write(tmp_path, HEAD, {})
    with pytest.raises(ConfigError) as error:
        page(tmp_path, f'table1 = "It is {named}."\n')
    assert "findings.toml" in str(error.value)
    assert named in str(error.value)
    assert not (tmp_path / "docs/results.md").exists()


def test_a_finding_says_what_is_not_run_yet(plain, tmp_path):
    write(tmp_path, HEAD)
    assert "It is (not run yet)." in page(tmp_path, 'table1 = "It is {toy/distmult tail mrr}."\n')


# --- pictures


CURVE = ((1.0, 0.1), (2.0, 0.2), (4.0, 0.25))


@pytest.fixture
def measured(tmp_path) -> Path:
    """Return a folder of experiments of which all pictures can be drawn."""
    write(tmp_path, HEAD, {"curve": CURVE}, {"curve": CURVE, "mrr": 0.3})
    write(tmp_path, HEAD, {"curve": CURVE}, name="other/distmult")
    write(tmp_path, PRIOR, {"value": 0.0}, {"value": 0.1}, {"value": 0.5}, name="toy/prior")
    hidden = {"value": 0.5, "hidden": {"mrr": 0.2, "below": 0.1}}
    write(tmp_path, HIDDEN, hidden, name="toy/hidden")
    return tmp_path


def drawn(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "docs").iterdir()}


def test_without_matplotlib_there_is_a_page_and_a_note(plain, measured):
    files = find(measured / "experiments", "all")
    notes = results.write(files, measured / "docs/results.md", measured / "none.toml")
    assert len(notes) == 1
    assert "puda[plot]" in notes[0]
    assert drawn(measured).keys() == {"results.md"}
    assert "![" not in (measured / "docs/results.md").read_text()


def test_without_matplotlib_pictures_that_are_there_stay_on_the_page(plain, measured):
    (measured / "docs").mkdir()
    (measured / "docs/results-prior.svg").write_text("<svg/>")
    text = page(measured)
    assert "(results-prior.svg)" in text
    assert "(results-curves.svg)" not in text
    assert (measured / "docs/results-prior.svg").read_text() == "<svg/>"


def test_the_page_is_the_same_when_it_is_written_twice(plain, measured):
    page(measured, 'table1 = "Words – {toy/distmult both mrr}."\n')
    first = drawn(measured)
    page(measured)
    assert drawn(measured) == first


def test_pictures_are_drawn_beside_the_page_below_their_headings(measured):
    pytest.importorskip("matplotlib")
    files = find(measured / "experiments", "all")
    assert results.write(files, measured / "docs/results.md", measured / "none.toml") == []
    text = (measured / "docs/results.md").read_text()
    places = {}
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if line.startswith("!["):
            places[line.partition("](")[2].rstrip(")")] = heading
    assert places == {n: results.TABLES[p.table] for n, p in results.PICTURES.items()}
    assert drawn(measured).keys() == {"results.md", *results.PICTURES}


def test_page_and_pictures_are_the_same_bytes_when_written_twice(measured):
    pytest.importorskip("matplotlib")
    page(measured)
    first = drawn(measured)
    page(measured)
    assert len(first) == 1 + len(results.PICTURES)
    assert drawn(measured) == first


def test_what_was_not_measured_is_not_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    write(tmp_path, HEAD)
    write(tmp_path, PRIOR, {"value": 0.1}, {"value": 0.5}, name="toy/prior")
    text = page(tmp_path)
    assert drawn(tmp_path).keys() == {"results.md", "results-prior.svg"}
    assert text.count("![") == 1


def test_a_run_that_hides_nothing_is_left_out_of_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    hidden = {"mrr": 0.2, "below": 0.1}
    write(tmp_path, HIDDEN, {"value": 0.0}, {"value": 0.5, "hidden": hidden}, name="toy/hidden")
    assert "(results-hidden.svg)" in page(tmp_path)
