"""Labels: of documents that have any number of classes each, and how many outputs a model of them has."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class LabelSets:
    """The classes of consecutive documents, in CSR format.

    Parameters
    ----------
    indptr : (rows + 1,) int64
        Where documents begin in `classes`.
    classes : int32
        Class indices, increasing within a document.
    """

    indptr: NDArray[np.int64]
    classes: NDArray[np.int32]

    def __len__(self) -> int:
        """Number of documents."""
        return int(self.indptr.size - 1)

    def indicator(self, n_classes: int) -> NDArray[np.bool_]:
        """(rows, n_classes): whether a document has a class."""
        indicator = np.zeros((len(self), n_classes), np.bool_)
        indicator[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.classes] = True
        return indicator

    def matrix(self, n_classes: int) -> csr_matrix:
        """The indicator as a sparse matrix of ones, int8."""
        ones = np.ones(self.classes.size, np.int8)
        return csr_matrix((ones, self.classes, self.indptr), shape=(len(self), n_classes))

    @classmethod
    def concatenate(cls, parts: "list[LabelSets]") -> "LabelSets":
        """The documents of all parts, in order."""
        sizes = [np.diff(part.indptr) for part in parts]
        indptr = np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum()
        return cls(indptr, np.concatenate([np.empty(0, np.int32), *(part.classes for part in parts)]))


def n_outputs(classes: int, *, label_sets: bool) -> int:
    """Columns of weights: one per class; of two classes, of which each document has one, and for numbers one."""
    return classes if classes > 2 or label_sets else 1
