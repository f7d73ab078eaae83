"""Counts of the terms of documents: n-grams and fields of a split, before a vocabulary is known."""

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.text import array_files
from sparseoco.text.array_files import Arrays
from sparseoco.text.documents import LABEL_LISTS, BadRow, CountedDocuments, Documents, Labels, Texts, is_missing
from sparseoco.text.formats import UNLABELLED
from sparseoco.text.kernels import ngrams as ngram_kernels
from sparseoco.text.kernels import preprocess as kernels
from sparseoco.text.kernels import tokenize as token_kernels
from sparseoco.text.options import (
    NUMBER,
    NUMBERS,
    NumberField,
    TextField,
    TextOptions,
    TokenizerOptions,
    VectorField,
    namespace,
)
from sparseoco.text.passes import TextJob, retain_freed_memory
from sparseoco.text.splits import Content, Split, read_split

# ----------------------------------------------------------------------------------------------------------------------
# From documents to tokens: lower case, accents, word characters and white space as in scikit-learn.


_WHITE_SPACE = re.compile(r"\s\s+")
Tokens = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _characters(texts: Texts, options: TokenizerOptions) -> Tokens:
    """The documents with the white space of scikit-learn's analyzers, each followed by a zero."""
    normalized = []
    for d in range(texts.starts.size):
        text = _normalize(texts, d, options)
        if options.analyzer == "char":
            text = _WHITE_SPACE.sub(" ", text)
        else:
            words = text.split()
            text = f" {' '.join(words)} " if words else ""
        normalized.append(text.encode() + b"\0")
    bounds = np.cumsum([0, *map(len, normalized)], dtype=np.int64)
    return np.frombuffer(b"".join([*normalized, bytes(kernels.SLACK)]), np.uint8), bounds


def _words(texts: Texts, options: TokenizerOptions) -> Tokens:
    """The words. The kernel lower-cases ASCII.

    Documents with other capitals go through `str.lower`, whose result can depend on neighbouring letters (final sigma)
    and be longer than its source (İ).
    """
    pattern = options.pattern
    changed = kernels.contain_any(*texts, _changed_points(options.lowercase, options.strip_accents is not None))
    others = np.flatnonzero(changed)
    normalized = [_normalize(texts, d, options).encode() for d in others.tolist()]
    starts, stops = texts.starts.copy(), texts.stops.copy()
    bounds = texts.data.size + np.cumsum([0, *map(len, normalized)])
    starts[others], stops[others] = bounds[:-1], bounds[1:]
    data = np.concatenate([texts.data, np.frombuffer(b"".join(normalized), np.uint8)])
    words = _code_points(np.strings.isalnum)
    clean, ends = kernels.preprocess(data, starts, stops, ~changed & options.lowercase, words)
    if pattern.joiners:
        joiners = np.zeros(token_kernels.N_CODE_POINTS, np.bool_)
        joiners[[ord(character) for character in pattern.joiners]] = True
        every = np.ones(token_kernels.N_CODE_POINTS, np.bool_)
        neighbours = _code_points(np.strings.isdecimal) if pattern.folds_numbers else every
        token_kernels.keep_joiners(data, starts, stops, joiners, neighbours, clean, ends)
    return clean, ends


def _normalize(texts: Texts, d: int, options: TokenizerOptions) -> str:
    """A document in lower case and without accents, as the options say."""
    text = texts.data[texts.starts[d] : texts.stops[d]].tobytes().decode()
    text = text.lower() if options.lowercase else text
    if options.strip_accents is None or text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text)
    if options.strip_accents == "ascii":
        return text.encode("ascii", "ignore").decode()
    return "".join(character for character in text if not unicodedata.combining(character))


_CAPITALS_END = 0x20000  # beyond, no character has another one in lower case


@cache
def _changed_points(lowercase: bool, strip_accents: bool) -> NDArray[np.bool_]:
    """(N_CODE_POINTS,): the characters beyond ASCII that Python may replace."""
    changed = np.full(token_kernels.N_CODE_POINTS, strip_accents)
    if lowercase:
        changed[:_CAPITALS_END] |= [chr(point).lower() != chr(point) for point in range(_CAPITALS_END)]
    return changed


@cache
def _code_points(is_kind: Callable[[NDArray[np.str_]], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """(N_CODE_POINTS,): the characters of a kind. `np.strings.isalnum` is `\\w` beyond ASCII, `isdecimal` is `\\d`."""
    return is_kind(np.arange(token_kernels.N_CODE_POINTS, dtype=np.uint32).view("U1"))


# ----------------------------------------------------------------------------------------------------------------------
# The n-grams of texts: the arrays of partial counts that `counting.partial_counts` describes.


HASH_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""Seed of hash tables of tokens, random to prevent collision attacks; no result depends on it."""
_WORD_BITS = 64


def count_text(texts: Texts, options: TokenizerOptions) -> Arrays:
    """The n-grams of texts, and their counts."""
    names, numbers, runs, row_runs = tokenize(texts, options)
    order = alphabetical_order(names)
    numbers = inverse(order).astype(np.int32)[numbers]
    shortest, longest = options.counted_from, options.ngram_range[1]
    levels, keys = _number_ngrams(numbers, len(names), runs, shortest, longest)
    sizes = [len(names), *(level.size for level in keys)]
    firsts = np.cumsum([0, *sizes])
    indptr, ngrams, counts = ngram_kernels.count_ngrams(
        levels, shortest, firsts[shortest - 1 :], runs, row_runs, options.ngram_range[0], firsts[-1]
    )
    sums = ngram_kernels.sum_entries(ngrams, counts, firsts[-1])
    arrays: Arrays = {f"keys_{n}": level for n, level in enumerate(keys, 2)}
    arrays |= {"indptr": indptr, "ngrams": ngrams, "counts": smallest_dtype(counts)}
    for n in range(shortest, longest + 1):
        arrays[f"totals_{n}"], arrays[f"documents_{n}"] = sums[firsts[n - 1] : firsts[n]].T.copy()
    return arrays | array_files.packed_strings("token", names.take(pa.array(order)))


class TokenRuns(NamedTuple):
    """Distinct tokens in order of first appearance, their numbers by position, runs, and the runs of each text.

    N-grams do not leave a run (see `kernels.ngrams`).
    """

    names: pa.Array
    numbers: NDArray[np.int32]
    runs: NDArray[np.int64]
    row_runs: NDArray[np.int64]


def tokenize(texts: Texts, options: TokenizerOptions) -> TokenRuns:
    """The tokens of texts."""
    if options.counts_characters:
        clean, bounds = _characters(texts, options)
        numbers, runs, row_runs, data, offsets = token_kernels.tokenize_characters(
            clean, bounds, options.analyzer == "char_wb"
        )
        return TokenRuns(array_files.string_array(data, offsets), numbers, runs, row_runs)
    clean, bounds = _words(texts, options)
    singles = options.pattern.shortest == 1 or options.pattern.folds_numbers  # words of one character
    numbers, runs, data, offsets = token_kernels.tokenize_words(clean, bounds, singles, HASH_SEED)
    tokens = TokenRuns(array_files.string_array(data, offsets), numbers, runs, np.arange(runs.size))
    return _select_tokens(tokens, options)


def _select_tokens(tokens: TokenRuns, options: TokenizerOptions) -> TokenRuns:
    """Fold numbers, and remove stop words and words of too few or too many characters."""
    if not (options.stop_words or options.max_token_length or options.pattern.folds_numbers):
        return tokens
    names, numbers, runs, row_runs = tokens
    sizes = pc.utf8_length(names).to_numpy()
    kept = (sizes >= options.pattern.shortest) & (sizes <= (options.max_token_length or np.inf))
    if options.pattern.folds_numbers:
        folded = np.array([re.fullmatch(NUMBERS, name) is not None for name in names.to_pylist()], np.bool_)
        names, kept = pc.if_else(pa.array(folded), pa.scalar(NUMBER, names.type), names), kept | folded
    kept &= ~np.asarray(pc.is_in(names, value_set=pa.array(options.stop_list, names.type)))
    chosen = names.filter(pa.array(kept)).dictionary_encode()
    places = np.full(len(names), -1, np.int32)
    places[kept] = chosen.indices.to_numpy()
    numbers = places[numbers]
    counted = numbers >= 0
    return TokenRuns(chosen.dictionary, numbers[counted], np.concatenate([[0], np.cumsum(counted)])[runs], row_runs)


def _number_ngrams(
    tokens: NDArray[np.int32], n_tokens: int, runs: NDArray[np.int64], shortest: int, longest: int
) -> tuple[NDArray[np.int32], list[NDArray[np.uint64]]]:
    """Number the n-grams of each length up to `longest` in alphabetical order, as the tokens are.

    Returns the numbers by position, a row for each length from `shortest` on, and the key of each number for n ≥ 2.
    """
    token_bits, n_positions = max(1, n_tokens.bit_length()), tokens.size
    numbers = np.empty((longest - shortest + 1, n_positions), np.int32)
    if shortest == 1:
        numbers[0] = tokens
    prefixes, n_prefixes, n, keys = tokens, n_tokens, 1, list[NDArray[np.uint64]]()
    while n < longest:
        # As many tokens at once as a word of 64 bits has space for: characters are sorted once for all lengths.
        space = _WORD_BITS - n_positions.bit_length() - n_prefixes.bit_length()
        levels = max(1, min(longest - n, space // token_bits))
        sequences, pairs, ends = _sort_sequences(prefixes, n_prefixes, tokens, runs, n + 1, levels, token_bits)
        sequence_numbers = np.empty(sequences.size, np.int32)
        np.right_shift(sequences, np.uint64(levels * token_bits), out=sequence_numbers, casting="unsafe")
        for following in reversed(range(levels)):
            n += 1
            keys.append(
                ngram_kernels.number_level(
                    sequences, np.uint64(following * token_bits), np.uint64(token_bits), sequence_numbers
                )
            )
            if n >= shortest or following == 0:
                prefixes = numbers[n - shortest] if n >= shortest else np.empty(n_positions, np.int32)
                ngram_kernels.write_numbers(pairs, ends, sequence_numbers, prefixes)
        n_prefixes = keys[-1].size
    return numbers, keys


def _sort_sequences(
    prefixes: NDArray[np.int32],
    n_prefixes: int,
    tokens: NDArray[np.int32],
    runs: NDArray[np.int64],
    n: int,
    levels: int,
    token_bits: int,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """The distinct sequences of a prefix of n − 1 tokens and up to `levels` tokens after it, in alphabetical order.

    Returns them as `pack_ngrams` packs them, without position; pairs (position, sequence) and ends (see
    `distinct_keys`). Sequences and positions are sorted as words of 64 bits, by ranges of prefixes if they have more.
    """
    position_bits = prefixes.size.bit_length()
    bits = np.uint64(token_bits), np.uint64(position_bits)
    step = 1 << (_WORD_BITS - levels * token_bits - position_bits)
    packed, pairs = np.empty(prefixes.size, np.uint64), np.empty(prefixes.size, np.uint64)
    ends = np.arange((prefixes.size >> ngram_kernels.BLOCK_BITS) + 1) << ngram_kernels.BLOCK_BITS
    n_sequences = 0
    for low in range(0, n_prefixes, step):
        free = packed[n_sequences:]
        words = free[: ngram_kernels.pack_ngrams(prefixes, tokens, runs, n, levels, low, low + step, *bits, free)]
        words.sort()
        base = np.uint64(low) << np.uint64(levels * token_bits)
        n_sequences += ngram_kernels.distinct_keys(words, base, bits[1], n_sequences, pairs, ends)
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
        "totals_1": np.empty(0, np.int64),
        **array_files.packed_strings("token", names.take(pa.array(order))),
    }
    sum_totals(arrays)
    return arrays


def sum_totals(arrays: Arrays) -> None:
    """Set totals_<n> and documents_<n> from the entries.

    Totals of real values are sums of their integer parts; those of the fields that are numbers are their documents.
    """
    ngrams, bounds = arrays["ngrams"], level_bounds(arrays)
    totals = np.zeros(bounds[-1], np.int64)
    with np.errstate(invalid="ignore"):  # values beyond 64 bits
        np.add.at(totals, ngrams, arrays["counts"].astype(np.int64))
    documents = np.bincount(ngrams, minlength=totals.size)
    if "numbers" in arrays:
        totals[arrays["numbers"]] = documents[arrays["numbers"]]
    for n in counted_levels(arrays):
        arrays[f"totals_{n}"] = totals[bounds[n - 1] : bounds[n]]
        arrays[f"documents_{n}"] = documents[bounds[n - 1] : bounds[n]]


def level_bounds(arrays: Arrays) -> NDArray[np.int64]:
    """The number of the first n-gram of each length n of partial counts, and the number of all n-grams.

    Those of some lengths may be only prefixes.
    """
    sizes = [arrays["token_offsets"].size - 1]
    while (name := f"keys_{len(sizes) + 1}") in arrays:
        sizes.append(arrays[name].size)
    return np.cumsum([0, *sizes])


def counted_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the counted n-grams of partial counts."""
    return sorted(int(name.removeprefix("totals_")) for name in arrays if name.startswith("totals_"))


def alphabetical_order(strings: pa.Array) -> NDArray[np.int64]:
    """The positions of distinct strings sorted by their bytes, which is the order of code points."""
    leading = kernels.leading_bytes(*array_files.string_buffers(strings))
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


# ----------------------------------------------------------------------------------------------------------------------
# Merge sorted n-grams.
#
# Because a space sorts before every word character, the key (position of the prefix in its level) · 2^32 + (position of
# the last token) sorts n-grams alphabetically as a number, and sorted keys stay sorted in positions of merged n-grams.


MAX_NGRAMS = 2**31 - 1
SUMS = ("totals", "documents", "known")
_NO_KEYS = np.empty(0, np.uint64)


def merge_ngrams(parts: Sequence[Arrays]) -> tuple[Arrays, list[list[NDArray[np.int32]]]]:
    """Merge sorted n-grams.

    Parameters
    ----------
    parts : sequence of Arrays
        keys_<n> of each level, uint64, strictly increasing, and of some levels totals_<n>, documents_<n> and known_<n>.

    Returns
    -------
    merged : Arrays
        The same arrays of the union, with sums.
    positions : list of list of ndarray of int32
        For each level and part the positions of its n-grams in the union.

    Raises
    ------
    InputError
        For 2^31 n-grams of one length or more.
    """
    merged: Arrays = {}
    positions: list[list[NDArray[np.int32]]] = []
    while any(f"keys_{len(positions) + 1}" in part for part in parts):
        n = len(positions) + 1
        keys = [part.get(f"keys_{n}", _NO_KEYS) for part in parts]
        if n > 1:
            keys = [_map_prefixes(own, above) for own, above in zip(keys, positions[-1], strict=True)]
        level, level_positions = _union(keys)
        if level.size > MAX_NGRAMS:
            raise InputError(
                f"More than {MAX_NGRAMS:,} distinct {n}-grams: use hash_bits, or a smaller ngram_range.",
                code="too-many-terms",
            )
        positions.append(level_positions)
        merged[f"keys_{n}"] = level
        for name in (f"{what}_{n}" for what in SUMS):
            if any(name in part for part in parts):
                total = np.zeros(level.size, np.int64)
                for part, position in zip(parts, level_positions, strict=True):
                    if name in part:
                        ngram_kernels.add_at(total, position, part[name])
                # int32 halves the staged bytes.
                merged[name] = total.astype(np.int32) if total.max(initial=0) < 2**31 else total
    return merged, positions


def _map_prefixes(keys: NDArray[np.uint64], positions: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The keys with positions of prefixes in the union."""
    if not keys.size or positions[-1] == positions.size - 1:  # positions increase: each is its own
        return keys
    moved = (positions - np.arange(positions.size)).astype(np.uint64) << ngram_kernels.HALF
    return keys + moved[(keys >> ngram_kernels.HALF).astype(np.int64)]


def _union(keys: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], list[NDArray[np.int32]]]:
    """(the sorted union of arrays that strictly increase, the positions of each in it), merged in pairs."""
    if len(keys) == 1:
        return keys[0], [np.arange(keys[0].size, dtype=np.int32)]
    middle = len(keys) // 2
    left, left_positions = _union(keys[:middle])
    right, right_positions = _union(keys[middle:])
    union, left_map, right_map = ngram_kernels.merge_pair(left, right)
    return union, [
        *(ngram_kernels.compose(left_map, own) for own in left_positions),
        *(ngram_kernels.compose(right_map, own) for own in right_positions),
    ]


# ----------------------------------------------------------------------------------------------------------------------
# The features of the fields of records, joined to one set of partial counts.
#
# The terms of a text field begin with its namespace, which belongs to the first token of an n-gram: ``title:good
# movie`` has the tokens ``title:good`` and ``movie``. Categories and numbers are one token.


MISSING, VALUES = "missing_", "values_"  # prefixes of the names of arrays
_COUNTS = ("indptr", "ngrams", "counts", "keys_", "totals_", "documents_", "token_", "numbers")


def count_fields(documents: Documents | CountedDocuments, options: TextOptions) -> Arrays:
    """The partial counts of records; numbers whose bins are not chosen yet are kept as values.

    Raises `InputError` for documents without fields.
    """
    if isinstance(documents, CountedDocuments) or (len(documents) and not documents.fields):
        raise unsupported(
            f"The options name fields ({', '.join(options.fields)}), and a document has none: give records, as JSON "
            "lines, CSV or TSV."
        )
    parts: list[tuple[str, Arrays]] = []
    kept: Arrays = {}
    for name, field in options.fields.items():
        values: Any = documents.fields[name] if len(documents) else pa.array([], pa.string())
        if isinstance(field, NumberField):
            numbers = np.asarray(values, np.float64)
            kept[f"{MISSING}{name}"] = is_missing(numbers)
            if field.transform == "bins" and field.cuts is None:
                kept[f"{VALUES}{name}"] = numbers
            else:
                parts.append(("", _count_number(numbers, name, field)))
            continue
        kept[f"{MISSING}{name}"] = is_missing(values)
        if isinstance(field, VectorField):
            found = np.nan_to_num(np.asarray(values, np.float64)).reshape(-1, field.size)
            rows, columns = np.nonzero(found)
            counted = np.bincount(rows, minlength=len(found))
            names = pa.array(field.feature_names(name), pa.string())
            parts.append(("", named_counts(_starts(counted), columns, found[rows, columns], names)))
        elif isinstance(field, TextField):
            parts.append((namespace(name), count_text(Texts.of(values), field)))
        else:
            present = pc.greater(pc.binary_length(values), 0)
            encoded = values.filter(present).dictionary_encode()
            names = pc.binary_join_element_wise(pa.scalar(name), encoded.dictionary.cast(pa.string()), "=")
            codes = encoded.indices.to_numpy().astype(np.int64)
            indptr = _starts(present.to_numpy(zero_copy_only=False))
            parts.append(("", named_counts(indptr, codes, np.ones(codes.size, np.uint8), names)))
    return join_counts(parts, len(documents), options) | kept


def _count_number(values: NDArray[np.float64], name: str, field: NumberField) -> Arrays:
    if field.transform == "bins":
        present = ~np.isnan(values)
        bins = np.searchsorted(np.array(field.cuts or ()), values[present], side="right").astype(np.int64)
        names = pa.array(bin_names(name, field.cuts or ()), pa.string())
        return named_counts(_starts(present), bins, np.ones(bins.size, np.uint8), names)
    if field.transform == "log":
        values = np.sign(values) * np.log1p(np.abs(values))
    present = ~np.isnan(values) & (values != 0)
    own = np.zeros(np.count_nonzero(present), np.int64)
    return named_counts(_starts(present), own, values[present], pa.array([name], pa.string()))


def bin_names(name: str, cuts: Sequence[float]) -> list[str]:
    """The names of the bins of a number: all lower than the first cut, from each cut to the next, and above.

    >>> bin_names("price", [1.5, 3.0])
    ['price=(-inf, 1.5)', 'price=[1.5, 3)', 'price=[3, inf)']
    """
    ends = ["(-inf", *(f"[{_shortest(cut)}" for cut in cuts)]
    return [f"{name}={low}, {high})" for low, high in zip(ends, [*map(_shortest, cuts), "inf"], strict=True)]


def _shortest(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _starts(entries: NDArray[Any]) -> NDArray[np.int64]:
    """The indptr of rows with so many entries each."""
    return np.concatenate([[0], np.cumsum(entries)])


def join_counts(parts: list[tuple[str, Arrays]], n_rows: int, options: TextOptions) -> Arrays:
    """The partial counts of the same documents in several parts, each with the beginning of its terms, in one.

    N-grams are numbered level by level in alphabetical order.
    """
    firsts, lasts, tokens = _join_tokens(parts)
    keyed: list[Arrays] = []
    for first, last, (_, part) in zip(firsts, lasts, parts, strict=True):
        own = {f"{what}_{n}": part[f"{what}_{n}"] for n in counted_levels(part) for what in ("totals", "documents")}
        own["keys_1"] = first.astype(np.uint64)
        for n in range(2, level_bounds(part).size):
            prefixes, last_tokens = ngram_kernels.unpack_keys(part[f"keys_{n}"])
            own[f"keys_{n}"] = ngram_kernels.pack_keys(prefixes, last[last_tokens])
        keyed.append(own)
    merged, positions = merge_ngrams([*keyed, {"keys_1": np.arange(len(tokens), dtype=np.uint64)}])
    arrays = array_files.packed_strings("token", tokens)
    for n in range(1, len(positions) + 1):
        zeros = np.zeros(merged[f"keys_{n}"].size, np.int64)
        arrays |= {name: merged.get(name, zeros) for name in (f"totals_{n}", f"documents_{n}")}
        if n > 1:
            arrays[f"keys_{n}"] = merged[f"keys_{n}"]
    bounds = level_bounds(arrays)[:-1]
    numbers = [  # of the n-grams of each part
        np.concatenate([first + level[k] for first, level in zip(bounds, positions, strict=True)])
        for k in range(len(parts))
    ]
    rows = [np.repeat(np.arange(n_rows), np.diff(part["indptr"])) for _, part in parts]
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *rows]), kind="stable")
    entries = [number[part["ngrams"]] for number, (_, part) in zip(numbers, parts, strict=True)]
    arrays["indptr"] = sum((part["indptr"] for _, part in parts), np.zeros(n_rows + 1, np.int64))
    arrays["ngrams"] = np.concatenate([np.empty(0, np.int64), *entries])[order].astype(np.int32)
    arrays["counts"] = np.concatenate([np.empty(0, np.uint8), *(part["counts"] for _, part in parts)])[order]
    found = pc.index_in(pa.array(options.real_features, tokens.type), value_set=tokens).drop_null().to_numpy()
    arrays["numbers"] = found.astype(np.int64)
    documents = arrays["documents_1"]
    arrays["totals_1"][found] = documents[found]
    return arrays


def _join_tokens(parts: list[tuple[str, Arrays]]) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]], pa.Array]:
    """(positions of the first tokens and of the other tokens of each part in the sorted tokens, these tokens)."""
    strings: list[pa.Array] = [pa.array([], pa.large_string())]
    for prefix, part in parts:
        own = array_files.stored_strings(part, "token").cast(pa.large_string())
        empty = pa.scalar("", pa.large_string())
        strings.append(pc.binary_join_element_wise(pa.scalar(prefix, pa.large_string()), own, empty) if prefix else own)
        strings.append(own if prefix and "keys_2" in part else own[:0])
    united = pa.chunked_array(strings).combine_chunks().dictionary_encode()
    order = alphabetical_order(united.dictionary)
    ranks = np.split(inverse(order)[united.indices.to_numpy()], np.cumsum([len(part) for part in strings[:-1]]))
    firsts, lasts = ranks[1::2], ranks[2::2]
    lasts = [last if last.size else first for first, last in zip(firsts, lasts, strict=True)]
    return firsts, lasts, united.dictionary.take(pa.array(order))


# ----------------------------------------------------------------------------------------------------------------------
# Partial counts: the n-gram counts of one split, in one staging file.
#
# Its arrays, with n-grams and tokens numbered within the split, n-grams level by level in alphabetical order:
#
#     indptr int64, ngrams int32         CSR; the n-grams of a document by n and in order of first appearance
#     counts uint8 | uint16 | uint32 | float64
#     token_bytes uint8, token_offsets   distinct tokens, sorted by their bytes
#     keys_<n> uint64    (n ≥ 2) (position of the first n − 1 tokens in level n − 1) · 2^32 + position of the last token
#     totals_<n>, documents_<n>          counted levels: occurrences, documents with the n-gram
#     id_bytes, id_offsets, lines int64, labels float64 | label_bytes, label_offsets [, label_indptr]
#     column_<name>      optional columns of shards
#     missing_<name>     of fields: whether the document has no value; values_<name>: the value, until its bin is chosen
#     numbers            of fields: numbers of the n-grams that are numbers, whose counts are their values


COLUMN = "column_"  # prefix of the names of optional columns


class PartialCounts(NamedTuple):
    """Summary of the partial counts of a split, for the driver.

    Parameters
    ----------
    path : str
        The staging file.
    rows, nonzeros, empty : int
        Documents, entries of the count matrix, documents without a term.
    n_ngrams : int
        Number of distinct n-grams, including those that are only prefixes.
    bad : list of BadRow
    dtype : str
        Type of the counts.
    multiline : int
        Documents that span several lines.
    missing : dict
        Documents without a value, by field.
    labels : dict
        Documents with each class; empty if labels are numbers.
    digest : str
        Of the files of documents in files of their own.
    """

    path: str
    split: Split
    rows: int
    nonzeros: int
    empty: int
    n_ngrams: int
    bad: list[BadRow]
    dtype: str
    multiline: int
    missing: dict[str, int]
    labels: dict[str, int]
    digest: str


class Counting(NamedTuple):
    """Counting documents, the work on each split of an ingest (see `sparseoco.text.passes.Work`)."""

    staging: str
    options: TextOptions
    step: str = "count"

    def path(self, split: Split) -> str:
        """The file of the partial counts of a split."""
        return str(location(self.staging) / f"{split.key}.counts")

    def run(self, split: Split, content: Content | None) -> PartialCounts:
        """Count a split; the driver, which sees all splits, checks the number of bad rows (`check_bad_rows`)."""
        retain_freed_memory()
        documents = read_split(split, self.options, labelled=split.format not in UNLABELLED, content=content)
        arrays = count_documents(documents, self.options)
        facts = {
            "bad": documents.bad,
            "multiline": documents.multiline.size,
            "digest": documents.digest if isinstance(documents, Documents) else "",
        }
        # What is merged is at the beginning: those steps read no more of a remote file.
        first = sorted(arrays, key=lambda name: not name.startswith(("token_", "keys_", "totals_", "documents_")))
        array_files.save_arrays(location(self.path(split)), {name: arrays[name] for name in first}, facts)
        return self.describe(split)

    def describe(self, split: Split) -> PartialCounts:
        """The summary of counts in a staging file."""
        return describe_counts(location(self.path(split)), split)


def count_documents(documents: Documents | CountedDocuments, options: TextOptions) -> Arrays:
    """The arrays of partial counts of documents."""
    if options.fields:
        arrays = count_fields(documents, options)
    elif isinstance(documents, Documents):
        arrays = count_text(Texts.of(documents.strings), options)
    elif options.counts_characters:
        raise unsupported(
            f'Documents given as counts have no characters: analyzer = "{options.analyzer}" requires text.'
        )
    else:
        counts = documents.counts
        if np.all((counts > 0) & (counts < 2**32) & (counts == np.floor(counts))):
            counts = smallest_dtype(counts.astype(np.uint32))
        arrays = named_counts(documents.indptr, documents.features, counts, documents.names)
    arrays["lines"] = documents.lines
    arrays |= array_files.packed_strings("id", documents.ids) | packed_labels(documents.labels)
    return arrays | {f"{COLUMN}{name}": values for name, values in documents.columns.items()}


def describe_counts(path: Location, split: Split) -> PartialCounts:
    """The summary of a staging file."""
    arrays, facts = array_files.load_arrays(path)
    labels: dict[str, int] = {}
    if "label_bytes" in arrays:
        found = array_files.stored_strings(arrays, "label").value_counts()
        labels = dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))
    return PartialCounts(
        path=str(path),
        split=split,
        rows=arrays["indptr"].size - 1,
        nonzeros=arrays["ngrams"].size,
        empty=int(np.count_nonzero(np.diff(arrays["indptr"]) == 0)),
        n_ngrams=int(level_bounds(arrays)[-1]),
        bad=[BadRow(*row) for row in facts["bad"]],
        dtype=arrays["counts"].dtype.name,
        multiline=facts["multiline"],
        missing={
            name.removeprefix(MISSING): int(values.sum()) for name, values in arrays.items() if name.startswith(MISSING)
        },
        labels=labels,
        digest=facts["digest"],
    )


def packed_labels(labels: Labels) -> Arrays:
    """The labels of documents as arrays of a file: ``labels``, or ``label_bytes`` and ``label_offsets``, of lists of
    labels with ``label_indptr``."""
    if labels is None:
        return {}
    if isinstance(labels, np.ndarray):
        return {"labels": labels}
    if not pa.types.is_list(labels.type):
        return array_files.packed_strings("label", labels)
    indptr = labels.offsets.to_numpy().astype(np.int64)
    return {"label_indptr": indptr} | array_files.packed_strings("label", labels.values)


def without_rows(counts: PartialCounts, rows: NDArray[np.int64]) -> PartialCounts:
    """Write a copy of partial counts without some of their documents, if there are any."""
    if not rows.size:
        return counts
    source = location(counts.path)
    target = source.with_name(f"{source.stem}-{digest_value(rows.tolist())[:16]}.counts")
    arrays, facts = array_files.load_arrays(source)
    selected = np.ones(counts.rows, np.bool_)
    selected[rows] = False
    sizes = np.diff(arrays["indptr"])
    entries = np.repeat(selected, sizes)
    arrays["ngrams"], arrays["counts"] = arrays["ngrams"][entries], arrays["counts"][entries]
    arrays["indptr"] = np.concatenate([[0], np.cumsum(sizes[selected])]).astype(np.int64)
    labels: Labels = None
    if "labels" in arrays:
        labels = arrays["labels"][selected]
    elif "label_bytes" in arrays:
        names = array_files.stored_strings(arrays, "label")
        if "label_indptr" in arrays:
            indptr = pa.array(arrays["label_indptr"], pa.int32())
            names = pa.ListArray.from_arrays(indptr, names.cast(pa.string()), LABEL_LISTS)
        labels = names.filter(pa.array(selected))
    ids = array_files.stored_strings(arrays, "id").filter(pa.array(selected))
    arrays |= packed_labels(labels) | array_files.packed_strings("id", ids)
    for name in ("lines", *(name for name in arrays if name.startswith((COLUMN, VALUES, MISSING)))):
        arrays[name] = arrays[name][selected]
    sum_totals(arrays)
    array_files.save_arrays(target, arrays, facts)
    return describe_counts(target, counts.split)


# ----------------------------------------------------------------------------------------------------------------------
# The bins of numbers: by quantiles of all documents of the first ingest.


def choose_bins(job: TextJob, counts: list[PartialCounts]) -> tuple[TextJob, list[PartialCounts]]:
    """Choose the bins that the options leave open, and count them. An exact quantile needs one number per document.

    Returns the job, whose options then have the cuts of all bins, and the partial counts with the bins.
    """
    paths = [split.path for split in counts]
    chosen: dict[str, NumberField] = {}
    for name, field in job.options.fields.items():
        if isinstance(field, NumberField) and field.transform == "bins" and field.cuts is None:
            cuts = job.tasks.submit(quantile_cuts, paths, name, field.bins).result()
            chosen[name] = field.model_copy(update={"cuts": cuts})
    if not chosen:
        return job, counts
    options = job.options.model_copy(update={"fields": job.options.fields | chosen})
    binned = [job.tasks.submit(bin_counts, split, options) for split in counts]
    return job._replace(options=options), [result.result() for result in binned]


def quantile_cuts(paths: list[str], name: str, bins: int) -> tuple[float, ...]:
    """The distinct quantiles between the least and the greatest value, as scikit-learn's KBinsDiscretizer."""
    values = np.concatenate([array_files.load_arrays(location(path))[0][f"{VALUES}{name}"] for path in paths])
    values = values[~np.isnan(values)]
    levels = np.linspace(0, 100, bins + 1)
    edges = np.unique(np.percentile(values, levels, method="averaged_inverted_cdf"))
    return tuple(edges[1:-1].tolist())


def bin_counts(counts: PartialCounts, options: TextOptions) -> PartialCounts:
    """Write a copy of partial counts with the bins of the options; an existing file is reused."""
    source = location(counts.path)
    target = source.with_name(f"{source.stem}-{options.counting_digest[:16]}.counts")
    if not target.exists():
        arrays, facts = array_files.load_arrays(source)
        parts = [("", arrays)]
        for name, field in options.fields.items():
            if isinstance(field, NumberField) and f"{VALUES}{name}" in arrays:
                parts.append(("", _count_number(arrays[f"{VALUES}{name}"], name, field)))
        others = {name: array for name, array in arrays.items() if not name.startswith((*_COUNTS, VALUES))}
        binned = others | join_counts(parts, arrays["indptr"].size - 1, options)
        array_files.save_arrays(target, binned, facts)
    return describe_counts(target, counts.split)
