"""Cuts of Parquet and Arrow files: parts of row groups, or several of them, by the size of their columns."""

from collections.abc import Iterator, Sequence

from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.fields import matches
from sparseoco.text.sources import Source
from sparseoco.text.tables.documents import projection
from sparseoco.text.tables.files import RowGroup, open_table


def cut_table(source: Source, options: TextOptions, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(first row, last row + 1, share of the bytes of the file) of the parts of a table.

    Raises `InputError` for a file that is corrupt or has none of the columns, and `StorageError`.
    """
    if not source.bytes:
        return
    table = open_table(source.absolute, source.format, source.key, source.pin)
    columns = projection(table, options, source.facts, labelled=False)
    fixed = source.facts.fields(table.schema)
    excluded = any(
        (value := fixed.get(name, wanted)) is None or not matches(value, wanted)
        for name, wanted in options.where.items()
    )
    groups = [] if excluded else table.row_groups(columns)
    total = sum(group.rows for group in groups)
    for start, stop in _parts(groups, shard_bytes):
        yield start, stop, source.bytes * stop // total - source.bytes * start // total


def _parts(groups: Sequence[RowGroup], size: int) -> Iterator[tuple[int, int]]:
    """Rows [start, stop) of parts of about `size` bytes.

    A larger row group is cut into parts with the same number of rows; smaller ones are put together.
    """
    begin = end = pending = 0
    for group in groups:
        if pending and pending + group.bytes > size:
            yield begin, end
            begin, pending = end, 0
        pending += group.bytes
        end += group.rows
        if pending > size and group.rows > 1:
            rows = -(-group.rows // -(-group.bytes // size))
            while end - begin > rows:
                yield begin, begin + rows
                begin += rows
            pending = size
    if end > begin:
        yield begin, end
