"""A synthetic corpus of any size: JSON lines whose words follow Zipf's law and whose labels depend on a few words.

A folder, local or remote::

    planted.json           the parameters, and the weights behind the labels
    text/part-00000.jsonl  file f depends only on the seed, f and its size; a smaller file is a prefix of a larger one

Files are written atomically, and existing ones are kept, so a run that was killed resumes.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.logs import report_progress
from sparseoco.storage.commit import FolderKind, commit_json, committed, exclusive_lock, read_json
from sparseoco.storage.locations import Location

FILE_BYTES = 256 << 20
DOCUMENTS = 256  # drawn at a time; another number makes another corpus
FEWEST_WORDS, MORE_WORDS, MOST_WORDS = 10, 190.0, 2000  # minimum; mean of the excess; maximum
MAX_WORDS = 100 + 100**2 + 100**3 + 100**4  # up to four syllables
INFORMATIVE = 200  # words with a weight, spread evenly over the logarithm of these ranks
FIRST_INFORMATIVE, LAST_INFORMATIVE = 30, 30_000
MIN_WEIGHT, MAX_WEIGHT = 0.5, 1.5

# A syllable ends with its only vowel, so different runs of syllables are different words. The last one is empty.
ONSETS = (*"bcdfghklmnprstvw", "br", "gr", "st", "th")
SYLLABLES = np.array([*(onset + vowel for vowel in "aeiou" for onset in ONSETS), ""])


class SyntheticCorpus(NamedTuple):
    """The parameters of a synthetic corpus.

    Parameters
    ----------
    bytes : int
        Size in total; each of the files has `bytes` / `files`, rounded up to the end of a document.
    files : int
        Number of files.
    vocabulary : int
        N different words, of ranks 1 … N.
    exponent : float
        s of Zipf's law, P(rank r) ∝ about (r + ½)^(−s).
    classes : int
        Number of classes.
    seed : int
        Seed of all draws.
    """

    bytes: int
    files: int
    vocabulary: int = 1_000_000
    exponent: float = 1.1
    classes: int = 2
    seed: int = 0


CORPUS_FOLDER = FolderKind("a synthetic corpus", ("planted.json",), ("text",))


class Planted(NamedTuple):
    """The weights behind the labels: the words of these ranks (int64, increasing) have a weight for one class each."""

    ranks: NDArray[np.int64]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


def generate(corpus: SyntheticCorpus, out: Location) -> list[Location]:
    """Write a synthetic corpus.

    Parameters
    ----------
    corpus : SyntheticCorpus
        Its parameters.
    out : Location
        The target folder.

    Returns
    -------
    list of Location
        The files of the corpus.

    Raises
    ------
    InputError
        For invalid parameters, and a folder with another corpus.
    StorageError
        If a file cannot be written.
    """
    check(corpus)
    planted = plant(corpus)
    paths: list[Location] = [out / "text" / f"part-{file:05}.jsonl" for file in range(corpus.files)]
    described = describe(corpus, planted)
    with exclusive_lock(out, CORPUS_FOLDER):
        if (out / "planted.json").exists():
            if read_json(out / "planted.json") != described:
                raise InputError(
                    f"{out} has another synthetic corpus: choose another folder, or repeat its options.",
                    code="other-corpus",
                )
        else:
            commit_json(out / "planted.json", described)
        for path in (out / "text").glob(".part-*.tmp"):  # of a run that was killed
            path.unlink(missing_ok=True)
        done, file_bytes = 0, -(-corpus.bytes // corpus.files)
        for file, path in enumerate(paths):
            size = file_bytes  # about that of a file which exists
            if not path.exists():
                size, lines = 0, documents(corpus, planted, file)
                with committed(path) as temporary, temporary.open("wb") as sink:
                    while size < file_bytes:
                        size += sink.write(next(lines))
            done += size
            report_progress("generate", min(done, corpus.bytes), corpus.bytes)
    return paths


def check(corpus: SyntheticCorpus) -> None:
    """Raises `InputError` for invalid parameters."""
    for name, valid, expected in (
        ("bytes", corpus.bytes >= 1, "at least 1"),
        ("files", 1 <= corpus.files <= 100_000, "between 1 and 100,000"),
        ("vocabulary", 1 <= corpus.vocabulary <= MAX_WORDS, f"between 1 and {MAX_WORDS:,}"),
        ("exponent", 0.0 <= corpus.exponent <= 4.0, "between 0 and 4"),
        ("classes", 2 <= corpus.classes <= 1000, "between 2 and 1,000"),
        ("seed", 0 <= corpus.seed < 2**63, "between 0 and 2^63 − 1"),
    ):
        if not valid:
            raise InputError(
                f"{name}={getattr(corpus, name)} of a synthetic corpus must be {expected}.", code="invalid-option"
            )


def plant(corpus: SyntheticCorpus) -> Planted:
    """About `INFORMATIVE` words with weights, drawn at random, for the classes in turn."""
    random = np.random.Generator(np.random.Philox(key=corpus.seed))
    last = min(LAST_INFORMATIVE, corpus.vocabulary)
    first = min(FIRST_INFORMATIVE, -(-last // 4))
    strata = (np.arange(INFORMATIVE) + random.random(INFORMATIVE)) / INFORMATIVE
    ranks = np.unique(np.floor(np.exp(np.log(first) + strata * np.log(last / first))).astype(np.int64))
    weights = MIN_WEIGHT + (MAX_WEIGHT - MIN_WEIGHT) * random.random(ranks.size)
    return Planted(ranks, np.arange(ranks.size, dtype=np.int64) % corpus.classes, weights)


def describe(corpus: SyntheticCorpus, planted: Planted) -> dict[str, Any]:
    """The content of `planted.json`: the parameters, and each weighted word with its rank, class and weight."""
    rows = zip(spell(planted.ranks), *(values.tolist() for values in planted), strict=True)
    words = [
        {"word": str(word), "rank": rank, "class": str(label), "weight": weight} for word, rank, label, weight in rows
    ]
    return {**corpus._asdict(), "planted": words}


def spell(ranks: NDArray[np.int64]) -> NDArray[np.str_]:
    """The words of ranks: the 100 most frequent have one syllable, 10⁴ more two, …"""
    rest, words = ranks, np.full(ranks.shape, "")
    while rest.any():
        words = np.char.add(SYLLABLES[np.where(rest > 0, (rest - 1) % 100, 100)], words)
        rest = np.where(rest > 0, (rest - 1) // 100, 0)
    return words


def draw_ranks(uniform: NDArray[np.float64], vocabulary: int, exponent: float) -> NDArray[np.int64]:
    """Ranks 1 … N from uniform numbers: P(r) ∝ ∫ x^(−s) dx over [r, r + 1), by inversion.

    This is the Zipf–Mandelbrot law, ∝ (r + ½)^(−s) up to terms of order r^(−s−2).
    """
    power, top = 1.0 - exponent, np.log(vocabulary + 1.0)
    logs = np.log1p(uniform * np.expm1(power * top)) / power if power else uniform * top
    return np.asarray(np.clip(np.exp(logs).astype(np.int64), 1, vocabulary))


def documents(corpus: SyntheticCorpus, planted: Planted, file: int) -> Iterator[bytes]:
    """The lines of a file, without end.

    A document has words w_1 … w_n, n − `FEWEST_WORDS` exponential, and the label argmax_c Σ_i weight of w_i for c +
    Gumbel noise, so that P(c) is the softmax of those sums.
    """
    top = int(planted.ranks[-1])
    class_of, weight_of = np.full(top + 2, -1), np.zeros(top + 2)  # by rank; the last is that of all others
    class_of[planted.ranks], weight_of[planted.ranks] = planted.classes, planted.weights
    for chunk in count():
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence((corpus.seed, file, chunk))))
        more = (-MORE_WORDS * np.log1p(-random.random(DOCUMENTS))).astype(np.int64)
        scores = -np.log(-np.log1p(-random.random((DOCUMENTS, corpus.classes))))
        ends = np.minimum(FEWEST_WORDS + more, MOST_WORDS).cumsum()
        ranks = draw_ranks(random.random(ends[-1]), corpus.vocabulary, float(corpus.exponent))
        informative = np.flatnonzero(class_of[np.minimum(ranks, top + 1)] >= 0)
        of_document, chosen = np.searchsorted(ends, informative, side="right"), ranks[informative]
        np.add.at(scores, (of_document, class_of[chosen]), weight_of[chosen])
        labels = scores.argmax(axis=1).tolist()
        words, start = spell(ranks).tolist(), 0
        for i, end in enumerate(ends.tolist()):
            text = " ".join(words[start:end])
            yield f'{{"id":"{file}-{chunk * DOCUMENTS + i}","text":"{text}","label":"{labels[i]}"}}\n'.encode()
            start = end
