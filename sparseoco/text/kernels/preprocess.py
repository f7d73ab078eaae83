"""Loops over bytes before tokens are counted: lower case, accents, rows, terms."""

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.text.kernels.ngrams import HALF, LOW, ONE, ZERO, load8, store8

# ----------------------------------------------------------------------------------------------------------------------
# Characters of UTF-8.


@register_jitable
def decode(data, i):
    """(code point, bytes) of the character that begins at data[i]."""
    byte = np.int64(data[i])
    if byte < 0x80:
        return byte, 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (np.int64(data[i + 1]) & 0x3F), 2
    size, point = (3, byte & 0x0F) if byte < 0xF0 else (4, byte & 0x07)
    for k in range(1, size):
        point = (point << 6) | (np.int64(data[i + k]) & 0x3F)
    return point, size


@register_jitable
def previous(data, i):
    """The beginning of the character before data[i]."""
    i -= 1
    while data[i] & np.uint8(0xC0) == np.uint8(0x80):
        i -= 1
    return i


# ----------------------------------------------------------------------------------------------------------------------
# From the n-grams of a split to the features of the store, with sorted rows.


SHORT = 32  # rows up to this size are sorted by insertion
DIGIT, BUCKETS = np.uint64(10), 1 << 10  # the most bits of a digit, and its buckets


@register_jitable
def insertion_sort(words, size):
    """Sort the first `size` words in place."""
    for k in range(1, size):
        word = words[k]
        at = k
        while at > 0 and words[at - 1] > word:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word


@register_jitable
def radix_sort(words, other, size, first, bits, starts):
    """Sort `size` words by their `bits` bits from bit `first` on, stably; returns (sorted, other) of the buffers.

    starts   uint32, `BUCKETS`
    """
    passes = max(ONE, (bits + DIGIT - ONE) // DIGIT)
    digit = (bits + passes - ONE) // passes
    buckets = ONE << digit
    last = buckets - ONE
    shift = first
    while shift < first + bits:
        for bucket in range(buckets):
            starts[bucket] = np.uint32(0)
        for k in range(size):
            starts[(words[k] >> shift) & last] += np.uint32(1)
        start = np.uint32(0)
        for bucket in range(buckets):
            start, starts[bucket] = start + starts[bucket], start
        for k in range(size):
            bucket = (words[k] >> shift) & last
            at = starts[bucket]
            other[np.uint64(at)] = words[k]
            starts[bucket] = at + np.uint32(1)
        words, other = other, words
        shift += digit
    return words, other


@compiled
def sort_rows(indptr, ngrams, counts, features, n_features):
    """CSR in which entry (d, ngram) has become (d, features[ngram]); those with the feature −1 are dropped.

    Features increase in each row. Counts of equal features are summed in the order of the entries.

    features   (n_ngrams,) int32 or int64, less than n_features
    Returns (indptr int64, indices like features, counts like counts).
    """
    rows = indptr.size - 1
    longest = 0
    for d in range(rows):
        longest = max(longest, indptr[d + 1] - indptr[d])
    words, other = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    row_features, row_counts = np.empty(longest, features.dtype), np.empty(longest, counts.dtype)
    starts = np.empty(BUCKETS, np.uint32)
    bits = ZERO
    while n_features > 1 << np.int64(bits):
        bits += np.uint64(1)

    row_ends = np.zeros(rows + 1, np.int64)
    indices, values = np.empty(ngrams.size, features.dtype), np.empty(ngrams.size, counts.dtype)
    n = 0
    for d in range(rows):
        found = ZERO
        for k in range(indptr[d], indptr[d + 1]):
            feature = features[np.uint64(ngrams[k])]
            row_features[found], row_counts[found] = feature, counts[k]
            words[found] = (np.uint64(feature) << HALF) | found
            found += np.uint64(feature >= 0)
        size = np.int64(found)
        if size <= SHORT and bits <= HALF:
            insertion_sort(words, size)
        else:
            for half in range(1 if bits <= HALF else 2):  # by the lower half, then by the upper one
                if half == 1:
                    for k in range(size):
                        entry = words[k] & LOW
                        words[k] = (np.uint64(row_features[entry]) >> HALF << HALF) | entry
                own_bits = min(bits, HALF) if half == 0 else bits - HALF
                words, other = radix_sort(words, other, size, HALF, own_bits, starts)
        begin = n
        for k in range(size):
            entry = words[k] & LOW
            feature = row_features[entry]
            if n > begin and indices[n - 1] == feature:
                values[n - 1] += row_counts[entry]
            else:
                indices[n], values[n] = feature, row_counts[entry]
                n += 1
        row_ends[d + 1] = n
    return row_ends, indices[:n], values[:n]


# ----------------------------------------------------------------------------------------------------------------------
# Names of n-grams: from numbers in a trie to bytes.


@compiled
def term_offsets(numbers, parents, lasts, token_offsets, spaces):
    """(numbers.size + 1,) int64: offsets of the names of n-grams when they are concatenated.

    spaces   uint8: bytes between the tokens of an n-gram, 1 or 0, by its first token
    """
    offsets = np.empty(numbers.size + 1, np.int64)
    at = 0
    for k in range(numbers.size):
        offsets[k] = at
        ngram = numbers[k]
        n, token = 0, np.int64(0)
        while ngram >= 0:
            token = np.int64(lasts[ngram])
            at += token_offsets[token + 1] - token_offsets[token]
            n += 1
            ngram = parents[ngram]
        at += n - 1 if spaces[token] else 0
    offsets[numbers.size] = at
    return offsets


@compiled
def write_terms(numbers, parents, lasts, token_bytes, token_offsets, spaces, offsets, depth):
    """The bytes of the names, tokens joined as `spaces` says, with eight bytes of slack; so has token_bytes.

    Copies eight bytes at a time: bytes beyond the end of a token are overwritten by the next token.
    """
    result = np.empty(offsets[numbers.size] + 8, np.uint8)
    chain = np.empty(depth, np.int64)
    at = 0
    for k in range(numbers.size):
        ngram = numbers[k]
        n = 0
        while ngram >= 0:
            chain[n] = lasts[ngram]
            n += 1
            ngram = parents[ngram]
        for i in range(n - 1, -1, -1):
            begin = token_offsets[chain[i]]
            size = token_offsets[chain[i] + 1] - begin
            done = 0
            while done < size:
                store8(result, at + done, load8(token_bytes, begin + done))
                done += 8
            at += size
            if i > 0 and spaces[chain[n - 1]]:
                result[at] = 32
                at += 1
    return result


@compiled
def leading_bytes(data, offsets):
    """(strings,) uint64: the first eight bytes of each string, zero-padded, in the order of their values."""
    result = np.zeros(offsets.size - 1, np.uint64)
    for k in range(result.size):
        word = np.uint64(0)
        for i in range(offsets[k], min(offsets[k] + 8, offsets[k + 1])):
            word |= np.uint64(data[i]) << np.uint64(56 - 8 * (i - offsets[k]))
        result[k] = word
    return result


# ----------------------------------------------------------------------------------------------------------------------
# Lower-cases text and replaces every separator by zero bytes.


SLACK = 64  # zero bytes after the last document, so that kernels can read ahead


@register_jitable
def _is_ascii(source):
    union = np.uint8(0)
    for byte in source:
        union |= byte
    return union < 128


@compiled
def contain_any(data, starts, stops, points):
    """(rows,) bool: whether document data[starts[d] : stops[d]] has a character beyond ASCII with points[c]."""
    found = np.zeros(starts.size, np.bool_)
    for d in range(starts.size):
        source = data[starts[d] : stops[d]]
        i = 0 if not _is_ascii(source) else source.size
        while i < source.size and not found[d]:
            point, size = decode(source, i)
            found[d] = size > 1 and points[point]
            i += size
    return found


@register_jitable
def _is_word(byte):
    """Whether this ASCII byte is a word character: a letter, a digit or an underscore."""
    upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
    lower = np.uint8(byte - np.uint8(97)) < np.uint8(26)
    digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
    return upper | lower | digit | (byte == np.uint8(95))


@compiled
def preprocess(data, starts, stops, lowercase, word_points):
    """Replace the characters of documents that are not of words by zeros, and lower-case ASCII.

    lowercase[d] says whether document d is lower-cased, word_points[c] whether code point c beyond ASCII is of words.
    Returns (clean uint8 with SLACK zero bytes, bounds int64 (rows + 1,)), the input of `tokenize_words`.
    """
    rows = starts.size
    bounds = np.zeros(rows + 1, np.int64)
    for d in range(rows):
        bounds[d + 1] = bounds[d] + stops[d] - starts[d] + 1
    clean = np.empty(bounds[rows] + SLACK, np.uint8)
    clean[bounds[rows] :] = 0
    for d in range(rows):
        difference = np.uint8(32 if lowercase[d] else 0)
        source, target = data[starts[d] : stops[d]], clean[bounds[d] : bounds[d + 1]]
        target[source.size] = 0
        for i in range(source.size):  # eight-bit arithmetic vectorizes to 64 bytes at a time
            byte = source[i]
            upper = np.uint8(byte - np.uint8(65)) < np.uint8(26)
            target[i] = (byte | (difference if upper else np.uint8(0))) if _is_word(byte) else np.uint8(0)
        i = 0 if not _is_ascii(source) else source.size
        while i < source.size:
            point, size = decode(source, i)
            if size > 1 and word_points[point]:
                for k in range(i, i + size):
                    target[k] = source[k]
            i += size
    return clean, bounds
