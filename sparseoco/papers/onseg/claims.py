"""What §4 of Liu et al. (2019) claims, and what was measured."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import PERCENT, amount
from sparseoco.papers.claims import Finding, claim_rows, format_mean
from sparseoco.papers.onseg.datasets import IMPLIED, SOURCES
from sparseoco.papers.onseg.supervised import TIMED_METHODS
from sparseoco.papers.onseg.tuning import ERROR, LOSS, PAIRS, tuned_names
from sparseoco.papers.statistics import Comparison, less, mean, mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select

TITLES: Final = {source.name: source.title for source in SOURCES}
PRINTED: Final = [("", "ONSEG", "OGDEG")]
"""What is compared: a label, a method, and the one that the paper has it outperform."""
LOSSES: Final = "“outperforms”: figures 1 and 2"
RETURNS: Final = f"2.88{PERCENT} against 1.02{PERCENT} per week"
Pairs = Sequence[tuple[str, str, str]]


class Criterion(NamedTuple):
    """How methods are compared on a classification: what the best values are tuned by, and a column of `runs`."""

    title: str
    measure: str
    column: str


CRITERIA: Final = (
    Criterion("tuned and compared by the error rate", ERROR, "error_rate"),
    Criterion("tuned by the loss, compared by the error rate", LOSS, "error_rate"),
    Criterion("tuned and compared by the loss", LOSS, "mean_loss"),
)
"""The paper shows error rates and tunes nothing: its β is that of its theorem."""


def tuned(measure: str) -> Pairs:
    """What is compared of the methods tuned by this measure, as `PRINTED`."""
    names = [(what, tuned_names(measure, suffix)) for what, suffix in PAIRS.items()]
    return [(what, onseg, ogdeg) for what, (ogdeg, onseg) in names]


def onseg_claims(records: Records, criterion: Criterion) -> list[Finding]:
    """All claims but those on run times, with classifications compared by this criterion."""
    best = "at the same δ and γ, β and the step both tuned in hindsight."
    printed = "with the printed β, where OGDEG has δ and γ of its own theorem."
    return [
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {best}", criterion, tuned),
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {printed}", criterion, lambda measure: PRINTED),
        *_portfolios(records, f"ONSEG's portfolios have a higher mean return than OGDEG's {best}", tuned(LOSS)),
        *_portfolios(records, f"ONSEG's portfolios have a higher mean return than OGDEG's {printed}", PRINTED),
        *_theorem(records),
    ]


def onseg_timing_claims(records: Records) -> list[Finding]:
    """Whether a round of ONSEG takes less time than one of OGD and ONS, by turns."""

    def measure(experiment: str) -> Sequence[Any]:
        rows = select(records["timings"], experiment=experiment)
        ns = {
            name: [1e9 * row["seconds"] / row["rounds"] for row in select(rows, method=name)] for name in TIMED_METHODS
        }
        here = ", ".join(f"{name} {amount(mean(ns[name]))}" for name in TIMED_METHODS) + " ns per round"
        return here, *(less(ns["ONSEG"], ns[name], name) for name in ("OGD", "ONS"))

    claim = "A round of ONSEG takes less time than one of the methods that require gradients, ONS and OGD."
    places = [(TITLES[name], name) for name in distinct(records["timings"], "experiment")]
    return claim_rows(claim, "“much more efficient”, no figures", places, measure)


def _experiments(records: Records) -> list[tuple[str, Row]]:
    places = []
    for row in records["experiments"]:
        diameter = f" ({row['D']:.3g})" if row["setting"] == IMPLIED else ""
        places.append((f"{TITLES[row['experiment']]}, {row['setting']}{diameter}", row))
    return places


def _rows(records: Records, table: str, experiment: Row) -> list[Row]:
    return select(records[table], experiment=experiment["experiment"], setting=experiment["setting"])


def _lower_loss(records: Records, claim: str, criterion: Criterion, pairs: Callable[[str], Pairs]) -> list[Finding]:
    """Whether ONSEG's mean loss, or error rate, over T rounds is below OGDEG's, run by run with the same directions;
    `pairs` of a measure that best values are tuned by."""

    def measure(experiment: Row) -> Sequence[Any]:
        runs = _rows(records, "runs", experiment)
        classes = experiment["loss"] == "logistic"
        column = criterion.column if classes else "mean_loss"
        own = pairs(criterion.measure if classes else LOSS)
        here, comparisons = _compared(runs, column, own, column == "error_rate")
        return f"{column.replace('_', ' ')} {here}", *comparisons

    return claim_rows(claim, LOSSES, _experiments(records), measure)


def _portfolios(records: Records, claim: str, pairs: Pairs) -> list[Finding]:
    """Whether ONSEG's mean return is above OGDEG's, draw by draw with the same stocks and directions."""

    def measure(panel: Row) -> Sequence[Any]:
        draws = select(records["draws"], panel=panel["panel"])
        here, comparisons = _compared(draws, "mean_return", pairs, True, higher=True)
        fixed = [format_mean(panel[name], None, percent=True) for name in ("equal_shares", "best_stock")]
        here += f" per {panel['period']}; equal weights {fixed[0]}, the best stock in hindsight {fixed[1]}"
        return here, *comparisons

    return claim_rows(claim, RETURNS, [(panel["title"], panel) for panel in records["panels"]], measure)


def _compared(
    rows: Sequence[Row], column: str, pairs: Pairs, percent: bool, *, higher: bool = False
) -> tuple[str, list[Comparison]]:
    """Means of the methods of every pair that was run, and the comparisons that the first is less, or higher."""
    texts, comparisons = [], []
    methods = distinct(rows, "method")
    for what, *names in (pair for pair in pairs if pair[1] in methods):
        left, right = ([row[column] for row in select(rows, method=name)] for name in names)
        means = [format_mean(*mean_and_error(values), percent=percent) for values in (left, right)]
        texts.append(f"{means[0]} against {means[1]}" + (f" ({what})" if what else ""))
        comparisons.append(less(*((right, left) if higher else (left, right)), what, percent=percent))
    return "; ".join(texts), comparisons


def _theorem(records: Records) -> list[Finding]:
    """Whether Theorem 3.1 says anything about these runs: γ < 1, and a bound below the largest possible regret."""

    def measure(experiment: Row) -> Sequence[Any]:
        gamma, bound = experiment["theorem_gamma"], experiment["theorem_regret"] / (2 * experiment["F"])
        here = f"γ = {gamma:.2f}; the bound is {amount(bound)} times 2F per round, for σ = 1"
        return here, gamma < 1 and bound < 1

    claim = "Theorem 3.1 has γ < 1 and bounds the regret of these runs by less than the trivial 2F per round."
    return claim_rows(claim, "O(T^⅔)", _experiments(records), measure)
