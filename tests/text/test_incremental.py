"""The same store for any shard size, on a cluster, after kills; and files that are added later."""

import gzip
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparseoco.storage.commit
import sparseoco.text.ingest
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.store.manifest import read_manifests
from sparseoco.store.segments import add_increment_entry, read_increment_table
from sparseoco.store.shards import Store, read_shards
from sparseoco.text import encoding as frequencies
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.support.errors import raises_code
from tests.support.ingests import WORDS, file_bytes, ingest_bytes, jsonl, random_texts, store_content


def test_any_shard_size(tmp_path: Path) -> None:
    data = jsonl(random_texts(400))
    found = []
    for k, size in enumerate((1024, 3000, 1 << 20)):
        ingest_bytes(
            tmp_path, "a.jsonl.gz", gzip.compress(data), out=str(k), shard_bytes=size, ngram_range=(1, 3), min_df=2
        )
        found.append(store_content(tmp_path / str(k)))
    assert found[0] == found[1] == found[2]
    assert Store.open(tmp_path / "0").n_shards > 10


def test_cluster_writes_the_same_bytes(tmp_path: Path) -> None:
    data = jsonl(random_texts(200))
    ingest_bytes(tmp_path, "a.jsonl", data, ngram_range=(1, 2))
    with connect(ClusterOptions(threads=2), tmp_path / ".scratch") as client:
        options = TextOptions(ngram_range=(1, 2))
        ingest([str(tmp_path / "a.jsonl")], tmp_path / "dask", options, client=client, shard_bytes=4096)
        with raises_code("malformed-record", "bad.jsonl, line 1"):
            bad = tmp_path / "bad.jsonl"
            bad.write_bytes(b"{\n")
            ingest([str(bad)], tmp_path / "bad", options, client=client)
    assert file_bytes(tmp_path / "dask") == file_bytes(tmp_path / "out")


@pytest.mark.fault(5)
@pytest.mark.parametrize("options", [{"ngram_range": (1, 2)}, {"hash_bits": 10}], ids=str)
def test_killed_at_any_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    data = jsonl(random_texts(120))
    ingest_bytes(tmp_path, "a.jsonl", data, **options)
    undisturbed = file_bytes(tmp_path / "out")
    real = sparseoco.storage.commit._sync
    step = 0
    while True:
        calls = 0

        def killed(path: Path, limit: int = step) -> None:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise KeyboardInterrupt
            real(path)

        monkeypatch.setattr(sparseoco.storage.commit, "_sync", killed)
        try:
            ingest_bytes(tmp_path, "a.jsonl", data, out="again", **options)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(sparseoco.storage.commit, "_sync", real)
        assert not list((tmp_path / "again").glob("manifest-*.json")) or step > 5
        ingest_bytes(tmp_path, "a.jsonl", data, out="again", **options)
        assert {k: v for k, v in file_bytes(tmp_path / "again").items() if not k.endswith(".tmp")} == undisturbed
        shutil.rmtree(tmp_path / "again")
        step += 3
    assert step > 6


def test_staged_counts_and_shards_are_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    data = gzip.compress(jsonl(random_texts(300)))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", stop)
        ingest_bytes(tmp_path, "a.jsonl.gz", data)
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.text.counting.read_split", stop)
        patch.setattr("sparseoco.text.encoding.write_shard", stop)
        ingest_bytes(tmp_path, "a.jsonl.gz", data)
    assert not (tmp_path / "out" / ".staging").exists()
    ingest_bytes(tmp_path, "a.jsonl.gz", data, out="plain")
    assert file_bytes(tmp_path / "out") == file_bytes(tmp_path / "plain")


@pytest.mark.parametrize("options", [{}, {"hash_bits": 10}], ids=["frozen", "hashed"])
def test_file_added_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """Shards written before the kill get the right source when a new source precedes theirs."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    ingest_bytes(tmp_path, "0.jsonl", jsonl(random_texts(12)), **options)
    for name in "ba":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(random_texts(12, seed=1)).replace(b'"d', f'"{name}'.encode()))
    inputs = [str(tmp_path / f"{name}.jsonl") for name in "0ab"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", stop)
        ingest([inputs[0], inputs[2]], tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    manifest = ingest(inputs, tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    assert Store(tmp_path / "out", manifest).shards.column("source").tolist() == [0, 1, 2]


# Adding


@pytest.mark.fault(10, 11)
def test_adding_files(tmp_path: Path) -> None:
    first, second = jsonl(random_texts(100)), jsonl(random_texts(100, seed=1)).replace(b'"d', b'"e')
    manifest = ingest_bytes(tmp_path, "a.jsonl", first, ngram_range=(1, 2))
    before = file_bytes(tmp_path / "out")
    assert ingest_bytes(tmp_path, "a.jsonl", first, ngram_range=(1, 2)) == manifest
    assert file_bytes(tmp_path / "out") == before
    more = second + b'{"id":"new","label":"p","text":"alpha neverseen beta alpha"}\n'
    (tmp_path / "b.jsonl").write_bytes(more)
    both = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    options = TextOptions(ngram_range=(1, 2))
    added = ingest(both, tmp_path / "out", options, shard_bytes=4096)
    assert (added.version, added.rows, added.n_sources) == (2, 201, 2)
    assert before.items() <= file_bytes(tmp_path / "out").items()
    _, ids, labels, rows = store_content(tmp_path / "out")
    assert ids[-1] == "new"
    assert labels[-1] == 1
    assert rows[-1]["alpha"] == 2
    assert "neverseen" not in rows[-1]
    assert added.dropped_terms >= 3
    assert [entry.rows for entry in added.labels.classes] == [100, 101]

    (tmp_path / "c.jsonl").write_bytes(b'{"id":"c","label":"q","text":"alpha"}\n')
    with raises_code("unknown-class", "c.jsonl, line 1", "2 classes"):
        ingest([str(tmp_path / "c.jsonl")], tmp_path / "out", options)
    (tmp_path / "d.jsonl").write_bytes(b'{"id":"new","label":"p","text":"alpha"}\n')
    with raises_code("duplicate-id", "b.jsonl and ", "d.jsonl, line 1"):
        ingest([str(tmp_path / "d.jsonl")], tmp_path / "out", options)
    with raises_code("options-changed", tmp_path / "out", "(lowercase)"):
        ingest(both, tmp_path / "out", TextOptions(ngram_range=(1, 2), lowercase=False))
    (tmp_path / "a.jsonl").write_bytes(first + b"\n" + second)
    with raises_code("input-changed", tmp_path / "a.jsonl"):
        ingest(both, tmp_path / "out", options)


def test_folder_with_new_times_but_same_content(tmp_path: Path) -> None:
    for label in "ab":
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "1.txt").write_text("some text")
    ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())
    (tmp_path / "in" / "a" / "1.txt").write_text("some text")
    assert ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions()).version == 1
    (tmp_path / "in" / "stray.txt").write_text("x")
    with raises_code("invalid-input", "stray.txt"):
        ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())


NEW = b'{"id":"new%d","label":"p","text":"alpha neverseen beta alpha %s"}\n'


def test_extended_vocabulary(tmp_path: Path) -> None:
    """Ids never change, new terms follow, and every count equals that of one ingest of everything."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(100)))
    (tmp_path / "b.jsonl").write_bytes(NEW % (1, b"rare") + NEW % (2, b"seldom"))
    (tmp_path / "c.jsonl").write_bytes(jsonl(random_texts(40, seed=1)).replace(b'"d', b'"e') + NEW % (3, b"rare"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    options = TextOptions(ngram_range=(1, 2))
    tables = []
    for count in (1, 2, 3):
        ingest(paths[:count], tmp_path / "out", options, shard_bytes=4096, vocabulary="extend")
        tables.append(Store.open(tmp_path / "out").vocabulary())
    for before, after in itertools.pairwise(tables):
        assert after.slice(0, len(before)) == before
    store = Store.open(tmp_path / "out")
    assert (store.manifest.version, store.n_features) == (3, len(tables[-1]))
    assert len(store.manifest.features.files) < 3  # small ones are merged
    assert store.manifest.dropped_terms == 0
    assert store.document_frequencies().size == store.n_features
    assert tables[1]["term"].to_pylist()[len(tables[0])] == "neverseen"
    ingest(paths, tmp_path / "whole", options, shard_bytes=4096)
    assert store_content(tmp_path / "out")[1:] == store_content(tmp_path / "whole")[1:]
    ingest(paths[:1], tmp_path / "frozen", options, shard_bytes=4096)
    frozen = ingest(paths, tmp_path / "frozen", options, shard_bytes=4096)
    assert frozen.features.count == len(tables[0])
    assert frozen.dropped_terms > 0


@pytest.mark.parametrize("options", [{}, {"hash_bits": 5}], ids=["vocabulary", "hashed"])
@pytest.mark.parametrize("policy", ["frozen", "extend"])
def test_document_frequencies_are_of_all_documents(tmp_path: Path, options: dict[str, Any], policy: Any) -> None:
    """Also where terms of a document share a hash, after every increment, and for an increment without documents."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(60)))
    (tmp_path / "b.jsonl").write_bytes(jsonl(random_texts(40, seed=1), id=lambda k: f"e{k}") + NEW % (3, b"rare"))
    (tmp_path / "c.jsonl").write_bytes(jsonl(random_texts(9), id=lambda k: f"d{k}"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    text = TextOptions(**options, duplicates="first")
    for count in (1, 2, 3):
        manifest = ingest(paths[:count], tmp_path / "out", text, shard_bytes=1024, vocabulary=policy)
        assert manifest.n_shards >= 2
        expected = np.diff(read_shards(tmp_path / "out")[0].tocsc().indptr)
        np.testing.assert_array_equal(Store.open(tmp_path / "out").document_frequencies(), expected)


@pytest.mark.parametrize("pending", [0, 3, 1 << 22])
def test_sums_of_frequencies(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "PENDING", pending)
    random, dense, parts = np.random.default_rng(0), np.zeros(20, np.int64), []
    for _ in range(12):
        features = np.flatnonzero(random.random(20) < 0.4)
        parts.append((features, random.integers(1, 9, features.size)))
        dense[features] += parts[-1][1]
    features, documents = frequencies.sum_frequencies([], iter(parts))
    np.testing.assert_array_equal(features, np.flatnonzero(dense))
    np.testing.assert_array_equal(documents, dense[features])


def test_selection_of_new_terms(tmp_path: Path) -> None:
    """min_df applies to the new files alone, max_features to the whole vocabulary."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(100)))
    (tmp_path / "b.jsonl").write_bytes(NEW % (1, b"rare") + NEW % (2, b"seldom"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]

    def new_terms(name: str, **options: Any) -> tuple[list[str], int]:
        options_ = TextOptions.of(options)
        first = ingest(paths[:1], tmp_path / name, options_)
        both = ingest(paths, tmp_path / name, options_, vocabulary="extend")
        return Store.open(tmp_path / name).vocabulary()["term"].to_pylist()[first.features.count :], both.dropped_terms

    assert new_terms("two", min_df=2) == (["neverseen"], 2)
    assert new_terms("one") == (["neverseen", "rare", "seldom"], 0)
    assert new_terms("full", max_features=9)[0] == []
    size = len(WORDS) - 1  # "the" and "The" are one
    assert new_terms("room", max_features=size + 1) == (["neverseen"], 2)
    assert new_terms("common", max_df=0.95, min_df=2) == ([], 4)


def test_the_increments_of_versions(tmp_path: Path) -> None:
    """The newest manifest leads to what every version added, also where the first of them had no segments."""
    out = tmp_path / "out"
    for k in range(9):
        (tmp_path / f"{k}.jsonl").write_bytes(jsonl(random_texts(7 + k, seed=k)))
        ingest([str(tmp_path / f"{k}.jsonl")], out, TextOptions(duplicates="all"), vocabulary="extend")
    manifests = list(read_manifests(out, 9))
    table = read_increment_table(out, manifests[-1])
    assert [entry.sha256 for entry in table] == [manifest.increment.digest for manifest in manifests]
    assert table.column("rows").tolist() == [manifest.added.rows for manifest in manifests]
    assert table.column("nonzeros").tolist() == [manifest.added.nonzeros for manifest in manifests]
    assert table.column("features").tolist() == [manifest.features.count for manifest in manifests]
    assert len(manifests[-1].increment_segments) < 5
    for version, manifest in enumerate(manifests, 1):
        assert read_increment_table(out, manifest) == table[:version]
        without = manifest.model_copy(update={"increment_segments": ()})
        assert read_increment_table(out, without) == table[:version]
        if version < 9:
            assert add_increment_entry(out, without, manifests[version]).increment_segments[0].entries == version + 1
