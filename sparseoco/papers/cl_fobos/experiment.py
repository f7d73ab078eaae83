"""The experiment of Togari and Yamashita 2016: figures, page, run."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import integer, percent
from sparseoco.papers import sources
from sparseoco.papers.cl_fobos import runs
from sparseoco.papers.claims import Finding, Measured, Pair, Place, Values, find_evidence, judge, read_claims
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, lines_by, look, read_schemas, render
from sparseoco.papers.rows import Records, Row, column, distinct, grouped, mean, select
from sparseoco.report import charts

# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml.


STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""
LAZY: Final = [method.name for method in runs.METHODS[:-1]]


def cl_fobos_claims(records: Records, *, printed: bool = True) -> list[Finding]:
    """All claims but those on run times; those on printed figures only if they are `printed` for this domain."""
    claims = [*(read_claims(__file__, "printed") if printed else ()), *read_claims(__file__)]
    return find_evidence(claims, Measures(records))


TIMING_CLAIMS: Final = read_claims(__file__, "run_times")
"""Claims on run times, and on run times and R̄(T)."""


def lambda_label(lam: float) -> str:
    """The label of a λ."""
    return f"λ = {lam:g}".replace("e-0", "e-")


class _Listed(dict[str, list[float]]):
    """Values by method that format as a list of their means."""

    def __format__(self, spec: str) -> str:
        return "; ".join(f"{name}: {mean(own):{spec}}" for name, own in self.items())


def _runs(records: Records, lam: float, words: str = runs.OWN) -> list[Row]:
    """Those of all data sets: with the steps chosen here, or on other features with the paper's."""
    return select(records["runs"], lam=lam, words=words, eta0_of="here" if words == runs.OWN else "paper")


def _by_method(rows: Sequence[Row], name: str) -> _Listed:
    return _Listed({method: column(select(rows, method=method), name) for method in distinct(rows, "method")})


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def by_lam(self, name: str = "seconds", what: str = "", lams: Sequence[float] = runs.LAMS) -> Iterator[Place]:
        """A column of the runs, or the seconds of `what` is timed, by method for each λ."""
        for lam in lams:
            rows = select(self.records["timings"], what=what, lam=lam) if what else _runs(self.records, lam)
            values = _by_method(rows, name)
            lazy = _Listed({method: values[method] for method in LAZY})
            named: dict[str, Any] = {"all": values, "lazy": lazy, **values}
            if name == "right":  # half a unit of the last printed digit more
                named["(CL-FOBOS + 0.0005)"] = [rate + 0.0005 for rate in values[runs.CL_FOBOS.name]]
                named["undecided"] = Values(_by_method(rows, "undecided")[runs.CL_FOBOS.name])
            yield Place(lambda_label(lam), named)

    def as_printed(self, name: str) -> Iterator[Measured]:
        variants = {runs.OWN: ""} | {words: f", {title}, the paper's α₀" for words, title in runs.OTHERS.items()}
        for words, features in variants.items():
            for number, (lam, table) in enumerate(runs.PUBLISHED.items(), start=1):
                printed = {method: getattr(row, name) for method, row in table.items()}
                values = _by_method(_runs(self.records, lam, words), name)
                here = "; ".join(f"{method}: {mean(own):.4f} for {printed[method]:g}" for method, own in values.items())
                pairs = [Pair(own, [printed[method]] * len(own), method) for method, own in values.items()]
                if pairs:
                    yield Measured(f"Table {number}, {lambda_label(lam)}{features}", here, pairs)

    def _around(self, setting: runs.Setting, K: int, before: int) -> list[list[Row]]:
        """The rows of nonzero weights so many rounds before every K-th, a list for each data set."""
        rows = select(self.records["nonzeros"], method=setting.method.name, lam=setting.lam)
        return grouped([row for row in rows if (row["rounds"] + before) % K == 0], "repetition")

    def _evaluations(self) -> list[tuple[runs.Figure, dict[str, list[list[Row]]]]]:
        """The parts of Figure 2 that reach a lazy evaluation: L-FOBOS before and after it, CL-FOBOS before it."""
        found = []
        for figure in runs.FIGURES:
            before, after = (self._around(figure.theirs, figure.K, rounds) for rounds in (1, 0))
            if before:
                ours = self._around(figure.ours, figure.K, 1)
                found.append((figure, {"before": before, "after": after, "ours": ours}))
        return found

    def at_evaluations(self, strong: bool = False) -> Iterator[Place]:
        """Means of the data sets; with the strong λ only, if asked."""
        for figure, parts in self._evaluations():
            shares = {name: [column(rows, "share") for rows in data_sets] for name, data_sets in parts.items()}
            values: dict[str, Any] = {name: Values(map(mean, of_name)) for name, of_name in shares.items()}
            values["half"] = [0.5 * share for share in values["before"]]
            values["most"] = [max(of_data_set) for of_data_set in shares["ours"]]
            for name in ("after", "ours"):
                values[f"range of {name}"] = _of_all_features([row for rows in parts[name] for row in rows])
            if not strong or figure.lam >= STRONG:
                yield Place(_figure_label(figure.lam, figure.K), values)

    def last_evaluation(self) -> Iterator[Place]:
        """With the weak λ of Figure 2 and the strong one, if both reach a lazy evaluation."""
        evaluations = self._evaluations()
        for name, part in (("L-FOBOS", "after"), ("CL-FOBOS", "ours")) if len(evaluations) == 2 else ():
            strong, weak = (Values(rows[-1]["share"] for rows in parts[part]) for _, parts in evaluations)
            yield Place(name, {"5e-3": strong, "1e-5": weak})

    def right_lost(self) -> Iterator[Place]:
        """Right predictions of L-FOBOS before and after a lazy evaluation, and how many both methods lose in it."""
        for t in _reached(self.records["snapshots"]):
            values: dict[str, Any] = {}
            for who, setting in (("CL-FOBOS", runs.FIGURES[0].ours), ("L-FOBOS", runs.FIGURES[0].theirs)):
                rows = select(self.records["snapshots"], method=setting.method.name)
                before, after = (column(select(rows, rounds=at), "right") for at in (t, t + 1))
                values |= {"before": before, "after": after, who: Values(map(int.__sub__, before, after))}
            yield Place(f"x_{t} to x_{t + 1}", values)

    def right(self) -> Iterator[Place]:
        """Right predictions of an earlier and a later solution of CL-FOBOS, data set by data set."""
        rows = select(self.records["snapshots"], method=runs.CL_FOBOS.name)
        for a, b in pairwise(_reached(rows)):
            earlier, later = (Values(column(select(rows, rounds=t), "right")) for t in (a, b))
            yield Place(f"x_{a} to x_{b}", {"earlier": earlier, "later": later})

    def means(self) -> Iterator[Place]:
        for lam in distinct(self.records["means"], "lam"):
            of_mean = Values(column(select(self.records["means"], lam=lam), "of_mean"))
            incurred = Values(column(select(_runs(self.records, lam), method=runs.CL_FOBOS.name), "objective"))
            yield Place(lambda_label(lam), {"F(x̄)": of_mean, "R̄(T)": incurred})

    def seconds_of_figure(self) -> Iterator[Place]:
        for figure in runs.FIGURES:
            times = _by_method(select(self.records["timings"], what="figure 2", lam=figure.lam), "seconds")
            values = {"all": times, **times, "L-FOBOS": times[figure.theirs.method.name]}
            yield Place(_figure_label(figure.lam, figure.K), values)

    def equal_time(self, strong: bool | None = None) -> Iterator[Place]:
        """L-FOBOS with the K that takes as long as CL-FOBOS here, and CL-FOBOS; of strong or other λ, if asked."""
        for rows in grouped(self.records["equal_time"], "lam"):
            lam, K = rows[0]["lam"], rows[0]["K"]
            values: dict[str, Any] = {
                f"{who} {name}": Values(column(own, name))
                for who, own in zip(("L-FOBOS", "CL-FOBOS"), grouped(rows, "method"), strict=True)
                for name in ("seconds", "objective", "right", "before", "after")
            }
            values["half"] = [0.5 * share for share in values["L-FOBOS before"]]
            if strong is None or strong == (lam >= STRONG):
                yield Place(_figure_label(lam, K), values)

    def not_outperformed(self, lams: Sequence[float]) -> Iterator[Measured]:
        """For each K, that R̄(T) or the run time of CL-FOBOS is less."""
        ours = runs.CL_FOBOS.name
        for lam in lams:
            objectives = _by_method(_runs(self.records, lam), "objective")
            seconds = _by_method(select(self.records["timings"], what="as printed", lam=lam), "seconds")
            kinds = (("R̄(T)", objectives), ("seconds", seconds))
            here = "; ".join(
                f"{name}: {mean(objectives[name]):.4f} in {mean(seconds[name]):.3f} s" for name in objectives
            )
            groups = [
                [Pair(values[ours], values[name], f"CL-FOBOS − {name}, {what}") for what, values in kinds]
                for name in LAZY
            ]
            yield Measured(lambda_label(lam), here, groups)


def _figure_label(lam: float, K: int) -> str:
    return f"{lambda_label(lam)}, K = {K}"


def _of_all_features(rows: Sequence[Row]) -> str:
    """The range of the shares of nonzero weights and of their numbers, and the share of the paper's features."""
    shares, numbers = column(rows, "share"), column(rows, "nonzeros")
    return (
        f"{percent(min(shares))} to {percent(max(shares))} of the weights, {integer(min(numbers))} "
        f"to {integer(max(numbers))}: of the paper's {integer(runs.FEATURES)} features as many are at most "
        f"{percent(max(numbers) / runs.FEATURES)}"
    )


def _reached(rows: Sequence[Row]) -> list[int]:
    """The rounds after which there is a solution, and after the next."""
    reached = sorted({row["rounds"] for row in rows})
    return [t for t in reached if t + 1 in reached]


# ----------------------------------------------------------------------------------------------------------------------
# Figures 1 and 2.


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
    return charts.Chart(x, charts.linear_axis("R̄(T)", charts.values_y(series)), series)


def nonzeros_figure(rows: Sequence[Row]) -> charts.Chart:
    """Share of nonzero weights around every K-th round."""
    looks = {name: {"colour": _look(name)["colour"], "width": 1.2} for name in distinct(rows, "method")}
    label = "{rounds:,} rounds: {value:.2f} %"
    series = lines_by(rows, "method", "rounds", "share", looks, label=label, scale=100)
    return charts.line_chart(series, "rounds", "nonzero weights, %", zero="xy")


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


def cl_fobos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    nonzeros = [
        charts.plot(
            f"nonzeros-{figure.K}",
            f"Share of nonzero weights, {_figure_label(figure.lam, figure.K)}",
            nonzeros_figure(select(records["nonzeros"], lam=figure.lam, repetition=0)),
        )
        for figure in runs.FIGURES
    ]
    return render(
        "cl_fobos",
        records,
        find_evidence(TIMING_CLAIMS, Measures(records)),
        inputs=inputs,
        sections=[_section(records, number, lam) for number, lam in enumerate(runs.PUBLISHED, start=1)],
        nonzeros=nonzeros,
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        look=_look,
        runs=runs,
        lambda_label=lambda_label,
        others=runs.OTHERS if inputs["all_words"] else {},
    )


def _section(records: Records, number: int, lam: float) -> dict[str, Any]:
    """A λ: its table, and R̄(T) against run time."""
    title = lambda_label(lam)
    rows = [row | _seconds(records, lam, row["method"]) for row in select(records["results"], lam=lam)]
    return {
        "number": number,
        "title": title,
        "rows": rows,
        "tradeoff": charts.plot(f"tradeoff-{number}", f"R̄(T) against run time, {title}", tradeoff_figure(rows)),
    }


def _seconds(records: Records, lam: float, method: str) -> dict[str, float]:
    """Run times as printed, of the learner, and of the learner with R̄(T): means of the data sets."""
    printed, lazy = (select(records["timings"], what=what, lam=lam, method=method) for what in ("as printed", "lazy"))
    return {
        "seconds": mean(row["seconds"] for row in printed),
        "lazy_seconds": mean(row["seconds"] for row in lazy),
        "seconds_with_objective": mean(row["seconds_with_objective"] for row in lazy),
    }


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


EXPERIMENT: Final = Experiment("cl-fobos", read_schemas(__file__), cl_fobos_page)


def reproduce_cl_fobos(
    data: Path, out: Path, *, repetitions: int = runs.REPETITIONS, rounds: int = runs.ROUNDS, domain: str | None = None
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
    least = runs.FIGURES[0].K
    if rounds < least:
        raise InputError(
            f"rounds={rounds} must be at least {least}, the first lazy evaluation of Figure 2.", code="invalid-option"
        )
    if domain is not None and domain not in sources.DOMAINS:
        raise InputError(f"domain={domain!r} must be one of {', '.join(sources.DOMAINS)}.", code="invalid-option")
    known = sources.choose_sources(*sources.DOMAINS, *(f"{name}-text" for name in sources.DOMAINS))
    found, _ = sources.find_sources(data, known)
    first = domain or min((source.paper for source in found), key=sources.DOMAINS.index)
    chosen, files = sources.find_sources(data, sources.choose_sources(first, f"{first}-text"))
    own, *text = chosen
    inputs: dict[str, Any] = {
        "domain": own.paper,
        "differs": own.differs,
        "missing": [source.title for source in sources.missing_sources(known, found)],
        "repetitions": repetitions,
        "rounds": rounds,
    }

    def compute(run: Run) -> Records:
        (_, documents), *wide = run.documents(chosen, files)
        size, _ = sources.PRINTED[own.paper]
        draws = _draws(documents, size, repetitions, rounds)
        others: dict[str, list[runs.Draw]] = {}
        if text:
            counts = _draws(wide[0][1], size, min(repetitions, runs.SEARCHED), rounds)
            ones = counts[0].features.copy()
            ones.data[:] = 1
            presence = [draw._replace(features=ones, digest=f"{draw.digest}, presence") for draw in counts]
            others = dict(zip(runs.OTHERS, (counts, presence), strict=True))
        inputs.update(_sizes(draws[0], *others.values()))
        records = runs.run_experiments(draws, others, run)
        return records | judge(cl_fobos_claims(records, printed=own.paper == runs.DOMAIN))

    return EXPERIMENT.run(Run(out), compute, inputs, files)


def _draws(documents: sources.Documents, size: int, repetitions: int, rounds: int) -> list[runs.Draw]:
    """Data sets drawn from so many examples, which are themselves drawn if there are more."""
    features, labels, digest = documents.rows, documents.labels.astype(np.int64), documents.digest
    if len(labels) > size:
        generator = np.random.Generator(np.random.PCG64([size, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[:size])
        features, labels = features[chosen], labels[chosen]
        features = features[:, np.unique(features.indices)]
        digest = f"{digest}, {size} of them"
    return [runs.Draw(features, labels, digest, k, rounds) for k in range(repetitions)]


def _sizes(own: runs.Draw, *others: list[runs.Draw]) -> dict[str, Any]:
    features, wide = own.features, others[0][0].features if others else None
    return {
        "examples": features.shape[0],
        "features": features.shape[1],
        "nonzeros_an_example": features.nnz / features.shape[0],
        "largest_count": int(features.max()),
        "all_words": None if wide is None else wide.shape[1],
        "all_words_an_example": None if wide is None else wide.nnz / wide.shape[0],
    }
