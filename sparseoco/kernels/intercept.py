"""Rows with an intercept: one more feature, with value 1 in every row, after the row's own."""

import numpy as np

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels.structs import Rows


def append_feature(indptr, indices, values, feature):
    """CSR arrays of these rows with `feature` as the last of each, value 1; `indptr` may start anywhere."""
    rows = indptr.size - 1
    out_indptr = np.empty(rows + 1, np.int64)
    out_indices = np.empty(indices.size + rows, indices.dtype)
    out_values = np.empty(values.size + rows, values.dtype)
    out_indptr[0] = to = 0
    for i in range(rows):
        for k in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            out_indices[to] = indices[k]
            out_values[to] = values[k]
            to += 1
        out_indices[to] = feature
        out_values[to] = 1
        to += 1
        out_indptr[i + 1] = to
    return out_indptr, out_indices, out_values


_APPEND = compiled(append_feature, [], restrict=True)


def with_intercept(rows: Rows, feature: int) -> Rows:
    """Rows with the intercept, the feature of this number."""
    indices = rows.indices
    if feature > np.iinfo(indices.dtype).max:
        indices = indices.astype(np.int64)
    return Rows(*_APPEND(rows.indptr, indices, rows.values, feature))
