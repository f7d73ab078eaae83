"""Synthetic corpora: the same bytes on every machine, words in Zipf's law, labels that follow the planted weights."""

import json
import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from sparseoco.cli import app
from sparseoco.core.compile_cache import compiled
from sparseoco.datasets import synthetic as module
from sparseoco.datasets.synthetic import SyntheticCorpus, generate, plant
from sparseoco.kernels.synthetic_text import draw_ranks, make_documents, spell, spread
from sparseoco.store.shards import read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.support.errors import raises_code

SMALL = SyntheticCorpus(300_000, 3, vocabulary=5000, seed=7)


def law(stream, n, vocabulary, exponent, room, ranks):  # type: ignore[no-untyped-def]
    draw_ranks(stream, n, vocabulary, exponent, spread(vocabulary, exponent), room, ranks)


LAW = compiled(law)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_the_bytes_depend_on_what_is_asked_for_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(SMALL, tmp_path / "1", threads=1)
    monkeypatch.setattr(module, "BUFFER_BYTES", 1000)  # how much is made at a time must not show
    generate(SMALL, tmp_path / "2", threads=3)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    generate(SMALL._replace(seed=8), tmp_path / "3")
    assert contents(tmp_path / "1")["part-00001.jsonl"] != contents(tmp_path / "3")["part-00001.jsonl"]


def test_bytes_are_the_same_everywhere(tmp_path: Path) -> None:
    """The beginning of a file as it was made first: other machines and later versions make the same."""
    (path,) = generate(SyntheticCorpus(400, 1), tmp_path)
    assert path.read_bytes().partition(b"\n")[0] == (
        b'{"id":"0-0","text":"tho ca fugugu we soca vofa vo kune nu bi wo sothake cogistu gadibre","label":"1"}'
    )


def test_a_larger_file_begins_with_a_smaller(tmp_path: Path) -> None:
    small = generate(SMALL, tmp_path / "small")
    large = generate(SMALL._replace(bytes=400_000), tmp_path / "large")
    assert len({path.read_bytes()[:500] for path in small}) == 3  # no two files are alike
    for a, b in zip(small, large, strict=True):
        assert a.stat().st_size < b.stat().st_size
        assert b.read_bytes().startswith(a.read_bytes())


def test_sizes_are_those_asked_for(tmp_path: Path) -> None:
    for path in generate(SMALL, tmp_path):
        documents = path.read_bytes().splitlines(keepends=True)
        assert sum(map(len, documents)) >= 100_000 > sum(map(len, documents[:-1]))


def test_documents_are_json_with_ids_of_their_own(tmp_path: Path) -> None:
    rows = [json.loads(line) for path in generate(SMALL, tmp_path) for line in path.read_bytes().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) > 250
    sizes = [len(row["text"].split(" ")) for row in rows]
    assert 10 <= min(sizes) < 60
    assert 400 < max(sizes) <= 2000
    assert {row["label"] for row in rows} == {"0", "1"}
    assert all(row["text"] == row["text"].strip() for row in rows)


def test_words_are_different_and_short_ones_come_first() -> None:
    ranks = [*range(1, 20_000), *range(1_000_000, 1_010_200), *range(module.MAX_WORDS - 99, module.MAX_WORDS + 1)]
    words = [spell(rank).tobytes().decode() for rank in ranks]
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
    ranks, room = np.empty(n, np.int64), np.empty(n)
    LAW(np.uint64(12345), n, vocabulary, exponent, room, ranks)
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


def test_counts_fall_along_a_line_in_logarithms(tmp_path: Path) -> None:
    (path,) = generate(SyntheticCorpus(4_000_000, 1, vocabulary=100_000, exponent=1.2), tmp_path)
    words: dict[str, int] = {}
    for line in path.read_bytes().splitlines():
        for word in json.loads(line)["text"].split(" "):
            words[word] = words.get(word, 0) + 1
    counts = np.array(sorted(words.values(), reverse=True))[4:500]
    slope = np.polyfit(np.log(np.arange(5, 5 + counts.size)), np.log(counts), 1)[0]
    assert slope == pytest.approx(-1.2, abs=0.05)


def test_labels_follow_the_planted_words(tmp_path: Path) -> None:
    """Given the planted weights, labels have their chance of a softmax: the log-likelihood is what it must be."""
    corpus = SyntheticCorpus(3_000_000, 2, vocabulary=50_000, classes=3, seed=3)
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


def test_a_store_can_be_made_of_it(tmp_path: Path) -> None:
    generate(SMALL, tmp_path)
    manifest = ingest([str(tmp_path / "text")], tmp_path / "store", TextOptions())
    X, terms = read_shards(tmp_path / "store")
    rows = [line for path in sorted((tmp_path / "text").iterdir()) for line in path.read_bytes().splitlines()]
    assert manifest.rows == len(rows)
    assert X.sum() == sum(len(json.loads(row)["text"].split()) for row in rows)
    assert set(terms) <= {spell(rank).tobytes().decode() for rank in range(1, 5001)}


def test_existing_files_are_kept(tmp_path: Path) -> None:
    paths = generate(SMALL, tmp_path)
    whole = contents(tmp_path)
    paths[1].unlink()
    (paths[0].parent / ".part-00001.jsonl.abc.tmp").write_bytes(b"half")
    before = paths[0].stat()
    steps: list[tuple[str, int, int]] = []
    generate(SMALL, tmp_path, progress=lambda *step: steps.append(step))
    assert contents(tmp_path) == whole
    assert paths[0].stat().st_mtime_ns == before.st_mtime_ns
    assert steps[-1] == ("generate", 300_000, 300_000)


def test_another_corpus_is_refused(tmp_path: Path) -> None:
    generate(SMALL, tmp_path)
    with raises_code("other-corpus", tmp_path):
        generate(SMALL._replace(exponent=1.2), tmp_path)


def _generate(corpus: SyntheticCorpus, out: str) -> None:
    generate(corpus, Path(out), threads=1)


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    corpus = SyntheticCorpus(20_000_000, 40)
    process = multiprocessing.get_context("spawn").Process(target=_generate, args=(corpus, str(tmp_path / "killed")))
    process.start()
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").glob("text/part-*.jsonl"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    generate(corpus, tmp_path / "killed")
    generate(corpus, tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes": 0},
        {"files": 0},
        {"vocabulary": 0},
        {"vocabulary": module.MAX_WORDS + 1},
        {"exponent": -0.1},
        {"exponent": math.nan},
        {"classes": 1},
        {"seed": -1},
    ],
)
def test_invalid_parameters(wrong: dict[str, float], tmp_path: Path) -> None:
    with raises_code("invalid-option", *(f"{name}={value}" for name, value in wrong.items())):
        generate(SMALL._replace(**wrong), tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 100])
def test_small_vocabularies(vocabulary: int) -> None:
    planted = plant(SyntheticCorpus(1, 1, vocabulary=vocabulary))
    assert 1 <= planted.ranks[0] <= planted.ranks[-1] <= vocabulary
    out = np.empty(1 << 17, np.uint8)
    top = int(planted.ranks[-1])
    classes, weights = np.full(top, -1, np.int64), np.zeros(top)
    classes[planted.ranks - 1], weights[planted.ranks - 1] = planted.classes, planted.weights
    _, size = make_documents(0, 0, 0, 20_000, vocabulary, 1.1, classes, weights, 2, out)
    words = {
        word for line in out[:size].tobytes().splitlines() for word in json.loads(line)["text"].encode().split(b" ")
    }
    assert words == {spell(rank).tobytes() for rank in range(1, vocabulary + 1)}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        app(["generate", str(tmp_path / "made"), "--bytes", "50kB", "--files", "2", "--classes", "4"])
    assert done.value.code == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "made" / "text")
    assert [path.name for path in sorted((tmp_path / "made" / "text").iterdir())] == [
        "part-00000.jsonl",
        "part-00001.jsonl",
    ]
    with raises_code("invalid-option", "--bytes many"):
        app(["generate", str(tmp_path / "made"), "--bytes", "many"])
