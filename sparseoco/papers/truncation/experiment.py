"""Files of data → tables, a page, and which of the claims of 2012 (STDA) or 2011 (SGFT) hold."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.cells import run_cells
from sparseoco.papers.records import Records, Row
from sparseoco.papers.truncation import features
from sparseoco.papers.truncation.claims import SPARSEST, weigh_sgft, weigh_stda
from sparseoco.papers.truncation.comparison import error_at
from sparseoco.papers.truncation.documents import PRINTED, SOURCES, Documents, Source, files_of, make
from sparseoco.papers.truncation.methods import Protocol, published_protocol
from sparseoco.papers.truncation.page import render
from sparseoco.papers.truncation.published import SGFT_SHEETS, STDA_SHEETS, Sheet
from sparseoco.papers.truncation.records import STDA_TABLES, TABLES
from sparseoco.papers.truncation.validation import Trial, cells_of, check, held_out, path, results
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file, exclusive_lock
from sparseoco.storage.metrics import write_result_table


class Experiment(NamedTuple):
    """What a paper runs: its name here, which is that of its methods' file too, sets, printed tables, tables to write,
    what it says they show."""

    name: str
    sources: tuple[Source, ...]
    sheets: tuple[Sheet, ...]
    schemas: dict[str, pa.Schema]
    weigh: Callable[[Records], list[Row]]


def _named(*names: str) -> tuple[Source, ...]:
    return tuple(source for source in SOURCES if source.name in names)


STDA: Final = Experiment(
    "stda",
    _named("books", "dvd", "books-text", "dvd-text", "ob-2-1", "sb-2-1"),
    STDA_SHEETS,
    STDA_TABLES,
    weigh_stda,
)
SGFT: Final = Experiment(
    "sgft",
    _named("books", "dvd", "books-text", "dvd-text", "ob-2-1", "sb-2-1", "ob-8-1", "sb-8-1", "reut20"),
    SGFT_SHEETS,
    TABLES,
    weigh_sgft,
)


def reproduce_stda(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = lambda step, done, total: None,
) -> Path:
    """Run Tables III to V and Figure 2 of Oiwa et al. (2012) and write OUT/*.parquet, OUT/inputs.json and
    OUT/stda.html; returns the page.

    `data` has books.svmlight.gz and dvd.svmlight.gz (counts, with feature_names.tsv), books.jsonl.gz and dvd.jsonl.gz
    (reviews labelled negative and positive) and 20news-bydate.jsonl.gz, or folders of them; what is missing is left
    out. `methods` is a file of methods to run beside the paper's (`methods.Protocol.adding`); `passes` are 20 if not
    given. What is done stays in OUT/cells, and a run that was killed goes on from there. Equal files give equal bytes,
    but for seconds, which stand in `timings.parquet` and on the page.

    Raises `InputError` where none of the files is there, or one holds something else.
    """
    return _run(STDA, data, out, methods, passes, progress)


def reproduce_sgft(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = lambda step, done, total: None,
) -> Path:
    """Run Tables 3 and 4 of Oiwa et al. (2011) and write OUT/*.parquet, OUT/inputs.json and OUT/sgft.html; returns
    the page. `reproduce_stda` says what of files, methods, cells and bytes; `data` has reuters21578.jsonl.gz too."""
    return _run(SGFT, data, out, methods, passes, progress)


def _run(
    experiment: Experiment, data: Path, out: Path, methods: Path | None, passes: int | None, progress: ProgressCallback
) -> Path:
    own = published_protocol(experiment.name)
    if passes is not None:
        if passes < 1:
            raise InputError(f"passes={passes} must be at least 1.")
        own = own.model_copy(update={"search": own.search | {"epochs": passes}})
    protocol = own if methods is None else own.adding(methods)
    files = files_of(data, experiment.sources)
    sources = [source for source in experiment.sources if files[source.file] is not None]
    if not sources:
        wanted = dict.fromkeys(source.file for source in experiment.sources)
        raise InputError(f"{data} has none of the files of the experiments: {', '.join(wanted)}.")
    records: Records = {name: [] for name in experiment.schemas}
    with exclusive_lock(out):
        for done, source in enumerate(sources, start=1):
            documents = make(source, files, out / "stores")
            progress("read", done, len(sources))
            _add(records, _set(experiment, protocol, source, documents, out / "cells", progress))
        records["claims"] = experiment.weigh(records)
        for name, schema in experiment.schemas.items():
            write_result_table(out / f"{name}.parquet", records[name], schema)
        read = [found for found in (*files.values(), methods) if found is not None]
        inputs: dict[str, Any] = {
            "sparseoco": __version__,
            **protocol.model_dump(),
            "added": [name for name in protocol.methods if name not in own.methods],
            "files": {found.name: digest_file(found) for found in read},
            "missing": [source.title for source in experiment.sources if source not in sources],
        }
        commit_json(out / "inputs.json", inputs)
        page = out / f"{experiment.name}.html"
        commit_bytes(page, render(experiment.name, experiment.sheets, records, inputs).encode())
    return page


def _set(
    experiment: Experiment,
    protocol: Protocol,
    source: Source,
    documents: Documents,
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """All rows of one set."""
    trials = [Trial(source.name, documents, method) for method in protocol.for_classes(len(documents.classes))]
    for trial in trials:
        check(trial)
    cells = [cells_of(trial) for trial in trials]
    found = iter(list(run_cells(folder, source.title, [cell for own in cells for cell in own], progress)))
    parts = [[next(found) for _ in own] for own in cells]
    records: Records = {"sets": [_describe(source, documents)], "folds": [], "results": [], "paths": [], "timings": []}
    for trial, own in zip(trials, parts, strict=True):
        keys = {"set": source.name, "method": trial.method.name}
        line = path(trial, own)
        records["paths"] += [keys | row for row in line]
        for rule, rows in results(trial, own):
            records["folds"] += [keys | {"rule": rule} | row for row in rows]
            records["results"] += _beside(experiment.sheets, source, keys | {"rule": rule}, rows, line)
        seconds = sum(part["seconds"] for part in own)
        records["timings"].append(
            keys | {"trainings": len(own), "columns": len(trial.method.strengths), "seconds": seconds}
        )
    if "features" in experiment.schemas:
        _add(records, _features(trials, parts, records["folds"], folder, progress))
    return records


def _features(
    trials: Sequence[Trial],
    parts: Sequence[Sequence[Any]],
    folds: Sequence[Row],
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """Table V and Figure 2: STDA with the λ that was chosen for the fold that is left out, RDA with the λ that keeps
    as many features, as nearly as there is one."""
    names = [trial.method.name for trial in trials]
    ours, theirs = (names.index(name) for name in features.PAIR)
    place = held_out(trials[ours].folds).index(features.LEFT_OUT)
    (fold,) = features.LEFT_OUT
    lam = {(row["method"], row["rule"]): row["lam"] for row in folds if row["fold"] == fold}[names[ours], SPARSEST]
    chosen = trials[ours].method.strengths.index(lam)
    kept = parts[ours][place]["nonzeros"][chosen]
    gaps = [abs(math.log((own + 1) / (kept + 1))) for own in parts[theirs][place]["nonzeros"]]
    cell = features.cell_of((trials[ours], trials[theirs]), (chosen, gaps.index(min(gaps))))
    (found,) = run_cells(folder, "features", [cell], progress)
    rows: Records = found
    return rows


def _describe(source: Source, documents: Documents) -> Row:
    printed = PRINTED[source.paper]
    return {
        "set": source.name,
        "title": source.title,
        "paper_set": source.paper,
        "documents": documents.rows.shape[0],
        "features": documents.rows.shape[1],
        "classes": len(documents.classes),
        "nonzeros": documents.rows.nnz,
        "paper_documents": printed[0],
        "paper_features": printed[1],
        "differs": source.passage,
    }


def _beside(sheets: Sequence[Sheet], source: Source, keys: Row, rows: Sequence[Row], line: Sequence[Row]) -> list[Row]:
    """A row a table of the paper that has the method, with what it prints; one without where none has it."""
    errors = [row["error"] for row in rows]
    mean = sum(errors) / len(errors)
    ours = {
        "error": mean,
        "deviation": (sum((error - mean) ** 2 for error in errors) / (len(errors) - 1)) ** 0.5,
        "sparseness": sum(row["sparseness"] for row in rows) / len(rows),
    }
    found: list[Row] = []
    for sheet in sheets:
        if keys["method"] in sheet.methods:
            figure = sheet.figures[source.paper][keys["method"]]
            found.append(
                {
                    "table": sheet.name,
                    "paper_error": figure.error / 100,
                    "paper_deviation": None if figure.deviation is None else figure.deviation / 100,
                    "paper_sparseness": figure.sparseness / 100,
                    "error_there": error_at(line, figure.sparseness / 100),
                }
            )
    nothing: Row = {"table": "", **dict.fromkeys(("paper_error", "paper_deviation", "paper_sparseness", "error_there"))}
    return [keys | ours | printed for printed in found or [nothing]]


def _add(records: Records, more: Records) -> None:
    for name, rows in more.items():
        records.setdefault(name, []).extend(rows)
