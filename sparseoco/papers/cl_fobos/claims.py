"""What §5 of Togari and Yamashita (2016) says its experiments show, beside what they show here."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sparseoco.papers.cl_fobos.published import CL_FOBOS, FEATURES, METHODS, OTHERS, SNAPSHOTS, TABLES, WATCHED, Watched
from sparseoco.papers.claims import IN_PART, claimed
from sparseoco.papers.means import mean_and_error
from sparseoco.papers.records import Records, Row
from sparseoco.report.wording import integer, percent

NEAR: Final = 0.02
"""What R̄(T) and rates may differ from the printed ones by."""
STRONG: Final = 5e-3
"""The least λ of which the paper says that it weighs."""
LAZY: Final = [method.name for method in METHODS[:-1]]


def weigh(records: Records) -> list[Row]:
    """Rows of `records.CLAIMS`, from the other tables; those of running times are `weigh_time`'s."""
    found = [
        *_printed(records, "objective", "R̄(T) is as printed, to within 0.02."),
        *_printed(records, "right", "Rates of right estimations are as printed, to within 0.02."),
        *_rates(records),
        *_low_rate(records),
        *_growing(records),
        *_no_influence(records),
        *_sparseness(records),
        *_snapshots(records),
    ]
    claims = list(dict.fromkeys(row["claim"] for row in found))
    return sorted(found, key=lambda row: claims.index(row["claim"]))


def weigh_time(records: Records) -> list[Row]:
    """Claims of running times, and of times and R̄(T)."""
    return [*_shorter(records), *_outperformed(records)]


def word_of(lam: float) -> str:
    """λ as the page has it."""
    return f"λ = {lam:g}".replace("e-0", "e-")


def _by_method(records: Records, lam: float) -> dict[str, Row]:
    return {row["method"]: row for row in records["results"] if row["lam"] == lam}


def _share(holding: Sequence[bool]) -> str:
    return "yes" if all(holding) else IN_PART if any(holding) else "no"


def _row(claim: str, paper: str, where: str, here: str, verdict: str) -> Row:
    return claimed(claim, paper, where, here, None) | {"holds": verdict}


def _listed(values: dict[str, float], digits: int) -> str:
    return "; ".join(f"{name}: {value:.{digits}f}" for name, value in values.items())


def _printed(records: Records, measure: str, claim: str) -> list[Row]:
    found = []
    variants = {f"_{name}": f", {words}, the paper's α₀" for name, words in OTHERS.items()}
    for suffix, what in ({"": ""} | variants).items():
        for number, lam in enumerate(TABLES, start=1):
            rows = _by_method(records, lam).values()
            pairs = [(row["method"], row[measure + suffix], row[f"paper_{measure}"]) for row in rows]
            if any(value is None for _, value, _ in pairs):
                continue
            here = "; ".join(f"{name}: {value:.3f} for {printed:.3f}" for name, value, printed in pairs)
            near = [abs(value - printed) <= NEAR for _, value, printed in pairs]
            where = f"Table {number}, {word_of(lam)}{what}"
            found.append(_row(claim, "Tables 1 to 6", where, here, _share(near)))
    return found


def _not_worse(rates: dict[str, float]) -> list[bool]:
    """Whether CL-FOBOS' rate is another's or more, in the three decimals that the paper prints."""
    ours = round(rates[CL_FOBOS.name], 3)
    return [ours >= round(rates[name], 3) for name in LAZY]


def _rates(records: Records) -> list[Row]:
    claim = "The rate of right estimations of CL-FOBOS is that of L-FOBOS or better where λ ≤ 0.01."
    weak = [lam for lam in TABLES if lam <= 1e-2]
    own = [_share(_not_worse(_paper_rates(lam))) for lam in weak]
    paper = f"so it says; its own tables bear it out, to three decimals, for {own.count('yes')} of {len(weak)} λ"
    found = []
    for lam in weak:
        rates = {name: row["right"] for name, row in _by_method(records, lam).items()}
        found.append(_row(claim, paper, word_of(lam), _listed(rates, 4), _share(_not_worse(rates))))
    return found


def _paper_rates(lam: float) -> dict[str, float]:
    return {method.name: printed.right for method, printed in zip(METHODS, TABLES[lam], strict=True)}


def _low_rate(records: Records) -> list[Row]:
    lam = max(TABLES)
    rates = {name: row["right"] for name, row in _by_method(records, lam).items()}
    undecided = _by_method(records, lam)[CL_FOBOS.name]["undecided"]
    here = f"{_listed(rates, 3)}; CL-FOBOS' margin is 0 in {percent(undecided)} of the rounds"
    lower = [rates[CL_FOBOS.name] < rates[name] for name in LAZY]
    claim = "CL-FOBOS has a remarkably low rate of right estimations where λ is large."
    return [_row(claim, "0.526 against 0.533, 0.548, 0.560", word_of(lam), here, _share(lower))]


def _growing(records: Records) -> list[Row]:
    found = []
    claim = "R̄(T) of L-FOBOS grows with K where λ ≥ 0.005: what is gained in time is paid there."
    for lam in (lam for lam in TABLES if lam >= STRONG):
        values = {name: _by_method(records, lam)[name]["objective"] for name in LAZY}
        grows = [a < b for a, b in pairwise(values.values())]
        found.append(_row(claim, "Tables 1 to 3, Figure 1", word_of(lam), _listed(values, 4), _share(grows)))
    return found


def _no_influence(records: Records) -> list[Row]:
    found = []
    claim = "Where λ is below 0.0005 there is no such trade: R̄(T) is the same for all K."
    for lam in (lam for lam in TABLES if lam < 5e-4):
        values = {name: _by_method(records, lam)[name]["objective"] for name in LAZY}
        same = len({round(value, 3) for value in values.values()}) == 1
        found.append(_row(claim, "Tables 5 and 6", word_of(lam), _listed(values, 4), _share([same])))
    return found


def _sparseness(records: Records) -> list[Row]:
    """Figure 2: two pairs of runs, an L-FOBOS and the CL-FOBOS that is looked at in the same rounds."""
    pairs = [_watched(records, lazy, own) for lazy, own in (WATCHED[:2], WATCHED[2:])]
    seen = [pair for pair in pairs if pair.before]
    found = [row for pair in seen for row in _at_evaluations(pair)]
    return found + (_denser(*seen) if len(seen) == len(pairs) else [])


class _Pair(NamedTuple):
    """Shares of nonzero weights at the lazy evaluations of an L-FOBOS: before and after, and CL-FOBOS' before."""

    lazy: Watched
    before: list[float]
    after: list[float]
    left: list[int]
    """Weights, not shares, that are not 0 after."""
    own: list[float]


def _watched(records: Records, lazy: Watched, own: Watched) -> _Pair:
    def rows(of: Watched) -> dict[int, Row]:
        keys = (of.method.name, of.lam)
        return {row["rounds"]: row for row in records["nonzeros"] if (row["method"], row["lam"]) == keys}

    theirs, ours = rows(lazy), rows(own)
    steps = [t for t in theirs if t % lazy.K == 0]
    return _Pair(
        lazy,
        [theirs[t - 1]["share"] for t in steps],
        [theirs[t]["share"] for t in steps],
        [theirs[t]["nonzeros"] for t in steps],
        [ours[t - 1]["share"] for t in steps],
    )


def _at_evaluations(pair: _Pair) -> Iterator[Row]:
    where = f"{word_of(pair.lazy.lam)}, K = {pair.lazy.K}"
    rounds = len(pair.before)
    before, after, own = (sum(shares) / rounds for shares in (pair.before, pair.after, pair.own))
    claim = "Solutions of L-FOBOS become radically sparse at its lazy evaluations: here, less than half is left."
    here = f"nonzero weights: {percent(before)} before, {percent(after)} after it, mean of {rounds}"
    falls = [b < 0.5 * a for a, b in zip(pair.before, pair.after, strict=True)]
    yield _row(claim, "Figure 2", where, here, _share(falls))
    if pair.lazy.lam >= STRONG:
        claim = "With λ = 0.005 they become approximately zero there: here, less than 5 % of the weights are not 0."
        here = (
            f"{percent(min(pair.after))} to {percent(max(pair.after))} of the weights, {integer(min(pair.left))} to "
            f"{integer(max(pair.left))}: of the paper's {integer(FEATURES)} features as many are at most "
            f"{percent(max(pair.left) / FEATURES)}"
        )
        yield _row(claim, "Figure 2", where, here, _share([share < 0.05 for share in pair.after]))
    claim = "CL-FOBOS always has sparse solutions: fewer nonzero weights than L-FOBOS before its lazy evaluations."
    here = f"{percent(own)} against {percent(before)}, mean of {rounds} rounds"
    fewer = [a < b for a, b in zip(pair.own, pair.before, strict=True)]
    yield _row(claim, "Figure 2, §5", where, here, _share(fewer))


def _denser(strong: _Pair, weak: _Pair) -> list[Row]:
    claim = "With λ = 1e-5 both methods have denser solutions."
    found = []
    for name, a, b in (("L-FOBOS", strong.after, weak.after), ("CL-FOBOS", strong.own, weak.own)):
        here = f"{percent(b[-1])} against {percent(a[-1])} with λ = 0.005, at the last lazy evaluation"
        found.append(_row(claim, "Figure 2", name, here, _share([b[-1] > a[-1]])))
    return found


def _signed(number: int) -> str:
    return str(number).replace("-", "−")


def _fewer(mean: float, error: float) -> str:
    return f"{mean:.1f} ± {error:.1f} fewer".replace("-", "−")


def _snapshots(records: Records) -> list[Row]:
    """Whether the step from x_{K·m − 1} to x_{K·m} costs right estimations; means of repetitions, with their error."""
    found = []
    seen = sorted({row["rounds"] for row in records["snapshots"]})
    for before in (t for t in seen if t + 1 in seen):
        lost = {}
        for name in SNAPSHOTS:
            counts = {
                t: [row["right"] for row in records["snapshots"] if (row["method"], row["rounds"]) == (name, t)]
                for t in (before, before + 1)
            }
            lost[name] = mean_and_error([a - b for a, b in zip(counts[before], counts[before + 1], strict=True)])
        lazy, own = (lost[of.method.name] for of in WATCHED[:2])
        where = f"x_{before} to x_{before + 1}"
        here = f"L-FOBOS {_fewer(*lazy)}, CL-FOBOS {_fewer(*own)}"
        claim = "After its lazy evaluation L-FOBOS has fewer right estimations."
        printed = [
            numbers[seen.index(before)][1] - numbers[seen.index(before) + 1][1] for numbers in SNAPSHOTS.values()
        ]
        paper = "Table 7: 113, 25, 8 fewer of 4,465"
        falls = None if abs(lazy[0]) <= 2 * lazy[1] else lazy[0] > 0
        found.append(
            claimed(claim, paper, where, f"{here}; printed {_signed(printed[0])} and {_signed(printed[1])}", falls)
        )
        claim = "CL-FOBOS is not set back in the same rounds, or less."
        found.append(_row(claim, "Table 7: −5, −2, 3 fewer", where, here, _share([own[0] < lazy[0]])))
    return found


def _seconds(records: Records, lam: float, column: str) -> dict[str, float]:
    rows = [row for row in records["timings"] if row["what"] == "alone" and row["lam"] == lam]
    return {row["method"]: row[column] for row in rows}


def _shorter(records: Records) -> list[Row]:
    found = []
    claim = "The run time of L-FOBOS is shortened as K becomes larger."
    for column, what in (
        ("seconds", "learning alone; the lazy evaluation waits until a feature is seen again"),
        ("seconds_with_objective", "with R̄(T), for which all weights are gone through every K rounds"),
    ):
        times = {lam: [_seconds(records, lam, column)[name] for name in LAZY] for lam in TABLES}
        falls = [of[0] > of[1] > of[2] for of in times.values()]
        mean = [sum(of) / len(times) for of in zip(*times.values(), strict=True)]
        here = (
            f"{', '.join(f'{value:.3f}' for value in mean)} s, mean of all λ; shorter each time for {sum(falls)} of "
            f"{len(falls)}"
        )
        found.append(_row(claim, "2.0 to 5.0 s, 0.9 to 1.5 s, 0.8 to 1.1 s", what, here, _share(falls)))
    return found


def _outperformed(records: Records) -> list[Row]:
    found = []
    claim = "With no K does L-FOBOS outperform CL-FOBOS in both run time and R̄(T), where λ ≥ 0.005."
    for lam in (lam for lam in TABLES if lam >= STRONG):
        rows, seconds = _by_method(records, lam), _seconds(records, lam, "seconds")
        ours = rows[CL_FOBOS.name]["objective"], seconds[CL_FOBOS.name]
        better = [rows[name]["objective"] < ours[0] and seconds[name] < ours[1] for name in LAZY]
        here = "; ".join(f"{name}: {rows[name]['objective']:.4f} in {seconds[name]:.3f} s" for name in rows)
        found.append(_row(claim, "Tables 1 to 3, Figure 1", word_of(lam), here, "no" if any(better) else "yes"))
    return found
