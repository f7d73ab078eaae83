"""What §4 of Liu et al. (2019) claims, and what was measured."""

from collections.abc import Sequence
from typing import Any, Final

from sparseoco.papers.claims import Finding, claim_rows, format_mean
from sparseoco.papers.onseg.datasets import SOURCES
from sparseoco.papers.onseg.portfolios import PANELS
from sparseoco.papers.statistics import lower, lower_paired, mean_and_error
from sparseoco.papers.tables import Records, Row, select
from sparseoco.report.formatting import PERCENT, amount

TITLES: Final = {source.name: source.title for source in (*SOURCES, *PANELS)}
TIMED_METHODS: Final = ("OGD", "ONS", "OGDEG", "ONSEG")


def onseg_claims(records: Records) -> list[Finding]:
    """All claims but those on run times."""
    return [
        *_lower_loss(records, "ONSEG converges faster than OGDEG.", "“outperforms”: figures 1 and 2", "ONSEG", "OGDEG"),
        *_lower_loss(
            records,
            "ONSEG with the best β converges faster than OGDEG with the best step and the same δ and γ, all in "
            "hindsight.",
            "not reported",
            "ONSEG, best β",
            "OGDEG, best step",
        ),
        *_portfolios(records),
        *_theorem(records),
    ]


def onseg_timing_claims(records: Records) -> list[Finding]:
    """Whether a round of ONSEG takes less time than one of OGD and ONS."""

    def measure(experiment: Row) -> Sequence[Any]:
        rows = _rows(records, "timings", experiment)
        ns = {row["method"]: 1e9 * row["seconds"] / row["rounds"] for row in rows}
        here = ", ".join(f"{name} {amount(ns[name])}" for name in TIMED_METHODS) + " ns per round"
        return here, *(ns["ONSEG"] < ns[name] for name in ("OGD", "ONS"))

    claim = "A round of ONSEG takes less time than one of the methods that require gradients, ONS and OGD."
    return claim_rows(claim, "“much more efficient”, no figures", _experiments(records), measure)


def _experiments(records: Records) -> list[tuple[str, Row]]:
    return [
        (TITLES[row["experiment"]] + (", standardised" if row["standardised"] else ""), row)
        for row in records["experiments"]
    ]


def _rows(records: Records, table: str, experiment: Row) -> list[Row]:
    return select(records[table], experiment=experiment["experiment"], standardised=experiment["standardised"])


def _lower_loss(records: Records, claim: str, paper: str, ours: str, theirs: str) -> list[Finding]:
    """Whether one method's mean loss, or error rate, over T rounds is below another's."""

    def measure(experiment: Row) -> Sequence[Any]:
        classes = experiment["loss"] == "logistic"
        what, column = ("error rate", "error_rate") if classes else ("mean loss", "mean_loss")
        rows = {row["method"]: row for row in _rows(records, "methods", experiment)}
        left, right = ((rows[name][column], rows[name][f"{column}_error"]) for name in (ours, theirs))
        texts = [format_mean(*value, percent=classes) for value in (left, right)]
        return f"{what} {texts[0]} against {texts[1]}", lower(left, right)

    return claim_rows(claim, paper, _experiments(records), measure)


def _portfolios(records: Records) -> list[Finding]:
    """Whether ONSEG's mean return over the draws is above OGDEG's."""

    def measure(panel: Row) -> Sequence[Any]:
        draws = select(records["draws"], panel=panel["panel"])
        ours, theirs = ([row["mean_return"] for row in select(draws, method=name)] for name in ("ONSEG", "OGDEG"))
        means = [format_mean(*mean_and_error(values), percent=True) for values in (ours, theirs)]
        equal, best = (format_mean(panel[name], None, percent=True) for name in ("equal_shares", "best_stock"))
        here = (
            f"{means[0]} against {means[1]} per {panel['period']}; equal weights {equal}, the best stock in hindsight "
        )
        return here + best, lower_paired(theirs, ours)

    claim = "ONSEG's portfolios have a higher mean return than OGDEG's."
    panels = [(TITLES[panel["panel"]], panel) for panel in records["panels"]]
    return claim_rows(claim, f"2.88{PERCENT} against 1.02{PERCENT} per week", panels, measure)


def _theorem(records: Records) -> list[Finding]:
    """Whether Theorem 3.1 says anything about these runs: γ < 1, and a bound below the largest possible regret."""

    def measure(experiment: Row) -> Sequence[Any]:
        gamma, bound = experiment["theorem_gamma"], experiment["theorem_regret"] / (2 * experiment["F"])
        here = f"γ = {gamma:.2f}; the bound is {amount(bound)} times 2F per round, for σ = 1"
        return here, gamma < 1 and bound < 1

    claim = "Theorem 3.1 has γ < 1 and bounds the regret of these runs by less than the trivial 2F per round."
    return claim_rows(claim, "O(T^⅔)", _experiments(records), measure)
