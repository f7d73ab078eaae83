"""From the n-grams of a split to rows of features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.array_files import Arrays
from sparseoco.text.kernels.keys import LOW
from sparseoco.text.kernels.rows import sort_rows
from sparseoco.text.options import TextOptions

INT32_FEATURES = 2**31


def encode_rows(
    arrays: Arrays, features: NDArray[np.int64], n_features: int, options: TextOptions
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """The documents of partial counts as rows of features.

    Parameters
    ----------
    arrays : Arrays
        Partial counts.
    features : ndarray of int64
        The feature of each n-gram, or −1.
    n_features : int
        The indices are int32 up to 2^31 features, int64 beyond.

    Returns
    -------
    indptr, indices, counts
        CSR; feature ids increase within a row, and counts of n-grams with equal ids are summed.

    Raises
    ------
    InputError
        For a sum of counts beyond 32 bits.
    """
    indptr, ngrams, counts = arrays["indptr"], arrays["ngrams"], arrays["counts"]
    features = features.astype(np.int32 if n_features <= INT32_FEATURES else np.int64)
    if options.hash_bits is not None and counts.dtype == np.float64:
        # Sums of real values depend on their order: alphabetical, as the numbers of n-grams.
        indptr, ngrams, counts = sort_rows(
            indptr, ngrams, counts, np.arange(features.size, dtype=np.int32), features.size
        )
    elif options.hash_bits is not None:
        counts = counts.astype(np.uint32)  # wide enough for sums
        if int(counts.max(initial=0)) * int(np.diff(indptr).max(initial=0)) > LOW:
            _, _, sums = sort_rows(indptr, ngrams, counts.astype(np.float64), features, n_features)
            if sums.max(initial=0) > LOW:
                raise InputError(
                    "Terms of one document with the same hash have a total count above 2^32 − 1; increase hash_bits.",
                    code="count-overflow",
                )
    indptr, indices, values = sort_rows(indptr, ngrams, counts, features, n_features)
    return indptr, indices, values
