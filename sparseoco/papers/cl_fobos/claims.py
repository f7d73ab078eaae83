"""What §5 of Togari and Yamashita (2016) claims, and what was measured."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import integer, percent
from sparseoco.papers.claims import OWN as OWN_CLAIM
from sparseoco.papers.claims import (
    Comparison,
    Finding,
    Records,
    Row,
    at_least,
    claim_row,
    claim_rows,
    distinct,
    equal,
    less,
    mean,
    select,
)
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


MARGIN: Final = 0.002
"""The largest difference from printed R̄(T) and rates that counts as none: two units of the last digit, and less
than a tenth of the difference of R̄(T) between K = 100 and 1000 in Tables 1 to 3."""
ROUNDING: Final = 0.0005
"""Half a unit of the last digit of printed rates and R̄(T)."""
AS_PRINTED: Final = "as printed"
STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""
LAZY: Final = [method.name for method in METHODS[:-1]]


def cl_fobos_claims(records: Records, *, printed: bool = True) -> list[Finding]:
    """All claims but those on run times; those on printed figures only if they are `printed`
    for this domain."""
    return [
        *(_as_printed(records, "objective", f"R̄(T) is as printed, to within {MARGIN}.") if printed else ()),
        *(
            _as_printed(records, "right", f"Rates of right predictions are as printed, to within {MARGIN}.")
            if printed
            else ()
        ),
        *_rates(records),
        *_low_rate(records),
        *_growing(records),
        *_no_tradeoff(records),
        *_sparsity(records),
        *_snapshots(records),
        *_improving(records),
        *_means(records),
    ]


def cl_fobos_timing_claims(records: Records) -> list[Finding]:
    """Claims on run times, and on run times and R̄(T)."""
    return [*_shorter(records), *_matched(records), *_equal_time(records), *_outperformed(records)]


def lambda_label(lam: float) -> str:
    """The label of a λ."""
    return f"λ = {lam:g}".replace("e-0", "e-")


def _lambdas(lams: Iterable[float]) -> list[tuple[str, float]]:
    return [(lambda_label(lam), lam) for lam in lams]


def _values(records: Records, lam: float, column: str, words: str = OWN) -> dict[str, list[float]]:
    """Values of all data sets by method: with the steps chosen here, or on other features with the paper's."""
    rows = select(records["runs"], lam=lam, words=words, eta0_of="here" if words == OWN else "paper")
    return {method.name: [row[column] for row in select(rows, method=method.name)] for method in METHODS}


def _listed(values: dict[str, list[float]], digits: int) -> str:
    return "; ".join(f"{name}: {mean(own):.{digits}f}" for name, own in values.items())


def _as_printed(records: Records, column: str, claim: str) -> list[Finding]:
    rows = []
    variants = {OWN: ""} | {name: f", {words}, the paper's α₀" for name, words in OTHERS.items()}
    for words, features in variants.items():
        for number, (lam, table) in enumerate(PUBLISHED.items(), start=1):
            values = _values(records, lam, column, words)
            if not all(values.values()):
                continue
            printed = {method.name: getattr(row, column) for method, row in zip(METHODS, table, strict=True)}
            here = "; ".join(f"{name}: {mean(own):.4f} for {printed[name]:g}" for name, own in values.items())
            found = [equal(own, [printed[name]] * len(own), MARGIN, name) for name, own in values.items()]
            rows.append(
                claim_row(claim, "Tables 1 to 6", f"Table {number}, {lambda_label(lam)}{features}", here, *found)
            )
    return rows


def _rates(records: Records) -> list[Finding]:
    weak = [lam for lam in PUBLISHED if lam <= 1e-2]
    rates = {
        lam: {method.name: round(row.right, 3) for method, row in zip(METHODS, PUBLISHED[lam], strict=True)}
        for lam in weak
    }
    agree = sum(all(own[CL_FOBOS.name] >= own[name] for name in LAZY) for own in rates.values())

    def measure(lam: float) -> Sequence[Any]:
        values = _values(records, lam, "right")
        ours = [rate + ROUNDING for rate in values[CL_FOBOS.name]]
        found = [less(values[name], ours, f"{name} − (CL-FOBOS + {ROUNDING})") for name in LAZY]
        return _listed(values, 4), *found

    claim = (
        "The rate of right predictions of CL-FOBOS is equal to or better than that of L-FOBOS for λ ≤ 0.01: here, "
        f"at most {ROUNDING} less, half a unit of the last printed digit."
    )
    paper = f"stated; its own tables agree, to three decimals, for {agree} of {len(weak)} λ"
    return claim_rows(claim, paper, _lambdas(weak), measure)


def _low_rate(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        values = _values(records, lam, "right")
        undecided = percent(mean(_values(records, lam, "undecided")[CL_FOBOS.name]))
        here = f"{_listed(values, 3)}; CL-FOBOS' margin is 0 in {undecided} of the rounds"
        return here, *(less(values[CL_FOBOS.name], values[name], f"CL-FOBOS − {name}") for name in LAZY)

    claim = "CL-FOBOS has a remarkably low rate of right predictions for large λ: here, lower than that of L-FOBOS."
    return claim_rows(claim, "0.526 against 0.533, 0.548, 0.560", _lambdas([max(PUBLISHED)]), measure)


def _lazy_objectives(records: Records, lam: float) -> dict[str, list[float]]:
    values = _values(records, lam, "objective")
    return {name: values[name] for name in LAZY}


def _growing(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        values = _lazy_objectives(records, lam)
        return _listed(values, 4), *(less(values[a], values[b], f"{a} − {b}") for a, b in pairwise(values))

    claim = "R̄(T) of L-FOBOS grows with K for λ ≥ 0.005: a trade-off with run time."
    lams = _lambdas(lam for lam in PUBLISHED if lam >= STRONG)
    return claim_rows(claim, "Tables 1 to 3, Figure 1", lams, measure)


def _no_tradeoff(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        values = _lazy_objectives(records, lam)
        found = [equal(values[a], values[b], ROUNDING, f"{a} − {b}") for a, b in pairwise(values)]
        return _listed(values, 4), *found

    claim = f"For λ below 0.0005 there is no trade-off: R̄(T) is the same for all K, to within {ROUNDING}."
    return claim_rows(claim, "Tables 5 and 6", _lambdas(lam for lam in PUBLISHED if lam < 5e-4), measure)


class _Pair(NamedTuple):
    """Shares of nonzero weights at the lazy evaluations of an L-FOBOS, a list for each data set: before and after, and
    CL-FOBOS' before."""

    lazy: TrackedRun
    before: list[list[float]]
    after: list[list[float]]
    nonzeros: list[list[int]]
    """Number of nonzero weights after."""
    ours: list[list[float]]
    ours_nonzeros: list[list[int]]
    """Number of CL-FOBOS' nonzero weights before."""


def _sparsity(records: Records) -> list[Finding]:
    """Figure 2: two pairs of runs, an L-FOBOS and the CL-FOBOS recorded in the same rounds."""
    pairs = [_pair(records, lazy, ours) for lazy, ours in (TRACKED[:2], TRACKED[2:])]
    reached = [pair for pair in pairs if all(pair.before) and pair.before]
    rows = [row for pair in reached for row in _at_evaluations(pair)]
    return rows + (_denser(*reached) if len(reached) == len(pairs) else [])


def _pair(records: Records, lazy: TrackedRun, ours: TrackedRun) -> _Pair:
    theirs, own = (select(records["nonzeros"], method=run.method.name, lam=run.lam) for run in (lazy, ours))

    def each(rows: list[Row], column: str, offset: int) -> list[list[Any]]:
        """The column at, or one round before, the lazy evaluations."""
        chosen = [row for row in rows if (row["rounds"] + offset) % lazy.K == 0]
        return [[row[column] for row in select(chosen, repetition=k)] for k in distinct(rows, "repetition")]

    return _Pair(
        *(lazy, each(theirs, "share", 1), each(theirs, "share", 0), each(theirs, "nonzeros", 0)),
        *(each(own, "share", 1), each(own, "nonzeros", 1)),
    )


def _at_evaluations(pair: _Pair) -> Iterator[Finding]:
    where = f"{lambda_label(pair.lazy.lam)}, K = {pair.lazy.K}"
    before, after, ours = ([mean(shares) for shares in runs] for runs in (pair.before, pair.after, pair.ours))
    claim = "Solutions of L-FOBOS become radically sparse at its lazy evaluations: here, by more than half."
    here = f"nonzero weights: {percent(mean(before))} before, {percent(mean(after))} after it, mean of all evaluations"
    yield claim_row(
        claim, "Figure 2", where, here, less(after, [0.5 * share for share in before], "after − half of before")
    )
    if pair.lazy.lam >= STRONG:
        claim = (
            "With λ = 0.005 solutions of L-FOBOS become approximately zero at its lazy evaluations: here, less than "
            "5 % of the weights are nonzero."
        )
        here = _of_all_features(pair.after, pair.nonzeros)
        yield claim_row(claim, "Figure 2", where, here, less(after, [0.05] * len(after), "share − 5 %"))
        claim = "CL-FOBOS always has sparse solutions: here, less than half of the weights are nonzero when recorded."
        most = [max(shares) for shares in pair.ours]
        here = _of_all_features(pair.ours, pair.ours_nonzeros)
        yield claim_row(claim, "§5", where, here, less(most, [0.5] * len(most), "largest share of a data set − half"))
    claim = "Before the lazy evaluations of L-FOBOS, CL-FOBOS has fewer nonzero weights."
    here = f"{percent(mean(ours))} against {percent(mean(before))}, mean of all evaluations"
    yield claim_row(claim, "Figure 2", where, here, less(ours, before, "CL-FOBOS − L-FOBOS"))


def _of_all_features(shares: list[list[float]], nonzeros: list[list[int]]) -> str:
    """The range of the shares of nonzero weights and of their numbers, and the share of the paper's features."""
    of_these, numbers = ([value for run in runs for value in run] for runs in (shares, nonzeros))
    return (
        f"{percent(min(of_these))} to {percent(max(of_these))} of the weights, {integer(min(numbers))} "
        f"to {integer(max(numbers))}: of the paper's {integer(FEATURES)} features as many are at most "
        f"{percent(max(numbers) / FEATURES)}"
    )


def _denser(strong: _Pair, weak: _Pair) -> list[Finding]:
    def measure(runs: tuple[list[list[float]], list[list[float]]]) -> Sequence[Any]:
        a, b = ([shares[-1] for shares in run] for run in runs)
        here = f"{percent(mean(b))} against {percent(mean(a))} with λ = 0.005, at the last lazy evaluation"
        return here, less(a, b, "share with λ = 0.005 − share with 1e-5")

    places = [("L-FOBOS", (strong.after, weak.after)), ("CL-FOBOS", (strong.ours, weak.ours))]
    return claim_rows("With λ = 1e-5 both methods have denser solutions.", "Figure 2", places, measure)


def _snapshots(records: Records) -> list[Finding]:
    """Whether the step from x_{K·m − 1} to x_{K·m} loses right predictions, by pairs of the same data set."""
    rows = []
    reached = sorted({row["rounds"] for row in records["snapshots"]})
    for before in (t for t in reached if t + 1 in reached):
        right = {
            name: [
                [row["right"] for row in select(records["snapshots"], method=name, rounds=t)]
                for t in (before, before + 1)
            ]
            for name in SNAPSHOTS
        }
        lost = {name: [a - b for a, b in zip(*counts, strict=True)] for name, counts in right.items()}
        lazy, ours = (run.method.name for run in TRACKED[:2])
        where = f"x_{before} to x_{before + 1}"
        here = f"L-FOBOS {mean(lost[lazy]):.1f} fewer, CL-FOBOS {mean(lost[ours]):.1f} fewer".replace("-", "−")
        claim = "After its lazy evaluation L-FOBOS has fewer right predictions."
        found = less(right[lazy][1], right[lazy][0], "after − before")
        rows.append(claim_row(claim, "Table 7: 113, 25, 8 fewer of 4,465", where, here, found))
        claim = "CL-FOBOS loses fewer right predictions in the same rounds, or none."
        found = less(lost[ours], lost[lazy], "lost by CL-FOBOS − by L-FOBOS")
        rows.append(claim_row(claim, "Table 7: −5, −2, 3 fewer", where, here, found))
    return rows


def _improving(records: Records) -> list[Finding]:
    """Whether later solutions of CL-FOBOS have more right predictions than earlier ones, by pairs of a data set."""
    ours = select(records["snapshots"], method=CL_FOBOS.name)
    reached = sorted({row["rounds"] for row in ours})

    def measure(rounds: tuple[int, int]) -> Sequence[Any]:
        earlier, later = ([row["right"] for row in select(ours, rounds=t)] for t in rounds)
        return f"{mean(earlier):,.1f}, then {mean(later):,.1f}", less(earlier, later, "earlier − later")

    places = [(f"x_{a} to x_{b}", (a, b)) for a, b in pairwise(t for t in reached if t + 1 in reached)]
    claim = "The accuracy of CL-FOBOS improves as it observes samples."
    return claim_rows(claim, "Table 7: 3,015, 3,504, 3,533 of 4,465", places, measure)


def _means(records: Records) -> list[Finding]:
    """Theorem 2: the mean of the iterates."""

    def measure(lam: float) -> Sequence[Any]:
        of_mean = [row["of_mean"] for row in select(records["means"], lam=lam)]
        incurred = _values(records, lam, "objective")[CL_FOBOS.name]
        return f"{mean(of_mean):.4f} against {mean(incurred):.4f}", less(of_mean, incurred, "F(x̄) − R̄(T)")

    claim = "The expected objective F of the mean of CL-FOBOS' iterates is less than R̄(T), by convexity."
    return claim_rows(claim, "Theorem 2", _lambdas(distinct(records["means"], "lam")), measure)


def _seconds(records: Records, what: str, lam: float, column: str = "seconds") -> dict[str, list[float]]:
    rows = select(records["timings"], what=what, lam=lam)
    return {name: [row[column] for row in select(rows, method=name)] for name in distinct(rows, "method")}


def _shorter(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        times = _seconds(records, AS_PRINTED, lam)
        found = [less(times[b], times[a], f"{b} − {a}") for a, b in pairwise(LAZY)]
        return f"{_listed({name: times[name] for name in LAZY}, 3)} s", *found

    claim = "The run time of L-FOBOS, as printed, is shortened as K becomes larger."
    rows = claim_rows(claim, "2.0 to 5.0 s, 0.9 to 1.5 s, 0.8 to 1.1 s", _lambdas(PUBLISHED), measure)

    def by_learner(lam: float) -> Sequence[Any]:
        times = _seconds(records, "lazy", lam)
        margin = 0.1 * mean(times[LAZY[0]])
        found = [equal(times[a], times[b], margin, f"{a} − {b}") for a, b in pairwise(LAZY)]
        return f"{_listed(times, 4)} s", *found

    claim = (
        "By the learners, which apply the penalty of a weight when its feature occurs again, the run time of L-FOBOS "
        "does not depend on K, to within a tenth."
    )
    return [*rows, *claim_rows(claim, OWN_CLAIM, _lambdas(PUBLISHED), by_learner)]


def _matched(records: Records) -> list[Finding]:
    def measure(pair: tuple[TrackedRun, TrackedRun]) -> Sequence[Any]:
        times = _seconds(records, "figure 2", pair[0].lam)
        theirs, ours = (times[run.method.name] for run in pair)
        return f"{_listed(times, 3)} s", equal(theirs, ours, 0.1 * mean(ours), "L-FOBOS − CL-FOBOS")

    claim = "With the K and α₀ of Figure 2 L-FOBOS achieves the same run time as CL-FOBOS: here, to within a tenth."
    places = [(f"{lambda_label(lazy.lam)}, K = {lazy.K}", (lazy, ours)) for lazy, ours in (TRACKED[:2], TRACKED[2:])]
    return claim_rows(claim, "§5", places, measure)


def _equal_time(records: Records) -> Iterator[Finding]:
    """What §5 says of K = 400 and 750, of the K that takes as long as CL-FOBOS here."""
    for lam in distinct(records["equal_time"], "lam"):
        rows = select(records["equal_time"], lam=lam)
        theirs, ours = (select(rows, method=name) for name in distinct(rows, "method"))
        yield from _at_equal_time(lam, theirs, ours)


def _at_equal_time(lam: float, theirs: list[Row], ours: list[Row]) -> Iterator[Finding]:
    where = f"{lambda_label(lam)}, K = {theirs[0]['K']}"

    def pairs(column: str) -> tuple[list[float], list[float]]:
        return [row[column] for row in theirs], [row[column] for row in ours]

    def against(column: str) -> str:
        return "{:.4f}, CL-FOBOS {:.4f}".format(*map(mean, pairs(column)))

    claim = "With the K found here L-FOBOS, as printed, takes the run time of CL-FOBOS, to within a tenth."
    found = equal(*pairs("seconds"), 0.1 * mean(pairs("seconds")[1]), "L-FOBOS − CL-FOBOS")
    yield claim_row(claim, OWN_CLAIM, where, f"{against('seconds')} s", found)
    lazily, own = pairs("objective")
    if lam >= STRONG:
        claim = "At equal run time R̄(T) of CL-FOBOS is less, for λ ≥ 0.005."
        found = less(own, lazily, "CL-FOBOS − L-FOBOS")
    else:
        claim = f"At equal run time R̄(T) is the same for λ below 0.0005, to within {ROUNDING}."
        found = equal(own, lazily, ROUNDING, "CL-FOBOS − L-FOBOS")
    here = f"{against('objective')}; rate of right predictions {against('right')}"
    yield claim_row(claim, "§5, Figure 1", where, here, found)
    (before, own), (after, _) = pairs("before"), pairs("after")
    claim = "At equal run time solutions of L-FOBOS become radically sparse at its lazy evaluations: by more than half."
    here = f"nonzero weights: {percent(mean(before))} before, {percent(mean(after))} after it"
    found = less(after, [0.5 * share for share in before], "after − half of before")
    yield claim_row(claim, "Figure 2", where, here, found)
    claim = "At equal run time CL-FOBOS has fewer nonzero weights than L-FOBOS before its lazy evaluations."
    here = f"{percent(mean(own))} against {percent(mean(before))}"
    yield claim_row(claim, "Figure 2", where, here, less(own, before, "CL-FOBOS − L-FOBOS"))


def _outperformed(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        objectives, seconds = _values(records, lam, "objective"), _seconds(records, AS_PRINTED, lam)

        def not_outperformed(name: str) -> Comparison:
            return at_least(
                1,
                *(
                    less(values[CL_FOBOS.name], values[name], f"CL-FOBOS − {name}, {what}")
                    for what, values in (("R̄(T)", objectives), ("seconds", seconds))
                ),
            )

        here = "; ".join(f"{name}: {mean(objectives[name]):.4f} in {mean(seconds[name]):.3f} s" for name in objectives)
        return here, *(not_outperformed(name) for name in LAZY)

    claim = "With no K does L-FOBOS, as printed, outperform CL-FOBOS in both run time and R̄(T), for λ ≥ 0.005."
    lams = _lambdas(lam for lam in PUBLISHED if lam >= STRONG)
    return claim_rows(claim, "Tables 1 to 3, Figure 1", lams, measure)
