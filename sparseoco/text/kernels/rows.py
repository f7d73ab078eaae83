"""From a piece's own grams to the store's features, rows sorted."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def transpose_twice(indptr, grams, counts, column, ids):
    """CSR with columns in order: entry (d, gram) becomes (d, ids[column[gram]]); a column below 0 is left out.

    ids rises (columns may share an id: their counts are summed). Two counting sorts, by column and then by row, put
    every row in order in time linear in the nonzeros.
    Returns (indptr int64, indices like ids, counts like counts).
    """
    rows = indptr.size - 1
    starts = np.zeros(ids.size + 1, np.int64)
    ends = np.zeros(rows + 1, np.int64)
    for d in range(rows):
        n = 0
        for k in range(indptr[d], indptr[d + 1]):
            c = column[grams[k]]
            if c >= 0:
                starts[c + 1] += 1
                n += 1
        ends[d + 1] = ends[d] + n
    for c in range(ids.size):
        starts[c + 1] += starts[c]
    size = ends[rows]
    row_of = np.empty(size, np.int32)
    count_of = np.empty(size, counts.dtype)
    at = starts[:-1].copy()
    for d in range(rows):
        for k in range(indptr[d], indptr[d + 1]):
            c = column[grams[k]]
            if c >= 0:
                place = at[c]
                row_of[place] = d
                count_of[place] = counts[k]
                at[c] = place + 1
    indices = np.empty(size, ids.dtype)
    values = np.empty(size, counts.dtype)
    to = ends[:-1].copy()
    shared = False
    for c in range(ids.size):
        for k in range(starts[c], starts[c + 1]):
            d = row_of[k]
            place = to[d]
            if place > ends[d] and indices[place - 1] == ids[c]:
                values[place - 1] += count_of[k]
                shared = True
            else:
                indices[place] = ids[c]
                values[place] = count_of[k]
                to[d] = place + 1
    if not shared:
        return ends, indices, values
    final = np.zeros(rows + 1, np.int64)
    n = 0
    for d in range(rows):
        for k in range(ends[d], to[d]):
            indices[n] = indices[k]
            values[n] = values[k]
            n += 1
        final[d + 1] = n
    return final, indices[:n].copy(), values[:n].copy()
