"""Public data sets: what their files hold, and how the files come here."""

import hashlib
import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import toy
from puda.data.datasets import (
    DATASETS,
    Dataset,
    Remote,
    fetch,
    here,
    load_dataset,
    read_archive,
    read_openbiolink,
)
from puda.data.graph import SPLITS, KnowledgeGraph
from puda.data.source import load
from puda.errors import DataError

CONTENT = b"one fact a line\n" * 100_000  # more than one block of a download
PATH = "sets/toy.bin"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server:
    """A local web server: what it serves by path, and the paths it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.promised: dict[str, int] = {}  # Content-Length where it is not the true one
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                length = server.promised.get(self.path, len(content))
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the user's cache an empty folder, without mirror or proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("PUDA_MIRROR", raising=False)
    return tmp_path / "cache" / "puda"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    monkeypatch.setenv("PUDA_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "sets").mkdir(parents=True)
    return tmp_path / "mirror"


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def unreachable() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def tar(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


# What the files hold.


@pytest.mark.parametrize(
    ("name", "num_entities", "num_relations", "sizes"),
    [
        ("umls", 135, 46, [5216, 652, 661]),
        ("wn18rr", 40943, 11, [86835, 3034, 3134]),
        ("fb15k-237", 14541, 237, [272115, 17535, 20466]),
        ("codex-m", 17050, 51, [185584, 10310, 10311]),
    ],
)
def test_a_benchmark_has_its_published_sizes(
    benchmark: Callable[[str], KnowledgeGraph],
    name: str,
    num_entities: int,
    num_relations: int,
    sizes: list[int],
) -> None:
    graph = benchmark(name)
    assert (graph.name, graph.num_entities, graph.num_relations) == (
        name,
        num_entities,
        num_relations,
    )
    assert [len(graph.facts(split)) for split in SPLITS] == sizes
    assert graph.duplicates == 0


def test_codex_has_as_many_true_negatives_as_held_out_facts(
    benchmark: Callable[[str], KnowledgeGraph],
) -> None:
    graph = benchmark("codex-m")
    assert {name: len(facts) for name, facts in graph.negatives.items()} == {
        "valid": 10310,
        "test": 10311,
    }
    facts = {tuple(fact) for split in SPLITS for fact in graph.facts(split).tolist()}
    for untrue in graph.negatives.values():
        assert not facts & {tuple(fact) for fact in untrue.tolist()}


def test_labels_of_digits_keep_their_zeros(benchmark: Callable[[str], KnowledgeGraph]) -> None:
    graph = benchmark("wn18rr")
    assert {len(label) for label in graph.entities.labels} == {8}
    assert graph.entities.labels[0].startswith("0000")


def test_the_bundled_world_holds_what_everyone_knows() -> None:
    graph = load_dataset("world")
    assert graph.relations.labels == [
        "borders",
        "has_capital",
        "has_time_zone",
        "in_time_zone",
        "located_in",
        "on_continent",
        "speaks",
        "uses_currency",
    ]
    assert all(len(graph.facts(split)) for split in SPLITS)
    facts = set().union(*(toy.labels(graph, split) for split in SPLITS))
    assert ("France", "borders", "Spain") in facts
    assert ("Spain", "borders", "France") in facts
    assert ("France", "has_capital", "Paris") in facts
    assert ("France", "borders", "Japan") not in facts
    assert DATASETS["world"].files == ()  # nothing to download


def test_the_held_out_facts_of_the_bundled_world_are_of_seen_entities_and_pairs_apart() -> None:
    graph = load_dataset("world")
    pairs = {frozenset((h, t)) for h, _, t in graph.train.tolist()}
    for facts in (graph.valid, graph.test):
        assert set(facts[:, [0, 2]].flat) <= set(graph.train[:, [0, 2]].flat)
        assert not pairs & {frozenset((h, t)) for h, _, t in facts.tolist()}


# The formats.


def test_an_archive_is_read_wherever_its_three_files_lie(tmp_path: Path) -> None:
    path = tar(
        tmp_path / "toy.tar.gz",
        {
            "toy/README.txt": "not facts",
            "toy/train.txt": '007\tsays\t"hello\n7\tsays\tNA\n',
            "toy/deep/valid.txt": "7\tsays\t007\n",
            "toy/test.txt": "NA\tsays\t7\n",
        },
    )
    graph = read_archive("toy", path)
    assert toy.labels(graph, "train") == {("007", "says", '"hello'), ("7", "says", "NA")}
    assert toy.labels(graph, "valid") == {("7", "says", "007")}
    assert toy.labels(graph, "test") == {("NA", "says", "7")}


def test_an_archive_without_a_split_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tar(tmp_path / "toy.tar.gz", {"train.txt": "a\tr\tb\n", "test.txt": "a\tr\tb\n"})
    with pytest.raises(DataError, match=r"toy.tar.gz holds no valid.txt"):
        read_archive("toy", path)


OPENBIOLINK = {
    "train": ["CL:0\tGENE_DRUG\tPUBCHEM.COMPOUND:5\t900\tTP\tSTITCH"] * 2
    + ["NCBIGENE:1\tIS_A\tNCBIGENE:2\t\tTP\tGO"],
    "val": ["NCBIGENE:2\tIS_A\tNCBIGENE:1\t\tTP\tGO"],
    "test": ["CL:0\tGENE_DRUG\tNCBIGENE:1\t700\tTP\tSTITCH"],
    "negative_train": ["CL:0\tGENE_DRUG\tNCBIGENE:9\t\tTN\tSTITCH"],
    "negative_val": ["NCBIGENE:2\tIS_A\tCL:0\t\tTN\tGO"],
    "negative_test": ["NCBIGENE:1\tIS_A\tCL:0\t\tTN\tGO", "CL:0\tIS_A\tCL:0\t\tTN\tGO"],
}


def zip_openbiolink(path: Path, files: dict[str, list[str]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("HQ_DIR/train_test_data/train_val_nodes.csv", "CL:0\tCELL\n")
        for name, lines in files.items():
            inside = f"HQ_DIR/train_test_data/{name}_sample.csv"
            archive.writestr(inside, "".join(f"{line}\n" for line in lines))
    return path


def test_openbiolink_has_facts_and_true_negatives_for_each_split(tmp_path: Path) -> None:
    path = zip_openbiolink(tmp_path / "HQ_DIR.zip", OPENBIOLINK)
    graph = read_openbiolink("openbiolink", path)
    assert toy.labels(graph, "train") == {
        ("CL:0", "GENE_DRUG", "PUBCHEM.COMPOUND:5"),
        ("NCBIGENE:1", "IS_A", "NCBIGENE:2"),
    }
    assert toy.labels(graph, "valid") == {("NCBIGENE:2", "IS_A", "NCBIGENE:1")}
    assert toy.labels(graph, "test") == {("CL:0", "GENE_DRUG", "NCBIGENE:1")}
    assert graph.duplicates == 1
    assert {name: len(facts) for name, facts in graph.negatives.items()} == {
        "train": 1,
        "valid": 1,
        "test": 2,
    }
    head, relation, tail = graph.negatives["train"][0]
    assert graph.entities.labels[head] == "CL:0"
    assert graph.relations.labels[relation] == "GENE_DRUG"
    assert graph.entities.labels[tail] == "NCBIGENE:9"  # known from a negative alone


def test_openbiolink_without_one_of_its_files_is_an_error_that_names_it(tmp_path: Path) -> None:
    files = {name: lines for name, lines in OPENBIOLINK.items() if name != "negative_val"}
    path = zip_openbiolink(tmp_path / "other.zip", files)
    with pytest.raises(DataError, match="holds no negative_val_sample.csv: is it HQ_DIR.zip"):
        read_openbiolink("openbiolink", path)


def test_a_file_that_is_no_archive_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "HQ_DIR.zip"
    path.write_bytes(b"<html>Too many requests</html>")
    for read in (read_archive, read_openbiolink):
        with pytest.raises(DataError, match="HQ_DIR.zip"):
            read("toy", path)


# How files come here.


def test_a_download_is_verified_and_kept_in_the_cache(server: Server, cache: Path) -> None:
    server.files[f"/{PATH}"] = CONTENT
    remote = Remote(PATH, server.base, sha256(CONTENT))
    assert here(remote) is None
    path = fetch(remote)
    assert path == cache / PATH == here(remote)
    assert path.read_bytes() == CONTENT
    assert files_in(cache) == [PATH]  # no half file beside it
    assert fetch(remote) == path
    assert server.asked == [f"/{PATH}"]  # once


def test_a_download_with_another_checksum_is_not_kept(server: Server, cache: Path) -> None:
    server.files[f"/{PATH}"] = CONTENT
    remote = Remote(PATH, server.base, sha256(b"other"))
    with pytest.raises(DataError, match="not kept") as caught:
        fetch(remote)
    assert all(x in str(caught.value) for x in (remote.url, sha256(CONTENT), sha256(b"other")))
    assert files_in(cache) == []


def test_a_download_without_known_checksum_is_kept(server: Server, cache: Path) -> None:
    server.files[f"/{PATH}"] = CONTENT
    assert fetch(Remote(PATH, server.base, None)).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "checksum",
    [
        sha256(CONTENT),
        pytest.param(None),
    ],
)
def test_a_download_that_breaks_off_is_not_kept(
    server: Server, cache: Path, checksum: str | None
) -> None:
    server.files[f"/{PATH}"] = CONTENT[:1000]
    server.promised[f"/{PATH}"] = len(CONTENT)
    with pytest.raises(DataError, match=PATH):
        fetch(Remote(PATH, server.base, checksum))
    assert files_in(cache) == []


def test_what_a_killed_download_left_is_overwritten(server: Server, cache: Path) -> None:
    server.files[f"/{PATH}"] = CONTENT
    (cache / "sets").mkdir(parents=True)
    (cache / f"{PATH}.part").write_bytes(b"half" * len(CONTENT))
    assert fetch(Remote(PATH, server.base, sha256(CONTENT))).read_bytes() == CONTENT
    assert files_in(cache) == [PATH]


@pytest.mark.parametrize("where", ["nowhere", "not there"])
def test_without_the_file_the_error_names_the_address_and_the_mirror(
    server: Server, cache: Path, where: str
) -> None:
    remote = Remote(PATH, unreachable() if where == "nowhere" else server.base, None)
    with pytest.raises(DataError, match="set PUDA_MIRROR to that folder") as caught:
        fetch(remote)
    assert remote.url in str(caught.value)
    assert f"as {PATH}" in str(caught.value)
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written_to_is_an_error(server: Server, cache: Path) -> None:
    server.files[f"/{PATH}"] = CONTENT
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=f"cannot save {server.base}/{PATH}"):
        fetch(Remote(PATH, server.base, None))


def test_an_answer_that_is_not_http_is_an_error_that_names_the_address(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail server ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        remote = Remote(PATH, f"http://127.0.0.1:{listener.getsockname()[1]}", None)
        try:
            with pytest.raises(DataError, match=remote.url):
                fetch(remote)
        finally:
            thread.join()


def test_the_mirror_comes_before_the_cache_and_the_network(
    server: Server, cache: Path, mirror: Path
) -> None:
    (mirror / PATH).write_bytes(CONTENT)
    (cache / "sets").mkdir(parents=True)
    (cache / PATH).write_bytes(b"other")
    assert fetch(Remote(PATH, server.base, sha256(CONTENT))) == mirror / PATH
    assert server.asked == []


def test_what_the_mirror_has_not_is_downloaded_to_the_cache(
    server: Server, cache: Path, mirror: Path
) -> None:
    server.files[f"/{PATH}"] = CONTENT
    assert fetch(Remote(PATH, server.base, sha256(CONTENT))) == cache / PATH
    assert files_in(mirror) == []


@pytest.mark.parametrize("place", ["mirror", "cache"])
def test_a_local_file_with_another_checksum_is_an_error_that_names_it(
    cache: Path, mirror: Path, place: str
) -> None:
    path = {"mirror": mirror, "cache": cache}[place] / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"damaged")
    with pytest.raises(DataError, match=f"{path} has not the SHA-256"):
        fetch(Remote(PATH, unreachable(), sha256(CONTENT)))
    assert path.read_bytes() == b"damaged"  # the user's to remove


def test_a_data_set_is_downloaded_once_and_loaded_by_name(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{split}.txt": "a\tr\tb\nb\tr\ta\n" for split in SPLITS}
    archive = tar(tmp_path / "toy.tar.gz", files).read_bytes()
    server.files["/toy.tar.gz"] = archive
    remote = Remote("toy.tar.gz", server.base, sha256(archive))
    monkeypatch.setitem(DATASETS, "toy", Dataset("two facts", (remote,), read_archive))
    one, two = load("Toy").graph, load("toy").graph
    assert (one.name, one.entities.labels, len(one.test)) == ("toy", ["a", "b"], 2)
    assert one.fingerprint == two.fingerprint
    assert server.asked == ["/toy.tar.gz"]
