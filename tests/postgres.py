"""A PostgreSQL server in a folder of its own. Needs Debian's postgresql and the driver psycopg."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

OWNER = "postgres"  # Debian's user for it; the server refuses to be root's


def lacking() -> str | None:
    """Say what there is not to run a server; None: it can be run."""
    if _programs() is None:
        return "there is no PostgreSQL here: apt-get install postgresql"
    if find_spec("psycopg") is None:
        return "there is no driver for PostgreSQL here: pip install 'psycopg[binary]'"
    return None


@contextmanager
def served() -> Iterator[str]:
    """Start a server that only this machine's users reach; gives its address for SQLAlchemy."""
    programs, user = _programs(), OWNER if os.geteuid() == 0 else None
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="puda-"))  # sockets have short names
    if user:
        shutil.chown(folder, user)

    def run(program: str, *words: str) -> None:
        command = [programs / program, "--pgdata", folder / "data", *words]
        subprocess.run(
            command,
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )

    try:
        run("initdb", f"--username={OWNER}", "--auth=trust", "--encoding=UTF8", "--no-locale")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        run("pg_ctl", "start", "--wait", f"--log={folder / 'log'}", f"--options={options}")
        try:
            yield f"postgresql+psycopg://{OWNER}@/postgres?host={folder}"
        finally:
            run("pg_ctl", "stop", "--mode=immediate")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """Find the folder of its programs, which Debian does not put on the path."""
    found = shutil.which("initdb")
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    return Path(found).parent if found else newest[-1].parent if newest else None


def _version(program: Path) -> int:
    return int(program.parts[-3])
