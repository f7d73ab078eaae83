"""Data files → tables, a page, and which of the paper's claims hold."""

from pathlib import Path
from typing import Final

from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.papers.cells import run_cells
from sparseoco.papers.claims import judge
from sparseoco.papers.experiment import check_repetitions, find_files, publish
from sparseoco.papers.onseg.claims import onseg_claims
from sparseoco.papers.onseg.datasets import SOURCES, read_dataset
from sparseoco.papers.onseg.page import onseg_page
from sparseoco.papers.onseg.portfolios import PANELS, panel_cell, read_panel
from sparseoco.papers.onseg.supervised import dataset_cells, describe, time_methods
from sparseoco.papers.tables import Records, extend, read_schemas, select
from sparseoco.storage.locks import exclusive_lock

REPETITIONS: Final = 20
DRAWS: Final = 100
SCHEMAS: Final = read_schemas(__file__)


def reproduce_onseg(
    data: Path,
    out: Path,
    *,
    repetitions: int = REPETITIONS,
    draws: int = DRAWS,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run the experiments whose files are there; write OUT/*.parquet, OUT/inputs.json and OUT/onseg.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the files of `datasets.SOURCES` and `portfolios.PANELS`, in it or in its subfolders.
    out : Path
        Folder of the results.
    repetitions, draws : int
        Runs of a bandit on a data set, and draws of stocks.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    check_repetitions(repetitions=repetitions, draws=draws)
    names = [source.file for source in (*SOURCES, *PANELS)]
    files = find_files(data, names)
    datasets = [
        read_dataset(source, files[source.file], standardised=standardised)
        for source in SOURCES
        if source.file in files
        for standardised in (False, True)
    ]
    panels = [read_panel(source, files[source.file]) for source in PANELS if source.file in files]
    records: Records = {name: [] for name in SCHEMAS}
    with exclusive_lock(out):
        records["experiments"] = [describe(dataset) for dataset in datasets]
        cells = [cell for dataset in datasets for cell in dataset_cells(dataset, repetitions)]
        cells += [panel_cell(panel, draws) for panel in panels]
        for part in run_cells(out / "cells", "play", cells, progress):
            extend(records, part)
        for done, dataset in enumerate(datasets, start=1):
            records["timings"] += time_methods(dataset, select(records["methods"], **dataset.key))
            progress("time", done, len(datasets))
        extend(records, judge(onseg_claims(records)))
        missing = [name for name in names if name not in files]
        inputs = {"repetitions": repetitions, "draws": draws, "missing": missing}
        return publish(out, "onseg", records, SCHEMAS, inputs, files, onseg_page)
