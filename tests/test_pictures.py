"""A drawing is well-formed, shows what it was given and no label breaks it."""

from xml.etree import ElementTree

import pytest

from puda.evaluation.calibration import Reliability
from puda.pictures import EDGE, SIZE, draw_reliability

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


def test_a_title_is_text_whatever_it_holds():
    drawn = draw_reliability(Reliability(0.0, 0.0, []), "<script>alert(1)</script> & more")
    tree = ElementTree.fromstring(drawn)
    assert "<script>alert(1)</script> & more" in "".join(tree.itertext())
    assert tree.find(f".//{SVG}script") is None


def test_the_command_draws(command, tmp_path):
    out, svg = tmp_path / "run", tmp_path / "reliability.svg"
    assert command("train", "world", "--out", out, "--set", "training.epochs=1").code == 0
    assert command("calibrate", out, "--svg", svg).code == 0
    assert ElementTree.parse(svg).getroot().tag == f"{SVG}svg"
