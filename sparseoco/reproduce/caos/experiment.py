"""Files of data → tables, a page, and which of the paper's claims hold."""

import warnings
from pathlib import Path
from typing import Any, Final

from sklearn.exceptions import ConvergenceWarning

from sparseoco import __version__
from sparseoco.commit import commit_bytes, commit_json, digest_file, owned
from sparseoco.errors import InputError
from sparseoco.metrics import write_table
from sparseoco.reproduce.caos.claims import weigh
from sparseoco.reproduce.caos.minimising import (
    METHODS,
    cells_of,
    chances_row,
    objective_rows,
    optimum_cell,
    optimum_rows,
)
from sparseoco.reproduce.caos.page import render
from sparseoco.reproduce.caos.records import TABLES
from sparseoco.reproduce.caos.streams import ARRANGEMENTS, optima_cell, playing_cell, regret_rows
from sparseoco.reproduce.cells import Progress, run_cells
from sparseoco.reproduce.records import Records
from sparseoco.reproduce.truncation.documents import SOURCES, Documents, files_of, make

REPETITIONS: Final = 5
SETS: Final = ("books", "dvd", "ob-2-1", "sb-2-1")


def reproduce_caos(
    data: Path,
    out: Path,
    *,
    repetitions: int = REPETITIONS,
    progress: Progress = lambda step, done, total: None,
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
    with owned(out):
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
            for part in (
                _regret(source.name, source.title, documents, repetitions, out / "cells", progress),
                _objectives(source.name, source.title, documents, repetitions, out / "cells", progress),
            ):
                for name, rows in part.items():
                    records[name].extend(rows)
        records["claims"] = weigh(records)
        for name, schema in TABLES.items():
            write_table(out / f"{name}.parquet", records[name], schema)
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


def _regret(name: str, title: str, documents: Documents, repetitions: int, folder: Path, progress: Progress) -> Records:
    orders = range(repetitions)
    optima = [optima_cell(documents, order) for order in orders]
    plays = [playing_cell(documents, order, arrangement) for arrangement in ARRANGEMENTS for order in orders]
    found = list(run_cells(folder, f"{title}, regret", [*optima, *plays], progress))
    records: Records = {}
    for k, arrangement in enumerate(ARRANGEMENTS, start=1):
        own = found[k * repetitions : (k + 1) * repetitions]
        for table, rows in regret_rows(name, arrangement, documents, found[:repetitions], own).items():
            records.setdefault(table, []).extend(rows)
    return records


def _objectives(
    name: str, title: str, documents: Documents, repetitions: int, folder: Path, progress: Progress
) -> Records:
    cells = [cell for method in METHODS for cell in cells_of(documents, method, repetitions)]
    with warnings.catch_warnings():  # here, for filters are those of all threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many passes were asked for
        optimum, *found = run_cells(folder, f"{title}, objectives", [optimum_cell(documents), *cells], progress)
    optima = optimum_rows(name, optimum)
    records: Records = {"optima": optima, "chances": [chances_row(name, documents)]}
    for k, method in enumerate(METHODS):
        own = found[k * repetitions : (k + 1) * repetitions]
        for table, rows in objective_rows(name, method, optima, own).items():
            records.setdefault(table, []).extend(rows)
    return records
