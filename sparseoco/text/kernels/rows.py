"""From the n-grams of a split to the features of the store, with sorted rows."""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel


@register_jitable
def _bucket_starts(indptr, ngrams, order, sizes):
    """(start of each n-gram's entries if n-grams are laid out in `order`, or −1; number of entries before each row)."""
    starts = np.full(sizes.size, -1, np.int32)  # a split has fewer than 2^31 entries
    n = 0
    for ngram in order:
        starts[ngram] = n
        n += sizes[ngram]
    if n == ngrams.size:
        return starts, indptr.copy()
    row_starts = np.zeros(indptr.size, np.int64)
    for d in range(indptr.size - 1):
        selected = 0
        for k in range(indptr[d], indptr[d + 1]):
            selected += starts[ngrams[k]] >= 0
        row_starts[d + 1] = row_starts[d] + selected
    return starts, row_starts


@register_jitable
def _compact(row_starts, row_ends, indices, values):
    """Close the gaps between rows, which summing left: row d is [row_starts[d], row_ends[d])."""
    indptr = np.zeros(row_starts.size, np.int64)
    n = 0
    for d in range(row_ends.size):
        for k in range(row_starts[d], row_ends[d]):
            indices[n] = indices[k]
            values[n] = values[k]
            n += 1
        indptr[d + 1] = n
    return indptr, indices[:n].copy(), values[:n].copy()


@kernel
def sort_rows(indptr, ngrams, counts, order, sizes, ids):
    """CSR in which entry (d, order[i]) has become (d, ids[i]); n-grams that are not in `order` are dropped.

    Two counting sorts, by feature and then by document: linear in the number of entries.

    order   n-grams by increasing feature; ids their features. Counts of equal features, which are neighbours, are
            summed in this order.
    sizes   (n_ngrams,) number of entries of each n-gram
    Returns (indptr int64, indices like ids, counts like counts).
    """
    next_entry, row_starts = _bucket_starts(indptr, ngrams, order, sizes)
    size = row_starts[-1]
    entry_row, entry_count = np.empty(size, np.int32), np.empty(size, counts.dtype)
    for d in range(indptr.size - 1):
        for k in range(indptr[d], indptr[d + 1]):
            entry = next_entry[ngrams[k]]
            if entry >= 0:
                entry_row[entry] = d
                entry_count[entry] = counts[k]
                next_entry[ngrams[k]] = entry + 1
    indices, values = np.empty(size, ids.dtype), np.empty(size, counts.dtype)
    row_ends = row_starts[:-1].copy()
    summed = False
    k = 0
    for i in range(order.size):
        feature = ids[i]
        end = next_entry[order[i]]
        while k < end:
            d = entry_row[k]
            at = row_ends[d]
            if at > row_starts[d] and indices[at - 1] == feature:
                values[at - 1] += entry_count[k]
                summed = True
            else:
                indices[at] = feature
                values[at] = entry_count[k]
                row_ends[d] = at + 1
            k += 1
    if summed:
        return _compact(row_starts, row_ends, indices, values)
    return row_starts, indices, values
