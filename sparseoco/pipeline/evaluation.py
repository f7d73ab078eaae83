"""Predictions of a model for text, and their evaluation."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.formatting import tsv_field, tsv_list
from sparseoco.core.logs import logged_step, report_progress
from sparseoco.learners.losses import find_loss
from sparseoco.pipeline.run_file import RunFile
from sparseoco.scoring.parts import reading_options
from sparseoco.storage.commit import check_file, commit_json, exclusive_lock
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, parquet_writer
from sparseoco.store.shards import Store
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import digest_source
from sparseoco.text.readers import ReadOutcome, arrow_table, read_documents, read_records
from sparseoco.text.sources import check_apart, find_sources
from sparseoco.training import metrics as scores
from sparseoco.training.decisions import Predictions, is_predictions, numbered_labels, predictions_table
from sparseoco.training.metrics import Scores
from sparseoco.training.models import Model, source_digest
from sparseoco.training.options import METRICS

# ----------------------------------------------------------------------------------------------------------------------
# Predictions for new text, streamed in bounded memory.


BATCH_LINES = 10_000


Batches = Iterable[tuple[list[str] | Documents | CountedDocuments, Sequence[str] | None]]
"""Texts, and the ids of documents in files."""


def predict(model: Model, batches: Batches, out: TextIO, *, margins: bool, proba: bool = False) -> None:
    """Write a line for each text: its id, if it has one, and the prediction; with `margins` that of each column, and
    with `proba` the probability of each class. Columns are separated by tabs, and labels are escaped
    (`sparseoco.core.formatting.tsv_field`). Raises `InputError`.
    """
    for texts, ids in batches:
        values = model.margins(texts)
        rows = values if margins else np.empty((len(values), 0))
        if proba:
            rows = np.concatenate([rows, model.probabilities(values)], axis=1)
        names: list[tuple[str, ...]] = [(tsv_field(name),) for name in ids] if ids is not None else [()] * len(values)
        for name, label, row in zip(names, model.decide(values), rows, strict=True):
            shown = tsv_list(label) if isinstance(label, list) else tsv_field(str(label))
            out.write("\t".join([*name, shown, *(f"{value:.6g}" for value in row)]) + "\n")
        out.flush()


def text_and_ids(
    model: Model, inputs: Sequence[str], overrides: dict[str, Any], lines: Iterable[bytes], outcome: ReadOutcome
) -> Iterator[tuple[list[str] | Documents | CountedDocuments, Sequence[str] | None]]:
    """The documents of `inputs` with their ids; without inputs, the `lines`. `outcome` counts what is read."""
    if not inputs:
        for texts in text_batches(model, lines, outcome):
            yield texts, None
        return
    for batch in document_batches(model, inputs, overrides, outcome):
        yield batch, batch.ids.to_pylist()


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


# ----------------------------------------------------------------------------------------------------------------------
# Evaluation of a saved model on labelled text.


TEST = "test.parquet"
"""The file in the folder of a run with the predictions of its test documents."""
NO_TEST_DOCUMENTS = "No documents to evaluate: check the inputs and --where."
NO_TEST_LABELS = "Plain lines of text have no labels: evaluate needs labelled documents."


def evaluate_model(
    model: Model,
    inputs: Sequence[str],
    where: dict[str, str],
    predictions: Location | None = None,
    *,
    holdout: float = 0.0,
    reading: Mapping[str, Any] | None = None,
    ingested: Store | None = None,
    slices: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare a model's predictions with the labels of text.

    Parameters
    ----------
    inputs : sequence of str
        Files, folders or URIs, read with the options of the model's own text.
    where : dict
        Values of fields that documents must have.
    predictions : path, optional
        Receives ids, labels and margins, as a table of `sparseoco.training.decisions`.
    holdout : float
        If not 0, evaluate on the documents only that ingest withheld with this share.
    reading : mapping, optional
        Options of reading that differ from those of the model's own text, such as the format.
    ingested : Store, optional
        Its sources must be the versions that were ingested.
    slices : sequence of str
        Fields by whose values the metrics are computed, too; ``length`` is the number of characters.

    Returns
    -------
    dict
        Every metric of `sparseoco.training.options.METRICS` that is defined, by name: those of predicted classes at the
        model's threshold, log loss of its probabilities. With classes, also the error of predicting the majority
        class, the confusion matrix (rows are true classes), and precision, recall and F1 of each class; with more than
        two classes, or label sets, also its average precision and ROC AUC, and of label sets its threshold;
        ``trained_on``, the names of inputs that the model has learned documents of, as far as it knows their digests;
        ``never_predicted``, the classes of documents that are predicted for none of them;
        ``intervals``, the bounds of the `CONFIDENCE` intervals of the metrics by name: of error, precision and recall
        Wilson's, of others by the jackknife (`sparseoco.training.metrics.jackknife_width`); documents are taken as
        independent;
        ``slices``, a mapping with the metrics for each ``value`` of a ``field``, the most documents first; None are the
        documents without one, and those beyond `MAX_SLICES` values are one slice;
        ``bad_rows``, ``multiline_rows`` and ``missing`` as in `ReadOutcome`, if there are any. As written to
        ``evaluation.json``.

    Raises
    ------
    InputError
        If there are no documents, or more malformed rows than allowed, such as labels that are not classes of the
        model; and if no document has a field of `slices`.
    """
    reading = dict(reading or {}) | {"carried": [name for name in slices if name != LENGTH]}
    options = TextOptions.of(model.text.plain() | {"holdout": holdout} | reading | {"where": where})
    if model.classes:
        options = options.with_classes(model.classes)
    sums, outcome, parts = _Sums(model), ReadOutcome(), _Slices(model, slices)
    with _writer(predictions) as write:
        for batch in read_documents(
            inputs, options, withheld=holdout > 0, outcome=outcome, ingested=ingested, given=reading
        ):
            if batch.labels is None:
                raise InputError(NO_TEST_LABELS, code="no-labels")
            found = batch.labels if isinstance(batch.labels, pa.Array) else pa.array(batch.labels)
            labels, margins = numbered_labels(found, model.classes), model.margins(batch)
            sums.add(margins, labels)
            parts.add(batch, margins, labels)
            write(predictions_table(Predictions(batch.ids, None, labels, margins), model.classes))
            report_progress("evaluate", sums.rows, 0)
        if not sums.rows:
            raise InputError(NO_TEST_DOCUMENTS, code="no-documents")
        by_value = parts.metrics()
    left: dict[str, Any] = {"bad_rows": outcome.bad_rows, "multiline_rows": outcome.multiline_rows}
    left["missing"] = {name: n for name, n in outcome.missing.items() if n}
    left["trained_on"] = [] if holdout else learned_inputs(model, inputs, options)
    left["slices"] = by_value
    return sums.metrics() | {name: n for name, n in left.items() if n} | {"inputs": list(inputs), "where": where}


def evaluate_texts(model: Model, texts: Any, labels: Any = None) -> dict[str, Any]:
    """As `evaluate_model`, of texts in memory and their labels, by default those in the label column of a table.

    Raises `InputError` for texts that cannot be read, another number of labels, and labels that the model lacks.
    """
    if labels is None:
        table, name = arrow_table(texts), model.text.label_field
        if table is None or name not in table.column_names:
            raise InputError(f"There are no labels: give them, or a table with the column {name!r}.", code="no-labels")
        labels = table[name]
    margins = model.margins(texts)
    found = pa.array(_plain_labels(labels, model))
    if not len(margins):
        raise InputError(NO_TEST_DOCUMENTS, code="no-documents")
    if len(found) != len(margins):
        raise InputError(f"There are {len(margins):,} texts and {len(found):,} labels.", code="invalid-labels")
    try:
        numbers = numbered_labels(found, model.classes)
    except (ValueError, pa.ArrowException):
        known = ", ".join(model.classes[:20]) or "numbers"
        raise InputError(f"A label is missing, or not one of the model's: {known}.", code="invalid-labels") from None
    sums = _Sums(model)
    sums.add(margins, numbers)
    return sums.metrics()


def _plain_labels(labels: Any, model: Model) -> list[Any]:
    """Labels as names of classes, lists of them, or numbers."""
    values = labels.to_pylist() if isinstance(labels, pa.Array | pa.ChunkedArray) else list(labels)
    if not model.classes:
        return values
    if model.is_multilabel:
        return [None if names is None else [str(name) for name in names] for names in values]
    return [None if name is None else str(name) for name in values]


@logged_step("evaluate", "run")
def run_evaluate(run: RunFile) -> Location | None:
    """The evaluate step of a run file: the model on unseen text; returns the path of the result.

    None if the run file asks for no test set (``holdout = 0``).
    """
    options, evaluate = run.text, run.evaluate
    if not evaluate.names_test_set and not options.holdout:
        return None
    inputs, where = test_documents(run)
    path = run.out / "evaluation.json"
    model = Model(run.out / "model")
    with exclusive_lock(run.out), exclusive_lock(run.out / "model"):
        try:
            result = evaluate_model(
                model,
                inputs,
                where,
                run.out / TEST,
                holdout=options.holdout,
                ingested=Store.find(run.store),
                slices=evaluate.slices,
            )
        except InputError as error:
            if evaluate.names_test_set or error.code != "no-documents":
                raise
            return None  # a corpus so small that none was withheld
        commit_json(path, result)
    return path


def test_documents(run: RunFile) -> tuple[list[str], dict[str, str]]:
    """The inputs of the test documents of a run file, and the values of fields that they have."""
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    return list(inputs), run.evaluate.where if run.evaluate.names_test_set else run.text.where


def check_predictions(path: Location, model: Model, inputs: Sequence[str], reading: Mapping[str, Any]) -> None:
    """Raises `InputError` for a file that cannot receive predictions: one of other contents, or among the inputs."""
    check_file(path, "a table of predictions", is_predictions)
    options = TextOptions.of(model.text.plain() | dict(reading))
    sources = find_sources(list(inputs), options)
    check_apart(path, inputs, options, (source.absolute for source in sources), is_file=True)


def learned_inputs(model: Model, inputs: Sequence[str], options: TextOptions) -> list[str]:
    """The names of the files and folders of text that a model has learned documents of (see `Model.learned_sources`).

    A file is read for its digest only if it has the size of one that the model has learned.
    """
    learned = model.learned_sources(options.where)
    sizes = {int(digest.partition("-")[0]) for digest in learned}
    found = [source for source in find_sources(list(inputs), options) if source.bytes in sizes] if learned else []
    return [source.short for source in found if source_digest(source.bytes, digest_source(source, options)) in learned]


CONFIDENCE = 0.95
UNBOUNDED = ("loss", "log_loss", "rmse", "mae")
"""Metrics that may be larger than 1."""


class _Sums:
    """What the metrics of a model are computed from; the first `scores.EXACT_VALUES` margins are kept as a sample."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.kind = scores.label_kind(len(model.classes), label_sets=model.is_multilabel)
        size = len(model.classes)
        self.rows, self._exact_sets, self._log_loss = 0, 0, 0.0
        self._confusion = np.zeros((size, size), np.int64)
        self._counts = np.zeros((3, size), np.int64)
        self._sample: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._scores: Scores | None = None

    def add(self, margins: NDArray[np.float64], labels: NDArray[Any]) -> None:
        self.rows += len(margins)
        if self.kind == "label sets":
            sets = self._model.labels(margins)
            self._counts += [labels.sum(axis=0), sets.sum(axis=0), (labels & sets).sum(axis=0)]
            self._exact_sets += int((labels == sets).all(axis=1).sum())
        elif self.kind != "numbers":
            predicted = self._model.labels(margins)
            np.add.at(self._confusion, (labels, predicted), 1)
        if self.kind != "numbers" and self._model.has_probabilities:
            self._log_loss += log_loss_sum(self._model.probabilities(margins), labels)
        if self._scores is None:
            self._sample.append((margins, labels))
            if self.rows * margins.shape[1] > scores.EXACT_VALUES:
                self._score(margins.shape[1], exact=False)
        else:
            self._scores.add(margins[:, None], labels)

    def _score(self, outputs: int, *, exact: bool) -> Scores:
        """Scores of the rows so far."""
        loss = self._model.description.get("loss")
        self._scores = Scores(
            self.kind,
            self.rows if exact else scores.EXACT_VALUES + 1,
            outputs,
            1,
            joint=loss is not None and bool(find_loss(loss).joint),
            positive=self._model.positive,
        )
        for margins, labels in self._sample:
            self._scores.add(np.ascontiguousarray(margins)[:, None], labels)
        return self._scores

    def metrics(self) -> Row:
        """All metrics, with their intervals."""
        row = self._metrics()
        return row | {"intervals": self._intervals(row)}

    def _intervals(self, row: Row) -> dict[str, list[float]]:
        """The interval of each metric.

        Of many rows the first are a sample, whose standard errors are scaled to the number of all.
        """
        margins, labels = (np.concatenate(parts) for parts in zip(*self._sample, strict=True))
        group = np.arange(len(margins)) % min(scores.GROUPS, len(margins))
        found: dict[str, list[float]] = {}
        if len(margins) > 1:
            left_out = []
            for number in np.unique(group):
                part = _Sums(self._model)
                part.add(np.ascontiguousarray(margins[group != number]), labels[group != number])
                left_out.append(part._metrics())
            for name in METRICS:
                values: list[Any] = [other.get(name) for other in (row, *left_out)]
                if all(isinstance(value, float) for value in values):
                    width = scores.jackknife_width(values[1:], CONFIDENCE) * math.sqrt(len(margins) / self.rows)
                    if width == 0.0:  # such as a recall of 1, of which it knows nothing
                        continue
                    bounds = (-np.inf, 1.0) if name == "r2" else (0.0, np.inf if name in UNBOUNDED else 1.0)
                    found[name] = [max(bounds[0], row[name] - width), min(bounds[1], row[name] + width)]
        for name, (part_of, whole) in self._shares(row).items():
            found[name] = list(scores.share_interval(part_of, whole, CONFIDENCE))
        return found

    def _shares(self, row: Row) -> dict[str, tuple[int, int]]:
        """Metrics that are shares of documents: how many of how many."""
        if self.kind == "numbers":
            return {}
        found = {"error": (round(row["error"] * self.rows), self.rows)}
        if self.kind == "two classes":
            own = self._confusion[:, self._model.positive], self._confusion[self._model.positive]
            hits = int(own[0][self._model.positive])
            for name, counts in zip(("precision", "recall"), own, strict=True):
                if counts.sum():
                    found[name] = hits, int(counts.sum())
        return found

    def _metrics(self) -> Row:
        found = self._scores or self._score(self._sample[0][0].shape[1], exact=True)
        (row,) = found.rows()
        row = {name: value for name, value in row.items() if value is not None}
        model, classes = self._model, self._model.classes
        if self.kind == "numbers":
            return {"rows": self.rows} | row
        if self.kind == "label sets":
            counts, error = self._counts, 1 - self._exact_sets / self.rows
            row |= {"rows": self.rows, "error": error, "classes": scores.metrics_by_class(classes, counts)}
        else:
            row |= scores.classification_metrics(classes, self._confusion)
            correct = self._confusion.diagonal()
            counts, error = np.stack([self._confusion.sum(axis=1), self._confusion.sum(axis=0), correct]), None
        missing = np.flatnonzero((counts[0] > 0) & (counts[1] == 0))
        if missing.size:
            row["never_predicted"] = [classes[k] for k in missing]
        if model.outputs > 1:
            row["classes"] = [of | self._class_ranking(found, k) for k, of in enumerate(row["classes"])]
        row |= scores.count_metrics(counts, self.kind, model.positive, error=error)
        if model.has_probabilities:
            terms = self.rows * (len(classes) if self.kind == "label sets" else 1)
            row["log_loss"] = self._log_loss / terms
        if self.kind == "two classes":
            row["positive_class"] = classes[model.positive]
        return row | {"threshold": model.description.get("threshold"), "calibrated": model.calibration is not None}

    def _class_ranking(self, found: Scores, output: int) -> Row:
        """The metrics of ranking documents by the margin of one class, and the threshold of label sets."""
        own = scores.ranking(found.curve(0, output))
        row: Row = {"average_precision": own.average_precision, "roc_auc": own.roc_auc}
        if self.kind == "label sets":
            row["threshold"] = 0.0 if self._model.thresholds is None else self._model.thresholds.outputs[output].margin
        return row


LENGTH = "length"
"""The slices of documents by their length."""
LENGTHS = (100, 300, 1000, 3000, 10_000)
"""Characters at which slices begin."""
MAX_SLICES, FEWEST_SLICES, MAX_CELLS = 100, 10, 1 << 24
"""Values of a field with slices of their own, the first met: each holds a sample of its margins and a confusion of its
classes, so that there are fewer if these have more than so many cells together."""


class _Slices:
    """The metrics of the documents with each value of some fields."""

    def __init__(self, model: Model, fields: Sequence[str]) -> None:
        if LENGTH in fields and model.text.fields and not model.text.text_fields:
            raise unsupported("The length of documents without a text is not known: name other slices.")
        self._model = model
        self._limit = max(FEWEST_SLICES, min(MAX_SLICES, MAX_CELLS // max(1, len(model.classes)) ** 2))
        self._sums: dict[str, dict[str | None, _Sums]] = {name: {} for name in fields}

    def add(self, batch: Documents | CountedDocuments, margins: NDArray[np.float64], labels: NDArray[Any]) -> None:
        for name, own in self._sums.items():
            found = self._values(name, batch).dictionary_encode("encode")
            others = f"values after the first {self._limit}"
            room, numbers = self._limit - len(own.keys() - {None, others}), []
            places = {value: k for k, value in enumerate(own)}
            for value in found.dictionary.to_pylist():
                if value is not None and value not in own:
                    value, room = (value, room - 1) if room > 0 else (others, room)
                if value not in own:
                    own[value], places[value] = _Sums(self._model), len(own)
                numbers.append(places[value])
            slices = np.array(numbers, np.int64)[found.indices.to_numpy()]
            for value, number in places.items():
                if (rows := slices == number).any():
                    own[value].add(margins[rows], labels[rows])

    def _values(self, name: str, batch: Documents | CountedDocuments) -> pa.Array:
        if name == LENGTH:
            return _lengths(batch, self._model.text)
        values = batch.carried[name]
        try:
            return values.cast(pa.string())
        except pa.ArrowException:
            raise InputError(
                f"slices by {name!r}: values of the type {values.type} are no text.", code="invalid-option"
            ) from None

    def metrics(self) -> list[Row]:
        """Raises `InputError` for a field that no document has."""
        found = []
        for name, own in self._sums.items():
            if set(own) == {None}:
                raise InputError(f"No document has the field {name!r} that slices name.", code="missing-field")
            for value, sums in sorted(own.items(), key=lambda item: -item[1].rows):
                row = {key: number for key, number in sums.metrics().items() if key in (*METRICS, "rows", "intervals")}
                found.append({"field": name, "value": value} | row)
        return found


def _lengths(batch: Documents | CountedDocuments, options: TextOptions) -> pa.Array:
    """The range of lengths of each document, its texts together. Raises `InputError` for documents that are counted."""
    if not isinstance(batch, Documents):
        raise unsupported("The length of documents that are counted is not known: name other slices.")
    texts = {options.record_fields[name]: batch.fields[name] for name in options.text_fields}  # each once
    lengths = sum(
        pc.utf8_length(values).to_numpy() for values in (texts.values() if options.fields else [batch.strings])
    )
    names = [f"{start:,}–{end - 1:,}" for start, end in pairwise((0, *LENGTHS))]
    names.append(f"{LENGTHS[-1]:,} or more")
    return pa.array(names).take(pa.array(np.searchsorted(LENGTHS, lengths, side="right")))


def log_loss_sum(probabilities: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Σ −log p of the true classes; of label sets, of every class or its absence. p is at least the smallest float."""
    if labels.ndim == 2:
        chosen = np.where(labels, probabilities, 1 - probabilities)
    else:
        chosen = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).sum())


@contextmanager
def _writer(path: Location | None) -> Iterator[Any]:
    """A function that appends a table to a Parquet file, which is committed at the end; without a path, nothing."""
    if path is None:
        yield lambda _: None
        return
    with ExitStack() as stack:
        writers: list[pq.ParquetWriter] = []

        def write(table: pa.Table) -> None:
            if not writers:
                writers.append(stack.enter_context(parquet_writer(path, table.schema)))
            writers[0].write_table(table)

        yield write
