"""Data files → tables, a page, and which of the paper's claims hold."""

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
from sparseoco.papers.experiment import check_repetitions, find_file, find_files, publish
from sparseoco.papers.tables import read_schemas
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locks import exclusive_lock
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

FILE: Final = "books.svmlight.gz"
TEXT: Final = "books.jsonl.gz"
TEXT_REPETITIONS: Final = 3
"""Data sets drawn from the text, to show the effect of the number of features."""
SCHEMAS: Final = read_schemas(__file__)


def reproduce_cl_fobos(
    data: Path,
    out: Path,
    *,
    repetitions: int = published.REPETITIONS,
    rounds: int = published.ROUNDS,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables 1 to 7; write OUT/*.parquet, OUT/inputs.json and OUT/cl-fobos.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of books.svmlight.gz, counts of words with labels −1 and 1, in it or in a subfolder; and, to try all
        words with the paper's steps, books.jsonl.gz, reviews with labels negative and positive.
    out : Path
        Folder of the results.
    repetitions, rounds : int
        Data sets, and examples drawn for each.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If the file of counts is not there, or one is invalid.
    """
    check_repetitions(repetitions=repetitions)
    least = published.TRACKED[0].K
    if rounds < least:
        raise InputError(
            f"rounds={rounds} must be at least {least}, the first lazy evaluation of Figure 2.", code="invalid-option"
        )
    files = find_files(data, [FILE])
    text = find_file(data, TEXT)
    with exclusive_lock(out):
        options = TextOptions(format="svmlight", duplicates="all")
        draws = _draws(files[FILE], out / "examples", options, ("-1", "1"), repetitions, rounds, progress)
        others: dict[str, list[Draw]] = {}
        if text is not None:
            files[TEXT] = text
            options = TextOptions(format="jsonl", ngram_range=(1, 2), duplicates="all")
            wide = _draws(text, out / "text", options, ("negative", "positive"), TEXT_REPETITIONS, rounds, progress)
            others = dict(zip(OTHERS, (wide, [draw.presence() for draw in wide]), strict=True))
        records = run_experiments(draws, others, out / "cells", progress)
        records["claims"] = cl_fobos_claims(records)
        inputs = {"repetitions": repetitions, "rounds": rounds, **_sizes(draws[0], *others.values())}
        return publish(out, "cl-fobos", records, SCHEMAS, inputs, files, cl_fobos_page)


def _draws(
    path: Path,
    store: Path,
    options: TextOptions,
    classes: tuple[str, str],
    repetitions: int,
    rounds: int,
    progress: ProgressCallback,
) -> list[Draw]:
    """Data sets drawn from the paper's number of examples, which are themselves drawn if there are more."""
    ingest([str(path)], store, options, progress=progress)
    if tuple(Store.open(store).classes or ()) != classes:
        raise InputError(f"{path} has labels other than {' and '.join(classes)}.", code="invalid-labels")
    features, _ = read_shards(store)
    labels = Store.open(store).labels()
    if len(labels) > published.EXAMPLES:
        generator = np.random.Generator(np.random.PCG64([published.EXAMPLES, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[: published.EXAMPLES])
        features, labels = features[chosen], labels[chosen]
        features = features[:, np.unique(features.indices)]
    return [Draw(features, labels, digest_file(path), k, rounds) for k in range(repetitions)]


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
