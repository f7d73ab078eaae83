"""The papers' sets of documents, built from the files that are there: text or counts → rows, classes, terms.

Known of the papers' sets: books and dvd have unigrams and bigrams; the sets of 20 Newsgroups have 500 documents per
group, no stop words, stemmed words, and no term of fewer than three documents; the groups of the two sets of eight, and
the topics of that of Reuters, are not printed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from sparseoco.core.errors import InputError
from sparseoco.papers.raw_reviews import convert_reviews
from sparseoco.papers.sources import DOMAINS, REVIEW_CLASSES, DocumentSource
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


def load_documents(source: DocumentSource, files: Mapping[str, Path], work: Path) -> Documents:
    """A set of documents; stores go to `work`, one per file and options.

    Raises `InputError` if a file is invalid, or reviews have other than two classes.
    """
    paths = [files[name] for name in source.files]
    options = TextOptions.of(dict(source.options))
    digest = "-".join(digest_file(path)[:16] for path in paths)
    if source.raw:
        paths = [_converted(path, work) for path in paths]
    folder = work / f"{digest}-{options.digest[:16]}"
    ingest([str(path) for path in paths], folder, options)
    rows, terms = read_shards(folder)
    store = Store.open(folder)
    labels, classes = store.labels(), store.classes
    if source.paper in DOMAINS and len(classes) != REVIEW_CLASSES:
        raise InputError(f"{paths[0]} has {len(classes)} classes, and reviews have two.", code="invalid-labels")
    if store.is_multilabel:
        labels, rows, terms = _with_one_label(labels, rows, terms)
    chosen = list(range(len(classes)))
    if source.names:
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


@lru_cache
def _porter() -> Any:
    """Porter's stemmer. Raises `InputError` if snowballstemmer is not installed."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise InputError(
            "Stemmed documents of 20 Newsgroups need snowballstemmer: pip install 'sparseoco[papers]'.",
            code="missing-package",
        ) from error
    return snowballstemmer.stemmer("porter")


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of at most two letters, and words not all of a to z, are unchanged.

    >>> [stem(word) for word in ("caresses", "ponies", "relational", "hopping", "generalizations", "sky", "b52")]
    ['caress', 'poni', 'relat', 'hop', 'gener', 'sky', 'b52']
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    return str(_porter().stemWord(word))


def _converted(path: Path, work: Path) -> Path:
    """The JSON lines of a file of raw reviews."""
    out = work / f"{digest_file(path)[:16]}.jsonl"
    if not out.exists():
        convert_reviews(path, out)
    return out


def _groups(source: DocumentSource, classes: list[str]) -> list[int]:
    missing = [name for name in source.groups if name not in classes]
    if missing:
        raise InputError(f"{source.files[0]} has no documents of {', '.join(missing)}.", code="missing-class")
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
