"""What an ingest understands of its inputs before it counts them: formats, fields, labels and ids of the first rows,
and a sample of the documents."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from sparseoco.text.charsets import UTF8
from sparseoco.text.cutting.listings import Listing
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.cutting.tables import cut_table
from sparseoco.text.documents import BadRow, CountedDocuments, Documents
from sparseoco.text.folders import document_label, in_order, iter_files
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.jsonl import object_keys
from sparseoco.text.sources import FOLDERS, TABLES, UNLABELLED, Source
from sparseoco.text.splits import Content, Split, check_bad_rows, read_split
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.files import close_tables, open_table

FIRST_BYTES = 1 << 16  # of a source that are read
TRIED = 8  # sources that may have no documents, by `where`
WHOLE_BYTES = 8 << 20  # of inputs that are read as a whole, as they are stored
SAMPLED_SOURCES = 16
SAMPLE_SECONDS = 3.0
SLICES = 32  # of a source


class Kind(NamedTuple):
    """The sources of one format, or a folder with one document per file.

    Parameters
    ----------
    sources : list of Source
    codec : str
        Encoding of the first source, or "auto" for folders, where it is detected for each file.
    quoted : bool or None
        Whether the fields of its CSV or TSV may be quoted.
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
    quoted: bool | None
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
        first = file if first is None else min(file, first, key=in_order)
        if source.format not in UNLABELLED:
            classes[document_label(file.name, source.path, options.label_depth)] += 1
    first_id = None if first is None else f"{source.short}/{first.name}"
    return Kind(sources, options.encoding, None, (), n_files, first_id, dict(sorted(classes.items())), None, "")


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
        return Kind(sources, codec, None, (), 0, None, {}, None, "")
    if source.format in TABLES:
        schema = open_table(source.absolute, source.format, source.key, source.pin).schema
        fields = (*schema.names, *source.facts.fields(schema))
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
        split.quoted if source.format in ("csv", "tsv") else None,
        fields if source.format != "lines" else (),
        len(documents),
        documents.ids[0].as_py() if len(documents) else None,
        dict(sorted(classes.items())),
        documents.bad[0] if documents.bad else None,
        "JSON lines" if fields and source.format == "lines" else "",
    )


class Slice(NamedTuple):
    """A part of a sample: the `number`-th split of a source, its documents, and the content they were read from."""

    number: int
    split: Split
    documents: Documents | CountedDocuments
    content: Content | None


@dataclass
class Sample:
    """Iterates over a sample of the splits of some sources: all of small inputs, else some from everywhere.

    Texts are often sorted by class or by part. Of a file that must be read in order there are more splits at the
    beginning: those whose numbers are multiples of `gap` are at equal distances. Raises as an ingest, for the first bad
    row beyond `max_bad_rows`.

    Attributes
    ----------
    rows, bad : int
        Documents and bad rows so far.
    totals : dict
        Estimated size of all splits of a source, by its number, once it has been read.
    """

    sources: Sequence[Source]
    options: TextOptions
    split_bytes: int
    withheld: bool = False
    rows: int = field(default=0, init=False)
    bad: int = field(default=0, init=False)
    totals: dict[int, float] = field(default_factory=dict, init=False)
    _read: float = field(default=0.0, init=False)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all documents are read."""
        return sum(source.bytes for source in self.sources) <= WHOLE_BYTES

    @property
    def sources_share(self) -> float:
        """The share of the sources that are sampled, by their size."""
        return sum(self.sources[index].bytes for index in self._chosen) / max(sum(s.bytes for s in self.sources), 1)

    @property
    def share(self) -> float:
        """The share of the text that was read, estimated."""
        return 1.0 if self.is_whole else min(1.0, self._read / max(sum(self.totals.values()), 1) * self.sources_share)

    @cached_property
    def _chosen(self) -> list[int]:
        count = len(self.sources) if self.is_whole else min(SAMPLED_SOURCES, len(self.sources))
        return [i * len(self.sources) // count for i in range(count)]

    def __iter__(self) -> Iterator[Slice]:
        counted = 0
        for index in self._chosen:
            source = self.sources[index]
            until = time.monotonic() + SAMPLE_SECONDS / len(self._chosen)
            for number, split, content in self._splits(index, source):
                labelled = source.format not in UNLABELLED
                documents = read_split(split, self.options, labelled=labelled, withheld=self.withheld, content=content)
                counted = check_bad_rows(split, documents.bad, self.options, counted)
                self.rows += len(documents)
                self.bad += len(documents.bad)
                self._read += split.bytes
                yield Slice(number, split, documents, content)
                if not self.is_whole and time.monotonic() > until:
                    break
        close_tables()

    def _splits(self, index: int, source: Source) -> Iterator[tuple[int, Split, Content | None]]:
        if source.format not in TABLES | FOLDERS:
            yield from self._file_splits(index, source)
            return
        listing: Listing | None = None
        cuts: list[Any]
        if source.format in FOLDERS:
            listing = Listing.of(source.absolute, iter_files(source.absolute, self.options))
            cuts = list(listing.cuts(self.split_bytes))
        else:
            cuts = list(cut_table(source, self.options, self.split_bytes))
        self.totals[index] = sum(size for _, _, size in cuts)
        step = 1 if self.is_whole else max(1, len(cuts) // SLICES)
        for number, (start, stop, size) in enumerate(cuts[::step]):
            content = None if listing is None else listing.files(start, stop)
            yield number, Split.of(index, source, self.options, start, stop, size), content

    def _file_splits(self, index: int, source: Source) -> Iterator[tuple[int, Split, Content | None]]:
        reader = SplitReader(index, source, self.options, self.split_bytes)
        for number, (split, content) in enumerate(reader):
            self.totals[index] = max(split.stop, source.bytes * reader.inflation)
            if self.is_whole or number % gap(number) == 0:
                yield number, split, content


def gap(number: int) -> int:
    """The distance of the splits that are in a sample, around split `number` of a file: it grows with the number.

    >>> gap(0), gap(31), gap(32), gap(64), gap(130)
    (1, 1, 2, 4, 8)
    """
    return 1 << (number // SLICES).bit_length()
