"""Machine instructions that numba does not offer, and constants for loops over eight bytes at a time."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
ZERO, ONE, B3 = np.uint64(0), np.uint64(1), np.uint64(3)


def _address(context, builder, array_type, array, index):
    struct = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, struct, [index], wraparound=False, boundscheck=False)


@intrinsic
def load8(typing, data, index):
    """The 8 bytes of a uint8 array from `index` on as a little-endian uint64; the caller provides 8 bytes of slack."""

    def code(context, builder, signature, arguments):
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], arguments[0], position)
        word = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(data, index), code


@intrinsic
def nonzero64(typing, data, index):
    """Bit k of the uint64: whether data[index + k] is not zero; the caller provides 64 bytes of slack."""

    def code(context, builder, signature, arguments):
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], arguments[0], position)
        vector = ir.VectorType(ir.IntType(8), 64)
        loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        loaded.align = 1
        return builder.bitcast(builder.icmp_unsigned("!=", loaded, ir.Constant(vector, None)), ir.IntType(64))

    return types.uint64(data, index), code


@intrinsic
def store8(typing, data, index, word):
    """Write a uint64 as 8 little-endian bytes of a uint8 array from `index` on; the array has space for them."""

    def code(context, builder, signature, arguments):
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], arguments[0], position)
        stored = builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        stored.align = 1
        return context.get_dummy_value()

    return types.void(data, index, types.uint64), code


@intrinsic
def prefetch(typing, array, index):
    """Prefetch the cache line of element `index` of a one-dimensional array."""

    def code(context, builder, signature, arguments):
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], arguments[0], position)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [builder.bitcast(pointer, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, index), code


@intrinsic
def trailing_zeros(typing, word):
    """Number of zero bits below the lowest set bit of a uint64 (64 for zero)."""

    def code(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), code


@intrinsic
def ones(typing, word):
    """Number of one bits of a uint64."""

    def code(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), code
