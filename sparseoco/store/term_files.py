"""The files of terms and of quarantined rows of a store, merged as they grow: their number is logarithmic."""

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from sparseoco.storage.locations import Location
from sparseoco.store.data_files import read_table
from sparseoco.store.manifest import FileEntry
from sparseoco.store.segments import RATIO
from sparseoco.store.writing import write_names, write_quarantine, write_vocabulary

MERGED_BYTES = 16 << 20  # of a merged file at most: it is read into memory


def add_files(
    folder: Location,
    kind: Literal["vocabulary", "names", "quarantine"],
    files: Sequence[FileEntry],
    added: Sequence[FileEntry],
) -> tuple[FileEntry, ...]:
    """The files of a new version: those before that are not more than twice as large as the new ones are merged.

    Parameters
    ----------
    folder : Location
        The folder of the store.
    kind : {"vocabulary", "names", "quarantine"}
    files, added : sequence of FileEntry
        The files of the previous version, and the new ones.

    Returns
    -------
    tuple of FileEntry
        The files of the new version; merged ones are written.

    Raises
    ------
    StorageError
        If a file is corrupt or cannot be written.
    """
    kept, merged, size = list(files), list(added), sum(entry.bytes for entry in added)
    while added and kept and kept[-1].bytes <= min(RATIO * size, MERGED_BYTES - size):
        merged.insert(0, kept.pop())
        size += merged[0].bytes
    if len(merged) == len(added):
        return (*kept, *added)
    tables = [read_table(folder, entry) for entry in merged]
    return (*kept, _write(folder, kind, pa.concat_tables(tables, promote_options="permissive")))


def _write(folder: Location, kind: str, table: pa.Table) -> FileEntry:
    if kind == "quarantine":
        return write_quarantine(folder, [tuple(row.values()) for row in table.to_pylist()])
    if kind == "names":  # a term of a feature may be in several files
        sums = table.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
        table = sums.rename_columns(["feature", "term", "count", "documents"])
    table = table.sort_by([("feature", "ascending"), ("term", "ascending")]).combine_chunks()
    features, terms, counts, documents = (table[name].combine_chunks() for name in table.column_names)
    write = write_names if kind == "names" else write_vocabulary
    return write(folder, features.to_numpy(), terms, counts.to_numpy(), documents.to_numpy())
