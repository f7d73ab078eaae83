"""Losses, errors and slopes of a row."""

from functools import lru_cache
from typing import Any, NamedTuple

from numba import types

from sparseoco.core.compile_cache import address_call, compiled_address, register_jitable
from sparseoco.learners.losses import Loss

# ----------------------------------------------------------------------------------------------------------------------
# Losses, errors and slopes from the margins of a row, per configuration.
#
# ``respond(bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)`` reads the margins `z` of one row,
# ``z[q·outputs : (q + 1)·outputs]`` for configuration q, writes the slopes dℓ/dz to the same positions of `u`, and adds
# each configuration's loss and error to its sums. The predicted class is the second of two classes if z > 0; with more
# classes that of the largest margin, the first on ties. `losses`, unless empty, receives the loss of every column's
# problem: of its own margin, or of all classes for a joint loss. `label` is the row of the labels: one number, or one
# per class for sets of classes.
#
# A configuration diverges if a margin is not finite or exceeds `bound`: the round `t` is recorded, and from then on its
# slopes and losses are 0 and its sums do not change. The code for one margin per configuration has no branches, so that
# the loop over configurations vectorises.
#
# The loops over rows call it once per row by its address (`respond_row`), so that they are not compiled for every loss.

RESPONSES = ("binary", "regression", "one_vs_rest", "label_sets", "joint")
"""What margins mean: one for two classes; one that is the number itself; one per class, with the sum of their losses;
the same for any number of classes per row; one per class, with a joint loss."""
REGRESSION, ONE_VS_REST, LABEL_SETS = range(1, 4)


class RowLoss(NamedTuple):
    """The loss of a row, for `respond_row`."""

    respond: Any
    """The address of machine code; without compilation the function itself."""
    bound: float
    """A configuration has diverged once a |margin| exceeds this."""
    columns: int
    """Adjacent columns that share one problem: all of a configuration for a joint loss or a group, else 1."""


@register_jitable(forceinline=True)
def one_margin(value, slope, response, bound, z, u, losses, label, t, diverged, loss_sum, error_count):
    """A number, without errors, or two classes: class index 1 is y = +1, any other y = −1."""
    classes = response != REGRESSION
    y = (1.0 if label[0] == 1.0 else -1.0) if classes else label[0]
    for q in range(diverged.shape[0]):
        margin = float(z[q])
        fine = (diverged[q] == 0) & (abs(margin) <= bound)
        diverged[q] = t if (diverged[q] == 0) & (not fine) else diverged[q]
        u[q] = slope(margin, y) if fine else 0.0
        loss_sum[q] += value(margin, y) if fine else 0.0
        wrong = classes & ((margin > 0.0) != (y > 0.0))
        error_count[q] += 1 if fine & wrong else 0
    for q in range(min(losses.shape[0], diverged.shape[0])):  # apart, so that the other loop vectorises
        losses[q] = value(float(z[q]), y) if diverged[q] == 0 else 0.0


@register_jitable(forceinline=True)
def stop_learning(q, first, stop, u, t, diverged, losses):
    """Record that configuration q, with columns first..stop, has diverged; set its slopes and losses to 0."""
    diverged[q] = t if diverged[q] == 0 else diverged[q]
    for c in range(first, stop):
        u[c] = 0.0
        if losses.shape[0] > 0:
            losses[c] = 0.0


@register_jitable(forceinline=True)
def each_class(value, slope, response, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin per class; the loss is the sum of the binary losses.

    With sets of classes, ``label[k]`` is 1 for those of the row, a class is predicted if its margin is positive, and an
    error is a set that is not the true one.
    """
    sets = response == LABEL_SETS
    for q in range(diverged.shape[0]):
        first = q * outputs
        best, loss, differs = first, 0.0, False
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            positive = label[c - first] == 1.0 if sets else label[0] == c - first
            y = 1.0 if positive else -1.0
            margin = float(z[c])
            u[c] = slope(margin, y)
            own = value(margin, y)
            if losses.shape[0] > 0:
                losses[c] = own
            loss += own
            fine = fine & (abs(margin) <= bound)
            best = c if z[c] > z[best] else best
            differs = differs | ((margin > 0.0) != positive)
        if fine:
            loss_sum[q] += loss
            error_count[q] += 1 if (differs if sets else best - first != label[0]) else 0
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@register_jitable(forceinline=True)
def joint(value, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin per class and one joint loss, whose `value` writes the slopes."""
    for q in range(diverged.shape[0]):
        first = q * outputs
        truth = first + int(label[0])
        best = first
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            fine = fine & (abs(float(z[c])) <= bound)
            best = c if z[c] > z[best] else best
        if fine:
            loss = value(z, u, first, first + outputs, truth)
            loss_sum[q] += loss
            if losses.shape[0] > 0:
                for c in range(first, first + outputs):
                    losses[c] = loss
            error_count[q] += best != truth
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@address_call
def _respond(typing_context, respond, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """Call what `row_loss` has."""
    arrays = (z, u, losses, label, diverged, loss_sum, error_count)
    kinds = [z.dtype] * 3 + [types.float64, types.int64, types.float64, types.int64]
    if [array.dtype for array in arrays] != kinds or not all(array.layout == "C" for array in arrays):
        return None
    before = types.int64, types.float64, z, u, losses, types.int64, label, types.int64
    return types.void(*before, diverged, loss_sum, error_count)


@register_jitable(forceinline=True)
def respond_row(loss, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """``respond`` of a `RowLoss`."""
    _respond(loss.respond, loss.bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)


def row_loss(loss: Loss, response: str, dtype: str, columns: int = 1) -> RowLoss:
    """The `RowLoss` of a loss and a response of `RESPONSES` for margins of `dtype`."""
    return RowLoss(_respond_of(loss, RESPONSES.index(response), dtype), loss.bound, columns)


@lru_cache(maxsize=64)
def _respond_of(loss: Loss, response: int, dtype: str) -> Any:
    value, slope = loss.value, loss.slope

    def respond(bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
        one_margin(value, slope, response, bound, z, u, losses, label, t, diverged, loss_sum, error_count)

    def respond_each(bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
        each_class(value, slope, response, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)

    def respond_jointly(bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
        joint(value, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)

    function = respond_jointly if slope is None else respond_each if response >= ONE_VS_REST else respond
    number, labels, counts = types.int64, types.float64[::1], types.int64[::1]
    margins = getattr(types, dtype)[::1]
    arguments = types.float64, margins, margins, margins, number, labels, number, counts, types.float64[::1], counts
    return compiled_address(function, [loss.name, RESPONSES[response], dtype], arguments)
