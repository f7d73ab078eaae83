"""The labels of a store: the table of classes, and the check that all sources have the same kind of labels."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.store.labels import LabelSets
from sparseoco.store.manifest import ClassEntry, LabelTable, Manifest
from sparseoco.text.array_files import Arrays, stored_strings
from sparseoco.text.counting.partial_counts import PartialCounts
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import UNLABELLED, Source


class LabelEncoding(NamedTuple):
    """The label table of the manifest, and the class names: empty without labels, None for numbers."""

    table: LabelTable
    classes: tuple[str, ...] | None

    def column(self, counts: Arrays) -> NDArray[np.int32] | NDArray[np.float64] | LabelSets:
        """The labels of a shard."""
        if self.classes is None:
            return counts["labels"]
        if not self.classes:
            return np.full(counts["indptr"].size - 1, -1, np.int32)
        found = pc.index_in(stored_strings(counts, "label"), value_set=pa.array(self.classes, pa.string()))
        codes = np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int32)
        if self.table.kind != "multi":
            return codes
        indptr = counts["label_indptr"]
        order = np.lexsort((codes, np.repeat(np.arange(indptr.size - 1), np.diff(indptr))))
        return LabelSets(indptr, codes[order])


def check_label_kinds(sources: Sequence[Source], options: TextOptions, previous: Manifest | None) -> None:
    """Check that either all documents of a store have labels or none has. Empty files match any kind.

    Raises `InputError` also for a folder of class folders if labels are numbers.
    """
    sources = [source for source in sources if source.bytes]
    unlabelled = [source.path for source in sources if source.format in UNLABELLED]
    labelled = [source.path for source in sources if source.format not in UNLABELLED]
    problem = None
    if previous is None:
        if labelled and unlabelled:
            problem = f"{unlabelled[0]} is plain text without labels, and other inputs have labels"
    elif previous.labels.kind == "numbers" or previous.labels.classes:
        if unlabelled:
            problem = f"{unlabelled[0]} is plain text without labels, and the documents of the store have labels"
    elif labelled:
        problem = f"{labelled[0]} has labels, and the documents of the store have none"
    folders = [source.path for source in sources if source.format == "folder"]
    if problem is None and folders and options.labels == "numbers":
        problem = f"{folders[0]} is a folder of class folders, and classes are not numbers"
    if problem is not None:
        raise InputError(f"{problem}: ingest it into another folder.", code="unsupported-combination")


def encode_labels(counts: list[PartialCounts], options: TextOptions, previous: Manifest | None) -> LabelEncoding:
    """The labels of an ingest. Classes are those of the store, else those of the options, else those that occur."""
    if any(split.split.format in UNLABELLED for split in counts):
        return LabelEncoding(LabelTable(kind="classes"), ())
    if options.labels == "numbers":
        return LabelEncoding(LabelTable(kind="numbers"), None)
    occurrences: Counter[str] = Counter()
    for split in counts:
        occurrences.update(split.labels)
    if previous is None:
        names = list(occurrences if options.classes is None else options.classes)
        rows = dict.fromkeys(sorted(names, key=_class_order(names)), 0)
    else:
        rows = {entry.name: entry.rows for entry in previous.labels.classes}
    classes = tuple(ClassEntry(name=name, rows=before + occurrences.get(name, 0)) for name, before in rows.items())
    return LabelEncoding(LabelTable(kind=options.labels, classes=classes), tuple(rows))


def _class_order(names: list[str]) -> Callable[[str], tuple[int, str]] | None:
    """Integers by value, anything else by code point."""
    try:
        values = {name: int(name) for name in names}
    except ValueError:
        return None
    return lambda name: (values[name], name)
