"""Files of data → tables, a page, and which of the paper's claims hold."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.caos.claims import weigh
from sparseoco.papers.caos.minimising import (
    WHAT,
    cells_of,
    chances_row,
    methods_of,
    objective_rows,
    optimum_cell,
    optimum_rows,
    with_lengths,
)
from sparseoco.papers.caos.page import render
from sparseoco.papers.caos.records import TABLES
from sparseoco.papers.caos.streams import ARRANGEMENTS, optima_cell, playing_cell, regret_rows
from sparseoco.papers.cells import Cell, run_cells
from sparseoco.papers.records import Records
from sparseoco.papers.truncation.documents import SOURCES, Documents, files_of, make
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file, exclusive_lock
from sparseoco.storage.metrics import write_result_table

REPETITIONS: Final = 5
SETS: Final = ("books", "dvd", "ob-2-1", "sb-2-1")


def reproduce_caos(
    data: Path,
    out: Path,
    *,
    repetitions: int = REPETITIONS,
    progress: ProgressCallback = lambda step, done, total: None,
) -> Path:
    """Try what Mohri and Yang (2015) prove and say, and write OUT/*.parquet, OUT/inputs.json and OUT/caos.html; returns
    the page.

    `data` has books.svmlight.gz and dvd.svmlight.gz (counts) and 20news-bydate.jsonl.gz, or folders of them; what is
    missing is left out. Orders of documents, and what is drawn of them, come `repetitions` times. What is done stays in
    OUT/cells, and a run that was killed goes on from there. Equal files and numbers give equal bytes, but for seconds,
    which stand in `timings.parquet` and on the page.

    Raises `InputError` where none of the files is there, or one holds something else.
    """
    if repetitions < 2:
        raise InputError("Less than two repetitions have no spread: choose two or more.")
    known = [source for source in SOURCES if source.name in SETS]
    files = files_of(data, known)
    sources = [source for source in known if files[source.file] is not None]
    if not sources:
        wanted = dict.fromkeys(source.file for source in known)
        raise InputError(f"{data} has none of the files of the experiments: {', '.join(wanted)}.")
    records: Records = {name: [] for name in TABLES}
    with exclusive_lock(out):
        for done, source in enumerate(sources, start=1):
            documents = make(source, files, out / "stores")
            progress("read", done, len(sources))
            records["sets"].append(
                {
                    "set": source.name,
                    "title": source.title,
                    "documents": documents.rows.shape[0],
                    "features": documents.rows.shape[1],
                    "nonzeros": documents.rows.nnz,
                }
            )
            records["chances"].append(chances_row(source.name, documents))
            it = _Set(source.name, source.title, repetitions, out / "cells", progress)
            for part in (_regret(it, documents), *(_objectives(it, documents, lengths) for lengths in WHAT)):
                for name, rows in part.items():
                    records[name].extend(rows)
        records["claims"] = weigh(records)
        for name, schema in TABLES.items():
            write_result_table(out / f"{name}.parquet", records[name], schema)
        inputs: dict[str, Any] = {
            "sparseoco": __version__,
            "repetitions": repetitions,
            "files": {name: digest_file(found) for name, found in files.items() if found is not None},
            "missing": [source.title for source in known if source not in sources],
        }
        commit_json(out / "inputs.json", inputs)
        page = out / "caos.html"
        commit_bytes(page, render(records, inputs).encode())
    return page


class _Set(NamedTuple):
    """A set, how often what is drawn comes, and where what is done of it stays."""

    name: str
    title: str
    repetitions: int
    folder: Path
    progress: ProgressCallback

    def run(self, what: str, cells: Sequence[Cell]) -> list[Any]:
        return list(run_cells(self.folder, f"{self.title}, {what}", cells, self.progress))


def _regret(it: _Set, documents: Documents) -> Records:
    orders = range(it.repetitions)
    optima = [optima_cell(documents, order) for order in orders]
    plays = [playing_cell(documents, order, arrangement) for arrangement in ARRANGEMENTS for order in orders]
    found = it.run("regret", [*optima, *plays])
    records: Records = {}
    for k, arrangement in enumerate(ARRANGEMENTS, start=1):
        own = found[k * it.repetitions : (k + 1) * it.repetitions]
        for table, rows in regret_rows(it.name, arrangement, documents, found[: it.repetitions], own).items():
            records.setdefault(table, []).extend(rows)
    return records


def _objectives(it: _Set, documents: Documents, lengths: str) -> Records:
    documents, methods = with_lengths(documents, lengths), methods_of(lengths)
    cells = [cell for method in methods for cell in cells_of(documents, method, it.repetitions)]
    with warnings.catch_warnings():  # here, for filters are those of all threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many passes were asked for
        optimum, *found = it.run(f"objectives{WHAT[lengths]}", [optimum_cell(documents), *cells])
    optima = optimum_rows(it.name, lengths, optimum)
    records: Records = {"optima": optima}
    for k, method in enumerate(methods):
        own = found[k * it.repetitions : (k + 1) * it.repetitions]
        for table, rows in objective_rows(method, optima, own).items():
            records.setdefault(table, []).extend(rows)
    return records
