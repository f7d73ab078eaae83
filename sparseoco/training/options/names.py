"""Names of losses, penalties and metrics, for checks and shell completion that must not load numba."""

from typing import Final

from sparseoco.core.errors import InputError
from sparseoco.core.suggestions import not_one_of
from sparseoco.storage.metric_names import METRICS
from sparseoco.training.options.defaults import AUTO

LOSS_NAMES: Final = ("logistic", "hinge", "squared_hinge", "squared", "huber", "softmax", "multiclass_hinge")
PENALTY_NAMES: Final = ("l1", "l2", "elastic_net", "group", "box")


def check_name(value: str | None, option: str) -> str | None:
    """The value of the option loss, penalty or metric, if it is known. Raises `ValueError`."""
    error, names = {
        "loss": (InputError("unknown", code="unknown-loss"), (AUTO, *LOSS_NAMES)),
        "penalty": (InputError("unknown", code="unknown-penalty"), PENALTY_NAMES),
        "metric": (None, tuple(METRICS)),
    }[option]
    if value is None or value in names:
        return value
    instead = not_one_of(value, names)
    if (option, value) == ("metric", "accuracy"):
        instead = instead.replace("did you mean ", "did you mean error, which is 1 − accuracy, or ")
    raise ValueError(f"{option}={value!r} is not known; {instead}") from error
