"""Synthetic documents as JSON lines: words by Zipf's law, and a label that depends on some of them.

All randomness is `numerics.mix` of a counter and all functions are in plain arithmetic: document d of file f has the
same bytes on any machine, independently of other documents.
"""

import numpy as np

from sparseoco.core.compile_cache import compiled_restrict, register_jitable
from sparseoco.kernels.order import key
from sparseoco.learners.numerics import exp_of_negative, log1p_of_fraction, mix

TEXT_STREAM = np.uint64(0x7E97)
FEWEST_WORDS, MORE_WORDS, MOST_WORDS = 10, 190.0, 2000  # minimum; mean of the excess; maximum
LONGEST = 5 * 3 + 1  # bytes of a word and the space after it
ROOM = (MOST_WORDS * LONGEST) + 256  # bytes that any document fits in

# A syllable ends with its only vowel, so different runs of syllables are different words.
ONSETS = [*"bcdfghklmnprstvw", "br", "gr", "st", "th"]
VOWELS = "aeiou"
SYLLABLES = 100
_SPELLED = [(onset + vowel).ljust(3) for vowel in VOWELS for onset in ONSETS]
_LETTERS = np.frombuffer("".join(_SPELLED).encode(), np.uint8)
_SIZES = np.array([len(syllable.strip()) for syllable in _SPELLED], np.int64)
_SCATTER = 6180339  # prime to 10, so that words of similar rank are not alphabetical neighbours

_BEFORE_ID = np.frombuffer(b'{"id":"', np.uint8)
_BEFORE_TEXT = np.frombuffer(b'","text":"', np.uint8)
_BEFORE_LABEL = np.frombuffer(b'","label":"', np.uint8)
_END = np.frombuffer(b'"}\n', np.uint8)

_LN2 = 0.6931471805599453
_FRACTION = np.int64((1 << 52) - 1)
_ONE = np.int64(1023 << 52)


@register_jitable
def log(x):
    """log x for x > 0: x = 2^k·(1 + f), k·ln 2 + log(1 + f)."""
    bits = np.float64(x).view(np.int64)
    f = np.int64((bits & _FRACTION) | _ONE).view(np.float64) - 1.0
    return np.float64((bits >> np.int64(52)) - np.int64(1023)) * _LN2 + log1p_of_fraction(f)


@register_jitable
def share(bits):
    """A number in (0, 1) from 64 random bits."""
    return (np.float64(np.int64(bits >> np.uint64(11))) + 0.5) * 2.0**-53


@register_jitable
def spread(vocabulary, exponent):
    """(N + 1)^(1 − s) − 1, or log(N + 1) if s = 1: the range that `draw_ranks` inverts."""
    top = (1.0 - exponent) * log(vocabulary + 1.0)
    if top == 0.0:
        return log(vocabulary + 1.0)
    return exp_of_negative(top) - 1.0 if top < 0.0 else 1.0 / exp_of_negative(-top) - 1.0


@register_jitable
def draw_ranks(stream, n, vocabulary, exponent, spread, t, ranks):
    """Write the ranks, 1 … N, of n words to `ranks` (int64): P(r) ∝ ∫ x^(−s) dx over [r, r + 1), by inversion.

    This is the Zipf–Mandelbrot law, ∝ (r + ½)^(−s) up to terms of order r^(−s−2). `t` (float64) is scratch; the loops
    are separate because each of them vectorises.
    """
    power = 1.0 - exponent
    for i in range(n):
        t[i] = share(mix(stream + np.uint64(i)))
    if power == 0.0:
        for i in range(n):
            t[i] *= spread
    else:
        for i in range(n):
            t[i] = log(1.0 + t[i] * spread) / power
    for i in range(n):
        t[i] = 1.0 / exp_of_negative(-t[i] if t[i] > 0.0 else 0.0)  # below 0 by rounding only
    for i in range(n):
        ranks[i] = np.int64(t[i])
        if ranks[i] > vocabulary:
            ranks[i] = vocabulary


@register_jitable
def write_word(out, at, rank):
    """Write the word of a rank at `at`; returns its end. The 100 most frequent have one syllable, 10⁴ more two, …"""
    place, count, syllables = rank - 1, np.int64(SYLLABLES), 1
    while place >= count:
        place -= count
        count *= SYLLABLES
        syllables += 1
    place = (place * _SCATTER + syllables) % count
    for _ in range(syllables):
        s = place % SYLLABLES
        place //= SYLLABLES
        for k in range(3):  # surplus bytes are overwritten
            out[at + k] = _LETTERS[3 * s + k]
        at += _SIZES[s]
    return at


@register_jitable
def write_bytes(out, at, data):
    """Write bytes at `at`; returns their end."""
    for k in range(data.size):
        out[at + k] = data[k]
    return at + data.size


@register_jitable
def write_number(out, at, number):
    """Write a number in decimal digits at `at`; returns its end."""
    size, rest = 1, number
    while rest >= 10:
        rest //= 10
        size += 1
    for k in range(size - 1, -1, -1):
        out[at + k] = 48 + number % 10
        number //= 10
    return at + size


@compiled_restrict
def spell(rank):
    """The word of a rank: uint8, ASCII."""
    out = np.empty(LONGEST, np.uint8)
    return out[: write_word(out, 0, rank)]


@compiled_restrict
def make_documents(seed, file, first, size, vocabulary, exponent, class_of, weight_of, classes, out):
    """Write documents `first`, `first` + 1, … of a file until `size` bytes are reached or `out` (uint8) is full.

    A document has words w_1 … w_n and the label argmax_c Σ_i weight_of[w_i]·[class_of[w_i] = c] + Gumbel noise, so
    that P(c) is the softmax of those sums. `class_of` (int64) and `weight_of` (float64) cover the most frequent words,
    indexed by rank − 1. n − `FEWEST_WORDS` is exponential. Returns (documents, bytes) written.
    """
    file_key = key(seed, TEXT_STREAM, file)
    spread_of = spread(vocabulary, exponent)
    t, ranks = np.empty(MOST_WORDS, np.float64), np.empty(MOST_WORDS, np.int64)
    scores = np.empty(classes, np.float64)
    document, at = first, 0
    while at < size and at + ROOM <= out.size:
        stream = mix(file_key ^ np.uint64(document))
        n = FEWEST_WORDS + np.int64(-MORE_WORDS * log(share(mix(stream))))
        if n > MOST_WORDS:
            n = np.int64(MOST_WORDS)
        draw_ranks(stream + np.uint64(1), n, vocabulary, exponent, spread_of, t, ranks)
        at = write_bytes(out, at, _BEFORE_ID)
        at = write_number(out, at, file)
        out[at] = 45
        at = write_number(out, at + 1, document)
        at = write_bytes(out, at, _BEFORE_TEXT)
        for c in range(classes):
            scores[c] = -log(-log(share(mix(stream + np.uint64(n + 1 + c)))))
        for i in range(n):
            if ranks[i] <= class_of.size and class_of[ranks[i] - 1] >= 0:
                scores[class_of[ranks[i] - 1]] += weight_of[ranks[i] - 1]
            at = write_word(out, at, ranks[i])
            out[at] = 32
            at += 1
        at = write_bytes(out, at - 1, _BEFORE_LABEL)
        at = write_number(out, at, np.argmax(scores))
        at = write_bytes(out, at, _END)
        document += 1
    return document - first, at
