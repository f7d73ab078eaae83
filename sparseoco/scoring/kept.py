"""Which documents are kept, and writing them in their format."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from sparseoco.core.errors import InputError, StorageError, unsupported
from sparseoco.core.formatting import not_one_of
from sparseoco.scoring import parts as scored
from sparseoco.scoring.options import ScoreOptions, kept_rows
from sparseoco.scoring.parts import Listed, ModelEntry, PartEntry, PartTable, ScoredSource, Scoring
from sparseoco.storage.commit import Sha256, commit_json, digest_value, read_json, read_validated, validated
from sparseoco.storage.inputs import changed
from sparseoco.storage.locations import Location, location, real_path
from sparseoco.storage.tables import write_parquet
from sparseoco.store.entries import is_written, read_table, write_data_file
from sparseoco.store.manifest import FileEntry, Record
from sparseoco.text.documents import BadRow
from sparseoco.text.formats import FOLDERS
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import TextJob, pass_over
from sparseoco.text.sources import Source, with_unique_names
from sparseoco.text.splits import Content, Split, file_suffix, write_rows
from sparseoco.training.decisions import class_columns

# ----------------------------------------------------------------------------------------------------------------------
# The documents to keep: those whose score is at or above a border, an exact quantile of all scores.
#
# Scores become integers of the same order, of four digits of 16 bits. A pass of tasks over all scores counts how often
# each value of a digit occurs among those with the digits before it, which shows the next digit of the border.
# Documents that equal the border are kept.


DIGIT_BITS = 16
BITS = 64
_SIGN = np.uint64(1 << 63)


class Ranking(Record):
    """The order of documents, from a column of the scores: larger values come first.

    Parameters
    ----------
    column : str
    of : {"value", "negative", "complement"}
        v, −v or 1 − v: margins and probabilities are of the second of two classes.
    ranked_by : str
        What the value is, in words.
    class_name : str or None
        Its class; None for numbers.
    """

    column: str
    of: str
    ranked_by: str
    class_name: str | None = None

    def values(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        """The values of documents, to compare them; −∞ for margins that are not a number, such as ∞ − ∞."""
        values = np.asarray(column.to_numpy(), np.float64)
        if self.of != "value":
            values = -values if self.of == "negative" else 1.0 - values
        return np.where(np.isnan(values), -np.inf, values)


class Border(Record):
    """Which documents are kept.

    Parameters
    ----------
    value : float
        Of the ranking; documents with larger ones are kept.
    included : bool
        Whether documents with this value are kept.
    rows : int
        Documents that are kept.
    ties : int
        Of these, those with the value of the border.
    """

    value: float
    included: bool
    rows: int = Field(ge=0)
    ties: int = Field(ge=0)

    def keeps(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the values are kept."""
        return values >= self.value if self.included else values > self.value


def ranking(models: Sequence[ModelEntry], options: ScoreOptions) -> Ranking:
    """The order by which the options keep documents, by the first model.

    By the margin, or, of one of many classes, by its probability, if the model has them; above a limit, by the
    probability.

    Raises `InputError` for a class that is not there, or missing.
    """
    model = models[0]
    joint = model.outputs > 1 and not model.label_sets  # margins of a class are comparable within a document only
    by_probability = model.probabilities and (options.keep_above is not None or joint)
    kind = "probability" if by_probability else "margin"
    return class_ranking(models, model, kind, kept_class(model, options.keep_class))


def class_ranking(models: Sequence[ModelEntry], model: ModelEntry, kind: str, name: str | None) -> Ranking:
    """The order by the margin or probability of a class, or by the predicted numbers if it is None."""
    prefix = scored.column_prefix(model.name, len(models))
    if name is None:
        return Ranking(column=f"{prefix}margin", of="value", ranked_by="prediction")
    column, of = kind, "value"
    if model.outputs > 1:
        column = class_columns(kind, [name], 2)[0]
    elif name != model.classes[1]:
        of = "complement" if kind == "probability" else "negative"
    return Ranking(column=prefix + column, of=of, ranked_by=f"{kind} of {name}", class_name=name)


def kept_class(model: ModelEntry, name: str | None) -> str | None:
    """The class that kept documents should have; None for numbers. Raises `InputError` if it is missing or unknown."""
    if not model.classes:
        if name is not None:
            raise InputError(f"keep_class: {model.folder} predicts numbers.", code="invalid-option")
        return None
    if name is None:
        if model.positive_class is None:
            raise InputError(
                f"Set keep_class (--keep-class) to the class to keep, one of {', '.join(model.classes)}.",
                code="missing-option",
            )
        return model.positive_class
    if name not in model.classes:
        raise InputError(
            f"keep_class: there is no class {name}; {not_one_of(name, model.classes)}.", code="invalid-option"
        )
    return name


def count_digits(values: NDArray[np.float64], prefix: int, known: int) -> NDArray[np.int64]:
    """How often the digit after the first `known` bits has each value, in keys whose first bits are `prefix`.

    Keys are integers in the order of the values; −0 is 0.
    """
    bits = (values + 0.0).view(np.uint64)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if known:
        keys = keys[keys >> np.uint64(BITS - known) == np.uint64(prefix)]
    digits = keys >> np.uint64(BITS - known - DIGIT_BITS) & np.uint64((1 << DIGIT_BITS) - 1)
    return np.bincount(digits.astype(np.int64), minlength=1 << DIGIT_BITS)


def find_border(rows: int, count: Callable[[int, int], Iterable[NDArray[np.int64]]]) -> Border:
    """The border of the best `rows` documents.

    Parameters
    ----------
    rows : int
        At least 1, and at most all documents.
    count : callable
        The `count_digits` (prefix, known) of all documents, in pieces.
    """
    prefix = above = ties = 0
    for known in range(0, BITS, DIGIT_BITS):
        counts = reduce(np.add, count(prefix, known))
        at_least = above + np.cumsum(counts[::-1])[::-1]
        digit = int(np.flatnonzero(at_least >= rows)[-1])
        ties = int(counts[digit])
        above = int(at_least[digit]) - ties
        prefix = prefix << DIGIT_BITS | digit
    bits = prefix & ~(1 << 63) if prefix >> 63 else ~prefix & (1 << 64) - 1  # of the value with this key
    value = float(np.uint64(bits).view(np.float64))
    return Border(value=value, included=True, rows=above + ties, ties=ties)


# ----------------------------------------------------------------------------------------------------------------------
# The kept documents, in files of their own: one per split, in the input format or as rows of the scores.
#
# `kept.json` says which documents are kept, and names the Parquet file that lists the files.


KEPT = "kept"
DESCRIPTION = "kept.json"


class KeptDescription(Ranking, Border):
    """Which documents are kept.

    `asked` are the options that selected them, `scores` is the digest of the manifest that they refer to.
    """

    scores: Sha256
    asked: dict[str, Any]
    documents: int = Field(ge=0)
    files: FileEntry

    @property
    def ranking(self) -> Ranking:
        """The order alone."""
        return Ranking(**{name: getattr(self, name) for name in Ranking.model_fields})

    @property
    def share(self) -> float:
        """The share of the documents that is kept."""
        return self.rows / self.documents if self.documents else 0.0


def read_kept(folder: Location) -> KeptDescription | None:
    """The description of the kept documents of a folder of scores, if any. Raises `DamagedError`."""
    path = folder / DESCRIPTION
    return read_validated(path, KeptDescription) if path.exists() else None


def read_kept_files(folder: Location, kept: KeptDescription) -> PartTable:
    """The files of kept documents, in the order of the input. Raises `StorageError`."""
    return PartTable(read_table(folder, kept.files))


def check_writable(known: Sequence[ScoredSource], sources: Sequence[Source]) -> None:
    """Check, before anything is scored, that kept documents of all sources can be written in their input format.

    Raises `InputError` for a source that was scored earlier and is not given, or of a format that cannot be written.
    """
    for source in sources:
        if source.format in FOLDERS:
            raise unsupported(f'{source.path}: each document is a file of its own; set keep_as = "ids".')
    given = _by_path(sources)
    for entry in known:
        if real_path(entry.path) not in given:
            raise InputError(
                f'{entry.path} was scored earlier and is not among the inputs: name it too, or set keep_as = "ids".',
                code="missing-input",
            )


def keep(job: TextJob, scores: Listed, options: ScoreOptions, work: Scoring | None, sources: Sequence[Source]) -> None:
    """Write the documents that the options keep, and describe them, unless that has been done.

    Parameters
    ----------
    work : Scoring or None
        That made the scores: documents are written in their input format. Without it, their rows of the scores are.
    sources : sequence of Source
        The inputs; those of the scores are among them.

    Raises
    ------
    InputError
        For a source that changed since it was scored.
    """
    if _is_done(job, scores, options):
        return
    order = ranking(scores.manifest.models, options)
    if options.keep_top is None:
        assert options.keep_above is not None
        border = Border(value=options.keep_above, included=False, rows=0, ties=0)
    else:

        def count(*digit: int) -> Iterator[NDArray[np.int64]]:
            return scored.over_parts(job, scores.parts, "select", _count_digits, order, *digit)

        border = find_border(kept_rows(options.keep_top, scores.manifest.rows), count)
    if work is None:
        rows = scored.over_parts(job, scores.parts, "keep", _keep_part_rows, order, border)
        entries = [entry for part in rows for entry in part]
    else:
        keeping = Keeping(str(job.out), str(job.staging), work, order, border, work.options)
        given = _by_path(sources)  # the names of parts depend on the names and keys with which sources were scored
        known = [given[real_path(entry.path)]._replace(absolute=entry.path, key=entry.key) for entry in scores.sources]
        found, digests = pass_over(job, with_unique_names(known, []), keeping)
        for sha256, source in zip(digests, scores.sources, strict=True):
            if sha256 != source.sha256:
                raise changed(source.path)
        entries = [kept.entry for kept in found if kept.entry is not None]
    described = KeptDescription(
        scores=scores.manifest.digest,
        asked=_asked(options),
        documents=scores.manifest.rows,
        files=write_data_file(job.out, KEPT, PartTable.of(entries).table),
        **dict(order),
        **dict(border) | {"rows": sum(entry.rows for entry in entries)},
    )
    commit_json(job.out / DESCRIPTION, described.model_dump(mode="json"))


def remove_unlisted(out: Location) -> None:
    """Remove the files of kept documents that `kept.json` does not list; without it, all."""
    kept = read_kept(out)
    lists = set() if kept is None else {kept.files.file}
    files = set() if kept is None else set(read_kept_files(out, kept).table["file"].to_pylist())
    scored.remove_other_files(out, lists, f"{KEPT}-*.parquet")
    scored.remove_other_files(out / KEPT, files)


def _asked(options: ScoreOptions) -> dict[str, Any]:
    return options.model_dump(mode="json", include={"keep_top", "keep_above", "keep_class", "keep_as"})


def _is_done(job: TextJob, scores: Listed, options: ScoreOptions) -> bool:
    """Whether the documents that the options keep have been written, and their files are as they were."""
    try:
        before = read_kept(job.out)
        if before is None or (before.scores, before.asked) != (scores.manifest.digest, _asked(options)):
            return False
        files = read_kept_files(job.out, before)
    except StorageError:
        return False  # they are written again
    return all(scored.over_parts(job, files, "verify", _are_written))


def _are_written(out: str, files: list[PartEntry]) -> bool:
    return all(is_written(location(out) / KEPT, file) for file in files)


def _by_path(sources: Sequence[Source]) -> dict[str, Source]:
    return {source.real: source for source in sources}


class Kept(NamedTuple):
    """The kept documents of a split; `entry` is None if there are none."""

    split: Split
    entry: PartEntry | None
    bad: list[BadRow]
    digest: str


class Keeping(NamedTuple):
    """Writing kept documents, the work on each split of a scored corpus (see `sparseoco.text.passes.Work`).

    A kept file has no checksum of its own: a staged file that describes it says that it is complete.
    """

    out: str
    staging: str
    scoring: Scoring
    ranking: Ranking
    border: Border
    options: TextOptions
    step: str = "keep"

    def path(self, split: Split) -> str:
        """The staged description of the kept documents of a split."""
        name = kept_name(self._part(split).name, self.ranking, self.border, "documents")
        return str(location(self.staging) / f"{name}.kept")

    def run(self, split: Split, content: Content | None) -> Kept:
        """Write the kept documents of a split."""
        memo, part = location(self.path(split)), self._part(split)
        table = scored.read_part(part, columns=["row", self.ranking.column])
        rows = table["row"].to_numpy()[self.border.keeps(self.ranking.values(table[self.ranking.column]))]
        entry = None
        if rows.size:
            path = location(self.out) / KEPT / f"{memo.name.removesuffix('.kept')}{file_suffix(split)}"
            write_rows(split, content, rows, path, self.options)
            entry = scored.part_entry(path, len(rows), split.source)
        commit_json(memo, {"entry": entry and entry.model_dump()})
        return Kept(split, entry, [], "")

    def describe(self, split: Split) -> Kept:
        """The kept documents of a split that were written. Raises `DamagedError` if their file is not as it was."""
        memo = location(self.path(split))
        found = read_json(memo)["entry"]
        entry = validated(memo, found, PartEntry) if found else None
        if entry is not None and not is_written(location(self.out) / KEPT, entry):
            raise scored.damaged_scores(memo)
        return Kept(split, entry, [], "")

    def _part(self, split: Split) -> Location:
        return location(self.scoring.path(split))


def kept_name(part: str, order: Ranking, border: Border, kind: str) -> str:
    """The name, without its suffix, of the file of kept documents of a part, or of their ids."""
    return digest_value([part, [order.column, order.of, order.ranked_by], border.value, border.included, kind])[:32]


def _count_digits(out: str, parts: list[PartEntry], order: Ranking, prefix: int, known: int) -> NDArray[np.int64]:
    """The `count_digits` of some parts."""
    tables = [scored.read_part(location(out) / scored.PARTS / part.file, [order.column]) for part in parts]
    return count_digits(order.values(pa.concat_tables(tables)[order.column]), prefix, known)


def _keep_part_rows(out: str, parts: list[PartEntry], order: Ranking, border: Border) -> list[PartEntry]:
    entries = []
    for part in parts:
        table = scored.read_part(location(out) / scored.PARTS / part.file)
        table = table.filter(pa.array(border.keeps(order.values(table[order.column]))))
        if table.num_rows:
            path = location(out) / KEPT / f"{kept_name(part.file, order, border, 'ids')}.parquet"
            write_parquet(path, table)
            entries.append(scored.part_entry(path, table.num_rows, part.source))
    return entries
