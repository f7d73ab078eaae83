"""Which counted terms become features, and in which order: CountVectorizer's arithmetic, then ids by frequency."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.kernels.keys import rank_by_count
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.trie import Vocabulary


def select(
    totals: NDArray[np.int64],
    documents: NDArray[np.int64],
    first: int,
    trie: Callable[[], Vocabulary],
    rows: int,
    options: TextOptions,
) -> NDArray[np.int64]:
    """Choose and order the grams `first`, `first` + 1, … of the trie laid end to end, level by level.

    Returns the feature of each, or −1. Features go by total count, falling; equal counts by n, then alphabetically.
    Raises `InputError` where no term is left.
    """
    if documents.size == 0 or not documents.any():
        raise InputError("No document holds a term: every token must have at least two word characters.")
    low, high = _bounds(rows, options)
    if high < low:
        raise InputError(f"max_df asks for at most {high:g} documents and min_df for at least {low:g}: no term fits.")
    chosen = _frequent(documents, rows, options)
    if options.max_features is not None and np.count_nonzero(chosen) > options.max_features:
        chosen &= _most_frequent(totals, chosen, first, trie(), options.max_features)
    if not chosen.any():
        raise InputError("No term is left: lower min_df or raise max_df.")
    ids: NDArray[np.int64] = rank_by_count(totals, chosen)
    return ids


def select_more(
    known: NDArray[np.int64],
    size: int,
    totals: NDArray[np.int64],
    documents: NDArray[np.int64],
    first: int,
    trie: Callable[[], Vocabulary],
    rows: int,
    options: TextOptions,
) -> NDArray[np.int64]:
    """As `select`, for a vocabulary of `size` features that grows: `known` has the feature of each gram, or −1.

    Known grams stay what they are. Of the others those are chosen that pass min_df and max_df among these documents
    alone, as long as there is room under max_features; their ids follow after `size`. It is no error if there is none.
    """
    chosen = (known < 0) & _frequent(documents, rows, options)
    room = chosen.size if options.max_features is None else max(0, options.max_features - size)
    if np.count_nonzero(chosen) > room:
        chosen &= _most_frequent(totals, chosen, first, trie(), room)
    ranks = rank_by_count(totals, chosen)
    return np.where(chosen, ranks + size, known)


def _bounds(rows: int, options: TextOptions) -> tuple[float, float]:
    """Documents that a term of `rows` documents must at least, and may at most, be in."""
    low = options.min_df if isinstance(options.min_df, int) else options.min_df * rows
    high = options.max_df if isinstance(options.max_df, int) else options.max_df * rows
    return low, high


def _frequent(documents: NDArray[np.int64], rows: int, options: TextOptions) -> NDArray[np.bool_]:
    low, high = _bounds(rows, options)
    return (documents >= 1) & (documents <= high) & (documents >= low)


def _most_frequent(
    totals: NDArray[np.int64], chosen: NDArray[np.bool_], first: int, trie: Vocabulary, limit: int
) -> NDArray[np.bool_]:
    """The `limit` most frequent terms exactly as CountVectorizer takes them, ties included.

    It sorts with an unstable algorithm over the terms in alphabetical order, all lengths mixed: only the same sort of
    the same numbers breaks ties alike.
    """
    alphabetical = _mixed_order(trie, first)
    candidates = alphabetical[chosen[alphabetical]]
    kept = candidates[(-totals[candidates]).argsort()[:limit]]
    mask = np.zeros(totals.size, np.bool_)
    mask[kept] = True
    return mask


def _mixed_order(trie: Vocabulary, first: int) -> NDArray[np.int64]:
    """Grams from `first` on in alphabetical order over all levels: by first token, then second, none before any."""
    parents, lasts = trie.trie()
    sizes = [len(trie.tokens), *(keys.size for keys in trie.keys)]
    depth = len(sizes)
    columns: list[NDArray[np.int64]] = [np.zeros(parents.size - first, np.int64) for _ in range(depth)]
    begin = 0
    for n in range(1, depth + 1):
        size = sizes[n - 1]
        grams = np.arange(begin, begin + size)
        if begin >= first:
            at = grams
            for k in range(n - 1, -1, -1):
                columns[k][grams - first] = lasts[at].astype(np.int64) + 1
                at = parents[at]
        begin += size
    return np.lexsort(columns[::-1])
