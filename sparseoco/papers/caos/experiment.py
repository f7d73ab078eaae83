"""Data files → tables, a page, and which of the paper's claims hold."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from sklearn.exceptions import ConvergenceWarning

from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.papers.caos.claims import caos_claims
from sparseoco.papers.caos.objectives import (
    LENGTHS,
    methods_of,
    objective_cells,
    objective_rows,
    optimum_cell,
    optimum_rows,
    sampling_row,
    scaled,
)
from sparseoco.papers.caos.page import caos_page
from sparseoco.papers.caos.played import PLAYED, played_cell, played_rows
from sparseoco.papers.caos.regret import ARRANGEMENTS, optima_cell, playing_cell, regret_rows
from sparseoco.papers.cells import Cell, run_cells
from sparseoco.papers.claims import judge
from sparseoco.papers.documents import Documents, load_documents
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, check_repetitions, publish
from sparseoco.papers.sources import choose_sources, find_sources, missing_sources
from sparseoco.papers.tables import Records, Row, extend, read_schemas, select
from sparseoco.storage.locks import exclusive_lock

REPETITIONS: Final = 8
SETS: Final = ("books", "dvd", "ob-2-1", "sb-2-1")
SCHEMAS: Final = read_schemas(__file__)

_Run = Callable[[str, Sequence[Cell]], list[Any]]
"""Results of the cells of a step."""


def reproduce_caos(
    data: Path, out: Path, *, repetitions: int = REPETITIONS, progress: ProgressCallback = no_progress
) -> Path:
    """Test what Mohri and Yang (2015) prove and say; write OUT/*.parquet, OUT/inputs.json and OUT/caos.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of counts of the domains books and dvd and of 20news-bydate.jsonl.gz, in it or in its subfolders
        (`sparseoco.papers.sources`); data sets whose files are missing are skipped.
    out : Path
        Folder of the results.
    repetitions : int
        Orders of the documents, and repetitions of what is sampled.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    check_repetitions(repetitions=repetitions)
    known = choose_sources(*SETS)
    sources, files = find_sources(data, known)
    records: Records = {name: [] for name in SCHEMAS}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        for done, source in enumerate(sources, start=1):
            documents = load_documents(source, files, out / "stores")
            progress("read", done, len(sources))
            n_documents, n_features = documents.rows.shape
            size = {"documents": n_documents, "features": n_features, "nonzeros": documents.rows.nnz}
            records["sets"].append({"set": source.name, "title": source.title, **size})
            records["chances"].append(sampling_row(source.name, documents))
            run = partial(_run_step, out / "cells", source.title, progress)
            extend(records, _regret(source.name, documents, repetitions, run))
            for lengths in LENGTHS:
                extend(records, _objectives(source.name, documents, lengths, repetitions, run))
            extend(records, _played(records["optima"], source.name, documents, repetitions, run))
        extend(records, judge(caos_claims(records)))
        missing = [source.title for source in missing_sources(known, sources)]
        inputs = {"repetitions": repetitions, "missing": missing}
        return publish(out, "caos", records, SCHEMAS, inputs, files, caos_page)


def _run_step(folder: Path, title: str, progress: ProgressCallback, step: str, cells: Sequence[Cell]) -> list[Any]:
    return run_cells(folder, f"{title}, {step}", cells, progress)


def _regret(name: str, documents: Documents, repetitions: int, run: _Run) -> Records:
    orders = range(repetitions)
    optima = [optima_cell(documents, order) for order in orders]
    plays = [playing_cell(documents, order, arrangement) for arrangement in ARRANGEMENTS for order in orders]
    results = run("regret", [*optima, *plays])
    records: Records = {}
    for k, arrangement in enumerate(ARRANGEMENTS, start=1):
        played = results[k * repetitions : (k + 1) * repetitions]
        extend(records, regret_rows(name, arrangement, documents, results[:repetitions], played))
    return records


def _objectives(name: str, documents: Documents, lengths: str, repetitions: int, run: _Run) -> Records:
    documents = scaled(documents, lengths)
    methods = methods_of(lengths)
    cells = [cell for method in methods for cell in objective_cells(documents, method, repetitions)]
    with warnings.catch_warnings():  # here, because filters are shared by all threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is deliberate
        optimum, *results = run(f"objectives{LENGTHS[lengths]}", [optimum_cell(documents), *cells])
    optima = optimum_rows(name, lengths, optimum)
    records: Records = {"optima": optima}
    for k, method in enumerate(methods):
        extend(records, objective_rows(method, optima, results[k * repetitions : (k + 1) * repetitions]))
    return records


def _played(optima: Sequence[Row], name: str, documents: Documents, repetitions: int, run: _Run) -> Records:
    cells = [played_cell(documents, method, seed) for method in PLAYED for seed in range(repetitions)]
    results = run("regret of the iterates", cells)
    own = select(optima, set=name, lengths="own")
    records: Records = {}
    for k, method in enumerate(PLAYED):
        extend(records, played_rows(method, documents, own, results[k * repetitions : (k + 1) * repetitions]))
    return records
