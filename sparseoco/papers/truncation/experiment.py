"""The experiments of Oiwa et al. 2011 and 2012: page, run."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import duration, integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Rule, advance_clock
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.papers.claims import judge_by_rules, verdicts_by_rule
from sparseoco.papers.experiment import Experiment, Run, lines_by, look, render
from sparseoco.papers.rows import Records, Row, distinct, extend, mean_rows, read_schemas, select
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
from sparseoco.report import charts
from sparseoco.report.svg import Plot, plot

# ----------------------------------------------------------------------------------------------------------------------
# Figures 1 to 4 of 2011 and Figure 1 of 2012: what an update and a truncation do to one coordinate.
#
# All values come from the learners' own scalar functions, those that their kernels are compiled from, with η = 1.


ORDERS: Final[tuple[int | str, ...]] = (1, 2, 3, "inf")
"""Of the norm, as the learners' parameter p."""
OCCURRENCES: Final = 50
WEIGHTS: Final = tuple(np.linspace(-3.0, 3.0, 121).tolist())
"""Before a truncation."""
SMALL, LARGE = 0.25, 2.0
"""h in Figures 3 and 4 of 2011, with λ = 1."""


class Coordinate(NamedTuple):
    """The functions of a learner, and the scalars of its first round."""

    rule: Rule
    scalars: Any

    @classmethod
    def of(cls, algorithm: str, **parameters: Any) -> "Coordinate":
        """One coordinate of a learner with these parameters, for the hinge loss and l1."""
        definition = find_algorithm(algorithm)
        configuration = definition.configuration(parameters)
        rule: Rule = definition.rule(find_loss("hinge"), find_penalty("l1"), configuration)
        params = rule.params(*definition.numbers(configuration, rule.param_names))
        return cls(rule, rule.round_scalars(rule.start, params, rule.maps))


def norms(algorithm: str, **parameters: Any) -> list[float]:
    """The threshold's factor, h or r, of a coordinate after 1, 2, … `OCCURRENCES` gradients of size 1.

    Parameters
    ----------
    algorithm : str
        sgft or stda.
    **parameters
        Of the learner, among them the order p.
    """
    rule, scalars = Coordinate.of(algorithm, **parameters)
    state = rule.state(*np.zeros(len(rule.slots)).tolist())
    values = []
    for _ in range(OCCURRENCES):
        state = rule.update(state, 0.0, scalars, 1.0, None, rule.maps)
        assert rule.threshold is not None
        values.append(float(rule.threshold(state, 0.0, scalars, rule.maps)))
    return values


def truncated_weights(algorithm: str, history: tuple[float, ...], **parameters: Any) -> list[float]:
    """`WEIGHTS` after the truncation of one round.

    Parameters
    ----------
    algorithm : str
        fobos, which the paper calls SG-L1, or sgft.
    history : tuple of float
        The rest of the coordinate's state: the norm h of sgft, nothing of fobos.
    **parameters
        Of the learner, among them λ.
    """
    rule, scalars = Coordinate.of(algorithm, **parameters)
    assert rule.clock_time is not None
    elapsed = rule.clock_time(advance_clock(rule.start)) - rule.clock_time(rule.start)
    return [float(rule.weight(rule.state(w, *history), elapsed, scalars, rule.maps)) for w in WEIGHTS]


def sgft_curves() -> list[Row]:
    """Figures 1 to 4 of 2011."""
    truncations = {
        "Figure 2: SG-L1": truncated_weights("fobos", (), eta0=1.0, lam=1.0),
        f"Figure 3: SGFT, h = {SMALL:g}": truncated_weights("sgft", (SMALL,), eta0=1.0, lam=1.0),
        f"Figure 4: SGFT, h = {LARGE:g}": truncated_weights("sgft", (LARGE,), eta0=1.0, lam=1.0),
    }
    drawn = [{"figure": "truncation", "curve": curve, "x": WEIGHTS, "y": y} for curve, y in truncations.items()]
    return _norm_rows("sgft", eta0=1.0) + _points(drawn)


def stda_curves() -> list[Row]:
    """Figure 1 of 2012."""
    return _norm_rows("stda")


def _norm_rows(algorithm: str, **parameters: Any) -> list[Row]:
    x, names = range(1, OCCURRENCES + 1), {p: "∞" if p == "inf" else str(p) for p in ORDERS}
    return _points(
        [
            {"figure": "norm", "curve": f"p = {name}", "x": x, "y": norms(algorithm, p=p, **parameters)}
            for p, name in names.items()
        ]
    )


def _points(drawn: Sequence[Row]) -> list[Row]:
    """A row per point of curves with their x and y."""
    return [own | {"x": x, "y": y} for own in drawn for x, y in zip(own["x"], own["y"], strict=True)]


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


_ADDED: Final = "Added: methods that the paper does not have"


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
        looks = {
            name: {"colour": charts.COLOURS[k], "dash": charts.DASHES[k], "heading": ""}
            for k, name in enumerate(distinct(own, "curve"))
        }
        series = [line._replace(labels=()) for line in lines_by(own, "curve", "x", "y", looks, label="")]
        plots.append(plot(figure, title, charts.line_chart(series, x, y)._replace(height=320)))
    return plots


def _tables(printed: Sequence[published.PrintedTable], records: Records, rule: str) -> list[Row]:
    """A title, methods, and rows: the title of a set and the results of the methods on it."""
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
                rows.append((data_set["title"], [cells[method] for method in methods]))
        tables.append({"title": title, "methods": methods, "sets": rows})
    return tables


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
    shown = [
        row | {"share": 100 * row["sparsity"], "text": _path_label(row)}
        for row in mean_rows(rows, ("method", "lam"), ("error", "sparsity"))
    ]
    looks = {
        method: {"dash": dash, "size": 2.5, **look(k)}
        for k, (method, dash) in enumerate(zip(methods, charts.dashes(len(methods)), strict=True))
    }
    series = lines_by(shown, "method", "share", "error", looks, label="{text}", scale=100)
    least = min(charts.values_y(series)) / 100
    x = charts.linear_axis("zero weights, %", [], low=0.0, high=101.0)
    return charts.Chart(x, charts.linear_axis("error, %", [], low=0.0, high=100 * min(4 * least + 0.1, 0.6)), series)


def _path_label(row: Row) -> str:
    return f"λ = {row['lam']:g}\nerror {percent(row['error'])}, zero weights {percent(row['sparsity'])}"


def frequencies_figure(rows: Sequence[Row]) -> charts.Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    drawn = [
        row
        | {"percent": 100 * row["share"], "shown": max(row["count"], charts.ZERO)}
        | {"line": f"{row['method']}, {integer(row['selected'])} features"}
        for row in rows
    ]
    places = {row["line"]: trials.PAIR.index(row["method"]) for row in drawn}
    looks = {
        name: {"colour": charts.COLOURS[k], "dash": charts.DASHES[k], "heading": trials.PAIR[k]}
        for name, k in places.items()
    }
    label = "{percent:.0f} % of those selected: {count:,} times"
    series = lines_by(drawn, "line", "percent", "shown", looks, label=label, steps=True)
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
