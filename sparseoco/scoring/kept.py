"""The kept documents, in files of their own: one per split, in the input format or as rows of the scores.

`kept.json` says which documents are kept, and names the Parquet file that lists the files.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import Field

from sparseoco.core.errors import InputError, StorageError
from sparseoco.scoring.manifest import Listed, PartEntry, PartTable, ScoredSource, damaged_scores, remove_other_files
from sparseoco.scoring.options import ScoreOptions, kept_rows
from sparseoco.scoring.parts import PARTS, Scoring, over_parts, part_entry, read_part
from sparseoco.scoring.selection import Border, Counts, Ranking, count_digits, find_border, ranking
from sparseoco.storage.commit import commit_json, digest_value, read_json
from sparseoco.storage.locations import Location, location
from sparseoco.storage.parquet import write_parquet
from sparseoco.storage.validated import read_validated, validated
from sparseoco.store.data_files import is_written, read_table, write_data_file
from sparseoco.store.manifest import SHA256, FileEntry, Record
from sparseoco.text.cutting.passes import pass_over
from sparseoco.text.documents import BadRow
from sparseoco.text.job import TextJob
from sparseoco.text.options import TextOptions
from sparseoco.text.paths import RealPaths
from sparseoco.text.selected_rows import file_suffix, unwritable_reason, write_rows
from sparseoco.text.sources import Source, with_unique_names
from sparseoco.text.splits import Content, Split
from sparseoco.text.stored import changed

KEPT = "kept"
DESCRIPTION = "kept.json"


class KeptDescription(Record):
    """Which documents are kept.

    `value` and `included` are those of the border (see `sparseoco.scoring.selection`), `ranked_by` what the value is in
    words, `asked` the options that selected it, `scores` the digest of the manifest that they refer to.
    """

    scores: str = Field(pattern=SHA256)
    asked: dict[str, Any]
    column: str
    of: str
    ranked_by: str
    value: float
    included: bool
    documents: int = Field(ge=0)
    rows: int = Field(ge=0)
    ties: int = Field(ge=0)
    files: FileEntry

    @property
    def ranking(self) -> Ranking:
        """The order of the documents."""
        return Ranking(self.column, self.of, self.ranked_by)

    @property
    def border(self) -> Border:
        """The border."""
        return Border(self.value, self.included, self.rows, self.ties)


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
        reason = unwritable_reason(source.format)
        if reason is not None:
            raise InputError(f'{source.path}: {reason}; set keep_as = "ids".', code="unsupported-combination")
    given = _by_path(sources)
    real = RealPaths()
    for entry in known:
        if real(entry.path) not in given:
            raise InputError(
                f'{entry.path} was scored earlier and is not among the inputs: name it too, or set keep_as = "ids".',
                code="missing-input",
            )


def keep_documents(
    job: TextJob, scores: Listed, work: Scoring, sources: Sequence[Source], options: ScoreOptions
) -> None:
    """Write the documents that the options keep, in their input format, and describe them.

    Parameters
    ----------
    work : Scoring
        That made the scores.
    sources : sequence of Source
        The inputs; those of the scores are among them.

    Raises
    ------
    InputError
        For a source that changed since it was scored.
    """
    if _is_done(job, scores, options):
        return
    sources = _scored_sources(scores, sources)
    order = ranking(scores.manifest.models, options)
    border = _find_border(job, scores, order, options)
    found, states = pass_over(job, sources, Keeping(str(job.out), str(job.staging), work, order, border))
    for state, entry in zip(states, scores.sources, strict=True):
        if state.sha256 != entry.sha256:
            raise changed(entry.path)
    _commit(job.out, scores, options, order, border, [kept.entry for kept in found if kept.entry is not None])


def keep_rows(job: TextJob, scores: Listed, options: ScoreOptions) -> None:
    """Write the rows of the scores of the documents that the options keep, and describe them. Raises `InputError`."""
    if _is_done(job, scores, options):
        return
    order = ranking(scores.manifest.models, options)
    border = _find_border(job, scores, order, options)
    found = over_parts(job, scores.parts, "keep", _keep_part_rows, order, border)
    _commit(job.out, scores, options, order, border, [entry for entries in found for entry in entries])


def remove_unlisted(out: Location) -> None:
    """Remove the files of kept documents that `kept.json` does not list; without it, all."""
    kept = read_kept(out)
    lists = set() if kept is None else {kept.files.file}
    files = set() if kept is None else set(read_kept_files(out, kept).table["file"].to_pylist())
    remove_other_files(out, lists, f"{KEPT}-*.parquet")
    remove_other_files(out / KEPT, files)


def _asked(options: ScoreOptions) -> dict[str, Any]:
    return options.model_dump(mode="json", include={"keep_top", "keep_above", "keep_class", "keep_model", "keep_as"})


def _is_done(job: TextJob, scores: Listed, options: ScoreOptions) -> bool:
    """Whether the documents that the options keep have been written, and their files are as they were."""
    try:
        before = read_kept(job.out)
        if before is None or (before.scores, before.asked) != (scores.manifest.digest, _asked(options)):
            return False
        files = read_kept_files(job.out, before)
    except StorageError:
        return False  # they are written again
    return all(over_parts(job, files, "verify", _are_written))


def _are_written(out: str, files: list[PartEntry]) -> bool:
    return all(is_written(location(out) / KEPT, file) for file in files)


def _commit(
    out: Location, scores: Listed, options: ScoreOptions, order: Ranking, border: Border, entries: list[PartEntry]
) -> None:
    files = write_data_file(out, KEPT, PartTable.of(entries).table)
    described = KeptDescription(
        scores=scores.manifest.digest,
        asked=_asked(options),
        column=order.column,
        of=order.of,
        ranked_by=order.name,
        value=border.value,
        included=border.included,
        documents=scores.manifest.rows,
        rows=sum(entry.rows for entry in entries),
        ties=border.ties,
        files=files,
    )
    commit_json(out / DESCRIPTION, described.model_dump(mode="json"))


def _scored_sources(scores: Listed, sources: Sequence[Source]) -> list[Source]:
    """The sources of the scores, in their order, with the names and keys that the names of their parts depend on."""
    real = RealPaths()
    given = _by_path(sources)
    found = [given[real(entry.path)]._replace(absolute=entry.path, key=entry.key) for entry in scores.sources]
    return with_unique_names(found, [])


def _by_path(sources: Sequence[Source]) -> dict[str, Source]:
    real = RealPaths()
    return {real(source.absolute): source for source in sources}


class Kept(NamedTuple):
    """The kept documents of a split; `entry` is None if there are none."""

    split: Split
    entry: PartEntry | None
    bad: list[BadRow]
    digest: str


class Keeping(NamedTuple):
    """Writing kept documents, the work on each split of a scored corpus (see `sparseoco.text.cutting.work.Work`).

    A kept file has no checksum of its own: a staged file that describes it says that it is complete.
    """

    out: str
    staging: str
    scoring: Scoring
    ranking: Ranking
    border: Border

    @property
    def step(self) -> str:
        """The name of the work."""
        return "keep"

    @property
    def options(self) -> TextOptions:
        """How documents are read."""
        return self.scoring.options

    def path(self, split: Split) -> str:
        """The staged description of the kept documents of a split."""
        name = kept_name(self._part(split).name, self.ranking, self.border, "documents")
        return str(location(self.staging) / f"{name}.kept")

    def run(self, split: Split, content: Content | None) -> Kept:
        """Write the kept documents of a split."""
        memo, part = location(self.path(split)), self._part(split)
        table = read_part(part, columns=["row", self.ranking.column])
        rows = table["row"].to_numpy()[self.border.keeps(self.ranking.values(table[self.ranking.column]))]
        entry = None
        if rows.size:
            path = location(self.out) / KEPT / f"{memo.name.removesuffix('.kept')}{file_suffix(split)}"
            write_rows(split, content, rows, path, self.options)
            entry = part_entry(path, len(rows), split.source)
        commit_json(memo, {"entry": entry and entry.model_dump()})
        return Kept(split, entry, [], "")

    def describe(self, split: Split) -> Kept:
        """The kept documents of a split that were written. Raises `DamagedError` if their file is not as it was."""
        memo = location(self.path(split))
        found = read_json(memo)["entry"]
        if not found:
            return Kept(split, None, [], "")
        entry = validated(memo, found, PartEntry)
        path = location(self.out) / KEPT / entry.file
        if not is_written(path.parent, entry):
            raise damaged_scores(path)
        return Kept(split, entry, [], "")

    def _part(self, split: Split) -> Location:
        return location(self.scoring.path(split))


def kept_name(part: str, order: Ranking, border: Border, kind: str) -> str:
    """The name, without its suffix, of the file of kept documents of a part, or of their ids."""
    return digest_value([part, list(order), border.value, border.included, kind])[:32]


def _find_border(job: TextJob, scores: Listed, order: Ranking, options: ScoreOptions) -> Border:
    if options.keep_above is not None:
        return Border(options.keep_above, included=False, rows=0, ties=0)
    assert options.keep_top is not None

    def count(*digit: int) -> Iterator[Counts]:
        return over_parts(job, scores.parts, "select", _count_digits, order, *digit)

    return find_border(kept_rows(options.keep_top, scores.manifest.rows), count)


def _count_digits(out: str, parts: list[PartEntry], order: Ranking, prefix: int, known: int, bits: int) -> Counts:
    """The `count_digits` of some parts."""
    tables = [read_part(location(out) / PARTS / part.file, [order.column]) for part in parts]
    return count_digits(order.values(pa.concat_tables(tables)[order.column]), prefix, known, bits)


def _keep_part_rows(out: str, parts: list[PartEntry], order: Ranking, border: Border) -> list[PartEntry]:
    entries = []
    for part in parts:
        table = read_part(location(out) / PARTS / part.file)
        table = table.filter(pa.array(border.keeps(order.values(table[order.column]))))
        if table.num_rows:
            path = location(out) / KEPT / f"{kept_name(part.file, order, border, 'ids')}.parquet"
            write_parquet(path, table)
            entries.append(part_entry(path, table.num_rows, part.source))
    return entries
