"""Documents of inputs for a model that is trained already, and previews of inputs."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, real_path
from sparseoco.store.shards import Store
from sparseoco.text.counting import count_documents
from sparseoco.text.documents import BadRow, CountedDocuments, Documents, ParsedRow, Texts
from sparseoco.text.encoding import CountRows, HashIndex, encode_rows
from sparseoco.text.formats import FOLDERS, TABLES, UNLABELLED, UTF8, first_bytes
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.parsers import MalformedRowError, RecordParser, encode_text, load_object, object_keys
from sparseoco.text.passes import SplitReader, check_ingested, find_new, new_sources
from sparseoco.text.sources import Source, check_applied, document_label, find_sources, hidden_files, iter_files
from sparseoco.text.splits import Content, Split, check_bad_rows, read_split
from sparseoco.text.tables import close_tables, open_table
from sparseoco.text.vocabulary import Vocabulary

# ----------------------------------------------------------------------------------------------------------------------
# Raw documents in batches, for prediction and evaluation.


@dataclass
class ReadOutcome:
    """What was read: documents, rows that are left out as bad, documents that span several lines, documents without
    a value by field, empty and hidden files."""

    documents: int = 0
    bad_rows: int = 0
    multiline_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    empty: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    def add(self, batch: Documents | CountedDocuments) -> None:
        """Count documents that were read."""
        self.documents += len(batch)
        self.bad_rows += len(batch.bad)
        self.multiline_rows += batch.multiline.size
        if isinstance(batch, Documents):
            self.missing.update(batch.missing)


def read_documents(
    inputs: Sequence[str],
    options: TextOptions,
    *,
    labelled: bool = True,
    withheld: bool = False,
    batch_bytes: int = SHARD_BYTES,
    outcome: ReadOutcome | None = None,
    ingested: Store | None = None,
    given: Iterable[str] = (),
) -> Iterator[Documents | CountedDocuments]:
    """Iterate over the documents of the inputs, in order.

    Parameters
    ----------
    inputs : sequence of str
        Files, folders or remote URIs.
    options : TextOptions
        Weights, groups and times are not read.
    labelled : bool
        Whether labels are requested; plain text has none, and otherwise folders of plain text need none.
    withheld : bool
        Read the documents that `options.holdout` withholds from a store, instead of the others.
    batch_bytes : int
        Approximate size of a batch.
    outcome : ReadOutcome, optional
        Counts what is read, as it is read.
    ingested : Store, optional
        Its sources must be the versions that were ingested.
    given : iterable of str
        Names of options that were set for these inputs: each must apply to one of them.

    Raises
    ------
    InputError
        With file and line, if more than ``max_bad_rows`` rows are bad; for a file that changes while it is read.
    """
    bad = 0
    outcome = outcome or ReadOutcome()
    options = options.without_columns()
    if not labelled:
        options = options.model_copy(update={"unlabelled": True})
    outcome.hidden += hidden_files(inputs, options)
    entries = {} if ingested is None else {real_path(entry.path): entry for entry in ingested.sources}
    sources = find_sources(list(inputs), options)
    check_applied(sources, options, given)
    for index, source in enumerate(sources):
        entry = entries.get(source.real)
        if entry is not None:
            check_ingested(source, entry, options)
        outcome.empty += [source.path] * (not source.bytes)
        wanted = labelled and source.format not in UNLABELLED
        reader = SplitReader(index, source, options, batch_bytes)
        for split, content in reader:
            batch = read_split(split, options, labelled=wanted, withheld=withheld, content=content)
            bad = check_bad_rows(split, batch.bad, options, bad)
            outcome.add(batch)
            yield batch
        if entry is not None and reader.sha256:
            check_ingested(source, entry, options, reader.sha256)
    close_tables()


# ----------------------------------------------------------------------------------------------------------------------
# What an ingest understands of its inputs before it counts them: formats, fields, labels and ids of the first rows,
# and a sample of the documents.


FIRST_BYTES = 1 << 16  # of a source that are read
TRIED = 8  # sources that may have no documents, by `where`
WHOLE_BYTES = 8 << 20  # of inputs that are read as a whole, as they are stored
SAMPLED_SOURCES = 16
SAMPLE_SECONDS = 3.0
SLICES = 32  # of a source


class Preview(NamedTuple):
    """What `ingest` would understand of inputs: the kinds of files, and the empty and the hidden ones."""

    kinds: "list[Kind]"
    empty: list[str]
    hidden: list[str]


def preview(inputs: list[str], out: Location | None, options: TextOptions) -> Preview:
    """What `ingest` would understand of the inputs that are not in the store yet, if there is one.

    Raises `InputError`, and `StorageError` for a folder that cannot be read.
    """
    if out is None:
        sources = new_sources(find_sources(inputs, options), options, None)
    else:
        sources, _ = find_new(inputs, out, options, Store.find(out))
    empty = [source.path for source in sources if not source.bytes]
    return Preview(describe_sources(sources, options), empty, hidden_files(inputs, options))


class Kind(NamedTuple):
    """The sources of one format, or a folder with one document per file.

    Parameters
    ----------
    sources : list of Source
    codec : str
        Encoding of the first source, or "auto" for folders, where it is detected for each file.
    fields : tuple of str
        Fields or columns of its first row that can be read; none if no row can.
    documents : int
        Documents that were read to know the rest, or all files of a folder.
    first_id : str or None
    classes : dict
        Documents of each class, of `documents`.
    bad : BadRow or None
        The first of the rows that cannot be read.
    hint : str
        What the text looks like, if not like its format.
    """

    sources: list[Source]
    codec: str
    fields: tuple[str, ...]
    documents: int
    first_id: str | None
    classes: dict[str, int]
    bad: BadRow | None
    hint: str

    @property
    def format(self) -> str:
        """The format of the sources."""
        return self.sources[0].format

    @property
    def bytes(self) -> int:
        """The size of the sources as they are stored."""
        return sum(source.bytes for source in self.sources)


def describe_sources(sources: Sequence[Source], options: TextOptions) -> list[Kind]:
    """The kinds of sources, in order; of each kind the first source with documents is read, and only its beginning.

    Raises `InputError` for a source that cannot be read; rows that cannot are for the ingest to judge.
    """
    kinds: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        if source.bytes or source.format in FOLDERS:
            alone = (source.path,) if source.format in FOLDERS else ()
            kinds.setdefault((source.format, *alone), []).append(source)
    return [(_of_folder if form in FOLDERS else _of_files)(found, options) for (form, *_), found in kinds.items()]


def _of_folder(sources: list[Source], options: TextOptions) -> Kind:
    (source,) = sources
    classes: Counter[str] = Counter()
    n_files, first = 0, None
    for file in iter_files(source.path, options):
        n_files += 1
        first = file if first is None or file.order < first.order else first
        if source.format not in UNLABELLED:
            classes[document_label(file.name, source.path)] += 1
    first_id = None if first is None else f"{source.short}/{first.name}"
    return Kind(sources, options.encoding, (), n_files, first_id, dict(sorted(classes.items())), None, "")


def _of_files(sources: list[Source], options: TextOptions) -> Kind:
    options = options.model_copy(update={"holdout": 0.0})
    for source in sources[:TRIED]:
        reader = SplitReader(0, source, options, FIRST_BYTES)
        split, content = next(iter(reader), (None, None))
        codec = reader.codec or UTF8
        if split is not None:
            documents = read_split(split, options, labelled=source.format not in UNLABELLED, content=content)
            if len(documents) or documents.bad:
                break
    if split is None:
        return Kind(sources, codec, (), 0, None, {}, None, "")
    if source.format in TABLES:
        schema = open_table(source.absolute, source.format, source.key, source.pin).schema
        fields = tuple(schema.names)
        close_tables()
    else:
        head = first_bytes(source.path, source.compression, FIRST_BYTES, options.encoding)
        # A broken line of JSON lines, which has none, does not hide the fields of those that follow.
        lines = head.splitlines(keepends=True) if source.format == "jsonl" else [head]
        fields = split.header or next(filter(None, map(object_keys, lines)), ())
    classes: Counter[str] = Counter()
    if isinstance(documents.labels, pa.Array):
        labels = documents.labels.flatten() if pa.types.is_list(documents.labels.type) else documents.labels
        classes.update(labels.to_pylist())
    return Kind(
        sources,
        codec,
        fields if source.format != "lines" else (),
        len(documents),
        documents.ids[0].as_py() if len(documents) else None,
        dict(sorted(classes.items())),
        documents.bad[0] if documents.bad else None,
        "JSON lines" if fields and source.format == "lines" else "",
    )


@dataclass
class Sample:
    """Iterates over a sample of the splits of some sources, with their documents: all of small inputs, else some from
    everywhere.

    Texts are often sorted by class or by part. Of a file that must be read in order there are more splits at the
    beginning. Raises `InputError` for the first bad row beyond `max_bad_rows`.

    Attributes
    ----------
    rows, bad : int
        Documents and bad rows so far.
    """

    sources: Sequence[Source]
    options: TextOptions
    split_bytes: int
    withheld: bool = False
    labelled: bool = True
    rows: int = field(default=0, init=False)
    bad: int = field(default=0, init=False)
    _totals: dict[int, float] = field(default_factory=dict, init=False)
    _read: float = field(default=0.0, init=False)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all documents are read."""
        return sum(source.bytes for source in self.sources) <= WHOLE_BYTES

    @property
    def share(self) -> float:
        """The share of the text that was read, estimated."""
        if self.is_whole:
            return 1.0
        sources = sum(self.sources[index].bytes for index in self.chosen) / sum(each.bytes for each in self.sources)
        return min(1.0, sources * self._read / max(sum(self._totals.values()), 1))

    @cached_property
    def chosen(self) -> list[int]:
        """The positions of the sources that are read."""
        count = len(self.sources) if self.is_whole else min(SAMPLED_SOURCES, len(self.sources))
        return [i * len(self.sources) // count for i in range(count)]

    def __iter__(self) -> Iterator[tuple[Split, Documents | CountedDocuments]]:
        counted = 0
        for index in self.chosen:
            source = self.sources[index]
            until = time.monotonic() + SAMPLE_SECONDS / len(self.chosen)
            labelled = self.labelled and source.format not in UNLABELLED
            for split, content in self._splits(index, source):
                documents = read_split(split, self.options, labelled=labelled, withheld=self.withheld, content=content)
                counted = check_bad_rows(split, documents.bad, self.options, counted)
                self.rows += len(documents)
                self.bad += len(documents.bad)
                self._read += split.bytes
                yield split, documents
                if not self.is_whole and time.monotonic() > until:
                    break
        close_tables()

    def _splits(self, index: int, source: Source) -> Iterator[tuple[Split, Content | None]]:
        reader = SplitReader(index, source, self.options, self.split_bytes)
        if source.format in TABLES | FOLDERS:
            splits = list(reader)
            self._totals[index] = sum(split.bytes for split, _ in splits)
            yield from splits[:: 1 if self.is_whole else max(1, len(splits) // SLICES)]
            return
        for number, (split, content) in enumerate(reader):
            self._totals[index] = max(split.stop, source.bytes * reader.inflation)
            gap = 1 << (number // SLICES).bit_length()  # it grows with the number
            if self.is_whole or number % gap == 0:
                yield split, content


# ----------------------------------------------------------------------------------------------------------------------
# Counts of the features of a model in new text.


Inputs: TypeAlias = Sequence[str] | Sequence[Mapping[str, Any]] | Documents | CountedDocuments
"""Texts, records or documents."""


Features: TypeAlias = Vocabulary | HashIndex
"""The columns of a count matrix: terms, or hashed features."""


def count_texts(texts: Inputs, features: Features, options: TextOptions) -> CountRows:
    """Count the features in documents; other terms are ignored.

    Parameters
    ----------
    texts : sequence of str, Documents or CountedDocuments
        With fields, sequences are of records: mappings, or JSON objects as text.
    features : Features
        The columns.
    options : TextOptions
        The options the features were counted with.

    Returns
    -------
    indptr, indices, counts
        CSR matrix of shape (n_documents, n_features).

    Raises
    ------
    InputError
        As `as_documents`.
    """
    documents = as_documents(texts, options)
    if isinstance(features, Vocabulary) and isinstance(documents, Documents) and not options.fields:
        return features.count(Texts.of(documents.strings), options)
    counts = count_documents(documents, options)
    return encode_rows(counts, *features.columns(counts, options), options)


def as_documents(texts: Inputs, options: TextOptions) -> Documents | CountedDocuments:
    """Texts or records as documents; documents as they are.

    Raises
    ------
    InputError
        For one string or record instead of a sequence, for texts that are not strings, for a record that cannot be
        read, for a table without the column of the text, and for a text with lone surrogates, unless
        ``encoding_errors`` is "replace".
    """
    if isinstance(texts, Documents | CountedDocuments):
        return texts
    table = arrow_table(texts)
    if table is not None:
        texts = _of_table(table, options)
    elif isinstance(texts, pa.Array | pa.ChunkedArray):
        texts = texts.to_pylist()
    if isinstance(texts, str | bytes | Mapping | Set):  # whose items are no texts in order
        wanted = "[record], a list of mappings" if options.fields else "[text], a list of strings"
        raise InputError(f"The texts are one {type(texts).__name__}: write {wanted}.", code="invalid-texts")
    if options.fields:
        return read_records(texts, options)
    rows = []
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"Text {number} is not a string, but {type(text).__name__}.", code="invalid-texts")
        try:
            rows.append(ParsedRow(encode_text(text, options), "", None, number))
        except MalformedRowError as error:
            raise InputError(f"Text {number}: {error.reason}.", code=error.code) from None
    return Documents.from_rows(rows, [], None)


def arrow_table(data: Any) -> pa.Table | None:
    """A table of Arrow, pandas, polars, … as one of Arrow; None for anything else."""
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table) or (hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns")):
        return data if isinstance(data, pa.Table) else pa.table(data)
    return None


def _of_table(table: pa.Table, options: TextOptions) -> list[Any]:
    """The texts of a table, or its records. Raises `InputError` if it has several columns, and not that of the text."""
    names = table.column_names
    if options.fields:
        read = set(options.record_fields.values())
        return list(table.select([name for name in names if name in read]).to_pylist())
    name = options.text_field if options.text_field in names else names[0] if len(names) == 1 else None
    if name is None:
        known = ", ".join(names) or "none"
        message = f"The table has no column {options.text_field!r}, the text of the model; its columns are {known}."
        raise InputError(message, code="invalid-texts")
    return list(table[name].to_pylist())


def read_records(records: Sequence[Any], options: TextOptions, first: int = 1) -> Documents:
    """Mappings, or JSON objects as text, read as JSON lines.

    Raises `InputError` with the number, from `first`, of one that cannot be read.
    """
    parser = RecordParser("", options.without_columns().model_copy(update={"where": {}}), labelled=False)
    rows = []
    for number, record in enumerate(records, first):
        try:
            if isinstance(record, str):
                record = load_object(record.encode("utf-8", "surrogatepass"), nested=False)
            if not isinstance(record, Mapping):
                named = ", ".join(dict.fromkeys(options.record_fields.values()))
                raise MalformedRowError(f"not a mapping with the fields {named}")
            row = parser.row({name: _plain(value) for name, value in record.items()}, number)
        except MalformedRowError as error:
            raise InputError(f"Record {number}: {error.reason}.", code=error.code) from None
        assert row is not None
        rows.append(row)
    return parser.documents(rows, [])


def _plain(value: Any) -> Any:
    """A scalar or an array of NumPy as one of Python; NaN as none."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return None if isinstance(value, float) and math.isnan(value) else value
