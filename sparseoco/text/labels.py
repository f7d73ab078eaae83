"""What must be known of all documents at once: that ids differ, and which classes there are."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.errors import InputError
from sparseoco.manifest import ClassEntry, LabelTable, Manifest
from sparseoco.shards import Store
from sparseoco.text.arrays import load_arrays, string_array
from sparseoco.text.options import TextOptions
from sparseoco.text.pieces import PieceInfo

UNLABELLED = frozenset({"lines"})


class Labels(NamedTuple):
    """The table for the manifest, and what a shard's label column is made of."""

    table: LabelTable
    classes: tuple[str, ...] | None


def piece_strings(path: str, what: str) -> pa.Array:
    """Ids or labels of a piece."""
    arrays, _ = load_arrays(Path(path))
    return string_array(arrays[f"{what}_bytes"], arrays[f"{what}_offsets"])


def find_duplicates(pieces: list[PieceInfo], options: TextOptions, store: Store | None) -> dict[int, NDArray[np.int64]]:
    """Rows, by piece, whose id was seen before; empty where duplicates are allowed.

    Raises `InputError` naming both places where they are an error.
    """
    if options.duplicates == "all":
        return {}
    known = [store.read(i, ids=True).ids for i in range(len(store.manifest.shards))] if store is not None else []
    parts = [part.cast(pa.large_string()) for part in [*known, *(piece_strings(piece.path, "id") for piece in pieces)]]
    encoded = pa.chunked_array(parts, pa.large_string()).combine_chunks().dictionary_encode()
    if len(encoded.dictionary) == len(encoded):
        return {}
    numbers = encoded.indices.to_numpy()
    _, first = np.unique(numbers, return_index=True)
    again = np.ones(numbers.size, np.bool_)
    again[first] = False
    places = np.flatnonzero(again)
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def place(row: int) -> str:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        if part < len(known):
            assert store is not None
            return store.manifest.sources[store.manifest.shards[part].source].path
        piece = pieces[part - len(known)]
        arrays, _ = load_arrays(Path(piece.path))
        return f"{piece.split.name}, line {int(arrays['lines'][row - starts[part]])}"

    if options.duplicates == "error":
        later = int(places[0])
        earlier = int(np.argmax(numbers == numbers[later]))
        raise InputError(
            f"Two documents have one id: {place(earlier)} and {place(later)} "
            "(duplicates = first keeps the first, all keeps both)."
        )
    found: dict[int, NDArray[np.int64]] = {}
    for index in range(len(pieces)):
        begin, end = starts[len(known) + index], starts[len(known) + index + 1]
        rows = places[(places >= begin) & (places < end)] - begin
        if rows.size:
            found[index] = rows
    return found


def settle_labels(pieces: list[PieceInfo], options: TextOptions, previous: Manifest | None) -> Labels:
    """The label table; classes are those of the first ingest, in order, with counts.

    Raises `InputError` for labels in some inputs only, and for a class that the store does not have, naming its place.
    """
    unlabelled = {piece.split.format in UNLABELLED for piece in pieces}
    if len(unlabelled) > 1:
        raise InputError("Some inputs have labels and some (plain lines) have none: ingest them apart.")
    if unlabelled == {True}:
        return Labels(LabelTable(kind="classes"), ())
    if options.labels == "numbers":
        return Labels(LabelTable(kind="numbers"), None)
    parts = [piece_strings(piece.path, "label") for piece in pieces]
    counted = pa.chunked_array(parts, pa.string()).value_counts() if parts else []
    counts = {entry["values"].as_py(): entry["counts"].as_py() for entry in counted}
    if previous is None:
        names = sorted(counts, key=_class_order(counts))
        before = dict.fromkeys(names, 0)
    else:
        before = {entry.name: entry.rows for entry in previous.labels.classes}
        _check_known(pieces, parts, list(before))
    classes = tuple(ClassEntry(name=name, rows=rows + counts.get(name, 0)) for name, rows in before.items())
    return Labels(LabelTable(kind="classes", classes=classes), tuple(before))


def _check_known(pieces: list[PieceInfo], parts: list[pa.Array], known: list[str]) -> None:
    values = pa.array(known, pa.string())
    for piece, part in zip(pieces, parts, strict=True):
        unknown = pc.is_null(pc.index_in(part, value_set=values)).to_numpy(zero_copy_only=False)
        if unknown.any():
            row = int(np.argmax(unknown))
            arrays, _ = load_arrays(Path(piece.path))
            raise InputError(
                f"{piece.split.name}, line {int(arrays['lines'][row])}: the label is not one of the {len(known)} "
                "classes frozen at the first ingest; ingest everything into a new folder to add a class."
            )


def _class_order(names: dict[str, int]) -> Any:
    """Whole numbers by value, anything else by code point."""
    try:
        values = {name: int(name) for name in names}
    except ValueError:
        return None
    return lambda name: (values[name], name)
