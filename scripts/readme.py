"""Run the commands of README.md and docs/ and put what they print below them: `make readme`.

A block that follows the comment <!-- run --> is run anew: lines that begin with "$ " are commands,
everything else in the block is replaced by their output.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "predictions.md"]  # a page goes on with runs of others
BLOCK = re.compile(r"(<!-- run -->\n```console\n)(.*?)(```\n)", re.DOTALL)


def run(block: re.Match[str]) -> str:
    """Return the block with fresh output."""
    lines = []
    for command in re.findall(r"^\$ (.*)$", block[2], re.MULTILINE):
        done = subprocess.run(
            command,
            shell=True,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        output = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
        lines += [f"$ {command}", output, ""]
    return block[1] + "\n".join(lines).rstrip("\n") + "\n" + block[3]


if __name__ == "__main__":
    binaries = Path(sys.executable).parent
    ENVIRONMENT = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "100"}
    shutil.rmtree("runs/demo", ignore_errors=True)
    for page in PAGES:
        page.write_text(BLOCK.sub(run, page.read_text()))
