"""Raw text for ingests, and the content of a store."""

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

WORDS = ["alpha", "beta", "gamma", "delta", "Épée", "naïve", "σίγμα", "東京", "under_score", "x9", "the", "The"]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def decompress(path: Path) -> bytes:
    """The content of a file that is packed as its name says."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data


def random_texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(n)]


def jsonl(documents: list[str], **fields: Callable[[int], Any]) -> bytes:
    """JSON lines with ids d0, d1, … and labels p, n, …; `fields` make other values from the row number."""
    rows = [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": text} | {name: make(k) for name, make in fields.items()}
        for k, text in enumerate(documents)
    ]
    return b"".join(json.dumps(row, ensure_ascii=k % 2 == 0).encode() + b"\n" for k, row in enumerate(rows))


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write texts by relative path."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def ingest_bytes(
    folder: Path, name: str, data: bytes, *, out: str = "out", shard_bytes: int = 4096, **options: Any
) -> Manifest:
    """Ingest one file with this content into folder / out."""
    folder.mkdir(exist_ok=True)
    if not (folder / name).exists() or (folder / name).read_bytes() != data:
        (folder / name).write_bytes(data)
    return ingest([str(folder / name)], folder / out, TextOptions.of(options), shard_bytes=shard_bytes)


def store_content(folder: Path) -> tuple[list[str], list[str], list[Any], list[dict[str, int]]]:
    """(terms, ids, labels, counts by term) of a store."""
    store = Store.open(folder)
    matrix, terms = read_shards(folder)
    shards = [store.read(i, ids=True) for i in range(store.n_shards)]
    ids = [name for shard in shards for name in shard.ids.to_pylist()]
    labels = [label for shard in shards for label in shard.labels.tolist()]
    rows = []
    for d in range(matrix.shape[0]):
        begin, end = matrix.indptr[d : d + 2]
        rows.append({terms[j]: c for j, c in zip(matrix.indices[begin:end], matrix.data[begin:end], strict=True)})
    return terms, ids, labels, rows


def write_documents(path: Path, ids: list[str]) -> None:
    """JSON lines of random words with these ids and three classes."""
    random = np.random.default_rng(0)
    words = [f"{'é' * (k % 3)}w{k}" for k in range(400)]
    with path.open("w") as file:
        for number, name in enumerate(ids):
            text = " ".join(random.choice(words, 8))
            file.write(json.dumps({"id": name, "text": text, "label": number % 3}) + "\n")
