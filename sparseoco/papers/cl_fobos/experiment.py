"""Data files → tables, a page, and which of the paper's claims hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.papers.cl_fobos import published
from sparseoco.papers.cl_fobos.claims import cl_fobos_claims
from sparseoco.papers.cl_fobos.grid import run_experiments
from sparseoco.papers.cl_fobos.page import cl_fobos_page
from sparseoco.papers.cl_fobos.published import OTHERS
from sparseoco.papers.cl_fobos.runs import Draw
from sparseoco.papers.claims import judge
from sparseoco.papers.documents import load_documents
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, check_repetitions, publish
from sparseoco.papers.sources import DOMAINS, PRINTED, DocumentSource, choose_sources, find_sources, missing_sources
from sparseoco.papers.tables import extend, read_schemas
from sparseoco.storage.locks import exclusive_lock

SCHEMAS: Final = read_schemas(__file__)


def reproduce_cl_fobos(
    data: Path,
    out: Path,
    *,
    repetitions: int = published.REPETITIONS,
    rounds: int = published.ROUNDS,
    domain: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables 1 to 7; write OUT/*.parquet, OUT/inputs.json and OUT/cl-fobos.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, and the K that takes as long as CL-FOBOS: in timings.parquet, equal_time.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the counts of reviews and, to try all words with the paper's steps, of their text, in it or in a
        subfolder; of text alone, its counts are used. `reproduce_stda` lists the names of the files.
    out : Path
        Folder of the results.
    repetitions, rounds : int
        Data sets, and examples drawn for each.
    domain : {"books", "dvd", "electronics", "kitchen"}, optional
        Domain of the reviews; by default the first that is in the folder. The paper has books.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If no reviews are there, or a file is invalid.
    """
    check_repetitions(repetitions=repetitions)
    least = published.TRACKED[0].K
    if rounds < least:
        raise InputError(
            f"rounds={rounds} must be at least {least}, the first lazy evaluation of Figure 2.", code="invalid-option"
        )
    if domain is not None and domain not in DOMAINS:
        raise InputError(f"domain={domain!r} must be one of {', '.join(DOMAINS)}.", code="invalid-option")
    known = choose_sources(*DOMAINS, *(f"{name}-text" for name in DOMAINS))
    found, _ = find_sources(data, known)
    sources, files = _find_domain(data, domain)
    own, *text = sources
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        draws = _draws(own, files, out, repetitions, rounds)
        progress("read", 1, len(sources))
        others: dict[str, list[Draw]] = {}
        if text:
            wide = _draws(text[0], files, out, min(repetitions, published.SEARCHED), rounds)
            progress("read", 2, len(sources))
            others = dict(zip(OTHERS, (wide, [draw.presence() for draw in wide]), strict=True))
        records = run_experiments(draws, others, out / "cells", progress)
        extend(records, judge(cl_fobos_claims(records, printed=own.paper == published.DOMAIN)))
        inputs = {
            "domain": own.paper,
            "differs": own.differs,
            "missing": [{"title": source.title, "shows": _shows(source)} for source in missing_sources(known, found)],
            "repetitions": repetitions,
            "rounds": rounds,
            **_sizes(draws[0], *others.values()),
        }
        return publish(out, "cl-fobos", records, SCHEMAS, inputs, files, cl_fobos_page)


def _find_domain(data: Path, domain: str | None) -> tuple[list[DocumentSource], dict[str, Path]]:
    """The counts and the text of a domain, or of the first that is in the folder; and their files."""
    domains = DOMAINS if domain is None else (domain,)
    found, files = find_sources(data, choose_sources(*domains, *(f"{name}-text" for name in domains)))
    first = min(found, key=lambda source: DOMAINS.index(source.paper)).paper
    sources = [source for source in found if source.paper == first]
    names = {name for source in sources for name in (*source.files, source.names)}
    return sources, {name: path for name, path in files.items() if name in names}


def _shows(source: DocumentSource) -> str:
    """What a set that is not in the folder would have shown."""
    if source.name == published.DOMAIN:
        return "Tables 1 to 7"
    if source.paper == published.DOMAIN:
        return "the effect of all words and pairs of words"
    return f"the same experiments on a domain that the paper does not print (--domain {source.paper})"


def _draws(source: DocumentSource, files: Mapping[str, Path], out: Path, repetitions: int, rounds: int) -> list[Draw]:
    """Data sets drawn from the paper's number of examples, which are themselves drawn if there are more."""
    documents = load_documents(source, files, out / "stores")
    features, labels, digest = documents.rows, documents.labels.astype(np.int64), documents.digest
    size = PRINTED[source.paper][0]
    if len(labels) > size:
        generator = np.random.Generator(np.random.PCG64([size, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[:size])
        features, labels = features[chosen], labels[chosen]
        features = features[:, np.unique(features.indices)]
        digest = f"{digest}, {size} of them"
    return [Draw(features, labels, digest, k, rounds) for k in range(repetitions)]


def _sizes(own: Draw, *others: list[Draw]) -> dict[str, Any]:
    features, wide = own.features, others[0][0].features if others else None
    return {
        "examples": features.shape[0],
        "features": features.shape[1],
        "nonzeros_an_example": features.nnz / features.shape[0],
        "largest_count": int(features.max()),
        "all_words": None if wide is None else wide.shape[1],
        "all_words_an_example": None if wide is None else wide.nnz / wide.shape[0],
    }
