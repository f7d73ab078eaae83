"""The loop over a stream of sparse rows: predict, incur a loss, learn.

State is stored ``[feature, slot, column]``, so one random access to a feature serves every column. Each builder returns
a plain function closed over the scalar functions of a learner; `binding` compiles it. `fixed` is the number of columns,
1, 4 or 8, that a loop is compiled for; 0 is any number. The last two builders initialise a state from given weights.

If scalars have a second part, (parts, scalars, columns), the last feature of the state is the intercept, which rows
list last, with value 1. It has no penalty: params have twice as many columns, the second half with λ = 0.

Bits depend neither on how a stream is split into calls nor on which columns are trained together: columns are
independent, sums over a row run in the order of its nonzeros, and nothing here reorders floating point.
"""

import hashlib
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from sparseoco.core.compile_cache import outside_digests, register_jitable
from sparseoco.kernels.responses import RowLoss, respond_row
from sparseoco.learners.contract import RowInfo, Rule, advance_clock, see_row
from sparseoco.learners.penalties import PenaltyFunctions, amount_alone, group_factor, group_growth, no_growth

# ----------------------------------------------------------------------------------------------------------------------
# Prefetching a feature's state from memory before it is needed.


@intrinsic
def _prefetch(typing_context, array, index):
    """prefetch(array, i): prefetch the cache line of element i of a contiguous array for writing."""
    if not isinstance(array, types.Array) or not isinstance(index, types.Integer):
        return None

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [address, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


def _nothing(array, index):
    """Plain Python does not prefetch."""


prefetch = _nothing if config.DISABLE_JIT else _prefetch


# ----------------------------------------------------------------------------------------------------------------------
# Arrays whose shape is part of the code: with constant strides, loops vectorise without run-time checks.


@register_jitable(forceinline=True)
def same_shape(array):
    """The array, with the shape it has."""
    return array


@cache
def shaped(rows, columns):
    """A function of a contiguous (rows, columns) array that returns it with this shape as a constant."""
    if config.DISABLE_JIT:
        return same_shape

    def function(array):
        return _view(array, rows, columns)

    function.__name__ = function.__qualname__ = f"shaped_{rows}_{columns}"
    return register_jitable(forceinline=True)(function)


@intrinsic
def _view(typing_context, array, rows, columns):
    """The memory of a contiguous array as one of a constant shape."""
    if not all(isinstance(number, types.IntegerLiteral) for number in (rows, columns)):
        return None
    result = types.Array(array.dtype, 2, "C")

    def generate(context, builder, signature, arguments):
        data = make_array(array)(context, builder, arguments[0]).data
        size = context.get_abi_sizeof(context.get_data_type(array.dtype))
        numbers = rows.literal_value, columns.literal_value, columns.literal_value * size, size
        n_rows, n_columns, stride, itemsize = (context.get_constant(types.intp, number) for number in numbers)
        made = make_array(result)(context, builder)
        populate_array(made, data, [n_rows, n_columns], [stride, itemsize], itemsize, meminfo=None)
        return made._getvalue()

    return result(array, rows, columns), generate


# ----------------------------------------------------------------------------------------------------------------------
# Load a column of an array ``[field, column]`` into a tuple, and store a tuple.


@intrinsic
def _load(typing_context, array, column, length):
    """The first `length` fields of a column."""
    if not isinstance(length, types.IntegerLiteral):
        return None
    index = types.UniTuple(types.intp, 2)

    def generate(context, builder, signature, arguments):
        getitem = context.get_function(operator.getitem, array.dtype(array, index))
        positions = _positions(context, builder, index, arguments[1], length.literal_value)
        fields = [getitem(builder, (arguments[0], position)) for position in positions]
        return context.make_tuple(builder, signature.return_type, fields)

    return types.UniTuple(array.dtype, length.literal_value)(array, types.intp, length), generate


@intrinsic
def _store(typing_context, array, column, values):
    """Store a tuple into the first fields of a column."""
    index = types.UniTuple(types.intp, 2)

    def generate(context, builder, signature, arguments):
        setitem = context.get_function(operator.setitem, types.void(array, index, array.dtype))
        positions = _positions(context, builder, index, arguments[1], len(values))
        fields = cgutils.unpack_tuple(builder, arguments[2], len(values))
        for position, field, kind in zip(positions, fields, values, strict=True):
            setitem(builder, (arguments[0], position, context.cast(builder, field, kind, array.dtype)))
        return context.get_dummy_value()

    return types.void(array, types.intp, values), generate


def _positions(context, builder, index, column, length):
    """The indices of the first `length` fields of a column."""
    fields = [context.get_constant(types.intp, field) for field in range(length)]
    return [context.make_tuple(builder, index, (field, column)) for field in fields]


@cache
def reader(kind):
    """``read(array, column)``: the named tuple of this kind that a column stores."""
    length = len(kind._fields)
    if config.DISABLE_JIT:
        return lambda array, column: kind(*[array[field, column] for field in range(length)])

    @register_jitable
    def read(array, column):
        return kind(*_load(array, column, length))

    return read


def _store_uncompiled(array, column, values):
    for field, value in enumerate(values):
        array[field, column] = value


store = _store_uncompiled if config.DISABLE_JIT else _store


# ----------------------------------------------------------------------------------------------------------------------
# A learner's functions as one named tuple: in compiled code `f.weight(…)` becomes a call of the function itself.


class Functions(NamedTuple):
    """The functions of a `Rule`, and functions that read its tuples from arrays."""

    read_params: Any
    read_scalars: Any
    read_state: Any
    round_scalars: Any
    weight: Any
    update: Any
    state_from_weight: Any
    clock_time: Any
    time_after_update: Any
    advance: Any
    row_term: Any
    see: Any
    maps: Any


SCALAR_FUNCTIONS = Functions._fields[3:12]


@register_jitable
def unused(*arguments):
    """Placeholder for a function that a rule does not define."""
    return 0.0


def rule_key(rule: Rule) -> list[str]:
    """Everything in a rule that machine code depends on."""
    functions = (*(getattr(rule, name, None) for name in SCALAR_FUNCTIONS), *rule.maps)
    names = [f"{f.__module__}.{f.__qualname__}" if f else "" for f in functions]
    names += outside_digests({f.__module__ for f in functions if f})
    flags = [getattr(rule, name, None) for name in ("per_column_sums", "needs_row_norm", "needs_loss", "weighs_rows")]
    return [*names, str((rule.params, rule.scalars, rule.state, *flags))]


@lru_cache(maxsize=256)
def bind(rule: Rule) -> Callable[[], Any]:
    """A function without arguments that returns the `Functions` of a rule in compiled code."""
    read_params, read_scalars, read_state = map(reader, (rule.params, rule.scalars, rule.state))
    round_scalars, weight, update, state_from_weight, clock_time, time_after_update, advance, row_term, see = (
        getattr(rule, name, None) or unused for name in SCALAR_FUNCTIONS
    )
    time_after_update = clock_time if time_after_update is unused else time_after_update
    prox, preimage, split, scaled, repeated, grow, total = rule.maps

    def functions():
        return Functions(
            read_params,
            read_scalars,
            read_state,
            round_scalars,
            weight,
            update,
            state_from_weight,
            clock_time,
            time_after_update,
            advance,
            row_term,
            see,
            PenaltyFunctions(prox, preimage, split, scaled, repeated, grow, total),
        )

    name = f"functions_{hashlib.sha256(repr(rule_key(rule)).encode()).hexdigest()[:24]}"
    functions.__name__ = functions.__qualname__ = name
    return register_jitable(functions)


def without_learning(rule: Rule) -> Rule:
    """The rule without what learns: rules that differ in it alone share the kernels that read and initialise states."""
    off: dict[str, Any] = {"row_term": None, "see": None}
    off |= dict.fromkeys(("needs_row_norm", "needs_loss", "weighs_rows"), False)
    maps = rule.maps._replace(grow=no_growth)
    return replace(rule, update=unused, advance=unused, per_column_sums=(), maps=maps, **off)


LARGEST = 1.7976931348623157e308
AHEAD = 24  # nonzeros between prefetching a feature's state and using it
LINE_BYTES = 64


@register_jitable(forceinline=True)
def columns_of(fixed, width):
    """The number of columns, `width`, in a form that tells the compiler as much as is known of it.

    ``width & 8`` is 0 or 8: a loop over vectors of columns, without a remainder. A constant would be unrolled into
    scalar code instead.
    """
    if fixed == 1:
        return 1
    return width & fixed if fixed else width


@register_jitable(forceinline=True)
def begin_round(f, clock, params, scalars):
    """Compute every column's scalars of the next round."""
    width = scalars.shape[2]
    for part in range(scalars.shape[0]):
        for c in range(width):
            own = f.read_params(params, part * width + c)
            store(scalars[part], c, f.round_scalars(clock, own, f.maps))


@register_jitable(forceinline=True)
def part_of(j, features, parts):
    """The part of the scalars for a feature: 1 for the intercept, the last of the features if there are two, else 0."""
    return 1 if parts == 2 and j == features - 1 else 0


@register_jitable(forceinline=True)
def range_of_part(start, stop, part, parts):
    """The nonzeros of a row that a part of the scalars is for: of two parts, the second is for the last nonzero."""
    return (start, stop - parts + 1) if part == 0 else (stop - 1, stop)


@register_jitable
def weight_of_column(f, slots, elapsed, scalars, c, maps):
    """The current weight of a coordinate in column c."""
    return f.weight(f.read_state(slots, c), elapsed, f.read_scalars(scalars, c), maps)


@register_jitable
def prox_amount(f, slots, elapsed, scalars, c):
    """The amount of the prox that column c's weight applies: `weight` with a prox that returns it."""
    maps = f.maps
    others = maps.preimage, maps.split, maps.scaled, maps.repeated, maps.grow, maps.total
    amount = PenaltyFunctions(amount_alone, *others)
    return float(weight_of_column(f, slots, elapsed, scalars, c, amount))


@register_jitable
def group_share(f, slots, elapsed, scalars, first, outputs):
    """The factor by which the prox of a group shrinks the weights of columns ``first … first + outputs − 1``."""
    square = 0.0
    for c in range(first, first + outputs):
        v = float(weight_of_column(f, slots, elapsed, scalars, c, f.maps))
        square += v * v
    return group_factor(square, prox_amount(f, slots, elapsed, scalars, first))


@register_jitable(forceinline=True)
def add_columns(f, slots, elapsed, scalars, outputs, x, width, z):
    """z_c += x·w_c, for one feature."""
    for c in range(width):
        z[c] += x * weight_of_column(f, slots, elapsed, scalars, c, f.maps)


@register_jitable(forceinline=True)
def add_groups(f, slots, elapsed, scalars, outputs, x, width, z):
    """`add_columns` with a penalty of groups of `outputs` columns."""
    for first in range(0, width - outputs + 1, outputs):
        share = group_share(f, slots, elapsed, scalars, first, outputs)
        for c in range(first, first + outputs):
            z[c] += x * z.dtype.type(share * weight_of_column(f, slots, elapsed, scalars, c, f.maps))


@register_jitable(forceinline=True)
def margins_of_row(f, slots_of, timed, fixed, add, outputs, rows, start, stop, state, now, scalars, z):
    """z_c = Σ_j x_j·w_{j,c} over one row, in the order of its nonzeros."""
    indices = rows.indices
    width = columns_of(fixed, z.shape[0])
    for c in range(width):
        z[c] = 0
    span = state.slots.shape[1] * width
    line = LINE_BYTES // z.itemsize
    for part in range(scalars.shape[0]):
        own = scalars[part]
        first, last = range_of_part(start, stop, part, scalars.shape[0])
        for k in range(first, last):
            if fixed != 1 and k + AHEAD < indices.shape[0]:
                far = np.int64(indices[k + AHEAD]) * span
                end = far + span
                while far < end:
                    prefetch(state.slots, far)
                    far += line
            j = indices[k]
            x = rows.values[k]
            slots = slots_of(state.slots[j])
            elapsed = z.dtype.type(now - state.last_update[j]) if timed else z.dtype.type(0)
            add(f, slots, elapsed, own, outputs, x, width, z)


@register_jitable(forceinline=True)
def row_norms(values, start, stop):
    """max |x_j| and ‖x‖², 0 for an empty row."""
    max_abs, sq_norm = 0.0, 0.0
    for k in range(start, stop):
        x = float(values[k])
        max_abs = max(max_abs, abs(x))
        sq_norm += x * x
    return max_abs, sq_norm


@register_jitable(forceinline=True)
def sq_slopes(u, size, out):
    """Σ_k (dℓ/dz_k)² of each column's problem, which `size` columns share."""
    for c in range(u.shape[0]):
        out[c] = u[c] * u[c]
    sum_problems(out, size)


@register_jitable(forceinline=True)
def sum_problems(values, size):
    """Replace each column's value by the sum over its problem, which `size` columns share."""
    for first in range(0, values.shape[0] - size + 1 if size > 1 else 0, size):
        total = values[first]
        for c in range(first + 1, first + size):
            total += values[c]
        for c in range(first, first + size):
            values[c] = total


@register_jitable(forceinline=True)
def weigh(weight, scale_slopes, row_losses, u, loss_sum, surplus):
    """Add a weighted row's losses to the sums of the configurations; multiply its slopes, if asked."""
    for q in range(row_losses.shape[0]):
        loss_sum[q] += row_losses[q]
        surplus[q] += (weight - 1.0) * row_losses[q]
    if scale_slopes and weight != 1.0:
        for c in range(u.shape[0]):
            u[c] *= weight


@register_jitable(forceinline=True)
def sum_row_terms(f, rows, start, stop, state, scalars, u, size, out):
    """Σ_j row_term(state_j, x_j, g_j, scalars) over one row, in the order of its nonzeros, and over `size` columns."""
    for c in range(out.shape[0]):
        out[c] = 0
    for part in range(scalars.shape[0]):
        first, last = range_of_part(start, stop, part, scalars.shape[0])
        for k in range(first, last):
            slots, x = state.slots[rows.indices[k]], rows.values[k]
            for c in range(out.shape[0]):
                own = f.read_scalars(scalars[part], c)
                out[c] += f.row_term(f.read_state(slots, c), x, u[c] * x, own)
    sum_problems(out, size)


@register_jitable(forceinline=True)
def see_values(f, rows, start, stop, factors, state, columns):
    """Let the coordinates of a row see its values, times the factors of the outputs, before it is predicted."""
    for k in range(start, stop):
        x = rows.values[k]
        slots = state.slots[rows.indices[k]]
        for c in range(columns):
            store(slots, c, f.see(f.read_state(slots, c), x * factors[c % factors.shape[0]]))


def build_learn(rule, *, tracked, grouped, fixed):
    """``learn(rows, labels, weights, seen, loss, outputs, state, progress, scratch, margins_out) -> clock``: in turn.

    State and progress are updated in place. `labels` (rows, 1), or (rows, classes) for sets of classes, and `loss` are
    what `responses.respond_row` takes. `weights` (rows,) multiply what is learned of the rows: the slopes, or what the
    rule makes of `RowInfo.weight`; one of weight 0 is learned like a row without features. `seen` (rows, 1 or outputs),
    if the rule sees rows, are factors of what it sees of them. `margins_out`, unless empty,
    receives the margins of every row before it was learned. If `tracked`, the L1 norm of every column is updated from
    the coordinates that change, without the intercept.
    """
    functions = bind(rule)
    slots_of = shaped(len(rule.slots), fixed) if fixed else same_shape
    timed, advances, summed = rule.clock_time is not None, bool(rule.per_column_sums), rule.row_term is not None
    needs_row_norm, needs_loss, sees = rule.needs_row_norm, rule.needs_loss, rule.see is not None
    add = add_groups if grouped else add_columns
    settle_group, scale_slopes = grouped and rule.slots[0] == "w", not rule.weighs_rows

    def learn(rows, labels, weights, seen, loss, outputs, state, progress, scratch, margins_out):
        f = functions()
        scalars, z, u = scratch.scalars, scratch.margins, scratch.slopes
        losses, row_losses = scratch.losses, scratch.row_losses
        parts = scalars.shape[0]
        diverged, error_count = progress.diverged, progress.error_count
        width = columns_of(fixed, z.shape[0])
        zero = z.dtype.type(0)
        base = rows.indptr[0]
        clock = state.clock
        for i in range(labels.shape[0]):
            start, stop = rows.indptr[i] - base, rows.indptr[i + 1] - base
            weight = weights[i]
            max_abs, sq_norm = zero, zero
            if needs_row_norm:
                largest, square = row_norms(rows.values, start, stop)
                clock = see_row(clock, largest * weight)
                max_abs, sq_norm = z.dtype.type(largest), z.dtype.type(square)
            begin_round(f, clock, state.params, scalars)
            now = f.clock_time(clock)
            if sees:
                see_values(f, rows, start, stop, seen[i], state, width)
            margins_of_row(f, slots_of, timed, fixed, add, outputs, rows, start, stop, state, now, scalars, z)
            if margins_out.shape[0] > 0:
                for c in range(width):
                    margins_out[i, c] = z[c]
            t = int(clock.rounds) + 1
            for q in range(row_losses.shape[0]):
                row_losses[q] = 0.0
            respond_row(loss, z, u, losses, outputs, labels[i], t, diverged, row_losses, error_count)
            weigh(weight, scale_slopes, row_losses, u, progress.loss_sum, progress.surplus)
            if needs_loss:
                sq_slopes(u, loss.columns, scratch.sq_slopes)
            if summed:
                sum_row_terms(f, rows, start, stop, state, scalars, u, loss.columns, scratch.state_sums)
            if tracked:
                for c in range(width):
                    progress.l1_norm_sum[c] += progress.l1_norm[c]
            for part in range(parts if weight > 0.0 else 0):
                own = scalars[part]
                first, last = range_of_part(start, stop, part, parts)
                for k in range(first, last):
                    j = rows.indices[k]
                    x = rows.values[k]
                    slots = slots_of(state.slots[j])
                    elapsed = zero
                    if timed:
                        elapsed = z.dtype.type(now - state.last_update[j])
                        state.last_update[j] = now
                    if settle_group:  # apply the pending prox to the group, then update each column
                        for group in range(0, width - outputs + 1, outputs):
                            share = group_share(f, slots, elapsed, own, group, outputs)
                            for c in range(group, group + outputs):
                                w = share * weight_of_column(f, slots, elapsed, own, c, f.maps)
                                store(slots, c, (z.dtype.type(w), *f.read_state(slots, c)[1:]))
                    for c in range(width):
                        incurred, sq_gradient, state_sum = zero, zero, zero
                        if needs_loss:
                            incurred, sq_gradient = losses[c], sq_norm * scratch.sq_slopes[c]
                        if summed:
                            state_sum = scratch.state_sums[c]
                        own_weight = z.dtype.type(weight)
                        row = RowInfo(x, z[c], max_abs, sq_norm, incurred, sq_gradient, state_sum, own_weight)
                        before = f.read_state(slots, c)
                        own_scalars = f.read_scalars(own, c)
                        after = f.update(before, elapsed, own_scalars, u[c] * x, row, f.maps)
                        if tracked and part == 0:
                            w = weight_of_column(f, slots, elapsed, own, c, f.maps)
                            progress.l1_norm[c] += abs(after[0]) - abs(w)
                        store(slots, c, after)
            if advances:
                for c in range(parts * width):
                    store(state.params, c, f.advance(clock, f.read_params(state.params, c)))
            clock = advance_clock(clock)
        return clock

    return learn


def build_materialize(rule, *, grouped):
    """``materialize(first, outputs, state, scalars, out)``: current weights of some features; state is only read."""
    functions, timed = bind(rule), rule.clock_time is not None

    def materialize(first, outputs, state, scalars, out):
        f = functions()
        begin_round(f, state.clock, state.params, scalars)
        now = f.clock_time(state.clock)
        for i in range(out.shape[0]):
            slots = state.slots[first + i]
            elapsed = out.dtype.type(now - state.last_update[first + i]) if timed else out.dtype.type(0)
            own = scalars[part_of(first + i, state.slots.shape[0], scalars.shape[0])]
            for c in range(out.shape[1]):
                out[i, c] = weight_of_column(f, slots, elapsed, own, c, f.maps)
            if grouped:
                for c in range(0, out.shape[1] - outputs + 1, outputs):
                    share = group_share(f, slots, elapsed, own, c, outputs)
                    for k in range(c, c + outputs):
                        out[i, k] = share * out[i, k]

    return materialize


def evaluate(z, labels, loss, outputs, failed, loss_sum, error_count):
    """Add the losses and errors of rows with given margins, row by row.

    `failed` is set for configurations with a margin that is not finite.
    """
    unbounded = RowLoss(loss.respond, LARGEST, loss.columns)
    u = np.zeros(z.shape[1], z.dtype)
    for i in range(labels.shape[0]):
        respond_row(unbounded, z[i], u, u[:0], outputs, labels[i], 1, failed, loss_sum, error_count)


def pass_rounds(rounds, clock, params):
    """The clock after `rounds` rounds without rows."""
    for _ in range(rounds):
        clock = advance_clock(clock)
    return clock


def build_pass_rounds(rule):
    """`pass_rounds` for rules with per-column sums, which advance in place."""
    functions = bind(rule)

    def pass_rounds(rounds, clock, params):
        f = functions()
        for _ in range(rounds):
            for c in range(params.shape[1]):
                store(params, c, f.advance(clock, f.read_params(params, c)))
            clock = advance_clock(clock)
        return clock

    return pass_rounds


def build_init_state(rule, *, grouped):
    """``init_state(first, outputs, weights, state, scalars)``: give a run of new features these current weights.

    `weights` (features, columns) may be overwritten.
    """
    functions, timed = bind(rule), rule.clock_time is not None

    def init_state(first, outputs, weights, state, scalars):
        f = functions()
        maps = f.maps
        begin_round(f, state.clock, state.params, scalars)
        settled = f.time_after_update(state.clock)
        zero = scalars.dtype.type(0)
        for i in range(weights.shape[0]):
            slots = state.slots[first + i]
            own = scalars[part_of(first + i, state.slots.shape[0], scalars.shape[0])]
            if grouped:
                for start in range(0, weights.shape[1] - outputs + 1, outputs):
                    square = 0.0
                    for c in range(start, start + outputs):
                        square += float(weights[i, c]) * float(weights[i, c])
                    growth = group_growth(square, prox_amount(f, slots, zero, own, start))
                    for c in range(start, start + outputs):
                        weights[i, c] = weights[i, c] * growth
            for c in range(weights.shape[1]):
                own_scalars = f.read_scalars(own, c)
                store(slots, c, f.state_from_weight(weights[i, c], own_scalars, maps))
            if timed:
                state.last_update[first + i] = settled

    return init_state
