"""What §4 of Liu et al. (2019) says its experiments show, beside what they show here."""

from collections.abc import Iterable
from typing import Any, Final

from sparseoco.report.wording import PERCENT, amount, plural
from sparseoco.reproduce.portfolios import PANELS
from sparseoco.reproduce.problems import SOURCES
from sparseoco.reproduce.records import Records, Row

TITLES: Final = {source.name: source.title for source in (*SOURCES, *PANELS)}


def weigh(records: Records) -> list[Row]:
    """Rows of `records.CLAIMS`, from the other tables; that of running times is `weigh_time`'s."""
    return [
        *(row for loss in ("squared", "logistic") for row in _faster(records, loss)),
        *_as_fast_as_any(records),
        *_portfolio(records),
        *_theorem(records),
    ]


def weigh_time(records: Records) -> list[Row]:
    """Nanoseconds a round of each method, alone."""
    texts, verdicts = [], []
    for experiment in _of(records, "experiments", standardised=False):
        rows = _of(records, "timings", experiment=experiment["experiment"], standardised=False)
        ns = {row["method"]: 1e9 * row["seconds"] / row["T"] for row in rows}
        verdicts.append(ns["ONSEG"] < min(ns["ONS"], ns["OGD"]))
        each = ", ".join(f"{name} {amount(ns[name])}" for name in ("OGD", "ONS", "OGDEG", "ONSEG"))
        texts.append(f"{TITLES[experiment['experiment']]}: {each}")
    claim = "ONSEG is much more efficient in running time than methods that require gradients (ONS, OGD)"
    here = "ns a round: " + "; ".join(texts)
    return [_claim(claim, "no figures given", here, _all(verdicts))] if texts else []


def _of(records: Records, table: str, **keys: Any) -> list[Row]:
    return [row for row in records[table] if all(row[key] == value for key, value in keys.items())]


def _measure(loss: str) -> str:
    return "mean_loss" if loss == "squared" else "error_rate"


def _faster(records: Records, loss: str) -> list[Row]:
    """ONSEG against OGDEG after T rounds, parameters of the paper; and both with the best in hindsight."""
    found = []
    kind = "regression" if loss == "squared" else "classification"
    measure = _measure(loss)
    for claim, pair in (
        (f"ONSEG converges faster than OGDEG ({kind})", ("ONSEG", "OGDEG")),
        (f"The same where β and the step are the best in hindsight ({kind})", ("ONSEG, best β", "OGDEG, best step")),
    ):
        texts, verdicts = [], []
        for experiment in _of(records, "experiments", loss=loss):
            keys = {"experiment": experiment["experiment"], "standardised": experiment["standardised"]}
            ours, theirs = (_of(records, "methods", method=name, **keys)[0] for name in pair)
            verdicts.append(_less(ours, theirs, measure))
            scaled = ", standardised" if experiment["standardised"] else ""
            figures = f"{_figure(ours, measure)} against {_figure(theirs, measure)}"
            texts.append(f"{TITLES[experiment['experiment']]}{scaled}: {figures}")
        if texts:
            what = "mean loss" if loss == "squared" else "share of wrong answers"
            paper = f"read off figures: a lower {what} throughout" if pair[0] == "ONSEG" else "not tried"
            found.append(_claim(claim, paper, f"{what}, as played: " + "; ".join(texts), _all(verdicts)))
    return found


def _less(ours: Row, theirs: Row, measure: str) -> bool | None:
    """Whether ours is lower by more than two standard errors of the difference; None where it is within them."""
    gap = ours[measure] - theirs[measure]
    error = ((ours[f"{measure}_error"] or 0.0) ** 2 + (theirs[f"{measure}_error"] or 0.0) ** 2) ** 0.5
    return None if abs(gap) <= 2 * error else bool(gap < 0)


def _as_fast_as_any(records: Records) -> list[Row]:
    texts, verdicts = [], []
    for experiment in _of(records, "experiments", standardised=False):
        keys = {"experiment": experiment["experiment"], "standardised": False}
        measure = _measure(experiment["loss"])
        rows = {row["method"]: row for row in _of(records, "methods", **keys)}
        bandit = min(rows[name][measure] for name in ("ONSEG", "OGDEG"))
        gradient = min(rows[name][measure] for name in ("ONS", "OGD"))
        verdicts.append(bandit > gradient)
        shown = (_number(value, measure) for value in (gradient, bandit))
        texts.append(f"{TITLES[keys['experiment']]}: {' against '.join(shown)}")
    claim = "Methods that see gradients end below those that see losses alone"
    return [_claim(claim, "implied by its figures", "; ".join(texts), _all(verdicts))] if texts else []


def _portfolio(records: Records) -> list[Row]:
    found = []
    for panel in records["panels"]:
        means = {name: _mean_of_draws(records, panel["panel"], name) for name in ("ONSEG", "OGDEG")}
        (ours, error), (theirs, other) = means["ONSEG"], means["OGDEG"]
        better = None if abs(ours - theirs) <= 2 * (error**2 + other**2) ** 0.5 else ours > theirs
        here = (
            f"{TITLES[panel['panel']]}: {plural(panel['T'], panel['period'])}, {panel['drawn']} of "
            f"{panel['stocks']} stocks, {_return(ours, error)} against {_return(theirs, other)} a {panel['period']}; "
            f"equal shares {_return(panel['equal_shares'])}, the best stock in hindsight {_return(panel['best_stock'])}"
        )
        claim = "ONSEG's portfolios have a higher mean return than OGDEG's"
        found.append(_claim(claim, f"2.88{PERCENT} against 1.02{PERCENT} a week", here, _word(better)))
    return found


def _mean_of_draws(records: Records, panel: str, method: str) -> tuple[float, float]:
    values = [row["mean_return"] for row in _of(records, "draws", panel=panel, method=method)]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
    return mean, (variance / len(values)) ** 0.5


def _theorem(records: Records) -> list[Row]:
    """Whether Theorem 3.1 says anything of these experiments: γ < 1, and a bound below the largest regret there is."""
    texts, verdicts = [], []
    for row in _of(records, "experiments", standardised=False):
        says = row["theorem_gamma"] < 1 and row["theorem_regret"] < row["F"]
        verdicts.append(says)
        title = TITLES[row["experiment"]]
        texts.append(f"{title}: γ = {row['theorem_gamma']:.2f}, {amount(row['theorem_regret'] / row['F'])}·F")
    claim = "Theorem 3.1 bounds the expected regret of these runs"
    here = "γ, which must be below 1, and the bound a round for σ = 1 (no loss can cost more than F): " + "; ".join(
        texts
    )
    return [_claim(claim, "O(T^⅔)", here, _all(verdicts))] if texts else []


def _figure(row: Row, measure: str) -> str:
    error = row[f"{measure}_error"]
    return _number(row[measure], measure) + (f" ± {_number(error, measure)}" if error is not None else "")


def _number(value: float, measure: str) -> str:
    return f"{100 * value:.2f}{PERCENT}" if measure == "error_rate" else f"{value:.4g}"


def _return(value: float, error: float | None = None) -> str:
    shown = f"{100 * value:.3f}" + (f" ± {100 * error:.3f}" if error is not None else "")
    return shown.replace("-", "−") + PERCENT


def _all(verdicts: Iterable[bool | None]) -> str:
    known = list(verdicts)
    if all(verdict is True for verdict in known):
        return "yes"
    return "in part" if any(verdict is True for verdict in known) else "no" if False in known else "cannot be told"


def _word(verdict: bool | None) -> str:
    return "cannot be told" if verdict is None else "yes" if verdict else "no"


def _claim(claim: str, paper: str, here: str, holds: str) -> Row:
    return {"claim": claim, "paper": paper, "here": here, "holds": holds}
