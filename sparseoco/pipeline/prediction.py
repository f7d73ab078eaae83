"""Predictions for new text, streamed in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TextIO

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.escapes import tsv_field, tsv_list
from sparseoco.scoring.scorers import reading_options
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.readers import ReadOutcome, read_documents
from sparseoco.text.transform import read_records
from sparseoco.training.models.model import Model

BATCH_LINES = 10_000


def predict_lines(
    model: Model, lines: Iterable[bytes], out: TextIO, *, margins: bool, proba: bool = False
) -> ReadOutcome:
    """Write a prediction for each line of UTF-8 text; with `margins`, also each column's margin after a tab,
    and with `proba` the probability of each class. Labels are escaped (`sparseoco.core.escapes.tsv_field`).

    Returns and raises as `text_batches`.
    """
    outcome = ReadOutcome()
    for texts in text_batches(model, lines, outcome):
        _write(model, texts, out, margins, proba, [()] * len(texts))
    return outcome


def predict_files(
    model: Model, inputs: Sequence[str], overrides: dict[str, Any], out: TextIO, *, margins: bool, proba: bool = False
) -> ReadOutcome:
    """Write the id, a tab and the prediction of each document in files; the rest as `predict_lines`.

    They are read as `document_batches` reads them; labels are not needed. Returns what was read, and what was not.
    """
    outcome = ReadOutcome()
    for batch in document_batches(model, inputs, overrides, outcome):
        _write(model, batch, out, margins, proba, [(document,) for document in batch.ids.to_pylist()])
    return outcome


def text_batches(model: Model, lines: Iterable[bytes], outcome: ReadOutcome) -> Iterator[list[str] | Documents]:
    """Lines of UTF-8 text, `BATCH_LINES` at a time; those of a model with fields are records, which `outcome` counts.

    Raises `InputError` naming the line that is not UTF-8, or no record.
    """
    number, stream = 0, iter(lines)
    while batch := list(islice(stream, BATCH_LINES)):
        texts, first = [], number + 1
        for line in batch:
            number += 1
            try:
                texts.append(line.decode())
            except UnicodeDecodeError as error:
                raise InputError(f"Line {number} of standard input is not UTF-8.", code="encoding") from error
        if not model.text.fields:
            yield texts
            continue
        records = read_records(texts, model.text, first)
        outcome.add(records)
        yield records


def document_batches(
    model: Model, inputs: Sequence[str], overrides: dict[str, Any], outcome: ReadOutcome | None = None
) -> Iterator[Documents | CountedDocuments]:
    """The documents in files, read as a corpus that is scored, with `overrides`.

    Raises `InputError` if the option where leaves none, and as `read_documents`.
    """
    options, outcome = reading_options([model], overrides), outcome or ReadOutcome()
    yield from read_documents(inputs, options, labelled=False, outcome=outcome, given=overrides)
    if options.where and not outcome.documents:
        raise InputError("No document has the values of --where.", code="no-documents")


def _write(
    model: Model,
    texts: list[str] | Documents | CountedDocuments,
    out: TextIO,
    margins: bool,
    proba: bool,
    ids: Sequence[tuple[str, ...]],
) -> None:
    values = model.margins(texts)
    rows = np.empty((len(values), 0))
    if margins:
        rows = values
    if proba:
        rows = np.concatenate([rows, model.probabilities(values)], axis=1)
    for document, label, row in zip(ids, model.decide(values), rows, strict=True):
        shown = tsv_list(label) if isinstance(label, list) else tsv_field(str(label))
        cells = [*map(tsv_field, document), shown] + [f"{value:.6g}" for value in row]
        out.write("\t".join(cells) + "\n")
    out.flush()
