"""What Mohri and Yang (2015) prove and say, and what was measured."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import PERCENT, amount, integer
from sparseoco.papers.caos.objectives import (
    ALPHAS,
    CORRECTED,
    EQUAL,
    LENGTHS,
    PRINTED,
    SAGA,
    SAMPLED,
    SGD,
    Minimiser,
    coordinate_method,
)
from sparseoco.papers.caos.played import PRINTED_EQUAL
from sparseoco.papers.caos.regret import ADAGRAD, AO_GD, ARRANGEMENTS, BEST, MEAN, NONE, OGD, RADII
from sparseoco.papers.claims import OWN, Finding, claim_rows, format_mean
from sparseoco.papers.statistics import less, mean, mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select

SAMPLING: Final = "§4: “better than traditional naive uniform sampling”"
TESTED_R: Final = RADII[1]
"""R at which regret is compared; the others are in the text."""


def caos_claims(records: Records) -> list[Finding]:
    """All claims."""
    rows = [*_within_bound(records), *_smaller_bound(records), *_factor_two(records)]
    for other, words in (
        (NONE.name, "the same without a prediction"),
        (ADAGRAD.name, "AdaGrad with its theorem's step"),
        (ADAGRAD.name + BEST, "AdaGrad with the best step in hindsight"),
        (OGD.name, "online gradient descent with its theorem's step"),
        (OGD.name + BEST, "online gradient descent with the best step in hindsight"),
    ):
        rows += _less_regret(records, f"The regret of AO-GD is less than that of {words}.", AO_GD.name, other)
    claim = "If the predicted gradient is the mean of the rows that had the feature, the regret is less than AO-GD's."
    rows += _less_regret(records, claim, MEAN.name, AO_GD.name)
    for ours, theirs, claim, paper in (
        (SAMPLED, SGD, "CAOS-ERM gets nearer to the optimum than SGD in as many passes, both tuned.", OWN),
        (SAMPLED, SAGA, "CAOS-ERM gets nearer to the optimum than SAGA in as many passes.", OWN),
        (SAMPLED, CORRECTED, "CAOS-ERM gets nearer with its own estimate than with SVRG's.", OWN),
        (
            PRINTED,
            SAMPLED,
            "CAOS-ERM gets nearer as printed, with the last document's prediction, than with the coming one's.",
            "line 9 prints the last one's; the text says “of the current function being sampled”",
        ),
        (CORRECTED, PRINTED, "CAOS-ERM gets nearer with SVRG's estimate than as printed.", OWN),
        (
            SAMPLED,
            EQUAL,
            "CAOS-ERM gets nearer with probabilities ∝ L than with equal ones, in as many passes.",
            "Corollary 6, of its worst case",
        ),
        (CORRECTED, SAGA, "With SVRG's estimate CAOS-ERM gets nearer than SAGA in as many passes.", OWN),
    ):
        rows += _nearer(records, claim, paper, ours, theirs)
    rows += [*_played_within_bound(records), *_worst_cases(records)]
    for ours, theirs, claim, paper in (
        (SAMPLED, EQUAL, "with probabilities ∝ L than with equal ones.", SAMPLING),
        (PRINTED, PRINTED_EQUAL, "as printed, with probabilities ∝ L than with equal ones.", SAMPLING),
        (PRINTED, SAMPLED, "as printed, with the last document's prediction, than with the coming one's.", "line 9"),
        (CORRECTED, PRINTED, "with SVRG's estimate than as printed.", OWN),
    ):
        rows += _less_played(records, f"The iterates that CAOS-ERM plays have less regret {claim}", paper, ours, theirs)
    rows += _sampling_bounds(records)
    uniform, lipschitz = (coordinate_method(sample, "none") for sample in ("uniform", "lipschitz"))
    same_rounds = coordinate_method("lipschitz", "none", same_rounds=True)
    claim = "CAO-RCD gets nearer with probabilities ∝ (RL)^⅔ than with equal ones, in as many"
    rows += _nearer(records, f"{claim} rounds.", "Corollary 4, of bounds", same_rounds, uniform)
    rows += _nearer(records, f"{claim} passes.", OWN, lipschitz, uniform)
    claim = "CAO-RCD gets nearer with the prediction L/2 than with none."
    return rows + _nearer(records, claim, "Corollary 4 uses it", coordinate_method("lipschitz", "half"), lipschitz)


class _Order(NamedTuple):
    """A data set whose documents come in an arrangement: its rows of the regret."""

    regret: list[Row]
    repeated: bool
    """Whether a document comes several times in a row."""

    def last(self, method: str, R: float) -> list[Row]:
        """After the last document, a row per order."""
        rows = select(self.regret, method=method, R=R)
        return select(rows, T=max(row["T"] for row in rows))

    def values(self, column: str, method: str, R: float = TESTED_R) -> list[float]:
        """After the last document, a value per order."""
        return [row[column] for row in self.last(method, R)]

    def means(self, column: str, *methods: str) -> str:
        """After the last document, the means of the orders at every R, as a text."""
        parts = []
        for R in RADII:
            texts = [amount(mean(self.values(column, method, R))) for method in methods]
            parts.append(f"R\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{R:g}: {' against '.join(texts)}")
        return "; ".join(parts)


def _orders(records: Records) -> list[tuple[str, _Order]]:
    return [
        (
            f"{row['title']}, {arrangement}",
            _Order(select(records["regret"], set=row["set"], arrangement=arrangement), repeats > 1),
        )
        for row in records["sets"]
        for arrangement, repeats in ARRANGEMENTS.items()
    ]


def _within_bound(records: Records) -> list[Finding]:
    """By the largest regret possible: the least loss may be lower than the optimum found by its gap."""

    def measure(order: _Order) -> Sequence[Any]:
        rows = select(order.regret, method=AO_GD.name)
        return _shares([(row["regret"] + row["gap"]) / row["bound"] for row in rows])

    claim = "The regret of AO-GD is at most 4 Σ R √(Σ (gₜ − gₜ₋₁)²), at every mark."
    return claim_rows(claim, "Corollary 2", _orders(records), measure)


def _shares(shares: Sequence[float]) -> Sequence[Any]:
    """The least and the largest share of a bound at any mark, as a text, and whether all are within it."""
    least, most = (f"{100 * share:.3g}".replace("-", "−") for share in (min(shares), max(shares)))
    return f"{least} to {most}{PERCENT} of it, {len(shares)} marks", max(shares) <= 1


def _smaller_bound(records: Records) -> list[Finding]:
    """The paper's claim is of gradients that vary slowly: of documents that are repeated."""

    def measure(order: _Order) -> Sequence[Any]:
        left, right = (order.values("bound", learner.name) for learner in (AO_GD, NONE))
        return order.means("bound", AO_GD.name, NONE.name), less(left, right)

    claim = "The bound of AO-GD is more favourable than that of the adaptive method without a prediction"
    orders = _orders(records)
    paper = "“can be vastly superior”, if gradients vary slowly"
    return [
        *claim_rows(f"{claim}, if documents are repeated.", paper, [o for o in orders if o[1].repeated], measure),
        *claim_rows(f"{claim}, if documents are not repeated.", OWN, [o for o in orders if not o[1].repeated], measure),
    ]


def _factor_two(records: Records) -> list[Finding]:
    """Against the better of two methods; if its regret is negative, less than the best fixed point's, no factor has a
    meaning."""

    def measure(order: _Order) -> Sequence[Any]:
        best = min((order.values("regret", learner.name) for learner in (NONE, ADAGRAD)), key=mean)
        here = order.means("regret", AO_GD.name, NONE.name, ADAGRAD.name) + ", without a prediction and AdaGrad's"
        twice = [2 * regret for regret in best]
        return here, less(order.values("regret", AO_GD.name), twice) if mean(best) > 0 else None

    claim = "In the worst case the regret of AO-GD is at most a factor of two more than that of standard methods."
    return claim_rows(claim, "§2.1, of bounds", _orders(records), measure)


def _less_regret(records: Records, claim: str, ours: str, theirs: str) -> list[Finding]:
    """A claim of ours, by the paired differences of the orders, after the last document."""

    def measure(order: _Order) -> Sequence[Any]:
        left, right = (order.values("regret", method) for method in (ours, theirs))
        return order.means("regret", ours, theirs), less(left, right)

    return claim_rows(claim, OWN, _orders(records), measure)


def _nearer(records: Records, claim: str, paper: str, ours: Minimiser, theirs: Minimiser) -> list[Finding]:
    """By H/H* − 1 at the last mark, seed by seed, with the R or step chosen there by the mean of the seeds."""
    titles = {row["set"]: row["title"] for row in records["sets"]}
    problems = []
    for optimum in records["optima"]:
        key = {name: optimum[name] for name in ("set", "lengths", "alpha")}
        pair = [select(records["objectives"], chosen=True, method=method.name, **key) for method in (ours, theirs)]
        if all(pair):  # both ran on this problem
            title = f"{titles[key['set']]}{LENGTHS[key['lengths']]}, α = {key['alpha']:g}"
            problems.append((title, [_of_marks(rows) for rows in pair]))

    def measure(pair: list[list[list[Row]]]) -> Sequence[Any]:
        texts = []
        for mark in (1, -1):
            left, right = (
                format_mean(*mean_and_error([row["excess"] for row in marks[mark]]), percent=True) for marks in pair
            )
            texts.append(f"{_effort(*(marks[mark][0] for marks in pair))}: {left} against {right}")
        ours_last, theirs_last = ([row["excess"] for row in marks[-1]] for marks in pair)
        return "above H*, " + "; ".join(texts), less(ours_last, theirs_last, percent=True)

    return claim_rows(claim, paper, problems, measure)


def _of_marks(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of every mark, one per seed."""
    return [select(rows, passes=passes) for passes in distinct(rows, "passes")]


def _effort(left: Row, right: Row) -> str:
    passes = [f"{row['passes']:.3g}" for row in (left, right)]
    if passes[0] == passes[1]:
        return f"{passes[0]} passes"
    return f"{integer(left['rounds'])} rounds, {passes[0]} and {passes[1]} passes"


def _sets(records: Records) -> list[tuple[str, str]]:
    return [(row["title"], row["set"]) for row in records["sets"]]


def _played_within_bound(records: Records) -> list[Finding]:
    """Every α, R and mark of the methods for which the worst case is proved."""

    def measure(name: str) -> Sequence[Any]:
        rows = [row for row in select(records["played"], set=name) if row["bound"] is not None]
        groups = [
            select(rows, **{column: row[column] for column in ("method", "alpha", "R", "T")})
            for row in select(rows, seed=0)
        ]
        return _shares([mean(row["regret"] for row in group) / group[0]["bound"] for group in groups])

    claim = "The regret of the iterates that CAOS-ERM plays is at most 8nR√T Σ Lⱼ in the mean of its draws, as printed."
    return claim_rows(claim, "Corollary 6, its worst case", _sets(records), measure)


def _worst_cases(records: Records) -> list[Finding]:
    def measure(name: str) -> Sequence[Any]:
        bounds = [
            select(records["played"], set=name, method=method.name)[-1]["bound"] for method in (PRINTED, PRINTED_EQUAL)
        ]
        return f"{bounds[0] / bounds[1]:.3f} times it", bounds[0] < bounds[1]

    claim = "The worst case of CAOS-ERM with probabilities ∝ L is smaller than with equal ones: by how much."
    return claim_rows(claim, "Corollary 6; true of any data but of equal Lⱼ", _sets(records), measure)


def _less_played(records: Records, claim: str, paper: str, ours: Minimiser, theirs: Minimiser) -> list[Finding]:
    """By the regret per round after the last, seed by seed, with the R of the least mean of the seeds."""
    places = [
        (f"{title}, α = {alpha:g}", select(records["played"], set=name, alpha=alpha, chosen=True))
        for title, name in _sets(records)
        for alpha in ALPHAS
    ]

    def measure(rows: list[Row]) -> Sequence[Any]:
        last = select(rows, T=max(row["T"] for row in rows))
        left, right = (
            [row["regret"] / row["T"] for row in select(last, method=method.name)] for method in (ours, theirs)
        )
        texts = [format_mean(*mean_and_error(values), percent=False) for values in (left, right)]
        return f"{texts[0]} against {texts[1]} per round", less(left, right)

    return claim_rows(claim, paper, places, measure)


def _sampling_bounds(records: Records) -> list[Finding]:
    titles = {row["set"]: row["title"] for row in records["sets"]}

    def measure(row: Row) -> Sequence[Any]:
        ratio = row["lipschitz"] / row["uniform"]
        return f"{ratio:.3f} times it, without predictions", row["lipschitz"] < row["uniform"]

    claim = "The bound of CAO-RCD with probabilities ∝ (RL)^⅔ is smaller than with equal ones: by how much."
    paper = "Corollary 4, “strictly smaller” by Hölder's inequality; true of any data but of equal RᵢLᵢ"
    return claim_rows(claim, paper, [(titles[row["set"]], row) for row in records["chances"]], measure)
