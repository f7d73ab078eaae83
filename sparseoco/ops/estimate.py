"""What a run needs, from the sizes of its text and store: nothing is timed.

The store is the one in the folder, or one of all the text if that is small. Of more text it is extrapolated from the
stores of a sample and of half the sample, by a power law (Heaps' law).

    memory of a process = 400 MB + 128 MB for other steps
                          + the corpus, if it is small enough to be memory-mapped
                          + tasks × (the largest block + 64 MB + 48 bytes per feature)
    time of a search    = that of its blocks, by the costs with which `search.packing` packs them, spread over the tasks
    time to read text   = bytes of text / (bytes that a processor reads in a second × tasks)
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import percent
from sparseoco.learners import find_algorithm
from sparseoco.ops.checks import Shape
from sparseoco.search.packing import (
    CHUNK_BYTES,
    FEATURE_BYTES,
    PROCESS_BYTES,
    BlockKey,
    Job,
    capacity_per_task,
    corpus_bytes,
    job_cost,
    pack,
    schedule,
    state_bytes,
)
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.documents import Documents
from sparseoco.text.formats import SUFFIXES
from sparseoco.text.ingest import COMPRESSION, ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Sample, Slice, gap
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.streams import UTF8
from sparseoco.training.block import search_setting
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

SLICE = 1 << 18
ENDINGS = {form: suffix for suffix, form in reversed(SUFFIXES.items())}
PARSED = {"encoding": UTF8, "include": (), "exclude": (), "format": "auto", "where": {}, "holdout": 0.0}
"""Options of the original files that do not apply to the sample."""
OTHERS_BYTES = 128 << 20  # for the steps before and after a search
COUNTED_BYTES = 10e6  # of text that a processor ingests in a second, with bigrams
EVALUATED_BYTES = 40e6  # of text that it predicts


class Extrapolation(NamedTuple):
    """The store expected of some sources, the share of the text that was read, and its rows that cannot be read."""

    store: Store
    sources: list[Source]
    share: float
    bad: int


def sampled(share: float) -> str:
    """What an estimate from this share of the text is based on."""
    return "all of the text" if share == 1.0 else f"a sample of {percent(share)} of the text"


def text_bytes(sources: Iterable[Source]) -> int:
    """Bytes of text; a byte of a compressed file counts as four, as in `shard_size`."""
    return sum(source.bytes * (COMPRESSION if source.compression else 1) for source in sources)


def extrapolate(inputs: Sequence[str], options: TextOptions, folder: Path, shard_bytes: int | None) -> Extrapolation:
    """The store that these inputs would give, by a sample ingested into `folder`.

    Raises `InputError` as the ingest of the inputs, for what the sample has of it.
    """
    sources = find_sources(list(inputs), options)
    sample = Sample(sources, options, SLICE)
    if sample.is_whole:
        manifest = ingest(list(inputs), folder / "all", options, shard_bytes=shard_bytes)
        return Extrapolation(Store(folder / "all", manifest), sources, 1.0, manifest.quarantined_rows)
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
    halves: list[tuple[Manifest, int]] = []
    for label, step in (("half", 2), ("all", 1)):
        (folder / f"{label}.text").mkdir()
        paths = {folder / f"{label}.text" / f"{source}{ending}": taken for (source, ending), taken in slices.items()}
        size = sum(path.write_bytes(b"".join(data for *_, data in taken[::step])) for path, taken in paths.items())
        manifest = ingest(list(map(str, paths)), folder / label, lenient, shard_bytes=shard_bytes)
        halves.append((manifest, size))
    (half, half_size), (every, size) = halves
    times, doublings = max(1.0, total / size), math.log2(max(1.01, size / half_size))
    whole = Store(folder / "all", _grown(half, every, times, doublings, options), Store(folder / "all", every).shards)
    return Extrapolation(whole, sources, sample.share, sample.bad)


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


class Cost(NamedTuple):
    """The cost of a search and the training after it.

    Parameters
    ----------
    blocks : int
        Tasks of the search.
    memory, disk : int
        Bytes of a process; bytes of the memory-mapped corpus and of checkpoints.
    search_seconds, train_seconds : float
        Estimated times of the online learners.
    left_out : list of str
        Epoch methods, whose time is not included: packing has no costs of them.
    """

    blocks: int
    memory: int
    disk: int
    search_seconds: float
    train_seconds: float
    left_out: list[str]


def estimate_cost(options: SearchOptions, store: Store, shape: Shape) -> Cost:
    """The cost of a search over a store.

    Raises `InputError`, with the figure, if not even one configuration fits in memory.
    """
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in range(1, options.epochs + 1))
    groups: dict[BlockKey, list[Configuration]] = {}
    for fold in range(options.folds) if options.folds > 1 else [NO_FOLD]:
        setting = search_setting(options, store, fold)
        for chosen in options.configurations():
            groups.setdefault(BlockKey.of(setting, milestones, None, chosen), []).append(chosen)
    capacity = capacity_per_task(*shape, options, store)
    jobs = pack(groups, options, store, capacity, resumable=False)
    largest, corpus = max(state_bytes(job.block, store) for job in jobs), corpus_bytes(store)
    online = [job for job in jobs if find_algorithm(job.block.algorithm).online]
    alone = [job._replace(block=job.block.select(job.block.configurations[:1])) for job in online]
    end, _ = schedule([(_seconds(job, store), job.block.parts) for job in online], shape.tasks)
    return Cost(
        blocks=len(jobs),
        memory=PROCESS_BYTES
        + OTHERS_BYTES
        + (corpus if corpus <= MAPPED_BYTES else 0)
        + shape.threads * (largest + CHUNK_BYTES + FEATURE_BYTES * store.n_features),
        disk=corpus + 2 * min(shape.tasks, len(jobs)) * largest,
        search_seconds=end,
        train_seconds=max((_seconds(job, store) for job in alone), default=0.0),
        left_out=sorted({job.block.algorithm for job in jobs if job not in online}),
    )


def _seconds(job: Job, store: Store) -> float:
    return job_cost(job, store) * store.manifest.nonzeros / 1e9
