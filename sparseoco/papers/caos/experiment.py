"""The experiment of Mohri and Yang 2015: claims, page, run."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sklearn.exceptions import ConvergenceWarning

from sparseoco.core.formatting import NONE, PERCENT, amount, duration, integer, percent
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.caos.objectives import (
    ALPHAS,
    CORRECTED,
    EPOCHS,
    EQUAL,
    ETA0,
    LENGTHS,
    METHODS,
    PRINTED,
    RADII,
    SAGA,
    SAMPLED,
    SGD,
    VALUES,
    Minimiser,
    coordinate_method,
    methods_of,
    objective_cells,
    objective_rows,
    optimum_cell,
    optimum_rows,
    sampling_row,
    scaled,
)
from sparseoco.papers.caos.regret import (
    ADAGRAD,
    AO_GD,
    ARRANGEMENTS,
    BEST,
    FACTORS,
    LEARNERS,
    MEAN,
    NO_PREDICTION,
    OGD,
    ONLINE_RADII,
    PLAYED,
    PLAYED_RADII,
    PRINTED_EQUAL,
    RUN,
    RUNS,
    optima_cell,
    played_cell,
    played_rows,
    playing_cell,
    regret_rows,
)
from sparseoco.papers.claims import (
    OWN,
    Finding,
    Records,
    Row,
    claim_rows,
    distinct,
    extend,
    format_mean,
    judge,
    less,
    mean,
    mean_and_error,
    read_schemas,
    select,
)
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, Cell, check_repetitions, publish, render, run_cells
from sparseoco.papers.sources import Documents, choose_sources, find_sources, load_documents, missing_sources
from sparseoco.report.charts import COLOURS, DASHES, MARKERS, Chart, Series, linear_axis, log_axis, values_x, values_y
from sparseoco.report.svg import plot
from sparseoco.storage.locks import exclusive_lock

# ----------------------------------------------------------------------------------------------------------------------
# What Mohri and Yang (2015) prove and say, and what was measured.


SAMPLING: Final = "§4: “better than traditional naive uniform sampling”"
TESTED_R: Final = ONLINE_RADII[1]
"""R at which regret is compared; the others are in the text."""


def caos_claims(records: Records) -> list[Finding]:
    """All claims."""
    rows = [*_within_bound(records), *_smaller_bound(records), *_factor_two(records)]
    for other, words in (
        (NO_PREDICTION.name, "the same without a prediction"),
        (ADAGRAD.name, "AdaGrad with its theorem's step"),
        (ADAGRAD.name + BEST, "AdaGrad with the best step in hindsight"),
        (OGD.name, "online gradient descent with its theorem's step"),
        (OGD.name + BEST, "online gradient descent with the best step in hindsight"),
    ):
        rows += _less_regret(records, f"The regret of AO-GD is less than that of {words}.", AO_GD.name, other)
    claim = "If the predicted gradient is the mean of the rows that had the feature, the regret is less than AO-GD's."
    rows += _less_regret(records, claim, MEAN.name, AO_GD.name)
    for ours, theirs, claim, paper in (
        (SAMPLED, SGD, "CAOS-ERM gets nearer to the optimum than SGD in as many passes, both tuned.", OWN),
        (SAMPLED, SAGA, "CAOS-ERM gets nearer to the optimum than SAGA in as many passes.", OWN),
        (SAMPLED, CORRECTED, "CAOS-ERM gets nearer with its own estimate than with SVRG's.", OWN),
        (
            PRINTED,
            SAMPLED,
            "CAOS-ERM gets nearer as printed, with the last document's prediction, than with the coming one's.",
            "line 9 prints the last one's; the text says “of the current function being sampled”",
        ),
        (CORRECTED, PRINTED, "CAOS-ERM gets nearer with SVRG's estimate than as printed.", OWN),
        (
            SAMPLED,
            EQUAL,
            "CAOS-ERM gets nearer with probabilities ∝ L than with equal ones, in as many passes.",
            "Corollary 6, of its worst case",
        ),
        (CORRECTED, SAGA, "With SVRG's estimate CAOS-ERM gets nearer than SAGA in as many passes.", OWN),
    ):
        rows += _nearer(records, claim, paper, ours, theirs)
    rows += [*_played_within_bound(records), *_worst_cases(records)]
    for ours, theirs, claim, paper in (
        (SAMPLED, EQUAL, "with probabilities ∝ L than with equal ones.", SAMPLING),
        (PRINTED, PRINTED_EQUAL, "as printed, with probabilities ∝ L than with equal ones.", SAMPLING),
        (PRINTED, SAMPLED, "as printed, with the last document's prediction, than with the coming one's.", "line 9"),
        (CORRECTED, PRINTED, "with SVRG's estimate than as printed.", OWN),
    ):
        rows += _less_played(records, f"The iterates that CAOS-ERM plays have less regret {claim}", paper, ours, theirs)
    rows += _sampling_bounds(records)
    uniform, lipschitz = (coordinate_method(sample, "none") for sample in ("uniform", "lipschitz"))
    same_rounds = coordinate_method("lipschitz", "none", same_rounds=True)
    claim = "CAO-RCD gets nearer with probabilities ∝ (RL)^⅔ than with equal ones, in as many"
    rows += _nearer(records, f"{claim} rounds.", "Corollary 4, of bounds", same_rounds, uniform)
    rows += _nearer(records, f"{claim} passes.", OWN, lipschitz, uniform)
    claim = "CAO-RCD gets nearer with the prediction L/2 than with none."
    return rows + _nearer(records, claim, "Corollary 4 uses it", coordinate_method("lipschitz", "half"), lipschitz)


class _Order(NamedTuple):
    """A data set whose documents come in an arrangement: its rows of the regret."""

    regret: list[Row]
    repeated: bool
    """Whether a document comes several times in a row."""

    def last(self, method: str, R: float) -> list[Row]:
        """After the last document, a row per order."""
        rows = select(self.regret, method=method, R=R)
        return select(rows, T=max(row["T"] for row in rows))

    def values(self, column: str, method: str, R: float = TESTED_R) -> list[float]:
        """After the last document, a value per order."""
        return [row[column] for row in self.last(method, R)]

    def means(self, column: str, *methods: str) -> str:
        """After the last document, the means of the orders at every R, as a text."""
        parts = []
        for R in ONLINE_RADII:
            texts = [amount(mean(self.values(column, method, R))) for method in methods]
            parts.append(f"R\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{R:g}: {' against '.join(texts)}")
        return "; ".join(parts)


def _orders(records: Records) -> list[tuple[str, _Order]]:
    return [
        (
            f"{row['title']}, {arrangement}",
            _Order(select(records["regret"], set=row["set"], arrangement=arrangement), repeats > 1),
        )
        for row in records["sets"]
        for arrangement, repeats in ARRANGEMENTS.items()
    ]


def _within_bound(records: Records) -> list[Finding]:
    """By the largest regret possible: the least loss may be lower than the optimum found by its gap."""

    def measure(order: _Order) -> Sequence[Any]:
        rows = select(order.regret, method=AO_GD.name)
        return _shares([(row["regret"] + row["gap"]) / row["bound"] for row in rows])

    claim = "The regret of AO-GD is at most 4 Σ R √(Σ (gₜ − gₜ₋₁)²), at every mark."
    return claim_rows(claim, "Corollary 2", _orders(records), measure)


def _shares(shares: Sequence[float]) -> Sequence[Any]:
    """The least and the largest share of a bound at any mark, as a text, and whether all are within it."""
    least, most = (f"{100 * share:.3g}".replace("-", "−") for share in (min(shares), max(shares)))
    return f"{least} to {most}{PERCENT} of it, {len(shares)} marks", max(shares) <= 1


def _smaller_bound(records: Records) -> list[Finding]:
    """The paper's claim is of gradients that vary slowly: of documents that are repeated."""

    def measure(order: _Order) -> Sequence[Any]:
        left, right = (order.values("bound", learner.name) for learner in (AO_GD, NO_PREDICTION))
        return order.means("bound", AO_GD.name, NO_PREDICTION.name), less(left, right)

    claim = "The bound of AO-GD is more favourable than that of the adaptive method without a prediction"
    orders = _orders(records)
    paper = "“can be vastly superior”, if gradients vary slowly"
    return [
        *claim_rows(f"{claim}, if documents are repeated.", paper, [o for o in orders if o[1].repeated], measure),
        *claim_rows(f"{claim}, if documents are not repeated.", OWN, [o for o in orders if not o[1].repeated], measure),
    ]


def _factor_two(records: Records) -> list[Finding]:
    """Against the better of two methods; if its regret is negative, less than the best fixed point's, no factor has a
    meaning."""

    def measure(order: _Order) -> Sequence[Any]:
        best = min((order.values("regret", learner.name) for learner in (NO_PREDICTION, ADAGRAD)), key=mean)
        here = (
            order.means("regret", AO_GD.name, NO_PREDICTION.name, ADAGRAD.name) + ", without a prediction and AdaGrad's"
        )
        twice = [2 * regret for regret in best]
        return here, less(order.values("regret", AO_GD.name), twice) if mean(best) > 0 else None

    claim = "In the worst case the regret of AO-GD is at most a factor of two more than that of standard methods."
    return claim_rows(claim, "§2.1, of bounds", _orders(records), measure)


def _less_regret(records: Records, claim: str, ours: str, theirs: str) -> list[Finding]:
    """A claim of ours, by the paired differences of the orders, after the last document."""

    def measure(order: _Order) -> Sequence[Any]:
        left, right = (order.values("regret", method) for method in (ours, theirs))
        return order.means("regret", ours, theirs), less(left, right)

    return claim_rows(claim, OWN, _orders(records), measure)


def _nearer(records: Records, claim: str, paper: str, ours: Minimiser, theirs: Minimiser) -> list[Finding]:
    """By H/H* − 1 at the last mark, seed by seed, with the R or step chosen there by the mean of the seeds."""
    titles = {row["set"]: row["title"] for row in records["sets"]}
    problems = []
    for optimum in records["optima"]:
        key = {name: optimum[name] for name in ("set", "lengths", "alpha")}
        pair = [select(records["objectives"], chosen=True, method=method.name, **key) for method in (ours, theirs)]
        if all(pair):  # both ran on this problem
            title = f"{titles[key['set']]}{LENGTHS[key['lengths']]}, α = {key['alpha']:g}"
            problems.append((title, [_of_marks(rows) for rows in pair]))

    def measure(pair: list[list[list[Row]]]) -> Sequence[Any]:
        texts = []
        for mark in (1, -1):
            left, right = (
                format_mean(*mean_and_error([row["excess"] for row in marks[mark]]), percent=True) for marks in pair
            )
            texts.append(f"{_effort(*(marks[mark][0] for marks in pair))}: {left} against {right}")
        ours_last, theirs_last = ([row["excess"] for row in marks[-1]] for marks in pair)
        return "above H*, " + "; ".join(texts), less(ours_last, theirs_last, percent=True)

    return claim_rows(claim, paper, problems, measure)


def _of_marks(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of every mark, one per seed."""
    return [select(rows, passes=passes) for passes in distinct(rows, "passes")]


def _effort(left: Row, right: Row) -> str:
    passes = [f"{row['passes']:.3g}" for row in (left, right)]
    if passes[0] == passes[1]:
        return f"{passes[0]} passes"
    return f"{integer(left['rounds'])} rounds, {passes[0]} and {passes[1]} passes"


def _sets(records: Records) -> list[tuple[str, str]]:
    return [(row["title"], row["set"]) for row in records["sets"]]


def _played_within_bound(records: Records) -> list[Finding]:
    """Every α, R and mark of the methods for which the worst case is proved."""

    def measure(name: str) -> Sequence[Any]:
        rows = [row for row in select(records["played"], set=name) if row["bound"] is not None]
        groups = [
            select(rows, **{column: row[column] for column in ("method", "alpha", "R", "T")})
            for row in select(rows, seed=0)
        ]
        return _shares([mean(row["regret"] for row in group) / group[0]["bound"] for group in groups])

    claim = "The regret of the iterates that CAOS-ERM plays is at most 8nR√T Σ Lⱼ in the mean of its draws, as printed."
    return claim_rows(claim, "Corollary 6, its worst case", _sets(records), measure)


def _worst_cases(records: Records) -> list[Finding]:
    def measure(name: str) -> Sequence[Any]:
        bounds = [
            select(records["played"], set=name, method=method.name)[-1]["bound"] for method in (PRINTED, PRINTED_EQUAL)
        ]
        return f"{bounds[0] / bounds[1]:.3f} times it", bounds[0] < bounds[1]

    claim = "The worst case of CAOS-ERM with probabilities ∝ L is smaller than with equal ones: by how much."
    return claim_rows(claim, "Corollary 6; true of any data but of equal Lⱼ", _sets(records), measure)


def _less_played(records: Records, claim: str, paper: str, ours: Minimiser, theirs: Minimiser) -> list[Finding]:
    """By the regret per round after the last, seed by seed, with the R of the least mean of the seeds."""
    places = [
        (f"{title}, α = {alpha:g}", select(records["played"], set=name, alpha=alpha, chosen=True))
        for title, name in _sets(records)
        for alpha in ALPHAS
    ]

    def measure(rows: list[Row]) -> Sequence[Any]:
        last = select(rows, T=max(row["T"] for row in rows))
        left, right = (
            [row["regret"] / row["T"] for row in select(last, method=method.name)] for method in (ours, theirs)
        )
        texts = [format_mean(*mean_and_error(values), percent=False) for values in (left, right)]
        return f"{texts[0]} against {texts[1]} per round", less(left, right)

    return claim_rows(claim, paper, places, measure)


def _sampling_bounds(records: Records) -> list[Finding]:
    titles = {row["set"]: row["title"] for row in records["sets"]}

    def measure(row: Row) -> Sequence[Any]:
        ratio = row["lipschitz"] / row["uniform"]
        return f"{ratio:.3f} times it, without predictions", row["lipschitz"] < row["uniform"]

    claim = "The bound of CAO-RCD with probabilities ∝ (RL)^⅔ is smaller than with equal ones: by how much."
    paper = "Corollary 4, “strictly smaller” by Hölder's inequality; true of any data but of equal RᵢLᵢ"
    return claim_rows(claim, paper, [(titles[row["set"]], row) for row in records["chances"]], measure)


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


FAMILIES: Final = {"examples": "CAOS-ERM and peers", "coordinates": "CAO-RCD"}
TUNED: Final = {"R": "R", "eta0": "η₀", "": ""}


def caos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    facts = {
        "orders, and repetitions of what is sampled": integer(inputs["repetitions"]),
        "processor time of the methods": duration(sum(row["spent"] for row in records["timings"])),
    }
    return render(
        "caos",
        inputs,
        records,
        facts,
        sections=[_section(records, row) for row in records["sets"]],
        optima=records["optima"],
        edges=edges(records),
        lengths=LENGTHS,
        tuned=TUNED,
        timings=records["timings"],
        titles={row["set"]: row["title"] for row in records["sets"]},
        radii=_listed(RADII),
        first_steps=_listed(ETA0),
        run=RUN,
        tested_R=TESTED_R,
        factors=FACTORS,
        played_radii=_listed(PLAYED_RADII),
        evaluated=RUNS,
    )


def _listed(values: Sequence[float]) -> str:
    *others, last = (f"{value:g}" for value in values)
    return f"{', '.join(others)} and {last}"


def _section(records: Records, data_set: Row) -> dict[str, Any]:
    """A data set: `regret` is a figure of the middle R and rows of every R by arrangement, `objectives` a heading, a
    figure and rows by lengths, α and family."""
    name, title = data_set["set"], data_set["title"]
    regret = []
    for k, arrangement in enumerate(ARRANGEMENTS):
        rows = _mean_regret(select(records["regret"], set=name, arrangement=arrangement))
        middle = sorted({row["R"] for row in rows})[1]
        heading = f"Regret, {title}, documents {arrangement}, R = {middle:g}"
        figure = plot(f"regret-{name}-{k}", heading, mean_regret_figure(select(rows, R=middle)))
        regret.append((figure, select(rows, T=max(row["T"] for row in rows))))
    chosen: dict[tuple[str, float, str], list[Row]] = {}
    for row in select(records["objectives"], chosen=True, set=name):
        chosen.setdefault((row["lengths"], row["alpha"], row["family"]), []).append(row)
    objectives = []
    for (lengths, alpha, family), of_seeds in chosen.items():
        rows = mean_objectives(of_seeds)
        heading = f"{FAMILIES[family]}{LENGTHS[lengths]}, α = {alpha:g}"
        chart = objective_figure(rows, family)
        figure = plot(f"{family}-{name}-{lengths}-{alpha:g}", f"{heading}, {title}", chart)
        objectives.append((heading, figure, _last_rows(rows)))
    return {"row": data_set, "regret": regret, "objectives": objectives, "played": _played_section(records, name)}


def _played_section(records: Records, name: str) -> list[Row]:
    """The regret per round of the iterates of every α and method after the last round, with its standard error."""
    rows = select(records["played"], set=name, chosen=True)
    rows = select(rows, T=max(row["T"] for row in rows))
    means = []
    for own in _grouped(rows, "alpha", "method"):
        regret, error = mean_and_error([row["regret"] / row["T"] for row in own])
        bound = None if own[0]["bound"] is None else own[0]["bound"] / own[0]["T"]
        means.append(own[0] | {"regret": regret, "error": error, "bound": bound})
    return means


def _last_rows(rows: Sequence[Row]) -> list[Row]:
    """The last mark of every method, with its excess at the second."""
    marks = [select(rows, method=method) for method in distinct(rows, "method")]
    return [own[-1] | {"early": percent(own[1]["excess"])} for own in marks]


def edges(records: Records) -> list[str]:
    """Values chosen at an end of their grid, beyond which the best may lie: a line per method and value."""
    titles = {row["set"]: row["title"] for row in records["sets"]}
    places: dict[str, list[str]] = {}
    for row in select(records["steps"], chosen=True):
        if row["factor"] in (FACTORS[0], FACTORS[-1]):
            where = f"{titles[row['set']]} {row['arrangement']}, R = {row['R']:g}"
            places.setdefault(f"{row['algorithm']}, {row['factor']:g} times its step", []).append(where)
    for row in select(records["objectives"], chosen=True):
        grid = VALUES[row["tuned"]]
        if row["tuned"] and row["value"] in (grid[0], grid[-1]):
            where = f"{titles[row['set']]}{LENGTHS[row['lengths']]}, α = {row['alpha']:g}"
            places.setdefault(f"{row['method']}, {TUNED[row['tuned']]} = {row['value']:g}", []).append(where)
    for row in select(records["played"], chosen=True):
        if row["R"] in (PLAYED_RADII[0], PLAYED_RADII[-1]):
            where = f"{titles[row['set']]}, α = {row['alpha']:g}"
            places.setdefault(f"{row['method']}, regret of the iterates, R = {row['R']:g}", []).append(where)
    return [f"{method}: {'; '.join(dict.fromkeys(where))}" for method, where in places.items()]


def _grouped(rows: Sequence[Row], *columns: str) -> list[list[Row]]:
    """The rows of equal values in these columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return list(groups.values())


def mean_objectives(rows: Sequence[Row]) -> list[Row]:
    """Means of the seeds: a row per method and mark, with the standard error of the excess."""
    means = []
    for own in _grouped(rows, "method", "passes"):
        excess, error = mean_and_error([row["excess"] for row in own])
        objective = mean(row["objective"] for row in own)
        means.append(own[0] | {"objective": objective, "excess": excess, "excess_error": error})
    return means


def _mean_regret(rows: Sequence[Row]) -> list[Row]:
    """Means of the orders: a row per method, R and T."""
    means = []
    for own in _grouped(rows, "R", "method", "T"):
        first = own[0]
        columns = ("regret", "loss", "optimum", *(("bound",) if first["bound"] is not None else ()))
        step = NONE if first["step"] is None else f"{first['step']:.3g}"
        means.append(first | {name: mean(row[name] for row in own) for name in columns} | {"step": step})
    return means


def mean_regret_figure(rows: Sequence[Row]) -> Chart:
    """Regret per round over rounds, a line per method."""
    series = []
    names = [learner.name for learner in LEARNERS]
    for method in distinct(rows, "method"):
        own = select(rows, method=method)
        k = names.index(method.removesuffix(BEST))
        values = [row["regret"] / row["T"] for row in own]
        series.append(
            Series(
                method,
                [row["T"] for row in own],
                values,
                COLOURS[k],
                dash=DASHES[int(method.endswith(BEST))],
                marker=MARKERS[k % len(MARKERS)],
                size=3.0,
                heading=method,
                labels=[f"{row['T']:,} rounds: {value:.4g} per round" for row, value in zip(own, values, strict=True)],
            )
        )
    most = max(max(values_y(series)), 1e-9)
    low = 1.1 * min(0.0, max(min(values_y(series)), -most))
    x = log_axis("rounds (log scale)", values_x(series))
    return Chart(x, linear_axis("regret per round", [], low=low, high=1.1 * most), series)


def objective_figure(rows: Sequence[Row], family: str) -> Chart:
    """H/H* − 1 against passes, a line per method with its chosen R or step."""
    series = []
    for k, method in enumerate(method.name for method in METHODS if method.family == family):
        own = select(rows, method=method)
        series.append(
            Series(
                method,
                [row["passes"] for row in own],
                [100 * row["excess"] for row in own],
                COLOURS[k % len(COLOURS)],
                dash=DASHES[k // len(COLOURS)],
                marker=MARKERS[k % len(MARKERS)],
                size=3.0,
                heading=method,
                labels=[f"{row['passes']:.3g} passes: {100 * row['excess']:.3g} %" for row in own],
            )
        )
    x = log_axis("passes (log scale)", [*values_x(series), 2.0 * EPOCHS[0]])
    return Chart(x, log_axis("above the optimum, % (log scale)", values_y(series)), series)


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


REPETITIONS: Final = 8
SETS: Final = ("books", "dvd", "ob-2-1", "sb-2-1")
SCHEMAS: Final = read_schemas(__file__)

_Run = Callable[[str, Sequence[Cell]], list[Any]]
"""Results of the cells of a step."""


def reproduce_caos(
    data: Path, out: Path, *, repetitions: int = REPETITIONS, progress: ProgressCallback = no_progress
) -> Path:
    """Test what Mohri and Yang (2015) prove and say; write OUT/*.parquet, OUT/inputs.json and OUT/caos.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of counts of the domains books and dvd and of 20news-bydate.jsonl.gz, in it or in its subfolders
        (`sparseoco.papers.sources`); data sets whose files are missing are skipped.
    out : Path
        Folder of the results.
    repetitions : int
        Orders of the documents, and repetitions of what is sampled.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    check_repetitions(repetitions=repetitions)
    known = choose_sources(*SETS)
    sources, files = find_sources(data, known)
    records: Records = {name: [] for name in SCHEMAS}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        for done, source in enumerate(sources, start=1):
            documents = load_documents(source, files, out / "stores")
            progress("read", done, len(sources))
            n_documents, n_features = documents.rows.shape
            size = {"documents": n_documents, "features": n_features, "nonzeros": documents.rows.nnz}
            records["sets"].append({"set": source.name, "title": source.title, **size})
            records["chances"].append(sampling_row(source.name, documents))
            run = partial(_run_step, out / "cells", source.title, progress)
            extend(records, _regret(source.name, documents, repetitions, run))
            for lengths in LENGTHS:
                extend(records, _objectives(source.name, documents, lengths, repetitions, run))
            extend(records, _played(records["optima"], source.name, documents, repetitions, run))
        extend(records, judge(caos_claims(records)))
        missing = [source.title for source in missing_sources(known, sources)]
        inputs = {"repetitions": repetitions, "missing": missing}
        return publish(out, "caos", records, SCHEMAS, inputs, files, caos_page)


def _run_step(folder: Path, title: str, progress: ProgressCallback, step: str, cells: Sequence[Cell]) -> list[Any]:
    return run_cells(folder, f"{title}, {step}", cells, progress)


def _regret(name: str, documents: Documents, repetitions: int, run: _Run) -> Records:
    orders = range(repetitions)
    optima = [optima_cell(documents, order) for order in orders]
    plays = [playing_cell(documents, order, arrangement) for arrangement in ARRANGEMENTS for order in orders]
    results = run("regret", [*optima, *plays])
    records: Records = {}
    for k, arrangement in enumerate(ARRANGEMENTS, start=1):
        played = results[k * repetitions : (k + 1) * repetitions]
        extend(records, regret_rows(name, arrangement, documents, results[:repetitions], played))
    return records


def _objectives(name: str, documents: Documents, lengths: str, repetitions: int, run: _Run) -> Records:
    documents = scaled(documents, lengths)
    methods = methods_of(lengths)
    cells = [cell for method in methods for cell in objective_cells(documents, method, repetitions)]
    with warnings.catch_warnings():  # here, because filters are shared by all threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is deliberate
        optimum, *results = run(f"objectives{LENGTHS[lengths]}", [optimum_cell(documents), *cells])
    optima = optimum_rows(name, lengths, optimum)
    records: Records = {"optima": optima}
    for k, method in enumerate(methods):
        extend(records, objective_rows(method, optima, results[k * repetitions : (k + 1) * repetitions]))
    return records


def _played(optima: Sequence[Row], name: str, documents: Documents, repetitions: int, run: _Run) -> Records:
    cells = [played_cell(documents, method, seed) for method in PLAYED for seed in range(repetitions)]
    results = run("regret of the iterates", cells)
    own = select(optima, set=name, lengths="own")
    records: Records = {}
    for k, method in enumerate(PLAYED):
        extend(records, played_rows(method, documents, own, results[k * repetitions : (k + 1) * repetitions]))
    return records
