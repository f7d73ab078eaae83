"""The sets of documents of both papers, made of the files that there are: text or counts → rows, classes, terms.

What is known of the papers' sets: books and dvd have unigrams and bigrams; the sets of 20 Newsgroups have 500 documents
a group, stop words taken out, words stemmed, and no term of fewer than three documents; which groups the two sets of
eight have, and which topics that of Reuters, is not printed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from sparseoco.core.errors import InputError
from sparseoco.papers.problems import find_file
from sparseoco.papers.truncation.stemming import stem
from sparseoco.storage.commit import digest_file
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

SEED: Final = 1
GROUP: Final = 500
"""Documents of each group of 20 Newsgroups."""
RARE: Final = 3
"""Fewest documents of a term, in sets of 20 Newsgroups."""
ENCODED: Final = 1000
"""Messages that have one word more often are files written in letters: their margins are past every bound."""


class Documents(NamedTuple):
    """A set: counts (n, d), class indices, names of classes and terms, and a name of all of it."""

    rows: csr_matrix
    labels: NDArray[np.float64]
    classes: tuple[str, ...]
    terms: tuple[str, ...]
    digest: str


class Source(NamedTuple):
    """A set of the papers: the file it is made of here, and what of it."""

    name: str
    title: str
    paper: str
    """The name of the papers' set whose figures stand beside it."""
    file: str
    options: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    """Groups of 20 Newsgroups."""
    largest: int = 0
    """Topics of Reuters: so many, those of the most documents."""
    names: str = ""
    """File of the names of features that the other has by number."""
    passage: str = ""


_COUNTS: Final = "the papers' documents, on their 5,000 most frequent features instead of all"
_TEXT: Final = "another draw of the same reviews, raw text with all its unigrams and bigrams"
_NEWS: Final = {"duplicates": "all"}
_OVERLAP: Final = ("comp.graphics", "sci.space")
_APART: Final = ("soc.religion.christian", "comp.os.ms-windows.misc")
_OVERLAP_8: Final = (
    *("comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
)
_APART_8: Final = (
    *("alt.atheism", "comp.sys.mac.hardware", "misc.forsale", "rec.autos"),
    *("rec.sport.hockey", "sci.crypt", "sci.med", "talk.politics.mideast"),
)
_DRAWN: Final = (
    "500 documents a group, drawn here, whole messages, but for those with one word over 1,000 times, which are "
    "encoded files; stop words are scikit-learn's"
)
_EIGHT: Final = f"eight groups chosen here, the paper's are not printed; {_DRAWN}"
_NAMES: Final = "feature_names.tsv"
_NEWS_FILE: Final = "20news-bydate.jsonl.gz"
_REUTERS: Final = "documents of one topic, of the 20 largest, without their titles; the paper's 20 are not printed"

SOURCES: Final = (
    Source("books", "books", "books", "books.svmlight.gz", {"index_base": 0}, names=_NAMES, passage=_COUNTS),
    Source("dvd", "dvd", "dvd", "dvd.svmlight.gz", {"index_base": 0}, names=_NAMES, passage=_COUNTS),
    Source("books-text", "books, from text", "books", "books.jsonl.gz", {"ngram_range": (1, 2)}, passage=_TEXT),
    Source("dvd-text", "dvd, from text", "dvd", "dvd.jsonl.gz", {"ngram_range": (1, 2)}, passage=_TEXT),
    Source("ob-2-1", "ob-2-1", "ob-2-1", _NEWS_FILE, _NEWS, _OVERLAP, passage=_DRAWN),
    Source("sb-2-1", "sb-2-1", "sb-2-1", _NEWS_FILE, _NEWS, _APART, passage=_DRAWN),
    Source("ob-8-1", "ob-8-1-like", "ob-8-1", _NEWS_FILE, _NEWS, _OVERLAP_8, passage=_EIGHT),
    Source("sb-8-1", "sb-8-1-like", "sb-8-1", _NEWS_FILE, _NEWS, _APART_8, passage=_EIGHT),
    Source(
        *("reut20", "reut20", "reut20", "reuters21578.jsonl.gz"),
        {"label_field": "topics", "label_list": "skip"},
        largest=20,
        passage=_REUTERS,
    ),
)
PRINTED: Final = {
    "books": (4465, 332_440),
    "dvd": (3586, 282_900),
    "ob-2-1": (1000, 5942),
    "sb-2-1": (1000, 6276),
    "ob-8-1": (4000, 13_890),
    "sb-8-1": (4000, 16_282),
    "reut20": (7800, 34_488),
}
"""Documents and features of the papers' sets."""


def files_of(data: Path, sources: Sequence[Source]) -> dict[str, Path | None]:
    """Where the files of the sources are, by their names; None of one that is missing."""
    return {
        name: find_file(data, name)
        for name in dict.fromkeys(name for source in sources for name in (source.file, source.names) if name)
    }


def make(source: Source, files: Mapping[str, Path | None], work: Path) -> Documents:
    """A set of documents; stores go to `work`, one a file and its options.

    Raises `InputError` where the file holds something else.
    """
    path = files[source.file]
    assert path is not None
    options = TextOptions.of(dict(source.options))
    folder = work / f"{digest_file(path)[:16]}-{options.digest[:16]}"
    ingest([str(path)], folder, options)
    rows, terms = read_shards(folder)
    store = Store.open(folder)
    labels, classes = store.labels(), store.classes
    chosen = list(range(len(classes)))
    if source.names and (names := files[source.names]) is not None:
        named = dict(line.split("\t", 1) for line in names.read_text(encoding="utf-8").splitlines())
        terms = [named.get(term, term) for term in terms]
    if source.groups:
        chosen = _groups(source, classes)
        kept = _drawn(rows, labels, chosen)
        labels, (rows, terms) = labels[kept], _by_stem(rows[kept], terms)
    elif source.largest:
        chosen = _largest(labels, classes, source.largest)
        kept = np.flatnonzero(np.isin(labels, chosen))
        labels, (rows, terms) = labels[kept], _occurring(rows[kept], terms, 1)
    place = np.zeros(len(classes))
    place[chosen] = np.arange(len(chosen))
    return _documents(rows, place[labels], [classes[label] for label in chosen], terms)


def _groups(source: Source, classes: list[str]) -> list[int]:
    missing = [name for name in source.groups if name not in classes]
    if missing:
        raise InputError(f"{source.file} has no documents of {', '.join(missing)}.")
    return [classes.index(name) for name in source.groups]


def _largest(labels: NDArray[Any], classes: list[str], size: int) -> list[int]:
    """Classes with the most documents, in that order."""
    sizes = np.bincount(labels, minlength=len(classes))
    return sorted(range(len(classes)), key=lambda k: (-sizes[k], classes[k]))[:size]


def _drawn(rows: csr_matrix, labels: NDArray[Any], chosen: Sequence[int]) -> NDArray[np.int64]:
    """Rows, in their order, of `GROUP` documents of each class."""
    encoded = np.zeros(len(labels), bool)
    encoded[np.searchsorted(rows.indptr, np.flatnonzero(rows.data > ENCODED), side="right") - 1] = True
    draws = [np.random.default_rng((SEED, k)) for k in range(len(chosen))]
    own = [np.flatnonzero((labels == label) & ~encoded) for label in chosen]
    return np.sort(np.concatenate([draw.permutation(of)[:GROUP] for draw, of in zip(draws, own, strict=True)]))


def _by_stem(rows: csr_matrix, terms: Sequence[str]) -> tuple[csr_matrix, list[str]]:
    """Without stop words, by stems, without those that occur in fewer than `RARE` of these documents."""
    kept = [k for k, term in enumerate(terms) if term not in ENGLISH_STOP_WORDS]
    stems = [stem(terms[k]) for k in kept]
    names = sorted(set(stems))
    place = {name: k for k, name in enumerate(names)}
    onto = csr_matrix(
        (np.ones(len(kept), np.int64), (np.array(kept), np.array([place[name] for name in stems]))),
        shape=(len(terms), len(names)),
    )
    return _occurring(csr_matrix(rows @ onto), names, RARE)


def _occurring(rows: csr_matrix, terms: Sequence[str], documents: int) -> tuple[csr_matrix, list[str]]:
    """Those terms alone that occur in so many of these documents."""
    common = np.flatnonzero(np.bincount(rows.indices, minlength=len(terms)) >= documents)
    return csr_matrix(rows[:, common]), [terms[k] for k in common.tolist()]


def _documents(
    rows: csr_matrix, labels: NDArray[np.float64], classes: Sequence[str], terms: Sequence[str]
) -> Documents:
    rows.sort_indices()
    digest = hashlib.sha256()
    for array in (rows.indptr.astype("<i8"), rows.indices.astype("<i8"), rows.data.astype("<f8"), labels):
        digest.update(array.tobytes())
    exact = csr_matrix(
        (rows.data.astype(np.float64), rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), shape=rows.shape
    )
    return Documents(exact, labels, tuple(classes), tuple(terms), digest.hexdigest())
