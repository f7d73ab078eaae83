"""Load a column of an array ``[field, column]`` into a tuple, and store a tuple.

There is one pair of functions per length, because numba needs the length of a tuple at compile time.
"""

from sparseoco.core.compile_cache import register_jitable


@register_jitable
def load_1(a, c):
    return (a[0, c],)


@register_jitable
def load_2(a, c):
    return (a[0, c], a[1, c])


@register_jitable
def load_3(a, c):
    return (a[0, c], a[1, c], a[2, c])


@register_jitable
def load_4(a, c):
    return (a[0, c], a[1, c], a[2, c], a[3, c])


@register_jitable
def load_5(a, c):
    return (a[0, c], a[1, c], a[2, c], a[3, c], a[4, c])


@register_jitable
def load_6(a, c):
    return (a[0, c], a[1, c], a[2, c], a[3, c], a[4, c], a[5, c])


@register_jitable
def load_7(a, c):
    return (a[0, c], a[1, c], a[2, c], a[3, c], a[4, c], a[5, c], a[6, c])


@register_jitable
def store_1(a, c, v):
    a[0, c] = v[0]


@register_jitable
def store_2(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]


@register_jitable
def store_3(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]
    a[2, c] = v[2]


@register_jitable
def store_4(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]
    a[2, c] = v[2]
    a[3, c] = v[3]


@register_jitable
def store_5(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]
    a[2, c] = v[2]
    a[3, c] = v[3]
    a[4, c] = v[4]


@register_jitable
def store_6(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]
    a[2, c] = v[2]
    a[3, c] = v[3]
    a[4, c] = v[4]
    a[5, c] = v[5]


@register_jitable
def store_7(a, c, v):
    a[0, c] = v[0]
    a[1, c] = v[1]
    a[2, c] = v[2]
    a[3, c] = v[3]
    a[4, c] = v[4]
    a[5, c] = v[5]
    a[6, c] = v[6]


LOAD = {1: load_1, 2: load_2, 3: load_3, 4: load_4, 5: load_5, 6: load_6, 7: load_7}
STORE = {1: store_1, 2: store_2, 3: store_3, 4: store_4, 5: store_5, 6: store_6, 7: store_7}
