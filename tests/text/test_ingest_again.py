"""One store, however it is come to: in shards of any size, by workers, after kills, by files that come later."""

import gzip
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

import sparseoco.storage.commit
import sparseoco.text.ingest
from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.text.ingests import WORDS, content, files, jsonl, run, texts


def test_any_shard_size(tmp_path: Path) -> None:
    documents = texts(400)
    data = jsonl(documents)
    found = []
    for k, size in enumerate((1024, 3000, 1 << 20)):
        run(tmp_path, "a.jsonl.gz", gzip.compress(data), out=str(k), shard_bytes=size, ngram_range=(1, 3), min_df=2)
        found.append(content(tmp_path / str(k)))
    assert found[0] == found[1] == found[2]
    assert len(Store.open(tmp_path / "0").manifest.shards) > 10


def test_workers_of_a_cluster(tmp_path: Path) -> None:
    data = jsonl(texts(200))
    run(tmp_path, "a.jsonl", data, ngram_range=(1, 2))
    with connect(ClusterOptions(threads=2), tmp_path / ".scratch") as client:
        options = TextOptions(ngram_range=(1, 2))
        ingest([str(tmp_path / "a.jsonl")], tmp_path / "dask", options, client=client, shard_bytes=4096)
        with pytest.raises(InputError, match="line 1"):
            run_bad = tmp_path / "bad.jsonl"
            run_bad.write_bytes(b"{\n")
            ingest([str(run_bad)], tmp_path / "bad", options, client=client)
    assert files(tmp_path / "dask") == files(tmp_path / "out")


@pytest.mark.parametrize("options", [{"ngram_range": (1, 2)}, {"hash_bits": 10}], ids=str)
def test_killed_at_any_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    data = jsonl(texts(120))
    run(tmp_path, "a.jsonl", data, **options)
    undisturbed = files(tmp_path / "out")
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
            run(tmp_path, "a.jsonl", data, out="again", **options)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(sparseoco.storage.commit, "_sync", real)
        assert not list((tmp_path / "again").glob("manifest-*.json")) or step > 5
        run(tmp_path, "a.jsonl", data, out="again", **options)
        assert {k: v for k, v in files(tmp_path / "again").items() if not k.endswith(".tmp")} == undisturbed
        shutil.rmtree(tmp_path / "again")
        step += 3
    assert step > 6


def test_staged_pieces_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    data = gzip.compress(jsonl(texts(300)))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", stop)
        run(tmp_path, "a.jsonl.gz", data)
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.text.counting.partial_counts.read_split", stop)
        patch.setattr("sparseoco.text.vocabulary.build.write_shard", stop)
        run(tmp_path, "a.jsonl.gz", data)
    assert not (tmp_path / "out" / ".staging").exists()
    run(tmp_path, "a.jsonl.gz", data, out="plain")
    assert files(tmp_path / "out") == files(tmp_path / "plain")


@pytest.mark.parametrize("options", [{}, {"hash_bits": 10}], ids=["frozen", "hashed"])
def test_a_file_that_comes_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Shards that were written already say which source is theirs now that there is one before it."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    run(tmp_path, "0.jsonl", jsonl(texts(12)), **options)
    for name in "ba":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(texts(12, seed=1)).replace(b'"d', f'"{name}'.encode()))
    inputs = [str(tmp_path / f"{name}.jsonl") for name in "0ab"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", stop)
        ingest([inputs[0], inputs[2]], tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    manifest = ingest(inputs, tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    assert [shard.source for shard in manifest.shards] == [0, 1, 2]


# Adding


def test_adding_files(tmp_path: Path) -> None:
    first, second = jsonl(texts(100)), jsonl(texts(100, seed=1)).replace(b'"d', b'"e')
    manifest = run(tmp_path, "a.jsonl", first, ngram_range=(1, 2))
    before = files(tmp_path / "out")
    assert run(tmp_path, "a.jsonl", first, ngram_range=(1, 2)) == manifest
    assert files(tmp_path / "out") == before
    more = second + b'{"id":"new","label":"p","text":"alpha neverseen beta alpha"}\n'
    (tmp_path / "b.jsonl").write_bytes(more)
    both = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    options = TextOptions(ngram_range=(1, 2))
    added = ingest(both, tmp_path / "out", options, shard_bytes=4096)
    assert (added.version, added.rows, len(added.sources)) == (2, 201, 2)
    assert before.items() <= files(tmp_path / "out").items()
    _, ids, labels, rows = content(tmp_path / "out")
    assert ids[-1] == "new"
    assert labels[-1] == 1
    assert rows[-1]["alpha"] == 2
    assert "neverseen" not in rows[-1]
    assert added.dropped_terms >= 3
    assert [entry.rows for entry in added.labels.classes] == [100, 101]

    (tmp_path / "c.jsonl").write_bytes(b'{"id":"c","label":"q","text":"alpha"}\n')
    with pytest.raises(InputError, match=r"c\.jsonl, line 1: the label is not one of the 2 classes"):
        ingest([str(tmp_path / "c.jsonl")], tmp_path / "out", options)
    (tmp_path / "d.jsonl").write_bytes(b'{"id":"new","label":"p","text":"alpha"}\n')
    with pytest.raises(InputError, match="one id"):
        ingest([str(tmp_path / "d.jsonl")], tmp_path / "out", options)
    with pytest.raises(InputError, match=r"other options.*binary"):
        ingest(both, tmp_path / "out", TextOptions(ngram_range=(1, 2), binary=True))
    (tmp_path / "a.jsonl").write_bytes(first + b"\n" + second)
    with pytest.raises(InputError, match="has changed since"):
        ingest(both, tmp_path / "out", options)


def test_a_folder_touched_but_not_changed(tmp_path: Path) -> None:
    for label in "ab":
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "1.txt").write_text("some text")
    ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())
    (tmp_path / "in" / "a" / "1.txt").write_text("some text")
    assert ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions()).version == 1
    (tmp_path / "in" / "stray.txt").write_text("x")
    with pytest.raises(InputError, match=r"stray\.txt lies beside"):
        ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())


NEW = b'{"id":"new%d","label":"p","text":"alpha neverseen beta alpha %s"}\n'


def test_a_vocabulary_that_grows(tmp_path: Path) -> None:
    """Ids never move, new terms come after them, and every count is that of one ingest of everything."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts(100)))
    (tmp_path / "b.jsonl").write_bytes(NEW % (1, b"rare") + NEW % (2, b"seldom"))
    (tmp_path / "c.jsonl").write_bytes(jsonl(texts(40, seed=1)).replace(b'"d', b'"e') + NEW % (3, b"rare"))
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
    assert len(store.manifest.features.files) >= 2
    assert store.manifest.dropped_terms == 0
    assert store.document_frequencies().size == store.n_features
    assert tables[1]["term"].to_pylist()[len(tables[0])] == "neverseen"
    ingest(paths, tmp_path / "whole", options, shard_bytes=4096)
    assert content(tmp_path / "out")[1:] == content(tmp_path / "whole")[1:]
    ingest(paths[:1], tmp_path / "frozen", options, shard_bytes=4096)
    frozen = ingest(paths, tmp_path / "frozen", options, shard_bytes=4096)
    assert frozen.features.count == len(tables[0])
    assert frozen.dropped_terms > 0


def test_what_a_growing_vocabulary_takes(tmp_path: Path) -> None:
    """min_df holds among the new files alone; max_features is of the whole vocabulary."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts(100)))
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


# Hashing, counting, reading
