"""The experiments of Oiwa et al. 2011 and 2012: page, run."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import NONE, duration, integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.claims import judge_by_rules, verdicts_by_rule
from sparseoco.papers.experiment import Experiment, Run, curve, render
from sparseoco.papers.rows import Records, Row, distinct, extend, read_schemas, select
from sparseoco.papers.sources import (
    DOMAINS,
    PRINTED,
    PRINTED_2011,
    DocumentSource,
    choose_sources,
    find_sources,
    missing_sources,
)
from sparseoco.papers.truncation import claims as published
from sparseoco.papers.truncation import trials
from sparseoco.papers.truncation.functions import sgft_curves, stda_curves
from sparseoco.report import charts
from sparseoco.report.svg import Plot, plot

# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


_ADDED: Final = "Added: methods that the paper does not have"


class ResultCell(NamedTuple):
    """A method on a data set: ours, the paper's if it prints any, and our error at the paper's sparsity."""

    ours: str
    paper: str
    there: str


class ResultTable(NamedTuple):
    """A table on the page."""

    title: str
    methods: list[str]
    rows: list[tuple[str, list[ResultCell]]]


def truncation_page(paper: trials.Paper, records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page of a paper."""
    methods = distinct(records["paths"], "method")
    columns = {row["columns"] for row in records["timings"] if row["method"] not in inputs["added"]}
    return render(
        paper.name,
        inputs,
        records,
        _facts(records, inputs),
        rule=paper.rule,
        rules=trials.RULES,
        tables=_tables(paper.printed, records, paper.rule),
        others={own: _tables(paper.printed, records, own) for own in trials.RULES if own != paper.rule},
        verdicts=verdicts_by_rule(records),
        functions=_functions(records["functions"]),
        sections=[_section(records, row, methods) for row in records["sets"]],
        samples=published.SAMPLES if paper.name == "stda" else {},
        strengths=" or ".join(map(str, sorted(columns))),
    )


def _functions(rows: Sequence[Row]) -> list[Plot]:
    """What the learners' own functions do to one coordinate."""
    axes = {
        "norm": ("Figure 1: the norm of a coordinate's history", "occurrences", "norm"),
        "truncation": ("Figures 2 to 4: a weight truncated", "weight before the truncation", "weight after it"),
    }
    plots = []
    for figure in distinct(rows, "figure"):
        title, x, y = axes[figure]
        own = select(rows, figure=figure)
        series = [
            charts.Series(
                curve, [row["x"] for row in part], [row["y"] for row in part], charts.COLOURS[k], dash=charts.DASHES[k]
            )
            for k, curve in enumerate(distinct(own, "curve"))
            for part in [select(own, curve=curve)]
        ]
        chart = charts.Chart(
            charts.linear_axis(x, charts.values_x(series)),
            charts.linear_axis(y, charts.values_y(series)),
            series,
            height=320,
        )
        plots.append(plot(figure, title, chart))
    return plots


def _tables(printed: Sequence[published.PrintedTable], records: Records, rule: str) -> list[ResultTable]:
    own = select(records["results"], rule=rule)
    unprinted = distinct(select(own, table=""), "method")
    wanted = [(table.name, table.title, table.methods) for table in printed]
    wanted += [("", title, names) for title, names in published.NOT_PRINTED.items() if set(names) <= set(unprinted)]
    added = tuple(method for method in unprinted if method not in published.UNPRINTED)
    wanted += [("", _ADDED, added)] if added else []
    tables = []
    for name, title, methods in wanted:
        rows = []
        for data_set in records["sets"]:
            cells = {row["method"]: row for row in select(own, table=name, set=data_set["set"])}
            if set(methods) <= set(cells):
                rows.append((data_set["title"], [_cell(cells[method]) for method in methods]))
        tables.append(ResultTable(title, list(methods), rows))
    return tables


def _cell(row: Row) -> ResultCell:
    ours = _rates(row["error"], row["deviation"], row["sparsity"])
    if row["paper_error"] is None:
        return ResultCell(ours, "", "")
    paper = _rates(row["paper_error"], row["paper_deviation"], row["paper_sparsity"])
    there = NONE if row["error_there"] is None else f"{100 * row['error_there']:.2f}"
    return ResultCell(ours, paper, there)


def _rates(error: float, deviation: float | None, sparsity: float) -> str:
    """Error, its deviation in brackets, sparsity in parentheses, per cent, as in the papers."""
    spread = "" if deviation is None else f" [{100 * deviation:.2f}]"
    return f"{100 * error:.2f}{spread} ({100 * sparsity:.2f})"


def _section(records: Records, data_set: Row, methods: Sequence[str]) -> dict[str, Any]:
    """A data set: error against sparsity; for STDA, Figure 2 and the features that only one method selects."""
    name, title = data_set["set"], data_set["title"]
    chart = path_figure(select(records["paths"], set=name), methods)
    path = plot(f"path-{name}", f"Error against sparsity, {title}", chart)
    frequencies, rows = None, select(records.get("frequencies", []), set=name, fold=trials.HELD_OUT)
    if rows:
        frequencies = plot(
            f"frequencies-{name}", f"Occurrences of the selected features, {title}", frequencies_figure(rows)
        )
    features = select(records.get("features", []), set=name)
    samples = [(method, select(features, method=method)) for method in trials.PAIR] if features else []
    return {"row": data_set, "path": path, "frequencies": frequencies, "samples": samples}


def path_figure(rows: Sequence[Row], methods: Sequence[str]) -> charts.Chart:
    """A line per method through its λ."""
    series = []
    for k, (method, dash) in enumerate(zip(methods, charts.dashes(len(methods)), strict=True)):
        own = published.mean_path(select(rows, method=method))
        shown = [row | {"share": 100 * row["sparsity"], "text": _path_label(row)} for row in own]
        if shown:
            style: dict[str, Any] = {"dash": dash, "marker": charts.MARKERS[k % len(charts.MARKERS)], "size": 2.5}
            colour = charts.COLOURS[k % len(charts.COLOURS)]
            series.append(curve(method, shown, "share", "error", colour, label="{text}", scale=100, **style))
    least = min(charts.values_y(series)) / 100
    x = charts.linear_axis("zero weights, %", [], low=0.0, high=101.0)
    return charts.Chart(x, charts.linear_axis("error, %", [], low=0.0, high=100 * min(4 * least + 0.1, 0.6)), series)


def _path_label(row: Row) -> str:
    return f"λ = {row['lam']:g}\nerror {percent(row['error'])}, zero weights {percent(row['sparsity'])}"


def frequencies_figure(rows: Sequence[Row]) -> charts.Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    series = []
    for k, method in enumerate(trials.PAIR):
        own = [
            row | {"percent": 100 * row["share"], "shown": max(row["count"], charts.ZERO)}
            for row in select(rows, method=method)
        ]
        name = method + (f", {integer(own[0]['selected'])} features" if own else "")
        label = "{percent:.0f} % of those selected: {count:,} times"
        style: dict[str, Any] = {"dash": charts.DASHES[k], "steps": True, "heading": method}
        series.append(curve(name, own, "percent", "shown", charts.COLOURS[k], label=label, **style))
    x = charts.linear_axis("selected features, from the rarest, %", charts.values_x(series))
    return charts.Chart(x, charts.log_axis("occurrences (log scale)", charts.values_y(series), counts=True), series)


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    timings = records["timings"]
    runs = sum(row["trainings"] * row["columns"] for row in timings)
    seconds = {row["title"]: sum(own["seconds"] for own in select(timings, set=row["set"])) for row in records["sets"]}
    return {
        "passes": integer(inputs["search"]["epochs"]),
        **({"methods added": ", ".join(inputs["added"])} if inputs["added"] else {}),
        "trainings": f"{integer(sum(row['trainings'] for row in timings))}, of {integer(runs)} configurations",
        "processor time": duration(sum(seconds.values())),
        **{f"processor time of {title}": duration(own) for title, own in seconds.items()},
    }


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the claims of 2012 (STDA) or 2011 (SGFT) hold.


_SCHEMAS: Final = read_schemas(__file__)
_BOTH: Final = (*DOMAINS, *(f"{domain}-text" for domain in DOMAINS), "ob-2-1", "sb-2-1")
STDA: Final = trials.Paper("stda", _BOTH, PRINTED, published.STDA_TABLES, _SCHEMAS, trials.SPARSEST, stda_curves)
SGFT: Final = trials.Paper(
    "sgft",
    (*_BOTH, "ob-8-1", "sb-8-1", "reut20"),
    PRINTED_2011,
    published.SGFT_TABLES,
    {name: schema for name, schema in _SCHEMAS.items() if name not in ("features", "frequencies")},
    trials.TEN_FOLD,
    sgft_curves,
)


def reproduce_stda(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables III to V and Figures 1 and 2 of Oiwa et al. (2012).

    Writes OUT/*.parquet, OUT/inputs.json and OUT/stda.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files give equal bytes, except for run
    times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the data sets, in it or in its subfolders; those that are missing are named on the page. Of each
        DOMAIN of reviews (books, dvd, electronics, kitchen), counts: DOMAIN/unlabeled.review of the processed corpus,
        else DOMAIN.svmlight, with feature_names.tsv, else DOMAIN/negative.review and positive.review; and text:
        DOMAIN.jsonl, with the labels negative and positive, else the .review files with the corpus's original mark-up.
        And 20news-bydate.jsonl. All may be compressed, with the suffix .gz.
    out : Path
        Folder of the results.
    methods : Path, optional
        File of methods to run in addition to the paper's (`trials.Protocol.adding`).
    passes : int, optional
        Passes over the data; the paper's 20 by default.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    return _reproduce(STDA, data, out, methods, passes, progress)


def reproduce_sgft(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables 3 and 4 and draw Figures 1 to 4 of Oiwa et al. (2011).

    Writes OUT/*.parquet, OUT/inputs.json and OUT/sgft.html.

    As `reproduce_stda`; `data` may have reuters21578.jsonl too.
    """
    return _reproduce(SGFT, data, out, methods, passes, progress)


def _reproduce(
    paper: trials.Paper, data: Path, out: Path, methods: Path | None, passes: int | None, progress: ProgressCallback
) -> Path:
    printed = trials.published_protocol(paper.name)
    if passes is not None:
        if passes < 1:
            raise InputError(f"passes={passes} must be at least 1.", code="invalid-option")
        printed = printed.model_copy(update={"search": printed.search | {"epochs": passes}})
    protocol = printed if methods is None else printed.adding(methods)
    known = choose_sources(*paper.sources)
    sources, files = find_sources(data, known)
    if methods is not None:
        files[methods.name] = methods

    def compute(run: Run) -> Records:
        records: Records = {"functions": paper.curves()}
        for source, documents in run.documents(sources, files):
            extend(records, trials.run_data_set(run, paper, protocol, printed, source, documents))
        return records

    def judge_claims(records: Records) -> Records:
        tested = {rule: published.truncation_claims(paper.name, records, rule) for rule in trials.RULES}
        return judge_by_rules(tested, paper.rule)

    inputs: dict[str, Any] = {
        **protocol.model_dump(),
        "added": [name for name in protocol.methods if name not in printed.methods],
        "missing": [_missing(paper, source) for source in missing_sources(known, sources)],
    }
    experiment = Experiment(paper.name, paper.schemas, partial(truncation_page, paper))
    return experiment.run(Run(out, progress), compute, judge_claims, inputs, files)


def _missing(paper: trials.Paper, source: DocumentSource) -> Row:
    """A set that is not in the folder, and what it would have shown."""
    tables = [f"Table {table.name}" for table in paper.printed if source.paper in table.results]
    shows = f"{source.paper} in {' and '.join(tables)}" if tables else "a domain that the paper prints nothing of"
    return {"title": source.title, "shows": f"{shows}: {source.differs}"}
