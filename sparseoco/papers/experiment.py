"""What the papers' experiments share: trials on disk, tables, page."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError
from sparseoco.core.logs import report_progress
from sparseoco.papers.claims import FIRST, Claim, Finding, format_comparison, format_mean, judge, ordered_claims
from sparseoco.papers.rows import Records, Row, mean_rows, select
from sparseoco.papers.sources import Documents, DocumentSource, Files, load_documents
from sparseoco.report.charts import COLOURS, MARKERS, Series, line, render_page
from sparseoco.storage import commit
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file, digest_value, read_json
from sparseoco.storage.locations import read_toml
from sparseoco.storage.tables import write_result_table

# ----------------------------------------------------------------------------------------------------------------------
# Parts of an experiment, each run once: results stay on disk, so that an interrupted experiment resumes.


class Cell(NamedTuple):
    """A part: `key` is everything its result depends on, and `run` computes the result, a JSON value."""

    key: Mapping[str, Any]
    run: Callable[[], Any]


class Run(NamedTuple):
    """An experiment that is running: its folder, and what the steps of its progress begin with."""

    out: Path
    title: str = ""

    def cells(self, step: str, cells: Sequence[Cell], threads: int | None = None) -> list[Any]:
        """The cells' results in order, computed in threads (by default one per processor), or read from OUT/cells if a
        cell of the same key has run before.

        Floats are exact: JSON has the shortest decimals that parse to the same number.
        """
        results = []
        pool = ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix="reproduce")
        folder = self.out / "cells"
        try:
            futures = [pool.submit(_result, folder / f"{digest_value(dict(cell.key))}.json", cell) for cell in cells]
            for done, future in enumerate(futures, start=1):
                results.append(future.result())
                report_progress(f"{self.title}, {step}" if self.title else step, done, len(cells))
        finally:
            pool.shutdown(cancel_futures=True)
        return results

    def cells_by(self, step: str, cells: Mapping[Any, Sequence[Cell]]) -> dict[Any, list[Any]]:
        """The results of `cells` of each of several things."""
        results = iter(self.cells(step, [cell for own in cells.values() for cell in own]))
        return {key: [next(results) for _ in own] for key, own in cells.items()}

    def documents(self, sources: Sequence[DocumentSource], files: Files) -> Iterator[tuple[DocumentSource, Documents]]:
        """Each set of documents; their stores are in OUT/stores."""
        for done, source in enumerate(sources, start=1):
            documents = load_documents(source, files, self.out / "stores")
            report_progress("read", done, len(sources))
            yield source, documents


def _result(path: Path, cell: Cell) -> Any:
    with suppress(DamagedError):  # it has not run, or its file is corrupt
        return read_json(path)["result"]
    result = cell.run()
    commit_json(path, {"result": result})
    return result


# ----------------------------------------------------------------------------------------------------------------------
# What the pages of all experiments share: their claims, one self-contained HTML file.


def render(template: str, records: Records, timing_claims: Sequence[Finding] = (), **context: Any) -> str:
    """The HTML of a page; `context` is what its template needs besides what all pages have: `inputs`, and its own.

    Claims on run times are judged among themselves, so that the verdicts in claims.parquet do not depend on them.
    """
    timed = judge(timing_claims)
    ordered = ordered_claims(records["claims"] + timed["claims"])
    comparisons = records["comparisons"] + timed["comparisons"]
    counts = Counter(claim.verdict for claim in ordered)

    def details(claim: str, where: str) -> list[str]:
        return [format_comparison(row) for row in select(comparisons, claim=claim, where=where)]

    shared = {
        "records": records,
        "claims": ordered,
        "counts": {word: counts[word] for word in FIRST},
        "claim_of": Claim,
        "n_primary": len(select(comparisons, primary=True)),
        "n_timed": len(timed["comparisons"]),
        "details": details,
        "format_mean": format_mean,
        "mean_rows": mean_rows,
        "select": select,
    }
    return render_page(template, shared | context, "sparseoco.papers")


def look(k: int) -> dict[str, Any]:
    """The colour and marker of the k-th method of a figure."""
    return {"colour": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}


Looks = Mapping[Any, Mapping[str, Any]]
"""The style of each line of a figure."""


def lines_by(rows: Sequence[Row], by: str, x: str, y: str, looks: Looks, label: str, scale: float = 1) -> list[Series]:
    """A line through two columns, y scaled, for each value of another, in the order of `looks`, which has the style of
    each; `label` is a format of a row's columns and of `value`, which is that y."""
    series = []
    for name, look in looks.items():
        points = [
            (row[x], scale * row[y], label.format(**row | {"value": scale * row[y]}))
            for row in select(rows, **{by: name})
        ]
        if points:
            series.append(line(name, points, **look))
    return series


# ----------------------------------------------------------------------------------------------------------------------
# What all experiments begin and end with: their input files, and the tables and page they write.


def read_schemas(module_file: str) -> dict[str, pa.Schema]:
    """The schemas in the tables.toml next to a module, and those that all experiments have."""
    tables = read_toml(Path(module_file).with_name("tables.toml")) | read_toml(Path(__file__).with_name("tables.toml"))
    return {
        name: pa.schema([(column, pa.type_for_alias(kind)) for column, kind in columns.items()])
        for name, columns in tables.items()
    }


EXPERIMENT_FOLDER = commit.FolderKind("an experiment", ("inputs.json",), ("cells", "stores", "*.parquet", "*.html"))


def check_repetitions(**counts: int) -> None:
    """Raise `InputError` for fewer than two repetitions, which have no standard error."""
    for name, count in counts.items():
        if count < 2:
            raise InputError(f"{name}={count} must be at least 2, for a standard error.", code="invalid-option")


class Experiment(NamedTuple):
    """A paper's experiments: their name, the tables they write, and their page, by the tables and the inputs."""

    name: str
    schemas: Mapping[str, pa.Schema]
    page: Callable[[Records, dict[str, Any]], str]

    def run(self, run: Run, compute: Callable[[Run], Records], inputs: Mapping[str, Any], files: Files) -> Path:
        """Compute the tables, and write each, inputs.json and NAME.html.

        Results of cells stay in OUT/cells, so an interrupted run resumes. Returns the path of the page.
        """
        with commit.exclusive_lock(run.out, EXPERIMENT_FOLDER):
            records: Records = {table: [] for table in self.schemas} | compute(run)
            for table, schema in self.schemas.items():
                write_result_table(run.out / f"{table}.parquet", records[table], schema)
            digests = {file: digest_file(path) for file, path in files.items()}
            described = {"sparseoco": __version__, **inputs, "files": digests}
            commit_json(run.out / "inputs.json", described)
            path = run.out / f"{self.name}.html"
            commit_bytes(path, self.page(records, described).encode())
            return path
