"""The experiment of Togari and Yamashita 2016: figures, page, run."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import integer, percent
from sparseoco.papers import sources
from sparseoco.papers.cl_fobos import runs
from sparseoco.papers.claims import Finding, Measured, Pair, Place, Values, find_evidence, judge, read_claims
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, lines_by, look, read_schemas, render
from sparseoco.papers.rows import Records, Row, column, distinct, grouped, mean, mean_rows, select
from sparseoco.report import charts

# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml.


def cl_fobos_claims(records: Records, *, printed: bool = True) -> list[Finding]:
    """All claims but those on run times; those on printed figures only if they are `printed` for this domain."""
    claims = [*(read_claims(__file__, "printed") if printed else ()), *read_claims(__file__)]
    return find_evidence(claims, Measures(records))


TIMING_CLAIMS: Final = read_claims(__file__, "run_times")
"""Claims on run times, and on run times and R̄(T)."""


def lambda_label(lam: float) -> str:
    """The label of a λ."""
    return f"λ = {lam:g}".replace("e-0", "e-")


class _Listed(dict[str, Values]):
    """Values by method that format as a list of their means."""

    def __format__(self, spec: str) -> str:
        return "; ".join(f"{name}: {mean(own):{spec}}" for name, own in self.items())


VARIANTS: Final = {
    (runs.COUNTS, "here"): "",
    (runs.COUNTS, "paper"): ", the paper's α₀",
    (runs.PRESENCE, "paper"): ", presence only, the paper's α₀",
}
"""How places are labelled, by the features and by whose α₀ is used."""


def _runs(records: Records, lam: float, words: str = runs.COUNTS, eta0_of: str = "here") -> list[Row]:
    """Those of all data sets."""
    return select(records["runs"], lam=lam, words=words, eta0_of=eta0_of)


def _by_method(rows: Sequence[Row], name: str) -> _Listed:
    return _Listed({method: Values(column(select(rows, method=method), name)) for method in distinct(rows, "method")})


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def by_lam(
        self, name: str = "seconds", what: str = "", table: str = "", lams: Sequence[float] = runs.LAMS
    ) -> Iterator[Place]:
        """A column of the runs, of another table, or the seconds of `what` is timed, by method for each λ."""
        for lam in lams:
            rows = _runs(self.records, lam)
            if what or table:
                rows = select(self.records[table or "timings"], lam=lam, **({"what": what} if what else {}))
            values = _by_method(rows, name)
            lazy = _Listed({method: own for method, own in values.items() if method.startswith("L-FOBOS")})
            named: dict[str, Any] = {"all": values, "lazy": lazy, **values}
            if "undecided" in (rows[0] if rows else {}):
                named["undecided"] = _by_method(rows, "undecided")[runs.CL_FOBOS.name]
            if values:
                yield Place(lambda_label(lam), named)

    def as_printed(self, name: str) -> Iterator[Measured]:
        for (words, eta0_of), label in VARIANTS.items():
            for number, (lam, table) in enumerate(runs.PUBLISHED.items(), start=1):
                printed = {method: getattr(row, name) for method, row in table.items()}
                values = _by_method(_runs(self.records, lam, words, eta0_of), name)
                here = "; ".join(f"{method}: {mean(values[method]):.4f} for {of:g}" for method, of in printed.items())
                pairs = [Pair(values[method], [of] * len(values[method]), method) for method, of in printed.items()]
                yield Measured(f"Table {number}, {lambda_label(lam)}{label}", here, pairs)

    def equal_or_better(self, lams: Sequence[float]) -> Iterator[Measured]:
        """The rate of CL-FOBOS, half a unit of the last printed digit more, and that of L-FOBOS by K; of all runs."""
        for (words, eta0_of), label in VARIANTS.items():
            for lam in lams:
                values = _by_method(_runs(self.records, lam, words, eta0_of), "right")
                ours = [rate + 0.0005 for rate in values[runs.CL_FOBOS.name]]
                lazy = {method: own for method, own in values.items() if method.startswith("L-FOBOS")}
                pairs = [Pair(own, ours, f"{method} − (CL-FOBOS + 0.0005)") for method, own in lazy.items()]
                yield Measured(lambda_label(lam) + label, format(values, ".4f"), pairs)

    def readings(self, reading: str, other: str = "") -> Iterator[Place]:
        """R̄(T) of CL-FOBOS by a reading, and by another or, by default, (10)."""
        for lam in distinct(self.records["readings"], "lam"):
            rows = select(self.records["readings"], lam=lam)
            printed = column(select(rows, reading=reading), "objective")
            ours = column(select(rows, reading=other), "objective") if other else self._ours(lam)[: len(printed)]
            yield Place(lambda_label(lam), {"printed": Values(printed), "ours": Values(ours)})

    def _ours(self, lam: float) -> list[float]:
        return column(select(_runs(self.records, lam), method=runs.CL_FOBOS.name), "objective")

    def _evaluations(self, table: str) -> list[tuple[float, int, dict[str, list[list[Row]]]]]:
        """λ, K, and the rows of L-FOBOS before and after lazy evaluations and of CL-FOBOS before them, a list for each
        data set."""
        found = []
        for rows in grouped(self.records[table], "lam"):
            lam, K, ours = rows[0]["lam"], rows[0]["K"], runs.CL_FOBOS.name
            before, after = ([row for row in rows if (row["rounds"] + own) % K == 0] for own in (1, 0))
            parts = {
                "before": [row for row in before if row["method"] != ours],
                "after": [row for row in after if row["method"] != ours],
                "ours": [row for row in before if row["method"] == ours],
            }
            if before:
                found.append((lam, K, {name: grouped(own, "repetition") for name, own in parts.items()}))
        return found

    def at_evaluations(self, strong: bool = False, table: str = "nonzeros") -> Iterator[Place]:
        """Means of the data sets; with the strong λ only, if asked."""
        for lam, K, parts in self._evaluations(table):
            shares = {name: [column(rows, "share") for rows in data_sets] for name, data_sets in parts.items()}
            values: dict[str, Any] = {name: Values(map(mean, of_name)) for name, of_name in shares.items()}
            values["half"] = [0.5 * share for share in values["before"]]
            values["most"] = [max(of_data_set) for of_data_set in shares["ours"]]
            for name in ("after", "ours"):
                values[f"range of {name}"] = _range([row for rows in parts[name] for row in rows])
            if not strong or lam >= runs.STRONG:
                yield Place(_figure_label(lam, K), values)

    def last_evaluation(self) -> Iterator[Place]:
        """With the weak λ of Figure 2 and the strong one, if both reach a lazy evaluation."""
        evaluations = self._evaluations("nonzeros")
        for name, part in (("L-FOBOS", "after"), ("CL-FOBOS", "ours")) if len(evaluations) == 2 else ():
            strong, weak = (Values(rows[-1]["share"] for rows in parts[part]) for _, _, parts in evaluations)
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
            yield Place(lambda_label(lam), {"F(x̄)": of_mean, "R̄(T)": Values(self._ours(lam)[: len(of_mean)])})

    def _timed(self, lam: float) -> tuple[_Listed, _Listed]:
        """Seconds as printed and R̄(T) by method."""
        timed = _by_method(select(self.records["timings"], what="as printed", lam=lam), "seconds")
        return timed, _by_method(_runs(self.records, lam), "objective")

    def seconds_of_figure(self) -> Iterator[Place]:
        for figure in runs.FIGURES:
            times = _by_method(select(self.records["timings"], what="figure 2", lam=figure.lam), "seconds")
            values = {"all": times, **times, "L-FOBOS": times[figure.theirs.method.name]}
            yield Place(_figure_label(figure.lam, figure.period), values)

    def equal_time(self, lams: Sequence[float] = runs.LADDER_LAMS) -> Iterator[Place]:
        """L-FOBOS with the K whose run time is nearest that of CL-FOBOS here, and CL-FOBOS."""
        for lam, K in runs.equal_periods(self.records["timings"]).items():
            values = {
                f"{who} {name}": Values(own[method])
                for name, own in zip(("seconds", "objective"), self._timed(lam), strict=True)
                for who, method in (("L-FOBOS", runs.lazy(K).name), ("CL-FOBOS", runs.CL_FOBOS.name))
            }
            if lam in lams:
                yield Place(_figure_label(lam, K), values)

    def not_outperformed(self, lams: Sequence[float]) -> Iterator[Measured]:
        """For every K, that R̄(T) or the run time of CL-FOBOS is less: one claim on all K."""
        ours = runs.CL_FOBOS.name
        for lam in lams:
            seconds, objectives = self._timed(lam)
            lazy = [method for method in objectives if method.startswith("L-FOBOS")]
            kinds = (("R̄(T)", objectives), ("seconds", seconds))
            here = "; ".join(
                f"{name}: {mean(objectives[name]):.4f} in {mean(seconds[name]):.3f} s" for name in (*lazy, ours)
            )
            groups = [
                [Pair(values[ours], values[name], f"CL-FOBOS − {name}, {what}") for what, values in kinds]
                for name in lazy
            ]
            yield Measured(lambda_label(lam), here, [groups])


def _figure_label(lam: float, K: int) -> str:
    return f"{lambda_label(lam)}, K = {K}"


def _range(rows: Sequence[Row]) -> str:
    """The range of the shares of nonzero weights and of their numbers."""
    shares, numbers = column(rows, "share"), column(rows, "nonzeros")
    least, largest = f"{percent(min(shares))} to {percent(max(shares))}", integer(max(numbers))
    return f"{least} of the weights, {integer(min(numbers))} to {largest}"


def _reached(rows: Sequence[Row]) -> list[int]:
    """The rounds after which there is a solution, and after the next."""
    reached = sorted({row["rounds"] for row in rows})
    return [t for t in reached if t + 1 in reached]


# ----------------------------------------------------------------------------------------------------------------------
# Figures 1 and 2.


_PLACES: Final = {"L-FOBOS": 0, "CL-FOBOS": 1, "FOBOS": 2}


def _kind(method: str) -> str:
    """A method without its K."""
    return method.split(",")[0]


def _look(method: str) -> dict[str, Any]:
    """The colour and marker of a method in all figures and tables, for any K."""
    return look(_PLACES.get(_kind(method), 3))


def tradeoff_figure(results: Sequence[Row]) -> charts.Chart:
    """R̄(T) against run time: ours filled, the paper's hollow; a line joins the K of L-FOBOS."""
    rows = [row | {"kind": _kind(row["method"])} for row in results]
    printed = [row for row in rows if row["paper_seconds"] is not None]
    series = []
    for whose, own, prefix in (("here", rows, ""), ("paper", printed, "paper_")):
        for kind in distinct(own, "kind"):
            style = {"size": 5.0, "hollow": whose == "paper", "legend": whose == "here", "group": kind}
            looks = {kind: _look(kind) | style | {"heading": f"{kind}, {whose}"}}
            columns = f"{prefix}seconds", f"{prefix}objective"
            label = f"{{method}}: {{{columns[1]}:.4f}} in {{{columns[0]}:.3f}} s"
            series += lines_by(own, "kind", *columns, looks, label=label)
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
            f"nonzeros-{figure.period}",
            f"Share of nonzero weights, {_figure_label(figure.lam, figure.period)}",
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
        equal_time=_equal_time(records["equal_time"]),
        largest_difference=max(abs(row["float32_difference"]) for row in records["results"]),
        look=_look,
        runs=runs,
        lambda_label=lambda_label,
    )


def _section(records: Records, number: int, lam: float) -> dict[str, Any]:
    """A λ: its table, and R̄(T) against run time."""
    title = lambda_label(lam)
    timed = mean_rows(select(records["timings"], what="as printed", lam=lam), ("method",), ("seconds",))
    seconds = {row["method"]: row["seconds"] for row in timed}
    rows = [row | {"seconds": seconds[row["method"]]} for row in select(records["results"], lam=lam)]
    return {
        "number": number,
        "title": title,
        "rows": rows,
        "readings": _readings(records, lam) if select(records["readings"], lam=lam) else [],
        "tradeoff": charts.plot(f"tradeoff-{number}", f"R̄(T) against run time, {title}", tradeoff_figure(rows)),
    }


def _readings(records: Records, lam: float) -> list[Row]:
    """(10) and the other readings of Algorithm 4, means of the data sets."""
    ours = select(_runs(records, lam), method=runs.CL_FOBOS.name)[: runs.FEWER]
    rows = [*(row | {"reading": "(10)"} for row in ours), *select(records["readings"], lam=lam)]
    return mean_rows(rows, ("reading",), ("objective", "right", "nonzeros"))


def _equal_time(rows: Sequence[Row]) -> list[Row]:
    """A row per λ and method: shares of nonzero weights before and after every K-th round, means of all recorded."""
    return [
        own[0]
        | {
            name: mean(row["share"] for row in own if (row["rounds"] % row["K"] == 0) == at)
            for name, at in (("before", False), ("after", True))
        }
        for own in grouped(rows, "lam", "method")
    ]


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
        Folder of the text or counts of reviews, in it or in a subfolder; of both, what has the number of features
        nearest the paper's is used. `reproduce_stda` lists the names of the files.
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
    least = runs.FIGURES[0].period
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
    inputs: dict[str, Any] = {
        "domain": first,
        "missing": sources.missing_titles(known, found),
        "repetitions": repetitions,
        "rounds": rounds,
    }

    def compute(run: Run) -> Records:
        size, features = sources.PRINTED[first]
        forms = [
            (source.differs, _draws(documents, size, repetitions, rounds))
            for source, documents in run.documents(chosen, files)
        ]
        differs, draws = min(forms, key=lambda form: abs(form[1][0].features.shape[1] - features))
        ones = draws[0].features.copy()
        ones.data[:] = 1
        presence = [draw._replace(features=ones, digest=f"{draw.digest}, presence") for draw in draws]
        inputs.update({"differs": differs} | _sizes(draws[0].features))
        records = runs.run_experiments(draws, presence, run)
        return records | judge(cl_fobos_claims(records, printed=first == runs.DOMAIN))

    return EXPERIMENT.run(Run(out), compute, inputs, files)


def _draws(documents: sources.Documents, size: int, repetitions: int, rounds: int) -> list[runs.Draw]:
    """Data sets drawn from so many examples, which are themselves drawn if there are more; features that are in most
    reviews come first, so that these stay in the cache."""
    features, labels, digest = documents.rows, documents.labels.astype(np.int64), documents.digest
    if len(labels) > size:
        generator = np.random.Generator(np.random.PCG64([size, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[:size])
        features, labels = features[chosen], labels[chosen]
        digest = f"{digest}, {size} of them"
    counts = np.bincount(features.indices, minlength=features.shape[1])
    features = features[:, np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]]
    features.sort_indices()
    return [runs.Draw(features, labels, digest, k, rounds) for k in range(repetitions)]


def _sizes(features: csr_matrix) -> dict[str, Any]:
    words = np.diff(features.indptr)
    return {
        "examples": features.shape[0],
        "features": features.shape[1],
        "nonzeros_an_example": features.nnz / features.shape[0],
        "least_nonzeros": int(words.min()),
        "most_nonzeros": int(words.max()),
        "largest_count": int(features.max()),
    }
