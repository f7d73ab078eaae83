"""Files of data → tables, a page, and which of the paper's claims hold."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.papers.cl_fobos import published
from sparseoco.papers.cl_fobos.claims import weigh
from sparseoco.papers.cl_fobos.gathering import gather
from sparseoco.papers.cl_fobos.page import render
from sparseoco.papers.cl_fobos.published import OTHERS
from sparseoco.papers.cl_fobos.records import TABLES
from sparseoco.papers.cl_fobos.runs import Draw
from sparseoco.papers.problems import find_file
from sparseoco.storage.commit import commit_bytes, commit_json, digest_file, exclusive_lock
from sparseoco.storage.metrics import write_result_table
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

FILE: Final = "books.svmlight.gz"
TEXT: Final = "books.jsonl.gz"
TEXT_REPETITIONS: Final = 3
"""Data sets drawn of the text, by which it is seen what the number of features does."""


def reproduce_cl_fobos(
    data: Path,
    out: Path,
    *,
    repetitions: int = published.REPETITIONS,
    rounds: int = published.ROUNDS,
    progress: ProgressCallback = lambda step, done, total: None,
) -> Path:
    """Run Tables 1 to 7 and write OUT/*.parquet, OUT/inputs.json and OUT/cl-fobos.html; returns the page.

    `data` has books.svmlight.gz, counts of words with labels −1 and 1, or a folder of it; and, if all words are to be
    tried with the paper's steps, books.jsonl.gz, reviews labelled negative and positive. Data sets of `rounds` examples
    are drawn `repetitions` times. What is done stays in OUT/cells, and a run that was killed goes on from
    there. Equal files and numbers give equal bytes, but for seconds, which stand in `timings.parquet` and on the page.

    Raises `InputError` where the file is not there, or holds something else.
    """
    if repetitions < 2:
        raise InputError("Less than two repetitions have no spread: choose two or more.")
    if rounds < published.WATCHED[0].K:
        raise InputError(
            f"Less than {published.WATCHED[0].K} rounds end before the first lazy evaluation that is looked at."
        )
    path = find_file(data, FILE)
    if path is None:
        raise InputError(f"{data} has no {FILE}, the reviews of books as counts of words.")
    text = find_file(data, TEXT)
    with exclusive_lock(out):
        options = TextOptions(format="svmlight", duplicates="all")
        draws = _draws(path, out / "examples", options, ("-1", "1"), repetitions, rounds, progress)
        others: dict[str, list[Draw]] = {}
        if text is not None:
            options = TextOptions(format="jsonl", ngram_range=(1, 2), duplicates="all")
            wide = _draws(text, out / "text", options, ("negative", "positive"), TEXT_REPETITIONS, rounds, progress)
            others = dict(zip(OTHERS, (wide, [draw.presence() for draw in wide]), strict=True))
        records = gather(draws, others, out / "cells", progress)
        records["claims"] = weigh(records)
        for name, schema in TABLES.items():
            write_result_table(out / f"{name}.parquet", records[name], schema)
        inputs = {
            "sparseoco": __version__,
            "repetitions": repetitions,
            "rounds": rounds,
            "files": {of.name: digest_file(of) for of in (path, text) if of is not None},
            **_sizes(draws[0], *others.values()),
        }
        commit_json(out / "inputs.json", inputs)
        page = out / "cl-fobos.html"
        commit_bytes(page, render(records, inputs).encode())
    return page


def _draws(
    path: Path,
    store: Path,
    options: TextOptions,
    classes: tuple[str, str],
    repetitions: int,
    rounds: int,
    progress: ProgressCallback,
) -> list[Draw]:
    """Data sets drawn from the paper's number of examples, which are themselves drawn where there are more."""
    ingest([str(path)], store, options, progress=progress)
    if tuple(Store.open(store).classes or ()) != classes:
        raise InputError(f"{path} has other labels than {' and '.join(classes)}.")
    features, _ = read_shards(store)
    labels = Store.open(store).labels()
    if len(labels) > published.EXAMPLES:
        generator = np.random.Generator(np.random.PCG64([published.EXAMPLES, len(labels)]))
        chosen = np.sort(generator.permutation(len(labels))[: published.EXAMPLES])
        features, labels = features[chosen], labels[chosen]
        features = features[:, np.unique(features.indices)]
    return [Draw(features, labels, digest_file(path), k, rounds) for k in range(repetitions)]


def _sizes(own: Draw, *others: list[Draw]) -> dict[str, Any]:
    features, more = own.features, others[0][0].features if others else None
    return {
        "examples": features.shape[0],
        "features": features.shape[1],
        "nonzeros_an_example": features.nnz / features.shape[0],
        "largest_count": int(features.max()),
        "all_words": None if more is None else more.shape[1],
        "all_words_an_example": None if more is None else more.nnz / more.shape[0],
    }
