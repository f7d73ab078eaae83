"""What §4 of Liu et al. (2019) says its experiments show, beside what they show here: a row a claim and data set."""

from collections.abc import Sequence
from math import floor, log10
from typing import Final

from sparseoco.papers.means import lower, lower_in_pairs, mean_and_error
from sparseoco.papers.portfolios import PANELS
from sparseoco.papers.problems import SOURCES
from sparseoco.papers.records import Records, Row
from sparseoco.report.wording import PERCENT, amount

TITLES: Final = {source.name: source.title for source in (*SOURCES, *PANELS)}
MEASURES: Final = {"squared": "mean_loss", "logistic": "error_rate"}
"""What the paper's figures show, by loss."""
IN_PART: Final = "in part"
PLUS_MINUS: Final = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"


def weigh(records: Records) -> list[Row]:
    """Rows of `records.CLAIMS`, from the other tables; those of running times are `weigh_time`'s."""
    return [
        *_lower(records, "ONSEG converges faster than OGDEG.", "“outperforms”: figures 1 and 2", "ONSEG", "OGDEG"),
        *_lower(
            records,
            "So it does with the best β, against the best step with the same δ and γ, both in hindsight.",
            "not tried",
            "ONSEG, best β",
            "OGDEG, best step",
        ),
        *_portfolios(records),
        *_theorem(records),
    ]


def weigh_time(records: Records) -> list[Row]:
    """Whether a round of ONSEG takes less time than one of either method that sees gradients."""
    found = []
    for experiment in records["experiments"]:
        rows = _of(records, "timings", experiment)
        ns = {row["method"]: 1e9 * row["seconds"] / row["rounds"] for row in rows}
        here = ", ".join(f"{name} {amount(ns[name])}" for name in ("OGD", "ONS", "OGDEG", "ONSEG")) + " ns a round"
        claim = "A round of ONSEG takes less time than one of the methods that require gradients, ONS and OGD."
        less = [ns["ONSEG"] < ns[name] for name in ("OGD", "ONS")]
        found.append(claimed(claim, "“much more efficient”, no figures", _where(experiment), here, *less))
    return found


def in_all(verdicts: list[str]) -> str:
    """One word for a claim that was tried on several data sets."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return IN_PART if {"yes", IN_PART} & set(verdicts) else "no"


def shown(value: float, error: float | None, measure: str) -> str:
    """A mean with as many decimals as its standard error has two figures; shares and returns in per cent."""
    scale, unit = (1, "") if measure == "mean_loss" else (100, PERCENT)
    if error is None or error == 0:
        text = f"{scale * value:.4g}"
    else:
        digits = min(max(1 - floor(log10(scale * error)), 0), 6)
        text = f"{scale * value:,.{digits}f}{PLUS_MINUS}{scale * error:,.{digits}f}"
    return text.replace("-", "−") + unit


def _of(records: Records, table: str, experiment: Row) -> list[Row]:
    """The rows of an experiment in another table."""
    keys = ("experiment", "standardised")
    return [row for row in records[table] if all(row[key] == experiment[key] for key in keys)]


def _where(experiment: Row) -> str:
    return TITLES[experiment["experiment"]] + (", standardised" if experiment["standardised"] else "")


def _lower(records: Records, claim: str, paper: str, ours: str, theirs: str) -> list[Row]:
    """Whether one method's mean loss, or share of wrong answers, over T rounds is below another's."""
    found = []
    for experiment in records["experiments"]:
        measure = MEASURES[experiment["loss"]]
        rows = {row["method"]: row for row in _of(records, "methods", experiment)}
        left, right = ((rows[name][measure], rows[name][f"{measure}_error"]) for name in (ours, theirs))
        what = "mean loss" if measure == "mean_loss" else "wrong"
        here = f"{what} {shown(*left, measure)} against {shown(*right, measure)}"
        found.append(claimed(claim, paper, _where(experiment), here, lower(left, right)))
    return found


def _portfolios(records: Records) -> list[Row]:
    """Whether ONSEG's mean return over the draws is above OGDEG's."""
    found = []
    for panel in records["panels"]:
        draws = [row for row in records["draws"] if row["panel"] == panel["panel"]]
        ours, theirs = ([row["mean_return"] for row in draws if row["method"] == name] for name in ("ONSEG", "OGDEG"))
        here = (
            f"{shown(*mean_and_error(ours), 'return')} against {shown(*mean_and_error(theirs), 'return')} a "
            f"{panel['period']}; equal "
            f"shares {shown(panel['equal_shares'], None, 'return')}, the best stock in hindsight "
            f"{shown(panel['best_stock'], None, 'return')}"
        )
        claim = "ONSEG's portfolios have a higher mean return than OGDEG's."
        paper = f"2.88{PERCENT} against 1.02{PERCENT} a week"
        found.append(claimed(claim, paper, TITLES[panel["panel"]], here, lower_in_pairs(theirs, ours)))
    return found


def _theorem(records: Records) -> list[Row]:
    """Whether Theorem 3.1 says anything of these runs: γ < 1, and less than the largest regret that there can be."""
    found = []
    for experiment in records["experiments"]:
        bound = experiment["theorem_regret"] / (2 * experiment["F"])
        here = f"γ = {experiment['theorem_gamma']:.2f}; its bound is {amount(bound)} times 2F a round, for σ = 1"
        claim = "Theorem 3.1 bounds the regret of these runs by less than 2F a round, which holds anyway; its γ < 1."
        holds = experiment["theorem_gamma"] < 1 and bound < 1
        found.append(claimed(claim, "O(T^⅔)", _where(experiment), here, holds))
    return found


def claimed(claim: str, paper: str, where: str, here: str, *holds: bool | None) -> Row:
    """A row of `records.CLAIMS`, of one thing that holds or of several; None of what cannot be told."""
    return {"claim": claim, "paper": paper, "where": where, "here": here, "holds": _word(holds)}


def _word(holds: Sequence[bool | None]) -> str:
    """“cannot be told” where none can, “no” where none holds."""
    if holds and all(holds):
        return "yes"
    if any(holds):
        return IN_PART
    return "cannot be told" if all(word is None for word in holds) else "no"
