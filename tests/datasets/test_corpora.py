"""Cards of corpora, downloads, archives and conversions."""

import bz2
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import threading
import tomllib
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sparseoco.core.errors import InputError, StorageError
from sparseoco.datasets import corpora
from sparseoco.datasets import corpora as archives
from sparseoco.datasets.corpora import Card, card, data_folder, fetch, list_cards
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from tests.support.errors import raises_code

TEXT = b"hello world\n" * 100


def _tar(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def _special(name, kind, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def _zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for member, content in members:
            zipped.writestr(member, content)
    return path


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Make a card for files of our own; gives the function that does."""

    def make(*paths, known=True, **keys):
        files = [
            {
                "url": f"http://127.0.0.1:9/{path.name}",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest() if known else None,
                "size": path.stat().st_size if known else None,
            }
            | keys
            for path in paths
        ]
        about = dict.fromkeys(("title", "about", "homepage", "licence", "citation"), "x")
        made = Card(
            name="ours", **about, documents=1, classes=1, files=files, ingest={"inputs": ["c/pos"], "min_df": 2}
        )
        monkeypatch.setattr(corpora, "list_cards", lambda: [made])
        return made

    (tmp_path / "source").mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return make


@pytest.fixture
def good(tmp_path, offer):
    path = _tar(tmp_path / "source" / "c.tar.gz", [("c/pos/1.txt", TEXT), ("c/neg/1.txt", b""), ("c/extra/1", b"x")])
    offer(path, packing="tar", only=["c/pos/*", "c/neg/*"])
    return path


def _files(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".json"
    }


def _nothing_left(tmp_path):
    assert {p.name for p in tmp_path.iterdir()} <= {"source", "out"}
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


# The cards of the project


def test_cards_are_complete_and_can_be_ingested():
    options = pytest.importorskip("sparseoco.text.options")
    cards = list_cards()
    assert {"imdb", "20news", "reuters", "sms-spam", "ag-news", "rcv1-binary"} <= {c.name for c in cards}
    for found in cards:
        assert (data_folder() / f"{found.name}.toml").is_file()
        given = dict(found.ingest)
        assert given.pop("inputs")
        options.TextOptions.of(given)
        if any(file.sha256 is None for file in found.files):
            assert "could not be verified" in found.notes


def test_an_unknown_name():
    with raises_code("unknown-corpus", "'imbd'", "imdb"):
        card("imbd")


def test_an_invalid_card(tmp_path, monkeypatch):
    (tmp_path / "odd.toml").write_text("name = 'odd'")
    monkeypatch.setattr("sparseoco.datasets.corpora.data_folder", lambda: tmp_path)
    with raises_code("invalid-card", "odd.toml", kind=StorageError):
        list_cards()


# Fetching


def test_a_local_copy_is_unpacked_and_fetching_again_does_nothing(tmp_path, good):
    got = fetch("ours", tmp_path / "out", local=good)
    assert got.inputs == [tmp_path / "out" / "ours" / "c" / "pos"]
    assert got.options == {"min_df": 2}
    assert _files(got.folder) == {"c/pos/1.txt": TEXT, "c/neg/1.txt": b""}
    before = os.stat(got.folder / "c/pos/1.txt")
    good.unlink()
    assert fetch("ours", tmp_path / "out", local=good) == got
    assert os.stat(got.folder / "c/pos/1.txt") == before


@pytest.fixture
def server(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "source")) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["file", "http", "memory"])
def test_urls(tmp_path, good, server, scheme):
    url = {"file": good.as_uri(), "http": f"{server}/{good.name}", "memory": f"memory://mirror/{good.name}"}[scheme]
    commit_bytes(location(f"memory://mirror/{good.name}"), good.read_bytes())
    seen = []
    got = fetch("ours", tmp_path / "out", url=url, progress=lambda *of: seen.append(of))
    assert _files(got.folder)["c/pos/1.txt"] == TEXT
    assert seen[-1] == ("fetch c.tar.gz", good.stat().st_size, good.stat().st_size)


def test_no_network(tmp_path, good):
    with raises_code("download-failed", "http://127.0.0.1:9/c.tar.gz", "--from FILE") as caught:
        fetch("ours", tmp_path / "out")
    assert "\n" not in str(caught.value)
    _nothing_left(tmp_path)


def test_a_server_that_refuses_or_sends_too_much(tmp_path, good, server, offer):
    with raises_code("download-failed", f"{server}/nothing", "404"):
        fetch("ours", tmp_path / "out", url=f"{server}/nothing")
    (tmp_path / "source" / "big").write_bytes(b"0" * 5000)
    with raises_code("file-too-large", f"{server}/big", f"{good.stat().st_size:,}"):
        fetch("ours", tmp_path / "out", url=f"{server}/big")
    _nothing_left(tmp_path)


def test_a_connection_that_breaks_off(tmp_path, good):
    class Broken(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        with raises_code("download-failed", "c.tar.gz"):
            fetch("ours", tmp_path / "out", url=f"http://127.0.0.1:{served.server_port}/c.tar.gz")
        served.shutdown()
        thread.join()
    _nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("nonsense://x/y", "unknown-scheme"),
        ("http://[::1", "download-failed"),
        ("/nowhere/at/all", "download-failed"),
    ],
)
def test_invalid_urls(tmp_path, good, url, code):
    with raises_code(code, url):
        fetch("ours", tmp_path / "out", url=url)


def test_another_digest_or_size_is_refused(tmp_path, good):
    good.write_bytes(good.read_bytes()[:-1] + b"?")
    with raises_code("wrong-digest", "c.tar.gz"):
        fetch("ours", tmp_path / "out", local=good)
    _nothing_left(tmp_path)


def test_several_files_come_from_a_folder(tmp_path, offer, server):
    source = tmp_path / "source"
    for name in ("a.csv", "b.csv"):
        (source / name).write_text(name)
    offer(source / "a.csv", source / "b.csv")
    assert _files(fetch("ours", tmp_path / "one", local=source).folder) == {"a.csv": b"a.csv", "b.csv": b"b.csv"}
    assert _files(fetch("ours", tmp_path / "two", url=server).folder) == {"a.csv": b"a.csv", "b.csv": b"b.csv"}
    with raises_code("several-files", "a.csv, b.csv"):
        fetch("ours", tmp_path / "three", local=source / "a.csv")
    (source / "b.csv").unlink()
    with raises_code("missing-file", source / "b.csv"):
        fetch("ours", tmp_path / "three", local=source)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, good):
    (tmp_path / "out" / "ours").mkdir(parents=True)
    fetch("ours", tmp_path / "out", local=good)  # an empty one is filled
    (tmp_path / "other" / "ours").mkdir(parents=True)
    (tmp_path / "other" / "ours" / "mine.txt").write_text("mine")
    with raises_code("folder-not-empty", tmp_path / "other" / "ours", kind=StorageError):
        fetch("ours", tmp_path / "other", local=good)
    assert [p.name for p in (tmp_path / "other" / "ours").iterdir()] == ["mine.txt"]


@pytest.mark.fault(13)
@pytest.mark.parametrize("name", ["c/pos/1.txt", "c/neg/1.txt"])
def test_a_fetched_file_that_changed_is_named(tmp_path, good, name):
    folder = fetch("ours", tmp_path / "out", local=good).folder
    (folder / "mine.txt").write_text("no part of the corpus")
    fetch("ours", tmp_path / "out", local=good)
    (folder / name).write_bytes((folder / name).read_bytes().replace(b"w", b"W") or b"x")
    with raises_code("corrupt-file", folder / "c", kind=StorageError):
        fetch("ours", tmp_path / "out", local=good)


def test_a_folder_that_cannot_be_written(tmp_path, good):
    (tmp_path / "file").write_text("in the way")
    with raises_code("io-error", tmp_path / "file", kind=StorageError):
        fetch("ours", tmp_path / "file", local=good)


def test_the_table_for_a_run_file(tmp_path):
    options = {"header": False, "ngram_range": [1, 2], "where": {"split": "train"}, "text_field": 'a "b"'}
    table = tomllib.loads(corpora.Fetched(tmp_path, [tmp_path / "x y"], options).ingest_table())
    assert table == {"ingest": {"inputs": [str(tmp_path / "x y")]} | options}


@pytest.mark.parametrize(("packing", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_single_compressed_files(tmp_path, offer, packing, pack):
    path = tmp_path / "source" / f"rows.binary.{packing}"
    path.write_bytes(pack(TEXT))
    offer(path, packing=packing)
    assert _files(fetch("ours", tmp_path / "out", local=path).folder) == {"rows.binary": TEXT}


# Harmful archives


HARMFUL = {
    "climbs": [("c/../../outside", TEXT)],
    "absolute": [("/tmp/sparseoco-outside", TEXT)],
    "backslash": [("c\\..\\outside", TEXT)],
    "symlink": [(_special("c/l", tarfile.SYMTYPE, "/etc"), b""), ("c/l/passwd", TEXT)],
    "hardlink": [(_special("c/l", tarfile.LNKTYPE, "../../outside"), b"")],
    "device": [(_special("c/null", tarfile.CHRTYPE), b"")],
    "fifo": [(_special("c/pipe", tarfile.FIFOTYPE), b"")],
    "twice": [("c/a", b"1"), ("c/a", b"2")],
    "file as folder": [("c/a", b"1"), ("c/a/b", b"2")],
}


@pytest.mark.fault(40)
@pytest.mark.parametrize("harm", HARMFUL)
def test_harmful_tars_are_refused(tmp_path, offer, harm):
    path = _tar(tmp_path / "source" / "c.tar.gz", [("c/good", TEXT), *HARMFUL[harm]])
    offer(path, packing="tar")
    with raises_code("unsafe-archive", "c.tar.gz"):
        fetch("ours", tmp_path / "out", local=path)
    _nothing_left(tmp_path)


def _zip_symlink():
    info = zipfile.ZipInfo("c/l")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.fault(40)
@pytest.mark.parametrize("member", ["../outside", "/tmp/outside", "c/../../outside", _zip_symlink()], ids=str)
def test_harmful_zips_are_refused(tmp_path, offer, member):
    path = _zip(tmp_path / "source" / "c.zip", [(member, "/etc/passwd")])
    offer(path, packing="zip")
    with raises_code("unsafe-archive", "c.zip"):
        fetch("ours", tmp_path / "out", local=path)
    _nothing_left(tmp_path)


@pytest.mark.fault(28)
def test_bombs_are_stopped(tmp_path):
    bomb = _zip(tmp_path / "bomb.zip", [("zeros", bytes(5_000_000))])
    with raises_code("archive-too-large", "bomb.zip", "1,000,000"):
        archives.unpack(bomb, tmp_path / "out", "zip", max_bytes=1_000_000)
    many = _tar(tmp_path / "many.tar.gz", [(f"f{k}", b"") for k in range(20)])
    with raises_code("archive-too-large", "many.tar.gz", "10 files"):
        archives.unpack(many, tmp_path / "many", "tar", max_files=10)


@pytest.mark.parametrize("packing", ["tar", "zip", "gz", "bz2"])
@pytest.mark.parametrize("cut", [0, 20, -200])
def test_corrupt_archives(tmp_path, packing, cut):
    content = os.urandom(5000)
    path = tmp_path / f"a.{packing}"
    make = {"gz": gzip.compress, "bz2": bz2.compress}
    if packing in make:
        path.write_bytes(make[packing](content))
    else:
        {"tar": _tar, "zip": _zip}[packing](path, [("a", content)])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError) as caught:
        archives.unpack(path, tmp_path / "out", packing)
    assert caught.value.code in ("corrupt-file", "missing-member")


def test_an_archive_without_the_expected_members(tmp_path):
    path = _zip(tmp_path / "a.zip", [("other", "x")])
    with raises_code("missing-member", "a.zip"):
        archives.unpack(path, tmp_path / "out", "zip", only=["wanted"])


# Conversions


REUTERS = b"""<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="1">
<DATE>26-FEB-1987</DATE><TOPICS><D>cocoa</D><D>coffee</D></TOPICS><PLACES><D>usa</D></PLACES>
<TEXT>&#2;
<TITLE>BAHIA &amp; COCOA</TITLE><DATELINE>    SALVADOR - </DATELINE><BODY>Showers &lt;continued> caf\xe9.
Reuter &#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="NO" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="2" NEWID="2">
<TOPICS></TOPICS><TEXT TYPE="BRIEF"><TITLE>SHORT ONE</TITLE>blah</TEXT>
</REUTERS>
"""


def test_reuters_becomes_json_lines(tmp_path, offer):
    path = _tar(tmp_path / "source" / "r.tar.gz", [("reut2-000.sgm", REUTERS), ("README.txt", b"x")])
    offer(path, packing="tar", convert="reuters")
    got = fetch("ours", tmp_path / "out", local=path)
    first, second = map(json.loads, (got.folder / "documents.jsonl").read_bytes().splitlines())
    assert first["id"] == "1"
    assert first["label"] == ["cocoa", "coffee"]
    assert first["split"] == "train"
    assert first["text"].startswith("BAHIA & COCOA\n\nShowers <continued> café.")
    assert (second["split"], second["label"]) == ("unused", [])
    assert second["text"].split() == ["SHORT", "ONE", "blah"]
    assert sorted(p.name for p in got.folder.iterdir()) == ["corpus.json", "documents.jsonl"]


def test_labelled_lines_become_json_lines(tmp_path, offer):
    content = 'ham\t"Quoted, not closed\nspam\tWin\u2028now\r\n\n'.encode()
    path = _zip(tmp_path / "source" / "s.zip", [("lines", content), ("readme", "no tabs here")])
    offer(path, packing="zip", only=["lines"], convert="labelled-lines")
    got = fetch("ours", tmp_path / "out", local=path)
    rows = list(map(json.loads, (got.folder / "documents.jsonl").read_bytes().splitlines()))
    assert [(r["label"], r["text"]) for r in rows] == [("ham", '"Quoted, not closed'), ("spam", "Win\u2028now")]


def test_nothing_to_convert(tmp_path, offer):
    path = _zip(tmp_path / "source" / "s.zip", [("lines", "no label")])
    offer(path, packing="zip", convert="labelled-lines")
    with raises_code("no-documents", "labelled-lines"):
        fetch("ours", tmp_path / "out", local=path)
    _nothing_left(tmp_path)
