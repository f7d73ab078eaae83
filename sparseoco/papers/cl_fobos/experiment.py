"""The experiment of Togari and Yamashita 2016: figures, page, run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, duration, integer
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.cl_fobos import claims as published
from sparseoco.papers.cl_fobos.runs import LAMBDAS, Draw, mean_ladder, run_experiments
from sparseoco.papers.claims import judge
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, curve, render
from sparseoco.papers.rows import (
    Records,
    Row,
    column,
    column_means,
    distinct,
    grouped,
    mean,
    mean_and_error,
    read_schemas,
    select,
)
from sparseoco.papers.sources import (
    DOMAINS,
    PRINTED,
    Documents,
    DocumentSource,
    choose_sources,
    find_sources,
    missing_sources,
)
from sparseoco.report import charts
from sparseoco.report.svg import plot

# ----------------------------------------------------------------------------------------------------------------------
# Figures 1, 2 and 3, and R̄(T) over the steps that were tried.


_COLOURS: Final = dict(
    zip(
        (method.name for method in published.METHODS),
        (charts.COLOURS[0], charts.COLOURS[2], charts.COLOURS[3]),
        strict=False,
    )
) | {published.CL_FOBOS.name: charts.COLOURS[1]}


def method_colour(method: str) -> str:
    """The colour of a method in all figures and tables; L-FOBOS of any other K has that of the first."""
    return _COLOURS.get(method, charts.COLOURS[0])


def _style(method: str) -> tuple[str, str]:
    """The colour of a method and its marker."""
    colour = method_colour(method)
    return colour, charts.MARKERS[charts.COLOURS.index(colour)]


def tradeoff_figure(results: Sequence[Row]) -> charts.Chart:
    """R̄(T) against run time: ours filled, the paper's hollow."""
    series = []
    for row in results:
        name = row["method"]
        colour, marker = _style(name)
        for whose, columns in (("here", ("seconds", "objective")), ("paper", ("paper_seconds", "paper_objective"))):
            style: dict[str, Any] = {"dash": "", "marker": marker, "size": 5.0, "hollow": whose == "paper"}
            style |= {"heading": f"{name}, {whose}", "group": name, "legend": whose == "here"}
            label = f"{{{columns[1]}:.4f}} in {{{columns[0]}:.3f}} s"
            series.append(curve(name, [row], *columns, colour, label=label, **style))
    x = charts.log_axis("seconds (log scale); hollow: the paper's", charts.values_x(series))
    return charts.Chart(x, charts.linear_axis("R̄(T)", charts.values_y(series)), series, width=charts.HALF, height=360)


def steps_figure(search: Sequence[Row]) -> charts.Chart:
    """R̄(T) of every step that was tried, a line per method, with its smallest value marked."""
    series = []
    finite = [row for row in search if row["objective"] is not None]
    low = min(row["objective"] for row in finite)
    for name in distinct(search, "method"):
        rows = select(finite, method=name)
        (best,) = select(rows, chosen=True)
        colour, marker = _style(name)
        dash = charts.DASHES[charts.COLOURS.index(colour)]
        label = "α₀ = {eta0:g}: {objective:.4f}"
        series.append(curve(name, rows, "eta0", "objective", colour, label=label, dash=dash, group=name))
        at = ([best["eta0"]], [best["objective"]])
        series.append(charts.Series(name, *at, colour, dash="", marker=marker, size=5.0, group=name, legend=False))
    y = charts.linear_axis("R̄(T)", [], low=low - 0.03, high=low + 0.4)
    return charts.Chart(
        charts.log_axis("α₀ (log scale)", charts.values_x(series)), y, series, width=charts.HALF, height=360
    )


def nonzeros_figure(rows: Sequence[Row]) -> charts.Chart:
    """Share of nonzero weights around every K-th round."""
    label = "{rounds:,} rounds: {value:.2f} %"
    series = [
        curve(own[0]["method"], own, "rounds", "share", colour, label=label, scale=100, width=1.2)
        for own in grouped(rows, "method")
        for colour in [method_colour(own[0]["method"])]
    ]
    return charts.line_chart(series, "rounds", "nonzero weights, %", zero="xy")


def snapshots_figure(rows: Sequence[Row], examples: int) -> charts.Chart:
    """Share of right predictions of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    series = []
    rounds = sorted({row["rounds"] for row in rows})
    for name in distinct(rows, "method"):
        own = [select(rows, method=name, rounds=t) for t in rounds]
        ours = [100 * mean(column(repetitions, "right")) / examples for repetitions in own]
        paper = [100 * repetitions[0]["paper_right"] / published.EXAMPLES for repetitions in own]
        colour, marker = _style(name)
        for whose, values, dash in (("here", ours, "solid"), ("paper", paper, "dot")):
            points = [{"at": k, "t": t, "rate": rate} for k, (t, rate) in enumerate(zip(rounds, values, strict=True))]
            style: dict[str, Any] = {"dash": dash, "marker": marker, "hollow": whose == "paper"}
            label = "after {t:,} rounds: {rate:.1f} %"
            series.append(curve(f"{name}, {whose}", points, "at", "rate", colour, label=label, **style))
    x = charts.category_axis("solution after so many rounds", [f"{t:,}" for t in rounds])
    return charts.Chart(x, charts.linear_axis("right predictions, %", charts.values_y(series)), series)


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


def cl_fobos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    nonzeros = [
        plot(
            f"nonzeros-{lazy.K}",
            f"Share of nonzero weights, {published.lambda_label(lazy.lam)}, K = {lazy.K}",
            nonzeros_figure(select(records["nonzeros"], lam=lazy.lam, repetition=0)),
        )
        for lazy in (published.TRACKED[0], published.TRACKED[2])
    ]
    figure = snapshots_figure(records["snapshots"], inputs["examples"])
    return render(
        "cl_fobos",
        inputs,
        records,
        _facts(records, inputs),
        timing_claims=published.cl_fobos_timing_claims(records),
        sections=[_section(records, number, lam) for number, lam in enumerate(published.PUBLISHED, start=1)],
        nonzeros=nonzeros,
        ladders=[(lam, mean_ladder(records["timings"], lam)) for lam in LAMBDAS],
        equal_time=_equal_time_rows(records),
        means=_mean_rows(records),
        snapshots=plot("snapshots", "Right predictions of all examples by intermediate solutions", figure),
        snapshot_rows=_snapshot_rows(records, inputs["examples"]),
        misprints=_misprints(),
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        method_colour=method_colour,
        tracked=published.TRACKED,
        searched=min(inputs["repetitions"], published.SEARCHED),
        lambda_label=published.lambda_label,
        differences=_differences(records) if inputs["all_words"] else [],
        others=published.OTHERS if inputs["all_words"] else {},
    )


def _section(records: Records, number: int, lam: float) -> dict[str, Any]:
    """A λ: its table, R̄(T) against run time and over the steps."""
    title = published.lambda_label(lam)
    rows = [row | _seconds(records, lam, row["method"]) for row in select(records["results"], lam=lam)]
    steps = steps_figure(select(records["search"], lam=lam))
    return {
        "number": number,
        "title": title,
        "rows": rows,
        "tradeoff": plot(f"tradeoff-{number}", f"R̄(T) against run time, {title}", tradeoff_figure(rows)),
        "steps": plot(f"steps-{number}", f"R̄(T) of every step tried, {title}", steps),
    }


def _seconds(records: Records, lam: float, method: str) -> dict[str, float]:
    """Run times as printed and of the learner, means of the data sets; of the learner with R̄(T), of the first."""
    printed, lazy = (select(records["timings"], what=what, lam=lam, method=method) for what in ("as printed", "lazy"))
    return {
        "seconds": mean(row["seconds"] for row in printed),
        "lazy_seconds": mean(row["seconds"] for row in lazy),
        "seconds_with_objective": lazy[0]["seconds_with_objective"],
    }


def _equal_time_rows(records: Records) -> list[Row]:
    """A row per λ and method: means of the data sets."""
    rows = []
    for own in grouped(records["equal_time"], "lam", "method"):
        means = column_means(own, "seconds", "objective", "right", "before", "after")
        rows.append(own[0] | means | {"error": mean_and_error(column(own, "seconds"))[1]})
    return rows


def _mean_rows(records: Records) -> list[Row]:
    """A row per λ: CL-FOBOS' objectives, means of the data sets, and the bound where it is computed."""
    rows = []
    for own in grouped(records["means"], "lam"):
        (result,) = select(records["results"], lam=own[0]["lam"], method=published.CL_FOBOS.name)
        rows.append(own[0] | column_means(own, "of_mean", "of_last") | {"incurred": result["objective"]})
    return rows


def _snapshot_rows(records: Records, examples: int) -> list[Row]:
    """A row per method and solution: mean of the repetitions, and the paper's."""
    means = []
    for rows in grouped(records["snapshots"], "method", "rounds"):
        own = column_means(rows, "right", "nonzeros")
        means.append(rows[0] | own | {"rate": own["right"] / examples, "first": rows[0]["right"]})
    return means


def _misprints() -> list[str]:
    """Rates and numbers of Table 7 that contradict each other."""
    size = published.EXAMPLES
    return [
        f"{100 * rate:.1f} % and {integer(number)} of {integer(size)}, which is {100 * number / size:.1f} %"
        for numbers in published.SNAPSHOTS.values()
        for rate, number in numbers
        if abs(rate - number / size) > 0.001
    ]


def _differences(records: Records) -> list[tuple[str, float, float]]:
    """The largest difference of R̄(T) from the printed one with the paper's steps: features, for λ ≥ 0.0005, below."""
    differences = []
    columns = {"objective_at_paper_eta0": "the counts"}
    for name, words in (columns | {f"objective_{name}": words for name, words in published.OTHERS.items()}).items():
        gaps = [(row["lam"], abs(row[name] - row["paper_objective"])) for row in records["results"]]
        differences.append((words, max(g for lam, g in gaps if lam >= 5e-4), max(g for lam, g in gaps if lam < 5e-4)))
    return differences


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    search = {row["method"]: row["seconds_with_objective"] for row in select(records["timings"], what="search")}
    runs = (
        len(search) * len(published.PUBLISHED) * len(published.STEPS) * min(inputs["repetitions"], published.SEARCHED)
    )
    total = sum(search.values())
    each = total / (runs * inputs["rounds"] * inputs["nonzeros_an_example"])
    return {
        "data sets drawn": f"{integer(inputs['repetitions'])}, of {integer(inputs['rounds'])} examples each",
        "runs of the search": integer(runs),
        "processor time of the search": f"{duration(total)}, {amount(1e9 * each)} ns per nonzero and run",
        **{f"processor time of {name}": duration(seconds) for name, seconds in search.items()},
    }


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


EXPERIMENT: Final = Experiment("cl-fobos", read_schemas(__file__), cl_fobos_page)


def reproduce_cl_fobos(
    data: Path,
    out: Path,
    *,
    repetitions: int = published.REPETITIONS,
    rounds: int = published.ROUNDS,
    domain: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables 1 to 7; write OUT/*.parquet, OUT/inputs.json and OUT/cl-fobos.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, and the K that takes as long as CL-FOBOS: in timings.parquet, equal_time.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the counts of reviews and, to try all words with the paper's steps, of their text, in it or in a
        subfolder; of text alone, its counts are used. `reproduce_stda` lists the names of the files.
    out : Path
        Folder of the results.
    repetitions, rounds : int
        Data sets, and examples drawn for each.
    domain : {"books", "dvd", "electronics", "kitchen"}, optional
        Domain of the reviews; by default the first that is in the folder. The paper has books.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If no reviews are there, or a file is invalid.
    """
    check_repetitions(repetitions=repetitions)
    least = published.TRACKED[0].K
    if rounds < least:
        raise InputError(
            f"rounds={rounds} must be at least {least}, the first lazy evaluation of Figure 2.", code="invalid-option"
        )
    if domain is not None and domain not in DOMAINS:
        raise InputError(f"domain={domain!r} must be one of {', '.join(DOMAINS)}.", code="invalid-option")
    known = choose_sources(*DOMAINS, *(f"{name}-text" for name in DOMAINS))
    found, _ = find_sources(data, known)
    sources, files = _find_domain(data, domain)
    own, *text = sources
    inputs: dict[str, Any] = {
        "domain": own.paper,
        "differs": own.differs,
        "missing": [{"title": source.title, "shows": _shows(source)} for source in missing_sources(known, found)],
        "repetitions": repetitions,
        "rounds": rounds,
    }

    def compute(run: Run) -> Records:
        (_, documents), *wide = run.documents(sources, files)
        draws = _draws(own, documents, repetitions, rounds)
        others: dict[str, list[Draw]] = {}
        if text:
            counts = _draws(text[0], wide[0][1], min(repetitions, published.SEARCHED), rounds)
            others = dict(zip(published.OTHERS, (counts, [draw.presence() for draw in counts]), strict=True))
        inputs.update(_sizes(draws[0], *others.values()))
        return run_experiments(draws, others, run)

    def judge_claims(records: Records) -> Records:
        return judge(published.cl_fobos_claims(records, printed=own.paper == published.DOMAIN))

    return EXPERIMENT.run(Run(out, progress), compute, judge_claims, inputs, files)


def _find_domain(data: Path, domain: str | None) -> tuple[list[DocumentSource], dict[str, Path]]:
    """The counts and the text of a domain, or of the first that is in the folder; and their files."""
    domains = DOMAINS if domain is None else (domain,)
    found, files = find_sources(data, choose_sources(*domains, *(f"{name}-text" for name in domains)))
    first = min(found, key=lambda source: DOMAINS.index(source.paper)).paper
    sources = [source for source in found if source.paper == first]
    names = {name for source in sources for name in (*source.files, source.names)}
    return sources, {name: path for name, path in files.items() if name in names}


def _shows(source: DocumentSource) -> str:
    """What a set that is not in the folder would have shown."""
    if source.name == published.DOMAIN:
        return "Tables 1 to 7"
    if source.paper == published.DOMAIN:
        return "the effect of all words and pairs of words"
    return f"the same experiments on a domain that the paper does not print (--domain {source.paper})"


def _draws(source: DocumentSource, documents: Documents, repetitions: int, rounds: int) -> list[Draw]:
    """Data sets drawn from the paper's number of examples, which are themselves drawn if there are more."""
    features, labels, digest = documents.rows, documents.labels.astype(np.int64), documents.digest
    size = PRINTED[source.paper][0]
    if len(labels) > size:
        generator = np.random.Generator(np.random.PCG64([size, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[:size])
        features, labels = features[chosen], labels[chosen]
        features = features[:, np.unique(features.indices)]
        digest = f"{digest}, {size} of them"
    return [Draw(features, labels, digest, k, rounds) for k in range(repetitions)]


def _sizes(own: Draw, *others: list[Draw]) -> dict[str, Any]:
    features, wide = own.features, others[0][0].features if others else None
    return {
        "examples": features.shape[0],
        "features": features.shape[1],
        "nonzeros_an_example": features.nnz / features.shape[0],
        "largest_count": int(features.max()),
        "all_words": None if wide is None else wide.shape[1],
        "all_words_an_example": None if wide is None else wide.nnz / wide.shape[0],
    }
