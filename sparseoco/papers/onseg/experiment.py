"""Data files → tables, a page, and which of the paper's claims hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.datasets.panels import Values, read_panel
from sparseoco.papers.cells import run_cells
from sparseoco.papers.claims import judge_by_rules
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, check_repetitions, find_files, publish
from sparseoco.papers.onseg.claims import CRITERIA, onseg_claims
from sparseoco.papers.onseg.datasets import PLAIN, SETTINGS, SOURCES, read_dataset
from sparseoco.papers.onseg.page import onseg_page
from sparseoco.papers.onseg.portfolios import PANELS, PanelData, given_panel, panel_cell
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
    panel: Sequence[Path] = (),
    panel_values: Values | None = None,
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
    panel : sequence of Path
        Further panels of prices or relatives, wherever they are (`sparseoco.datasets.panels`).
    panel_values : {"prices", "relatives"}, optional
        What they have; by default as their values look.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, one is invalid, or two panels have the same name.
    """
    check_repetitions(repetitions=repetitions, draws=draws)
    if panel_values is not None and not panel:
        raise InputError("--panel-values is of --panel: name a panel.", code="unsupported-combination")
    names = [source.file for source in (*SOURCES, *PANELS)]
    files = find_files(data, names, required=not panel)
    datasets = [
        read_dataset(source, files[source.file], setting)
        for source in SOURCES
        if source.file in files
        for setting in SETTINGS
    ]
    panels = [
        PanelData(source, read_panel(files[source.file], from_one=source.from_one))
        for source in PANELS
        if source.file in files
    ]
    for path in panel:
        if path.name in files:
            raise InputError(f"{path}: there is a panel of this name already.", code="duplicate-name")
        files[path.name] = path
        panels.append(PanelData(given_panel(path), read_panel(path, values=panel_values)))
    records: Records = {name: [] for name in SCHEMAS}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        records["experiments"] = [describe(dataset) for dataset in datasets]
        cells = [cell for dataset in datasets for cell in dataset_cells(dataset, repetitions)]
        cells += [panel_cell(each, draws) for each in panels]
        for part in run_cells(out / "cells", "play", cells, progress):
            extend(records, part)
        timed = [dataset for dataset in datasets if dataset.setting == PLAIN]
        for done, dataset in enumerate(timed, start=1):
            records["timings"] += time_methods(dataset, select(records["methods"], **dataset.key))
            progress("time", done, len(timed))
        tested = {criterion.title: onseg_claims(records, criterion) for criterion in CRITERIA}
        extend(records, judge_by_rules(tested, CRITERIA[0].title))
        missing = [name for name in names if name not in files]
        inputs = {"repetitions": repetitions, "draws": draws, "missing": missing}
        return publish(out, "onseg", records, SCHEMAS, inputs, files, onseg_page)
