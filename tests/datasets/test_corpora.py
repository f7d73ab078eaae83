"""Cards of corpora, downloads and archives; synthetic corpora."""

import bz2
import gzip
import hashlib
import io
import itertools
import json
import math
import os
import tarfile
import tomllib
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from sparseoco.cli import app
from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.logs import progress_to
from sparseoco.datasets import corpora
from sparseoco.datasets import synthetic as module
from sparseoco.datasets.corpora import Card, card, data_folder, fetch, list_cards
from sparseoco.datasets.synthetic import SyntheticCorpus, documents, draw_ranks, generate, plant, spell
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.http_servers import serving

# ----------------------------------------------------------------------------------------------------------------------
# Cards of corpora, downloads and archives.


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


PACK = {"tar": _tar, "zip": _zip}


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Make a card for files of our own, with these keys; gives the function that does."""

    def make(*paths, base="http://127.0.0.1:9", **keys):
        files = [
            {"url": f"{base}/{path.name}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            | {"size": path.stat().st_size}
            | keys
            for path in paths
        ]
        about = dict.fromkeys(("title", "about", "homepage", "licence", "citation"), "x")
        made = Card(
            name="ours", **about, documents=1, classes=1, files=files, ingest={"inputs": ["c/pos"], "min_df": 2}
        )
        monkeypatch.setattr(corpora, "list_cards", lambda: [made])

    (tmp_path / "source").mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return make


@pytest.fixture
def good(tmp_path, offer):
    path = _tar(tmp_path / "source" / "c.tar.gz", [("c/pos/1.txt", TEXT), ("c/neg/1.txt", b""), ("c/extra/1", b"x")])
    offer(path, **KEYS)
    return path


KEYS = {"packing": "tar", "only": ("c/pos/*", "c/neg/*")}


def _files(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".json"
    }


def _nothing_left(tmp_path):
    assert {p.name for p in tmp_path.iterdir()} <= {"source", "out"}
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


# The cards of the project


def test_cards_are_complete_and_can_be_ingested():
    cards = list_cards()
    assert {"imdb", "20news", "sms-spam", "ag-news", "rcv1-binary"} <= {c.name for c in cards}
    for found in cards:
        assert (data_folder() / f"{found.name}.toml").is_file()
        given = dict(found.ingest)
        assert given.pop("inputs")
        TextOptions.of(given)
        if any(file.sha256 is None for file in found.files):
            assert "could not be verified" in found.notes


def test_lines_with_open_quotes_are_read_as_the_card_of_sms_spam_says(tmp_path):
    options = dict(card("sms-spam").ingest)
    path = tmp_path / options.pop("inputs")[0]
    path.write_text('ham\t"Quoted, not closed\nspam\tWin now\n')
    assert ingest([str(path)], tmp_path / "store", TextOptions.of(options)).rows == 2


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
        def do_GET(self):
            if self.path != "/broken":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            return self.wfile.write(b"x")

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "source"))) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_download(tmp_path, offer, good, server):
    offer(good, base=server, **KEYS)
    seen = []
    with progress_to(lambda *of: seen.append(of)):
        got = fetch("ours", tmp_path / "out")
    assert _files(got.folder)["c/pos/1.txt"] == TEXT
    assert seen[-1] == ("fetch c.tar.gz", good.stat().st_size, good.stat().st_size)


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("http://127.0.0.1:9/c.tar.gz", "download-failed", "--from FILE"),
        ("{server}/nothing", "download-failed", "404"),
        ("{server}/broken", "download-failed", "ended after 1 of 1,000 bytes"),
        ("{server}/big", "file-too-large", ""),
    ],
)
def test_what_cannot_be_fetched(tmp_path, offer, good, server, path, code, said):
    (tmp_path / "source" / "big").write_bytes(b"0" * 5000)
    offer(good, **KEYS, url=path.format(server=server))
    with raises_code(code, said) as caught:
        fetch("ours", tmp_path / "out")
    assert "\n" not in str(caught.value)
    _nothing_left(tmp_path)


def test_another_digest_or_size_is_refused(tmp_path, offer, good):
    good.write_bytes(good.read_bytes()[:-1] + b"?")
    with raises_code("wrong-digest", "c.tar.gz"):
        fetch("ours", tmp_path / "out", local=good)
    offer(good, **KEYS, sha256=None, size=good.stat().st_size + 1)
    with raises_code("wrong-digest", "c.tar.gz", "bytes"):
        fetch("ours", tmp_path / "out", local=good)
    _nothing_left(tmp_path)


def test_several_files_come_from_a_folder(tmp_path, offer, server):
    source = tmp_path / "source"
    for name in ("a.csv", "b.csv"):
        (source / name).write_text(name)
    offer(source / "a.csv", source / "b.csv", base=server)
    for out, local in (("one", source), ("two", None)):
        assert _files(fetch("ours", tmp_path / out, local=local).folder) == {"a.csv": b"a.csv", "b.csv": b"b.csv"}
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
    "climbs": ("tar", [("c/../../outside", TEXT)]),
    "absolute": ("tar", [("/tmp/sparseoco-outside", TEXT)]),
    "symlink": ("tar", [(_special("c/l", tarfile.SYMTYPE, "/etc"), b""), ("c/l/passwd", TEXT)]),
    "symlink inside": ("tar", [(_special("c/l", tarfile.SYMTYPE, "good"), b"")]),
    "hardlink": ("tar", [(_special("c/l", tarfile.LNKTYPE, "../../outside"), b"")]),
    "device": ("tar", [(_special("c/null", tarfile.CHRTYPE), b"")]),
    "fifo": ("tar", [(_special("c/pipe", tarfile.FIFOTYPE), b"")]),
    "climbing zip": ("zip", [("c/../../outside", TEXT)]),
    "zip beside": ("zip", [("../outside", TEXT)]),
    "absolute zip": ("zip", [("/tmp/outside", TEXT)]),
}


@pytest.mark.fault(40)
@pytest.mark.parametrize("harm", HARMFUL)
def test_harmful_archives_are_refused(tmp_path, offer, harm):
    packing, members = HARMFUL[harm]
    path = PACK[packing](tmp_path / "source" / "c.archive", [("c/good", TEXT), *members])
    offer(path, packing=packing)
    with raises_code("unsafe-archive", "c.archive", members[0][0] if packing == "zip" else ""):
        fetch("ours", tmp_path / "out", local=path)
    _nothing_left(tmp_path)


@pytest.mark.fault(28)
def test_bombs_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(corpora, "MAX_FILES", 10)
    (tmp_path / "out").mkdir()
    bombs = {
        packing: pack(tmp_path / f"bomb.{packing}", [("zeros", bytes(5_000_000))]) for packing, pack in PACK.items()
    }
    bombs["gz"] = tmp_path / "bomb.gz"
    bombs["gz"].write_bytes(gzip.compress(bytes(5_000_000)))
    for packing, bomb in bombs.items():
        with raises_code("archive-too-large", bomb.name, "1,000,000"):
            corpora.unpack(bomb, tmp_path / "out", packing)
    for packing, pack in PACK.items():
        many = pack(tmp_path / f"many.{packing}", [(f"f{k}", b"") for k in range(20)])
        with raises_code("archive-too-large", many.name, "10 files"):
            corpora.unpack(many, tmp_path / "out", packing)


@pytest.mark.parametrize("packing", ["tar", "zip", "gz", "bz2"])
@pytest.mark.parametrize("cut", [0, 20, -200])
def test_corrupt_archives(tmp_path, packing, cut):
    content = os.urandom(5000)
    path = tmp_path / f"a.{packing}"
    make = {"gz": gzip.compress, "bz2": bz2.compress}
    if packing in make:
        path.write_bytes(make[packing](content))
    else:
        PACK[packing](path, [("a", content)])
    path.write_bytes(path.read_bytes()[:cut])
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError) as caught:
        corpora.unpack(path, tmp_path / "out", packing)
    assert caught.value.code in ("corrupt-file", "missing-member")


def test_an_archive_without_the_expected_members(tmp_path):
    path = _zip(tmp_path / "a.zip", [("other", "x")])
    with raises_code("missing-member", "a.zip"):
        corpora.unpack(path, tmp_path / "out", "zip", only=["wanted"])


# ----------------------------------------------------------------------------------------------------------------------
# Synthetic corpora: the same bytes on every machine, words in Zipf's law, labels that follow the planted weights.


SMALL = SyntheticCorpus(300_000, 3, vocabulary=5000, seed=7)


def test_the_bytes_depend_on_what_is_asked_for_alone(tmp_path: Path) -> None:
    for name in "12":
        generate(SMALL, tmp_path / name)
    assert_same_folder(tmp_path / "1", tmp_path / "2")
    generate(SMALL._replace(seed=8), tmp_path / "3")
    texts = [(tmp_path / name / "text" / "part-00001.jsonl").read_bytes() for name in "13"]
    assert texts[0] != texts[1]
    with raises_code("other-corpus", tmp_path / "1"):
        generate(SMALL._replace(exponent=1.2), tmp_path / "1")


def test_bytes_are_the_same_everywhere(tmp_path: Path) -> None:
    """The beginning of a file as it was made first: other machines and later versions make the same."""
    (path,) = generate(SyntheticCorpus(400, 1), tmp_path)
    assert path.read_bytes().partition(b"\n")[0] == (
        b'{"id":"0-0","text":"gake kavi badede basto cidi ka va kewone bri pate fa hakonu","label":"0"}'
    )


def test_a_larger_file_begins_with_a_smaller(tmp_path: Path) -> None:
    small = generate(SMALL, tmp_path / "small")
    large = generate(SMALL._replace(bytes=400_000), tmp_path / "large")
    assert len({path.read_bytes()[:500] for path in small}) == 3  # no two files are alike
    for a, b in zip(small, large, strict=True):
        assert a.stat().st_size < b.stat().st_size
        assert b.read_bytes().startswith(a.read_bytes())


def test_documents_are_json_with_ids_of_their_own_and_as_many_as_asked_for(tmp_path: Path) -> None:
    rows = []
    for path in generate(SMALL, tmp_path):
        lines = path.read_bytes().splitlines(keepends=True)
        assert sum(map(len, lines)) >= 100_000 > sum(map(len, lines[:-1]))
        rows += map(json.loads, lines)
    assert len({row["id"] for row in rows}) == len(rows) > 250
    sizes = [len(row["text"].split(" ")) for row in rows]
    assert 10 <= min(sizes) < 60
    assert 400 < max(sizes) <= 2000
    assert {row["label"] for row in rows} == {"0", "1"}
    assert all(row["text"] == row["text"].strip() for row in rows)


def test_words_are_different_and_short_ones_come_first() -> None:
    ranks = [*range(1, 20_000), *range(1_000_000, 1_010_200), *range(module.MAX_WORDS - 99, module.MAX_WORDS + 1)]
    words = spell(np.array(ranks)).tolist()
    assert len(set(words)) == len(words)
    assert all(word.isalpha() and len(word) >= 2 for word in words)
    syllables = [sum(word.count(vowel) for vowel in "aeiou") for word in words]
    assert syllables[:100] == [1] * 100
    assert syllables == sorted(syllables)
    assert syllables[-1] == 4


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.1, 2.0])
def test_words_follow_zipfs_law(exponent: float) -> None:
    """Frequencies against ∫ x^(−s) dx over [r, r + 1), by their standard errors."""
    vocabulary, n = 1000, 200_000
    ranks = draw_ranks(np.random.default_rng(12345).random(n), vocabulary, exponent)
    edges = np.arange(1, vocabulary + 2, dtype=np.float64)
    integral = np.log(edges) if exponent == 1.0 else edges ** (1 - exponent) / (1 - exponent)
    chance = np.diff(integral) / (integral[-1] - integral[0])
    found = np.bincount(ranks, minlength=vocabulary + 1)
    assert found[0] == 0
    assert found.size == vocabulary + 1
    groups = np.unique(np.geomspace(1, vocabulary + 1, 30).astype(int)) - 1
    expected = n * np.add.reduceat(chance, groups[:-1])
    seen = np.add.reduceat(found[1:], groups[:-1])
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected)).all()


def test_labels_follow_the_planted_words(tmp_path: Path) -> None:
    """Given the planted weights, labels have their chance of a softmax: the log-likelihood is what it must be."""
    corpus = SyntheticCorpus(1_500_000, 2, vocabulary=50_000, classes=3, seed=3)
    paths = generate(corpus, tmp_path)
    described = json.loads((tmp_path / "planted.json").read_bytes())
    weights = {entry["word"]: (int(entry["class"]), entry["weight"]) for entry in described["planted"]}
    assert len(weights) > 100
    gains, variances, right, labels = [], [], [], []
    for path in paths:
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            scores = np.zeros(3)
            for word in row["text"].split(" "):
                if word in weights:
                    scores[weights[word][0]] += weights[word][1]
            p = np.exp(scores - scores.max())
            p /= p.sum()
            label = int(row["label"])
            entropy = (p * np.log(p)).sum()
            gains.append(math.log(p[label]) - entropy)
            variances.append((p * np.log(p) ** 2).sum() - entropy**2)
            right.append(label == int(p.argmax()))
            labels.append(label)
    assert abs(sum(gains)) < 5 * math.sqrt(sum(variances))
    assert 0.65 < np.mean(right) < 0.95  # something to learn, and noise
    assert np.bincount(labels).min() > 0.15 * len(labels)


def test_existing_files_are_kept(tmp_path: Path) -> None:
    paths = generate(SMALL, tmp_path)
    whole = folder_bytes(tmp_path)
    paths[1].unlink()
    (paths[0].parent / ".part-00001.jsonl.abc.tmp").write_bytes(b"half")
    before = paths[0].stat()
    steps: list[tuple[str, int, int]] = []
    with progress_to(lambda *step: steps.append(step)):
        generate(SMALL, tmp_path)
    assert folder_bytes(tmp_path) == whole
    assert paths[0].stat().st_mtime_ns == before.st_mtime_ns
    assert steps[-1] == ("generate", 300_000, 300_000)


WRONG = [("bytes", 0), ("files", 0), ("vocabulary", 0), ("vocabulary", module.MAX_WORDS + 1), ("exponent", -0.1)]
WRONG += [("exponent", math.nan), ("classes", 1), ("seed", -1)]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_invalid_parameters(name: str, value: float, tmp_path: Path) -> None:
    with raises_code("invalid-option", f"{name}={value}"):
        generate(SMALL._replace(**{name: value}), tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 100])
def test_small_vocabularies(vocabulary: int) -> None:
    corpus = SyntheticCorpus(1, 1, vocabulary=vocabulary)
    planted = plant(corpus)
    assert 1 <= planted.ranks[0] <= planted.ranks[-1] <= vocabulary
    lines = itertools.islice(documents(corpus, planted, 0), 100)
    words = {word for line in lines for word in json.loads(line)["text"].split(" ")}
    assert words == set(spell(np.arange(1, vocabulary + 1)).tolist())


def test_the_size_must_be_a_number(tmp_path: Path) -> None:
    with raises_code("invalid-option", "--bytes many"):
        app(["generate", str(tmp_path / "made"), "--bytes", "many"])
