"""A sample of raw text, and the store of all of it, extrapolated from the growth of the sample's vocabulary.

Slices are taken throughout the files, because texts are often sorted by class or by part. The whole store is
extrapolated from those of half the sample and of all of it, by a power law (Heaps' law).
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.charsets import UTF8, NotTextError
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.folders import folder_name, list_files
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import DELIMITERS
from sparseoco.text.parsers.delimited import is_quoted
from sparseoco.text.sources import FOLDERS, SUFFIXES, TABLES, Source, compression_by_name
from sparseoco.text.splits import read_split
from sparseoco.text.streams import Stream

SLICE = 1 << 18
SLICES = 32
FILES = 16  # that are sampled, of many
SAMPLE_SECONDS = 3.0
FOLDER_FILES = 4096
ENDINGS = {form: suffix for suffix, form in reversed(SUFFIXES.items())} | dict.fromkeys(TABLES, ".jsonl")


class Extrapolation(NamedTuple):
    """The store of a sample; the whole store expected, and the processor seconds to build it; the sample's share."""

    sample: Store
    whole: Store
    seconds: float
    share: float


class _Sample(NamedTuple):
    """Slices of a source, named if they are files; `bytes` is the estimated size of all its text."""

    source: Source
    slices: list[tuple[str, bytes]]
    bytes: float


def extrapolate(
    sources: Sequence[Source], options: TextOptions, folder: Path, shard_bytes: int | None
) -> Extrapolation:
    """The store that these sources would give, by a sample ingested into `folder`.

    Raises `InputError` if a source cannot be read.
    """
    sampled = [sources[i * len(sources) // min(FILES, len(sources))] for i in range(min(FILES, len(sources)))]
    taken = [_take(source, options, SAMPLE_SECONDS / len(sampled)) for source in sampled]
    stored = sum(source.bytes for source in sampled)
    total = sum(part.bytes for part in taken) * sum(source.bytes for source in sources) / max(stored, 1)
    of_files = {"encoding": UTF8, "include": (), "exclude": (), "format": "auto"}  # of the originals
    lenient = options.model_copy(update={"duplicates": "all", "max_bad_rows": 1 << 40, **of_files})
    halves: list[tuple[Manifest, int, float]] = []
    for name, step in (("half", 2), ("all", 1)):
        inputs = [_written(part, folder / name, i, step) for i, part in enumerate(taken)]
        size = sum(size for _, size in inputs)
        started = time.process_time()  # of all threads
        store = folder / f"{name}.store"
        manifest = ingest([path for path, _ in inputs], store, lenient, shard_bytes=shard_bytes)
        halves.append((manifest, size, time.process_time() - started))
    (half, half_size, _), (every, size, seconds) = halves
    times, doublings = max(1.0, total / size), math.log2(max(1.01, size / half_size))
    share = min(1.0, size / max(total, 1))
    sample = Store(store, every)
    whole = Store(store, _grown(half, every, times, doublings, options), sample.shards)
    return Extrapolation(sample, whole, seconds * times, share)


def _take(source: Source, options: TextOptions, seconds: float) -> _Sample:
    if source.format in FOLDERS:
        return _take_files(source, options)
    if source.format in TABLES:
        return _take_rows(source, options, seconds)
    stream = Stream(source.path, source.compression, encoding=options.encoding)
    slices: list[tuple[str, bytes]] = []
    quoted = False
    position, gap, until = 0, 1, time.monotonic() + seconds
    quotes = 0  # before the part: after an odd number of them, a newline does not end a record
    for number, part in enumerate(stream):
        if position == 0 and source.format in DELIMITERS:
            quoted = is_quoted(part, DELIMITERS[source.format], options)
        if number % gap == 0:
            whole = _whole_records(
                bytes(part[:SLICE]), quotes, quoted=quoted, first=position == 0, last=len(part) <= SLICE
            )
            slices.append(("", whole))
        if len(slices) > SLICES:
            slices, gap = slices[::2], 2 * gap
        position += len(part)
        quotes += part.count(b'"') if quoted else 0
        if time.monotonic() > until:
            break
    return _Sample(source, slices, source.bytes * position / max(stream.bytes, 1))


def _take_rows(source: Source, options: TextOptions, seconds: float) -> _Sample:
    """Splits of a table as JSON lines."""
    options = options.model_copy(update={"max_bad_rows": 1 << 40, "holdout": 0.0})
    splits = [split for split, _ in SplitReader(0, source, options, SLICE)]
    until, slices = time.monotonic() + seconds, []
    for split in splits[:: max(1, len(splits) // SLICES)]:
        documents = read_split(split, options, labelled=True)
        slices.append(("", _as_json(documents, options)))
        if time.monotonic() > until:
            break
    size = sum(len(data) for _, data in slices)
    return _Sample(source, slices, size * len(splits) / max(len(slices), 1))


def _as_json(documents: Documents | CountedDocuments, options: TextOptions) -> bytes:
    assert isinstance(documents, Documents)
    labels: Any = documents.labels
    columns = {options.id_field: documents.ids.to_pylist(), options.label_field: labels.tolist()}
    columns |= {options.columns[name]: values.tolist() for name, values in documents.columns.items()}
    columns |= {options.text_field: documents.texts()} | {
        field: [value] * len(documents) for field, value in options.where.items()
    }
    rows = zip(*columns.values(), strict=True)
    return b"".join(orjson.dumps(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


def _take_files(source: Source, options: TextOptions) -> _Sample:
    files = list_files(source.path, options)
    slices = []
    chosen = files[:: max(1, len(files) // FOLDER_FILES)]
    for file in chosen:
        compression = compression_by_name(file.name)
        with suppress(NotTextError):  # a bad row
            slices.append((file.name, b"".join(Stream(file.path, compression, encoding=options.encoding))))
    size = sum(len(data) for _, data in slices)
    return _Sample(source, slices, size * len(files) / max(len(chosen), 1))


def _whole_records(part: bytes, quotes: int, *, quoted: bool, first: bool, last: bool) -> bytes:
    """A piece of a file, after so many quotes, without its incomplete records."""
    data = np.frombuffer(part, np.uint8)
    inside = (quotes + np.cumsum(data == ord('"'))) % 2 if quoted else 0
    ends = np.flatnonzero((data == ord("\n")) & (inside == 0)) + 1
    if not ends.size:
        return part if first and last else b""
    return part[0 if first else int(ends[0]) : len(part) if last else int(ends[-1])]


def _written(taken: _Sample, folder: Path, number: int, step: int) -> tuple[str, int]:
    """Every `step`-th slice as a source: (path, bytes)."""
    slices = taken.slices[::step]
    size = sum(len(data) for _, data in slices)
    if taken.source.format in FOLDERS:
        root = folder / str(number) / folder_name(taken.source.path)  # which may be the label
        for name, data in slices:
            path = root / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return str(root), size
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number}{ENDINGS[taken.source.format]}"
    path.write_bytes(b"".join(data for _, data in slices))
    return str(path), size


def _grown(half: Manifest, every: Manifest, times: float, doublings: float, options: TextOptions) -> Manifest:
    """The manifest of so many `times` the sample; half of it was `doublings` smaller."""

    def power(less: float, more: float, most: float) -> float:
        return min(most, max(0.0, math.log2(max(more, 1) / max(less, 1)) / doublings))

    features = every.features.count
    if options.hash_bits is None:
        features = round(features * times ** power(half.features.count, features, 1.0))
        features = min(features, options.max_features or features)
    denser = times ** power(half.nonzeros / max(half.rows, 1), every.nonzeros / max(every.rows, 1), 0.1)
    return every.model_copy(
        update={
            "rows": round(every.rows * times),
            "nonzeros": round(every.nonzeros * times * denser),
            "features": every.features.model_copy(update={"count": features}),
            "bytes": round(every.bytes * times * denser),
        }
    )
