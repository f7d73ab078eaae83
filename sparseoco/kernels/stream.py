"""The loop over a stream of sparse rows: predict, suffer a loss, learn.

State lies ``[feature, slot, column]``, so one random access to a feature serves every column. Each builder returns a
plain function closed over the scalar functions of a learner, a penalty and a loss; `kernels` compiles it. `alone` says
that there is one column: a loop known to run once is no loop.

Bits do not depend on how a stream is cut or on which columns lie side by side: every column's arithmetic is its
own, sums over a row run in the order of its nonzeros, and nothing here reorders floating point.
"""

import numpy as np
from numba.extending import register_jitable

from sparseoco.kernels.prefetch import prefetch
from sparseoco.learners.contract import Clock, advance, clock_of, keep_clock
from sparseoco.learners.penalties import amount_alone, group_factor, value_alone

LARGEST = 1.7976931348623157e308
AHEAD = 24  # nonzeros between asking for a feature's state and using it: memory is slower than arithmetic
LINE_BYTES = 64


@register_jitable(forceinline=True)
def begin_round(clock, tick, load_hyper, store_now, hyper, now):
    """Every column's scalars of the coming round."""
    for c in range(now.shape[1]):
        store_now(now, c, tick(clock, load_hyper(hyper, c)))


@register_jitable(forceinline=True)
def meet(clock, counts, start, stop):
    """The clock when the row to be played is known: its size max |x_j|, 0 for an empty row."""
    size = 0.0
    for k in range(start, stop):
        size = max(size, float(abs(counts[k])))
    return Clock(
        clock.n,
        clock.s,
        clock.S,
        size,
        clock.L_sum + size,
        clock.s_half,
        clock.S_half,
        clock.Q,
        clock.K,
        clock.constant,
        clock.ahead,
        clock.L_rows + 1.0,
    )


@register_jitable
def factor_of_group(weight, parts, load, load_now, slots, slept, now, first, outputs):
    """What the penalty leaves of a feature's weights ``first … first + outputs − 1``, all that its prox would see."""
    square = 0.0
    for c in range(first, first + outputs):
        v = float(weight(load(slots, c), slept, load_now(now, c), value_alone, parts))
        square += v * v
    a = weight(load(slots, first), slept, load_now(now, first), amount_alone, parts)
    return group_factor(square, float(a))


@register_jitable(forceinline=True)
def margins_of_row(
    weight,
    prox,
    parts,
    load,
    load_now,
    stamped,
    alone,
    grouped,
    outputs,
    indices,
    counts,
    start,
    stop,
    state,
    stamp,
    time_now,
    now,
    z,
):
    """z_c = Σ_j x_j·w_{j,c} over one row, in the order of its nonzeros."""
    width = 1 if alone else z.shape[0]
    for c in range(width):
        z[c] = 0
    span = state.shape[1] * width
    line = LINE_BYTES // z.itemsize
    for k in range(start, stop):
        if not alone and k + AHEAD < indices.shape[0]:
            far = np.int64(indices[k + AHEAD]) * span
            end = far + span
            while far < end:
                prefetch(state, far)
                far += line
        j = indices[k]
        x = counts[k]
        slots = state[j]
        slept = z.dtype.type(time_now - stamp[j]) if stamped else z.dtype.type(0)
        if grouped:
            for first in range(0, width - outputs + 1, outputs):
                f = factor_of_group(weight, parts, load, load_now, slots, slept, now, first, outputs)
                for c in range(first, first + outputs):
                    z[c] += x * z.dtype.type(f * weight(load(slots, c), slept, load_now(now, c), prox, parts))
            continue
        for c in range(width):
            z[c] += x * weight(load(slots, c), slept, load_now(now, c), prox, parts)


def build_learn(
    tick,
    time,
    weight,
    observe,
    run,
    running,
    prox,
    parts,
    stamped,
    sized,
    tracked,
    grouped,
    settled,
    telling,
    alone,
    respond,
    value,
    slope,
    bound,
    tuples,
):
    """``learn``: play every row in turn, update state, clock and progress in place.

    Where `telling`, ``told[i]`` becomes the margins with which row i was predicted, before it was learned.

    Where `tracked`, ``level[c]`` is Σ_j |w_j| at all times, followed from the coordinates that move, and
    ``level_sum[c]`` its sum over the rounds played, each as it was when the round was predicted.
    """
    load, store, load_hyper, store_hyper, load_now, store_now = tuples
    part_1, part_2 = parts

    def learn(
        indptr,
        indices,
        counts,
        labels,
        outputs,
        state,
        stamp,
        hyper,
        clock,
        diverged,
        loss_sum,
        error_count,
        level,
        level_sum,
        told,
        now,
        z,
        u,
    ):
        parts = (part_1, part_2)
        width = 1 if alone else z.shape[0]
        base = indptr[0]
        moment = clock_of(clock)
        for i in range(labels.shape[0]):
            start, stop = indptr[i] - base, indptr[i + 1] - base
            if sized:
                moment = meet(moment, counts, start, stop)
            begin_round(moment, tick, load_hyper, store_now, hyper, now)
            time_now = time(moment)
            margins_of_row(
                weight,
                prox,
                parts,
                load,
                load_now,
                stamped,
                alone,
                grouped,
                outputs,
                indices,
                counts,
                start,
                stop,
                state,
                stamp,
                time_now,
                now,
                z,
            )
            if telling:
                for c in range(width):
                    told[i, c] = z[c]
            t = int(moment.n) + 1
            respond(value, slope, bound, z, u, outputs, labels[i], t, diverged, loss_sum, error_count)
            if tracked:
                for c in range(width):
                    level_sum[c] += level[c]
            for k in range(start, stop):
                j = indices[k]
                x = counts[k]
                slots = state[j]
                slept = z.dtype.type(0)
                if stamped:
                    slept = z.dtype.type(time_now - stamp[j])
                    stamp[j] = time_now
                if settled:  # the weights are brought up to date together, then take their steps
                    for first in range(0, width - outputs + 1, outputs):
                        f = factor_of_group(weight, parts, load, load_now, slots, slept, now, first, outputs)
                        for c in range(first, first + outputs):
                            w = f * weight(load(slots, c), slept, load_now(now, c), prox, parts)
                            store(slots, c, (z.dtype.type(w), *load(slots, c)[1:]))
                    slept = z.dtype.type(0)
                for c in range(width):
                    g = u[c] * x
                    new = observe(load(slots, c), slept, load_now(now, c), g, x, prox, parts)
                    if tracked:
                        level[c] += abs(new[0]) - abs(weight(load(slots, c), slept, load_now(now, c), prox, parts))
                    store(slots, c, new)
            if running:
                for c in range(width):
                    store_hyper(hyper, c, run(moment, load_hyper(hyper, c)))
            moment = advance(moment)
        keep_clock(clock, moment)

    return learn


def build_margins(tick, time, weight, prox, parts, stamped, alone, grouped, tuples):
    """``margins``: the margins of every row at this moment; the state is only read."""
    load, _, load_hyper, _, load_now, store_now = tuples
    part_1, part_2 = parts

    def margins(indptr, indices, counts, outputs, state, stamp, hyper, clock, now, out):
        parts = (part_1, part_2)
        base = indptr[0]
        moment = clock_of(clock)
        begin_round(moment, tick, load_hyper, store_now, hyper, now)
        time_now = time(moment)
        for i in range(out.shape[0]):
            margins_of_row(
                weight,
                prox,
                parts,
                load,
                load_now,
                stamped,
                alone,
                grouped,
                outputs,
                indices,
                counts,
                indptr[i] - base,
                indptr[i + 1] - base,
                state,
                stamp,
                time_now,
                now,
                out[i],
            )

    return margins


def build_evaluate(respond, value, slope):
    """``evaluate``: add the losses and errors of rows whose margins are known, row by row.

    A configuration with a margin that is not finite is noted in `failed`.
    """

    def evaluate(z, labels, outputs, failed, loss_sum, error_count, u):
        for i in range(labels.shape[0]):
            respond(value, slope, LARGEST, z[i], u, outputs, labels[i], 1, failed, loss_sum, error_count)

    return evaluate


def build_sweep(tick, time, weight, prox, parts, stamped, alone, grouped, tuples):
    """``sweep``: the weights of a run of features at this moment; the state is only read."""
    load, _, load_hyper, _, load_now, store_now = tuples
    part_1, part_2 = parts

    def sweep(first, outputs, state, stamp, hyper, clock, now, out):
        parts = (part_1, part_2)
        moment = clock_of(clock)
        begin_round(moment, tick, load_hyper, store_now, hyper, now)
        time_now = time(moment)
        for i in range(out.shape[0]):
            j = first + i
            slots = state[j]
            slept = out.dtype.type(time_now - stamp[j]) if stamped else out.dtype.type(0)
            for c in range(out.shape[1]):
                out[i, c] = weight(load(slots, c), slept, load_now(now, c), prox, parts)
            if grouped:
                for c in range(0, out.shape[1] - outputs + 1, outputs):
                    f = factor_of_group(weight, parts, load, load_now, slots, slept, now, c, outputs)
                    for k in range(c, c + outputs):
                        out[i, k] = f * out[i, k]

    return sweep
