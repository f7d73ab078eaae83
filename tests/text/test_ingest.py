"""Readers, policies, resuming, adding: what ingest promises besides exact counts."""

import gzip
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard

import sparseoco.ingest
import sparseoco.storage.commit
from sparseoco.errors import InputError, SparseocoError
from sparseoco.ingest import ingest
from sparseoco.manifest import Manifest
from sparseoco.shards import Store, read_shards
from sparseoco.text.counting import Features, count_texts
from sparseoco.text.kernels.xxh64 import hash_terms
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from sparseoco.workers.connect import ClusterOptions, connect

WORDS = ["alpha", "beta", "gamma", "delta", "Épée", "naïve", "σίγμα", "東京", "under_score", "x9", "the", "The"]
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(n)]


def jsonl(documents: list[str], **more: Callable[[int], Any]) -> bytes:
    rows = [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": text} | {name: make(k) for name, make in more.items()}
        for k, text in enumerate(documents)
    ]
    return b"".join(json.dumps(row, ensure_ascii=k % 2 == 0).encode() + b"\n" for k, row in enumerate(rows))


def run(folder: Path, name: str, data: bytes, *, out: str = "out", shard_bytes: int = 4096, **options: Any) -> Manifest:
    folder.mkdir(exist_ok=True)
    if not (folder / name).exists() or (folder / name).read_bytes() != data:
        (folder / name).write_bytes(data)
    return ingest([str(folder / name)], folder / out, TextOptions.of(options), shard_bytes=shard_bytes)


def content(folder: Path) -> tuple[list[str], list[str], list[Any], list[dict[str, int]]]:
    """(terms, ids, labels, counts by term) of a store."""
    store = Store.open(folder)
    matrix, terms = read_shards(folder)
    shards = [store.read(i, ids=True) for i in range(len(store.manifest.shards))]
    ids = [name for shard in shards for name in shard.ids.to_pylist()]
    labels = [label for shard in shards for label in shard.labels.tolist()]
    rows = []
    for d in range(matrix.shape[0]):
        begin, end = matrix.indptr[d : d + 2]
        rows.append({terms[j]: c for j, c in zip(matrix.indices[begin:end], matrix.data[begin:end], strict=True)})
    return terms, ids, labels, rows


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


# Readers


@pytest.mark.parametrize("packing", PACKINGS)
def test_readers_agree(tmp_path: Path, packing: str) -> None:
    documents = texts(200)
    pack = PACKINGS[packing]
    labels = ["pn"[k % 2] for k in range(200)]
    lines = jsonl(documents)
    csv = "text,label,id\r\n" + "".join(
        f'"{text}\n""quoted"", then",{label},d{k}\r\n'
        for k, (text, label) in enumerate(zip(documents, labels, strict=True))
    )
    tsv = "".join(f"d{k}\t{label}\t{text}\n" for k, (text, label) in enumerate(zip(documents, labels, strict=True)))
    run(tmp_path, f"a.jsonl{packing}", pack(lines), out="jsonl")
    run(tmp_path, f"a.csv{packing}", pack(csv.encode()), out="csv", shard_bytes=2048)
    run(
        tmp_path, f"a.tsv{packing}", pack(tsv.encode()), out="tsv",
        header=False, id_field="1", label_field="2", text_field="3",
    )  # fmt: skip
    run(tmp_path, f"a.txt{packing}", pack("\n".join(documents).encode()), out="txt", shard_bytes=1024)
    for k, text in enumerate(documents):
        path = tmp_path / "folder" / labels[k] / f"d{k:03}.txt{packing}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pack(text.encode()))
    ingest([str(tmp_path / "folder")], tmp_path / "tree", TextOptions(), shard_bytes=1024)

    terms, ids, classes, rows = content(tmp_path / "jsonl")
    assert ids == [f"d{k}" for k in range(200)]
    assert classes == [1 - k % 2 for k in range(200)]
    assert [entry.name for entry in Store.open(tmp_path / "jsonl").manifest.labels.classes] == ["n", "p"]
    assert content(tmp_path / "tsv") == (terms, ids, classes, rows)
    quoted = content(tmp_path / "csv")
    assert quoted[1:3] == (ids, classes)
    assert quoted[3] == [row | {"quoted": 1, "then": 1} for row in rows]
    plain = content(tmp_path / "txt")
    assert plain[3] == rows
    assert plain[1][4] == f"a.txt{packing}:5"
    tree = content(tmp_path / "tree")
    order = [k for k in range(200) if labels[k] == "n"] + [k for k in range(200) if labels[k] == "p"]
    assert tree[3] == [rows[k] for k in order]
    assert tree[1][0] == f"folder/n/d001.txt{packing}"


def test_svmlight_and_processed(tmp_path: Path) -> None:
    run(tmp_path, "a.svm", b"+1 qid:3 0:1 7:2.5 # note\n\n-1 7:1 7:1 9:0\n1.0 3:4\n")
    terms, ids, labels, rows = content(tmp_path / "out")
    assert (terms, ids, labels) == (["7", "0", "3"], ["a.svm:1", "a.svm:3", "a.svm:4"], [1, 0, 1])
    assert rows == [{"0": 1, "7": 2.5}, {"7": 2}, {"3": 4}]
    with pytest.raises(InputError, match=r"b\.svm, line 1: index 0"):
        run(tmp_path, "b.svm", b"1 0:1\n", out="b", index_base=1)
    for bad in (b"1 a:1\n", b"1 3\n", b"1 3:nan\n", b"x:1 2:1\n", b"1 -1:2\n"):
        with pytest.raises(InputError, match=r"c\.svm, line 1"):
            run(tmp_path, "c.svm", bad, out="c")
    run(
        tmp_path,
        "p.review",
        "a_b:2 http://x:1 naïve:1 ☃:3 #label#:positive\nb:1 ☃:1 #label#:negative\n".encode(),
        out="p",
    )
    terms, _, labels, rows = content(tmp_path / "p")
    assert terms == ["☃", "a_b", "b", "http://x", "naïve"]
    assert labels == [1, 0]
    assert rows[0] == {"a_b": 2, "http://x": 1, "naïve": 1, "☃": 3}


def test_numbers_as_labels(tmp_path: Path) -> None:
    run(tmp_path, "a.jsonl", b'{"text":"ab cd","label":1.5}\n{"text":"ab","label":-2}\n', labels="numbers")
    assert content(tmp_path / "out")[2] == [1.5, -2.0]
    with pytest.raises(InputError, match="line 1: label field 'label' is not a number"):
        run(tmp_path, "b.jsonl", b'{"text":"ab cd","label":"x"}\n', out="b", labels="numbers")


def test_formats_and_addresses(tmp_path: Path) -> None:
    documents = texts(50)
    with fsspec.open("memory://there/a.jsonl.gz", "wb") as file:
        file.write(gzip.compress(jsonl(documents)))
    with fsspec.open("memory://there/b", "wb") as file:
        file.write(jsonl(documents))
    ingest(["memory://there/a.jsonl.gz"], tmp_path / "a", TextOptions())
    ingest(["memory://there/b"], tmp_path / "b", TextOptions())
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert ingest(["memory://there/b"], tmp_path / "b", TextOptions()).version == 1
    for bad in ("memory://there/nothing.jsonl", "nosuch://x", str(tmp_path / "none.jsonl")):
        with pytest.raises(InputError):
            ingest([bad], tmp_path / "c", TextOptions())
    (tmp_path / "odd").write_bytes(b"what is this\n")
    with pytest.raises(InputError, match="--format"):
        ingest([str(tmp_path / "odd")], tmp_path / "c", TextOptions())


def test_names_of_files_stay_apart(tmp_path: Path) -> None:
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "in.txt").write_text("ab cd\n")
    ingest([str(tmp_path / part / "in.txt") for part in ("one", "two")], tmp_path / "out", TextOptions())
    assert content(tmp_path / "out")[1] == ["in.txt:1", "in.txt~2:1"]


# Rows and policies


def test_where(tmp_path: Path) -> None:
    data = jsonl(texts(60), split=lambda k: ["train", "test"][k % 3 == 0], fold=lambda k: k % 2, flag=lambda k: k < 9)
    run(tmp_path, "a.jsonl", data, where={"split": "train", "fold": "1", "flag": "true"})
    assert content(tmp_path / "out")[1] == ["d1", "d5", "d7"]
    with pytest.raises(InputError, match="no document"):
        run(tmp_path, "a.jsonl", data, out="none", where={"absent": ""})


@pytest.mark.parametrize(("policy", "labels"), [("first", ["b", "c"]), ("skip", ["c"]), ("join", ["a,b", "c"])])
def test_label_lists(tmp_path: Path, policy: str, labels: list[str]) -> None:
    data = b'{"text":"xx","label":["b","a"]}\n{"text":"yy","label":["c"]}\n'
    manifest = run(tmp_path, "a.jsonl", data, label_list=policy)
    assert [entry.name for entry in manifest.labels.classes] == labels
    with pytest.raises(InputError, match="line 1: label field 'label' is a list"):
        run(tmp_path, "a.jsonl", data, out="error")


def test_each_ingest_has_its_own_way_with_duplicates(tmp_path: Path) -> None:
    row, new = b'{"id":"a","text":"good day","label":"x"}\n', b'{"id":"b","text":"good day","label":"x"}\n'
    assert run(tmp_path, "1.jsonl", row + row, duplicates="all").rows == 2
    assert run(tmp_path, "2.jsonl", new).rows == 3
    with pytest.raises(InputError, match=r"1\.jsonl and .*3\.jsonl, line 1 \(duplicates = first"):
        run(tmp_path, "3.jsonl", row)
    assert run(tmp_path, "3.jsonl", row, duplicates="first").rows == 3


def test_bad_rows(tmp_path: Path) -> None:
    bad = [
        b"{", b"[1]", b'{"label":"a"}', b'{"text":3,"label":"a"}', b'{"text":"ab"}', b'{"text":"ab","label":null}',
        b'{"text":"ab","label":1.5}', b'{"text":"ab","label":""}', b'{"text":"ab","label":"a","id":[1]}',
        b'{"text":"a\xffb","label":"a"}', b'{"text":"a\\ud800b","label":"a"}', b'{"text":"ab","label":"a"} x',
        b'{"text":"ab","label":"a",}', b'{"text":"a\x01b","label":"a"}', b'{"text":"ab","label":01}', b"nul",
    ]  # fmt: skip
    good = b'{"text":"good day","label":"a"}'
    for row in bad:
        with pytest.raises(InputError, match=r"one\.jsonl, line 2: ") as caught:
            run(tmp_path, "one.jsonl", good + b"\n" + row + b"\n", out="one")
        assert "ab" not in str(caught.value).replace("label", "").replace("table", "")
    data = b"\n".join(part for row in bad for part in (row, good))
    manifest = run(tmp_path, "all.jsonl", data, max_bad_rows=len(bad), shard_bytes=1024)
    assert (manifest.rows, manifest.quarantined_rows) == (len(bad), len(bad))
    table = pq.read_table(tmp_path / "out" / manifest.quarantine[0].file).to_pydict()
    assert table["line"] == list(range(1, 2 * len(bad), 2))
    assert table["offset"][1] == len(bad[0]) + len(good) + 2
    with pytest.raises(InputError, match="more bad rows than max_bad_rows = 3"):
        run(tmp_path, "all.jsonl", data, out="few", max_bad_rows=3, shard_bytes=1024)
    assert not list((tmp_path / "few").glob("manifest*"))


def test_each_ingest_has_its_own_number_of_bad_rows(tmp_path: Path) -> None:
    good = b'{"text":"good day","label":"a"}\n'
    first = run(tmp_path, "first.jsonl", good)
    with pytest.raises(InputError, match=r"second\.jsonl, line 2: .*max_bad_rows"):
        run(tmp_path, "second.jsonl", good + b"{\n")
    second = run(tmp_path, "second.jsonl", good + b"{\n", max_bad_rows=1)
    assert (first.rows, second.rows, second.quarantined_rows) == (1, 2, 1)
    third = run(tmp_path, "third.jsonl", good)
    assert (third.version, third.rows, third.quarantined_rows) == (3, 3, 1)
    with pytest.raises(InputError, match=r"other options \(binary\):"):
        run(tmp_path, "third.jsonl", good, max_bad_rows=1, binary=True)
    with pytest.raises(InputError, match="every row was set aside, the first for: label field 'place' is missing"):
        run(tmp_path, "first.jsonl", good, out="none", max_bad_rows=1, label_field="place")
    with pytest.raises(InputError, match="is where right"):
        run(tmp_path, "first.jsonl", good, out="none", where={"place": "here"})


def test_encoding_errors(tmp_path: Path) -> None:
    data = b'{"text":"aa\xffbb","label":"a"}\n{"text":"cc\\udc00dd","label":"a"}\n{"text":"ee","label":"a"}\n'
    run(tmp_path, "a.jsonl", data, encoding_errors="replace")
    assert content(tmp_path / "out")[3] == [{"aa": 1, "bb": 1}, {"cc": 1, "dd": 1}, {"ee": 1}]
    manifest = run(tmp_path, "a.jsonl", data, out="skip", encoding_errors="skip")
    assert (manifest.rows, manifest.quarantined_rows) == (1, 2)
    run(tmp_path, "a.txt", b"aa\xffbb\r\n\xef\xbb\xbfcc\n", out="txt", encoding_errors="replace")
    assert content(tmp_path / "txt")[3] == [{"aa": 1, "bb": 1}, {"cc": 1}]


def test_duplicates(tmp_path: Path) -> None:
    documents = texts(300)
    rows = jsonl(documents).splitlines(keepends=True)
    data = b"".join(rows) + rows[7] + rows[250]
    with pytest.raises(InputError, match=r"a\.jsonl, line 8 and .*a\.jsonl, line 301"):
        run(tmp_path, "a.jsonl", data)
    assert run(tmp_path, "a.jsonl", data, out="all", duplicates="all").rows == 302
    run(tmp_path, "a.jsonl", data, out="first", duplicates="first", ngram_range=(1, 2), min_df=2)
    run(tmp_path, "b.jsonl", b"".join(rows), out="once", ngram_range=(1, 2), min_df=2)
    assert content(tmp_path / "first") == content(tmp_path / "once")


def test_limits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: longer than 1000 bytes.*max_line_bytes"):
        run(tmp_path, "a.jsonl", jsonl(["ab", "ab " * 1000]), max_line_bytes=1000)
    with pytest.raises(InputError, match="inflates more than 10-fold"):
        run(tmp_path, "a.txt.gz", gzip.compress(b"\0" * (65 << 20)), max_inflation=10)
    for suffix in (".gz", ".zst"):
        whole = PACKINGS[suffix](jsonl(texts(500)))
        for data in (whole[:-10], whole[: len(whole) // 2], b""):
            with pytest.raises(InputError, match=r"a\.jsonl\.\w+ is truncated"):
                run(tmp_path, f"a.jsonl{suffix}", data, out="cut")
        with pytest.raises(InputError, match="is damaged"):
            run(tmp_path, f"a.jsonl{suffix}", b"garbage, garbage, garbage", out="cut")
        run(tmp_path, f"a.jsonl{suffix}", PACKINGS[suffix](b"") + whole, out=f"members{suffix}")


def test_nothing_to_count(tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b'{"text":"","label":"a"}\n', b'{"text":"a b c","label":"a"}\n'):
        with pytest.raises(InputError):
            run(tmp_path, "a.jsonl", data)
    manifest = run(tmp_path, "a.jsonl", b'{"text":" ","label":"a"}\n{"text":"ab","label":"a"}', out="one")
    assert (manifest.rows, manifest.empty_rows, manifest.nonzeros) == (2, 1, 1)
    for options in ({"min_df": 3}, {"min_df": 0.9, "max_df": 0.1}):
        with pytest.raises(InputError, match="term"):
            run(tmp_path, "b.jsonl", jsonl(["ab", "cd"]), out="b", **options)


def test_options_name_their_key() -> None:
    for values, key in [
        ({"ngrams": 1}, "ngrams"), ({"min_df": 1.5}, "min_df"), ({"ngram_range": (2, 1)}, "ngram_range"),
        ({"hash_bits": 49}, "hash_bits"), ({"hash_bits": 9, "min_df": 2}, "hash_bits"), ({"format": "xml"}, "format"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=key):
            TextOptions.of(values)


# The same bytes, whatever happens


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
        patch.setattr(sparseoco.ingest, "commit_manifest", stop)
        run(tmp_path, "a.jsonl.gz", data)
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.text.pieces.read_split", stop)
        patch.setattr("sparseoco.text.build.write_shard", stop)
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
        patch.setattr(sparseoco.ingest, "commit_manifest", stop)
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


def test_hash_is_xxh64() -> None:
    rng = np.random.default_rng(3)
    terms = [rng.bytes(int(size)) for size in [*range(100), 1000]]
    data = np.frombuffer(b"".join(terms) + bytes(8), np.uint8)
    offsets = np.cumsum([0] + [len(term) for term in terms])
    for seed in (0, 1, 2**64 - 1):
        wanted = [xxhash.xxh64_intdigest(term, seed) for term in terms]
        assert hash_terms(data, offsets, np.uint64(seed), 48).tolist() == [value % 2**48 for value in wanted]
        assert hash_terms(data, offsets, np.uint64(seed), 3).tolist() == [value % 8 for value in wanted]


@pytest.mark.parametrize(("bits", "binary"), [(3, False), (3, True), (20, False), (48, False)])
def test_hashed_features(tmp_path: Path, bits: int, binary: bool) -> None:
    documents = texts(120)
    common = {"ngram_range": (1, 2), "binary": binary}
    run(tmp_path, "a.jsonl", jsonl(documents), out="exact", **common)
    manifest = run(tmp_path, "a.jsonl", jsonl(documents), out="hashed", hash_bits=bits, hash_seed=7, **common)
    assert manifest.features.count == 1 << bits
    store = Store.open(tmp_path / "hashed")
    shards = [store.read(i) for i in range(len(store.manifest.shards))]
    _, _, _, rows = content(tmp_path / "exact")
    wanted = []
    for row in rows:
        sums: dict[int, int] = {}
        for term, count in row.items():
            feature = xxhash.xxh64_intdigest(term.encode(), 7) % 2**bits
            sums[feature] = 1 if binary else sums.get(feature, 0) + count
        wanted.append(sorted(sums.items()))
    got = [
        list(zip(s.indices[a:b].tolist(), s.counts[a:b].tolist(), strict=True))
        for s in shards
        for a, b in zip(s.indptr[:-1], s.indptr[1:], strict=True)
    ]
    assert got == wanted
    if bits == 48:
        feature = xxhash.xxh64_intdigest("naïve".encode(), 7) % 2**48
        described = store.describe(np.array([feature])).to_pylist()
        assert described[0]["term"] == "naïve"
        assert described[0]["documents"] == sum("naïve" in row for row in rows)


def test_counting_known_features() -> None:
    options = TextOptions(ngram_range=(1, 2))
    indptr, indices, counts = count_texts(
        ["The cat, the CAT the", "", "dog"], Features.named(["the cat", "dog"]), options
    )
    assert (indptr.tolist(), indices.tolist(), counts.tolist()) == ([0, 1, 1, 2], [0, 1], [2, 1])
    assert count_texts([], Features.named([]), options)[0].tolist() == [0]
    assert count_texts(["ab cd"], Features.named([]), options)[0].tolist() == [0, 0]
    ids = np.array(sorted(xxhash.xxh64_intdigest(t.encode(), 5) % 2**40 for t in ("the cat", "dog")))
    indptr, indices, counts = count_texts(["the cat the cat", "dog"], Features.hashed(ids, 40, 5), options)
    assert indptr.tolist() == [0, 1, 2]
    assert sorted(indices.tolist()) == [0, 1]
    assert counts.tolist() == [2, 1]
    with pytest.raises(InputError, match="Text 1"):
        count_texts(["a\ud800"], Features.named(["ab"]), options)


def test_reading_in_batches(tmp_path: Path) -> None:
    documents = texts(300)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(documents)))
    batches = list(read_documents([str(tmp_path / "a.jsonl.gz")], TextOptions(), batch_bytes=4096))
    assert len(batches) > 3
    assert [text for batch in batches for text in batch.texts()] == documents
    assert batches[0].labels.to_pylist()[:2] == ["p", "n"]
    assert next(read_documents([str(tmp_path / "a.jsonl.gz")], TextOptions(), labelled=False)).labels is None


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(SparseocoError, match="given twice"):
        (tmp_path / "a.txt").write_text("ab\n")
        ingest([str(tmp_path / "a.txt")] * 2, tmp_path / "out", TextOptions())
