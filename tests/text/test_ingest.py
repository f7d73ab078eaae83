"""Formats, bad rows, options, limits and hashing of ingest."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from sparseoco.core.errors import InputError
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location, resolve_against
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text import passes
from sparseoco.text.encoding import HashIndex
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import count_texts, read_documents
from sparseoco.text.vocabulary import Vocabulary
from tests.support.errors import raises_code
from tests.support.ingests import COMPRESSORS, ingest_bytes, jsonl, random_texts, store_content, write_files
from tests.support.tables import TABLE_WRITERS, WRITERS

# ----------------------------------------------------------------------------------------------------------------------
# Formats, options, limits and hashing of ingest.


CUTS = ([2, 1], [1, np.inf], [np.nan])


def test_svmlight_and_processed(tmp_path: Path) -> None:
    ingest_bytes(tmp_path, "a.svm", b"+1 qid:3 0:1 7:2.5 # note\n\n-1 7:1 7:1 9:0\n1.0 3:4\n")
    terms, ids, labels, rows = store_content(tmp_path / "out")
    assert (terms, ids, labels) == (["7", "0", "3"], ["a.svm:1", "a.svm:3", "a.svm:4"], [1, 0, 1])
    assert rows == [{"0": 1, "7": 2.5}, {"7": 2}, {"3": 4}]
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


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("memory://there/none.jsonl", "missing-file"),
        ("none.jsonl", "missing-file"),
        ("odd", "unknown-format"),
    ],
)
def test_inputs_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, code: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").write_bytes(b"what is this\n")
    with raises_code(code, given):
        ingest([given], tmp_path / "out", TextOptions())


@pytest.mark.fault(29)
def test_duplicates_option_per_ingest(tmp_path: Path) -> None:
    row, new = b'{"id":"a","text":"good day","label":"x"}\n', b'{"id":"b","text":"good day","label":"x"}\n'
    assert ingest_bytes(tmp_path, "1.jsonl", row + row, duplicates="all").rows == 2
    assert ingest_bytes(tmp_path, "2.jsonl", new).rows == 3
    with raises_code("duplicate-id", "1.jsonl and ", "3.jsonl, line 1 ", "duplicates = first"):
        ingest_bytes(tmp_path, "3.jsonl", row)
    manifest = ingest_bytes(tmp_path, "3.jsonl", row, duplicates="first")
    assert (manifest.rows, manifest.duplicate_rows) == (3, 1)


ROW = b'{"text":"aa%sbb","label":"a"}\n{"text":"ee","label":"a"}\n'
UNDECODABLE: dict[str, tuple[Any, dict[str, str]]] = {
    "bytes.jsonl": (ROW % b"\xff", {}),
    "surrogate.jsonl": (ROW % rb"\udc00", {}),
    "a.txt": (b"aa\xffbb\r\n\xef\xbb\xbfee\n", {}),
    "a.csv": (b"label,text\na,aa\x81bb\na,ee\n", {"encoding": "cp1252"}),
    "a.parquet": ({"text": [b"aa\xffbb", b"ee"], "label": [b"a\xff", b"a"]}, {}),
}


@pytest.mark.fault(26)
@pytest.mark.parametrize("name", UNDECODABLE)
@pytest.mark.parametrize("policy", ["error", "replace", "skip"])
def test_encoding_errors(tmp_path: Path, name: str, policy: str) -> None:
    data, options = UNDECODABLE[name]
    if isinstance(data, dict):
        pq.write_table(pa.table(data), tmp_path / name)
        data = (tmp_path / name).read_bytes()
    given = {"encoding_errors": policy, **options}
    if policy == "error":
        with raises_code("encoding", name, f"not valid {options.get('encoding', 'UTF-8')}"):
            ingest_bytes(tmp_path, name, data, **given)
        return
    manifest = ingest_bytes(tmp_path, name, data, **given)
    assert manifest.quarantined_rows == (policy == "skip")
    assert ("a\ufffd" in [entry.name for entry in manifest.labels.classes]) == (
        name == "a.parquet" and policy == "replace"
    )
    (batches,) = read_documents([str(tmp_path / name)], TextOptions.of(given), labelled=False)
    assert batches.texts() == ["aa\ufffdbb"] * (policy == "replace") + ["\ufeffee" if name == "a.txt" else "ee"]
    assert store_content(tmp_path / "out")[3] == [{"aa": 1, "bb": 1}] * (policy == "replace") + [{"ee": 1}]


@pytest.mark.fault(27, 28)
def test_limits(tmp_path: Path) -> None:
    with raises_code("decompression-limit", "a.txt.zst", "1000-fold"):  # beyond 64 MiB, which have no limit
        ingest_bytes(tmp_path, "a.txt.zst", COMPRESSORS[".zst"](bytes(72 << 20)))
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


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"min_df": 1.5}, "min_df"),
        ({"ngram_range": (2, 1)}, "ngram_range"),
        ({"hash_bits": 49}, "hash_bits"),
        ({"hash_bits": 9, "min_df": 2}, "hash_bits"),
        ({"format": "xml"}, "format"),
        ({"encoding": "rot13"}, "encoding"),
        ({"classes": ["a"]}, "two or more"),
        ({"classes": ["a", "b", "a"]}, "distinct"),
        ({"classes": ["a", ""]}, "classes"),
        ({"classes": ["a", "b"], "labels": "numbers"}, 'labels = "classes"'),
        ({"carried": ["a", "a"]}, "carried"),
        ({"stop_words": "absent.txt"}, "absent.txt"),
        ({"analyzer": "char_wb", "stop_words": ["the"]}, "stop_words"),
        ({"analyzer": "char_wb", "token_pattern": "numbers"}, "token_pattern"),
        ({"analyzer": "char_wb", "max_token_length": 3}, "max_token_length"),
        ({"fields": {"a:b": {"type": "text"}}}, "fields"),
        ({"fields": {"label": {"type": "category"}}}, "label"),
        ({"fields": {"a": {"type": "texts"}}}, "fields"),
        ({"fields": {"a": {"type": "text", "bins": 3}}}, "fields"),
        *(({"fields": {"a": {"type": "number", "transform": "bins", "cuts": cuts}}}, "cuts") for cuts in CUTS),
        ({"fields": {"a": {"type": "number", "cuts": [1, 2]}}}, "cuts"),
        ({"fields": {"a": {"type": "text"}}, "hash_bits": 10}, "hash_bits"),
        ({"fields": {"a": {"type": "text"}}, "text_field": "body"}, "text_field"),
        ({"fields": {"a": {"type": "text"}}, "format": "svmlight"}, "format"),
        ({"ngrams": 1}, "ngrams"),
    ],
    ids=str,
)
def test_invalid_options(values: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        TextOptions.of(values)
    assert caught.value.code in ("invalid-option", "unknown-option", "unsupported-combination")
    assert named in str(caught.value)


@pytest.mark.fault(35)
@pytest.mark.parametrize("bits", [3, 20, 48])
def test_hashed_features(tmp_path: Path, bits: int) -> None:
    """Of XXH64; also of terms of a hundred bytes and more."""
    documents = [*random_texts(120), *("x" * size for size in (*range(2, 100), 1000))]
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


def test_count_texts() -> None:
    options = TextOptions(ngram_range=(1, 2))
    assert count_texts([], Vocabulary.from_terms([]), options)[0].tolist() == [0]
    assert count_texts(["ab cd"], Vocabulary.from_terms([]), options)[0].tolist() == [0, 0]
    ids = np.array(sorted(xxhash.xxh64_intdigest(t.encode()) % 2**40 for t in ("the cat", "dog")))
    indptr, indices, counts = count_texts(["the cat the cat", "dog"], HashIndex(ids, 40), options)
    assert indptr.tolist() == [0, 1, 2]
    assert sorted(indices.tolist()) == [0, 1]
    assert counts.tolist() == [2, 1]
    with raises_code("encoding", "Text 1"):
        count_texts(["a\ud800"], Vocabulary.from_terms(["ab"]), options)


# ----------------------------------------------------------------------------------------------------------------------
# Rows that are bad in some format: an error that names the line, or a row of the quarantine.


GOOD = {
    "a.jsonl": (b"", b'{"text":"good day","label":%s,"n":1}\n'),
    "a.csv": (b"label,text\n", b'%s,"good\nday"\n'),
    "a.tsv": (b"label\ttext\n", b"%s\tgood day\n"),
    "a.svm": (b"", b"1 1:1\n"),
    "a.review": (b"", b"good:1 #label#:%s\n"),
}
"""The header, and a good row with a label."""
MALFORMED, MISSING, LABELS, UNKNOWN = "malformed-record", "missing-field", "invalid-labels", "unknown-class"
NUMBERS, MULTI, NAMED = {"labels": "numbers"}, {"labels": "multi"}, {"classes": ("a", "b", "1")}
ONE_FIELD = dict.fromkeys(("weight_field", "group_field", "time_field"), "n")
BAD: list[tuple[str, bytes, str, dict[str, Any]]] = [
    *(
        ("a.jsonl", row, code, {})
        for row, code in {
            b"{": MALFORMED, b"[1]": MALFORMED, b'{"label":"a"}': MISSING, b'{"text":3,"label":"a"}': MALFORMED,
            b'{"text":"ab"}': MISSING, b'{"text":"ab","label":null}': MISSING, b'{"text":"ab","label":1.5}': LABELS,
            b'{"text":"ab","label":""}': LABELS, b'{"text":"ab","label":"a","id":[1]}': MALFORMED,
            b'{"text":"a\xffb","label":"a"}': "encoding", b'{"text":"a\\ud800b","label":"a"}': "encoding",
            b'{"text":"ab","label":"a"} x': MALFORMED, b'{"text":"ab","label":"a",}': MALFORMED,
            b'{"text":"a\x01b","label":"a"}': MALFORMED, b'{"text":"ab","label":01}': MALFORMED, b"nul": MALFORMED,
            b'{"text":"ab","label":["a"]}': LABELS,
        }.items()
    ),
    *(
        ("a.jsonl", b'{"text":"ab","label":"a","n":%s}' % n, MISSING if n == b"null" else MALFORMED, {field: "n"})
        for field, values in {
            "weight_field": (b"-0.5", b"1e39", b'"nan"', b"[]", b"null"),
            "group_field": (b"[1]", b"null"),
            "time_field": (b'"soon"', b"1e400", b"null"),
        }.items()
        for n in values
    ),
    *(("a.jsonl", b'{"text":"ab","label":"a"}', MISSING, {field: "n"}) for field in ONE_FIELD),
    ("a.jsonl", b'{"text":"ab","label":"a","n":-1}', MALFORMED, ONE_FIELD),
    ("a.jsonl", b'{"text":"ab","label":"a"}', MISSING, ONE_FIELD),
    *(("a.jsonl", b'{"text":"ab","label":%s}' % label, LABELS, NUMBERS) for label in (b"9" * 400, b'"x"')),
    *(("a.jsonl", b'{"text":"ab","label":%s}' % label, LABELS, MULTI) for label in (b'["a",""]', b'[["a"]]')),
    ("a.jsonl", b'{"text":"ab","label":null}', MISSING, MULTI),
    *(("a.jsonl", b'{"label":%s,"text":"ab"}' % label, UNKNOWN, NAMED) for label in (b'"q"', b'"\\u0071"')),
    ("a.csv", b"q,ab", UNKNOWN, NAMED),
    *(("a.csv", b"%s,some words" % label, MISSING, {}) for label in (b"nan", b"NaN", b"-nan")),
    ("a.csv", b",some words", LABELS, {}),
    ("a.csv", b"2", MALFORMED, {}),
    ("a.tsv", b"q\tab", UNKNOWN, NAMED),
    ("a.review", b"ab:1 #label#:positive #label#:negative", LABELS, {}),
    ("a.review", b"ab:1 #label#:q", UNKNOWN, NAMED),
    *(
        ("a.svm", row, MALFORMED, {})
        for row in (
            b"1 a:1", b"1 3", b"1 3:nan", b"1 3:1e39", b"1 3:-3e38 3:-3e38", b"x:1 2:1", b"1 -1:2", b"1 1:1_0",
            b"1 " + b"7" * 5000 + b":1", b"1 9223372036854775808:1",
        )
    ),
    *(("a.svm", b"%s 1:1" % label, LABELS, {}) for label in (b"1_0", b"nan", b"NaN", b"-nan", b"inf", b"-Infinity")),
    ("a.svm", b" 1:1", MISSING, {}),
    ("a.svm", b"1_0 1:1", LABELS, NUMBERS),
    ("a.svm", b"1,x_1, 1:1", LABELS, MULTI),
    ("a.svm", b"3 1:2", UNKNOWN, NAMED),
]  # fmt: skip


@pytest.mark.fault(23, 31, 32, 33, 45)
@pytest.mark.parametrize(("name", "row", "code", "options"), BAD)
def test_a_bad_row(tmp_path: Path, name: str, row: bytes, code: str, options: dict[str, Any]) -> None:
    head, good = GOOD[name]
    if b"%s" in good:
        label = {"numbers": "1", "multi": '["a"]'}.get(options.get("labels", ""), '"a"')
        good = good % (label if name == "a.jsonl" else "a").encode()
    data = head + good + row + b"\n" + good
    place = len(head + good)
    given = options | {"format": "processed" if "review" in name else "auto"}
    with raises_code(code, f"{name}, line {data[:place].count(10) + 1}: ") as caught:
        ingest_bytes(tmp_path, name, data, out="stop", **given)
    said = str(caught.value).partition(f"{name}, line ")[2]
    assert not re.search(r"\bab\b|\bq\b", said)  # no text of documents
    manifest = ingest_bytes(tmp_path, name, data, max_bad_rows=1, **given)
    assert (manifest.rows, manifest.quarantined_rows) == (2, 1)
    (bad,) = pq.read_table(tmp_path / "out" / manifest.quarantine[0].file).to_pylist()
    assert (bad["line"], bad["offset"]) == (data[:place].count(10) + 1, place)
    assert not re.search(r"\bab\b|\bq\b", bad["reason"])


# Where a bad row is, and how many may be, does not depend on splits.


def test_limit_of_bad_rows_holds_for_all_shards(tmp_path: Path) -> None:
    """However the files are split, the same row is one too many."""
    lines = jsonl(random_texts(200)).splitlines(keepends=True)
    for k in range(20, 200, 20):
        lines[k] = b"{\n"
    (tmp_path / "b.jsonl").write_bytes(jsonl(random_texts(3), id=lambda k: f"b{k}") + b"{\n")
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for size in (1024, 1 << 20):

        def take(allowed: int, size: int = size) -> Manifest:
            return ingest(inputs, tmp_path / str(size), TextOptions(max_bad_rows=allowed), shard_bytes=size)

        with raises_code("too-many-bad-rows", "a.jsonl, line 81: ", "max_bad_rows = 3", "--max-bad-rows"):
            take(3)
        with raises_code("too-many-bad-rows", "b.jsonl, line 4: "):
            take(9)
        assert take(10).quarantined_rows == 10


def test_max_bad_rows_per_ingest(tmp_path: Path) -> None:
    good = b'{"text":"good day","label":"a"}\n'
    first = ingest_bytes(tmp_path, "first.jsonl", good)
    with raises_code("malformed-record", "second.jsonl, line 2", "--max-bad-rows"):
        ingest_bytes(tmp_path, "second.jsonl", good + b"{\n")
    second = ingest_bytes(tmp_path, "second.jsonl", good + b"{\n", max_bad_rows=1)
    assert (first.rows, second.rows, second.quarantined_rows) == (1, 2, 1)
    third = ingest_bytes(tmp_path, "third.jsonl", good)
    assert (third.version, third.rows, third.quarantined_rows) == (3, 3, 1)
    with raises_code("options-changed", tmp_path / "out", "(lowercase)"):
        ingest_bytes(tmp_path, "third.jsonl", good, max_bad_rows=1, lowercase=False)
    with raises_code("no-documents", "label field 'place' is missing or null; the fields are 'text'"):
        ingest_bytes(tmp_path, "first.jsonl", good, out="none", max_bad_rows=1, label_field="place")
    with raises_code("no-documents", "where"):
        ingest_bytes(tmp_path, "first.jsonl", good, out="none", where={"place": "here"})


# ----------------------------------------------------------------------------------------------------------------------
# The same documents in every format, packed or not, here or in an object store, cut anywhere: the same store.


ROWS = 80
DOCUMENTS: list[dict[str, Any]] = [
    {"text": text, "label": "pn"[k % 2], "id": f"d{k:03}", "w": k / 4, "by": f"g{k % 3}", "at": 86400.0 * k}
    for k, text in enumerate(random_texts(ROWS))
]
FIELDS = {"weight_field": "w", "group_field": "by", "time_field": "at"}
PACKED = [f"{name}{packing}" for name in ("a.jsonl", "a.csv", "a.tsv", "a.txt", "texts") for packing in COMPRESSORS]


def write(folder: Path, name: str, rows: int) -> dict[str, Any]:
    """Write the documents, in so many rows a row group; gives what they are read with."""
    if name == "parts":
        write_files(folder / name, {".hidden": "no JSON"})
        for k, (packing, pack) in enumerate(COMPRESSORS.items()):
            lines = [json.dumps(row) + "\n" for row in DOCUMENTS[k * 30 : (k + 1) * 30]]
            (folder / name / f"{k}.jsonl{packing}").write_bytes(pack("".join(lines).encode()))
        return FIELDS
    base, packing = re.fullmatch(r"(texts|\w\.\w+)(|\.gz|\.zst)", name).groups()
    pack = COMPRESSORS[packing]
    if base == "texts":
        texts = {f"{row['label']}/{row['id']}.txt{packing}": pack(row["text"].encode()) for row in DOCUMENTS}
        write_files(folder / name, texts)
        return {}
    if base == "a.txt":
        (folder / name).write_bytes(pack("\n".join(row["text"] for row in DOCUMENTS).encode()))
        return {}
    WRITERS[base](pa.Table.from_pylist(DOCUMENTS), folder / base, rows)
    data = (folder / base).read_bytes()
    if base == "a.tsv":  # without a header
        (folder / name).write_bytes(pack(data.partition(b"\n")[2]))
        numbered = {"text": "1", "label": "2", "id": "3", "weight": "4", "group": "5", "time": "6"}
        return {"header": False} | {f"{field}_field": column for field, column in numbered.items()}
    (folder / name).write_bytes(pack(data.replace(b"\n", b"\r\n") if base == "a.csv" else data))
    return FIELDS


@pytest.mark.parametrize(
    ("name", "place", "shard_bytes"),
    [
        (name, place, (1024, 1 << 20)[(i + i // 3 + k) % 2])
        for i, name in enumerate([*PACKED, "parts", *TABLE_WRITERS])
        for k, place in enumerate(["here", "parts", "memory"])
        if i % 3 == 0 or i >= len(PACKED) or (i + i // 3 + k) % 3  # packed ones in two of the places
    ],
)
def test_formats_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str, shard_bytes: int
) -> None:
    """Digested in parts of any size, and with any number of splits a task."""
    if place == "parts":
        monkeypatch.setattr(stored, "PART_BYTES", 1234)
        monkeypatch.setattr(passes, "TASKS", 1)
    options = write(tmp_path, name, 1000 if place == "memory" else 7)
    source = str(tmp_path / name)
    if place == "memory":
        root = location(f"memory://{tmp_path.name}")
        for path in [tmp_path / name, *(tmp_path / name).rglob("*")]:
            if path.is_file():
                commit_bytes(resolve_against(root, str(path.relative_to(tmp_path))), path.read_bytes())
        source = str(root / name)
    manifest = ingest([source], tmp_path / "out", TextOptions.of(options), shard_bytes=shard_bytes)
    assert manifest.n_shards > 4 if shard_bytes == 1024 else manifest.n_shards == (3 if name == "parts" else 1)
    _, ids, labels, counts = store_content(tmp_path / "out")
    rows = sorted(DOCUMENTS, key=lambda row: row["label"]) if "texts" in name else DOCUMENTS
    assert counts == [Counter(re.findall(r"\w\w+", row["text"].lower())) for row in rows]
    if name.startswith("a.txt"):
        assert ids == [f"{name}:{k}" for k in range(1, ROWS + 1)]
        return
    assert [("n", "p")[label] for label in labels] == [row["label"] for row in rows]
    if "texts" in name:
        suffix = name.removeprefix("texts")
        assert ids == [f"{name}/{row['label']}/{row['id']}.txt{suffix}" for row in rows]
        return
    assert ids == [row["id"] for row in rows]
    store = Store.open(tmp_path / "out")
    assert store.column("weight").tolist() == np.float32([row["w"] for row in rows]).tolist()
    assert store.column("time").tolist() == [row["at"] for row in rows]
    groups = store.column("group").tolist()
    assert len(set(groups)) == len(set(zip(groups, [row["by"] for row in rows], strict=True))) == 3
    assert ingest([source], tmp_path / "out", TextOptions.of(options)) == manifest  # nothing is new


PLAIN = {"a.txt": "1 1:1\n", "a.svm": "1 1:1\n", "a.review": "a:1 #label#:p\n", "texts/p/1.txt": "word"}


OF_FIELDS: dict[str, Any] = {"where": {"split": "train"}, "weight_field": "w", "group_field": "w", "time_field": "w"}
OF_FIELDS |= {"carried": ("url",), "fields": {"t": {"type": "text"}}}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("option", OF_FIELDS)
def test_formats_without_fields(tmp_path: Path, name: str, option: str) -> None:
    write_files(tmp_path, {name: PLAIN[name]})
    source, options = str(tmp_path / name.partition("/")[0]), TextOptions.of({option: OF_FIELDS[option]})
    with raises_code("unsupported-combination", source, option):
        ingest([source], tmp_path / "out", options)
    if not option.endswith("_field"):  # which predictions do not need
        with raises_code("unsupported-combination", source, option):
            list(read_documents([source], options, labelled=False))
    assert all(not batch.carried for batch in read_documents([source], TextOptions(), labelled=False))
