"""The experiment of Mohri and Yang 2015: claims, page, run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import PERCENT, amount, integer, percent
from sparseoco.papers.caos import runs
from sparseoco.papers.claims import Measured, Pair, find_evidence, format_mean, judge, read_claims
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, lines_by, look, read_schemas, render
from sparseoco.papers.rows import Records, Row, column, extend, grouped, mean, mean_and_error, mean_rows, select
from sparseoco.papers.sources import Documents, DocumentSource, choose_sources, find_sources, missing_titles
from sparseoco.report import charts

# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml.


CLAIMS: Final = read_claims(__file__)
TESTED_RADII: Final = runs.ONLINE_RADII[1:]
"""R at which regret is compared."""


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def _orders(self, repeated: bool | None = None) -> Iterator[tuple[str, list[Row]]]:
        """The rows of the regret of every data set and arrangement, of those whose documents are repeated if asked."""
        for row in self.records["sets"]:
            for arrangement, repeats in runs.ARRANGEMENTS.items():
                if repeated is None or repeated == (repeats > 1):
                    title = f"{row['title']}, {arrangement}"
                    yield title, select(self.records["regret"], set=row["set"], arrangement=arrangement)

    def online(self, methods: Sequence[str], name: str = "regret", repeated: bool | None = None) -> Iterator[Measured]:
        """The regret, or the bound, of two methods after the last document, in pairs of an order."""
        for title, rows in self._orders(repeated):
            for R in TESTED_RADII:
                left, right = (_last(rows, name, method, R) for method in methods)
                yield Measured(f"{title}, R = {R:g}", _last_means(rows, name, methods, R), [Pair(left, right)])

    def within_bound(self) -> Iterator[Measured]:
        """By the largest regret possible: the least loss may be lower than the optimum found by its gap."""
        for title, rows in self._orders():
            own = select(rows, method=runs.AO_GD.name)
            yield _shares(title, [(row["regret"] + row["gap"]) / row["bound"] for row in own])

    def factor_two(self) -> Iterator[Measured]:
        """Against the better of two methods; if its regret is negative, less than the best fixed point's, no factor has
        a meaning."""
        ours, *others = (learner.name for learner in (runs.AO_GD, runs.NO_PREDICTION, runs.ADAGRAD))
        for title, rows in self._orders():
            for R in TESTED_RADII:
                best = min((_last(rows, "regret", name, R) for name in others), key=mean)
                here = _last_means(rows, "regret", [ours, *others], R) + ", without a prediction and AdaGrad's"
                pair = Pair(_last(rows, "regret", ours, R), [2 * value for value in best]) if mean(best) > 0 else None
                yield Measured(f"{title}, R = {R:g}", here, [pair])

    def objective(self, ours: str, theirs: str) -> Iterator[Measured]:
        """H/H* − 1 at the last mark, seed by seed, with the R or step chosen there by the mean of the seeds."""
        titles = _titles(self.records)
        for optimum in self.records["optima"]:
            key = {name: optimum[name] for name in ("set", "alpha")}
            pair = [
                grouped(select(self.records["objectives"], chosen=True, method=method, **key), "passes")
                for method in (ours, theirs)
            ]
            texts = []
            for mark in (1, -1):
                left, right = (
                    format_mean(*mean_and_error(column(marks[mark], "excess")), percent=True) for marks in pair
                )
                texts.append(f"{_effort(*(marks[mark][0] for marks in pair))}: {left} against {right}")
            title = f"{titles[key['set']]}, α = {key['alpha']:g}"
            left_last, right_last = (column(marks[-1], "excess") for marks in pair)
            yield Measured(title, "above H*, " + "; ".join(texts), [Pair(left_last, right_last, percent=True)])

    def played_within_bound(self) -> Iterator[Measured]:
        """Every α, R and mark of the methods for which the worst case is proved."""
        for name, title in _titles(self.records).items():
            rows = [row for row in select(self.records["played"], set=name) if row["bound"] is not None]
            groups = grouped(rows, "method", "alpha", "R", "T")
            yield _shares(title, [mean(column(group, "regret")) / group[0]["bound"] for group in groups])

    def worst_cases(self) -> Iterator[Measured]:
        for name, title in _titles(self.records).items():
            methods = (runs.PRINTED.name, runs.PRINTED_EQUAL.name)
            ours, equal = (select(self.records["played"], set=name, method=method)[-1]["bound"] for method in methods)
            yield Measured(title, f"{ours / equal:.3f} times it", [ours < equal])

    def played(self, ours: str, theirs: str) -> Iterator[Measured]:
        """The regret per round after the last, seed by seed, with the R of the least mean of the seeds."""
        for name, title in _titles(self.records).items():
            for alpha in runs.ALPHAS:
                rows = select(self.records["played"], set=name, alpha=alpha, chosen=True)
                last = select(rows, T=max(row["T"] for row in rows))
                left, right = (
                    [row["regret"] / row["T"] for row in select(last, method=method)] for method in (ours, theirs)
                )
                texts = [format_mean(*mean_and_error(values), percent=False) for values in (left, right)]
                here = f"{texts[0]} against {texts[1]} per round"
                yield Measured(f"{title}, α = {alpha:g}", here, [Pair(left, right)])

    def variance(self, batch: int, partition: str, against: str) -> Iterator[Measured]:
        """Of what the prediction misses, `against` that without one; or, times the size, that of single documents."""
        titles = _titles(self.records)
        for row in select(self.records["variances"], batch=batch, partition=partition):
            alike = {name: row[name] for name in ("set", "alpha", "partition")}
            (single,) = select(self.records["variances"], batch=1, **alike)
            factor, right = (batch, single["predicted"]) if against == "single" else (1, row["plain"])
            left = factor * row["predicted"]
            here = f"{amount(left)} against {amount(right)}"
            yield Measured(f"{titles[row['set']]}, α = {row['alpha']:g}", here, [left < right])

    def sampling_bounds(self) -> Iterator[Measured]:
        titles = _titles(self.records)
        for row in self.records["chances"]:
            here = f"{row['lipschitz'] / row['uniform']:.3f} times it, without predictions"
            yield Measured(titles[row["set"]], here, [row["lipschitz"] < row["uniform"]])


def _last(rows: Sequence[Row], name: str, method: str, R: float) -> list[float]:
    """A column after the last document, a value per order."""
    own = select(rows, method=method, R=R)
    return column(select(own, T=max(row["T"] for row in own)), name)


def _last_means(rows: Sequence[Row], name: str, methods: Sequence[str], R: float) -> str:
    """The means of the orders, as a text."""
    return " against ".join(amount(mean(_last(rows, name, method, R))) for method in methods)


def _shares(title: str, shares: Sequence[float]) -> Measured:
    """The least and the largest share of a bound at any mark, and whether all are within it."""
    least, most = (f"{100 * share:.3g}".replace("-", "−") for share in (min(shares), max(shares)))
    return Measured(title, f"{least} to {most}{PERCENT} of it, {len(shares)} marks", [max(shares) <= 1])


def _effort(left: Row, right: Row) -> str:
    passes = [f"{row['passes']:.3g}" for row in (left, right)]
    if passes[0] == passes[1]:
        return f"{passes[0]} passes"
    return f"{integer(left['rounds'])} rounds, {passes[0]} and {passes[1]} passes"


def _titles(records: Records) -> dict[str, str]:
    return {row["set"]: row["title"] for row in records["sets"]}


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


FAMILIES: Final = {"examples": "CAOS-ERM and peers", "coordinates": "CAO-RCD"}
TUNED: Final = {"R": "R", "eta0": "η₀", "": ""}


def caos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    return render(
        "caos",
        records,
        inputs=inputs,
        sections=[_section(records, row) for row in records["sets"]],
        edges=edges(records),
        tuned=TUNED,
        titles=_titles(records),
        runs=runs,
        listed=_listed,
        tested_radii=TESTED_RADII,
    )


def _listed(values: Sequence[float]) -> str:
    *others, last = (f"{value:g}" for value in values)
    return f"{', '.join(others)} and {last}"


def _section(records: Records, data_set: Row) -> dict[str, Any]:
    """A data set: `regret` is a figure of the middle R and rows of every R by arrangement, `objectives` a heading, a
    figure and rows by α and family."""
    name, title = data_set["set"], data_set["title"]
    of_regret, of_objectives = [], []
    for k, arrangement in enumerate(runs.ARRANGEMENTS):
        rows = select(records["regret"], set=name, arrangement=arrangement)
        rows = mean_rows(rows, ("R", "method", "T"), ("regret", "loss", "optimum", "bound"))
        middle = sorted({row["R"] for row in rows})[1]
        heading = f"Regret, {title}, documents {arrangement}, R = {middle:g}"
        figure = charts.plot(f"regret-{name}-{k}", heading, mean_regret_figure(select(rows, R=middle)))
        of_regret.append((figure, select(rows, T=max(row["T"] for row in rows))))
    for of_seeds in grouped(select(records["objectives"], chosen=True, set=name), "alpha", "family"):
        alpha, family = (of_seeds[0][column] for column in ("alpha", "family"))
        rows = mean_rows(of_seeds, ("method", "passes"), ("objective", "excess"), ("excess",))
        heading = f"{FAMILIES[family]}, α = {alpha:g}"
        chart = objective_figure(rows, family)
        figure = charts.plot(f"{family}-{name}-{alpha:g}", f"{heading}, {title}", chart)
        # The last mark of every method, with its excess at the second.
        last = [own[-1] | {"early": percent(own[1]["excess"])} for own in grouped(rows, "method")]
        of_objectives.append((heading, figure, last))
    # The regret per round of the iterates of every α and method after the last round, with its standard error.
    rows = select(records["played"], set=name, chosen=True)
    final = [
        row | {each: None if row[each] is None else row[each] / row["T"] for each in ("regret", "bound")}
        for row in select(rows, T=max(row["T"] for row in rows))
    ]
    played = mean_rows(final, ("alpha", "method"), ("regret", "bound"), ("regret",))
    return {"row": data_set, "regret": of_regret, "objectives": of_objectives, "played": played}


_EDGES: Final = {
    "steps": ("{algorithm}, {factor:g} times its step", "{title} {arrangement}, R = {R:g}"),
    "objectives": ("{method}, {tuned} = {value:g}", "{title}, α = {alpha:g}"),
    "played": ("{method}, regret of the iterates, R = {R:g}", "{title}, α = {alpha:g}"),
}
"""Of each table with chosen values, the texts of what was chosen and where."""


def edges(records: Records) -> list[str]:
    """Values chosen at an end of their grid, beyond which the best may lie: a line per method and value."""
    titles, places = _titles(records), dict[str, list[str]]()
    for table, (what, where) in _EDGES.items():
        for row in select(records[table], chosen=True, at_edge=True):
            named = row | {"title": titles[row["set"]], "tuned": TUNED.get(row.get("tuned", ""), "")}
            places.setdefault(what.format(**named), []).append(where.format(**named))
    return [f"{method}: {'; '.join(dict.fromkeys(where))}" for method, where in places.items()]


def mean_regret_figure(rows: Sequence[Row]) -> charts.Chart:
    """Regret per round over rounds, a line per method."""
    looks = {
        name: {"dash": dash, "size": 3.0, **look(k)}
        for k, learner in enumerate(runs.LEARNERS)
        for name, dash in zip((learner.name, learner.name + runs.BEST), charts.DASHES, strict=False)
    }
    per_round = [row | {"per_round": row["regret"] / row["T"]} for row in rows]
    series = lines_by(per_round, "method", "T", "per_round", looks, label="{T:,} rounds: {value:.4g} per round")
    most = max(max(charts.values_y(series)), 1e-9)
    low = 1.1 * min(0.0, max(min(charts.values_y(series)), -most))
    x = charts.log_axis("rounds (log scale)", charts.values_x(series))
    return charts.Chart(x, charts.linear_axis("regret per round", [], low=low, high=1.1 * most), series)


def objective_figure(rows: Sequence[Row], family: str) -> charts.Chart:
    """H/H* − 1 against passes, a line per method with its chosen R or step."""
    looks = {
        method.name: {"dash": charts.DASHES[k // len(charts.COLOURS)], "size": 3.0, **look(k)}
        for k, method in enumerate(method for method in runs.METHODS if method.family == family)
    }
    label = "{passes:.3g} passes: {value:.3g} %"
    series = lines_by(rows, "method", "passes", "excess", looks, label=label, scale=100)
    x = charts.log_axis("passes (log scale)", [*charts.values_x(series), 2.0 * runs.EPOCHS[0]])
    return charts.Chart(x, charts.log_axis("above the optimum, % (log scale)", charts.values_y(series)), series)


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


SETS: Final = ("books", "dvd", "ob-2-1", "sb-2-1")
CAOS: Final = Experiment("caos", read_schemas(__file__), caos_page)


def reproduce_caos(data: Path, out: Path, *, repetitions: int = 8) -> Path:
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

    def compute(run: Run) -> Records:
        records: Records = {}
        for source, documents in run.documents(sources, files):
            extend(records, _data_set(run._replace(title=source.title), source, documents, repetitions))
        return records | judge(find_evidence(CLAIMS, Measures(records)))

    inputs = {"repetitions": repetitions, "missing": missing_titles(known, sources)}
    return CAOS.run(Run(out), compute, inputs, files)


def _data_set(run: Run, source: DocumentSource, documents: Documents, repetitions: int) -> Records:
    """All rows of a data set."""
    name, (n_documents, n_features) = source.name, documents.rows.shape
    size = {"documents": n_documents, "features": n_features, "nonzeros": documents.rows.nnz}
    records: Records = {
        "sets": [{"set": name, "title": source.title, **size}],
        "chances": [runs.sampling_row(name, documents)],
    }
    extend(records, runs.run_regret(run, name, documents, repetitions))
    extend(records, runs.run_objectives(run, name, documents, repetitions))
    extend(records, runs.run_played(run, documents, records["optima"], repetitions))
    return records
