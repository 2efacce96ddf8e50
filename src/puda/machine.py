"""What is asked of the machine: free memory, and that freed memory be kept."""

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path


def free_memory() -> int:
    """Return the bytes that a program can take without pushing others out; 2 GB if unknown."""
    with suppress(OSError):
        found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        if found:
            return 1024 * int(found[1])
    with suppress(OSError, ValueError, AttributeError):  # there is no such call on Windows
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return 2_000_000_000


def keep_freed_memory() -> None:
    """Have glibc reuse large blocks rather than return them to the system at once.

    A tensor of more than 32 MB is otherwise mapped afresh, page by page, in every operation: a
    step against all 14,541 entities of FB15k-237 took 1.8 times as long. Other systems do not need
    it.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        if libc.mallopt(-3, 1 << 30):  # M_MMAP_THRESHOLD; an old glibc refuses so much
            libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
