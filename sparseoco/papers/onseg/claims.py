"""What §4 of Liu et al. (2019) claims, and what was measured."""

from collections.abc import Sequence
from typing import Any, Final

from sparseoco.papers.claims import Finding, claim_rows, format_mean
from sparseoco.papers.onseg.datasets import IMPLIED, SOURCES
from sparseoco.papers.onseg.supervised import TIMED_METHODS
from sparseoco.papers.onseg.tuning import PAIRS, TUNED_OGDEG, TUNED_ONSEG
from sparseoco.papers.statistics import Comparison, less, mean, mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.formatting import PERCENT, amount

TITLES: Final = {source.name: source.title for source in SOURCES}
TUNED: Final = [(what, TUNED_ONSEG + suffix, TUNED_OGDEG + suffix) for what, suffix in PAIRS.items()]
PRINTED: Final = [("", "ONSEG", "OGDEG")]
"""What is compared: a label, a method, and the one that the paper has it outperform."""
LOSSES: Final = "“outperforms”: figures 1 and 2"
RETURNS: Final = f"2.88{PERCENT} against 1.02{PERCENT} per week"


def onseg_claims(records: Records) -> list[Finding]:
    """All claims but those on run times."""
    tuned = "at the same δ and γ, β and the step both tuned in hindsight."
    printed = "with the printed β, where OGDEG has δ and γ of its own theorem."
    return [
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {tuned}", TUNED),
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {printed}", PRINTED),
        *_portfolios(records, f"ONSEG's portfolios have a higher mean return than OGDEG's {tuned}", TUNED),
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


def _lower_loss(records: Records, claim: str, pairs: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """Whether ONSEG's mean loss, or error rate, over T rounds is below OGDEG's, run by run with the same directions."""

    def measure(experiment: Row) -> Sequence[Any]:
        runs = _rows(records, "runs", experiment)
        classes = experiment["loss"] == "logistic"
        what, column = ("error rate", "error_rate") if classes else ("mean loss", "mean_loss")
        here, comparisons = _compared(runs, column, pairs, classes)
        return f"{what} {here}", *comparisons

    return claim_rows(claim, LOSSES, _experiments(records), measure)


def _portfolios(records: Records, claim: str, pairs: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """Whether ONSEG's mean return is above OGDEG's, draw by draw with the same stocks and directions."""

    def measure(panel: Row) -> Sequence[Any]:
        draws = select(records["draws"], panel=panel["panel"])
        here, comparisons = _compared(draws, "mean_return", pairs, True, higher=True)
        fixed = [format_mean(panel[name], None, percent=True) for name in ("equal_shares", "best_stock")]
        here += f" per {panel['period']}; equal weights {fixed[0]}, the best stock in hindsight {fixed[1]}"
        return here, *comparisons

    return claim_rows(claim, RETURNS, [(panel["title"], panel) for panel in records["panels"]], measure)


def _compared(
    rows: Sequence[Row], column: str, pairs: Sequence[tuple[str, str, str]], percent: bool, *, higher: bool = False
) -> tuple[str, list[Comparison]]:
    """Means of the methods of every pair, and the comparisons that the first is less, or higher."""
    texts, comparisons = [], []
    for what, *names in pairs:
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
