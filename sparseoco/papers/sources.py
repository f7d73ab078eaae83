"""The files that the papers' sets of documents are built from: which there can be, and which are in a folder.

A set may be given in several formats. `SOURCES` has a row for each, the preferred one first, and `find_sources` takes
the first whose files are there.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.papers.raw_reviews import is_raw

NAMES: Final = "feature_names.tsv"
"""File of the names of the features, which SVMlight files number, in the folder of the counts."""


class DocumentSource(NamedTuple):
    """A set of the papers: the files it is built from here, and which part of them."""

    name: str
    title: str
    paper: str
    """The name of the papers' set that it is compared with."""
    files: tuple[str, ...]
    """Patterns of their names, without the suffix .gz; once found, their names."""
    options: Mapping[str, Any]
    groups: tuple[str, ...] = ()
    """Groups of 20 Newsgroups."""
    largest: int = 0
    """Number of topics of Reuters, those of the most documents."""
    names: str = ""
    """Of counts with numbered features, the file of their names."""
    raw: bool = False
    """The files have the mark-up of the original corpus (`raw_reviews`)."""
    differs: str = ""
    """How it differs from the papers' set."""

    @property
    def corpus(self) -> str:
        """What its documents are of: sets of one corpus may share documents."""
        return "20 Newsgroups" if self.groups else self.paper

    @property
    def all_words(self) -> bool:
        """Whether it is of all words of a domain's reviews, where the domain's own set has the corpus's counts."""
        return self.name == f"{self.paper}-text"


DOMAINS: Final = ("books", "dvd", "electronics", "kitchen")
"""Domains of the Multi-Domain Sentiment data."""
REVIEW_CLASSES: Final = 2
_LABELLED: Final = "the corpus's 2,000 labelled reviews instead of the papers' documents"
_WORDS: Final = {"duplicates": "all", "ngram_range": (1, 2)}
_PROCESSED: Final = {"format": "processed", "duplicates": "all", "encoding_errors": "replace"}


def _domain(domain: str) -> list[DocumentSource]:
    """The sources of a domain: counts, processed or as SVMlight; and text, as JSON lines or with the original mark-up.

    The domain's folder may have a longer name, as the corpus's kitchen_&_housewares.
    """
    unlabeled = f"{domain}*/unlabeled.review"
    both = (f"{domain}*/negative.review", f"{domain}*/positive.review")
    counts = DocumentSource(domain, domain, domain, (unlabeled,), _PROCESSED, differs="the papers' documents")
    numbered = counts._replace(
        files=(f"{domain}.svmlight",),
        options={"format": "svmlight", "index_base": 0, "duplicates": "all"},
        names=NAMES,
        differs="counts of the features that the file has",
    )
    text = DocumentSource(
        *(f"{domain}-text", f"{domain}, from text", domain),
        (f"{domain}.jsonl",),
        {"format": "jsonl", **_WORDS},
        differs="another sample of the same reviews, raw text with all its unigrams and bigrams",
    )
    marked_up = text._replace(raw=True)
    return [
        counts,
        numbered,
        counts._replace(files=both, differs=f"{_LABELLED}, with all features"),
        text,
        marked_up._replace(files=both, differs=f"{_LABELLED}, raw text with all its unigrams and bigrams"),
        marked_up._replace(files=(unlabeled,)),
    ]


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


def _news(name: str, groups: tuple[str, ...]) -> DocumentSource:
    title, differs = name, _DRAWN
    if len(groups) > 2:
        title, differs = f"{name}-like", f"eight groups chosen here, the paper's are not printed; {_DRAWN}"
    return DocumentSource(name, title, name, ("20news-bydate.jsonl",), {"duplicates": "all"}, groups, differs=differs)


SOURCES: Final = (
    *(source for domain in DOMAINS for source in _domain(domain)),
    *(_news("ob-2-1", _OVERLAP), _news("sb-2-1", _APART), _news("ob-8-1", _OVERLAP_8), _news("sb-8-1", _APART_8)),
    DocumentSource(
        *("reut20", "reut20", "reut20", ("reuters21578.jsonl",)),
        {"label_field": "topics", "labels": "multi"},
        largest=20,
        differs="documents with one topic, one of the 20 largest, without titles; the paper's 20 are not printed",
    ),
)
PRINTED: Final = {
    "books": (4465, 332_440),
    "dvd": (3586, 282_900),
    "electronics": (5681, 235_796),
    "kitchen": (5945, 205_665),
    "ob-2-1": (1000, 5942),
    "sb-2-1": (1000, 6276),
    "ob-8-1": (4000, 13_890),
    "sb-8-1": (4000, 16_282),
    "reut20": (7800, 34_488),
}
"""Documents and features of the papers' sets: of reviews as in 2012 and 2016."""
PRINTED_2011: Final = PRINTED | {"books": (4465, 332_441), "dvd": (3586, 282_901)}
"""The same as in 2011."""


def choose_sources(*names: str) -> list[DocumentSource]:
    """All sources of the sets of these names, in this order."""
    return [source for name in names for source in SOURCES if source.name == name]


def find_sources(data: Path, sources: Iterable[DocumentSource]) -> tuple[list[DocumentSource], dict[str, Path]]:
    """Of each set, the first source whose files are in the folder, and all their files by name.

    Files may be in a subfolder, and compressed: their names end in .gz then. Raises `InputError` if there are none.
    """
    listed = list(sources)
    available: dict[str, DocumentSource] = {}
    files: dict[str, Path] = {}
    for source in listed:
        if source.name in available:
            continue
        found = [_find(data, pattern, source.raw) for pattern in source.files]
        paths = [path for path in found if path is not None]
        if len(paths) < len(found):
            continue
        names = tuple(
            "/".join(path.parts[-len(Path(pattern).parts) :]) for pattern, path in zip(source.files, paths, strict=True)
        )
        files |= dict(zip(names, paths, strict=True))
        numbering = paths[0].with_name(source.names) if source.names else None
        own = ""
        if numbering is not None and numbering.exists():
            own = f"{source.names} of {source.title}"
            files[own] = numbering
        available[source.name] = source._replace(files=names, names=own)
    if not available:
        patterns = dict.fromkeys(f"{pattern}[.gz]" for source in listed for pattern in source.files)
        raise InputError(f"{data} has none of the input files: {', '.join(patterns)}.", code="missing-file")
    return list(available.values()), files


def missing_sources(known: Iterable[DocumentSource], found: Iterable[DocumentSource]) -> list[DocumentSource]:
    """The preferred source of each set that has none in the folder."""
    there = {source.name for source in found}
    absent: dict[str, DocumentSource] = {}
    for source in known:
        if source.name not in there:
            absent.setdefault(source.name, source)
    return list(absent.values())


def _find(data: Path, pattern: str, raw: bool) -> Path | None:
    """The first file of the name, in the folder or one of its subfolders; of reviews, with or without mark-up."""
    paths: Sequence[Path] = [
        path
        for folder in ("", "*/")
        for suffix in ("", ".gz")
        for path in sorted(data.glob(f"{folder}{pattern}{suffix}"))
        if not pattern.endswith(".review") or is_raw(path) == raw
    ]
    return next(iter(paths), None)
