"""Losses, errors and slopes of a row."""

from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from sparseoco.core.compile_cache import compiled_address, register_jitable
from sparseoco.learners.losses import Loss

# ----------------------------------------------------------------------------------------------------------------------
# Losses, errors and slopes from the margins of a row, per configuration.
#
# ``respond(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)`` reads the margins
#     `z`
# of one row, ``z[q·outputs : (q + 1)·outputs]`` for configuration q, writes the slopes dℓ/dz to the same positions of
# `u`, and adds each configuration's loss and error to its sums. The predicted class is the second of two classes if
# z > 0; with more classes that of the largest margin, the first on ties. `losses`, unless empty, receives the loss of
# every column's problem: of its own margin, or of all classes for a joint loss. `label` is the row of the labels: one
# number, or one per class for sets of classes.
#
# A configuration diverges if a margin is not finite or exceeds `bound`: the round `t` is recorded, and from then on
#     its
# slopes and losses are 0 and its sums do not change. The code for one margin per configuration has no branches, so
#     that
# the loop over configurations vectorises.
#
# The loops over rows call it once per row by its address (`respond_row`), so that they are not compiled for every
#     loss.


@register_jitable(forceinline=True)
def respond_single(value, slope, bound, z, q, y, u, t, diverged, loss_sum):
    """Loss and slope of configuration q, which has one margin; returns whether it has not diverged."""
    margin = float(z[q])
    fine = (diverged[q] == 0) & (abs(margin) <= bound)
    diverged[q] = t if (diverged[q] == 0) & (not fine) else diverged[q]
    u[q] = slope(margin, y) if fine else 0.0
    loss_sum[q] += value(margin, y) if fine else 0.0
    return fine


@register_jitable(forceinline=True)
def copy_losses(value, z, y, diverged, losses):
    """The losses of configurations with one margin, if they are asked for: apart, so that the other loop vectorises."""
    for q in range(min(losses.shape[0], diverged.shape[0])):
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
def binary(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin, two classes: class index 1 is y = +1, any other y = −1."""
    y = 1.0 if label[0] == 1.0 else -1.0
    for q in range(diverged.shape[0]):
        fine = respond_single(value, slope, bound, z, q, y, u, t, diverged, loss_sum)
        wrong = (float(z[q]) > 0.0) != (y > 0.0)
        error_count[q] += 1 if fine & wrong else 0
    copy_losses(value, z, y, diverged, losses)


@register_jitable(forceinline=True)
def regression(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin that predicts the label itself; no errors are counted."""
    for q in range(diverged.shape[0]):
        respond_single(value, slope, bound, z, q, label[0], u, t, diverged, loss_sum)
    copy_losses(value, z, label[0], diverged, losses)


@register_jitable(forceinline=True)
def respond_class(value, slope, bound, z, c, y, u, losses):
    """Slope and loss of column c, one class of a configuration; returns the loss and whether its margin is bounded."""
    margin = float(z[c])
    u[c] = slope(margin, y)
    loss = value(margin, y)
    if losses.shape[0] > 0:
        losses[c] = loss
    return loss, abs(margin) <= bound


@register_jitable(forceinline=True)
def one_vs_rest(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin per class; the loss is the sum of the binary losses."""
    for q in range(diverged.shape[0]):
        first = q * outputs
        best = first
        loss = 0.0
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            y = 1.0 if label[0] == c - first else -1.0
            own, bounded = respond_class(value, slope, bound, z, c, y, u, losses)
            fine = fine & bounded
            loss += own
            best = c if z[c] > z[best] else best
        if fine:
            loss_sum[q] += loss
            error_count[q] += best - first != label[0]
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@register_jitable(forceinline=True)
def label_sets(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """One margin per class, and any number of classes per row: ``label[k]`` is 1 for those of the row.

    A class is predicted if its margin is positive; an error is a set that is not the true one.
    """
    for q in range(diverged.shape[0]):
        first = q * outputs
        loss, wrong = 0.0, False
        fine = diverged[q] == 0
        for c in range(first, first + outputs):
            y = 1.0 if label[c - first] == 1.0 else -1.0
            own, bounded = respond_class(value, slope, bound, z, c, y, u, losses)
            fine = fine & bounded
            loss += own
            wrong = wrong | ((z[c] > 0) != (y > 0.0))
        if fine:
            loss_sum[q] += loss
            error_count[q] += 1 if wrong else 0
        else:
            stop_learning(q, first, first + outputs, u, t, diverged, losses)


@register_jitable(forceinline=True)
def joint(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
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


@intrinsic
def _call(typing_context, respond, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
    """Call the machine code of `response_of` at an address."""
    arrays = (z, u, losses, label, diverged, loss_sum, error_count)
    kinds = [z.dtype, z.dtype, z.dtype, types.float64, types.int64, types.float64, types.int64]
    if [array.dtype for array in arrays] != kinds or not all(array.layout == "C" for array in arrays):
        return None

    def generate(context, builder, signature, values):
        address, *passed = values
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in passed])
        builder.call(builder.inttoptr(address, kind.as_pointer()), passed)
        return context.get_dummy_value()

    before = types.int64, types.float64, z, u, losses, types.int64, label, types.int64
    return types.void(*before, diverged, loss_sum, error_count), generate


def _call_uncompiled(respond, *arguments):
    respond(*arguments)


respond_row = _call_uncompiled if config.DISABLE_JIT else _call
"""``respond_row(respond, bound, z, u, …)``: one of the functions above for a loss, by what `response_of` returns."""

RESPONSES = {f.__name__: f for f in (binary, regression, one_vs_rest, label_sets, joint)}


@lru_cache(maxsize=64)
def response_of(loss: Loss, response: str, dtype: str) -> Any:
    """The function of `RESPONSES` for a loss and columns of `dtype`: an address of machine code, for `respond_row`.

    Without compilation it is the function itself.
    """
    function, value, slope = RESPONSES[response], loss.value, loss.slope

    def respond(bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count):
        function(value, slope, bound, z, u, losses, outputs, label, t, diverged, loss_sum, error_count)

    if config.DISABLE_JIT:
        return respond
    number, numbers, counts = types.int64, types.float64[::1], types.int64[::1]
    columns = getattr(types, dtype)[::1]
    arguments = (types.float64, columns, columns, columns, number, numbers, number, counts, numbers, counts)
    return compiled_address(respond, [response, loss.name, dtype], arguments)
