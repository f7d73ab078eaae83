"""The experiments of Oiwa et al. 2011 and 2012: page, run."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Rule, advance_clock
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.papers import sources
from sparseoco.papers.claims import judge_by_rules
from sparseoco.papers.experiment import Experiment, Run, lines_by, look, read_schemas, render
from sparseoco.papers.rows import Records, Row, as_rows, distinct, extend, mean_rows, select
from sparseoco.papers.sources import DOMAINS, DocumentSource
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


def _coordinate(algorithm: str, **parameters: Any) -> tuple[Rule, Any]:
    """The functions of a learner with these parameters, for the hinge loss and l1, and the scalars of its first
    round."""
    definition = find_algorithm(algorithm)
    configuration = definition.configuration(parameters)
    rule: Rule = definition.rule(find_loss("hinge"), find_penalty("l1"), configuration)
    params = rule.params(*definition.numbers(configuration, rule.param_names))
    return rule, rule.round_scalars(rule.start, params, rule.maps)


def norms(algorithm: str, **parameters: Any) -> list[float]:
    """The threshold's factor, h or r, of a coordinate after 1, 2, … `OCCURRENCES` gradients of size 1.

    Parameters
    ----------
    algorithm : str
        sgft or stda.
    **parameters
        Of the learner, among them the order p.
    """
    rule, scalars = _coordinate(algorithm, **parameters)
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
    rule, scalars = _coordinate(algorithm, **parameters)
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
    return _norm_curves("sgft", eta0=1.0) + _curves("truncation", WEIGHTS, truncations)


def stda_curves() -> list[Row]:
    """Figure 1 of 2012."""
    return _norm_curves("stda")


def _norm_curves(algorithm: str, **parameters: Any) -> list[Row]:
    names = {p: "∞" if p == "inf" else str(p) for p in ORDERS}
    curves = {f"p = {name}": norms(algorithm, p=p, **parameters) for p, name in names.items()}
    return _curves("norm", range(1, OCCURRENCES + 1), curves)


def _curves(figure: str, x: Sequence[float], curves: dict[str, list[float]]) -> list[Row]:
    """A row per point of the curves of a figure."""
    return [{"figure": figure, "curve": name} | row for name, y in curves.items() for row in as_rows({"x": x, "y": y})]


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


def truncation_page(paper: trials.Paper, records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page of a paper."""
    methods = distinct(records["paths"], "method")
    return render(
        paper.name,
        inputs,
        records,
        rule=paper.rule,
        rules=trials.RULES,
        sheets=_sheets(paper, records),
        functions=_functions(records["functions"]),
        sections=[_section(records, row, methods) for row in records["sets"]],
        samples=published.SAMPLES if paper.name == "stda" else {},
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


def _sheets(paper: trials.Paper, records: Records) -> list[published.PrintedTable]:
    """The tables of the page: those printed, and without a name and printed results those of other methods."""
    unprinted = distinct(select(records["results"], table=""), "method")
    added = tuple(method for method in unprinted if method not in published.UNPRINTED)
    others = {title: names for title, names in published.NOT_PRINTED.items() if set(names) <= set(unprinted)}
    others |= {"Added: methods that the paper does not have": added} if added else {}
    return [*paper.printed, *(published.PrintedTable("", title, methods, {}) for title, methods in others.items())]


def _section(records: Records, data_set: Row, methods: Sequence[str]) -> dict[str, Any]:
    """A data set: error against sparsity; for STDA, Figure 2 and the features that only one method selects."""
    name, title = data_set["set"], data_set["title"]
    chart = path_figure(select(records["paths"], set=name), methods)
    path = plot(f"path-{name}", f"Error against sparsity, {title}", chart)
    frequencies, rows = None, select(records.get("frequencies", []), set=name, fold=trials.HELD_OUT)
    if rows:
        heading = f"Occurrences of the selected features, {title}"
        frequencies = plot(f"frequencies-{name}", heading, frequencies_figure(rows))
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
    looks = {
        row["line"]: {"colour": charts.COLOURS[k], "dash": charts.DASHES[k], "heading": method}
        for k, method in enumerate(trials.PAIR)
        for row in select(drawn, method=method)
    }
    label = "{percent:.0f} % of those selected: {count:,} times"
    series = lines_by(drawn, "line", "percent", "shown", looks, label=label, steps=True)
    x = charts.linear_axis("selected features, from the rarest, %", charts.values_x(series))
    return charts.Chart(x, charts.log_axis("occurrences (log scale)", charts.values_y(series), counts=True), series)


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the claims of 2012 (STDA) or 2011 (SGFT) hold.


_SCHEMAS: Final = read_schemas(__file__)
_BOTH: Final = (*DOMAINS, *(f"{domain}-text" for domain in DOMAINS), "ob-2-1", "sb-2-1")
STDA: Final = trials.Paper(
    "stda", _BOTH, sources.PRINTED, published.STDA_TABLES, _SCHEMAS, trials.SPARSEST, stda_curves
)
SGFT: Final = trials.Paper(
    "sgft",
    (*_BOTH, "ob-8-1", "sb-8-1", "reut20"),
    sources.PRINTED_2011,
    published.SGFT_TABLES,
    {name: schema for name, schema in _SCHEMAS.items() if name not in ("features", "frequencies")},
    trials.TEN_FOLD,
    sgft_curves,
)


def _reproduce(
    paper: trials.Paper,
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run the tables and draw the figures of a paper: III to V, 1 and 2 of 2012, or 3 and 4, 1 to 4 of 2011.

    Writes OUT/*.parquet, OUT/inputs.json and OUT/stda.html or OUT/sgft.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files give equal bytes, except for run
    times, in timings.parquet and on the page.

    Parameters
    ----------
    paper : Paper
        2012 (STDA) or 2011 (SGFT).
    data : Path
        Folder of the data sets, in it or in its subfolders; those that are missing are named on the page. Of each
        DOMAIN of reviews (books, dvd, electronics, kitchen), counts: DOMAIN/unlabeled.review of the processed corpus,
        else DOMAIN.svmlight, with feature_names.tsv, else DOMAIN/negative.review and positive.review; and text:
        DOMAIN.jsonl, with the labels negative and positive, else the .review files with the corpus's original mark-up.
        And 20news-bydate.jsonl, and for 2011 reuters21578.jsonl. All may be compressed, with the suffix .gz.
    out : Path
        Folder of the results.
    methods : Path, optional
        File of methods to run in addition to the paper's (`trials.Protocol.adding`).
    passes : int, optional
        Passes over the data; the papers' 20 by default.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    printed = trials.published_protocol(paper.name)
    if passes is not None:
        if passes < 1:
            raise InputError(f"passes={passes} must be at least 1.", code="invalid-option")
        printed = printed.model_copy(update={"search": printed.search | {"epochs": passes}})
    protocol = printed if methods is None else printed.adding(methods)
    known = sources.choose_sources(*paper.sources)
    found, files = sources.find_sources(data, known)
    if methods is not None:
        files[methods.name] = methods

    def compute(run: Run) -> Records:
        records: Records = {"functions": paper.curves()}
        for source, documents in run.documents(found, files):
            extend(records, trials.run_data_set(run, paper, protocol, printed, source, documents))
        tested = {rule: published.truncation_claims(paper.name, records, rule) for rule in trials.RULES}
        return records | judge_by_rules(tested, paper.rule)

    inputs: dict[str, Any] = {
        **protocol.model_dump(),
        "added": [name for name in protocol.methods if name not in printed.methods],
        "missing": [_missing(paper, source) for source in sources.missing_sources(known, found)],
    }
    experiment = Experiment(paper.name, paper.schemas, partial(truncation_page, paper))
    return experiment.run(Run(out, progress), compute, inputs, files)


reproduce_stda: Final = partial(_reproduce, STDA)
reproduce_sgft: Final = partial(_reproduce, SGFT)


def _missing(paper: trials.Paper, source: DocumentSource) -> Row:
    """A set that is not in the folder, and what it would have shown."""
    tables = [f"Table {table.name}" for table in paper.printed if source.paper in table.results]
    shows = f"{source.paper} in {' and '.join(tables)}" if tables else "a domain that the paper prints nothing of"
    return {"title": source.title, "shows": f"{shows}: {source.differs}"}
