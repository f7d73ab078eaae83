"""Encoding partial counts as the shards of the store, in tasks of one or several splits."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sparseoco.core.logs import log_event
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.data_files import is_written
from sparseoco.store.entries import ShardEntry
from sparseoco.store.manifest import FileEntry, Manifest
from sparseoco.store.shards import ShardRows
from sparseoco.store.writing import write_names, write_shard
from sparseoco.text.array_files import load_arrays, save_arrays, stored_strings
from sparseoco.text.counting.partial_counts import COLUMN, PartialCounts
from sparseoco.text.encoding.encode import encode_rows
from sparseoco.text.encoding.frequencies import stage_frequencies
from sparseoco.text.encoding.hashing import hash_ngrams
from sparseoco.text.encoding.labels import LabelEncoding
from sparseoco.text.job import TextJob
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.build import FeatureMap

Piece: TypeAlias = tuple[str, int, int, Location]
"""The path of partial counts, the number of the split, that of its source, and the file of the entry of its shard."""


class EncodedShard(NamedTuple):
    """A written shard.

    Parameters
    ----------
    entry : ShardEntry
        Its entry in the manifest.
    dropped : int
        Occurrences of terms that a frozen vocabulary lacks.
    names : FileEntry or None
        The names of hashed features.
    frequencies : str or None
        Path of its staged document frequencies.
    """

    entry: ShardEntry
    dropped: int
    names: FileEntry | None
    frequencies: str | None


class ShardEncoder(NamedTuple):
    """Encodes the shards of an ingest; sent to every task.

    `feature_map` is None for hashed features; `with_frequencies` is whether document frequencies are staged.
    """

    out: Location
    options: TextOptions
    labels: LabelEncoding
    feature_map: FeatureMap | None
    n_features: int
    dtype: str
    with_frequencies: bool

    def encode_all(self, pieces: Sequence[Piece]) -> list[EncodedShard]:
        """Write the shards of some pieces, one after the other (see `encode`)."""
        return [self.encode(*piece) for piece in pieces]

    def encode(self, path: str, index: int, source: int, memo: Location) -> EncodedShard:
        """Write the partial counts of split `index` as a shard, and its entry to `memo`, for a rerun after a kill."""
        frequencies = memo.with_suffix(".frequencies") if self.with_frequencies else None
        written = _read_memo(memo, self.out, frequencies)
        if written is not None:
            return written
        arrays, _ = load_arrays(location(path))
        names = None
        if self.feature_map is not None:
            features = self.feature_map.features(arrays, index)
        else:
            features, terms, nodes, totals, documents = hash_ngrams(arrays, self.options)
            if len(terms):
                names = write_names(self.out, features[nodes], terms, totals, documents)
        indptr, indices, values = encode_rows(arrays, features, self.n_features, self.options)
        if frequencies is not None:
            stage_frequencies(frequencies, indices)
        rows = ShardRows(
            stored_strings(arrays, "id"),
            self.labels.column(arrays),
            indptr,
            indices,
            values.astype(self.dtype, copy=False),
            {name: arrays[f"{COLUMN}{name}"] for name in self.options.columns},
        )
        entry = write_shard(self.out, rows, n_features=self.n_features, source=source)
        dropped = 0
        # Terms that the selection of a new vocabulary excludes do not count as dropped.
        if self.feature_map is not None and self.feature_map.n_known > 0:
            unknown = arrays["counts"][features[arrays["ngrams"]] < 0]
            dropped = int(np.count_nonzero(unknown) if self.dtype == "float64" else unknown.sum())
        shard = EncodedShard(entry, dropped, names, None if frequencies is None else str(frequencies))
        facts = {
            "entry": entry.model_dump(mode="json"),
            "dropped": dropped,
            "names": names.model_dump(mode="json") if names is not None else None,
        }
        save_arrays(memo, {}, facts)
        return shard


def encode_shards(
    job: TextJob,
    counts: list[PartialCounts],
    labels: LabelEncoding,
    feature_map: FeatureMap | None,
    previous: Manifest | None,
) -> list[EncodedShard]:
    """Write every split as a shard; sources are numbered after those of the previous version of the store."""
    first_source = 0 if previous is None else previous.n_sources
    dtype = np.result_type(np.uint16, *(split.dtype for split in counts)).name
    n_features = feature_map.n_features if feature_map is not None else 1 << (job.options.hash_bits or 0)
    with_frequencies = feature_map is None or previous is not None
    encoder = ShardEncoder(job.out, job.options, labels, feature_map, n_features, dtype, with_frequencies)
    key = feature_map.key if feature_map is not None else "hashed"
    pieces: list[Piece] = []
    for index, split in enumerate(counts):
        source = first_source + split.split.source  # changes if new files precede it in a rerun
        state = [location(split.path).name, source, key, job.options.digest, dtype, labels.classes]
        pieces.append((split.path, index, source, job.staging / f"{digest_value(state)[:32]}.shard"))
    per_task = job.splits_per_task(len(pieces))
    calls = ((encoder.encode_all, pieces[first : first + per_task]) for first in range(0, len(pieces), per_task))
    shards: list[EncodedShard] = []
    shard: EncodedShard
    for written in job.tasks.in_order(calls, len(pieces)):
        for shard in written:
            log_event("ingest", "shard written", shard=shard.entry.file, rows=shard.entry.rows, bytes=shard.entry.bytes)
            shards.append(shard)
        job.progress("write", len(shards), len(pieces))
    return shards


def _read_memo(memo: Location, out: Location, frequencies: Location | None) -> EncodedShard | None:
    """The shard that an earlier run wrote; None if one of its files is missing or corrupt."""
    if not memo.exists():
        return None
    facts = load_arrays(memo)[1]
    names = FileEntry(**facts["names"]) if facts["names"] is not None else None
    entry = ShardEntry(**facts["entry"])
    if not all(is_written(out, file) for file in (entry, names) if file is not None):
        return None
    if frequencies is not None and not frequencies.exists():
        return None
    return EncodedShard(entry, facts["dropped"], names, None if frequencies is None else str(frequencies))
