"""Tables from the bytes of Parquet files."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def read_parquet(data: bytes, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
    """A table, or some columns of it, or the rows for which an expression holds. Raises `pyarrow.ArrowException`.

    Read in this thread: one of Arrow's own that lets go of Python's bytes while the interpreter ends would abort it
    (apache/arrow#34314).
    """
    chosen = None if columns is None else list(columns)
    return pq.read_table(pa.BufferReader(data), columns=chosen, filters=where, use_threads=False)
