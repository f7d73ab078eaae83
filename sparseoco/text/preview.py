"""What an ingest understands of its inputs before it counts them: formats, fields, labels and ids of the first rows."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from sparseoco.text.charsets import UTF8
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.documents import BadRow
from sparseoco.text.folders import document_label, in_order, iter_files
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.jsonl import object_keys
from sparseoco.text.sources import FOLDERS, TABLES, UNLABELLED, Source
from sparseoco.text.splits import read_split
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.files import close_tables, open_table

FIRST_BYTES = 1 << 16  # of a source that are read
TRIED = 8  # sources that may have no documents, by `where`


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
