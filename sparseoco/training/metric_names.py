"""The names of metrics, for whom they are defined, and which direction is better."""

from typing import Final, Literal, NamedTuple

Kind = Literal["two classes", "classes", "label sets", "numbers"]
"""What is predicted: one of two classes, one of more, any number of labels, or a number."""


class Metric(NamedTuple):
    """A metric: `kinds` of labels for which it is defined, and whether more of it is better."""

    greater_is_better: bool
    kinds: tuple[Kind, ...]
    from_ranking: bool = False
    """Whether it ranks the rows, so that beyond `EXACT_VALUES` it comes from histograms."""


_TWO: Final = ("two classes",)
_SINGLE: Final = ("two classes", "classes")
_CLASSES: Final = ("two classes", "classes", "label sets")
_NUMBERS: Final = ("numbers",)
LEVELS: Final = (50, 90, 99)
"""Percentages of recall and precision at which the other is measured."""
METRICS: Final[dict[str, Metric]] = {
    "error": Metric(False, _CLASSES),
    "loss": Metric(False, (*_CLASSES, "numbers")),
    "log_loss": Metric(False, _CLASSES),
    "roc_auc": Metric(True, _CLASSES, True),
    "average_precision": Metric(True, _CLASSES, True),
    "f1": Metric(True, _TWO),
    "precision": Metric(True, _TWO),
    "recall": Metric(True, _TWO),
    "f1_macro": Metric(True, _CLASSES),
    "f1_micro": Metric(True, _CLASSES),
    "f1_weighted": Metric(True, _CLASSES),
    "balanced_accuracy": Metric(True, _SINGLE),
    **{f"precision_at_recall_{level}": Metric(True, _TWO, True) for level in LEVELS},
    **{f"recall_at_precision_{level}": Metric(True, _TWO, True) for level in LEVELS},
    "rmse": Metric(False, _NUMBERS),
    "mae": Metric(False, _NUMBERS),
    "r2": Metric(True, _NUMBERS),
}
PROGRESSIVE: Final = ("error", "loss")
"""The metrics that progressive predictions have, too: means over rows, each predicted before it is learned."""
COMPUTED: Final = tuple(name for name in METRICS if name not in PROGRESSIVE)
"""The metrics that `Scores` computes; error and loss come from the learner itself."""


def defined_for(kind: Kind) -> list[str]:
    """The names of the metrics of these labels."""
    return [name for name, metric in METRICS.items() if kind in metric.kinds]
