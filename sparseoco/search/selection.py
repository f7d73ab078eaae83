"""Model selection: the best configuration of a search, by a documented rule."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.core.errors import SparseocoError
from sparseoco.storage.metrics import Row

COMPLETE = ("ok", "stopped")
"""Status of an epoch that was completed: the configuration continued, or was stopped by `patience`."""


class Candidate(NamedTuple):
    """A configuration after an epoch, averaged over the folds; ordered by error, then by nonzeros."""

    error: float
    nonzeros: float
    epoch: int
    configuration: int
    standard_error: float
    algorithm: str
    parameters: str


def candidates(metrics: Sequence[Row]) -> list[Candidate]:
    """Every (configuration, epoch) that was completed in all its folds, best first.

    The error is the held-out error or, without held-out rows, the progressive error; that of an epoch method is its
    training error, which is lower than its error on other documents. The standard error is the standard deviation over
    the k folds divided by √k or, with one fold, √(e(1 − e)/n).
    """
    groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in metrics:
        groups[row["configuration"], row["epoch"]].append(row)
    folds = {row["fold"] for row in metrics}
    found = []
    for (configuration, epoch), rows in groups.items():
        if len(rows) < len(folds) or any(row["status"] not in COMPLETE for row in rows):
            continue
        held_out = rows[0]["held_out_rows"] > 0
        errors = [row["held_out_error" if held_out else "progressive_error"] for row in rows]
        error = math.fsum(errors) / len(errors)
        if len(errors) > 1:
            spread = math.fsum((e - error) ** 2 for e in errors) / (len(errors) - 1)
            standard_error = math.sqrt(spread / len(errors))
        else:
            tried = rows[0]["held_out_rows"] if held_out else rows[0]["rows"] / epoch
            standard_error = math.sqrt(error * (1 - error) / max(tried, 1))
        found.append(
            Candidate(
                error=error,
                nonzeros=math.fsum(row["nonzeros"] for row in rows) / len(rows),
                epoch=epoch,
                configuration=configuration,
                standard_error=standard_error,
                algorithm=rows[0]["algorithm"],
                parameters=rows[0]["parameters"],
            )
        )
    return sorted(found)


def choose(metrics: Sequence[Row], rule: str) -> Candidate:
    """The candidate with the smallest error, or the sparsest within one standard error of it.

    Raises `SparseocoError` with the first reason if no configuration was completed.
    """
    found = candidates(metrics)
    if not found:
        reason = next((row["reason"] for row in metrics if row["reason"]), "nothing was run")
        raise SparseocoError(f"The search completed no configuration: {reason}.", code="no-candidate")
    if rule == "error":
        return found[0]
    bound = found[0].error + found[0].standard_error
    return min((c for c in found if c.error <= bound), key=lambda c: (c.nonzeros, c))
