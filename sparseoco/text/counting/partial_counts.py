"""Partial counts: the n-gram counts of one split, in one staging file.

Its arrays, with n-grams and tokens numbered within the split, n-grams level by level in alphabetical order:

    indptr int64, ngrams int32         CSR; the n-grams of a document by n and in order of first appearance
    counts uint8 | uint16 | uint32 | float64
    token_bytes uint8, token_offsets   distinct tokens, sorted by their bytes
    nodes_<n> int32    numbers of the n-grams of n tokens, in alphabetical order
    keys_<n> uint64    (n ≥ 2) (position of the first n − 1 tokens in level n − 1) · 2^32 + position of the last token
    totals_<n>, documents_<n>          counted levels: occurrences, documents with the n-gram
    id_bytes, id_offsets, lines int64, labels float64 | label_bytes, label_offsets [, label_indptr]
    column_<name>      optional columns of shards
    missing_<name>     of fields: whether the document has no value; values_<name>: the value, until its bin is chosen
    numbers            of fields: numbers of the n-grams that are numbers, whose counts are their values
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, store_strings, stored_strings
from sparseoco.text.counting.allocator import retain_freed_memory
from sparseoco.text.counting.fields import MISSING, VALUES, count_fields
from sparseoco.text.counting.ngrams import all_levels, count_text, named_counts, smallest_dtype, sum_totals
from sparseoco.text.documents import BadRow, CountedDocuments, Documents, store_labels, stored_labels
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import UNLABELLED
from sparseoco.text.splits import Content, Split, read_split

COLUMN = "column_"  # prefix of the names of optional columns


class PartialCounts(NamedTuple):
    """Summary of the partial counts of a split, for the driver.

    Parameters
    ----------
    path : str
        The staging file.
    rows, nonzeros, empty : int
        Documents, entries of the count matrix, documents without a term.
    levels : tuple of int
        Number of n-grams of each length n.
    bad : list of BadRow
    dtype : str
        Type of the counts.
    multiline : int
        Documents that span several lines.
    missing : dict
        Documents without a value, by field.
    labels : dict
        Documents with each class; empty if labels are numbers.
    digest : str
        Of the files of documents in files of their own.
    """

    path: str
    split: Split
    rows: int
    nonzeros: int
    empty: int
    levels: tuple[int, ...]
    bad: list[BadRow]
    dtype: str
    multiline: int
    missing: dict[str, int]
    labels: dict[str, int]
    digest: str


class Counting(NamedTuple):
    """Counting documents, the work on each split of an ingest (see `sparseoco.text.cutting.work.Work`)."""

    staging: str
    options: TextOptions

    @property
    def step(self) -> str:
        """The name of the work."""
        return "count"

    def path(self, split: Split) -> str:
        """The file of the partial counts of a split."""
        return str(location(self.staging) / f"{split.key}.counts")

    def run(self, split: Split, content: Content | None) -> PartialCounts:
        """Count a split; the driver, which sees all splits, checks the number of bad rows (`check_bad_rows`)."""
        retain_freed_memory()
        documents = read_split(split, self.options, labelled=split.format not in UNLABELLED, content=content)
        arrays = count_documents(documents, self.options)
        facts = {
            "empty": int(np.count_nonzero(np.diff(arrays["indptr"]) == 0)),
            "levels": [arrays[f"nodes_{n}"].size for n in all_levels(arrays)],
            "bad": documents.bad,
            "multiline": documents.multiline.size,
            "digest": documents.digest if isinstance(documents, Documents) else "",
        }
        # What is merged is at the beginning: those steps read no more of a remote file.
        first = sorted(arrays, key=lambda name: not name.startswith(("token_", "keys_", "totals_", "documents_")))
        save_arrays(location(self.path(split)), {name: arrays[name] for name in first}, facts)
        return self.describe(split)

    def describe(self, split: Split) -> PartialCounts:
        """The summary of counts in a staging file."""
        return describe_counts(location(self.path(split)), split)


def count_documents(documents: Documents | CountedDocuments, options: TextOptions) -> Arrays:
    """The arrays of partial counts of documents."""
    if options.fields:
        arrays = count_fields(documents, options)
    elif isinstance(documents, Documents):
        arrays = count_text(documents.spans, options)
    elif options.counts_characters:
        raise InputError(
            f'Documents given as counts have no characters: analyzer = "{options.analyzer}" requires text.',
            code="unsupported-combination",
        )
    else:
        arrays = _count_named(documents)
    arrays["lines"] = documents.lines
    store_strings(arrays, "id", documents.ids)
    store_labels(arrays, documents.labels)
    return arrays | {f"{COLUMN}{name}": values for name, values in documents.columns.items()}


def describe_counts(path: Location, split: Split) -> PartialCounts:
    """The summary of a staging file."""
    arrays, facts = load_arrays(path)
    return PartialCounts(
        path=str(path),
        split=split,
        rows=arrays["indptr"].size - 1,
        nonzeros=arrays["ngrams"].size,
        empty=facts["empty"],
        levels=tuple(facts["levels"]),
        bad=[BadRow(*row) for row in facts["bad"]],
        dtype=arrays["counts"].dtype.name,
        multiline=facts["multiline"],
        missing={
            name.removeprefix(MISSING): int(values.sum()) for name, values in arrays.items() if name.startswith(MISSING)
        },
        labels=_count_labels(arrays),
        digest=facts["digest"],
    )


def _count_labels(arrays: Arrays) -> dict[str, int]:
    if "label_bytes" not in arrays:
        return {}
    found = stored_strings(arrays, "label").value_counts()
    return dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))


def _count_named(documents: CountedDocuments) -> Arrays:
    integral = bool(
        np.all((documents.counts > 0) & (documents.counts < 2**32) & (documents.counts == np.floor(documents.counts)))
    )
    counts = smallest_dtype(documents.counts.astype(np.uint32)) if integral else documents.counts
    return named_counts(documents.indptr, documents.features, counts, documents.names)


def without_rows(counts: PartialCounts, rows: NDArray[np.int64]) -> PartialCounts:
    """Write a copy of partial counts without some of their documents."""
    source = location(counts.path)
    target = source.with_name(f"{source.stem}-{digest_value(rows.tolist())[:16]}.counts")
    arrays, facts = load_arrays(source)
    selected = np.ones(counts.rows, np.bool_)
    selected[rows] = False
    sizes = np.diff(arrays["indptr"])
    entries = np.repeat(selected, sizes)
    arrays["ngrams"], arrays["counts"] = arrays["ngrams"][entries], arrays["counts"][entries]
    arrays["indptr"] = np.concatenate([[0], np.cumsum(sizes[selected])]).astype(np.int64)
    labels = stored_labels(arrays)
    if labels is not None:
        store_labels(arrays, labels[selected] if isinstance(labels, np.ndarray) else labels.filter(pa.array(selected)))
    for name in ("lines", *(name for name in arrays if name.startswith((COLUMN, VALUES, MISSING)))):
        arrays[name] = arrays[name][selected]
    store_strings(arrays, "id", stored_strings(arrays, "id").filter(pa.array(selected)))
    sum_totals(arrays)
    facts["empty"] = int(np.count_nonzero(sizes[selected] == 0))
    save_arrays(target, arrays, facts)
    return describe_counts(target, counts.split)
