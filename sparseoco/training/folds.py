"""Folds by the group or the time of documents: pure functions of a column of the store, the seed and the fold.

By group, all documents of a group are in one fold. By time, the documents are cut into folds + 1 slices of about equal
size, equal times together: fold k holds out slice k + 1 and learns from the slices before it, never from later ones.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled
from sparseoco.core.errors import InputError
from sparseoco.learners.numerics import mix
from sparseoco.store.corpus import AnyCorpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Setting
from sparseoco.training.stream import NO_FOLD, FoldParts, Order

CHUNK: Final = 1 << 20  # entries of a column that are read at a time
SIGN: Final = np.int64(np.iinfo(np.int64).max)


def check_folds(store: Store, by: str | None) -> None:
    """Raises `InputError` if the store does not have the column that folds are assigned by."""
    if by is not None and by not in store.manifest.columns:
        raise InputError(
            f"{store.folder} has no column {by}, by which folds are assigned: ingest the text with {by}_field.",
            code="missing-column",
        )


def fold_order(setting: Setting, corpus: AnyCorpus) -> Order:
    """The order of a setting's stream, over the rows of its corpus."""
    if setting.fold == NO_FOLD or setting.folds_by is None:
        return setting.order
    column = corpus.column("group" if setting.folds_by == "group" else "time")
    assert column is not None
    parts = _Groups(column, setting) if setting.folds_by == "group" else _Times(column, setting)
    return setting.order._replace(parts=parts)


class _Groups(FoldParts):
    """The fold of a document is a hash of its group and the seed."""

    def __init__(self, column: NDArray[np.int64], setting: Setting) -> None:
        self._column, self._setting = column, setting

    def learned(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ~self.held_out(rows)

    def held_out(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        setting = self._setting
        return np.asarray(group_folds(self._column[rows], setting.seed, setting.folds) == setting.fold)


_bounds: dict[tuple[str, int], NDArray[np.float64]] = {}
"""The last times of slices, by the digest of the store and the number of slices."""


class _Times(FoldParts):
    """Slices of time."""

    def __init__(self, column: NDArray[np.float64], setting: Setting) -> None:
        self._column, self._setting = column, setting

    def learned(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self._slices(rows) <= self._setting.fold

    def held_out(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(self._slices(rows) == self._setting.fold + 1)

    def _slices(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.searchsorted(self._last, self._column[rows])

    @cached_property
    def _last(self) -> NDArray[np.float64]:
        key = self._setting.manifest, self._setting.folds
        if key not in _bounds:
            _bounds[key] = slice_bounds(self._column, self._setting.folds + 1)
        return _bounds[key]


def _group_folds(groups, seed, folds, out):  # type: ignore[no-untyped-def]
    own = mix(mix(np.uint64(seed)) ^ np.uint64(3))
    for i in range(groups.shape[0]):
        out[i] = np.int64(mix(own ^ np.uint64(groups[i])) % np.uint64(folds))


_group_folds_kernel = compiled(_group_folds, [])


def group_folds(groups: NDArray[np.int64], seed: int, folds: int) -> NDArray[np.int64]:
    """The fold of each group, 0 … folds − 1."""
    out = np.empty(len(groups), np.int64)
    _group_folds_kernel(np.ascontiguousarray(groups), seed, folds, out)
    return out


def slice_bounds(times: NDArray[np.float64], slices: int) -> NDArray[np.float64]:
    """(slices − 1,): the last time of each slice but the last one: the ⌈kn/slices⌉-th smallest for k = 1, 2, ….

    They are found by bisection over the bits of a float, each step a pass over the times, so that memory is bounded.
    """
    ranks = np.array([-(-k * len(times) // slices) for k in range(1, slices)])
    low, high = np.full(slices - 1, np.iinfo(np.int64).min), np.full(slices - 1, np.iinfo(np.int64).max)
    while (low < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # without overflow, rounded down
        below = np.zeros(slices - 1, np.int64)
        for start in range(0, len(times), CHUNK):
            part = np.sort(_ordered(times[start : start + CHUNK]))
            below += np.searchsorted(part, middle, side="right")
        enough = below >= ranks
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
    return _unordered(low)


def _ordered(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the floats."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, bits ^ SIGN, bits)


def _unordered(values: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(values < 0, values ^ SIGN, values).view(np.float64)
