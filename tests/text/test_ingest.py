"""Formats, options, limits and hashing of ingest."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.kernels.ngrams import hash_terms
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, count_texts, read_documents
from tests.support.errors import raises_code
from tests.support.ingests import COMPRESSORS, ingest_bytes, jsonl, random_texts, store_content


@pytest.mark.parametrize("packing", COMPRESSORS)
def test_formats_agree(tmp_path: Path, packing: str) -> None:
    documents = random_texts(200)
    pack = COMPRESSORS[packing]
    labels = ["pn"[k % 2] for k in range(200)]
    lines = jsonl(documents)
    csv = "text,label,id\r\n" + "".join(
        f'"{text}\n""quoted"", then",{label},d{k}\r\n'
        for k, (text, label) in enumerate(zip(documents, labels, strict=True))
    )
    tsv = "".join(f"d{k}\t{label}\t{text}\n" for k, (text, label) in enumerate(zip(documents, labels, strict=True)))
    ingest_bytes(tmp_path, f"a.jsonl{packing}", pack(lines), out="jsonl")
    ingest_bytes(tmp_path, f"a.csv{packing}", pack(csv.encode()), out="csv", shard_bytes=2048)
    ingest_bytes(
        tmp_path, f"a.tsv{packing}", pack(tsv.encode()), out="tsv",
        header=False, id_field="1", label_field="2", text_field="3",
    )  # fmt: skip
    ingest_bytes(tmp_path, f"a.txt{packing}", pack("\n".join(documents).encode()), out="txt", shard_bytes=1024)
    for k, text in enumerate(documents):
        path = tmp_path / "folder" / labels[k] / f"d{k:03}.txt{packing}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pack(text.encode()))
    ingest([str(tmp_path / "folder")], tmp_path / "tree", TextOptions(), shard_bytes=1024)

    terms, ids, classes, rows = store_content(tmp_path / "jsonl")
    assert ids == [f"d{k}" for k in range(200)]
    assert classes == [1 - k % 2 for k in range(200)]
    assert [entry.name for entry in Store.open(tmp_path / "jsonl").manifest.labels.classes] == ["n", "p"]
    assert store_content(tmp_path / "tsv") == (terms, ids, classes, rows)
    quoted = store_content(tmp_path / "csv")
    assert quoted[1:3] == (ids, classes)
    assert quoted[3] == [row | {"quoted": 1, "then": 1} for row in rows]
    plain = store_content(tmp_path / "txt")
    assert plain[3] == rows
    assert plain[1][4] == f"a.txt{packing}:5"
    tree = store_content(tmp_path / "tree")
    order = [k for k in range(200) if labels[k] == "n"] + [k for k in range(200) if labels[k] == "p"]
    assert tree[3] == [rows[k] for k in order]
    assert tree[1][0] == f"folder/n/d001.txt{packing}"


def test_svmlight_and_processed(tmp_path: Path) -> None:
    ingest_bytes(tmp_path, "a.svm", b"+1 qid:3 0:1 7:2.5 # note\n\n-1 7:1 7:1 9:0\n1.0 3:4\n")
    terms, ids, labels, rows = store_content(tmp_path / "out")
    assert (terms, ids, labels) == (["7", "0", "3"], ["a.svm:1", "a.svm:3", "a.svm:4"], [1, 0, 1])
    assert rows == [{"0": 1, "7": 2.5}, {"7": 2}, {"3": 4}]
    for bad in (b"1 a:1\n", b"1 3\n", b"1 3:nan\n", b"1 3:1e39\n", b"1 3:-3e38 3:-3e38\n", b"x:1 2:1\n", b"1 -1:2\n"):
        with raises_code("malformed-record", "c.svm, line 1"):
            ingest_bytes(tmp_path, "c.svm", bad, out="c")
    ingest_bytes(
        tmp_path,
        "p.review",
        "a_b:2 http://x:1 naïve:1 ☃:3 #label#:positive\nb:1 ☃:1 #label#:negative\n".encode(),
        out="p",
    )
    terms, _, labels, rows = store_content(tmp_path / "p")
    assert terms == ["☃", "a_b", "b", "http://x", "naïve"]
    assert labels == [1, 0]
    assert rows[0] == {"a_b": 2, "http://x": 1, "naïve": 1, "☃": 3}


def test_numbers_as_labels(tmp_path: Path) -> None:
    ingest_bytes(tmp_path, "a.jsonl", b'{"text":"ab cd","label":1.5}\n{"text":"ab","label":-2}\n', labels="numbers")
    assert store_content(tmp_path / "out")[2] == [1.5, -2.0]
    with raises_code("invalid-labels", "b.jsonl, line 1", "'label'"):
        ingest_bytes(tmp_path, "b.jsonl", b'{"text":"ab cd","label":"x"}\n', out="b", labels="numbers")


def test_remote_inputs_and_formats(tmp_path: Path) -> None:
    documents = random_texts(50)
    commit_bytes(location("memory://there/a.jsonl.gz"), gzip.compress(jsonl(documents)))
    commit_bytes(location("memory://there/b"), jsonl(documents))
    ingest(["memory://there/a.jsonl.gz"], tmp_path / "a", TextOptions())
    ingest(["memory://there/b"], tmp_path / "b", TextOptions())
    assert store_content(tmp_path / "a") == store_content(tmp_path / "b")
    assert ingest(["memory://there/b"], tmp_path / "b", TextOptions()).version == 1
    missing = "missing-file"
    for bad, code in (
        ("memory://there/none.jsonl", missing),
        ("nosuch://x", "unknown-scheme"),
        ("none.jsonl", missing),
    ):
        with raises_code(code, bad):
            ingest([bad], tmp_path / "c", TextOptions())
    (tmp_path / "odd").write_bytes(b"what is this\n")
    with raises_code("unknown-format", tmp_path / "odd", "--format"):
        ingest([str(tmp_path / "odd")], tmp_path / "c", TextOptions())


def test_equal_file_names(tmp_path: Path) -> None:
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "in.txt").write_text("ab cd\n")
    ingest([str(tmp_path / part / "in.txt") for part in ("one", "two")], tmp_path / "out", TextOptions())
    assert store_content(tmp_path / "out")[1] == ["in.txt:1", "in.txt~2:1"]


def test_where(tmp_path: Path) -> None:
    data = jsonl(
        random_texts(60), split=lambda k: ["train", "test"][k % 3 == 0], fold=lambda k: k % 2, flag=lambda k: k < 9
    )
    ingest_bytes(tmp_path, "a.jsonl", data, where={"split": "train", "fold": "1", "flag": "true"})
    assert store_content(tmp_path / "out")[1] == ["d1", "d5", "d7"]
    with raises_code("no-documents", "where"):
        ingest_bytes(tmp_path, "a.jsonl", data, out="none", where={"absent": ""})


def test_duplicates_option_per_ingest(tmp_path: Path) -> None:
    row, new = b'{"id":"a","text":"good day","label":"x"}\n', b'{"id":"b","text":"good day","label":"x"}\n'
    assert ingest_bytes(tmp_path, "1.jsonl", row + row, duplicates="all").rows == 2
    assert ingest_bytes(tmp_path, "2.jsonl", new).rows == 3
    with raises_code("duplicate-id", "1.jsonl and ", "3.jsonl, line 1 ", "duplicates = first"):
        ingest_bytes(tmp_path, "3.jsonl", row)
    assert ingest_bytes(tmp_path, "3.jsonl", row, duplicates="first").rows == 3


@pytest.mark.fault(23, 31)
def test_bad_rows(tmp_path: Path) -> None:
    malformed, missing, invalid = "malformed-record", "missing-field", "invalid-labels"
    bad = {
        b"{": malformed, b"[1]": malformed, b'{"label":"a"}': missing, b'{"text":3,"label":"a"}': malformed,
        b'{"text":"ab"}': missing, b'{"text":"ab","label":null}': missing, b'{"text":"ab","label":1.5}': invalid,
        b'{"text":"ab","label":""}': invalid, b'{"text":"ab","label":"a","id":[1]}': malformed,
        b'{"text":"a\xffb","label":"a"}': "encoding", b'{"text":"a\\ud800b","label":"a"}': "encoding",
        b'{"text":"ab","label":"a"} x': malformed, b'{"text":"ab","label":"a",}': malformed,
        b'{"text":"a\x01b","label":"a"}': malformed, b'{"text":"ab","label":01}': malformed, b"nul": malformed,
    }  # fmt: skip
    good = b'{"text":"good day","label":"a"}'
    for row, code in bad.items():
        with raises_code(code, "one.jsonl, line 2: ") as caught:
            ingest_bytes(tmp_path, "one.jsonl", good + b"\n" + row + b"\n", out="one")
        assert "ab" not in str(caught.value).replace("label", "").replace("table", "")
    data = b"\n".join(part for row in bad for part in (row, good))
    manifest = ingest_bytes(tmp_path, "all.jsonl", data, max_bad_rows=len(bad), shard_bytes=1024)
    assert (manifest.rows, manifest.quarantined_rows) == (len(bad), len(bad))
    table = pq.read_table(tmp_path / "out" / manifest.quarantine[0].file).to_pydict()
    assert table["line"] == list(range(1, 2 * len(bad), 2))
    assert table["offset"][1] == len(b"{") + len(good) + 2
    with raises_code("too-many-bad-rows", "all.jsonl, line 7", "max_bad_rows = 3"):
        ingest_bytes(tmp_path, "all.jsonl", data, out="few", max_bad_rows=3, shard_bytes=1024)
    assert not list((tmp_path / "few").glob("manifest*"))


def test_max_bad_rows_per_ingest(tmp_path: Path) -> None:
    good = b'{"text":"good day","label":"a"}\n'
    first = ingest_bytes(tmp_path, "first.jsonl", good)
    with raises_code("malformed-record", "second.jsonl, line 2", "max_bad_rows"):
        ingest_bytes(tmp_path, "second.jsonl", good + b"{\n")
    second = ingest_bytes(tmp_path, "second.jsonl", good + b"{\n", max_bad_rows=1)
    assert (first.rows, second.rows, second.quarantined_rows) == (1, 2, 1)
    third = ingest_bytes(tmp_path, "third.jsonl", good)
    assert (third.version, third.rows, third.quarantined_rows) == (3, 3, 1)
    with raises_code("options-changed", tmp_path / "out", "(lowercase)"):
        ingest_bytes(tmp_path, "third.jsonl", good, max_bad_rows=1, lowercase=False)
    with raises_code("no-documents", "label field 'place' is missing; the fields are 'text'"):
        ingest_bytes(tmp_path, "first.jsonl", good, out="none", max_bad_rows=1, label_field="place")
    with raises_code("no-documents", "where"):
        ingest_bytes(tmp_path, "first.jsonl", good, out="none", where={"place": "here"})


@pytest.mark.fault(26)
def test_encoding_errors(tmp_path: Path) -> None:
    data = b'{"text":"aa\xffbb","label":"a"}\n{"text":"cc\\udc00dd","label":"a"}\n{"text":"ee","label":"a"}\n'
    ingest_bytes(tmp_path, "a.jsonl", data, encoding_errors="replace")
    assert store_content(tmp_path / "out")[3] == [{"aa": 1, "bb": 1}, {"cc": 1, "dd": 1}, {"ee": 1}]
    manifest = ingest_bytes(tmp_path, "a.jsonl", data, out="skip", encoding_errors="skip")
    assert (manifest.rows, manifest.quarantined_rows) == (1, 2)
    ingest_bytes(tmp_path, "a.txt", b"aa\xffbb\r\n\xef\xbb\xbfcc\n", out="txt", encoding_errors="replace")
    assert store_content(tmp_path / "txt")[3] == [{"aa": 1, "bb": 1}, {"cc": 1}]


@pytest.mark.fault(29)
def test_duplicates(tmp_path: Path) -> None:
    documents = random_texts(300)
    rows = jsonl(documents).splitlines(keepends=True)
    data = b"".join(rows) + rows[7] + rows[250]
    with raises_code("duplicate-id", "a.jsonl, line 8 and ", "a.jsonl, line 301 "):
        ingest_bytes(tmp_path, "a.jsonl", data)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="all", duplicates="all").rows == 302
    ingest_bytes(tmp_path, "a.jsonl", data, out="first", duplicates="first", ngram_range=(1, 2), min_df=2)
    ingest_bytes(tmp_path, "b.jsonl", b"".join(rows), out="once", ngram_range=(1, 2), min_df=2)
    assert store_content(tmp_path / "first") == store_content(tmp_path / "once")


@pytest.mark.fault(27, 28)
def test_limits(tmp_path: Path) -> None:
    with raises_code("line-too-long", "a.jsonl, line 2", 1000, "max_line_bytes"):
        ingest_bytes(tmp_path, "a.jsonl", jsonl(["ab", "ab " * 1000]), max_line_bytes=1000)
    with raises_code("decompression-limit", "a.txt.zst", "1000-fold"):
        ingest_bytes(tmp_path, "a.txt.zst", COMPRESSORS[".zst"](b"\0" * (128 << 20)))
    for suffix in (".gz", ".zst"):
        whole = COMPRESSORS[suffix](jsonl(random_texts(500)))
        for data in (whole[:-10], whole[: len(whole) // 2], b""):
            with raises_code("corrupt-file", f"a.jsonl{suffix} is truncated"):
                ingest_bytes(tmp_path, f"a.jsonl{suffix}", data, out="cut")
        with raises_code("corrupt-file", f"a.jsonl{suffix}"):
            ingest_bytes(tmp_path, f"a.jsonl{suffix}", b"garbage, garbage, garbage", out="cut")
        ingest_bytes(tmp_path, f"a.jsonl{suffix}", COMPRESSORS[suffix](b"") + whole, out=f"members{suffix}")


@pytest.mark.fault(25)
def test_no_terms(tmp_path: Path) -> None:
    for data, code in (
        (b"", "no-documents"),
        (b"\n\n", "no-documents"),
        (b'{"text":"","label":"a"}\n', "empty-vocabulary"),
        (b'{"text":"a b c","label":"a"}\n', "empty-vocabulary"),
    ):
        with raises_code(code):
            ingest_bytes(tmp_path, "a.jsonl", data)
    manifest = ingest_bytes(tmp_path, "a.jsonl", b'{"text":" ","label":"a"}\n{"text":"ab","label":"a"}', out="one")
    assert (manifest.rows, manifest.empty_rows, manifest.nonzeros) == (2, 1, 1)
    for options in ({"min_df": 3}, {"min_df": 0.9, "max_df": 0.1}):
        with raises_code("empty-vocabulary"):
            ingest_bytes(tmp_path, "b.jsonl", jsonl(["ab", "cd"]), out="b", **options)


def test_invalid_options() -> None:
    for values, key in [
        ({"min_df": 1.5}, "min_df"), ({"ngram_range": (2, 1)}, "ngram_range"),
        ({"hash_bits": 49}, "hash_bits"), ({"hash_bits": 9, "min_df": 2}, "hash_bits"), ({"format": "xml"}, "format"),
    ]:  # fmt: skip
        with raises_code("invalid-option", key):
            TextOptions.of(values)
    with raises_code("unknown-option", "ngrams"):
        TextOptions.of({"ngrams": 1})


@pytest.mark.fault(35)
def test_hash_is_xxh64() -> None:
    rng = np.random.default_rng(3)
    terms = [rng.bytes(int(size)) for size in [*range(100), 1000]]
    data = np.frombuffer(b"".join(terms) + bytes(8), np.uint8)
    offsets = np.cumsum([0] + [len(term) for term in terms])
    for seed in (0, 1, 2**64 - 1):
        wanted = [xxhash.xxh64_intdigest(term, seed) for term in terms]
        assert hash_terms(data, offsets, np.uint64(seed), 48).tolist() == [value % 2**48 for value in wanted]
        assert hash_terms(data, offsets, np.uint64(seed), 3).tolist() == [value % 8 for value in wanted]


@pytest.mark.fault(35)
@pytest.mark.parametrize("bits", [3, 20, 48])
def test_hashed_features(tmp_path: Path, bits: int) -> None:
    documents = random_texts(120)
    common = {"ngram_range": (1, 2)}
    ingest_bytes(tmp_path, "a.jsonl", jsonl(documents), out="exact", **common)
    manifest = ingest_bytes(tmp_path, "a.jsonl", jsonl(documents), out="hashed", hash_bits=bits, **common)
    assert manifest.features.count == 1 << bits
    store = Store.open(tmp_path / "hashed")
    shards = [store.read(i) for i in range(store.n_shards)]
    _, _, _, rows = store_content(tmp_path / "exact")
    wanted = []
    for row in rows:
        sums: dict[int, int] = {}
        for term, count in row.items():
            feature = xxhash.xxh64_intdigest(term.encode()) % 2**bits
            sums[feature] = sums.get(feature, 0) + count
        wanted.append(sorted(sums.items()))
    got = [
        list(zip(s.indices[a:b].tolist(), s.counts[a:b].tolist(), strict=True))
        for s in shards
        for a, b in zip(s.indptr[:-1], s.indptr[1:], strict=True)
    ]
    assert got == wanted
    if bits == 48:
        feature = xxhash.xxh64_intdigest("naïve".encode()) % 2**48
        described = store.describe(np.array([feature])).to_pylist()
        assert described[0]["term"] == "naïve"
        assert described[0]["documents"] == sum("naïve" in row for row in rows)


def test_count_texts() -> None:
    options = TextOptions(ngram_range=(1, 2))
    indptr, indices, counts = count_texts(
        ["The cat, the CAT the", "", "dog"], Features.named(["the cat", "dog"]), options
    )
    assert (indptr.tolist(), indices.tolist(), counts.tolist()) == ([0, 1, 1, 2], [0, 1], [2, 1])
    assert count_texts([], Features.named([]), options)[0].tolist() == [0]
    assert count_texts(["ab cd"], Features.named([]), options)[0].tolist() == [0, 0]
    ids = np.array(sorted(xxhash.xxh64_intdigest(t.encode()) % 2**40 for t in ("the cat", "dog")))
    indptr, indices, counts = count_texts(["the cat the cat", "dog"], Features.hashed(ids, 40), options)
    assert indptr.tolist() == [0, 1, 2]
    assert sorted(indices.tolist()) == [0, 1]
    assert counts.tolist() == [2, 1]
    with raises_code("encoding", "Text 1"):
        count_texts(["a\ud800"], Features.named(["ab"]), options)


def test_read_documents_in_batches(tmp_path: Path) -> None:
    documents = random_texts(300)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(documents)))
    batches = list(read_documents([str(tmp_path / "a.jsonl.gz")], TextOptions(), batch_bytes=4096))
    assert len(batches) > 3
    assert [text for batch in batches for text in batch.texts()] == documents
    assert batches[0].labels.to_pylist()[:2] == ["p", "n"]
    assert next(read_documents([str(tmp_path / "a.jsonl.gz")], TextOptions(), labelled=False)).labels is None


def test_input_given_twice(tmp_path: Path) -> None:
    with raises_code("duplicate-input", tmp_path / "a.txt"):
        (tmp_path / "a.txt").write_text("ab\n")
        ingest([str(tmp_path / "a.txt")] * 2, tmp_path / "out", TextOptions())
