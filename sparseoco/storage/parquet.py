"""Tables from Parquet files in memory."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def read_parquet(data: bytes, *, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
    """Read a table, optionally some columns or the rows that satisfy an expression. Raises `pyarrow.ArrowException`.

    Reads in this thread: an Arrow thread that releases Python bytes while the interpreter exits would abort it
    (apache/arrow#34314).
    """
    chosen = None if columns is None else list(columns)
    return pq.read_table(pa.BufferReader(data), columns=chosen, filters=where, use_threads=False)
