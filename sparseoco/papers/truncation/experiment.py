"""The experiments of Oiwa et al. 2011 and 2012: page, run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import NONE, duration, integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.claims import (
    Finding,
    Records,
    Row,
    distinct,
    extend,
    judge_by_rules,
    read_schemas,
    select,
    verdicts_by_rule,
)
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, publish, render, run_cells
from sparseoco.papers.sources import (
    DOMAINS,
    PRINTED,
    PRINTED_2011,
    Documents,
    DocumentSource,
    choose_sources,
    find_sources,
    load_documents,
    missing_sources,
)
from sparseoco.papers.truncation import trials as features
from sparseoco.papers.truncation.claims import (
    NOT_PRINTED,
    SAMPLES,
    SGFT_TABLES,
    STDA_TABLES,
    UNPRINTED,
    PrintedTable,
    error_at,
    mean_path,
    sgft_claims,
    stda_claims,
)
from sparseoco.papers.truncation.trials import (
    HELD_OUT,
    PAIR,
    RULES,
    SPARSEST,
    TEN_FOLD,
    Protocol,
    Trial,
    check_trial,
    group_cells,
    groups,
    path_rows,
    published_protocol,
    result_rows,
    sgft_curves,
    stda_curves,
)
from sparseoco.report.charts import (
    COLOURS,
    DASHES,
    MARKERS,
    ZERO,
    Chart,
    Series,
    dashes,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)
from sparseoco.report.svg import Plot, plot
from sparseoco.storage.locks import exclusive_lock

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


def truncation_page(
    name: str, rule: str, printed: Sequence[PrintedTable], records: Records, inputs: dict[str, Any]
) -> str:
    """The HTML of the page of a paper, stda or sgft; `rule` is the paper's own for λ."""
    methods = distinct(records["paths"], "method")
    columns = {row["columns"] for row in records["timings"] if row["method"] not in inputs["added"]}
    return render(
        name,
        inputs,
        records,
        _facts(records, inputs),
        rule=rule,
        rules=RULES,
        tables=_tables(printed, records, rule),
        others={own: _tables(printed, records, own) for own in RULES if own != rule},
        verdicts=verdicts_by_rule(records),
        functions=_functions(records["functions"]),
        sections=[_section(records, row, methods) for row in records["sets"]],
        samples=SAMPLES if name == "stda" else {},
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
            Series(curve, [row["x"] for row in part], [row["y"] for row in part], COLOURS[k], dash=DASHES[k])
            for k, curve in enumerate(distinct(own, "curve"))
            for part in [select(own, curve=curve)]
        ]
        chart = Chart(linear_axis(x, values_x(series)), linear_axis(y, values_y(series)), series, height=320)
        plots.append(plot(figure, title, chart))
    return plots


def _tables(printed: Sequence[PrintedTable], records: Records, rule: str) -> list[ResultTable]:
    own = select(records["results"], rule=rule)
    unprinted = distinct(select(own, table=""), "method")
    wanted = [(table.name, table.title, table.methods) for table in printed]
    wanted += [("", title, names) for title, names in NOT_PRINTED.items() if set(names) <= set(unprinted)]
    added = tuple(method for method in unprinted if method not in UNPRINTED)
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
    frequencies, rows = None, select(records.get("frequencies", []), set=name, fold=HELD_OUT)
    if rows:
        frequencies = plot(
            f"frequencies-{name}", f"Occurrences of the selected features, {title}", frequencies_figure(rows)
        )
    features = select(records.get("features", []), set=name)
    samples = [(method, select(features, method=method)) for method in PAIR] if features else []
    return {"row": data_set, "path": path, "frequencies": frequencies, "samples": samples}


def path_figure(rows: Sequence[Row], methods: Sequence[str]) -> Chart:
    """A line per method through its λ."""
    series = []
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(methods))]
    for k, (method, dash) in enumerate(zip(methods, dashes(len(methods)), strict=True)):
        own = mean_path(select(rows, method=method))
        if not own:
            continue
        series.append(
            Series(
                method,
                [100 * row["sparsity"] for row in own],
                [100 * row["error"] for row in own],
                colours[k],
                dash=dash,
                marker=MARKERS[k % len(MARKERS)],
                size=2.5,
                heading=method,
                labels=[
                    f"λ = {row['lam']:g}\nerror {percent(row['error'])}, zero weights {percent(row['sparsity'])}"
                    for row in own
                ],
            )
        )
    least = min(values_y(series)) / 100
    return Chart(
        linear_axis("zero weights, %", [], low=0.0, high=101.0),
        linear_axis("error, %", [], low=0.0, high=100 * min(4 * least + 0.1, 0.6)),
        series,
    )


def frequencies_figure(rows: Sequence[Row]) -> Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    series = []
    for k, method in enumerate(PAIR):
        own = select(rows, method=method)
        series.append(
            Series(
                method + (f", {integer(own[0]['selected'])} features" if own else ""),
                [100 * row["share"] for row in own],
                [max(row["count"], ZERO) for row in own],
                COLOURS[k],
                dash=DASHES[k],
                steps=True,
                heading=method,
                labels=[f"{100 * row['share']:.0f} % of those selected: {row['count']:,} times" for row in own],
            )
        )
    x = linear_axis("selected features, from the rarest, %", values_x(series))
    return Chart(x, log_axis("occurrences (log scale)", values_y(series), counts=True), series)


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


class Experiment(NamedTuple):
    """What a paper compares: its name, also that of its methods' file, its data sets, their printed documents and
    features, tables, claims by the rule for λ with the paper's own, and the curves of its drawings."""

    name: str
    sources: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int]]
    printed: tuple[PrintedTable, ...]
    schemas: dict[str, pa.Schema]
    rule: str
    claims: Callable[[Records, str], list[Finding]]
    curves: Callable[[], list[Row]]


_SCHEMAS: Final = read_schemas(__file__)
_BOTH: Final = (*DOMAINS, *(f"{domain}-text" for domain in DOMAINS), "ob-2-1", "sb-2-1")
STDA: Final = Experiment("stda", _BOTH, PRINTED, STDA_TABLES, _SCHEMAS, SPARSEST, stda_claims, stda_curves)
SGFT: Final = Experiment(
    "sgft",
    (*_BOTH, "ob-8-1", "sb-8-1", "reut20"),
    PRINTED_2011,
    SGFT_TABLES,
    {name: schema for name, schema in _SCHEMAS.items() if name not in ("features", "frequencies")},
    TEN_FOLD,
    sgft_claims,
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
        File of methods to run in addition to the paper's (`methods.Protocol.adding`).
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
    experiment: Experiment, data: Path, out: Path, methods: Path | None, passes: int | None, progress: ProgressCallback
) -> Path:
    published = published_protocol(experiment.name)
    if passes is not None:
        if passes < 1:
            raise InputError(f"passes={passes} must be at least 1.", code="invalid-option")
        published = published.model_copy(update={"search": published.search | {"epochs": passes}})
    protocol = published if methods is None else published.adding(methods)
    known = choose_sources(*experiment.sources)
    sources, files = find_sources(data, known)
    if methods is not None:
        files[methods.name] = methods
    records: Records = {name: [] for name in experiment.schemas}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        for done, source in enumerate(sources, start=1):
            documents = load_documents(source, files, out / "stores")
            progress("read", done, len(sources))
            extend(records, _data_set(experiment, protocol, published, source, documents, out / "cells", progress))
        tested = {rule: experiment.claims(records, rule) for rule in RULES}
        extend(records, judge_by_rules(tested, experiment.rule))
        records["functions"] = experiment.curves()
        inputs: dict[str, Any] = {
            **protocol.model_dump(),
            "added": [name for name in protocol.methods if name not in published.methods],
            "missing": [_missing(experiment, source) for source in missing_sources(known, sources)],
        }

        def page(records: Records, inputs: dict[str, Any]) -> str:
            return truncation_page(experiment.name, experiment.rule, experiment.printed, records, inputs)

        return publish(out, experiment.name, records, experiment.schemas, inputs, files, page)


def _data_set(
    experiment: Experiment,
    protocol: Protocol,
    published: Protocol,
    source: DocumentSource,
    documents: Documents,
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """All rows of a data set."""
    counted = features.PAIR if "features" in experiment.schemas else ()
    large = source.all_words or len(documents.classes) > 2
    trials = [
        Trial(source.name, documents, method, method.name in counted)
        for method in protocol.for_classes(len(documents.classes))
        if not (large and method.name in UNPRINTED)
    ]
    for trial in trials:
        check_trial(trial)
    parts = _train(trials, published, folder, source.title, progress)
    records: Records = {
        "sets": [_describe(experiment.sizes, source, documents)],
        "folds": [],
        "results": [],
        "paths": [],
        "timings": [],
    }
    for trial in trials:
        own = parts[trial.method.name]
        key = {"set": source.name, "method": trial.method.name}
        path = path_rows(trial, own)
        records["paths"] += [key | row for row in path]
        for rule, rows in result_rows(trial, own):
            records["folds"] += [key | {"rule": rule} | row for row in rows]
            records["results"] += _with_printed(experiment.printed, source, key | {"rule": rule}, rows, mean_path(path))
        seconds = sum(part["seconds"] for part in own)
        records["timings"].append(
            key | {"trainings": len(own), "columns": len(trial.method.strengths), "seconds": seconds}
        )
    if counted:
        extend(records, _features(trials, parts, records["folds"], folder, progress))
    return records


def _train(
    trials: Sequence[Trial], published: Protocol, folder: Path, title: str, progress: ProgressCallback
) -> dict[str, list[dict[str, Any]]]:
    """The results of all trainings, in the order of `held_out_folds`, by method.

    Methods of the paper are not trained together with added ones, so that adding one leaves their cells as they are.
    """
    ours = [trial for trial in trials if trial.method.name in published.methods]
    added = [trial for trial in trials if trial.method.name not in published.methods]
    together = [*groups(ours), *groups(added)]
    cells = [group_cells(group) for group in together]
    results = iter(run_cells(folder, title, [cell for own in cells for cell in own], progress))
    parts: dict[str, list[dict[str, Any]]] = {trial.method.name: [] for trial in trials}
    for group, own in zip(together, cells, strict=True):
        for _ in own:
            for trial, part in zip(group, next(results), strict=True):
                parts[trial.method.name].append(part)
    return parts


def _features(
    trials: Sequence[Trial],
    parts: dict[str, list[dict[str, Any]]],
    folds: Sequence[Row],
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """Table V of one fold, and Figure 2 of all."""
    by_name = {trial.method.name: trial for trial in trials}
    ours, theirs = (by_name[name] for name in features.PAIR)
    records: Records = {"frequencies": []}
    for row in select(folds, method=ours.method.name, rule=SPARSEST):
        fold, chosen = row["fold"], ours.method.strengths.index(row["lam"])
        own = [parts[name][fold] for name in features.PAIR]
        numbers = features.matched(own, chosen)
        records["frequencies"] += [{"set": ours.name} | row for row in features.frequency_rows(fold, own, numbers)]
        if fold == features.HELD_OUT:
            cell = features.features_cell((ours, theirs), numbers)
            (records["features"],) = run_cells(folder, "features", [cell], progress)
    return records


def _missing(experiment: Experiment, source: DocumentSource) -> Row:
    """A set that is not in the folder, and what it would have shown."""
    tables = [f"Table {table.name}" for table in experiment.printed if source.paper in table.results]
    shows = f"{source.paper} in {' and '.join(tables)}" if tables else "a domain that the paper prints nothing of"
    return {"title": source.title, "shows": f"{shows}: {source.differs}"}


def _describe(sizes: Mapping[str, tuple[int, int]], source: DocumentSource, documents: Documents) -> Row:
    n_documents, n_features = sizes[source.paper]
    return {
        "set": source.name,
        "title": source.title,
        "corpus": source.corpus,
        "paper_set": source.paper,
        "documents": documents.rows.shape[0],
        "features": documents.rows.shape[1],
        "classes": len(documents.classes),
        "nonzeros": documents.rows.nnz,
        "paper_documents": n_documents,
        "paper_features": n_features,
        "differs": source.differs,
    }


def _with_printed(
    tables: Sequence[PrintedTable], source: DocumentSource, key: Row, rows: Sequence[Row], path: Sequence[Row]
) -> list[Row]:
    """A row per printed table that has the method, with its result if it has the set; one if no table has it."""
    errors = [row["error"] for row in rows]
    mean = sum(errors) / len(errors)
    ours = {
        "error": mean,
        "deviation": (sum((error - mean) ** 2 for error in errors) / (len(errors) - 1)) ** 0.5,
        "sparsity": sum(row["sparsity"] for row in rows) / len(rows),
    }
    absent = dict.fromkeys(("paper_error", "paper_deviation", "paper_sparsity", "error_there"))
    printed: list[Row] = []
    for table in tables:
        if key["method"] in table.methods:
            if source.paper not in table.results:
                printed.append({"table": table.name, **absent})
                continue
            result = table.results[source.paper][key["method"]]
            printed.append(
                {
                    "table": table.name,
                    "paper_error": result.error / 100,
                    "paper_deviation": None if result.deviation is None else result.deviation / 100,
                    "paper_sparsity": result.sparsity / 100,
                    "error_there": error_at(path, result.sparsity / 100),
                }
            )
    return [key | ours | row for row in printed or [{"table": "", **absent}]]
