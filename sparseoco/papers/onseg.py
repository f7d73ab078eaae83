"""The experiments of Liu et al. (2019), §4: files of data → tables, a page, and which of the paper's claims hold."""

from pathlib import Path
from typing import Final

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.cells import run_cells
from sparseoco.papers.claims import weigh
from sparseoco.papers.page import render
from sparseoco.papers.portfolios import PANELS, cell_of, read_panel
from sparseoco.papers.problems import SOURCES, find_file, read_problem
from sparseoco.papers.records import TABLES, Records
from sparseoco.papers.supervised import cells_of, describe, time_methods
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file, exclusive_lock
from sparseoco.storage.metrics import write_result_table

REPETITIONS: Final = 20
DRAWS: Final = 100


def reproduce_onseg(
    data: Path,
    out: Path,
    *,
    repetitions: int = REPETITIONS,
    draws: int = DRAWS,
    progress: ProgressCallback = lambda step, done, total: None,
) -> Path:
    """Run what there is data for, and write OUT/*.parquet, OUT/inputs.json and OUT/onseg.html; returns the page.

    `data` has the files of `problems.SOURCES` and `portfolios.PANELS`, or folders of them. `repetitions` are runs of
    a bandit on a data set, `draws` those of stocks. Equal files and numbers give equal bytes, but for seconds,
    which stand in `timings.parquet` and on the page. What is done stays in OUT/cells, and a run that was killed goes on
    from there.

    Raises `InputError` where none of the files is there, or one holds something else.
    """
    if min(repetitions, draws) < 2:
        raise InputError("Less than two repetitions or draws have no spread: choose two or more.")
    files = {source.file: find_file(data, source.file) for source in (*SOURCES, *PANELS)}
    missing = [name for name, path in files.items() if path is None]
    if len(missing) == len(files):
        raise InputError(f"{data} has none of the files of the experiments: {', '.join(files)}.")
    problems = [
        (read_problem(source, path, standardised=standardised), standardised)
        for source in SOURCES
        if (path := files[source.file]) is not None
        for standardised in (False, True)
    ]
    panels = [read_panel(source, path) for source in PANELS if (path := files[source.file]) is not None]
    records: Records = {name: [] for name in TABLES}
    with exclusive_lock(out):
        records["experiments"] = [describe(*of) for of in problems]
        cells = [cell for of in problems for cell in cells_of(*of, repetitions)]
        cells += [cell_of(panel, draws) for panel in panels]
        for more in run_cells(out / "cells", "play", cells, progress):
            for name, rows in more.items():
                records[name] += rows
        for done, (problem, standardised) in enumerate(problems, start=1):
            keys = (problem.source.name, standardised)
            methods = [row for row in records["methods"] if (row["experiment"], row["standardised"]) == keys]
            records["timings"] += time_methods(problem, methods)
            progress("time", done, len(problems))
        records["claims"] = weigh(records)
        for name, schema in TABLES.items():
            write_result_table(out / f"{name}.parquet", records[name], schema)
        inputs = {
            "sparseoco": __version__,
            "repetitions": repetitions,
            "draws": draws,
            "files": {name: digest_file(path) for name, path in files.items() if path is not None},
            "missing": missing,
        }
        commit_json(out / "inputs.json", inputs)
        page = out / "onseg.html"
        commit_bytes(page, render(records, inputs).encode())
    return page
