"""Input checks of the portfolio losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparseoco.core.errors import InputError


def check_portfolio(loss: str, configurations: Sequence[Mapping[str, Any]], n_classes: int | None) -> None:
    """Raises `InputError` for labels, and for log_return outside the simplex."""
    if n_classes is not None:
        raise InputError(
            f"loss={loss!r} is a portfolio loss without classes: n_classes must be None.", code="invalid-labels"
        )
    if loss == "log_return" and any(configuration["domain"] != "simplex" for configuration in configurations):
        raise InputError(
            "loss='log_return' needs weights ≥ 0 that sum to 1: use domain=simplex.",
            code="unsupported-combination",
        )


def check_relatives(X: Any) -> None:
    """Raises `InputError`, naming the first row (from 0), if a CSR matrix has a negative price relative."""
    below = np.flatnonzero(X.data < 0)
    if below.size:
        row = int(np.searchsorted(X.indptr, below[0], side="right")) - 1
        raise InputError(
            f"Row {row} has {X.data[below[0]]:g}: loss='log_return' takes price relatives ≥ 0.",
            code="invalid-input",
        )
