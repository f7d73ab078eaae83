"""What §5 of Togari and Yamashita (2016) claims, and what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import integer, percent
from sparseoco.papers.claims import Finding, Measured, Measures, Pair, Values, compare_named, find_evidence, read_claims
from sparseoco.papers.rows import Records, Row, column, distinct, grouped, mean, select
from sparseoco.storage.locations import read_toml

# ----------------------------------------------------------------------------------------------------------------------
# The parameters and printed results of Togari and Yamashita (2016), §5.


STEPS: Final = tuple(round(0.005 * k, 3) for k in range(1, 201))
"""α₀ from 0.005 to 1.0; the one with the smallest R̄(T) is chosen."""
ROUNDS: Final = 100_000
REPETITIONS: Final = 10
SEARCHED: Final = 5
"""Data sets, the first, by whose R̄(T) α₀ is chosen, and on which other features are tried; results are of all."""
DOMAIN: Final = "books"
EXAMPLES: Final = 4465
FEATURES: Final = 332_440

OWN: Final = "most_frequent"
"""The features of the examples that all experiments use."""
OTHERS: Final = {"all_counts": "all words", "all_presence": "all words, presence only"}
"""Other features, on which the paper's steps are tried to explain differences in R̄(T)."""


class FobosMethod(NamedTuple):
    """A row of Tables 1 to 6."""

    name: str
    algorithm: str
    K: int | None

    def parameters(self, lam: float, eta0: float) -> dict[str, float | int]:
        """The learner's parameters."""
        return {"lam": lam, "eta0": eta0} | ({} if self.K is None else {"K": self.K})


def lazy(K: int) -> FobosMethod:
    """L-FOBOS, Algorithm 3."""
    return FobosMethod(f"L-FOBOS, K = {K}", "l-fobos", K)


CL_FOBOS: Final = FobosMethod("CL-FOBOS", "cl-fobos", None)
METHODS: Final = (lazy(100), lazy(500), lazy(1000), CL_FOBOS)


class Printed(NamedTuple):
    """α₀, run time in seconds, R̄(T), rate of right predictions."""

    eta0: float
    seconds: float
    objective: float
    right: float


class TrackedRun(NamedTuple):
    """A run of Figure 2, recorded before and after every K-th round; K is that of the L-FOBOS of its figure."""

    method: FobosMethod
    lam: float
    eta0: float
    K: int


TRACKED: Final = (
    TrackedRun(lazy(400), 5e-3, 0.04, 400),
    TrackedRun(CL_FOBOS, 5e-3, 0.055, 400),
    TrackedRun(lazy(750), 1e-5, 0.595, 750),
    TrackedRun(CL_FOBOS, 1e-5, 0.595, 750),
)
_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
PUBLISHED: Final = {table["lam"]: tuple(Printed(*row) for row in table["rows"]) for table in _PRINTED["tables"]}
"""Tables 1 to 6 by λ, rows in the order of `METHODS`."""
SNAPSHOT_ROUNDS: Final[list[int]] = _PRINTED["snapshots"].pop("rounds")
SNAPSHOTS: Final[dict[str, list[tuple[float, int]]]] = _PRINTED["snapshots"]
"""Table 7 by method: rate and number of right predictions after each of `SNAPSHOT_ROUNDS`."""


STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""
AS_PRINTED: Final = "as printed"
LAZY: Final = [method.name for method in METHODS[:-1]]


# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml.


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


def _values(records: Records, lam: float, name: str, words: str = OWN) -> dict[str, list[float]]:
    """A column of all data sets by method: with the steps chosen here, or on other features with the paper's."""
    rows = select(records["runs"], lam=lam, words=words, eta0_of="here" if words == OWN else "paper")
    return {method.name: column(select(rows, method=method.name), name) for method in METHODS}


def _listed(values: Mapping[str, list[float]], digits: int) -> str:
    return "; ".join(f"{name}: {mean(own):.{digits}f}" for name, own in values.items())


def _steps(values: Mapping[str, list[float]], unit: float = 1.0) -> list[Pair]:
    """Each method and the next."""
    return [Pair(values[a], values[b], f"{a} − {b}", unit=unit) for a, b in pairwise(values)]


def _lazy(values: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: values[name] for name in LAZY}


def _as_printed(records: Records, name: str) -> Iterator[Measured]:
    variants = {OWN: ""} | {words: f", {title}, the paper's α₀" for words, title in OTHERS.items()}
    for words, features in variants.items():
        for number, (lam, table) in enumerate(PUBLISHED.items(), start=1):
            values = _values(records, lam, name, words)
            if not all(values.values()):
                continue
            printed = {method.name: getattr(row, name) for method, row in zip(METHODS, table, strict=True)}
            here = "; ".join(f"{method}: {mean(own):.4f} for {printed[method]:g}" for method, own in values.items())
            pairs = [Pair(own, [printed[method]] * len(own), method) for method, own in values.items()]
            yield Measured(f"Table {number}, {lambda_label(lam)}{features}", here, pairs)


def _rates(records: Records, lams: Sequence[float], rounding: float) -> Iterator[Measured]:
    for lam in lams:
        values = _values(records, lam, "right")
        ours = [rate + rounding for rate in values[CL_FOBOS.name]]
        pairs = [Pair(values[name], ours, f"{name} − (CL-FOBOS + {rounding})") for name in LAZY]
        yield Measured(lambda_label(lam), _listed(values, 4), pairs)


def _low_rate(records: Records, lams: Sequence[float]) -> Iterator[Measured]:
    for lam in lams:
        values = _values(records, lam, "right")
        undecided = percent(mean(_values(records, lam, "undecided")[CL_FOBOS.name]))
        here = f"{_listed(values, 3)}; CL-FOBOS' margin is 0 in {undecided} of the rounds"
        pairs = [Pair(values[CL_FOBOS.name], values[name], f"CL-FOBOS − {name}") for name in LAZY]
        yield Measured(lambda_label(lam), here, pairs)


def _by_period(records: Records, lams: Sequence[float]) -> Iterator[Measured]:
    for lam in lams:
        values = _lazy(_values(records, lam, "objective"))
        yield Measured(lambda_label(lam), _listed(values, 4), _steps(values))


def _tracked(records: Records) -> list[tuple[TrackedRun, dict[str, Any]]]:
    """Figure 2: the pairs of runs that reach a lazy evaluation, an L-FOBOS and the CL-FOBOS of the same rounds.

    With the shares and numbers of nonzero weights at the lazy evaluations, a list for each data set: L-FOBOS' before
    and after them, and CL-FOBOS' before.
    """
    pairs = []
    for lazy, ours in (TRACKED[:2], TRACKED[2:]):
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


def _at_evaluations(records: Records, *, strong: bool = False, **compared: Any) -> Iterator[Measured]:
    """Means of the data sets; with the strong λ only, if asked."""
    places = []
    for lazy, runs in _tracked(records):
        values: dict[str, Any] = {
            name: Values(mean(shares) for shares in runs[name]) for name in ("before", "after", "ours")
        }
        values["half"] = [0.5 * share for share in values["before"]]
        values["most"] = [max(shares) for shares in runs["ours"]]
        for name in ("after", "ours"):
            values[f"range of {name}"] = _of_all_features(runs[name], runs[f"{name}_nonzeros"])
        if not strong or lazy.lam >= STRONG:
            places.append((f"{lambda_label(lazy.lam)}, K = {lazy.K}", values))
    return compare_named(places, **compared)


def _of_all_features(shares: list[list[float]], nonzeros: list[list[int]]) -> str:
    """The range of the shares of nonzero weights and of their numbers, and the share of the paper's features."""
    of_these, numbers = ([value for run in runs for value in run] for runs in (shares, nonzeros))
    return (
        f"{percent(min(of_these))} to {percent(max(of_these))} of the weights, {integer(min(numbers))} "
        f"to {integer(max(numbers))}: of the paper's {integer(FEATURES)} features as many are at most "
        f"{percent(max(numbers) / FEATURES)}"
    )


def _denser(records: Records) -> Iterator[Measured]:
    """With the weak λ of Figure 2 against the strong one, if both reach a lazy evaluation."""
    pairs = _tracked(records)
    for name, field in (("L-FOBOS", "after"), ("CL-FOBOS", "ours")) if len(pairs) == 2 else ():
        strong, weak = ([shares[-1] for shares in runs[field]] for _, runs in pairs)
        here = f"{percent(mean(weak))} against {percent(mean(strong))} with λ = 0.005, at the last lazy evaluation"
        yield Measured(name, here, [Pair(strong, weak, "share with λ = 0.005 − share with 1e-5")])


def _snapshots(records: Records) -> Iterator[tuple[str, dict[str, list[list[int]]]]]:
    """Right predictions by method before and after each step from x_{K·m − 1} to x_{K·m}, data set by data set."""
    for before in _reached(records["snapshots"]):
        rounds = (before, before + 1)
        yield (
            f"x_{before} to x_{before + 1}",
            {
                name: [column(select(records["snapshots"], method=name, rounds=t), "right") for t in rounds]
                for name in SNAPSHOTS
            },
        )


def _reached(rows: Sequence[Row]) -> list[int]:
    """The rounds after which there is a solution, and after the next."""
    reached = sorted({row["rounds"] for row in rows})
    return [t for t in reached if t + 1 in reached]


def _lost(records: Records, both: bool) -> Iterator[Measured]:
    """Right predictions that L-FOBOS has after its lazy evaluation and before, or that both methods lose."""
    lazy, ours = (run.method.name for run in TRACKED[:2])
    for where, right in _snapshots(records):
        lost = {name: [a - b for a, b in zip(*counts, strict=True)] for name, counts in right.items()}
        here = f"L-FOBOS {mean(lost[lazy]):.1f} fewer, CL-FOBOS {mean(lost[ours]):.1f} fewer".replace("-", "−")
        before, after = right[lazy]
        pair = Pair(after, before, "after − before")
        if both:
            pair = Pair(lost[ours], lost[lazy], "lost by CL-FOBOS − by L-FOBOS")
        yield Measured(where, here, [pair])


def _improving(records: Records) -> Iterator[Measured]:
    """Whether later solutions of CL-FOBOS have more right predictions than earlier ones, by pairs of a data set."""
    rows = select(records["snapshots"], method=CL_FOBOS.name)
    for a, b in pairwise(_reached(rows)):
        earlier, later = (column(select(rows, rounds=t), "right") for t in (a, b))
        here = f"{mean(earlier):,.1f}, then {mean(later):,.1f}"
        yield Measured(f"x_{a} to x_{b}", here, [Pair(earlier, later, "earlier − later")])


def _means(records: Records) -> Iterator[Measured]:
    for lam in distinct(records["means"], "lam"):
        of_mean = column(select(records["means"], lam=lam), "of_mean")
        incurred = _values(records, lam, "objective")[CL_FOBOS.name]
        here = f"{mean(of_mean):.4f} against {mean(incurred):.4f}"
        yield Measured(lambda_label(lam), here, [Pair(of_mean, incurred, "F(x̄) − R̄(T)")])


def _seconds(records: Records, what: str, lam: float) -> dict[str, list[float]]:
    rows = select(records["timings"], what=what, lam=lam)
    return {name: column(select(rows, method=name), "seconds") for name in distinct(rows, "method")}


def _seconds_by_period(records: Records, what: str) -> Iterator[Measured]:
    for lam in PUBLISHED:
        times = _lazy(_seconds(records, what, lam))
        pairs = [Pair(times[b], times[a], f"{b} − {a}") for a, b in pairwise(times)]
        yield Measured(lambda_label(lam), f"{_listed(times, 3)} s", pairs)


def _seconds_of_learners(records: Records) -> Iterator[Measured]:
    for lam in PUBLISHED:
        times = _seconds(records, "lazy", lam)
        values = _steps(_lazy(times), unit=mean(times[LAZY[0]]))
        yield Measured(lambda_label(lam), f"{_listed(times, 4)} s", values)


def _seconds_of_figure(records: Records) -> Iterator[Measured]:
    for lazy, ours in (TRACKED[:2], TRACKED[2:]):
        times = _seconds(records, "figure 2", lazy.lam)
        left, right = (times[run.method.name] for run in (lazy, ours))
        values = [Pair(left, right, "L-FOBOS − CL-FOBOS", unit=mean(right))]
        yield Measured(f"{lambda_label(lazy.lam)}, K = {lazy.K}", f"{_listed(times, 3)} s", values)


def _equal_time(records: Records, *, strong: bool | None = None, **compared: Any) -> Iterator[Measured]:
    """L-FOBOS with the K that takes as long as CL-FOBOS here, and CL-FOBOS; of strong or other λ, if asked."""
    places = []
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
        places.append((f"{lambda_label(lam)}, K = {theirs[0]['K']}", values))
    return compare_named(places, **compared)


def _not_outperformed(records: Records, lams: Sequence[float]) -> Iterator[Measured]:
    """For each K, that R̄(T) or the run time of CL-FOBOS is less."""
    ours = CL_FOBOS.name
    for lam in lams:
        objectives, seconds = _values(records, lam, "objective"), _seconds(records, AS_PRINTED, lam)
        kinds = (("R̄(T)", objectives), ("seconds", seconds))
        here = "; ".join(f"{name}: {mean(objectives[name]):.4f} in {mean(seconds[name]):.3f} s" for name in objectives)
        groups = [
            [Pair(values[ours], values[name], f"CL-FOBOS − {name}, {what}") for what, values in kinds] for name in LAZY
        ]
        yield Measured(lambda_label(lam), here, groups)


MEASURES: Final[Measures] = {
    "as printed": _as_printed,
    "rates": _rates,
    "low rate": _low_rate,
    "by K": _by_period,
    "at evaluations": _at_evaluations,
    "denser": _denser,
    "lost by L-FOBOS": partial(_lost, both=False),
    "lost by both": partial(_lost, both=True),
    "improving": _improving,
    "mean of the iterates": _means,
    "seconds by K": _seconds_by_period,
    "seconds of learners": _seconds_of_learners,
    "seconds of figure 2": _seconds_of_figure,
    "equal time": _equal_time,
    "not outperformed": _not_outperformed,
}
