"""Small drawings as SVG, without a plotting library."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from xml.sax.saxutils import escape

from puda.evaluation.calibration import Reliability

SIZE, EDGE = 320, 56  # of the square that is drawn in, and of the margin around it
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
BLUE = "#3b6ea5"


def draw_reliability(found: Reliability, title: str) -> str:
    """Draw what came true over what was said; on the diagonal both are the same.

    A dot grows with the number of digits of the number of facts that it stands for.
    """
    largest = max((number for _, _, number in found.bins), default=1)
    points = [(mean, frequency) for mean, frequency, _ in found.bins]
    lines = [_line((0, 0), (1, 1), "#bbb")]
    lines += [_line(a, b, BLUE) for a, b in pairwise(points)]
    for mean, frequency, number in found.bins:
        x, y = _place(mean, frequency)
        radius = 3 + 5 * (len(str(number)) - 1) / max(len(str(largest)) - 1, 1)
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{BLUE}">'
            f"<title>{frequency:.1%} of {number:,} came true, {mean:.1%} was said</title></circle>"
        )
    note = f"ECE {found.ece:.4f}, Brier score {found.brier:.4f}"
    return _framed(lines, title, note, ("probability", 1.0), ("share that is true", 1.0))


def draw_expected(probabilities: Sequence[float], title: str) -> str:
    """Draw how many of the first facts of a list are expected to be true; on the diagonal, all."""
    true, number = list(accumulate(probabilities, initial=0.0)), len(probabilities)
    note = f"about {true[-1]:,.0f} of {number:,} are true"
    lines = [_line((0, 0), (1, 1), "#bbb"), *_curve([value / max(number, 1) for value in true])]
    ends = ("facts, the most probable first", number), ("of them true, as expected", number)
    return _framed(lines, title, note, *ends)


def draw_doubt(doubts: Sequence[float], title: str) -> str:
    """Draw how fast doubt falls along a list, over the logarithm of the place in it."""
    last = max(len(doubts), 2)
    places = [math.log(i) / math.log(last) for i in range(1, len(doubts) + 1)]
    lines = _thinned(list(zip(places, doubts, strict=True)))
    middle = sum(doubt >= 0.5 for doubt in doubts)
    note = f"{middle:,} of {len(doubts):,} facts have a doubt of 0.5 or more"
    ticks = [f"{last**share:,.0f}" for share in TICKS]
    ends = ("place in the list, the most doubtful first", ticks), ("doubt", 1.0)
    return _framed(lines, title, note, *ends)


Axis = tuple[str, float | list[str]]
"""What an axis shows, and its end or its labels."""


def _framed(lines: list[str], title: str, note: str, across: Axis, up: Axis) -> str:
    """Put axes with names, and a title with a note, around what is drawn in the unit square."""
    whole = SIZE + 2 * EDGE
    around = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}"'
        ' font-family="sans-serif" font-size="11" fill="#333">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(whole / 2, 20, title, size=13),
        _text(whole / 2, 36, note),
        f'<rect x="{EDGE}" y="{EDGE}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#999"/>',
    ]
    for tick, below, beside in zip(TICKS, _labels(across[1]), _labels(up[1]), strict=True):
        x, y = _place(tick, tick)
        around.append(_text(x, SIZE + EDGE + 16, below))
        around.append(_text(EDGE - 5, y + 4, beside, anchor="end"))
    around.append(_text(whole / 2, SIZE + EDGE + 34, across[0]))
    around.append(
        f'<text transform="translate(12 {whole / 2}) rotate(-90)"'
        f' text-anchor="middle">{escape(up[0])}</text>'
    )
    return "\n".join([*around, *lines, "</svg>\n"])


def _labels(end: float | list[str]) -> list[str]:
    return end if isinstance(end, list) else [f"{tick * end:,g}" for tick in TICKS]


def _curve(heights: Sequence[float]) -> list[str]:
    """Draw heights at equal steps."""
    steps = max(len(heights) - 1, 1)
    return _thinned([(i / steps, height) for i, height in enumerate(heights)])


def _thinned(points: list[tuple[float, float]]) -> list[str]:
    """Draw a line through points, of those that come to stand at one pixel only the first."""
    kept = [
        own
        for i, own in enumerate(points)
        if i in (0, len(points) - 1) or round(SIZE * own[0]) != round(SIZE * points[i - 1][0])
    ]
    return [_line(a, b, BLUE) for a, b in pairwise(kept)]


def _place(x: float, y: float) -> tuple[float, float]:
    return EDGE + SIZE * x, EDGE + SIZE * (1 - y)


def _line(start: tuple[float, float], end: tuple[float, float], color: str) -> str:
    (x1, y1), (x2, y2) = _place(*start), _place(*end)
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"'
        ' stroke-width="1.5"/>'
    )


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
