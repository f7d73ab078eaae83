"""Samples of the fields of records, from which the first run file of some inputs is proposed."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from sparseoco.text.charsets import AUTO, UTF8
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.fields import MalformedRowError, parse_time
from sparseoco.text.parsers.jsonl import object_keys
from sparseoco.text.preview import FIRST_BYTES
from sparseoco.text.sources import TABLES, Source
from sparseoco.text.splits import read_split
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.files import close_tables, open_table

SPLIT_BYTES: Final = 1 << 20
FILES: Final = 6  # from which the sample is taken
FIRST_SPLITS: Final = 8  # of all files, that are all in the sample
STRIDE: Final = 8  # of those that follow, one in so many
MAX_BYTES: Final = 256 << 20  # that are read
NONE: Final = "no field"
"""A category that records do not have: with fields, a record needs no text."""
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class FieldSample:
    """The values of a field in a sample of records.

    Parameters
    ----------
    name : str
    records : int
        Records in the sample.
    values : sequence of str or list
        Those that are not null and not empty: text, or the list of a record.
    """

    def __init__(self, name: str, records: int, values: Sequence[Any]) -> None:
        self.name, self.records, self.values = name, records, values

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of records with each value, or with each entry of their lists."""
        if self.is_list:
            return Counter(str(entry) for value in self.values for entry in dict.fromkeys(map(str, value)))
        return Counter(self.values)

    @cached_property
    def is_list(self) -> bool:
        """Whether its values are lists."""
        return bool(self.values) and all(isinstance(value, list) for value in self.values)

    @cached_property
    def is_number(self) -> bool:
        """Whether every value is a number."""
        return bool(self.values) and all(isinstance(v, str) and _NUMBER.fullmatch(v) for v in self.values)

    @cached_property
    def is_integer(self) -> bool:
        """Whether every value is an integer."""
        return self.is_number and all(v.lstrip("+-").isdigit() for v in self.values)

    @cached_property
    def is_date(self) -> bool:
        """Whether every value is an ISO 8601 date, of which there are several."""
        if self.is_list or self.is_number or len(self.counts) < 2:
            return False
        try:
            return all(parse_time(value, self.name) is not None for value in self.values)
        except MalformedRowError:
            return False

    @cached_property
    def words(self) -> float:
        """The mean number of words of a value."""
        if self.is_list or not self.values:
            return 0.0
        return sum(len(value.split()) for value in self.values) / len(self.values)

    @property
    def is_complete(self) -> bool:
        """Whether every record has a value."""
        return len(self.values) == self.records

    @property
    def is_unique(self) -> bool:
        """Whether no two records have the same value."""
        return not self.is_list and len(self.counts) == len(self.values) > 1


def field_names(source: Source, options: TextOptions) -> tuple[str, ...]:
    """The names of the fields of the first records of a file; the cells of the first record of CSV and TSV."""
    if source.format in TABLES:
        schema = open_table(source.absolute, source.format, source.key, source.pin).schema
        close_tables()
        return (*schema.names, *source.facts.fields(schema))
    if source.format != "jsonl":
        split, _ = next(iter(SplitReader(0, source, options, FIRST_BYTES)), (None, None))
        return () if split is None else split.header
    head = first_bytes(source.path, source.compression, FIRST_BYTES, options.encoding)
    lines = head.splitlines()[:-1] or [head]
    return tuple(dict.fromkeys(name for line in lines for name in object_keys(line)))


def codec(source: Source) -> str:
    """The encoding of a file: UTF-8, or the one that is detected in its first text that is not."""
    if source.format in TABLES:
        return UTF8
    head = first_bytes(source.path, source.compression, SPLIT_BYTES)[:SPLIT_BYTES]
    try:
        head[: head.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        reader = SplitReader(0, source, TextOptions(encoding=AUTO), SPLIT_BYTES)
        next(iter(reader), None)
        return reader.codec
    return UTF8


def sample_fields(sources: Sequence[Source], names: Sequence[str], options: TextOptions) -> list[FieldSample]:
    """The fields with these names of the records of some files: of the first, and of others at equal distances."""
    reading = TextOptions.model_validate(
        options.model_dump()
        | {
            "carried": tuple(names),
            "fields": {NONE: {"type": "category"}},
            "label_field": NONE + "s",
            "text_field": "text",
        }
    )
    values: dict[str, list[Any]] = {name: [] for name in names}
    records = 0
    chosen = sources[:: max(1, len(sources) // FILES)][:FILES]
    for source in chosen:
        for found in _carried(source, reading, len(chosen)):
            records += len(next(iter(found.values()), ()))
            for name, entries in found.items():
                values[name] += [_plain(entry) for entry in entries if entry not in (None, "", [])]
    return [FieldSample(name, records, entries) for name, entries in values.items()]


def _carried(source: Source, options: TextOptions, sources: int) -> Iterator[dict[str, list[Any]]]:
    """The fields of a sample of the records of one of several sources, as lists.

    Records may be sorted by label: the sample has some from everywhere.
    """
    read = 0
    try:
        for number, (split, content) in enumerate(SplitReader(0, source, options, SPLIT_BYTES)):
            if number < FIRST_SPLITS // sources or number % STRIDE == 0:
                documents = read_split(split, options, labelled=False, content=content)
                yield {name: values.to_pylist() for name, values in documents.carried.items()}
            read += split.bytes
            if read >= MAX_BYTES // sources:
                return
    finally:
        close_tables()


def _plain(value: Any) -> Any:
    """A value as text, or as a list of texts."""
    if isinstance(value, list):
        return [str(entry) for entry in value]
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if text.startswith("[") and text.endswith("]"):
        try:
            return [str(entry) for entry in json.loads(text)]
        except ValueError:
            return text
    return text
