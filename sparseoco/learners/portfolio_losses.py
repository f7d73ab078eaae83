"""What the losses of portfolios ask for, beyond what every learner does."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparseoco.core.errors import InputError


def check_portfolio(loss: str, configurations: Sequence[Mapping[str, Any]], n_classes: int | None) -> None:
    """Raises `InputError` for labels, and for log_return off the simplex, where ⟨w, x⟩ may be no value of anything."""
    if n_classes is not None:
        raise InputError(
            f"loss={loss!r} is of portfolios, which have no classes: n_classes must be None.", code="invalid-labels"
        )
    if loss == "log_return" and any(configuration["domain"] != "simplex" for configuration in configurations):
        raise InputError(
            "loss='log_return' is of shares, weights that are not negative and add up to 1: domain=simplex.",
            code="unsupported-combination",
        )


def check_relatives(X: Any) -> None:
    """Raises `InputError` for the first row of a CSR matrix (from 0) that has a price relative below 0."""
    below = np.flatnonzero(X.data < 0)
    if below.size:
        row = int(np.searchsorted(X.indptr, below[0], side="right")) - 1
        raise InputError(
            f"Row {row} has {X.data[below[0]]:g}: loss='log_return' takes price relatives, none below 0.",
            code="invalid-input",
        )
