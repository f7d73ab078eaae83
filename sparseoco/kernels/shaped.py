"""Arrays whose shape is part of the code: with constant strides, loops vectorise without run-time checks."""

from numba import types
from numba.core import config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from sparseoco.core.compile_cache import register_jitable


@register_jitable(forceinline=True)
def same_shape(array):
    """The array, with the shape it has."""
    return array


def shaped(rows, columns):
    """A function of a contiguous (rows, columns) array that returns it with this shape as a constant.

    It becomes a member of this module, as what `sparseoco.kernels.functions.bind` returns.
    """
    if config.DISABLE_JIT:
        return same_shape
    name = f"shaped_{rows}_{columns}"
    if name not in globals():

        def function(array):
            return _view(array, rows, columns)

        function.__name__ = function.__qualname__ = name
        globals()[name] = register_jitable(forceinline=True)(function)
    return globals()[name]


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
