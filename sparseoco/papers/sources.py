"""The data sets of the papers."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from sparseoco.core.errors import InputError
from sparseoco.core.logs import progress_to
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import read_toml
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

# ----------------------------------------------------------------------------------------------------------------------
# The files that the papers' sets of documents are built from: which there can be, and which are in a folder.
#
# A set may be given in several formats. `SOURCES` has a row for each, the preferred one first, and `find_sources` takes
# the first whose files are there.


class DocumentSource(NamedTuple):
    """A set of the papers: the files it is built from here, and which part of them."""

    name: str
    title: str
    paper: str
    """The name of the papers' set that it is compared with."""
    files: tuple[str, ...]
    """Patterns of their names, without the suffix .gz; once found, their names."""
    options: Mapping[str, Any]
    groups: Sequence[str] = ()
    """Groups of 20 Newsgroups."""
    largest: int = 0
    """Number of topics of Reuters, those of the most documents."""
    names: str = ""
    """Of counts with numbered features, the file of their names."""
    differs: str = ""
    """How it differs from the papers' set."""

    @property
    def all_words(self) -> bool:
        """Whether it is of all words of a domain's reviews, where the domain's own set has the corpus's counts."""
        return self.name == f"{self.paper}-text"


Files = Mapping[str, Path]
"""The input files by name."""
_FILE: Final = read_toml(Path(__file__).with_name("sources.toml"))
DOMAINS: Final = tuple(_FILE["domains"])
"""Domains of the Multi-Domain Sentiment data."""
PRINTED: Final[dict[str, tuple[int, int]]] = {name: tuple(sizes) for name, sizes in _FILE["printed"].items()}
"""Documents and features of the papers' sets: of reviews as in 2012 and 2016."""
PRINTED_2011: Final = PRINTED | {name: tuple(sizes) for name, sizes in _FILE["printed_2011"].items()}
"""The same as in 2011."""


SOURCES: Final = (
    *(
        DocumentSource(
            **row
            | {name: row[name].format(domain=domain) for name in ("name", "title")}
            | {"paper": domain, "files": tuple(file.format(domain=domain) for file in row["files"])}
        )
        for domain in DOMAINS
        for row in _FILE["reviews"]
    ),
    *(DocumentSource(**row | {"paper": row["name"], "files": tuple(row["files"])}) for row in _FILE["sets"]),
)


def choose_sources(*names: str) -> list[DocumentSource]:
    """All sources of the sets of these names, in this order."""
    return [source for name in names for source in SOURCES if source.name == name]


def find_sources(data: Path, sources: Sequence[DocumentSource]) -> tuple[list[DocumentSource], dict[str, Path]]:
    """Of each set, the first source whose files are in the folder, and all their files by name.

    Files may be in a subfolder, and compressed: their names end in .gz then. Raises `InputError` if there are none.
    """
    available: dict[str, DocumentSource] = {}
    files: dict[str, Path] = {}
    for source in sources:
        paths = [path for pattern in source.files if (path := find_file(data, pattern))]
        if source.name in available or len(paths) < len(source.files):
            continue
        depths = (len(Path(pattern).parts) for pattern in source.files)
        own = {"/".join(path.parts[-depth:]): path for path, depth in zip(paths, depths, strict=True)}
        files |= own
        names = ""
        if source.names and (numbering := paths[0].with_name(source.names)).exists():
            names = f"{source.names} of {source.title}"
            files[names] = numbering
        available[source.name] = source._replace(files=tuple(own), names=names)
    if not available:
        raise no_input_files(data, (f"{pattern}[.gz]" for source in sources for pattern in source.files))
    return list(available.values()), files


def missing_titles(known: Sequence[DocumentSource], found: Iterable[DocumentSource]) -> list[str]:
    """The title of the preferred source of each set that has none in the folder."""
    preferred = {source.name: source.title for source in reversed(known)}
    there = {source.name for source in found}
    return [preferred[name] for name in dict.fromkeys(source.name for source in known) if name not in there]


def find_file(data: Path, pattern: str) -> Path | None:
    """The first file of the name, in the folder or one of its subfolders."""
    names = [f"{folder}{pattern}{suffix}" for folder in ("", "*/") for suffix in ("", ".gz")]
    return next((path for name in names for path in sorted(data.glob(name))), None)


def no_input_files(data: Path, names: Iterable[str]) -> InputError:
    """The error of a folder that has none of these files."""
    return InputError(f"{data} has none of the input files: {', '.join(dict.fromkeys(names))}.", code="missing-file")


# ----------------------------------------------------------------------------------------------------------------------
# The papers' sets of documents, built from the files that are there: text or counts → rows, classes, terms.
#
# Known of the papers' sets: books and dvd have unigrams and bigrams; the sets of 20 Newsgroups have 500 documents per
# group, no stop words, stemmed words, and no term of fewer than three documents; the groups of the two sets of eight,
# and the topics of that of Reuters, are not printed.


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


def load_documents(source: DocumentSource, files: Files, work: Path) -> Documents:
    """A set of documents; stores go to `work`, one per file and options.

    Raises `InputError` if a file is invalid, or reviews have other than two classes.
    """
    paths = [files[name] for name in source.files]
    digests = [digest_file(path)[:16] for path in paths]
    options = TextOptions.of(dict(source.options))
    folder = work / f"{'-'.join(digests)}-{options.digest[:16]}"
    with progress_to(lambda *step: None):  # it is part of a step of the experiment
        ingest([str(path) for path in paths], folder, options)
    rows, terms = read_shards(folder)
    store = Store.open(folder)
    labels, classes = store.labels(), store.classes
    if source.paper in DOMAINS and len(classes) != 2:
        raise InputError(f"{paths[0]} has {len(classes)} classes, and reviews have two.", code="invalid-labels")
    if store.is_multilabel:
        # The documents with exactly one label, their features in decreasing order of frequency.
        single = np.flatnonzero(np.diff(labels.indptr) == 1)
        rows, terms = _frequent(rows[single], terms, 1)
        order = np.lexsort((np.array(terms), -np.asarray(rows.sum(axis=0)).ravel()))
        labels, rows, terms = labels[single].indices, csr_matrix(rows[:, order]), [terms[k] for k in order.tolist()]
    if source.names:
        lines = files[source.names].read_text(encoding="utf-8").splitlines()
        names = dict(line.split("\t", 1) for line in lines)
        terms = [names.get(term, term) for term in terms]
    chosen = list(range(len(classes)))
    if source.groups:
        missing = [name for name in source.groups if name not in classes]
        if missing:
            raise InputError(f"{source.files[0]} has no documents of {', '.join(missing)}.", code="missing-class")
        chosen = [classes.index(name) for name in source.groups]
        sample = _sample(rows, labels, chosen)
        labels, (rows, terms) = labels[sample], _stemmed(rows[sample], terms)
    elif source.largest:  # the topics with the most documents, in that order
        sizes = np.bincount(labels, minlength=len(classes))
        chosen = sorted(chosen, key=lambda k: (-sizes[k], classes[k]))[: source.largest]
        own = np.flatnonzero(np.isin(labels, chosen))
        labels, (rows, terms) = labels[own], _frequent(rows[own], terms, 1)
    index = np.zeros(len(classes))
    index[chosen] = np.arange(len(chosen))
    rows.sort_indices()
    digest, numbers = hashlib.sha256(), index[labels]
    for array in (rows.indptr.astype("<i8"), rows.indices.astype("<i8"), rows.data.astype("<f8"), numbers):
        digest.update(array.tobytes())
    wide = rows.data.astype(np.float64), rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    named = tuple(classes[label] for label in chosen)
    return Documents(csr_matrix(wide, shape=rows.shape), numbers, named, tuple(terms), digest.hexdigest())


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

    >>> [stem(word) for word in ("caresses", "ponies", "cats", "agreed", "conflated", "sized", "falling", "happy")]
    ['caress', 'poni', 'cat', 'agre', 'conflat', 'size', 'fall', 'happi']
    >>> [stem(word) for word in ("relational", "hopping", "generalizations", "replacement", "sky", "b52", "10th")]
    ['relat', 'hop', 'gener', 'replac', 'sky', 'b52', '10th']
    """
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):
        return word
    return str(_porter().stemWord(word))


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
