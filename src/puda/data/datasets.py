"""Public benchmark data sets: where each comes from, its checksum, and how it is read.

A file is looked for in the folder that PUDA_MIRROR names, then in the user's cache, then it is
downloaded into the cache.
"""

import hashlib
import http.client
import io
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import platformdirs
import polars as pl

from puda.data.graph import SPLITS, KnowledgeGraph
from puda.errors import DataError

CONVE = "https://raw.githubusercontent.com/TimDettmers/ConvE/master"
CODEX = "https://raw.githubusercontent.com/tsafavi/codex/master/data/triples"
OPENBIOLINK = "https://zenodo.org/record/3834052/files"


@dataclass(frozen=True)
class Remote:
    """A file of a data set: its path below a mirror or the cache, its address and checksum."""

    path: str
    base: str
    sha256: str | None  # None: the publisher's file could not be hashed by us

    @property
    def url(self) -> str:
        """Public address."""
        return f"{self.base}/{self.path}"


@dataclass(frozen=True)
class Dataset:
    """A named public graph."""

    description: str
    files: tuple[Remote, ...]
    read: Callable[..., KnowledgeGraph]  # (name, one path per file) -> graph


def _table(data: bytes, columns: tuple[str, ...] = ("head", "relation", "tail")) -> pl.DataFrame:
    """Parse a published file: tab-separated, no header, quotes are literal."""
    return pl.read_csv(
        io.BytesIO(data),
        separator="\t",
        has_header=False,
        quote_char=None,
        new_columns=list(columns),
        schema_overrides=[pl.String] * len(columns),
    )


@contextmanager
def _reading(name: str, path: Path) -> Iterator[None]:
    """Say which file is not what it should be."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{path} cannot be read as {name} ({reason}): remove it and try again"
        ) from error


def read_archive(name: str, path: Path) -> KnowledgeGraph:
    """Read a tar.gz that holds train.txt, valid.txt and test.txt somewhere inside."""
    found: dict[str, pl.DataFrame] = {}
    with _reading(name, path), tarfile.open(path) as archive:
        for member in archive:
            split, _, ending = Path(member.name).name.partition(".")
            content = archive.extractfile(member) if ending == "txt" and split in SPLITS else None
            if content is not None:
                found[split] = _table(content.read())
    if missing := [split for split in SPLITS if split not in found]:
        raise DataError(f"{path} holds no {missing[0]}.txt")
    return KnowledgeGraph.from_facts(
        found["train"], valid=found["valid"], test=found["test"], name=name
    )


def read_codex(name: str, *paths: Path) -> KnowledgeGraph:
    """Read CoDEx: three splits, and true negatives for valid and test."""
    train, valid, test, valid_negatives, test_negatives = (_table(p.read_bytes()) for p in paths)
    negatives = {"valid": valid_negatives, "test": test_negatives}
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, negatives=negatives, name=name)


def read_openbiolink(name: str, path: Path) -> KnowledgeGraph:
    """Read OpenBioLink HQ_DIR.zip: six columns, true negatives in files of their own."""
    columns = ("head", "relation", "tail", "quality", "truth", "source")
    positive: dict[str, pl.DataFrame] = {}
    negative: dict[str, pl.DataFrame] = {}
    with _reading(name, path), zipfile.ZipFile(path) as archive:
        places = {Path(inside).name: inside for inside in archive.namelist()}
        for split, short in zip(SPLITS, ("train", "val", "test"), strict=True):
            for found, prefix in ((positive, ""), (negative, "negative_")):
                inside = places.get(f"{prefix}{short}_sample.csv")
                if inside is None:
                    raise DataError(
                        f"{path} holds no {prefix}{short}_sample.csv: is it HQ_DIR.zip?"
                    )
                found[split] = _table(archive.read(inside), columns)
    return KnowledgeGraph.from_facts(
        positive["train"],
        valid=positive["valid"],
        test=positive["test"],
        negatives=negative,
        name=name,
    )


def read_world(name: str) -> KnowledgeGraph:
    """Read the bundled graph `world`, whose split is fixed."""
    text = (resources.files("puda.data") / "world.tsv").read_bytes()
    facts = pl.read_csv(io.BytesIO(text), separator="\t", quote_char=None)
    train, valid, test = (facts.filter(pl.col("split") == split) for split in SPLITS)
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name=name)


def _codex_file(path: str, sha256: str) -> Remote:
    return Remote(f"codex-m/{path}", CODEX, sha256)


DATASETS = {
    "world": Dataset("countries, cities, borders, languages ... (bundled)", (), read_world),
    "umls": Dataset(
        "biomedical concepts, small",
        (
            Remote(
                "umls.tar.gz",
                CONVE,
                "26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd",
            ),
        ),
        read_archive,
    ),
    "fb15k-237": Dataset(
        "Freebase, the usual benchmark",
        (
            Remote(
                "FB15k-237.tar.gz",
                CONVE,
                "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
            ),
        ),
        read_archive,
    ),
    "wn18rr": Dataset(
        "WordNet without inverse relations",
        (
            Remote(
                "WN18RR.tar.gz",
                CONVE,
                "1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060",
            ),
        ),
        read_archive,
    ),
    "codex-m": Dataset(
        "Wikidata, with verified true negatives",
        (
            _codex_file(
                "train.txt", "d99c3437ab51690391a26d96976adf6e5494dba7ef6902e77000551bfa566556"
            ),
            _codex_file(
                "valid.txt", "11c323096367354940846b9ed940c5dabddc1d20a70474222babe7e7fd28b28d"
            ),
            _codex_file(
                "test.txt", "0575ce05e4ce915e395bb4f708e8df9547989dd4c8c71407cbfd78c19daffcf7"
            ),
            _codex_file(
                "valid_negatives.txt",
                "454a4f66ae85495e6e7df0a9f591ed3b8b6efbbcca515414cb641a28625cbcb2",
            ),
            _codex_file(
                "test_negatives.txt",
                "7caaf71f7a85fbd915dce8199f5b1e1744ead58e0675549fcb01c60599944648",
            ),
        ),
        read_codex,
    ),
    "openbiolink": Dataset(
        "OpenBioLink HQ_DIR, biomedical, large, with true negatives",
        (Remote("HQ_DIR.zip", OPENBIOLINK, None),),
        read_openbiolink,
    ),
}


def load_dataset(name: str) -> KnowledgeGraph:
    """Load a data set by its name, downloading what is not here yet."""
    dataset = DATASETS[name]
    return dataset.read(name, *(fetch(remote) for remote in dataset.files))


def here(remote: Remote) -> Path | None:
    """Return where a file already lies: the mirror, else the cache, else None."""
    mirror = os.environ.get("PUDA_MIRROR")
    places = [Path(mirror)] if mirror else []
    for place in [*places, _cache()]:
        if (place / remote.path).is_file():
            return place / remote.path
    return None


def fetch(remote: Remote) -> Path:
    """Return a verified local copy of a file."""
    path = here(remote)
    if path is None:
        path = _cache() / remote.path
        _download(remote, path)
    elif remote.sha256 and _sha256(path) != remote.sha256:
        raise DataError(f"{path} has not the SHA-256 of {remote.url}: remove it and try again")
    return path


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("puda"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(remote: Remote, path: Path) -> None:
    """Download to a temporary name, verify, rename: a half file is never taken for a whole one."""
    from rich.console import Console
    from rich.progress import wrap_file

    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(remote.url, timeout=30) as answer, part.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            console = Console(stderr=True)
            with wrap_file(answer, size, description=remote.path, console=console) as source:
                while block := source.read(1 << 20):
                    file.write(block)
            if size and file.tell() != size:
                raise DataError(f"{remote.url} broke off after {file.tell():,} of {size:,} bytes")
        if remote.sha256 and (seen := _sha256(part)) != remote.sha256:
            raise DataError(f"{remote.url} has SHA-256 {seen}, expected {remote.sha256}: not kept")
        part.replace(path)
    except (urllib.error.URLError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"cannot download {remote.url} ({reason}): without internet, put the file into"
            f" a folder as {remote.path} and set PUDA_MIRROR to that folder"
        ) from error
    except OSError as error:
        raise DataError(f"cannot save {remote.url} to {path}: {error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
