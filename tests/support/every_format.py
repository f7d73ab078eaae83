"""The same few documents in every format, and labelled ones of every kind: options of reading make a difference."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

FORMATS = {
    **{name: f"a.{name}" for name in ("jsonl", "csv", "tsv", "svmlight", "parquet", "arrow")},
    "lines": "a.txt",
    "processed": "a.review",
    "folder": "texts",
    "records": "records",
}
"""Names of the inputs by kind: `folder` has one document per file, `records` JSON lines."""
LABELS = ("two", "numbers", "three", "multi")
"""Kinds of labels."""
TEXTS = {
    "sea": ("The Wave, of a boat naïve 3", 'the "Salt", wave tide anchor', "a boat, tide the incomprehensibilities"),
    "wood": ("the Tree, and a leaf naïve 12", 'moss, "Bark" of the leaf', "a Leaf, the moss tree 7"),
}
WORDS = {"sea": "wave boat tide", "wood": "tree leaf moss", "air": "kite wind cloud"}


def documents(prefix: str, extra: str = "") -> list[dict[str, Any]]:
    """Six documents; the labels are in `label`, and the opposite ones in `other`."""
    pairs = [(label, texts[k]) for k in range(3) for label, texts in TEXTS.items()]
    return [
        {
            "id": f"{prefix}{k}",
            "key": f"k{k}",
            "label": label,
            "other": "wood" if label == "sea" else "sea",
            "text": text + extra,
            "title": f"title{k} {text.split()[1]}",
            "split": "test" if k > 3 else "train",
            "weight": 1 + k / 2,
            "author": f"a{k // 2}",
            "date": f"2024-01-0{k + 1}",
        }
        for k, (label, text) in enumerate(pairs)
    ]


def write_formats(folder: Path, rows: list[dict[str, Any]], bad: bytes = b"") -> None:
    """The documents in every format; `bad`, text that is not UTF-8, is one more."""
    folder.mkdir()
    further = {**rows[0], "id": "bad", "text": "@"}
    every = [*rows, *([further] if bad else [])]
    lines = [json.dumps(row, ensure_ascii=False).encode().replace(b"@", bad) + b"\n" for row in every]
    (folder / "a.jsonl").write_bytes(b"".join(lines))
    (folder / "records").mkdir()
    for k, part in enumerate((lines[:2], lines[2:])):
        (folder / "records" / f"part{k}.jsonl").write_bytes(b"".join(part))
    (folder / "a.csv").write_bytes(_delimited(every, delimiter=",").replace(b"@", bad))
    tsv = _delimited(every, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None).replace(b"@", bad)
    (folder / "a.tsv").write_bytes(re.sub(rb"(?m)^(\w\d)\t", rb'"\1"\t', tsv))  # ids in quotes
    (folder / "a.txt").write_bytes(b"".join(row["text"].encode().replace(b"@", bad) + b"\n" for row in every))
    for row in every:
        path = folder / "texts" / row["label"] / f"{row['id']}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["text"].encode().replace(b"@", bad))
    counts = [f"{row['label'].replace('oo', 'ö')} {k % 3}:{k + 1} {k + 4}:1 9:2\n" for k, row in enumerate(rows)]
    (folder / "a.svmlight").write_bytes("".join(counts).encode() + (bad and bad[-1:] + b" 1:1\n"))
    terms = [" ".join(f"{word}:1" for word in sorted(set(row["text"].split()))) for row in every]
    reviews = [f"{own} #label#:{row['label']}\n" for own, row in zip(terms, every, strict=True)]
    (folder / "a.review").write_bytes("".join(reviews).encode().replace(b"@", bad[-1:]))
    texts = pa.array([row["text"].encode().replace(b"@", bad) for row in every])
    table = pa.Table.from_pylist(every)
    table = table.set_column(table.schema.get_field_index("text"), "text", texts.view(pa.string()))
    pq.write_table(table, folder / "a.parquet")
    feather.write_feather(table, str(folder / "a.arrow"), compression="uncompressed")


def _delimited(rows: list[dict[str, Any]], **dialect: Any) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def write_labelled(path: Path, kind: str) -> None:
    """60 JSON lines with labels of a kind, of `LABELS`, groups and times."""
    lines = []
    for k in range(60):
        name = ("sea", "wood", "wood", "air" if kind == "three" else "wood")[k % 4]
        own = WORDS[name].split()
        noise = ["the", "wave", "tree", "grey", "old"][k % 5]
        text = f"{own[k % 3]} {own[k % 2]} {noise} {'wave ' * (k % 7 == 0)}"
        labels = {"multi": [name] + ["air"] * (k % 3 == 0), "numbers": text.count("wave") + k % 3 / 4}
        row = {"id": k, "label": labels.get(kind, name), "text": text, "group": k // 6, "time": k}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
