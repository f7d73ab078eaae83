"""The tables of regret: one row per configuration and mark, and one row per configuration.

The growth of regret is the slope of log regret against log T.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparseoco.offline.bounds import Bound, NoBound

REGRET = pa.schema(
    [
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("objective", pa.string()),  # its minimum over the first T rounds is `optimum`
        ("T", pa.int64()),
        ("epoch", pa.int32()),  # for epoch methods, whose loss in a round is H, the sum over all examples
        ("passes", pa.float64()),  # passes over the examples, including those read in rounds
        ("epoch_objective", pa.float64()),  # H at the end of the epoch
        ("suboptimality", pa.float64()),  # epoch_objective − min H
        ("learner_loss", pa.float64()),  # Σ_{t≤T} f_t(w_t) + ψ_t(w_t)
        ("exact", pa.bool_()),  # whether ψ_t(w_t) was summed in every round
        ("penalty_error", pa.float64()),  # estimated error of the sampled sum of ψ_t(w_t); 0 if exact
        ("optimum", pa.float64()),
        ("gap", pa.float64()),  # the true minimum is at most this much lower
        ("regret", pa.float64()),  # learner_loss − optimum
        ("bound", pa.float64()),
        ("bound_name", pa.string()),
    ]
)
SLOPES = pa.schema(
    [
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),
        ("objective", pa.string()),
        ("status", pa.string()),  # ok, diverged, failed
        ("reason", pa.string()),
        ("T", pa.int64()),  # at the last mark
        ("regret", pa.float64()),
        ("per_round", pa.float64()),
        ("epoch", pa.int32()),  # this and the next four: for epoch methods, at the end of the last epoch
        ("passes", pa.float64()),
        ("epoch_objective", pa.float64()),
        ("suboptimality", pa.float64()),
        ("suboptimality_open", pa.float64()),  # the true minimum of H is at most this much lower
        ("open", pa.float64()),  # gap + penalty_error at the last mark
        ("exact", pa.bool_()),
        ("slope", pa.float64()),  # of log regret against log T, least squares over the later half of the marks
        ("slope_error", pa.float64()),
        ("intercept", pa.float64()),
        ("fitted_from", pa.int64()),
        ("fitted_marks", pa.int32()),
        ("bound", pa.float64()),
        ("bound_share", pa.float64()),  # regret / bound
        ("bound_name", pa.string()),
        ("bound_formula", pa.string()),
        ("bound_expected", pa.bool_()),  # whether the bound is on the mean over the learner's draws
        ("bound_note", pa.string()),  # why there is no bound, or differences from the paper
    ]
)

Row = dict[str, Any]

MIN_POINTS = 3


class Slope(NamedTuple):
    """log Reg_T ≈ intercept + slope·log T over `points` marks from round `first` on."""

    slope: float
    error: float
    """Standard error of the least-squares slope; optimistic, because sums along one stream are not independent."""
    intercept: float
    first: int
    points: int

    def at(self, T: float) -> float:
        """The fitted regret after T rounds."""
        return float(np.exp(self.intercept + self.slope * np.log(T)))


def fit_slope(rounds: Sequence[int], regret: Sequence[float], uncertainty: Sequence[float]) -> Slope | None:
    """Least squares over the later half of the marks, or None with fewer than three usable marks.

    While T is far below the number of features, the best fixed weights fit any stream and regret grows like T for every
    learner; so the early half is left out. A mark is usable if its regret exceeds its `uncertainty` (from the optimum's
    gap and the sampled penalty).
    """
    T, values, doubt = (np.asarray(array, np.float64) for array in (rounds, regret, uncertainty))
    late = np.arange(T.size) >= T.size // 2
    if late.sum() < MIN_POINTS:
        late[:] = True
    good = late & (values > doubt) & (values > 0)
    if good.sum() < MIN_POINTS:
        return None
    x, y = np.log(T[good]), np.log(values[good])
    centred = x - x.mean()
    square = float(centred @ centred)
    slope = float(centred @ y) / square
    intercept = float(y.mean() - slope * x.mean())
    rest = y - intercept - slope * x
    error = float(np.sqrt(rest @ rest / (x.size - 2) / square))
    return Slope(slope, error, intercept, int(T[good][0]), int(good.sum()))


def slope_row(marks: Sequence[Row], bound: Bound | NoBound, status: str, reason: str) -> Row:
    """The row of a configuration in `SLOPES`, without its name, from its rows in `REGRET`."""
    row: Row = {
        "status": status,
        "reason": reason,
        "bound_note": bound.why if isinstance(bound, NoBound) else bound.note,
    }
    if isinstance(bound, Bound):
        row |= {"bound_name": bound.name, "bound_formula": bound.formula, "bound_expected": bound.expected}
    if not marks:
        return row
    last = marks[-1]
    row |= {name: last[name] for name in ("T", "regret", "exact", "bound")}
    if last.get("epoch"):
        row |= {name: last[name] for name in ("epoch", "passes", "epoch_objective", "suboptimality")}
        row["suboptimality_open"] = last["gap"] / last["T"]
    row |= {"per_round": last["regret"] / last["T"], "open": last["gap"] + last["penalty_error"]}
    if last["bound"]:
        row["bound_share"] = last["regret"] / last["bound"]
    fit = fit_slope(
        [mark["T"] for mark in marks],
        [mark["regret"] for mark in marks],
        [mark["gap"] + mark["penalty_error"] for mark in marks],
    )
    if fit is not None:
        row |= {"slope": fit.slope, "slope_error": fit.error, "intercept": fit.intercept}
        row |= {"fitted_from": fit.first, "fitted_marks": fit.points}
    return row
