"""What §5 of Togari and Yamashita (2016) claims, and what was measured."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sparseoco.papers.cl_fobos.published import (
    CL_FOBOS,
    FEATURES,
    METHODS,
    OTHERS,
    PRINTED,
    SNAPSHOTS,
    TRACKED,
    TrackedRun,
)
from sparseoco.papers.claims import Finding, claim_row, claim_rows, verdict
from sparseoco.papers.statistics import below_zero, mean, paired_difference
from sparseoco.papers.tables import Records, Row, select
from sparseoco.report.formatting import integer, percent

TOLERANCE: Final = 0.02
"""The largest difference of R̄(T) and rates from the printed ones."""
STRONG: Final = 5e-3
"""The least λ that the paper calls strong."""
LAZY: Final = [method.name for method in METHODS[:-1]]


def cl_fobos_claims(records: Records, *, printed: bool = True) -> list[Finding]:
    """All claims but those on run times; those on printed figures only if they are `printed`
    for this domain."""
    return [
        *(_as_printed(records, "objective", "R̄(T) is as printed, to within 0.02.") if printed else ()),
        *(
            _as_printed(records, "right", "Rates of right predictions are as printed, to within 0.02.")
            if printed
            else ()
        ),
        *_rates(records),
        *_low_rate(records),
        *_growing(records),
        *_no_tradeoff(records),
        *_sparsity(records),
        *_snapshots(records),
    ]


def cl_fobos_timing_claims(records: Records) -> list[Finding]:
    """Claims on run times, and on run times and R̄(T)."""
    return [*_shorter(records), *_outperformed(records)]


def lambda_label(lam: float) -> str:
    """The label of a λ."""
    return f"λ = {lam:g}".replace("e-0", "e-")


def _lambdas(lams: Iterable[float]) -> list[tuple[str, float]]:
    return [(lambda_label(lam), lam) for lam in lams]


def _by_method(records: Records, lam: float) -> dict[str, Row]:
    return {row["method"]: row for row in select(records["results"], lam=lam)}


def _listed(values: dict[str, float], digits: int) -> str:
    return "; ".join(f"{name}: {value:.{digits}f}" for name, value in values.items())


def _as_printed(records: Records, column: str, claim: str) -> list[Finding]:
    rows = []
    variants = {f"_{name}": f", {words}, the paper's α₀" for name, words in OTHERS.items()}
    for suffix, features in ({"": ""} | variants).items():
        for number, lam in enumerate(PRINTED, start=1):
            results = _by_method(records, lam).values()
            pairs = [(row["method"], row[column + suffix], row[f"paper_{column}"]) for row in results]
            if any(value is None for _, value, _ in pairs):
                continue
            here = "; ".join(f"{name}: {value:.3f} for {printed:.3f}" for name, value, printed in pairs)
            near = [abs(value - printed) <= TOLERANCE for _, value, printed in pairs]
            where = f"Table {number}, {lambda_label(lam)}{features}"
            rows.append(claim_row(claim, "Tables 1 to 6", where, here, *near))
    return rows


def _not_worse(rates: dict[str, float]) -> list[bool]:
    """Whether CL-FOBOS' rate is another's or more, in the three decimals that the paper prints."""
    ours = round(rates[CL_FOBOS.name], 3)
    return [ours >= round(rates[name], 3) for name in LAZY]


def _rates(records: Records) -> list[Finding]:
    weak = [lam for lam in PRINTED if lam <= 1e-2]
    printed = [
        verdict(*_not_worse({method.name: row.right for method, row in zip(METHODS, PRINTED[lam], strict=True)}))
        for lam in weak
    ]

    def measure(lam: float) -> Sequence[Any]:
        rates = {name: row["right"] for name, row in _by_method(records, lam).items()}
        return _listed(rates, 4), *_not_worse(rates)

    claim = "The rate of right predictions of CL-FOBOS is that of L-FOBOS or better for λ ≤ 0.01."
    paper = f"stated; its own tables agree, to three decimals, for {printed.count('yes')} of {len(weak)} λ"
    return claim_rows(claim, paper, _lambdas(weak), measure)


def _low_rate(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        results = _by_method(records, lam)
        rates = {name: row["right"] for name, row in results.items()}
        undecided = percent(results[CL_FOBOS.name]["undecided"])
        here = f"{_listed(rates, 3)}; CL-FOBOS' margin is 0 in {undecided} of the rounds"
        return here, *(rates[CL_FOBOS.name] < rates[name] for name in LAZY)

    claim = "CL-FOBOS has a remarkably low rate of right predictions for large λ."
    return claim_rows(claim, "0.526 against 0.533, 0.548, 0.560", _lambdas([max(PRINTED)]), measure)


def _lazy_objectives(records: Records, lam: float) -> dict[str, float]:
    return {name: _by_method(records, lam)[name]["objective"] for name in LAZY}


def _growing(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        values = _lazy_objectives(records, lam)
        return _listed(values, 4), *(a < b for a, b in pairwise(values.values()))

    claim = "R̄(T) of L-FOBOS grows with K for λ ≥ 0.005: a trade-off with run time."
    lams = _lambdas(lam for lam in PRINTED if lam >= STRONG)
    return claim_rows(claim, "Tables 1 to 3, Figure 1", lams, measure)


def _no_tradeoff(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        values = _lazy_objectives(records, lam)
        return _listed(values, 4), len({round(value, 3) for value in values.values()}) == 1

    claim = "For λ below 0.0005 there is no trade-off: R̄(T) is the same for all K."
    return claim_rows(claim, "Tables 5 and 6", _lambdas(lam for lam in PRINTED if lam < 5e-4), measure)


class _Pair(NamedTuple):
    """Shares of nonzero weights at the lazy evaluations of an L-FOBOS: before and after, and CL-FOBOS' before."""

    lazy: TrackedRun
    before: list[float]
    after: list[float]
    nonzeros: list[int]
    """Number of nonzero weights after."""
    ours: list[float]


def _sparsity(records: Records) -> list[Finding]:
    """Figure 2: two pairs of runs, an L-FOBOS and the CL-FOBOS recorded in the same rounds."""
    pairs = [_pair(records, lazy, ours) for lazy, ours in (TRACKED[:2], TRACKED[2:])]
    reached = [pair for pair in pairs if pair.before]
    rows = [row for pair in reached for row in _at_evaluations(pair)]
    return rows + (_denser(*reached) if len(reached) == len(pairs) else [])


def _pair(records: Records, lazy: TrackedRun, ours: TrackedRun) -> _Pair:
    theirs, own = (
        {row["rounds"]: row for row in select(records["nonzeros"], method=run.method.name, lam=run.lam)}
        for run in (lazy, ours)
    )
    steps = [t for t in theirs if t % lazy.K == 0]
    return _Pair(
        lazy,
        [theirs[t - 1]["share"] for t in steps],
        [theirs[t]["share"] for t in steps],
        [theirs[t]["nonzeros"] for t in steps],
        [own[t - 1]["share"] for t in steps],
    )


def _at_evaluations(pair: _Pair) -> Iterator[Finding]:
    where = f"{lambda_label(pair.lazy.lam)}, K = {pair.lazy.K}"
    rounds = len(pair.before)
    before, after, ours = (percent(mean(shares)) for shares in (pair.before, pair.after, pair.ours))
    claim = "Solutions of L-FOBOS become radically sparse at its lazy evaluations: here, by more than half."
    here = f"nonzero weights: {before} before, {after} after it, mean of {rounds}"
    yield claim_row(
        claim, "Figure 2", where, here, *(b < 0.5 * a for a, b in zip(pair.before, pair.after, strict=True))
    )
    if pair.lazy.lam >= STRONG:
        claim = "With λ = 0.005 they become approximately zero there: here, less than 5 % of the weights are nonzero."
        here = (
            f"{percent(min(pair.after))} to {percent(max(pair.after))} of the weights, {integer(min(pair.nonzeros))} "
            f"to {integer(max(pair.nonzeros))}: of the paper's {integer(FEATURES)} features as many are at most "
            f"{percent(max(pair.nonzeros) / FEATURES)}"
        )
        yield claim_row(claim, "Figure 2", where, here, *(share < 0.05 for share in pair.after))
    claim = "CL-FOBOS always has sparse solutions: fewer nonzero weights than L-FOBOS before its lazy evaluations."
    here = f"{ours} against {before}, mean of {rounds} rounds"
    yield claim_row(claim, "Figure 2, §5", where, here, *(a < b for a, b in zip(pair.ours, pair.before, strict=True)))


def _denser(strong: _Pair, weak: _Pair) -> list[Finding]:
    def measure(shares: tuple[list[float], list[float]]) -> Sequence[Any]:
        a, b = (share[-1] for share in shares)
        return f"{percent(b)} against {percent(a)} with λ = 0.005, at the last lazy evaluation", b > a

    places = [("L-FOBOS", (strong.after, weak.after)), ("CL-FOBOS", (strong.ours, weak.ours))]
    return claim_rows("With λ = 1e-5 both methods have denser solutions.", "Figure 2", places, measure)


def _snapshots(records: Records) -> list[Finding]:
    """Whether the step from x_{K·m − 1} to x_{K·m} loses right predictions; means of the repetitions."""
    rows = []
    reached = sorted({row["rounds"] for row in records["snapshots"]})
    for before in (t for t in reached if t + 1 in reached):
        lost = {}
        for name in SNAPSHOTS:
            counts = [
                [row["right"] for row in select(records["snapshots"], method=name, rounds=t)]
                for t in (before, before + 1)
            ]
            lost[name] = paired_difference(*counts)
        lazy, ours = (lost[run.method.name] for run in TRACKED[:2])
        where = f"x_{before} to x_{before + 1}"
        texts = [f"{average:.1f} ± {error:.1f} fewer".replace("-", "−") for average, error in (lazy, ours)]
        here = f"L-FOBOS {texts[0]}, CL-FOBOS {texts[1]}"
        at = reached.index(before)
        printed = [str(row[at][1] - row[at + 1][1]).replace("-", "−") for row in SNAPSHOTS.values()]
        compared = f"{here}; printed {printed[0]} and {printed[1]}"
        claim = "After its lazy evaluation L-FOBOS has fewer right predictions."
        rows.append(
            claim_row(claim, "Table 7: 113, 25, 8 fewer of 4,465", where, compared, below_zero(-lazy[0], lazy[1]))
        )
        claim = "CL-FOBOS loses none in the same rounds, or fewer."
        rows.append(claim_row(claim, "Table 7: −5, −2, 3 fewer", where, here, ours[0] < lazy[0]))
    return rows


def _seconds(records: Records, lam: float, column: str) -> dict[str, float]:
    return {row["method"]: row[column] for row in select(records["timings"], what="alone", lam=lam)}


def _shorter(records: Records) -> list[Finding]:
    def measure(column: str) -> Sequence[Any]:
        times = [[_seconds(records, lam, column)[name] for name in LAZY] for lam in PRINTED]
        shorter = [a > b > c for a, b, c in times]
        means = ", ".join(f"{mean(column):.3f}" for column in zip(*times, strict=True))
        here = f"{means} s, mean of all λ; shorter each time for {sum(shorter)} of {len(shorter)}"
        return here, *shorter

    variants = [
        ("learning alone; the lazy evaluation of a weight waits until its feature occurs again", "seconds"),
        ("with R̄(T), for which all weights are read every K rounds", "seconds_with_objective"),
    ]
    claim = "The run time of L-FOBOS is shortened as K becomes larger."
    return claim_rows(claim, "2.0 to 5.0 s, 0.9 to 1.5 s, 0.8 to 1.1 s", variants, measure)


def _outperformed(records: Records) -> list[Finding]:
    def measure(lam: float) -> Sequence[Any]:
        results, seconds = _by_method(records, lam), _seconds(records, lam, "seconds")
        both = {name: (row["objective"], seconds[name]) for name, row in results.items()}
        ours = both[CL_FOBOS.name]
        better = [both[name][0] < ours[0] and both[name][1] < ours[1] for name in LAZY]
        here = "; ".join(f"{name}: {objective:.4f} in {time:.3f} s" for name, (objective, time) in both.items())
        return here, not any(better)

    claim = "With no K does L-FOBOS outperform CL-FOBOS in both run time and R̄(T), for λ ≥ 0.005."
    lams = _lambdas(lam for lam in PRINTED if lam >= STRONG)
    return claim_rows(claim, "Tables 1 to 3, Figure 1", lams, measure)
