"""Predictions for new text, a line at a time or over files, in bounded memory."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TextIO

from sparseoco.core.errors import InputError
from sparseoco.text.documents import Bags, Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from sparseoco.training.model import Model

BATCH_LINES = 10_000


def predict_lines(model: Model, lines: Iterable[bytes], out: TextIO, *, margins: bool) -> None:
    """A prediction a line of UTF-8 text; with `margins`, each column's margin after a tab.

    Raises `InputError` naming the line that is not UTF-8.
    """
    number, stream = 0, iter(lines)
    while batch := list(islice(stream, BATCH_LINES)):
        texts = []
        for line in batch:
            number += 1
            try:
                texts.append(line.decode())
            except UnicodeDecodeError as error:
                raise InputError(f"Line {number} of standard input is not UTF-8.") from error
        _write(model, texts, out, margins, [()] * len(texts))


def predict_files(
    model: Model, inputs: Sequence[str], overrides: dict[str, Any], out: TextIO, *, margins: bool
) -> None:
    """The id, a tab and the prediction of each document in files, read as the model's text was but for `overrides`."""
    options = TextOptions.of(model.text.plain() | {"classes": None} | overrides)  # no label is asked for
    for batch in read_documents(inputs, options, labelled=False):
        _write(model, batch, out, margins, [(document,) for document in batch.ids.to_pylist()])


def _write(
    model: Model, texts: list[str] | Documents | Bags, out: TextIO, margins: bool, before: Sequence[tuple[str, ...]]
) -> None:
    values = model.margins(texts)
    for first, label, row in zip(before, model.decide(values), values, strict=True):
        cells = [*first, str(label)] + ([f"{value:.6g}" for value in row] if margins else [])
        out.write("\t".join(cells) + "\n")
    out.flush()
