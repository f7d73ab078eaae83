"""Result tables in Parquet: metrics and their names."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import committed, read_bytes, wrong_checksum
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metric_names import COMPUTED

# ----------------------------------------------------------------------------------------------------------------------
# Parquet files with a checksum, and tables from Parquet files in memory.
#
# The 32 bytes before the footer are the SHA-256 of that of all other bytes and of the file's name. Readers of Parquet
# find pages by their offsets and the footer from the end of the file, and ignore these bytes.


DIGEST_BYTES = 32
TAIL_BYTES = 8  # the length of the footer and the magic number


def read_parquet(data: bytes, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table, or some columns of it. Raises `pyarrow.ArrowException`.

    Reads in this thread: an Arrow thread that releases Python bytes while the interpreter exits would abort it
    (apache/arrow#34314).
    """
    chosen = None if columns is None else list(columns)
    with pq.ParquetFile(pa.BufferReader(data)) as file:  # without `pyarrow.dataset`, which imports pandas
        names = file.schema_arrow.names
        for name in chosen or ():
            if name not in names:
                raise pa.ArrowInvalid(f"There is no column {name!r}.")
        table = file.read(columns=chosen, use_threads=False)
    return table if chosen is None else table.select(chosen)


@contextmanager
def parquet_writer(path: Location, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer of a Parquet file with a checksum, which is committed on a clean exit. Raises `StorageError`."""
    with committed(path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            yield writer
        _add_digest(temporary, path.name)


def write_parquet(path: Location, table: pa.Table) -> None:
    """Commit a table as a Parquet file with a checksum. Raises `StorageError`."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table)


def read_parquet_file(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a Parquet file of `parquet_writer`, or some columns of it, verified before it is parsed.

    Raises `DamagedError` if the file is missing or its checksum does not match, `StorageError` if it cannot be read.
    """
    data = read_bytes(path)
    footer = _footer_bytes(data[-TAIL_BYTES:])
    rows = memoryview(data)[: -footer - DIGEST_BYTES]
    digest = hashlib.sha256(rows)
    digest.update(memoryview(data)[-footer:])
    expected = _with_name(digest.digest(), path.name), digest.digest()  # earlier versions left out the name
    if data[len(rows) : len(rows) + DIGEST_BYTES] not in expected:
        raise wrong_checksum(path)
    return read_parquet(data, columns=columns)


def _with_name(digest: bytes, name: str) -> bytes:
    return hashlib.sha256(digest + name.encode()).digest()


def _add_digest(path: Path, name: str) -> None:
    with path.open("r+b") as file:
        digest = _with_name(hashlib.file_digest(file, "sha256").digest(), name)
        start = file.seek(-TAIL_BYTES, 2)
        start = file.seek(start + TAIL_BYTES - _footer_bytes(file.read()))
        footer = file.read()
        file.seek(start)
        file.write(digest + footer)


def _footer_bytes(tail: bytes) -> int:
    """Bytes of the footer of a Parquet file with its length and the magic number, from its last bytes."""
    return int.from_bytes(tail[:4], "little") + TAIL_BYTES


# ----------------------------------------------------------------------------------------------------------------------
# The tables of a search and of a model: their columns, writing and reading.
#
# Only `timings.parquet` has measured times, so all other files of two equal runs have the same bytes.


Row = dict[str, Any]
"""A row of a table, by column."""

METRICS_SCHEMA = pa.schema(
    [
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("tf", pa.string()),  # how counts are weighted
        ("idf", pa.bool_()),
        ("norm", pa.string()),
        ("loss", pa.string()),
        ("penalty", pa.string()),
        ("fold", pa.int32()),
        ("epoch", pa.int32()),
        ("rows", pa.int64()),  # learned from so far, all epochs
        ("progressive_loss", pa.float64()),  # mean over the epoch, each example predicted before it is learned
        ("progressive_error", pa.float64()),
        ("objective", pa.float64()),  # Σ f_j + αψ over all examples learned from, of epoch methods; else null
        ("held_out_rows", pa.int64()),
        ("held_out_loss", pa.float64()),  # of the weights at the end of the epoch
        ("held_out_error", pa.float64()),
        *((f"held_out_{name}", pa.float64()) for name in COMPUTED),  # null where a metric is not defined
        ("held_out_rank_bound", pa.float64()),  # largest error of ROC AUC and average precision; 0 if exact
        ("held_out_majority_error", pa.float64()),  # of always predicting the largest class, or no label
        ("nonzeros", pa.int64()),  # nonzero weights, all classes
        ("features", pa.int64()),  # features with a nonzero weight for any class
        # ok, dropped (by successive halving, or since another fold failed),
        # unfinished (at the time limit), diverged, failed
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
CURVES = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("rows", pa.int64()),
        ("progressive_loss", pa.float64()),  # mean since the first example
        ("progressive_error", pa.float64()),
    ]
)
FEATURE_SURVIVAL = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("documents_from", pa.int64()),  # features found in this many documents,
        ("documents_to", pa.int64()),  # up to and including this many
        ("features", pa.int64()),
        ("nonzeros", pa.int64()),  # nonzero weights of these features after the last epoch
    ]
)
TIMINGS = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("epoch", pa.int32()),
        ("seconds", pa.float64()),  # the block's, divided by its columns
    ]
)
WEIGHTS = pa.schema(
    [
        ("feature_id", pa.int64()),
        ("feature", pa.string()),
        ("class", pa.string()),
        ("weight", pa.float64()),
        ("count", pa.int64()),  # in the corpus it was trained on
        ("documents", pa.int64()),
        ("idf", pa.float64()),  # null where values are not multiplied by it
    ]
)
"""The nonzero weights of a model."""
SEARCH_TABLES = {"metrics": METRICS_SCHEMA, "curves": CURVES, "feature_survival": FEATURE_SURVIVAL, "timings": TIMINGS}


def write_result_table(path: Location, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Commit rows as a Parquet file with these columns and a checksum. Raises `StorageError`."""
    write_parquet(path, pa.Table.from_pylist(list(rows), schema=schema))


def read_metrics(run: str | Location) -> pa.Table:
    """Read the metrics of a search.

    Parameters
    ----------
    run : str or Location
        The folder of a run.

    Returns
    -------
    pyarrow.Table
        The columns of `METRICS_SCHEMA` and the seconds, one row per (configuration, fold, epoch).

    Raises
    ------
    InputError
        If the run has no search results.
    StorageError
        If a table cannot be read or is corrupt.
    """
    folder = location(run) / "search"
    if not (folder / "metrics.parquet").exists():
        raise InputError(
            f"{run} has no search results ({folder / 'metrics.parquet'} is missing).", code="no-search-results"
        )
    keys = ["configuration", "fold", "epoch"]
    metrics = read_parquet_file(folder / "metrics.parquet")
    joined = metrics.join(
        read_parquet_file(folder / "timings.parquet"), keys=keys, join_type="left outer", use_threads=False
    )
    return joined.sort_by([(key, "ascending") for key in keys])
