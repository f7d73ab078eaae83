"""The papers' sets of documents, built from the files that are there: text or counts → rows, classes, terms.

Known of the papers' sets: books and dvd have unigrams and bigrams; the sets of 20 Newsgroups have 500 documents per
group, no stop words, stemmed words, and no term of fewer than three documents; the groups of the two sets of eight, and
the topics of that of Reuters, are not printed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import snowballstemmer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from sparseoco.core.errors import InputError
from sparseoco.papers.experiment import find_file, find_files
from sparseoco.storage.commit import digest_file
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

SEED: Final = 1
GROUP: Final = 500
"""Documents of each group of 20 Newsgroups."""
MIN_DOCUMENTS: Final = 3
"""Fewest documents of a term, in sets of 20 Newsgroups."""
ENCODED: Final = 1000
"""Messages with a word more frequent than this are encoded files, whose margins overflow."""


class Documents(NamedTuple):
    """A set: counts (n, d), class indices, names of classes and terms, and a name of all of it."""

    rows: csr_matrix
    labels: NDArray[np.float64]
    classes: tuple[str, ...]
    terms: tuple[str, ...]
    digest: str


class DocumentSource(NamedTuple):
    """A set of the papers: the file it is built from here, and which part of it."""

    name: str
    title: str
    paper: str
    """The name of the papers' set that it is compared with."""
    file: str
    options: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    """Groups of 20 Newsgroups."""
    largest: int = 0
    """Number of topics of Reuters, those of the most documents."""
    names: str = ""
    """File of the names of the features, which the other numbers."""
    differs: str = ""
    """How it differs from the papers' set."""


_COUNTS: Final = "the papers' documents, on their 5,000 most frequent features instead of all"
_TEXT: Final = "another sample of the same reviews, raw text with all its unigrams and bigrams"
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
    "500 documents per group, sampled here, whole messages, without those with one word over 1,000 times, which "
    "are encoded files; stop words are scikit-learn's"
)
_EIGHT: Final = f"eight groups chosen here, the paper's are not printed; {_DRAWN}"
_NAMES: Final = "feature_names.tsv"
_NEWS_FILE: Final = "20news-bydate.jsonl.gz"
_REUTERS: Final = "documents with one topic, one of the 20 largest, without titles; the paper's 20 are not printed"

SOURCES: Final = (
    DocumentSource("books", "books", "books", "books.svmlight.gz", {"index_base": 0}, names=_NAMES, differs=_COUNTS),
    DocumentSource("dvd", "dvd", "dvd", "dvd.svmlight.gz", {"index_base": 0}, names=_NAMES, differs=_COUNTS),
    DocumentSource("books-text", "books, from text", "books", "books.jsonl.gz", {"ngram_range": (1, 2)}, differs=_TEXT),
    DocumentSource("dvd-text", "dvd, from text", "dvd", "dvd.jsonl.gz", {"ngram_range": (1, 2)}, differs=_TEXT),
    DocumentSource("ob-2-1", "ob-2-1", "ob-2-1", _NEWS_FILE, _NEWS, _OVERLAP, differs=_DRAWN),
    DocumentSource("sb-2-1", "sb-2-1", "sb-2-1", _NEWS_FILE, _NEWS, _APART, differs=_DRAWN),
    DocumentSource("ob-8-1", "ob-8-1-like", "ob-8-1", _NEWS_FILE, _NEWS, _OVERLAP_8, differs=_EIGHT),
    DocumentSource("sb-8-1", "sb-8-1-like", "sb-8-1", _NEWS_FILE, _NEWS, _APART_8, differs=_EIGHT),
    DocumentSource(
        *("reut20", "reut20", "reut20", "reuters21578.jsonl.gz"),
        {"label_field": "topics", "labels": "multi"},
        largest=20,
        differs=_REUTERS,
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


def find_sources(data: Path, sources: Iterable[DocumentSource]) -> tuple[list[DocumentSource], dict[str, Path]]:
    """The sources whose file is there, and all their files by name. Raises `InputError` if there are none."""
    listed = list(sources)
    files = find_files(data, [source.file for source in listed])
    available = [source for source in listed if source.file in files]
    for name in dict.fromkeys(source.names for source in available if source.names):
        path = find_file(data, name)
        if path is not None:
            files[name] = path
    return available, files


def load_documents(source: DocumentSource, files: Mapping[str, Path], work: Path) -> Documents:
    """A set of documents; stores go to `work`, one per file and options.

    Raises `InputError` if the file is invalid.
    """
    path = files[source.file]
    options = TextOptions.of(dict(source.options))
    folder = work / f"{digest_file(path)[:16]}-{options.digest[:16]}"
    ingest([str(path)], folder, options)
    rows, terms = read_shards(folder)
    store = Store.open(folder)
    labels, classes = store.labels(), store.classes
    if store.is_multilabel:
        labels, rows, terms = _with_one_label(labels, rows, terms)
    chosen = list(range(len(classes)))
    if source.names in files:
        lines = files[source.names].read_text(encoding="utf-8").splitlines()
        names = dict(line.split("\t", 1) for line in lines)
        terms = [names.get(term, term) for term in terms]
    if source.groups:
        chosen = _groups(source, classes)
        sample = _sample(rows, labels, chosen)
        labels, (rows, terms) = labels[sample], _stemmed(rows[sample], terms)
    elif source.largest:
        chosen = _largest(labels, classes, source.largest)
        own = np.flatnonzero(np.isin(labels, chosen))
        labels, (rows, terms) = labels[own], _frequent(rows[own], terms, 1)
    index = np.zeros(len(classes))
    index[chosen] = np.arange(len(chosen))
    return _documents(rows, index[labels], [classes[label] for label in chosen], terms)


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


def _groups(source: DocumentSource, classes: list[str]) -> list[int]:
    missing = [name for name in source.groups if name not in classes]
    if missing:
        raise InputError(f"{source.file} has no documents of {', '.join(missing)}.", code="missing-class")
    return [classes.index(name) for name in source.groups]


def _with_one_label(
    labels: csr_matrix, rows: csr_matrix, terms: Sequence[str]
) -> tuple[NDArray[Any], csr_matrix, list[str]]:
    """The documents with exactly one label, their features in decreasing order of frequency."""
    own = np.flatnonzero(np.diff(labels.indptr) == 1)
    rows, terms = _frequent(rows[own], terms, 1)
    order = np.lexsort((np.array(terms), -np.asarray(rows.sum(axis=0)).ravel()))
    return labels[own].indices, csr_matrix(rows[:, order]), [terms[k] for k in order.tolist()]


def _largest(labels: NDArray[Any], classes: list[str], size: int) -> list[int]:
    """Classes with the most documents, in that order."""
    sizes = np.bincount(labels, minlength=len(classes))
    return sorted(range(len(classes)), key=lambda k: (-sizes[k], classes[k]))[:size]


def _sample(rows: csr_matrix, labels: NDArray[Any], chosen: Sequence[int]) -> NDArray[np.int64]:
    """Rows, in their order, of `GROUP` documents of each class."""
    encoded = np.zeros(len(labels), bool)
    encoded[np.searchsorted(rows.indptr, np.flatnonzero(rows.data > ENCODED), side="right") - 1] = True
    draws = [np.random.default_rng((SEED, k)) for k in range(len(chosen))]
    own = [np.flatnonzero((labels == label) & ~encoded) for label in chosen]
    return np.sort(np.concatenate([draw.permutation(group)[:GROUP] for draw, group in zip(draws, own, strict=True)]))


def _stemmed(rows: csr_matrix, terms: Sequence[str]) -> tuple[csr_matrix, list[str]]:
    """By stem, without stop words and without stems that occur in fewer than `MIN_DOCUMENTS` of these documents."""
    own = [k for k, term in enumerate(terms) if term not in ENGLISH_STOP_WORDS]
    stems = [stem(terms[k]) for k in own]
    names = sorted(set(stems))
    index = {name: k for k, name in enumerate(names)}
    projection = csr_matrix(
        (np.ones(len(own), np.int64), (np.array(own), np.array([index[name] for name in stems]))),
        shape=(len(terms), len(names)),
    )
    return _frequent(csr_matrix(rows @ projection), names, MIN_DOCUMENTS)


def _frequent(rows: csr_matrix, terms: Sequence[str], documents: int) -> tuple[csr_matrix, list[str]]:
    """The terms that occur in at least so many of these documents."""
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
