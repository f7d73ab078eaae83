"""What Mohri and Yang (2015) prove and say, beside what is measured here: a row a claim and set."""

from collections.abc import Sequence
from typing import Final

from sparseoco.papers.caos.minimising import CORRECTED, SAGA, SAMPLED, SGD, WHAT, Method, coordinates
from sparseoco.papers.caos.streams import ADAGRAD, AO_GD, ARRANGEMENTS, BEST, MEAN, NONE, OGD, RADII
from sparseoco.papers.claims import claimed, shown
from sparseoco.papers.means import lower, lower_in_pairs
from sparseoco.papers.records import Records, Row
from sparseoco.report.wording import PERCENT, amount, integer

NO_FIGURES: Final = "no experiments"


def weigh(records: Records) -> list[Row]:
    """Rows of `records.CLAIMS`, from the other tables."""
    found = [*_within_bounds(records), *_bounds(records), *_factor_two(records)]
    for other, words in (
        (NONE.name, "the same without a prediction"),
        (ADAGRAD.name, "AdaGrad with its theorem's step"),
        (ADAGRAD.name + BEST, "AdaGrad with the best step in hindsight"),
        (OGD.name, "online gradient descent with its theorem's step"),
        (OGD.name + BEST, "online gradient descent with the best step in hindsight"),
    ):
        found += _less_regret(records, f"The regret of AO-GD is less than that of {words}.", AO_GD.name, other)
    words = "Where the gradient predicted is the mean of the rows that had the feature, regret is less than AO-GD's."
    found += _less_regret(records, words, MEAN.name, AO_GD.name, "any prediction will do: Theorem 1")
    for ours, theirs, claim, paper in (
        (SAMPLED, SGD, "CAOS-ERM comes nearer to the optimum than SGD in as many passes, both tuned.", NO_FIGURES),
        (SAMPLED, SAGA, "CAOS-ERM comes nearer to the optimum than SAGA in as many passes.", NO_FIGURES),
        (
            SAMPLED,
            CORRECTED,
            "CAOS-ERM comes nearer with its own estimate than with SVRG's.",
            "“similar to the technique used in SVRG”, without its assumptions",
        ),
        (CORRECTED, SAGA, "With SVRG's estimate CAOS-ERM comes nearer than SAGA in as many passes.", NO_FIGURES),
    ):
        found += _nearer(records, claim, paper, ours, theirs)
    found += _chances(records)
    uniform, lipschitz = (coordinates(sample, "none") for sample in ("uniform", "lipschitz"))
    claim = "CAO-RCD comes nearer with chances by (RL)^⅔ than with equal ones, in as many"
    found += _nearer(
        records, f"{claim} rounds.", "Corollary 4, of bounds", coordinates("lipschitz", "none", alike=True), uniform
    )
    found += _nearer(records, f"{claim} passes.", "not said", lipschitz, uniform)
    claim = "CAO-RCD comes nearer with the prediction L/2 than with none."
    found += _nearer(records, claim, "Corollary 4 takes it", coordinates("lipschitz", "half"), lipschitz)
    return found


def _sets(records: Records) -> list[tuple[str, str]]:
    return [(row["set"], row["title"]) for row in records["sets"]]


def _ends(records: Records, name: str, arrangement: str, method: str, R: float) -> list[Row]:
    """After the last document, an order a row."""
    rows = [
        row
        for row in records["regret"]
        if (row["set"], row["arrangement"], row["method"], row["R"]) == (name, arrangement, method, R)
    ]
    last = max(row["T"] for row in rows)
    return [row for row in rows if row["T"] == last]


def _at(R: float) -> str:
    return f"R = {R:g}".replace(" ", "\N{NO-BREAK SPACE}")


def _mean(rows: Sequence[Row], key: str) -> float:
    return float(sum(row[key] for row in rows)) / len(rows)


def _places(records: Records) -> list[tuple[str, str, str]]:
    return [
        (name, arrangement, f"{title}, {arrangement}") for name, title in _sets(records) for arrangement in ARRANGEMENTS
    ]


def _within_bounds(records: Records) -> list[Row]:
    """Of the largest that the regret can be: the least loss may be lower than what was found by its gap."""
    claim = "The regret of AO-GD is at most 4 Σ R √(Σ (gₜ − gₜ₋₁)²), at every mark."
    found = []
    for name, arrangement, where in _places(records):
        rows = [
            row
            for row in records["regret"]
            if (row["set"], row["arrangement"], row["method"]) == (name, arrangement, AO_GD.name)
        ]
        shares = [(row["regret"] + row["gap"]) / row["bound"] for row in rows]
        span = f"{100 * min(shares):.1f} to {100 * max(shares):.1f}".replace("-", "−")
        here = f"{span}{PERCENT} of it, {len(rows)} marks"
        found.append(claimed(claim, "Corollary 2", where, here, max(shares) <= 1))
    return found


def _bounds(records: Records) -> list[Row]:
    claim = "The bound of AO-GD is more favourable than that of the adaptive method without a prediction."
    paper = "“can be vastly superior”, where gradients vary slowly"
    found = []
    for name, arrangement, where in _places(records):
        ratios = [
            _mean(_ends(records, name, arrangement, AO_GD.name, R), "bound")
            / _mean(_ends(records, name, arrangement, NONE.name, R), "bound")
            for R in RADII
        ]
        here = "; ".join(f"{_at(R)}: {ratio:.2f} times it" for R, ratio in zip(RADII, ratios, strict=True))
        found.append(claimed(claim, paper, where, here, *(ratio < 1 for ratio in ratios)))
    return found


def _factor_two(records: Records) -> list[Row]:
    claim = "In the worst case the regret of AO-GD is at most a factor of two more than that of standard methods."
    found = []
    for name, arrangement, where in _places(records):
        told: list[str] = []
        holding: list[bool | None] = []
        for R in RADII:
            ours, *others = (
                _mean(_ends(records, name, arrangement, method, R), "regret")
                for method in (AO_GD.name, NONE.name, ADAGRAD.name)
            )
            told.append(f"{_at(R)}: {amount(ours)} against {amount(others[0])} and {amount(others[1])}")
            holding.append(_at_most_twice(ours, min(others)))
        here = "; ".join(told) + ", without a prediction and AdaGrad's"
        found.append(claimed(claim, "§2.1, of bounds", where, here, *holding))
    return found


def _at_most_twice(ours: float, theirs: float) -> bool | None:
    """Where theirs is below 0, less than the best fixed point's, no factor has a meaning: None unless ours is less."""
    if theirs > 0:
        return ours <= 2 * theirs
    return True if ours <= theirs else None


def _less_regret(records: Records, claim: str, ours: str, theirs: str, paper: str = NO_FIGURES) -> list[Row]:
    """By what they differ in each order, after the last document."""
    found = []
    for name, arrangement, where in _places(records):
        told, holding = [], []
        for R in RADII:
            rows = [_ends(records, name, arrangement, method, R) for method in (ours, theirs)]
            told.append(f"{_at(R)}: {amount(_mean(rows[0], 'regret'))} against {amount(_mean(rows[1], 'regret'))}")
            holding.append(lower_in_pairs(*([row["regret"] for row in own] for own in rows)))
        found.append(claimed(claim, paper, where, "; ".join(told), *holding))
    return found


def _nearer(records: Records, claim: str, paper: str, ours: Method, theirs: Method) -> list[Row]:
    """By H/H* − 1 at every mark, of the R or step chosen at the last."""
    titles = dict(_sets(records))
    found = []
    for of in records["optima"]:
        left, right = (_chosen(records, of, method) for method in (ours, theirs))
        if not left:
            continue
        excesses = [[(row["excess"], row["excess_error"]) for row in rows] for rows in (left, right)]
        told = []
        for k in (1, -1):
            texts = [shown(*excess[k], "share") for excess in excesses]
            told.append(f"{_where(left[k], right[k])}: {texts[0]} against {texts[1]}")
        where = f"{titles[of['set']]}{WHAT[of['lengths']]}, α = {of['alpha']:g}"
        holding = [lower(*of_mark) for of_mark in zip(*excesses, strict=True)]
        found.append(claimed(claim, paper, where, "above H*, " + "; ".join(told), *holding))
    return found


def _where(left: Row, right: Row) -> str:
    passes = [f"{row['passes']:.3g}" for row in (left, right)]
    if passes[0] == passes[1]:
        return f"{passes[0]} passes"
    return f"{integer(left['rounds'])} rounds, {passes[0]} and {passes[1]} passes"


def _chosen(records: Records, of: Row, method: Method) -> list[Row]:
    """A row a mark; none where the method did not run."""
    keys = ("set", "lengths", "alpha")
    return [
        row
        for row in records["objectives"]
        if row["chosen"] and row["method"] == method.name and all(row[key] == of[key] for key in keys)
    ]


def _chances(records: Records) -> list[Row]:
    claim = "The bound of CAO-RCD with chances by (RL)^⅔ is smaller than with equal ones: by how much."
    titles = dict(_sets(records))
    found = []
    for row in records["chances"]:
        here = f"{row['lipschitz'] / row['uniform']:.3f} times it, without predictions"
        paper = "Corollary 4, “strictly smaller” by Hölder's inequality, which is so of any data"
        found.append(claimed(claim, paper, titles[row["set"]], here, row["lipschitz"] < row["uniform"]))
    return found
