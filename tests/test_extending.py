"""The guide docs/extending.md is run as it is written."""

import json
import re
import sys
from pathlib import Path

import pytest

from puda import cli

GUIDE = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Two groups of entities, each linked in a circle of friends."""
    lines = [
        f"{group}{i}\tlikes\t{group}{(i + step) % 8}"
        for group in "ab"
        for i in range(8)
        for step in (1, 2, 3)
    ]
    path = tmp_path / "facts.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["puda", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_the_example_of_the_guide_trains_by_name_and_predicts(tmp_path, facts, monkeypatch, capsys):
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "mixed.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    settings = ["training.epochs=3", "scoring.dim=16", "scoring.options.rank=2"]
    options = [word for setting in settings for word in ("--set", setting)]
    assert (
        run(
            monkeypatch,
            "--import",
            "mixed",
            "train",
            str(facts),
            "--scoring",
            "mixed",
            "--out",
            "run",
            *options,
        )
        == 0
    )
    capsys.readouterr()
    assert (
        run(
            monkeypatch,
            "--import",
            "mixed",
            "predict",
            "run",
            "--head",
            "a0",
            "--relation",
            "likes",
            "--json",
        )
        == 0
    )
    answers = json.loads(capsys.readouterr().out)
    assert {answer["head"] for answer in answers} == {"a0"}


def test_a_module_that_is_not_there_is_named(monkeypatch, capsys):
    assert run(monkeypatch, "--import", "nowhere_at_all", "version") == 2
    assert "nowhere_at_all" in capsys.readouterr().err


def test_an_entry_point_of_a_package_is_found_by_name(monkeypatch):
    from importlib.metadata import EntryPoint

    from puda.scoring import SCORING, registry

    plugin = EntryPoint("plugged", "puda.scoring.distmult:DistMult", "puda.scoring")
    monkeypatch.setattr(registry, "entry_points", lambda group: [plugin])
    try:
        assert registry.find("plugged").__name__ == "DistMult"
    finally:
        SCORING.pop("plugged", None)
