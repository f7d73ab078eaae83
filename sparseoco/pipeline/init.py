"""What sparseoco init proposes for an input, and the run file it writes."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import plural, printable
from sparseoco.pipeline.run_file import EvaluateOptions, NightlyOptions
from sparseoco.storage.locations import toml_key, toml_value
from sparseoco.store.weighting import TFIDF
from sparseoco.text.documents import BadRow
from sparseoco.text.formats import AUTO, DELIMITERS, FOLDERS, TABLES, UNLABELLED, UTF8, WITH_FIELDS, first_bytes
from sparseoco.text.options import IngestOptions, TextOptions
from sparseoco.text.parsers import MalformedRowError, object_keys, parse_time
from sparseoco.text.passes import SplitReader
from sparseoco.text.readers import FIRST_BYTES, Preview, Sample, describe_sources, preview
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.splits import position
from sparseoco.text.tables import close_tables, open_table
from sparseoco.training.options import RARE_CLASS, SearchOptions
from sparseoco.training.validation import are_ids

# ----------------------------------------------------------------------------------------------------------------------
# Samples of the fields of records, from which the first run file of some inputs is proposed.


SPLIT_BYTES: Final = 1 << 20
NONE: Final = "no field"
"""A category that records do not have: with fields, a record needs no text."""
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass
class FieldSample:
    """The values of a field in a sample of so many records.

    `values` are those that are not null and not empty: text, or the list of a record.
    """

    name: str
    records: int
    values: Sequence[Any]

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
        return tuple(schema.names)
    if source.format != "jsonl":
        split, _ = next(iter(SplitReader(0, source, options, FIRST_BYTES)), (None, None))
        return () if split is None else split.header
    head = first_bytes(source.path, source.compression, FIRST_BYTES, options.encoding)
    lines = head.splitlines()[:-1] or [head]
    return tuple(dict.fromkeys(name for line in lines for name in object_keys(line)))


def codec(source: Source) -> str:
    """The encoding that is detected at the beginning of a file; UTF-8 of tables."""
    if source.format in TABLES:
        return UTF8
    reader = SplitReader(0, source, TextOptions(encoding=AUTO), SPLIT_BYTES)
    next(iter(reader), None)
    return reader.codec


def sample_fields(sources: Sequence[Source], names: Sequence[str], options: TextOptions) -> list[FieldSample]:
    """The fields with these names that all files have, in a sample of the records of some files."""
    unread = {"fields": {NONE: {"type": "category"}}, "label_field": f"{NONE}s", "text_field": "text"}
    sample = Sample(sources, options, SPLIT_BYTES, labelled=False)
    for index in sample.chosen:
        if sources[index].format != "jsonl" and (own := field_names(sources[index], options)):
            names = [name for name in names if name in own]
    changed = unread | {"carried": tuple(names), "max_bad_rows": sys.maxsize}
    sample.options = TextOptions.model_validate(options.model_dump() | changed)
    values: dict[str, list[Any]] = {name: [] for name in names}
    for _, documents in sample:
        for name, entries in documents.carried.items():
            values[name] += [_plain(entry) for entry in entries.to_pylist() if entry not in (None, "", [])]
    return [FieldSample(name, sample.rows, entries) for name, entries in values.items()]


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


# ----------------------------------------------------------------------------------------------------------------------
# A first run file for some inputs: which fields are the text and the label, and what the labels are.


TEXT_NAMES: Final = ("text", "body", "content", "review", "message", "comment", "document", "description", "sentence")
LABEL_NAMES: Final = (
    *("label", "labels", "class", "target", "category", "categories", "topic", "topics", "tag", "tags"),
    *("sentiment", "stars", "rating", "score", "polarity", "y"),
)
SPLIT_NAMES: Final = frozenset({"train", "training", "test", "testing", "dev", "valid", "validation", "val", "eval"})
GROUP_NAME: Final = re.compile(r"(author|user|customer|reviewer|group|thread|product|domain|site|patient)(_?id)?", re.I)
WEIGHT_NAME: Final = re.compile(r"(sample_?)?weight|importance|(helpful_?)?votes|helpful", re.I)
TIME_NAME: Final = re.compile(r".*(time|date|timestamp)|year|created(_at)?|published(_at)?", re.I)
ID_NAME: Final = re.compile(r"(.*[_-])?(id|uid|uuid|guid|key)|url|uri", re.I)
MAX_CLASSES: Final = 50  # of a field that has another name than a label
MAX_INTEGER_CLASSES: Final = 20  # more different integers are numbers
TEXT_WORDS: Final = 3.0  # mean words of a text


@dataclass(frozen=True)
class Proposal:
    """What a run file says of its inputs.

    Parameters
    ----------
    has_text : bool
        Whether documents are text, and not counts of features.
    text_field, label_field : str or None
        None for formats without fields.
    labels : {"classes", "multi", "numbers"}
    counts : Counter
        Documents of each class in the sample.
    documents : int
        Documents in the sample.
    ingest : dict
        Other options of `[ingest]` that the inputs need.
    split : tuple of str, optional
        A field with the parts of the data, the value for training and that for the test.
    others : dict
        Names of fields that may be useful, by the option or the kind of feature that they may be.
    notes : tuple of str
        What the sample shows, for comments.
    warnings : tuple of str
        What of the data will not be used, for comments and for the output.
    problem : str, optional
        Why a run would fail.
    """

    has_text: bool = True
    text_field: str | None = None
    label_field: str | None = None
    labels: Literal["classes", "multi", "numbers"] = "classes"
    counts: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    ingest: dict[str, Any] = field(default_factory=dict)
    split: tuple[str, str, str] | None = None
    others: dict[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def rare_class(self) -> str | None:
        """The rarer of two classes, if it is rare."""
        if self.labels != "classes" or len(self.counts) != 2:
            return None
        name, count = min(self.counts.items(), key=lambda entry: entry[1])
        return name if count / self.counts.total() < RARE_CLASS else None


def propose(inputs: list[str]) -> tuple[Preview, Proposal]:
    """What is understood of the inputs with the options proposed for them, and these options.

    Raises
    ------
    InputError
        For inputs that cannot be read, and if there is no text or no label to learn (``no-text``, ``no-labels``).
    """
    sources = [source for source in find_sources(inputs, TextOptions()) if source.bytes]
    if not sources:
        raise InputError("There is nothing to look at: all inputs are empty.", code="no-documents")
    sizes = Counter[str]()
    for source in sources:
        sizes[source.format] += source.bytes
    form = sizes.most_common(1)[0][0]
    chosen = [source for source in sources if source.format == form]
    proposal = _of_records(chosen) if form in WITH_FIELDS else _of_documents(chosen)
    proposal = _as_read(proposal, chosen)
    return preview(inputs, None, _reading(proposal)), proposal


def _reading(proposal: Proposal) -> TextOptions:
    """The options of an ingest."""
    fields = {"text_field": proposal.text_field, "label_field": proposal.label_field}
    named: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if proposal.split is not None:
        named["where"] = {proposal.split[0]: proposal.split[1]}
    return TextOptions.of(named | {"labels": proposal.labels} | proposal.ingest)


class _Read(NamedTuple):
    """A sample as an ingest reads it: its bad rows with the names of their files, the documents of each class, and the
    number of documents with more than one class."""

    sample: Sample
    bad: list[tuple[str, BadRow]]
    counts: Counter[str]
    several: int

    @property
    def rows(self) -> int:
        """Documents and bad rows."""
        return self.sample.rows + len(self.bad)


def _read(proposal: Proposal, sources: Sequence[Source]) -> _Read:
    options = _reading(proposal).model_copy(update={"max_bad_rows": sys.maxsize})
    sample, counts, several = Sample(sources, options, SPLIT_BYTES), Counter[str](), 0
    bad: list[tuple[str, BadRow]] = []
    for split, documents in sample:
        labels = documents.labels
        if isinstance(labels, pa.Array) and pa.types.is_list(labels.type):
            several += int(np.count_nonzero(np.diff(labels.offsets) > 1))
            labels = labels.flatten()
        if isinstance(labels, pa.Array):
            counts.update(labels.to_pylist())
        bad += [(split.name, row) for row in documents.bad]
    return _Read(sample, bad, counts, several)


def _is_unlabelled(row: BadRow) -> bool:
    return row.reason.startswith("label field") and (row.code == "missing-field" or row.reason.endswith(" is empty"))


def _as_read(proposal: Proposal, sources: Sequence[Source]) -> Proposal:
    """The proposal with the classes that an ingest finds in a sample, and what it cannot read or learn."""
    read, warnings, problem = _read(proposal, sources), list(proposal.warnings), None
    undecodable = sum(row.code == "encoding" for _, row in read.bad)
    if undecodable and "encoding" not in proposal.ingest:
        detecting = replace(proposal, ingest=proposal.ingest | {"encoding": AUTO})
        detected = _read(detecting, sources)
        if len(detected.bad) < len(read.bad):
            warnings.append(f"Not valid UTF-8: {undecodable:,} of {plural(read.rows, 'row')} in the sample.")
            proposal, read = detecting, detected
    if proposal.labels == "multi" and not read.several:  # lists of one class, or text that is not divided
        single = replace(proposal, labels="classes")
        undivided = _read(single, sources)
        if len(undivided.bad) <= len(read.bad):
            proposal, read = single, undivided
    others = [(name, row) for name, row in read.bad if not _is_unlabelled(row)]
    if unlabelled := len(read.bad) - len(others):
        warnings.append(f"Documents without a label are quarantined: {unlabelled:,} of {read.rows:,} in the sample.")
    if others:
        first = f"{position(*others[0])}: {others[0][1].reason}"
        warnings.append(
            f"{len(others):,} of {plural(read.rows, 'row')} in the sample cannot be read, the first: {first}."
        )
    ingest = proposal.ingest
    if read.bad:
        expected = round(len(read.bad) / max(read.sample.share, 1e-9))
        ingest = ingest | {"max_bad_rows": max(100, 2 * expected)}
    in_folders = sources[0].format in FOLDERS  # whose files are all counted
    counts = proposal.counts if in_folders else read.counts
    if proposal.labels != "numbers" and len(counts) < 2:
        problem = "The sample has one class only: a run needs two."
    elif proposal.labels == "classes" and are_ids(counts.values()):
        problem = f"The sample has {len(counts):,} classes, most of one document each: the label looks like an id."
    documents = proposal.documents if in_folders else read.rows
    return replace(
        proposal, counts=counts, documents=documents, ingest=ingest, warnings=tuple(warnings), problem=problem
    )


def _of_documents(sources: Sequence[Source]) -> Proposal:
    """A proposal for documents without fields: files in folders, SVMlight, processed reviews."""
    form, path = sources[0].format, sources[0].path
    if form in UNLABELLED:
        raise InputError(
            f"{path} is plain text without labels, and a run learns labels: use records with a label (JSON lines, CSV, "
            "TSV, Parquet), or a folder for each class with one document per file.",
            code="no-labels",
        )
    kind = describe_sources(sources, TextOptions())[0]
    numbers = kind.bad is not None and kind.bad.code == "invalid-labels" and not kind.classes
    return Proposal(
        has_text=form in FOLDERS,
        labels="numbers" if numbers else "classes",
        counts=Counter(kind.classes),
        documents=kind.documents,
        notes=("Every file is a document; its label is the folder that it is in.",) * (form in FOLDERS),
    )


def _of_records(sources: Sequence[Source]) -> Proposal:
    path, ingest, options = sources[0].path, dict[str, Any](), TextOptions()
    encoding = codec(sources[0])
    if encoding != UTF8:
        ingest["encoding"] = encoding
        options = TextOptions.of(ingest)
    names = field_names(sources[0], options)
    fields = sample_fields(sources, names, options)
    named = bool(fields) and _is_header(names) and not any(each.name in each.counts for each in fields)
    if sources[0].format in DELIMITERS and not named:
        ingest["header"] = False
        options = TextOptions.of(ingest)
        fields = sample_fields(sources, [str(number + 1) for number in range(len(names))], options)
    text = _text(fields, path)
    label = _label([each for each in fields if each is not text], path)
    labels = label_kind(label)
    warnings = []
    if named and len(fields) < len(set(names)):
        unshared = sorted(set(names) - {each.name for each in fields})
        warnings.append(f"Not used: {', '.join(map(repr, unshared[:20]))}, which not every file has.")
    if label.is_integer and label.is_unique and labels == "numbers":
        warnings.append(f"Every document has another {label.name}: it may be an id, and no number to predict.")
    split = _split(fields, {text.name, label.name})
    if split is not None:
        values = next(each.counts for each in fields if each.name == split[0])
        warnings += [
            f"Not used: {plural(count, 'document')} in the sample with {split[0]} = {value!r}. The folds of [search] "
            "replace a validation set; where takes one value."
            for value, count in values.items()
            if value not in split[1:]
        ]
    return Proposal(
        text_field=text.name,
        label_field=label.name,
        labels=labels,
        ingest=ingest | _ids(fields),
        split=split,
        others=_others(fields, {text.name, label.name} | ({split[0]} if split else set())),
        warnings=tuple(warnings),
    )


def _is_header(names: Sequence[str]) -> bool:
    """Whether the cells of a first record can be names of columns."""
    distinct = len(set(names)) == len(names)
    return distinct and all(
        name.strip() and len(name.split()) <= 4 and not _NUMBER.fullmatch(name.strip()) for name in names
    )


def _rank(name: str, names: Sequence[str]) -> int:
    """The position of a name in a list of the most likely; further back if only a part of it is there, or nothing."""
    if name.lower() in names:
        return names.index(name.lower())
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return next((len(names) for known in names if known in parts), 2 * len(names))


def _is_named(name: str, names: Sequence[str]) -> bool:
    return _rank(name, names) <= len(names)


def _shown(fields: Sequence[FieldSample]) -> str:
    return ", ".join(repr(each.name) for each in fields[:20])


def _text(fields: Sequence[FieldSample], path: str) -> FieldSample:
    """The field with the text: the longest, but one that is named so if it is no single word either."""
    candidates = [
        each for each in fields if not each.is_number and not each.is_list and not each.is_date and each.values
    ]
    long = [each for each in candidates if each.words >= TEXT_WORDS]
    named = [each for each in candidates if _is_named(each.name, TEXT_NAMES) and each.words > 1]
    if not (long or named):
        raise InputError(
            f"{path} has no field of text among {_shown(fields)}.",
            code="no-text",
        )
    return min(named or long, key=lambda each: (_rank(each.name, TEXT_NAMES), -each.words))


def _label(fields: Sequence[FieldSample], path: str) -> FieldSample:
    """The field with the label: by its name, or else that with the fewest different values."""

    def plausible(each: FieldSample) -> bool:
        repeated = each.is_number or each.is_list or len(each.counts) <= max(2, len(each.values) // 2)
        return bool(each.values) and repeated and not _is_split(each)

    named = [each for each in fields if plausible(each) and _is_named(each.name, LABEL_NAMES)]
    few = [
        each
        for each in fields
        if plausible(each) and 2 <= len(each.counts) <= MAX_CLASSES and not (each.is_unique or each.is_date)
    ]
    if not (named or few):
        raise InputError(
            f"{path} has no field of labels among {_shown(fields)}: a label has two values or more, each "
            "of several documents.",
            code="no-labels",
        )
    if named:
        return min(named, key=lambda each: (len(each.counts) < 2, _rank(each.name, LABEL_NAMES)))
    return min(few, key=lambda each: (each.is_list, len(each.counts)))


def label_kind(label: FieldSample) -> Literal["classes", "multi", "numbers"]:
    """What the values of a field are as labels."""
    if label.is_list:
        return "multi"
    if label.is_number and (not label.is_integer or len(label.counts) > MAX_INTEGER_CLASSES):
        return "numbers"
    entries = {entry.strip() for value in label.counts for entry in value.split(",")}
    several = any("," in value for value in label.counts) and len(entries) <= len(label.counts)
    return "multi" if several and not any(" " in entry or not entry for entry in entries) else "classes"


def _is_split(each: FieldSample) -> bool:
    return not each.is_list and bool(each.counts) and {value.lower() for value in each.counts} <= SPLIT_NAMES


def _split(fields: Sequence[FieldSample], used: set[str]) -> tuple[str, str, str] | None:
    """The field that says what is for training and what for the test, and these two values."""
    for each in fields:
        if each.name not in used and _is_split(each):
            values = sorted(each.counts, key=lambda value: -each.counts[value])
            train = next((value for value in values if value.lower().startswith("train")), None)
            for beginning in ("test", "val", "dev", "eval"):
                test = next((value for value in values if value.lower().startswith(beginning)), None)
                if train is not None and test is not None:
                    return each.name, train, test
    return None


def _ids(fields: Sequence[FieldSample]) -> dict[str, Any]:
    """How to treat ids of documents that occur more than once."""
    own = next((each for each in fields if each.name == "id"), None)
    return {"duplicates": "all"} if own is not None and own.values and not own.is_unique and own.records > 1 else {}


def _others(fields: Sequence[FieldSample], used: set[str]) -> dict[str, list[str]]:
    """Fields that may be weights, groups, times, ids or features, by the option or the type."""
    found: dict[str, list[str]] = {}
    for each in fields:
        if each.name in used or not each.values or each.name == "id":
            continue
        whole = each.is_complete
        number = each.is_number and min(map(float, each.counts)) >= 0
        if whole and number and WEIGHT_NAME.fullmatch(each.name):
            kind = "weight_field"
        elif whole and (each.is_date or (each.is_number and TIME_NAME.fullmatch(each.name))):
            kind = "time_field"
        elif whole and not each.is_unique and not each.is_list and GROUP_NAME.fullmatch(each.name):
            kind = "group_field"
        elif whole and each.is_unique and ID_NAME.fullmatch(each.name):
            kind = "id_field"
        elif ":" in each.name or "=" in each.name or each.is_list:
            continue
        elif each.is_number:
            kind = "number"
        elif each.words >= TEXT_WORDS:
            kind = "text"
        elif len(each.counts) <= max(2, len(each.values) // 2):
            kind = "category"
        else:
            continue
        found.setdefault(kind, []).append(each.name)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# A run file with comments, from what is proposed for its inputs.


COLUMN = 44  # of comments
SHOWN = 8  # classes or fields in a comment


def run_file_text(inputs: list[str], file: Path, proposal: Proposal) -> str:
    """The text of a run file at a path."""
    problem = [proposal.problem] if proposal.problem else []
    algorithms = SearchOptions.model_fields["algorithms"].get_default(call_default_factory=True)
    models = (IngestOptions, SearchOptions, EvaluateOptions, NightlyOptions)
    context = {
        "file": printable(file.name),
        "folder": printable(file.name.removesuffix(".toml")),
        "notes": [printable(note) for note in (*proposal.notes, *problem, *proposal.warnings)],
        "paths": [_relative(item, file) for item in inputs],
        "proposal": proposal,
        "classes": printable(_classes(proposal)),
        "fields": [(kind, name) for kind in ("text", "category", "number") for name in proposal.others.get(kind, ())],
        "shown": SHOWN,
        "weighting": TFIDF.model_dump(),
        "algorithms": {name: {key: list(values) for key, values in grid.items()} for name, grid in algorithms.items()},
        "option": partial(_line, active=True),
        "example": _line,
        "default": _default,
        "toml_key": toml_key,
    }
    environment = Environment(
        loader=PackageLoader("sparseoco.pipeline"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.get_template("run_file.toml.j2")
    return template.render(context | {model.__name__: model for model in models})


def _relative(item: str, file: Path) -> str:
    """An input as the run file names it: relative to the file unless it is absolute or a URI."""
    if "://" in item or os.path.isabs(item):
        return item
    return os.path.relpath(os.path.abspath(item), os.path.abspath(file.parent))


def _line(key: str, value: Any, comment: str = "", *, active: bool = False) -> str:
    text = f"{'' if active else '# '}{key} = {toml_value(value)}"
    return f"{text + ' ':<{COLUMN}}# {printable(comment)}" if comment else text


def _default(model: Any, key: str, comment: str = "") -> str:
    """An option with its default, as a comment."""
    value = model.model_fields[key].get_default(call_default_factory=True)
    return _line(key, list(value) if isinstance(value, tuple) else value, comment)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names):,})" if len(names) > SHOWN else "")


def _classes(proposal: Proposal) -> str:
    sample = f"in a sample of {plural(proposal.documents, 'document')}"
    if proposal.labels == "numbers":
        return f"numbers, {sample}"
    largest_first = sorted(proposal.counts.items(), key=lambda entry: (-entry[1], entry[0]))
    counts = [f"{name} ({count:,})" for name, count in largest_first]
    return f"{plural(len(counts), 'class', 'classes')} {sample}: {_some(counts)}"
