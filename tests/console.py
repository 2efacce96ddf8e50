"""How a command of `puda` ends, as tests see it; the fixture `command` runs one."""

from typing import NamedTuple


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
