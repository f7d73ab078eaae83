"""A sample of raw text, and the store of all of it, extrapolated from the growth of the sample's vocabulary.

Small inputs are ingested as a whole. Of others, the store is extrapolated from those of half the sample and of all of
it, by a power law (Heaps' law).
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import percent
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.charsets import UTF8
from sparseoco.text.documents import Documents
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.preview import Sample, Slice, gap
from sparseoco.text.sources import SUFFIXES, find_sources

SLICE = 1 << 18
ENDINGS = {form: suffix for suffix, form in reversed(SUFFIXES.items())}
PARSED = {"encoding": UTF8, "include": (), "exclude": (), "format": "auto", "where": {}, "holdout": 0.0}
"""Options of the original files that do not apply to the sample."""


class Extrapolation(NamedTuple):
    """The store of a sample; the whole store expected, and the processor seconds to build it; the sample's share of the
    text, and its rows that cannot be read."""

    sample: Store
    whole: Store
    seconds: float
    share: float
    bad: int


def sampled(share: float) -> str:
    """What an estimate from this share of the text is based on."""
    return "all of the text" if share == 1.0 else f"a sample of {percent(share)} of the text"


def extrapolate(inputs: Sequence[str], options: TextOptions, folder: Path, shard_bytes: int | None) -> Extrapolation:
    """The store that these inputs would give, by a sample ingested into `folder`.

    Raises `InputError` as the ingest of the inputs, for what the sample has of it.
    """
    sample = Sample(find_sources(list(inputs), options), options, SLICE)
    if sample.is_whole:
        manifest, seconds = _ingest(list(inputs), folder / "all", options, shard_bytes)
        store = Store(folder / "all", manifest)
        return Extrapolation(store, store, seconds, 1.0, manifest.quarantined_rows)
    slices: dict[tuple[int, str], list[tuple[int, int, bytes]]] = {}  # numbers of splits, their bytes and documents
    for part in sample:
        source, ending = part.split.source, _ending(part)
        kept = [each for each in slices.get((source, ending), []) if each[0] % gap(part.number) == 0]
        slices[source, ending] = [*kept, (part.number, part.split.bytes, _content(part, options))]
    if not sample.rows:
        where = ": check the option where" if options.where else ""
        raise InputError(f"No document was read in {sampled(sample.share)}{where}.", code="no-documents")
    total = 0.0
    for (source, _), taken in slices.items():
        share = sample.sources_share * sum(size for _, size, _ in taken) / max(sample.totals[source], 1)
        total += sum(len(data) for *_, data in taken) / max(share, 1e-9)
    lenient = options.model_copy(update={"duplicates": "all", **PARSED})
    halves: list[tuple[Manifest, int, float]] = []
    for label, step in (("half", 2), ("all", 1)):
        (folder / f"{label}.text").mkdir()
        paths, size = [], 0
        for (source, ending), taken in slices.items():
            path = folder / f"{label}.text" / f"{source}{ending}"
            path.write_bytes(b"".join(data for *_, data in taken[::step]))
            paths.append(str(path))
            size += path.stat().st_size
        manifest, seconds = _ingest(paths, folder / label, lenient, shard_bytes)
        halves.append((manifest, size, seconds))
    (half, half_size, _), (every, size, seconds) = halves
    times, doublings = max(1.0, total / size), math.log2(max(1.01, size / half_size))
    whole = Store(folder / "all", _grown(half, every, times, doublings, options), Store(folder / "all", every).shards)
    return Extrapolation(Store(folder / "all", every), whole, seconds * times, sample.share, sample.bad)


def _ingest(inputs: list[str], out: Path, options: TextOptions, shard_bytes: int | None) -> tuple[Manifest, float]:
    """The manifest of an ingest, and its processor seconds in all threads."""
    started = time.process_time()
    return ingest(inputs, out, options, shard_bytes=shard_bytes), time.process_time() - started


def _ending(part: Slice) -> str:
    """The suffix of a file of documents: those that are given as counts keep their format."""
    if not isinstance(part.documents, Documents):
        return ENDINGS[part.split.format]
    return ".txt" if part.documents.labels is None else ".jsonl"


def _content(part: Slice, options: TextOptions) -> bytes:
    documents = part.documents
    if not isinstance(documents, Documents):
        assert isinstance(part.content, np.ndarray)
        return part.content[: part.split.bytes].tobytes()
    if documents.labels is None:
        return "".join(f"{text.replace(chr(10), ' ')}\n" for text in documents.texts()).encode()
    labels: Any = documents.labels
    columns = {options.id_field: documents.ids.to_pylist(), options.label_field: labels.tolist()}
    columns |= {options.columns[name]: values.tolist() for name, values in documents.columns.items()}
    columns |= {name: values.tolist() for name, values in documents.fields.items()}
    columns |= {} if options.fields else {options.text_field: documents.texts()}
    rows = zip(*columns.values(), strict=True)
    return b"".join(orjson.dumps(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


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
