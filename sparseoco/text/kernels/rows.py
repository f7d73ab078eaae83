"""From a piece's own grams to the store's features, rows sorted.

Two counting sorts, by feature and then by document, put every row in order in time linear in the nonzeros.
"""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel


@register_jitable
def _places(indptr, grams, order, sizes):
    """Where each gram's entries begin when grams lie in `order` (−1: left out), and the entries before each row."""
    at = np.full(sizes.size, -1, np.int32)  # a piece has fewer than 2^31 entries
    n = 0
    for gram in order:
        at[gram] = n
        n += sizes[gram]
    if n == grams.size:
        return at, indptr.copy()
    ends = np.zeros(indptr.size, np.int64)
    for d in range(indptr.size - 1):
        kept = 0
        for k in range(indptr[d], indptr[d + 1]):
            kept += at[grams[k]] >= 0
        ends[d + 1] = ends[d] + kept
    return at, ends


@register_jitable
def _closed_up(ends, to, indices, values):
    """Rows without the gaps that summing left: row d is [ends[d], to[d])."""
    final = np.zeros(ends.size, np.int64)
    n = 0
    for d in range(to.size):
        for k in range(ends[d], to[d]):
            indices[n] = indices[k]
            values[n] = values[k]
            n += 1
        final[d + 1] = n
    return final, indices[:n].copy(), values[:n].copy()


@kernel
def sort_rows(indptr, grams, counts, order, sizes, ids, packed, shift):
    """CSR in which entry (d, order[i]) has become (d, ids[i]); grams that are not in `order` are left out.

    order   grams by rising feature; ids their features (equal ones, neighbours then, have their counts summed)
    sizes   (grams,) entries of each gram
    packed  (nonzeros,) work space of an unsigned type that holds a row above `shift` bits and a whole count below
    Returns (indptr int64, indices like ids, counts like counts).
    """
    at, ends = _places(indptr, grams, order, sizes)
    kind = packed.dtype.type
    for d in range(indptr.size - 1):
        row = kind(d) << shift
        for k in range(indptr[d], indptr[d + 1]):
            place = at[grams[k]]
            if place >= 0:
                packed[place] = row | kind(counts[k])
                at[grams[k]] = place + 1
    size = ends[-1]
    indices, values = np.empty(size, ids.dtype), np.empty(size, counts.dtype)
    to = ends[:-1].copy()
    low = (kind(1) << shift) - kind(1)
    shared = False
    k = 0
    for i in range(order.size):
        feature = ids[i]
        end = at[order[i]]
        while k < end:
            d = int(packed[k] >> shift)
            place = to[d]
            if place > ends[d] and indices[place - 1] == feature:
                values[place - 1] += packed[k] & low
                shared = True
            else:
                indices[place] = feature
                values[place] = packed[k] & low
                to[d] = place + 1
            k += 1
    if shared:
        return _closed_up(ends, to, indices, values)
    return ends, indices, values


@kernel
def sort_real_rows(indptr, grams, counts, order, sizes, ids):
    """The same for counts that are real numbers."""
    at, ends = _places(indptr, grams, order, sizes)
    size = ends[-1]
    row_of, count_of = np.empty(size, np.int32), np.empty(size, counts.dtype)
    for d in range(indptr.size - 1):
        for k in range(indptr[d], indptr[d + 1]):
            place = at[grams[k]]
            if place >= 0:
                row_of[place] = d
                count_of[place] = counts[k]
                at[grams[k]] = place + 1
    indices, values = np.empty(size, ids.dtype), np.empty(size, counts.dtype)
    to = ends[:-1].copy()
    k = 0
    for i in range(order.size):
        end = at[order[i]]
        while k < end:
            place = to[row_of[k]]
            if place > ends[row_of[k]] and indices[place - 1] == ids[i]:
                values[place - 1] += count_of[k]
            else:
                indices[place] = ids[i]
                values[place] = count_of[k]
                to[row_of[k]] = place + 1
            k += 1
    return _closed_up(ends, to, indices, values)
