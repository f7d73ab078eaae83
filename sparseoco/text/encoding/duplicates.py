"""Documents whose id occurred before, found by an exchange of the ids.

Tasks of groups of shards and partial counts divide their ids by ranges of hashes; a task per range compares the ids
with equal hashes; the groups then leave documents out. A document is numbered by its file and row: file · 2^32 + row.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import location
from sparseoco.store.data_files import read_table
from sparseoco.store.entries import ShardTable
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store
from sparseoco.text.array_files import ArrayReader, Arrays, store_strings, stored_strings, string_array
from sparseoco.text.block_files import read_block, write_blocks
from sparseoco.text.counting.partial_counts import PartialCounts, without_rows
from sparseoco.text.hashing import hash_strings
from sparseoco.text.job import TextJob
from sparseoco.text.sources import TABLES
from sparseoco.text.vocabulary.exchange import Exchange, plan_exchange

HASH_BITS = 63
ROW_BITS = 32


class Duplicates(NamedTuple):
    """The duplicates of a range of hashes: their number, the first of them, and the document before it with its id."""

    size: int
    first: int
    before: int


def drop_duplicates(job: TextJob, counts: list[PartialCounts], store: Store | None) -> list[PartialCounts]:
    """The partial counts without documents whose id occurred before, in the store or in these splits.

    All of them if duplicates are allowed. Raises `InputError`, with both positions, if duplicates are an error.
    """
    if job.options.duplicates == "all":
        return counts
    shards = ShardTable.of([]) if store is None else store.shards
    names = [f"{shard.file} {shard.sha256}" for shard in shards]
    names += [location(split.path).name for split in counts]
    n_rows = int(shards.row_offsets[-1]) + sum(split.rows for split in counts)
    if not any(split.rows for split in counts):
        return counts
    exchange = plan_exchange(job.staging, digest_value(names)[:32], names, n_rows, 1)
    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    job.wait("compare", [job.tasks(_divide_ids, exchange, str(job.out), group) for group in groups])
    compared = [job.tasks(_compare_ids, exchange, len(shards), number) for number in ranges]
    found: list[Duplicates] = [duplicates for result in compared if (duplicates := result.result()).size]
    if not found:
        return counts
    if job.options.duplicates == "error":
        first = min(found, key=lambda duplicates: duplicates.first)
        positions = " and ".join(_position(document, counts, store) for document in (first.before, first.first))
        raise InputError(
            f"Two documents have the same id: {positions} (duplicates = first keeps the first, all keeps both).",
            code="duplicate-id",
        )
    dropping = []
    for group in groups:
        files = range(group * exchange.group_size, min(exchange.n_pieces, (group + 1) * exchange.group_size))
        own = {file: counts[file - len(shards)] for file in files if file >= len(shards)}
        dropping.append(job.tasks(_drop_rows, exchange, group, own))
    return [split for result in dropping for split in result.result()]


def _divide_ids(exchange: Exchange, out: str, group: int) -> None:
    """Write the ids of a group, one block for each range of hashes, with their hashes and documents."""
    target = exchange.path("group-hashes", group)
    if target.is_file():
        return
    parts, documents = [pa.array([], pa.large_string())], [np.empty(0, np.int64)]
    for file, name in enumerate(exchange.names(group), group * exchange.group_size):
        ids = _read_ids(exchange, out, name)
        parts.append(ids.cast(pa.large_string()))
        documents.append(np.arange(len(ids)) + (file << ROW_BITS))
    ids, numbers = pa.concat_arrays(parts), np.concatenate(documents)
    hashes = _hash_ids(ids)
    order = np.argsort(hashes, kind="stable")
    bounds = [number * 2**HASH_BITS // exchange.n_ranges for number in range(1, exchange.n_ranges)]
    cuts = [0, *np.searchsorted(hashes[order], bounds).tolist(), order.size]
    with write_blocks(target, exchange.n_ranges) as write:
        for number in range(exchange.n_ranges):
            own = order[cuts[number] : cuts[number + 1]]
            arrays: Arrays = {"hashes": hashes[own], "documents": numbers[own]}
            store_strings(arrays, "id", ids.take(pa.array(own)))
            write(arrays)


def _read_ids(exchange: Exchange, out: str, name: str) -> pa.Array:
    """The ids of partial counts, or of a shard, whose name is followed by its digest."""
    name, _, sha256 = name.partition(" ")
    if sha256:
        column = read_table(location(out), FileEntry(file=name, bytes=0, sha256=sha256), ["id"])["id"]
        return column.combine_chunks()
    with ArrayReader(location(exchange.folder) / name, ("id_",)) as file:
        return string_array(file["id_bytes"], file["id_offsets"])


def _hash_ids(ids: pa.Array) -> NDArray[np.int64]:
    return hash_strings(ids, 0, HASH_BITS)


def _compare_ids(exchange: Exchange, n_shards: int, number: int) -> Duplicates:
    """Find the duplicates in a range of hashes, and write their documents if there are any: one block per group."""
    blocks = [read_block(exchange.path("group-hashes", group), number) for group in range(exchange.n_groups)]
    hashes = np.concatenate([block["hashes"] for block in blocks])
    documents = np.concatenate([block["documents"] for block in blocks])
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order[1:]] == hashes[order[:-1]]
    suspect = np.zeros(hashes.size, np.bool_)
    suspect[order[1:][equal]] = suspect[order[:-1][equal]] = True
    if not suspect.any():
        return Duplicates(0, -1, -1)
    # Different ids may have equal hashes: compare the ids.
    ids = pa.chunked_array([stored_strings(block, "id").cast(pa.large_string()) for block in blocks]).combine_chunks()
    documents, ids = documents[suspect], ids.filter(pa.array(suspect))
    order = np.argsort(documents)
    documents, ids = documents[order], ids.take(pa.array(order))
    codes = ids.dictionary_encode().indices.to_numpy()
    _, first, occurrence = np.unique(codes, return_index=True, return_inverse=True)
    repeated = np.ones(codes.size, np.bool_)
    repeated[first] = False
    repeated &= documents >= n_shards << ROW_BITS  # duplicates in the store were allowed when they were ingested
    if not repeated.any():
        return Duplicates(0, -1, -1)
    dropped = documents[repeated]
    bounds = np.arange(exchange.n_groups + 1) * exchange.group_size << ROW_BITS
    cuts = np.searchsorted(dropped, bounds)
    with write_blocks(exchange.path("duplicates", number), exchange.n_groups) as write:
        for group in range(exchange.n_groups):
            write({"documents": dropped[cuts[group] : cuts[group + 1]]})
    before = documents[first[occurrence[repeated][0]]]
    return Duplicates(dropped.size, int(dropped[0]), int(before))


def _drop_rows(exchange: Exchange, group: int, counts: dict[int, PartialCounts]) -> list[PartialCounts]:
    """The partial counts of a group, by the number of their file, without duplicates."""
    ranges = (exchange.path("duplicates", number) for number in range(exchange.n_ranges))
    found = [read_block(path, group)["documents"] for path in ranges if path.is_file()]
    dropped = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    rest = []
    for file, split in counts.items():
        begin, end = np.searchsorted(dropped, [file << ROW_BITS, (file + 1) << ROW_BITS])
        rows = dropped[begin:end] - (file << ROW_BITS)
        rest.append(without_rows(split, rows) if rows.size else split)
    return rest


def _position(document: int, counts: list[PartialCounts], store: Store | None) -> str:
    """File and line of a document, for messages."""
    n_shards = 0 if store is None else store.n_shards
    file, row = document >> ROW_BITS, document & (2**ROW_BITS - 1)
    if store is not None and file < n_shards:
        return store.sources[store.shards[file].source].path
    split = counts[file - n_shards]
    with ArrayReader(location(split.path), ("lines",)) as counted:
        line = int(counted["lines"][row])
    unit = "row" if split.split.format in TABLES else "line"
    return f"{split.split.name}, {unit} {line}"
