"""Losses, errors and slopes of a row, and the loop of a mixture."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from sparseoco.core.compile_cache import compiled, compiled_address, register_jitable
from sparseoco.learners.exponentiated import ao_eg_scale, ao_eg_weights, balanced_scale, mixability_gap
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


# ----------------------------------------------------------------------------------------------------------------------
# The loop of a mixture: AO-EG weights over the predictions of all columns, round by round.


SUMS = ("deviation", "gaps", "drawn", "deviation_before", "gaps_before", "largest")
"""Sums that `mix` updates: Σ ‖g − g̃‖∞², Σ m, Σ x·g, the first two without the last round, and the largest weight above
1, else 0."""
ERROR_C = 1.0  # errors and their predictions are 0 or 1: half the range of the difference is at most 1


@register_jitable
def mixture_weights(total, guess, sums, by_error, x):
    """Write the weights of the coming round into `x` (n,); returns their scale."""
    n = x.shape[0]
    scale = ao_eg_scale(ERROR_C, sums[0], n) if by_error else balanced_scale(sums[1], n)
    ao_eg_weights(total, guess, scale, x)
    return scale


def mix(
    margins,
    labels,
    weights,
    loss,
    rounds,
    outputs,
    by_error,
    last,
    total,
    guess,
    sums,
    out,
    losses,
    errors,
    loss_sum,
    error_count,
):
    """Learn the rows in turn from the margins and losses of n columns, after `rounds` rounds.

    margins             (rows, n·outputs)
    labels, loss        those of `stream.build_learn`
    weights             (rows,) of the losses g
    total, guess        (n,) g_{1:t}, infinite for diverged columns, and g̃_{t+1}
    sums                as in `SUMS`
    out                 (n,) the round in which a column was removed, or 0
    losses, errors      (n,) float64 and int64: sums per column
    loss_sum, error_count  (1,) sums of the mixture
    """
    n = total.shape[0]
    x, z = np.zeros(n), np.zeros(outputs)
    lost, wrong = np.zeros(n), np.zeros(n, np.int64)
    row, u, v = np.zeros(n * outputs), np.zeros(n * outputs), np.zeros(outputs)
    own = np.zeros(1, np.int64)
    for i in range(labels.shape[0]):
        t = rounds + i + 1
        weight = weights[i]
        for k in range(row.shape[0]):
            row[k] = margins[i, k]
        lost[:] = 0.0
        wrong[:] = 0
        respond_row(loss.respond, loss.bound, row, u, u[:0], outputs, labels[i], t, out, lost, wrong)
        for c in range(n):
            if out[c] > 0:  # known before the label is used
                total[c], guess[c] = math.inf, 0.0
        scale = mixture_weights(total, guess, sums, by_error, x)
        z[:] = 0.0
        own[0] = 0  # a mean of margins within bounds can exceed them by rounding only
        for c in range(n):
            if x[c] > 0.0:
                for k in range(outputs):
                    z[k] += x[c] * row[c * outputs + k]
        respond_row(loss.respond, loss.bound, z, v, v[:0], outputs, labels[i], t, own, loss_sum, error_count)
        for c in range(n):
            losses[c] += lost[c]
            errors[c] += wrong[c]
            if by_error:
                lost[c] = float(wrong[c])
            lost[c] *= weight
        gap, half = mixability_gap(total, guess, lost, scale, x)
        sums[3], sums[4] = sums[0], sums[1]
        if weight > 1.0:
            sums[5] = max(sums[5], weight)
        sums[0] += half * half
        sums[1] += gap
        for c in range(n):
            if total[c] < math.inf:
                sums[2] += x[c] * lost[c]
                total[c] += lost[c]
                guess[c] = lost[c] if last else 0.0


MIX = compiled(mix)
MIXTURE_WEIGHTS = compiled(mixture_weights)
