"""Modules stand on floors and import only downward (design, section 4)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import puda

SOURCE = Path(puda.__file__).parent

FLOORS = {
    name: floor
    for floor, names in enumerate(
        (
            "types errors seeds native machine",
            "config data fused",
            "tables scoring objectives generator regularizers priors",
            "sampling evaluation runs",
            "training",
            "places pairs predict calibrate complete exports audit explain fold_in experiments"
            " paper results bench pictures verdicts",
            "api display cli serve",
        )
    )
    for name in names.split()
}
"""Part of the package -> its floor; a part may import its own floor and those below."""


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, part of puda) of every import, those inside functions and ifs included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = ["puda.<relative>"]  # not used here: nothing says what it reaches
        elif isinstance(node, ast.ImportFrom) and node.module == "puda":
            names = [f"puda.{alias.name}" for alias in node.names if alias.name != "__version__"]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.startswith("puda."):
                yield node.lineno, name.split(".")[1]


def faults(part: str, source: str) -> list[str]:
    """Say what is wrong with the imports of one file of a part."""
    if part not in FLOORS:
        return [f"{part}: put it on a floor in tests/test_imports.py"]
    found = []
    for line, other in imported(source):
        if other not in FLOORS:
            found.append(f"line {line}: {part} imports {other}, which has no floor: give it one")
        elif FLOORS[other] > FLOORS[part]:
            found.append(
                f"line {line}: {part} (floor {FLOORS[part]}) imports {other}"
                f" (floor {FLOORS[other]})"
            )
    return found


def test_no_module_imports_from_a_floor_above_its_own():
    paths = sorted(SOURCE.rglob("*.py"))
    assert len(paths) > 20
    found = [
        f"{path.relative_to(SOURCE)}: {fault}"
        for path in paths
        if path != SOURCE / "__init__.py"  # the facade, which loads `api` when it is first used
        for fault in faults(path.relative_to(SOURCE).parts[0].removesuffix(".py"), path.read_text())
    ]
    assert not found, "\n".join(found)


def test_every_part_on_a_floor_still_exists():
    parts = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    assert set(FLOORS) <= parts


def test_the_walk_sees_every_way_of_writing_an_import():
    source = """
import torch, puda.api
from puda.training.step import train_step
from puda import runs, __version__
def later():
    from puda.cli import app
if TYPE_CHECKING:
    from puda.predict import predict
"""
    assert sorted(part for _, part in imported(source)) == [
        "api",
        "cli",
        "predict",
        "runs",
        "training",
    ]


def test_an_upward_import_and_an_unplaced_module_are_faults():
    assert faults("tables", "from puda.runs import RunFolder") == [
        "line 1: tables (floor 2) imports runs (floor 3)"
    ]
    assert faults("runs", "from puda.evaluation import ranking\nimport puda.tables") == []
    assert "put it on a floor" in faults("utils", "")[0]
    assert "no floor" in faults("runs", "from puda.utils import x")[0]
    assert "no floor" in faults("runs", "from .tables import EntityTable")[0]
