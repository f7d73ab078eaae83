"""Prefetching a feature's state from memory before it is needed."""

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic


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
