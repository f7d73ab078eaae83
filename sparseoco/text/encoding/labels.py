"""What must be known of all documents at once: that ids differ, and which classes there are."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import location
from sparseoco.store.manifest import ClassEntry, LabelTable, Manifest
from sparseoco.store.shards import Store
from sparseoco.text.array_files import load_arrays, string_array, string_buffers
from sparseoco.text.counting.partial_counts import PieceInfo
from sparseoco.text.kernels.hashing import hash_terms
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source

UNLABELLED = frozenset({"lines"})


class Labels(NamedTuple):
    """The table for the manifest, and what a shard's label column is made of."""

    table: LabelTable
    classes: tuple[str, ...] | None


def piece_strings(path: str, what: str) -> pa.Array:
    """Ids or labels of a piece."""
    arrays, _ = load_arrays(location(path))
    return string_array(arrays[f"{what}_bytes"], arrays[f"{what}_offsets"])


def find_duplicates(pieces: list[PieceInfo], options: TextOptions, store: Store | None) -> dict[int, NDArray[np.int64]]:
    """Rows, by piece, whose id was seen before; empty where duplicates are allowed.

    Raises `InputError` naming both places where they are an error.
    """
    if options.duplicates == "all":
        return {}
    known = len(store.manifest.shards) if store is not None else 0
    numbers = range(known + len(pieces))

    def ids(part: int) -> pa.Array:
        if part < known:
            assert store is not None
            return store.read(part, ids=True).ids
        return piece_strings(pieces[part - known].path, "id")

    before = [entry.rows for entry in store.manifest.shards] if store is not None else []
    starts = np.cumsum([0, *before, *(piece.rows for piece in pieces)])
    hashes = np.empty(starts[-1], np.int64)  # all that is held of every document, twice while they are sorted
    for part in numbers:
        hashes[starts[part] : starts[part + 1]] = _hash(ids(part))
    places = _repeated(hashes)
    if not places.size:
        return {}
    # Few but the repeated ones share a hash: the ids themselves decide.
    cuts = np.searchsorted(places, starts)
    rows = [places[cuts[part] : cuts[part + 1]] - starts[part] for part in numbers]
    shared = [ids(part).take(pa.array(rows[part])).cast(pa.large_string()) for part in numbers if rows[part].size]
    codes = pa.chunked_array(shared, pa.large_string()).combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    again = np.ones(codes.size, np.bool_)
    again[first] = False
    again[: cuts[known]] = False  # what the store has stays, taken in by an ingest that did not ask
    if not again.any():
        return {}

    def place(row: int) -> str:
        part = int(np.searchsorted(starts, row, side="right")) - 1
        if part < known:
            assert store is not None
            return store.manifest.sources[store.manifest.shards[part].source].path
        piece = pieces[part - known]
        arrays, _ = load_arrays(location(piece.path))
        return f"{piece.split.name}, line {int(arrays['lines'][row - starts[part]])}"

    if options.duplicates == "error":
        later = int(np.argmax(again))
        earlier = int(np.argmax(codes == codes[later]))
        raise InputError(
            f"Two documents have one id: {place(int(places[earlier]))} and {place(int(places[later]))} "
            "(duplicates = first keeps the first, all keeps both)."
        )
    found: dict[int, NDArray[np.int64]] = {}
    for index in range(len(pieces)):
        part = known + index
        left_out = rows[part][again[cuts[part] : cuts[part + 1]]]
        if left_out.size:
            found[index] = left_out
    return found


def _hash(strings: pa.Array) -> NDArray[np.int64]:
    data, offsets = string_buffers(strings)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    return hash_terms(padded, offsets, np.uint64(0), 63)  # type: ignore[no-any-return]


def _repeated(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the values are that occur more than once."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(hashes, repeated)) if repeated.size else repeated


def check_labelled(sources: Sequence[Source], options: TextOptions, previous: Manifest | None) -> None:
    """Raises `InputError` where some sources have labels and others, or the store they are added to, have none, and for
    a folder of a file a document, whose folders are classes, where numbers are asked for. Empty files are of any kind.
    """
    sources = [source for source in sources if source.bytes]
    if previous is None:
        labelled = [source.format not in UNLABELLED for source in sources]
        if any(labelled) and not all(labelled):
            plain = sources[labelled.index(False)].path
            raise InputError(
                f"{plain} is plain text without labels, and other inputs have some: take it away, or ingest it into "
                "another folder."
            )
    else:
        has_labels = previous.labels.kind == "numbers" or bool(previous.labels.classes)
        for source in sources:
            if has_labels and source.format in UNLABELLED:
                raise InputError(
                    f"{source.path} is plain text without labels, and the documents ingested before have some: take it "
                    "away, or ingest it into another folder."
                )
            if not has_labels and source.format not in UNLABELLED:
                raise InputError(
                    f"{source.path} has labels, and the documents ingested before have none: ingest it into another "
                    "folder."
                )
    for source in sources:
        if source.format == "folder" and options.labels == "numbers":
            raise InputError(f"{source.path} is a folder of a file a document: its folders are classes, not numbers.")


def settle_labels(pieces: list[PieceInfo], options: TextOptions, previous: Manifest | None) -> Labels:
    """The label table; classes are those named or those of the first ingest, in order, with counts.

    All pieces have labels or none has (`check_labelled`).
    """
    if any(piece.split.format in UNLABELLED for piece in pieces):
        return Labels(LabelTable(kind="classes"), ())
    if options.labels == "numbers":
        return Labels(LabelTable(kind="numbers"), None)
    counts: Counter[str] = Counter()
    for piece in pieces:
        for entry in piece_strings(piece.path, "label").value_counts():
            counts[entry["values"].as_py()] += entry["counts"].as_py()
    if previous is None:
        names = list(counts if options.classes is None else options.classes)
        before = dict.fromkeys(sorted(names, key=_class_order(names)), 0)
    else:
        before = {entry.name: entry.rows for entry in previous.labels.classes}
    classes = tuple(ClassEntry(name=name, rows=rows + counts.get(name, 0)) for name, rows in before.items())
    return Labels(LabelTable(kind="classes", classes=classes), tuple(before))


def _class_order(names: list[str]) -> Any:
    """Whole numbers by value, anything else by code point."""
    try:
        values = {name: int(name) for name in names}
    except ValueError:
        return None
    return lambda name: (values[name], name)
