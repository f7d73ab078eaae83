"""Which n-grams become features, of new and of known ones."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import location
from sparseoco.store.entries import read_table, unlike_manifest
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import check_features
from sparseoco.text.array_files import (
    ArrayReader,
    Arrays,
    packed_strings,
    read_block,
    save_arrays,
    stored_strings,
    write_blocks,
)
from sparseoco.text.kernels.ngrams import HALF
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.exchange import Exchange, term_fields
from sparseoco.text.vocabulary.index import Vocabulary

# ----------------------------------------------------------------------------------------------------------------------
# The vocabulary of a store as a piece of an exchange.


def stage_known_terms(
    out: str, staging: str, entry: FileEntry, n_features: int, options: TextOptions
) -> tuple[str, int, list[int]]:
    """Stage the terms of a vocabulary file with their features, of which the store has `n_features`.

    Returns
    -------
    name : str
        The name of the staged file: the arrays of partial counts that n-grams are merged from, and known_<n>, the
        feature of each n-gram plus one, or 0.
    size : int
        The number of terms.
    sizes : list of int
        The number of terms of each text field, or of all without fields.
    """
    name = f"{entry.sha256[:32]}.known"
    target = location(staging) / name
    if not target.is_file():
        table = read_table(location(out), entry, columns=["feature", "term"])
        features = table["feature"].to_numpy()
        check_features(location(out) / entry.file, features, n_features)
        try:
            vocabulary = Vocabulary.from_terms(table["term"], options.naming)
        except ValueError as error:
            raise unlike_manifest(location(out) / entry.file, str(error)) from error
        arrays = packed_strings("token", vocabulary.tokens)
        arrays |= {f"keys_{n}": keys for n, keys in enumerate(vocabulary.keys, 2)}
        for n, rows in enumerate(vocabulary.ids, 1):
            arrays[f"known_{n}"] = np.where(rows < 0, 0, features[rows] + 1)
        sizes = [features.size]
        if options.naming.namespaces is not None:
            fields = term_fields(table["term"], options.naming)
            sizes = np.bincount(fields[fields >= 0], minlength=max(1, len(options.naming.namespaces))).tolist()
        save_arrays(target, arrays, {"size": features.size, "sizes": sizes})
    with ArrayReader(target) as file:
        return name, file.facts["size"], file.facts["sizes"]


# ----------------------------------------------------------------------------------------------------------------------
# Selection and order of features: the arithmetic of CountVectorizer, with ids by frequency.
#
# A range reports how many of its candidates have each count; their ids follow from these numbers, so that no task
# holds all terms.


class Selection(NamedTuple):
    """What the selection of terms depends on.

    Parameters
    ----------
    options : TextOptions
    n_documents : int
        New documents.
    n_known : int
        Features of the store, whose ids do not change.
    known_sizes : tuple of int
        Those of each text field, or of all without fields.
    extends : bool
        Whether new terms become features.
    real : bool
        Whether counts are real values, whose sums would not be counts: terms are in order of their documents.
    """

    options: TextOptions
    n_documents: int
    n_known: int
    known_sizes: tuple[int, ...]
    extends: bool
    real: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """The fewest and the most documents of a term."""
        low, high = (
            bound if isinstance(bound, int) else bound * self.n_documents
            for bound in (self.options.min_df, self.options.max_df)
        )
        return low, high

    @property
    def limits(self) -> list[int] | None:
        """The most new terms of each text field, or of all without fields."""
        most = self.options.max_features
        return None if most is None else [max(0, most - size) for size in self.known_sizes]


class RangeTerms(NamedTuple):
    """The counted n-grams of a range, level by level.

    Parameters
    ----------
    counts, documents, known : ndarray of int
        Occurrences (or documents, see `Selection`), documents, and the feature of the store plus one, or 0.
    levels : ndarray of int8
        Their lengths.
    groups : ndarray of int16
        The text field, which limits apply to, 0 without fields; −1 for categories and numbers, which are all selected.
    """

    counts: NDArray[np.int64]
    documents: NDArray[np.int64]
    known: NDArray[np.int64]
    levels: NDArray[np.int8]
    groups: NDArray[np.int16]

    def candidates(self, selection: Selection) -> NDArray[np.bool_]:
        """The new terms that pass min_df and max_df."""
        if not selection.extends:
            return np.zeros(self.counts.size, np.bool_)
        low, high = selection.bounds
        passed = (self.documents >= max(1, low)) & (self.documents <= high)
        allowed: NDArray[np.bool_] = np.where(self.groups < 0, self.documents > 0, passed) & (self.known == 0)
        return allowed


def n_levels(merged: Arrays) -> int:
    """The length of the longest n-grams."""
    return sum(name.startswith("keys_") for name in merged)


def range_terms(exchange: Exchange, selection: Selection, number: int, merged: Arrays) -> RangeTerms:
    """The counted n-grams of a range."""
    levels = range(exchange.counted_from, n_levels(merged) + 1)
    sizes = [merged[f"keys_{n}"].size for n in levels]

    def joined(what: str) -> NDArray[np.int64]:
        zeros = (np.zeros(size, np.int64) for size in sizes)
        parts = [merged.get(f"{what}_{n}", zero) for n, zero in zip(levels, zeros, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    documents = joined("documents")
    lengths = np.repeat(np.array(levels, np.int8), sizes)
    groups = np.zeros(documents.size, np.int16)
    if selection.options.naming.namespaces is not None:
        tokens = stored_strings(read_block(exchange.path("range-tokens", number), 0), "token")
        fields = [term_fields(tokens, selection.options.naming)]  # of the range's tokens, then of longer n-grams
        for n in range(2, n_levels(merged) + 1):
            fields.append(fields[-1][(merged[f"keys_{n}"] >> HALF).astype(np.int64)])
        groups = np.concatenate(fields[exchange.counted_from - 1 :]).astype(np.int16)
    counts = documents if selection.real else joined("totals")
    return RangeTerms(counts, documents, joined("known"), lengths, groups)


def describe_range(exchange: Exchange, selection: Selection, number: int, merged: Arrays) -> Arrays:
    """What `choose_features` needs of a range: the number of candidates, `sizes`, of each group, count and level, and
    of all n-grams that occur."""
    terms = range_terms(exchange, selection, number, merged)
    own = terms.candidates(selection)
    described = _sizes(terms.groups[own], terms.counts[own], terms.levels[own])
    return described | {"occurring": np.array([np.count_nonzero(terms.documents)])}


def _sizes(groups: NDArray[np.int16], counts: NDArray[np.int64], levels: NDArray[np.int8]) -> Arrays:
    """The number of terms of each group, level and count: groups, counts, levels and sizes, all int64."""
    rows = [np.empty((4, 0), np.int64)]
    for group in range(groups.min(initial=0), groups.max(initial=0) + 1):
        for level in range(1, levels.max(initial=0) + 1):
            own, sizes = np.unique(counts[(groups == group) & (levels == level)], return_counts=True)
            rows.append(np.stack([np.full(own.size, group), own, np.full(own.size, level), sizes]))
    return dict(zip(("groups", "counts", "levels", "sizes"), np.concatenate(rows, axis=1), strict=True))


def choose_features(exchange: Exchange, selection: Selection, new: bool) -> int:
    """Number the terms of all ranges by decreasing count, then length, then in alphabetical order.

    With `max_features` the first terms of each group in this order are selected.

    Writes a block for each range, which `chosen_terms` reads. `new` says that there is no store yet.

    Returns
    -------
    int
        The number of features.

    Raises
    ------
    InputError
        If no term of a new vocabulary is left.
    """
    histograms = [read_block(exchange.path("range-ngrams", r), 0) for r in range(exchange.n_ranges)]
    if new and not any(histogram["occurring"][0] for histogram in histograms):
        raise InputError(
            "No document has a term: none of its text is a token (token_pattern, stop_words, ngram_range).",
            code="empty-vocabulary",
        )
    low, high = selection.bounds
    if new and high < low:
        raise InputError(
            f"max_df allows at most {high:g} documents, min_df at least {low:g}: no term passes both.",
            code="empty-vocabulary",
        )
    groups, counts, levels, sizes = (
        np.concatenate([histogram[name] for histogram in histograms])
        for name in ("groups", "counts", "levels", "sizes")
    )
    ranges = np.repeat(np.arange(exchange.n_ranges), [histogram["sizes"].size for histogram in histograms])
    order = np.lexsort((ranges, levels, -counts))
    for group, limit in enumerate(selection.limits or []):
        own = order[groups[order] == group]
        before = np.cumsum(sizes[own]) - sizes[own]
        sizes[own] = np.clip(limit - before, 0, sizes[own])
    if new and not sizes.any():
        raise InputError("No term is left: decrease min_df or increase max_df.", code="empty-vocabulary")
    first = np.empty(sizes.size, np.int64)
    first[order] = selection.n_known + np.cumsum(sizes[order]) - sizes[order]
    order = order[np.argsort(ranges[order], kind="stable")]
    ends = np.cumsum(np.bincount(ranges, minlength=exchange.n_ranges))
    with write_blocks(exchange.path("chosen"), exchange.n_ranges) as write:
        for own in np.split(order, ends[:-1]):
            write({"first": first[own], "sizes": sizes[own], "groups": groups[own]})
    return selection.n_known + int(sizes.sum())


def chosen_terms(
    exchange: Exchange, selection: Selection, number: int, terms: RangeTerms
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(the new terms of a range by increasing feature id, these ids)."""
    block = read_block(exchange.path("chosen"), number)
    sizes = block["sizes"]
    positions = np.flatnonzero(terms.candidates(selection))
    positions = positions[np.argsort(-terms.counts[positions], kind="stable")]  # shorter terms are first already
    for group in range(len(selection.limits or [])):
        own = np.flatnonzero(terms.groups[positions] == group)
        positions = np.delete(positions, own[sizes[block["groups"] == group].sum() :])
    begins = np.cumsum(sizes) - sizes
    return positions, np.repeat(block["first"] - begins, sizes) + np.arange(positions.size)
