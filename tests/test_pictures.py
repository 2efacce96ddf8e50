"""A drawing is well-formed, shows what it was given and no label breaks it."""

from xml.etree import ElementTree

import pytest

from puda.evaluation.calibration import Reliability
from puda.pictures import EDGE, SIZE, draw_doubt, draw_expected, draw_reliability

SVG = "{http://www.w3.org/2000/svg}"


def test_a_dot_stands_where_probability_and_frequency_meet():
    found = Reliability(0.1, 0.05, [(0.1, 0.2, 1000), (0.9, 0.8, 10)])
    tree = ElementTree.fromstring(draw_reliability(found, "test"))
    dots = tree.findall(f"{SVG}circle")
    assert [float(dot.attrib["cx"]) for dot in dots] == pytest.approx(
        [EDGE + 0.1 * SIZE, EDGE + 0.9 * SIZE], abs=0.05
    )
    assert [float(dot.attrib["cy"]) for dot in dots] == pytest.approx(
        [EDGE + 0.8 * SIZE, EDGE + 0.2 * SIZE], abs=0.05
    )
    assert float(dots[0].attrib["r"]) > float(dots[1].attrib["r"])
    assert "ECE 0.0500" in "".join(tree.itertext())


def ends(drawn: str, color: str = "#3b6ea5") -> tuple[tuple[float, float], tuple[float, float]]:
    """Return where the curve of a drawing begins and ends, in shares of the square."""
    lines = ElementTree.fromstring(drawn).findall(f"{SVG}line[@stroke='{color}']")
    first, last = lines[0].attrib, lines[-1].attrib
    points = (first["x1"], first["y1"]), (last["x2"], last["y2"])
    (a, b), (c, d) = ((float(x), float(y)) for x, y in points)
    return ((a - EDGE) / SIZE, 1 - (b - EDGE) / SIZE), ((c - EDGE) / SIZE, 1 - (d - EDGE) / SIZE)


def test_the_curve_of_expected_facts_ends_at_their_number():
    drawn = draw_expected([0.9, 0.6, 0.3, 0.2], "missing")
    start, end = ends(drawn)
    assert start == pytest.approx((0, 0), abs=1e-3)
    assert end == pytest.approx((1, 2.0 / 4), abs=1e-3)
    assert "about 2 of 4 are true" in drawn


def test_the_curve_of_doubt_begins_at_the_first_place():
    drawn = draw_doubt([0.8, 0.5, 0.1], "known")
    start, end = ends(drawn)
    assert start == pytest.approx((0, 0.8), abs=1e-3)
    assert end == pytest.approx((1, 0.1), abs=1e-3)
    assert "2 of 3 facts have a doubt of 0.5 or more" in drawn


@pytest.mark.parametrize("number", [0, 1])
def test_a_list_of_hardly_anything_can_be_drawn(number):
    for draw in (draw_expected, draw_doubt):
        ElementTree.fromstring(draw([0.5] * number, "few"))


def test_a_long_list_is_drawn_by_few_lines():
    drawn = draw_doubt([1 - i / 100_000 for i in range(100_000)], "long")
    assert drawn.count("<line") <= SIZE


def test_a_title_is_text_whatever_it_holds():
    drawn = draw_reliability(Reliability(0.0, 0.0, []), "<script>alert(1)</script> & more")
    tree = ElementTree.fromstring(drawn)
    assert "<script>alert(1)</script> & more" in "".join(tree.itertext())
    assert tree.find(f".//{SVG}script") is None


def test_the_command_draws(command, tmp_path):
    out, svg = tmp_path / "run", tmp_path / "reliability.svg"
    assert command("train", "world", "--out", out, "--set", "training.epochs=1").code == 0
    found = tmp_path / "found.tsv"
    for words in (
        ("calibrate", out),
        ("complete", out, "--out", found, "--top", 9),
        ("audit", out, "--folds", 2),
    ):
        assert command(*words, "--svg", svg).code == 0
        assert ElementTree.parse(svg).getroot().tag == f"{SVG}svg"
        svg.unlink()


def test_what_has_no_probabilities_is_not_drawn(command, tmp_path):
    out, svg = tmp_path / "run", tmp_path / "expected.svg"
    assert command("train", "world", "--out", out, "--set", "training.epochs=1").code == 0
    (out / "calibration.json").unlink()
    done = command("complete", out, "--out", tmp_path / "found.tsv", "--svg", svg)
    assert done.code == 2
    assert "puda calibrate" in done.err
    assert not svg.exists()
