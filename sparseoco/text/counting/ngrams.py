"""The n-grams of texts: the arrays of partial counts that `counting.partial_counts` describes."""

import itertools
import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import Arrays, store_strings, string_array, string_buffers
from sparseoco.text.counting.preprocess import preprocess
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.ngrams import count_ngrams, number_ngrams, pack_ngrams, rename, sum_entries
from sparseoco.text.kernels.terms import leading_bytes
from sparseoco.text.kernels.tokenize import tokenize_characters, tokenize_words
from sparseoco.text.tokenizer import TokenizerOptions

# Seed of the hash table of tokens, random to prevent collision attacks; no result depends on it.
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
_WORD_BITS = 64


class _Tokens(NamedTuple):
    """Tokens of documents by position: numbers in alphabetical order, and runs of them (see `kernels.ngrams`)."""

    names: pa.Array
    numbers: NDArray[np.int32]
    runs: NDArray[np.int64]
    row_runs: NDArray[np.int64]


def count_text(texts: Texts, options: TokenizerOptions) -> Arrays:
    """The n-grams of texts, and their counts."""
    tokens = _tokenize(texts, options)
    shortest, longest = options.counted_from, options.ngram_range[1]
    numbers = np.empty((longest - shortest + 1, tokens.numbers.size), np.int32)  # of the n-grams that are counted
    sizes, arrays = [len(tokens.names)], Arrays()
    level = tokens.numbers
    for n in range(1, longest + 1):
        counted = numbers[n - shortest] if n >= shortest else None
        if n > 1:
            target = counted if counted is not None else np.empty_like(level)
            arrays[f"keys_{n}"] = _number_ngrams(level, tokens, n, sizes[-1], target)
            sizes.append(arrays[f"keys_{n}"].size)
            level = target
        elif counted is not None:
            counted[:] = level
    firsts = np.cumsum([0, *sizes])
    indptr, ngrams, counts = count_ngrams(
        numbers, shortest, firsts[shortest - 1 :], tokens.runs, tokens.row_runs, options.ngram_range[0], firsts[-1]
    )
    sums = sum_entries(ngrams, counts, firsts[-1])
    arrays |= {"indptr": indptr, "ngrams": ngrams, "counts": smallest_dtype(counts)}
    for n, (first, end) in enumerate(itertools.pairwise(firsts.tolist()), 1):
        arrays[f"nodes_{n}"] = np.arange(first, end, dtype=np.int32)
        if n >= shortest:
            arrays[f"totals_{n}"] = sums[first:end, 0].copy()
            arrays[f"documents_{n}"] = sums[first:end, 1].copy()
    store_strings(arrays, "token", tokens.names)
    return arrays


def _tokenize(texts: Texts, options: TokenizerOptions) -> _Tokens:
    clean, bounds = preprocess(texts, options)
    if options.counts_characters:
        numbers, runs, row_runs, data, offsets = tokenize_characters(clean, bounds, options.analyzer == "char_wb")
    else:
        singles = options.pattern.shortest == 1 or options.pattern.folds_numbers
        numbers, runs, data, offsets = tokenize_words(clean, bounds, singles, _SEED)
        row_runs = np.arange(runs.size)
    names = string_array(data, offsets)
    order = alphabetical_order(names)
    rename(numbers, inverse(order))
    return _Tokens(names.take(pa.array(order)), numbers, runs, row_runs)


def _number_ngrams(
    prefixes: NDArray[np.int32], tokens: _Tokens, n: int, n_prefixes: int, numbers: NDArray[np.int32]
) -> NDArray[np.uint64]:
    """Number the n-grams of n tokens in alphabetical order; returns the key of each number.

    `prefixes` has the numbers of the n-grams of n − 1 tokens by position, and `numbers` receives those of the longer
    ones. Keys and positions are sorted as words of 64 bits, by ranges of prefixes if they have more.
    """
    token_bits, position_bits = len(tokens.names).bit_length(), prefixes.size.bit_length()
    step = 1 << (_WORD_BITS - token_bits - position_bits)
    bits = np.uint64(token_bits), np.uint64(position_bits)
    packed, keys = np.empty(prefixes.size, np.uint64), np.empty(prefixes.size, np.uint64)
    n_keys = 0
    for low in range(0, n_prefixes, step):
        words = packed[: pack_ngrams(prefixes, tokens.numbers, tokens.runs, n, low, low + step, *bits, packed)]
        words.sort()
        n_keys = number_ngrams(words, low, *bits, n_keys, keys, numbers)
    return keys[:n_keys].copy()


def named_counts(
    indptr: NDArray[np.int64], features: NDArray[np.int64], counts: NDArray[Any], names: pa.Array
) -> Arrays:
    """Counts of named features in CSR format: entry (d, features[k]) of the feature names[features[k]]."""
    order = alphabetical_order(names)
    arrays: Arrays = {
        "indptr": indptr,
        "ngrams": inverse(order).astype(np.int32)[features],
        "counts": counts,
        "nodes_1": np.arange(order.size, dtype=np.int32),
        "totals_1": np.empty(0, np.int64),
    }
    store_strings(arrays, "token", names.take(pa.array(order)))
    sum_totals(arrays)
    return arrays


def sum_totals(arrays: Arrays) -> None:
    """Set totals_<n> and documents_<n> from the entries.

    Totals of real values are sums of their integer parts; those of the fields that are numbers are their documents.
    """
    ngrams = arrays["ngrams"]
    totals = np.zeros(n_ngrams(arrays), np.int64)
    with np.errstate(invalid="ignore"):  # values beyond 64 bits
        np.add.at(totals, ngrams, arrays["counts"].astype(np.int64))
    documents = np.bincount(ngrams, minlength=totals.size)
    if "numbers" in arrays:
        totals[arrays["numbers"]] = documents[arrays["numbers"]]
    for n in counted_levels(arrays):
        arrays[f"totals_{n}"] = totals[arrays[f"nodes_{n}"]]
        arrays[f"documents_{n}"] = documents[arrays[f"nodes_{n}"]]


def all_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the n-grams of partial counts, including those that are only prefixes."""
    return _levels(arrays, "nodes_")


def counted_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the counted n-grams of partial counts."""
    return _levels(arrays, "totals_")


def _levels(arrays: Arrays, prefix: str) -> list[int]:
    return sorted(int(name.removeprefix(prefix)) for name in arrays if name.startswith(prefix))


def n_ngrams(arrays: Arrays) -> int:
    """Number of n-grams of partial counts, including those that are only prefixes."""
    return sum(arrays[f"nodes_{n}"].size for n in all_levels(arrays))


def alphabetical_order(strings: pa.Array) -> NDArray[np.int64]:
    """The positions of distinct strings sorted by their bytes, which is the order of code points."""
    leading = leading_bytes(*string_buffers(strings))
    order: NDArray[np.int64] = np.argsort(leading)
    equal = np.diff(leading[order]) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    # All bytes decide within runs of equal leading bytes; between runs the order is the same.
    among = pc.sort_indices(strings.take(pa.array(order[tied])).cast(pa.large_binary())).to_numpy()
    order[tied] = order[tied][among]
    return order


def inverse(order: NDArray[Any]) -> NDArray[np.int64]:
    """The inverse permutation: the rank of each element."""
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank


def smallest_dtype(counts: NDArray[Any]) -> NDArray[Any]:
    """Integer counts as uint8 or uint16 if all fit, else as they are."""
    largest = int(counts.max(initial=0))
    return counts.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else counts
