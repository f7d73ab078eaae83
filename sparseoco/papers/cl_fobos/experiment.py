"""The experiment of Togari and Yamashita 2016: figures, page, run."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import amount, duration, integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.cl_fobos import runs
from sparseoco.papers.cl_fobos.runs import LAMBDAS, Draw, mean_ladder, run_experiments
from sparseoco.papers.claims import (
    Finding,
    Measured,
    Measures,
    Pair,
    Place,
    Values,
    find_evidence,
    judge,
    read_claims,
)
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, lines_by, look, render
from sparseoco.papers.rows import (
    Records,
    Row,
    column,
    distinct,
    grouped,
    mean,
    mean_rows,
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
# Measures of the claims in claims.toml.


STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""
AS_PRINTED: Final = "as printed"
LAZY: Final = [method.name for method in runs.METHODS[:-1]]


def cl_fobos_claims(records: Records, *, printed: bool = True) -> list[Finding]:
    """All claims but those on run times; those on printed figures only if they are `printed` for this domain."""
    claims = [*(read_claims(__file__, "printed") if printed else ()), *read_claims(__file__)]
    return find_evidence(claims, MEASURES, records)


def cl_fobos_timing_claims(records: Records) -> list[Finding]:
    """Claims on run times, and on run times and R̄(T)."""
    return find_evidence(read_claims(__file__, "run_times"), MEASURES, records)


def lambda_label(lam: float) -> str:
    """The label of a λ."""
    return f"λ = {lam:g}".replace("e-0", "e-")


class _Listed(dict[str, list[float]]):
    """Values by method that format as a list of their means."""

    def __format__(self, spec: str) -> str:
        return "; ".join(f"{name}: {mean(own):{spec}}" for name, own in self.items())


def _values(records: Records, lam: float, name: str, words: str = runs.OWN) -> _Listed:
    """A column of all data sets by method: with the steps chosen here, or on other features with the paper's."""
    rows = select(records["runs"], lam=lam, words=words, eta0_of="here" if words == runs.OWN else "paper")
    return _Listed({method.name: column(select(rows, method=method.name), name) for method in runs.METHODS})


def _seconds_of(records: Records, lam: float, what: str) -> _Listed:
    rows = select(records["timings"], what=what, lam=lam)
    return _Listed({name: column(select(rows, method=name), "seconds") for name in distinct(rows, "method")})


def _by_lam(
    records: Records, name: str = "", what: str = "", lams: Sequence[float] = tuple(runs.PUBLISHED)
) -> Iterator[Place]:
    """A column of the runs, or the seconds of `what` is timed, by method for each λ."""
    for lam in lams:
        values = _seconds_of(records, lam, what) if what else _values(records, lam, name)
        named: dict[str, Any] = {"all": values, "lazy": _Listed({method: values[method] for method in LAZY}), **values}
        if name == "right":  # half a unit of the last printed digit more
            named["(CL-FOBOS + 0.0005)"] = [rate + 0.0005 for rate in values[runs.CL_FOBOS.name]]
            named["undecided"] = Values(_values(records, lam, "undecided")[runs.CL_FOBOS.name])
        yield Place(lambda_label(lam), named)


def _as_printed(records: Records, name: str) -> Iterator[Measured]:
    variants = {runs.OWN: ""} | {words: f", {title}, the paper's α₀" for words, title in runs.OTHERS.items()}
    for words, features in variants.items():
        for number, (lam, table) in enumerate(runs.PUBLISHED.items(), start=1):
            values = _values(records, lam, name, words)
            if not all(values.values()):
                continue
            printed = {method.name: getattr(row, name) for method, row in zip(runs.METHODS, table, strict=True)}
            here = "; ".join(f"{method}: {mean(own):.4f} for {printed[method]:g}" for method, own in values.items())
            pairs = [Pair(own, [printed[method]] * len(own), method) for method, own in values.items()]
            yield Measured(f"Table {number}, {lambda_label(lam)}{features}", here, pairs)


def _tracked(records: Records) -> list[tuple[runs.TrackedRun, dict[str, Any]]]:
    """Figure 2: the pairs of runs that reach a lazy evaluation, an L-FOBOS and the CL-FOBOS of the same rounds.

    With the shares and numbers of nonzero weights at the lazy evaluations, a list for each data set: L-FOBOS' before
    and after them, and CL-FOBOS' before.
    """
    pairs = []
    for lazy, ours in (runs.TRACKED[:2], runs.TRACKED[2:]):
        theirs, own = (select(records["nonzeros"], method=run.method.name, lam=run.lam) for run in (lazy, ours))

        def each(rows: list[Row], name: str, offset: int, K: int = lazy.K) -> list[list[Any]]:
            """The column at, or one round before, the lazy evaluations."""
            chosen = [row for row in rows if (row["rounds"] + offset) % K == 0]
            return [column(select(chosen, repetition=k), name) for k in distinct(rows, "repetition")]

        before = each(theirs, "share", 1)
        if before and all(before):
            after = {"after": each(theirs, "share", 0), "after_nonzeros": each(theirs, "nonzeros", 0)}
            of_ours = {"ours": each(own, "share", 1), "ours_nonzeros": each(own, "nonzeros", 1)}
            pairs.append((lazy, {"before": before, **after, **of_ours}))
    return pairs


def _at_evaluations(records: Records, strong: bool = False) -> Iterator[Place]:
    """Means of the data sets; with the strong λ only, if asked."""
    for lazy, tracked in _tracked(records):
        values: dict[str, Any] = {
            name: Values(mean(shares) for shares in tracked[name]) for name in ("before", "after", "ours")
        }
        values["half"] = [0.5 * share for share in values["before"]]
        values["most"] = [max(shares) for shares in tracked["ours"]]
        for name in ("after", "ours"):
            values[f"range of {name}"] = _of_all_features(tracked[name], tracked[f"{name}_nonzeros"])
        if not strong or lazy.lam >= STRONG:
            yield Place(f"{lambda_label(lazy.lam)}, K = {lazy.K}", values)


def _of_all_features(shares: list[list[float]], nonzeros: list[list[int]]) -> str:
    """The range of the shares of nonzero weights and of their numbers, and the share of the paper's features."""
    of_these, numbers = ([value for run in both for value in run] for both in (shares, nonzeros))
    return (
        f"{percent(min(of_these))} to {percent(max(of_these))} of the weights, {integer(min(numbers))} "
        f"to {integer(max(numbers))}: of the paper's {integer(runs.FEATURES)} features as many are at most "
        f"{percent(max(numbers) / runs.FEATURES)}"
    )


def _last_evaluation(records: Records) -> Iterator[Place]:
    """With the weak λ of Figure 2 and the strong one, if both reach a lazy evaluation."""
    pairs = _tracked(records)
    for name, field in (("L-FOBOS", "after"), ("CL-FOBOS", "ours")) if len(pairs) == 2 else ():
        shares = (Values(own[-1] for own in tracked[field]) for _, tracked in pairs)
        yield Place(name, dict(zip(("5e-3", "1e-5"), shares, strict=True)))


def _reached(rows: Sequence[Row]) -> list[int]:
    """The rounds after which there is a solution, and after the next."""
    reached = sorted({row["rounds"] for row in rows})
    return [t for t in reached if t + 1 in reached]


def _right_lost(records: Records) -> Iterator[Place]:
    """Right predictions of L-FOBOS before and after a lazy evaluation, and how many both methods lose in its round."""
    for t in _reached(records["snapshots"]):
        values: dict[str, Any] = {}
        for who, run in zip(("CL-FOBOS", "L-FOBOS"), reversed(runs.TRACKED[:2]), strict=True):
            rows = select(records["snapshots"], method=run.method.name)
            before, after = (column(select(rows, rounds=at), "right") for at in (t, t + 1))
            values |= {"before": before, "after": after, who: Values(map(int.__sub__, before, after))}
        yield Place(f"x_{t} to x_{t + 1}", values)


def _right(records: Records) -> Iterator[Place]:
    """Right predictions of an earlier and a later solution of CL-FOBOS, data set by data set."""
    rows = select(records["snapshots"], method=runs.CL_FOBOS.name)
    for a, b in pairwise(_reached(rows)):
        earlier, later = (Values(column(select(rows, rounds=t), "right")) for t in (a, b))
        yield Place(f"x_{a} to x_{b}", {"earlier": earlier, "later": later})


def _means(records: Records) -> Iterator[Place]:
    for lam in distinct(records["means"], "lam"):
        of_mean = Values(column(select(records["means"], lam=lam), "of_mean"))
        incurred = Values(_values(records, lam, "objective")[runs.CL_FOBOS.name])
        yield Place(lambda_label(lam), {"F(x̄)": of_mean, "R̄(T)": incurred})


def _seconds_of_figure(records: Records) -> Iterator[Place]:
    for lazy, ours in (runs.TRACKED[:2], runs.TRACKED[2:]):
        times = _seconds_of(records, lazy.lam, "figure 2")
        left, right = (times[run.method.name] for run in (lazy, ours))
        yield Place(f"{lambda_label(lazy.lam)}, K = {lazy.K}", {"all": times, "L-FOBOS": left, "CL-FOBOS": right})


def _equal_time(records: Records, strong: bool | None = None) -> Iterator[Place]:
    """L-FOBOS with the K that takes as long as CL-FOBOS here, and CL-FOBOS; of strong or other λ, if asked."""
    for theirs, ours in pairwise(grouped(records["equal_time"], "lam", "method")):
        lam = theirs[0]["lam"]
        if lam != ours[0]["lam"] or (strong is not None and strong != (lam >= STRONG)):
            continue
        values: dict[str, Any] = {
            f"{who} {name}": Values(column(rows, name))
            for who, rows in (("L-FOBOS", theirs), ("CL-FOBOS", ours))
            for name in ("seconds", "objective", "right", "before", "after")
        }
        values["half"] = [0.5 * share for share in values["L-FOBOS before"]]
        yield Place(f"{lambda_label(lam)}, K = {theirs[0]['K']}", values)


def _not_outperformed(records: Records, lams: Sequence[float]) -> Iterator[Measured]:
    """For each K, that R̄(T) or the run time of CL-FOBOS is less."""
    ours = runs.CL_FOBOS.name
    for lam in lams:
        objectives, seconds = _values(records, lam, "objective"), _seconds_of(records, lam, AS_PRINTED)
        kinds = (("R̄(T)", objectives), ("seconds", seconds))
        here = "; ".join(f"{name}: {mean(objectives[name]):.4f} in {mean(seconds[name]):.3f} s" for name in objectives)
        groups = [
            [Pair(values[ours], values[name], f"CL-FOBOS − {name}, {what}") for what, values in kinds] for name in LAZY
        ]
        yield Measured(lambda_label(lam), here, groups)


MEASURES: Final[Measures] = {
    "as printed": _as_printed,
    "by λ": _by_lam,
    "at evaluations": _at_evaluations,
    "last evaluation": _last_evaluation,
    "right predictions lost": _right_lost,
    "right predictions": _right,
    "mean of the iterates": _means,
    "seconds of figure 2": _seconds_of_figure,
    "equal time": _equal_time,
    "not outperformed": _not_outperformed,
}


# ----------------------------------------------------------------------------------------------------------------------
# Figures 1, 2 and 3, and R̄(T) over the steps that were tried.


_PLACES: Final = dict(zip((method.name for method in runs.METHODS), (0, 2, 3, 1), strict=True))


def _look(method: str) -> dict[str, Any]:
    """The colour and marker of a method in all figures and tables; L-FOBOS of any other K has those of the first."""
    return look(_PLACES.get(method, 0))


def tradeoff_figure(results: Sequence[Row]) -> charts.Chart:
    """R̄(T) against run time: ours filled, the paper's hollow."""
    series = []
    for name in distinct(results, "method"):
        for whose, columns in (("here", ("seconds", "objective")), ("paper", ("paper_seconds", "paper_objective"))):
            style = {"dash": "", "size": 5.0, "hollow": whose == "paper", "legend": whose == "here", "group": name}
            looks = {name: _look(name) | style | {"heading": f"{name}, {whose}"}}
            label = f"{{{columns[1]}:.4f}} in {{{columns[0]}:.3f}} s"
            series += lines_by(results, "method", *columns, looks, label=label)
    x = charts.log_axis("seconds (log scale); hollow: the paper's", charts.values_x(series))
    return charts.Chart(x, charts.linear_axis("R̄(T)", charts.values_y(series)), series, width=charts.HALF, height=360)


def steps_figure(search: Sequence[Row]) -> charts.Chart:
    """R̄(T) of every step that was tried, a line per method, with its smallest value marked."""
    series = []
    finite = [row for row in search if row["objective"] is not None]
    low = min(row["objective"] for row in finite)
    for name in distinct(search, "method"):
        line = {"colour": _look(name)["colour"], "dash": charts.DASHES[_PLACES[name]], "group": name}
        series += lines_by(finite, "method", "eta0", "objective", {name: line}, label="α₀ = {eta0:g}: {objective:.4f}")
        best = _look(name) | {"dash": "", "size": 5.0, "group": name, "legend": False, "heading": ""}
        chosen = lines_by(select(finite, chosen=True), "method", "eta0", "objective", {name: best}, label="")
        series += [mark._replace(labels=()) for mark in chosen]
    x = charts.log_axis("α₀ (log scale)", charts.values_x(series))
    y = charts.linear_axis("R̄(T)", [], low=low - 0.03, high=low + 0.4)
    return charts.Chart(x, y, series, width=charts.HALF, height=360)


def nonzeros_figure(rows: Sequence[Row]) -> charts.Chart:
    """Share of nonzero weights around every K-th round."""
    looks = {name: {"colour": _look(name)["colour"]} for name in distinct(rows, "method")}
    label = "{rounds:,} rounds: {value:.2f} %"
    series = lines_by(rows, "method", "rounds", "share", looks, label=label, scale=100, width=1.2)
    return charts.line_chart(series, "rounds", "nonzero weights, %", zero="xy")


def snapshots_figure(rows: Sequence[Row], examples: int) -> charts.Chart:
    """Share of right predictions of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    rounds = sorted(distinct(rows, "rounds"))
    points = []
    for row in mean_rows(rows, ("method", "rounds"), ("right",)):
        shares = {"here": row["right"] / examples, "paper": row["paper_right"] / runs.EXAMPLES}
        points += [
            {"line": f"{row['method']}, {whose}", "at": rounds.index(row["rounds"]), "share": share, **row}
            for whose, share in shares.items()
        ]
    looks = {
        f"{name}, {whose}": {**_look(name), "dash": dash, "hollow": whose == "paper"}
        for name in distinct(rows, "method")
        for whose, dash in (("here", "solid"), ("paper", "dot"))
    }
    label = "after {rounds:,} rounds: {value:.1f} %"
    series = lines_by(points, "line", "at", "share", looks, label=label, scale=100)
    x = charts.category_axis("solution after so many rounds", [f"{t:,}" for t in rounds])
    return charts.Chart(x, charts.linear_axis("right predictions, %", charts.values_y(series)), series)


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
        for lazy in (runs.TRACKED[0], runs.TRACKED[2])
    ]
    figure = snapshots_figure(records["snapshots"], inputs["examples"])
    return render(
        "cl_fobos",
        inputs,
        records,
        _facts(records, inputs),
        timing_claims=cl_fobos_timing_claims(records),
        sections=[_section(records, number, lam) for number, lam in enumerate(runs.PUBLISHED, start=1)],
        nonzeros=nonzeros,
        ladders=[(lam, mean_ladder(records["timings"], lam)) for lam in LAMBDAS],
        equal_time=mean_rows(
            records["equal_time"],
            ("lam", "method"),
            ("seconds", "objective", "right", "before", "after"),
            ("seconds",),
        ),
        means=_mean_rows(records),
        snapshots=plot("snapshots", "Right predictions of all examples by intermediate solutions", figure),
        snapshot_rows=[
            own | {"first": first["right"]}
            for own, first in zip(
                mean_rows(records["snapshots"], ("method", "rounds"), ("right", "rate", "nonzeros")),
                select(records["snapshots"], repetition=0),
                strict=True,
            )
        ],
        misprints=_misprints(),
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        look=_look,
        tracked=runs.TRACKED,
        searched=min(inputs["repetitions"], runs.SEARCHED),
        lambda_label=lambda_label,
        differences=_differences(records) if inputs["all_words"] else [],
        others=runs.OTHERS if inputs["all_words"] else {},
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


def _mean_rows(records: Records) -> list[Row]:
    """A row per λ: CL-FOBOS' objectives, means of the data sets, and the bound where it is computed."""
    means = {row["lam"]: row["objective"] for row in select(records["results"], method=runs.CL_FOBOS.name)}
    rows = mean_rows(records["means"], ("lam",), ("of_mean", "of_last"))
    return [row | {"incurred": means[row["lam"]]} for row in rows]


def _misprints() -> list[str]:
    """Rates and numbers of Table 7 that contradict each other."""
    size = runs.EXAMPLES
    return [
        f"{100 * rate:.1f} % and {integer(number)} of {integer(size)}, which is {100 * number / size:.1f} %"
        for numbers in runs.SNAPSHOTS.values()
        for rate, number in numbers
        if abs(rate - number / size) > 0.001
    ]


def _differences(records: Records) -> list[tuple[str, float, float]]:
    """The largest difference of R̄(T) from the printed one with the paper's steps: features, for λ ≥ 0.0005, below."""
    differences = []
    columns = {"objective_at_paper_eta0": "the counts"}
    for name, words in (columns | {f"objective_{name}": words for name, words in runs.OTHERS.items()}).items():
        gaps = [(row["lam"], abs(row[name] - row["paper_objective"])) for row in records["results"]]
        differences.append((words, max(g for lam, g in gaps if lam >= 5e-4), max(g for lam, g in gaps if lam < 5e-4)))
    return differences


def _facts(records: Records, inputs: dict[str, Any]) -> dict[str, str]:
    search = {row["method"]: row["seconds_with_objective"] for row in select(records["timings"], what="search")}
    searched = min(inputs["repetitions"], runs.SEARCHED)
    count = len(search) * len(runs.PUBLISHED) * len(runs.STEPS) * searched
    total = sum(search.values())
    each = total / (count * inputs["rounds"] * inputs["nonzeros_an_example"])
    return {
        "data sets drawn": f"{integer(inputs['repetitions'])}, of {integer(inputs['rounds'])} examples each",
        "runs of the search": integer(count),
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
    repetitions: int = runs.REPETITIONS,
    rounds: int = runs.ROUNDS,
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
    least = runs.TRACKED[0].K
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
            counts = _draws(text[0], wide[0][1], min(repetitions, runs.SEARCHED), rounds)
            others = dict(zip(runs.OTHERS, (counts, [draw.presence() for draw in counts]), strict=True))
        inputs.update(_sizes(draws[0], *others.values()))
        return run_experiments(draws, others, run)

    def judge_claims(records: Records) -> Records:
        return judge(cl_fobos_claims(records, printed=own.paper == runs.DOMAIN))

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
    if source.name == runs.DOMAIN:
        return "Tables 1 to 7"
    if source.paper == runs.DOMAIN:
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
