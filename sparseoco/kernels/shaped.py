"""Arrays whose shape is part of the code: with constant strides, loops vectorise without run-time checks."""

from functools import lru_cache

from numba import types
from numba.core import config
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import make_array, populate_array


@register_jitable(forceinline=True)
def same_shape(array):
    """The array, with the shape it has."""
    return array


@lru_cache
def shaped(rows, columns):
    """A function of a contiguous (rows, columns) array that returns it with this shape as a constant."""
    if config.DISABLE_JIT:
        return same_shape

    @intrinsic
    def view(typing_context, array):
        """The same memory."""
        if not isinstance(array, types.Array) or array.ndim != 2:
            return None
        result = types.Array(array.dtype, 2, "C")

        def generate(context, builder, signature, arguments):
            data = make_array(array)(context, builder, arguments[0]).data
            size = context.get_abi_sizeof(context.get_data_type(array.dtype))
            shape, strides, itemsize = (
                [context.get_constant(types.intp, number) for number in numbers]
                for numbers in ((rows, columns), (columns * size, size), (size,))
            )
            made = make_array(result)(context, builder)
            populate_array(made, data, shape, strides, itemsize[0], meminfo=None)
            return made._getvalue()

        return result(array), generate

    return view
