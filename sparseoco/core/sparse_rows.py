"""Checks of rows in CSR format before compiled code uses their numbers as positions in memory."""

from typing import Any

from numpy.typing import NDArray


def csr_fault(indptr: NDArray[Any], indices: NDArray[Any], n_rows: int, n_columns: int) -> str | None:
    """Why arrays are not those of a CSR matrix of this shape, as the end of a sentence; None if they are.

    Parameters
    ----------
    indptr : (n_rows + 1,) signed integers
        Where rows begin in `indices`, from 0 on, and the end of the last one.
    indices : signed integers
        The columns of the entries.
    """
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i":
        return f"row offsets are {indptr.dtype} and indices {indices.dtype}, not integers"
    if indptr.shape != (n_rows + 1,) or indices.ndim != 1:
        return f"there are not the offsets of {n_rows:,} rows"
    if indptr[0] != 0 or indptr[-1] != indices.size or (indptr[1:] < indptr[:-1]).any():
        return f"row offsets do not increase from 0 to the {indices.size:,} entries"
    return index_fault(indices, n_columns)


def index_fault(indices: NDArray[Any], size: int) -> str | None:
    """Why some integers are not indices below `size`, as the end of a sentence; None if they are."""
    if indices.dtype.kind not in "iu":
        return f"indices are {indices.dtype}, not integers"
    if indices.size and indices.view(f"u{indices.itemsize}").max() >= size:  # negative ones are large then
        return f"there is an index outside 0 … {size - 1}"
    return None


def increasing_fault(indices: NDArray[Any], size: int) -> str | None:
    """Why some integers are not increasing indices below `size`, as `index_fault`."""
    fault = index_fault(indices, size)
    return "indices do not increase" if fault is None and (indices[1:] <= indices[:-1]).any() else fault
