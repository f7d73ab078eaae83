"""Porter's stemmer: an English word → its stem, so that forms of a word are one term.

Source: Porter (1980), An algorithm for suffix stripping, steps 1a to 5b, as printed.
"""

from itertools import pairwise
from typing import Final

_VOWELS: Final = frozenset("aeiou")
_STEP_2: Final = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("abli", "able")),
    *(("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate")),
    *(("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    *(("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
_STEP_3: Final = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")),
)
_STEP_4: Final = tuple(
    (suffix, "")
    for suffix in (
        *("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize"),
        *("ion", "al", "er", "ic", "ou"),
    )
)


def stem(word: str) -> str:
    """The stem of a word in lower case; what is not of the letters a to z stays as it is.

    >>> [stem(word) for word in ("caresses", "ponies", "relational", "hopping", "generalizations", "sky", "b52")]
    ['caress', 'poni', 'relat', 'hop', 'gener', 'sky', 'b52']
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    word = _past(_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2, 0)
    word = _replaced(word, _STEP_3, 0)
    word = _replaced(word, _STEP_4, 1)
    return _last(word)


def _consonants(word: str) -> list[bool]:
    """Whether each letter is one: y is, at the beginning and after a vowel."""
    found: list[bool] = []
    for letter in word:
        found.append(letter not in _VOWELS and (letter != "y" or not found or not found[-1]))
    return found


def _measure(word: str) -> int:
    """m of [C](VC)^m[V]: how often a vowel is followed by a consonant."""
    found = _consonants(word)
    return sum(not left and right for left, right in pairwise(found))


def _has_vowel(word: str) -> bool:
    return not all(_consonants(word))


def _double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonants(word)[-1]


def _short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant, the last not w, x or y."""
    return len(word) > 2 and _consonants(word)[-3:] == [True, False, True] and word[-1] not in "wxy"


def _plural(word: str) -> str:
    for suffix, other in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(suffix):
            return word.removesuffix(suffix) + other
    return word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word.removesuffix(suffix)
            if not _has_vowel(rest):
                return word
            if rest.endswith(("at", "bl", "iz")):
                return rest + "e"
            if _double(rest) and rest[-1] not in "lsz":
                return rest[:-1]
            return rest + "e" if _measure(rest) == 1 and _short(rest) else rest
    return word


def _replaced(word: str, suffixes: tuple[tuple[str, str], ...], least: int) -> str:
    """The longest suffix that it has replaced, where what is before it is of a measure above `least`."""
    own = max((pair for pair in suffixes if word.endswith(pair[0])), key=lambda pair: len(pair[0]), default=None)
    if own is None:
        return word
    rest = word.removesuffix(own[0])
    if _measure(rest) <= least or (own[0] == "ion" and not rest.endswith(("s", "t"))):
        return word
    return rest + own[1]


def _last(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        if _measure(rest) > 1 or (_measure(rest) == 1 and not _short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
