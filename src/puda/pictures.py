"""Small drawings as SVG, without a plotting library."""

from xml.sax.saxutils import escape

from puda.evaluation.calibration import Reliability

SIZE, EDGE = 320, 44  # of the square that is drawn in, and of the margin around it


def draw_reliability(found: Reliability, title: str) -> str:
    """Draw what came true over what was said; on the diagonal both are the same.

    A dot grows with the number of digits of the number of facts that it stands for.
    """
    largest = max((number for _, _, number in found.bins), default=1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + 2 * EDGE}'
        f' {SIZE + 2 * EDGE}" font-family="sans-serif" font-size="11" fill="#333">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(SIZE / 2 + EDGE, 20, title, size=13),
        _text(SIZE / 2 + EDGE, 36, f"ECE {found.ece:.4f}, Brier score {found.brier:.4f}"),
        f'<rect x="{EDGE}" y="{EDGE}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#999"/>',
        _line((0, 0), (1, 1), "#bbb"),
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _place(tick, tick)
        lines.append(_text(x, SIZE + EDGE + 16, f"{tick:g}"))
        lines.append(_text(EDGE - 16, y + 4, f"{tick:g}"))
    lines.append(_text(SIZE / 2 + EDGE, SIZE + EDGE + 34, "probability"))
    lines.append(
        f'<text transform="translate(12 {SIZE / 2 + EDGE}) rotate(-90)"'
        ' text-anchor="middle">share that is true</text>'
    )
    points = [(mean, frequency) for mean, frequency, _ in found.bins]
    lines += [_line(a, b, "#3b6ea5") for a, b in zip(points, points[1:], strict=False)]
    for mean, frequency, number in found.bins:
        x, y = _place(mean, frequency)
        radius = 3 + 5 * (len(str(number)) - 1) / max(len(str(largest)) - 1, 1)
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="#3b6ea5">'
            f"<title>{frequency:.1%} of {number:,} came true, {mean:.1%} was said</title></circle>"
        )
    return "\n".join([*lines, "</svg>\n"])


def _place(x: float, y: float) -> tuple[float, float]:
    return EDGE + SIZE * x, EDGE + SIZE * (1 - y)


def _line(start: tuple[float, float], end: tuple[float, float], color: str) -> str:
    (x1, y1), (x2, y2) = _place(*start), _place(*end)
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"'
        ' stroke-width="1.5"/>'
    )


def _text(x: float, y: float, text: str, *, size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}">'
        f"{escape(text)}</text>"
    )
