"""Text can be read on what it stands on, in light and in dark (WCAG 2 AA: 4.5 to 1)."""

import re
from itertools import product

import pytest

from puda.serve.app import PAGE

STYLE = PAGE["style.css"].decode()
THEMES = dict(
    zip(("light", "dark"), re.findall(r":root\S* \{\s+color-scheme.*?\}", STYLE, re.S), strict=True)
)
TEXTS = ("ink", "soft", "accent", "good", "bad", "doubt")
GROUNDS = ("ground", "card")
PAIRS = [
    *product(TEXTS, GROUNDS),
    ("accent-ink", "accent"),
    ("accent", "tint"),
    ("ink", "tint"),
    ("ink", "node"),
    *(("card", pressed) for pressed in ("good", "bad", "doubt")),
]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_is_reckoned_as_the_standard_does():
    assert luminance("#ffffff") == pytest.approx(1)
    assert (luminance("#ffffff") + 0.05) / (luminance("#767676") + 0.05) == pytest.approx(
        4.54, 0.01
    )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read(theme, text, ground):
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", THEMES[theme]))
    light, dark = sorted((luminance(colours[name]) for name in (text, ground)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5
