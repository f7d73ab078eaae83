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
from sparseoco.text.kernels.ngrams import (
    BLOCK_BITS,
    count_ngrams,
    distinct_keys,
    number_level,
    pack_ngrams,
    rename,
    sum_entries,
    write_numbers,
)
from sparseoco.text.kernels.terms import leading_bytes
from sparseoco.text.kernels.tokenize import tokenize_characters, tokenize_words
from sparseoco.text.tokenizer import TokenizerOptions

HASH_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""Seed of hash tables of tokens, random to prevent collision attacks; no result depends on it."""
_WORD_BITS = 64


class _Tokens(NamedTuple):
    """Tokens of documents by position: numbers in alphabetical order, and runs of them (see `kernels.ngrams`)."""

    names: pa.Array
    numbers: NDArray[np.int32]
    runs: NDArray[np.int64]
    row_runs: NDArray[np.int64]


def count_text(texts: Texts, options: TokenizerOptions) -> Arrays:
    """The n-grams of texts, and their counts."""
    tokens = _sorted_tokens(texts, options)
    shortest, longest = options.counted_from, options.ngram_range[1]
    numbers, keys = _number_ngrams(tokens, shortest, longest)
    sizes = [len(tokens.names), *(level.size for level in keys)]
    firsts = np.cumsum([0, *sizes])
    indptr, ngrams, counts = count_ngrams(
        numbers, shortest, firsts[shortest - 1 :], tokens.runs, tokens.row_runs, options.ngram_range[0], firsts[-1]
    )
    sums = sum_entries(ngrams, counts, firsts[-1])
    arrays: Arrays = {f"keys_{n}": level for n, level in enumerate(keys, 2)}
    arrays |= {"indptr": indptr, "ngrams": ngrams, "counts": smallest_dtype(counts)}
    for n, (first, end) in enumerate(itertools.pairwise(firsts.tolist()), 1):
        arrays[f"nodes_{n}"] = np.arange(first, end, dtype=np.int32)
        if n >= shortest:
            arrays[f"totals_{n}"] = sums[first:end, 0].copy()
            arrays[f"documents_{n}"] = sums[first:end, 1].copy()
    store_strings(arrays, "token", tokens.names)
    return arrays


def tokenize(
    texts: Texts, options: TokenizerOptions
) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """(distinct tokens, their numbers by position, runs, runs of each text), in order of first appearance."""
    clean, bounds = preprocess(texts, options)
    if options.counts_characters:
        numbers, runs, row_runs, data, offsets = tokenize_characters(clean, bounds, options.analyzer == "char_wb")
    else:
        numbers, runs, (data, offsets, *_) = tokenize_words(clean, bounds, keeps_singles(options), HASH_SEED)
        row_runs = np.arange(runs.size)
    return string_array(data, offsets), numbers, runs, row_runs


def keeps_singles(options: TokenizerOptions) -> bool:
    """Whether words of one character are tokens."""
    return options.pattern.shortest == 1 or options.pattern.folds_numbers


def _sorted_tokens(texts: Texts, options: TokenizerOptions) -> _Tokens:
    names, numbers, runs, row_runs = tokenize(texts, options)
    order = alphabetical_order(names)
    rename(numbers, inverse(order))
    return _Tokens(names.take(pa.array(order)), numbers, runs, row_runs)


def _number_ngrams(tokens: _Tokens, shortest: int, longest: int) -> tuple[NDArray[np.int32], list[NDArray[np.uint64]]]:
    """Number the n-grams of each length up to `longest` in alphabetical order.

    Returns the numbers by position, a row for each length from `shortest` on, and the key of each number for n ≥ 2.
    """
    token_bits, n_positions = max(1, len(tokens.names).bit_length()), tokens.numbers.size
    numbers = np.empty((longest - shortest + 1, n_positions), np.int32)
    if shortest == 1:
        numbers[0] = tokens.numbers
    prefixes, n_prefixes, n, keys = tokens.numbers, len(tokens.names), 1, list[NDArray[np.uint64]]()
    while n < longest:
        # As many tokens at once as a word of 64 bits has space for: characters are sorted once for all lengths.
        space = _WORD_BITS - n_positions.bit_length() - n_prefixes.bit_length()
        levels = max(1, min(longest - n, space // token_bits))
        sequences, pairs, ends = _sort_sequences(prefixes, n_prefixes, tokens, n + 1, levels, token_bits)
        sequence_numbers = np.empty(sequences.size, np.int32)
        np.right_shift(sequences, np.uint64(levels * token_bits), out=sequence_numbers, casting="unsafe")
        for following in reversed(range(levels)):
            n += 1
            keys.append(
                number_level(sequences, np.uint64(following * token_bits), np.uint64(token_bits), sequence_numbers)
            )
            if n >= shortest or following == 0:
                prefixes = numbers[n - shortest] if n >= shortest else np.empty(n_positions, np.int32)
                write_numbers(pairs, ends, sequence_numbers, prefixes)
        n_prefixes = keys[-1].size
    return numbers, keys


def _sort_sequences(
    prefixes: NDArray[np.int32], n_prefixes: int, tokens: _Tokens, n: int, levels: int, token_bits: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """The distinct sequences of a prefix of n − 1 tokens and up to `levels` tokens after it, in alphabetical order.

    Returns them as `pack_ngrams` packs them, without position; pairs (position, sequence) and ends (see
    `distinct_keys`). Sequences and positions are sorted as words of 64 bits, by ranges of prefixes if they have more.
    """
    position_bits = prefixes.size.bit_length()
    bits = np.uint64(token_bits), np.uint64(position_bits)
    step = 1 << (_WORD_BITS - levels * token_bits - position_bits)
    packed, pairs = np.empty(prefixes.size, np.uint64), np.empty(prefixes.size, np.uint64)
    ends = np.arange((prefixes.size >> BLOCK_BITS) + 1) << BLOCK_BITS
    n_sequences = 0
    for low in range(0, n_prefixes, step):
        free = packed[n_sequences:]
        words = free[: pack_ngrams(prefixes, tokens.numbers, tokens.runs, n, levels, low, low + step, *bits, free)]
        words.sort()
        base = np.uint64(low) << np.uint64(levels * token_bits)
        n_sequences += distinct_keys(words, base, bits[1], n_sequences, pairs, ends)
    return packed[:n_sequences].copy(), pairs, ends


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
