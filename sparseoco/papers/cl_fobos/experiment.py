"""The experiment of Togari and Yamashita 2016: figures, page, run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, duration, integer
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.cl_fobos import claims as published
from sparseoco.papers.cl_fobos.claims import (
    CL_FOBOS,
    EXAMPLES,
    METHODS,
    OTHERS,
    PUBLISHED,
    SEARCHED,
    SNAPSHOTS,
    STEPS,
    TRACKED,
    cl_fobos_claims,
    cl_fobos_timing_claims,
    lambda_label,
)
from sparseoco.papers.cl_fobos.runs import LAMBDAS, Draw, mean_ladder, run_experiments
from sparseoco.papers.claims import Records, Row, distinct, extend, judge, mean, mean_and_error, read_schemas, select
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, check_repetitions, publish, render
from sparseoco.papers.sources import (
    DOMAINS,
    PRINTED,
    DocumentSource,
    choose_sources,
    find_sources,
    load_documents,
    missing_sources,
)
from sparseoco.report.charts import (
    COLOURS,
    DASHES,
    HALF,
    MARKERS,
    Chart,
    Series,
    category_axis,
    line_chart,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)
from sparseoco.report.svg import plot
from sparseoco.storage.locks import exclusive_lock

# ----------------------------------------------------------------------------------------------------------------------
# Figures 1, 2 and 3, and R̄(T) over the steps that were tried.


_COLOURS: Final = dict(zip((method.name for method in METHODS), (COLOURS[0], COLOURS[2], COLOURS[3]), strict=False)) | {
    CL_FOBOS.name: COLOURS[1]
}


def method_colour(method: str) -> str:
    """The colour of a method in all figures and tables; L-FOBOS of any other K has that of the first."""
    return _COLOURS.get(method, COLOURS[0])


def _style(method: str) -> tuple[str, str]:
    """The colour of a method and its marker."""
    colour = method_colour(method)
    return colour, MARKERS[COLOURS.index(colour)]


def tradeoff_figure(results: Sequence[Row]) -> Chart:
    """R̄(T) against run time: ours filled, the paper's hollow."""
    series = []
    for row in results:
        name = row["method"]
        colour, marker = _style(name)
        for prefix, whose in (("", "here"), ("paper_", "paper")):
            seconds, objective = row[f"{prefix}seconds"], row[f"{prefix}objective"]
            series.append(
                Series(
                    name,
                    [seconds],
                    [objective],
                    colour,
                    dash="",
                    marker=marker,
                    size=5.0,
                    hollow=whose == "paper",
                    heading=f"{name}, {whose}",
                    labels=[f"{objective:.4f} in {seconds:.3f} s"],
                    group=name,
                    legend=whose == "here",
                )
            )
    x = log_axis("seconds (log scale); hollow: the paper's", values_x(series))
    return Chart(x, linear_axis("R̄(T)", values_y(series)), series, width=HALF, height=360)


def steps_figure(search: Sequence[Row]) -> Chart:
    """R̄(T) of every step that was tried, a line per method, with its smallest value marked."""
    series = []
    finite = [row for row in search if row["objective"] is not None]
    low = min(row["objective"] for row in finite)
    for name in distinct(search, "method"):
        rows = select(finite, method=name)
        (best,) = select(rows, chosen=True)
        steps, objectives = ([row[column] for row in rows] for column in ("eta0", "objective"))
        colour, marker = _style(name)
        dash = DASHES[COLOURS.index(colour)]
        labels = [f"α₀ = {row['eta0']:g}: {row['objective']:.4f}" for row in rows]
        series.append(Series(name, steps, objectives, colour, dash=dash, heading=name, labels=labels, group=name))
        at = ([best["eta0"]], [best["objective"]])
        series.append(Series(name, *at, colour, dash="", marker=marker, size=5.0, group=name, legend=False))
    y = linear_axis("R̄(T)", [], low=low - 0.03, high=low + 0.4)
    return Chart(log_axis("α₀ (log scale)", values_x(series)), y, series, width=HALF, height=360)


def nonzeros_figure(rows: Sequence[Row]) -> Chart:
    """Share of nonzero weights around every K-th round."""
    series = []
    for name in distinct(rows, "method"):
        own = select(rows, method=name)
        rounds, shares = [row["rounds"] for row in own], [100 * row["share"] for row in own]
        labels = [f"{t:,} rounds: {share:.2f} %" for t, share in zip(rounds, shares, strict=True)]
        series.append(Series(name, rounds, shares, method_colour(name), width=1.2, heading=name, labels=labels))
    return line_chart(series, "rounds", "nonzero weights, %", zero="xy")


def snapshots_figure(rows: Sequence[Row], examples: int) -> Chart:
    """Share of right predictions of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    series = []
    rounds = sorted({row["rounds"] for row in rows})
    for name in distinct(rows, "method"):
        own = [select(rows, method=name, rounds=t) for t in rounds]
        ours = [100 * mean(row["right"] for row in repetitions) / examples for repetitions in own]
        paper = [100 * repetitions[0]["paper_right"] / EXAMPLES for repetitions in own]
        colour, marker = _style(name)
        for whose, values, dash in (("here", ours, "solid"), ("paper", paper, "dot")):
            label = f"{name}, {whose}"
            series.append(
                Series(
                    label,
                    range(len(rounds)),
                    values,
                    colour,
                    dash=dash,
                    marker=marker,
                    hollow=whose == "paper",
                    heading=label,
                    labels=[f"after {t:,} rounds: {value:.1f} %" for t, value in zip(rounds, values, strict=True)],
                )
            )
    x = category_axis("solution after so many rounds", [f"{t:,}" for t in rounds])
    return Chart(x, linear_axis("right predictions, %", values_y(series)), series)


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


def cl_fobos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    nonzeros = [
        plot(
            f"nonzeros-{lazy.K}",
            f"Share of nonzero weights, {lambda_label(lazy.lam)}, K = {lazy.K}",
            nonzeros_figure(select(records["nonzeros"], lam=lazy.lam, repetition=0)),
        )
        for lazy in (TRACKED[0], TRACKED[2])
    ]
    figure = snapshots_figure(records["snapshots"], inputs["examples"])
    return render(
        "cl_fobos",
        inputs,
        records,
        _facts(records, inputs),
        timing_claims=cl_fobos_timing_claims(records),
        sections=[_section(records, number, lam) for number, lam in enumerate(PUBLISHED, start=1)],
        nonzeros=nonzeros,
        ladders=[(lam, mean_ladder(records["timings"], lam)) for lam in LAMBDAS],
        equal_time=_equal_time_rows(records),
        means=_mean_rows(records),
        snapshots=plot("snapshots", "Right predictions of all examples by intermediate solutions", figure),
        snapshot_rows=_snapshot_rows(records, inputs["examples"]),
        misprints=_misprints(),
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        method_colour=method_colour,
        tracked=TRACKED,
        searched=min(inputs["repetitions"], SEARCHED),
        lambda_label=lambda_label,
        differences=_differences(records) if inputs["all_words"] else [],
        others=OTHERS if inputs["all_words"] else {},
    )


def _section(records: Records, number: int, lam: float) -> dict[str, Any]:
    """A λ: its table, R̄(T) against run time and over the steps."""
    title = lambda_label(lam)
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
    for lam in distinct(records["equal_time"], "lam"):
        for name in distinct(select(records["equal_time"], lam=lam), "method"):
            own = select(records["equal_time"], lam=lam, method=name)
            columns = ("seconds", "objective", "right", "before", "after")
            means = {column: mean(row[column] for row in own) for column in columns}
            rows.append(own[0] | means | {"error": mean_and_error([row["seconds"] for row in own])[1]})
    return rows


def _mean_rows(records: Records) -> list[Row]:
    """A row per λ: CL-FOBOS' objectives, means of the data sets, and the bound where it is computed."""
    rows = []
    for lam in distinct(records["means"], "lam"):
        own = select(records["means"], lam=lam)
        (result,) = select(records["results"], lam=lam, method=CL_FOBOS.name)
        means = {column: mean(row[column] for row in own) for column in ("of_mean", "of_last")}
        rows.append(own[0] | means | {"incurred": result["objective"]})
    return rows


def _snapshot_rows(records: Records, examples: int) -> list[Row]:
    """A row per method and solution: mean of the repetitions, and the paper's."""
    means = []
    for method in SNAPSHOTS:
        for rounds in sorted({row["rounds"] for row in records["snapshots"]}):
            rows = select(records["snapshots"], method=method, rounds=rounds)
            right, nonzeros = (mean(row[column] for row in rows) for column in ("right", "nonzeros"))
            own = {"right": right, "rate": right / examples, "nonzeros": nonzeros, "first": rows[0]["right"]}
            means.append(rows[0] | own)
    return means


def _misprints() -> list[str]:
    """Rates and numbers of Table 7 that contradict each other."""
    return [
        f"{100 * rate:.1f} % and {integer(number)} of {integer(EXAMPLES)}, which is {100 * number / EXAMPLES:.1f} %"
        for numbers in SNAPSHOTS.values()
        for rate, number in numbers
        if abs(rate - number / EXAMPLES) > 0.001
    ]


def _differences(records: Records) -> list[tuple[str, float, float]]:
    """The largest difference of R̄(T) from the printed one with the paper's steps: features, for λ ≥ 0.0005, below."""
    differences = []
    columns = {"objective_at_paper_eta0": "the counts"}
    for column, words in (columns | {f"objective_{name}": words for name, words in OTHERS.items()}).items():
        gaps = [(row["lam"], abs(row[column] - row["paper_objective"])) for row in records["results"]]
        differences.append((words, max(g for lam, g in gaps if lam >= 5e-4), max(g for lam, g in gaps if lam < 5e-4)))
    return differences


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    search = {row["method"]: row["seconds_with_objective"] for row in select(records["timings"], what="search")}
    runs = len(search) * len(PUBLISHED) * len(STEPS) * min(inputs["repetitions"], SEARCHED)
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


SCHEMAS: Final = read_schemas(__file__)


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
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        draws = _draws(own, files, out, repetitions, rounds)
        progress("read", 1, len(sources))
        others: dict[str, list[Draw]] = {}
        if text:
            wide = _draws(text[0], files, out, min(repetitions, published.SEARCHED), rounds)
            progress("read", 2, len(sources))
            others = dict(zip(OTHERS, (wide, [draw.presence() for draw in wide]), strict=True))
        records = run_experiments(draws, others, out / "cells", progress)
        extend(records, judge(cl_fobos_claims(records, printed=own.paper == published.DOMAIN)))
        inputs = {
            "domain": own.paper,
            "differs": own.differs,
            "missing": [{"title": source.title, "shows": _shows(source)} for source in missing_sources(known, found)],
            "repetitions": repetitions,
            "rounds": rounds,
            **_sizes(draws[0], *others.values()),
        }
        return publish(out, "cl-fobos", records, SCHEMAS, inputs, files, cl_fobos_page)


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


def _draws(source: DocumentSource, files: Mapping[str, Path], out: Path, repetitions: int, rounds: int) -> list[Draw]:
    """Data sets drawn from the paper's number of examples, which are themselves drawn if there are more."""
    documents = load_documents(source, files, out / "stores")
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
