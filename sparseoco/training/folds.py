"""Folds by row, group or time, and parts of a stream that are averaged."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.columns import RowBatch
from sparseoco.learners.numerics import mix
from sparseoco.store.corpus import Corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Setting
from sparseoco.training.learner import Learner
from sparseoco.training.stream import NO_FOLD, START, DerivedRows, Order, Passes, RowSource, StreamPosition
from sparseoco.training.validation import chunk_rows

# ----------------------------------------------------------------------------------------------------------------------
# Folds by the group or the time of documents: pure functions of a column of the store, the seed and the fold.
#
# By group, all documents of a group are in one fold. By time, the documents are cut into folds + 1 slices of about
# equal size, equal times together: fold k holds out slice k + 1 and learns from the slices before it, never from later
# ones.


def check_folds(store: Store, by: str | None) -> None:
    """Raises `InputError` if the store does not have the column that folds are assigned by."""
    if by is not None and by not in store.manifest.columns:
        raise InputError(
            f"{store.folder} has no column {by}, by which folds are assigned: ingest the text with {by}_field.",
            code="missing-column",
        )


_bounds: dict[tuple[str, int], NDArray[np.float64]] = {}
"""The last times of slices, by the digest of the store and the number of folds."""


def fold_order(setting: Setting, corpus: Corpus) -> Order:
    """The order of a setting's stream, over the rows of its corpus."""
    if setting.fold == NO_FOLD or setting.folds_by is None:
        return setting.order
    column = corpus.column(setting.folds_by)
    assert column is not None
    if setting.folds_by == "group":
        return setting.order._replace(fold_of=lambda rows: group_folds(column[rows], setting.seed, setting.folds))
    key = setting.manifest, setting.folds
    if key not in _bounds:
        _bounds[key] = slice_bounds(column, setting.folds + 1)
    return setting.order._replace(fold_of=lambda rows: np.searchsorted(_bounds[key], column[rows]) - 1, by_time=True)


def passes_of(
    setting: Setting,
    corpus: Corpus,
    goal: StreamPosition,
    start: StreamPosition = START,
    marks: Sequence[int] = (),
    learner: Learner | None = None,
) -> Passes:
    """The passes of a setting over its corpus, in chunks that suit the learner if it is given."""
    size = None if learner is None else chunk_rows(learner.algorithm, learner.n_features, learner.n_columns)
    return Passes(fold_order(setting, corpus), goal, start, marks, setting.class_weights, size)


def group_folds(groups: NDArray[np.int64], seed: int, folds: int) -> NDArray[np.int64]:
    """The fold of each group, 0 … folds − 1: a hash of the group and the seed."""
    with np.errstate(over="ignore"):  # of hashes
        hashes = mix(mix(mix(np.uint64(seed)) ^ np.uint64(3)) ^ groups.astype(np.uint64))
    return np.asarray(hashes % np.uint64(folds)).astype(np.int64)


def slice_bounds(times: NDArray[np.float64], slices: int) -> NDArray[np.float64]:
    """(slices − 1,): the last time of each slice but the last one: the ⌈kn/slices⌉-th smallest for k = 1, 2, …."""
    ranks = np.array([-(-k * len(times) // slices) for k in range(1, slices)])
    return np.asarray(np.partition(times, ranks - 1)[ranks - 1])


# ----------------------------------------------------------------------------------------------------------------------
# Iterative parameter mixing: K learners on K disjoint parts of every epoch, averaged after it.
#
# Part p of an epoch is the positions ⌊np/K⌋ … ⌊n(p + 1)/K⌋ of its stream of n rows. Feature j then has the weight
#
#     w_j = Σ_p n_{p,j} w_{p,j} / Σ_p n_{p,j},
#
# where n_{p,j} is the number of rows of part p that have it; one that no part has seen keeps its weight, and the
# intercept is in every row. All parts of the next epoch start from these weights (`Learner.start_from`), at the mean
#     of
# their rounds. Sums run in the order of the parts, so that bits depend on K and the order of the stream only.
#
# References
# ----------
# McDonald, Hall and Mann 2010, "Distributed training strategies for the structured perceptron", §3.2.
# Agarwal, Chapelle, Dudík and Langford 2014, "A reliable effective terascale linear learning system", §2.2, who
#     average
# the weights of a feature by what each part has seen of it.


Floats = NDArray[np.floating]


def part_span(n_rows: int, parts: int, part: int) -> tuple[int, int]:
    """Positions start..stop of a part, numbered from 0, in an epoch."""
    return n_rows * part // parts, n_rows * (part + 1) // parts


class CountedRows(DerivedRows):
    """Rows of a source; `counts` (features,) int64 are the rows that were read from it with each feature."""

    def __init__(self, source: RowSource, n_features: int) -> None:
        super().__init__(source)
        self.counts = np.zeros(n_features, np.int64)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        np.add.at(self.counts, batch.indices, 1)
        return batch


class WeightAverage:
    """The weights of parts, averaged by the counts of each feature; one part is in memory at a time.

    Parameters
    ----------
    before : (features, columns)
        The weights of features that no part has seen; they become the average. Sums are float64.
    """

    def __init__(self, before: Floats) -> None:
        self._before = before
        self._sums = np.zeros(before.shape, np.float64)
        self._counts = np.zeros(len(before), np.int64)

    def add(self, features: NDArray[np.int64], counts: NDArray[np.int64], weights: Floats) -> None:
        """Add the next part: the features (seen,) of its rows, in how many rows each is, weights (seen, columns)."""
        self._sums[features] += counts[:, None] * weights.astype(np.float64)
        self._counts[features] += counts

    def weights(self) -> Floats:
        """(features, columns): the average."""
        seen = self._counts > 0
        self._before[seen] = self._sums[seen] / self._counts[seen, None]
        return self._before
