"""Porter's stemmer (1980): the stem of an English word, so that its inflected forms are one term."""

from functools import lru_cache

import snowballstemmer

_PORTER = snowballstemmer.stemmer("porter")


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of at most two letters, and words not all of a to z, are unchanged.

    >>> [stem(word) for word in ("caresses", "ponies", "relational", "hopping", "generalizations", "sky", "b52")]
    ['caress', 'poni', 'relat', 'hop', 'gener', 'sky', 'b52']
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    return str(_PORTER.stemWord(word))
