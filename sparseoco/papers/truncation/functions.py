"""Figures 1 to 4 of 2011 and Figure 1 of 2012: what an update and a truncation do to one coordinate.

All values come from the learners' own scalar functions, those that their kernels are compiled from, with η = 1.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Rule, advance_clock
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.papers.rows import Row

ORDERS: Final[tuple[int | str, ...]] = (1, 2, 3, "inf")
"""Of the norm, as the learners' parameter p."""
OCCURRENCES: Final = 50
WEIGHTS: Final = tuple(np.linspace(-3.0, 3.0, 121).tolist())
"""Before a truncation."""
SMALL, LARGE = 0.25, 2.0
"""h in Figures 3 and 4 of 2011, with λ = 1."""


class Coordinate(NamedTuple):
    """The functions of a learner, and the scalars of its first round."""

    rule: Rule
    scalars: Any

    @classmethod
    def of(cls, algorithm: str, **parameters: Any) -> "Coordinate":
        """One coordinate of a learner with these parameters, for the hinge loss and l1."""
        definition = find_algorithm(algorithm)
        configuration = definition.configuration(parameters)
        rule: Rule = definition.rule(find_loss("hinge"), find_penalty("l1"), configuration)
        params = rule.params(*definition.numbers(configuration, rule.param_names))
        return cls(rule, rule.round_scalars(rule.start, params, rule.maps))


def norms(algorithm: str, **parameters: Any) -> list[float]:
    """The threshold's factor, h or r, of a coordinate after 1, 2, … `OCCURRENCES` gradients of size 1.

    Parameters
    ----------
    algorithm : str
        sgft or stda.
    **parameters
        Of the learner, among them the order p.
    """
    rule, scalars = Coordinate.of(algorithm, **parameters)
    state = rule.state(*np.zeros(len(rule.slots)).tolist())
    values = []
    for _ in range(OCCURRENCES):
        state = rule.update(state, 0.0, scalars, 1.0, None, rule.maps)
        assert rule.threshold is not None
        values.append(float(rule.threshold(state, 0.0, scalars, rule.maps)))
    return values


def truncated_weights(algorithm: str, history: tuple[float, ...], **parameters: Any) -> list[float]:
    """`WEIGHTS` after the truncation of one round.

    Parameters
    ----------
    algorithm : str
        fobos, which the paper calls SG-L1, or sgft.
    history : tuple of float
        The rest of the coordinate's state: the norm h of sgft, nothing of fobos.
    **parameters
        Of the learner, among them λ.
    """
    rule, scalars = Coordinate.of(algorithm, **parameters)
    assert rule.clock_time is not None
    elapsed = rule.clock_time(advance_clock(rule.start)) - rule.clock_time(rule.start)
    return [float(rule.weight(rule.state(w, *history), elapsed, scalars, rule.maps)) for w in WEIGHTS]


def sgft_curves() -> list[Row]:
    """Figures 1 to 4 of 2011."""
    truncations = {
        "Figure 2: SG-L1": truncated_weights("fobos", (), eta0=1.0, lam=1.0),
        f"Figure 3: SGFT, h = {SMALL:g}": truncated_weights("sgft", (SMALL,), eta0=1.0, lam=1.0),
        f"Figure 4: SGFT, h = {LARGE:g}": truncated_weights("sgft", (LARGE,), eta0=1.0, lam=1.0),
    }
    rows = _norm_rows("sgft", eta0=1.0)
    for curve, values in truncations.items():
        rows += _rows("truncation", curve, WEIGHTS, values)
    return rows


def stda_curves() -> list[Row]:
    """Figure 1 of 2012."""
    return _norm_rows("stda")


def _norm_rows(algorithm: str, **parameters: Any) -> list[Row]:
    rows: list[Row] = []
    for p in ORDERS:
        values = norms(algorithm, p=p, **parameters)
        rows += _rows("norm", f"p = {'∞' if p == 'inf' else p}", range(1, OCCURRENCES + 1), values)
    return rows


def _rows(figure: str, curve: str, x: Sequence[float], y: Sequence[float]) -> list[Row]:
    return [{"figure": figure, "curve": curve, "x": a, "y": b} for a, b in zip(x, y, strict=True)]
