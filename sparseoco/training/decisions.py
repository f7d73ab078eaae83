"""How a model decides: the calibration and the threshold in its description, from margins it has not learned."""

from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from sparseoco.training.calibration import fit_calibration
from sparseoco.training.options import ThresholdRule
from sparseoco.training.thresholds import choose_thresholds

NO_RULES = MappingProxyType({"calibration": None, "threshold": None})


def decision_rules(
    margins: NDArray[Any], labels: NDArray[Any], threshold: ThresholdRule | None, positive: int
) -> dict[str, Any]:
    """The entries `calibration` and `threshold` of a model's description; None without rows or without a rule.

    Parameters
    ----------
    margins : (rows, outputs).
    labels : (rows,) class indices, or (rows, outputs) booleans for several labels per document.
    positive : index of the positive one of two classes.
    """
    calibration = fit_calibration(margins, labels)
    if calibration is None:
        return dict(NO_RULES)
    chosen = None if threshold is None else choose_thresholds(threshold, margins, labels, positive=positive)
    return {
        "calibration": calibration.model_dump(mode="json"),
        "threshold": chosen and chosen.model_dump(mode="json"),
    }
