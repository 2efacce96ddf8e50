"""What the machine is asked, and what is done where it does not answer."""

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from puda.machine import free_memory, keep_freed_memory


def raising(error: Exception):
    """Return a function that raises, whatever it is given."""

    def fail(*_args, **_options):
        raise error

    return fail


def test_free_memory_is_positive_and_not_more_than_there_is():
    assert free_memory() > 0
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        assert free_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_kernels_word_is_read_in_bytes(monkeypatch):
    text = "MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:       7 kB\nBuffers:  3 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert free_memory() == 7 * 1024


# Kernels before 3.14, and some that only pretend to be Linux, do not know what is available.
@pytest.mark.parametrize(
    "read_text", [raising(FileNotFoundError("no /proc here")), lambda _: "MemTotal:  9 kB\n"]
)
def test_without_the_kernels_word_free_pages_are_counted(monkeypatch, read_text):
    monkeypatch.setattr(Path, "read_text", read_text)
    pages = {"SC_PAGE_SIZE": 4096, "SC_AVPHYS_PAGES": 10}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    assert free_memory() == 40_960


def test_where_nothing_is_known_2_gb_are_assumed(monkeypatch):
    monkeypatch.setattr(Path, "read_text", raising(OSError("no /proc here")))
    monkeypatch.setattr(os, "sysconf", raising(ValueError("unknown name")), raising=False)
    assert free_memory() == 2_000_000_000
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert free_memory() == 2_000_000_000


def test_asking_to_keep_freed_memory_is_harmless_here():
    keep_freed_memory()


# No such library (macOS, Windows), or one that knows no such call (musl under glibc's name).
@pytest.mark.parametrize(
    "load", [raising(OSError("libc.so.6: no such file")), lambda _: SimpleNamespace()]
)
def test_where_there_is_no_glibc_nothing_is_asked_of_it(monkeypatch, load):
    monkeypatch.setattr(ctypes, "CDLL", load)
    keep_freed_memory()


@pytest.mark.parametrize("grants", [True, False])
def test_glibc_is_asked_for_both_thresholds_but_not_for_one_alone(monkeypatch, grants):
    asked = {}

    def mallopt(name: int, value: int) -> int:
        asked[name] = value
        return int(grants)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    keep_freed_memory()
    # M_MMAP_THRESHOLD, then M_TRIM_THRESHOLD: the second alone would freeze the first at 128 KB.
    assert list(asked) == ([-3, -1] if grants else [-3])
    assert all(32_000_000 < size < 1 << 31 for size in asked.values())  # an int of C
