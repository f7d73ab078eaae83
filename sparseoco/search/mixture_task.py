"""Training a mixture (`sparseoco.training.mixture`) of a whole grid in one pass, as one task that writes a model.

The model is sparse: of the columns that are nearly the best, the one with the largest λ, trained on the strongest
features of the mixture only (`sparseoco.training.stream`). A grid that does not fit in memory over all features is
trained on those that are strongest in a smaller mixture.

The result is a function of the task's description: a task that was killed runs again to the same bytes, whatever the
shards, threads and workers. The folder has the files of every model (`sparseoco.training.models`) and

regret.parquet   points along the stream: the mixture against the best column, the regret and its bounds
columns.parquet  at the same points, every column: its weight in the mixture, its loss and error
timings.parquet  seconds until each point
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from dask.utils import format_bytes
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.logs import ProgressCallback
from sparseoco.execution.pool import TaskPool
from sparseoco.search.block_runs import block_corpus
from sparseoco.search.models import describe_setting, model_is_complete, trackers
from sparseoco.search.packing import cluster_capacity, resolve_relative, state_bytes
from sparseoco.search.worker import Place, Site
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, write_result_table
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, search_setting
from sparseoco.training.decisions import MarginRecorder
from sparseoco.training.folds import passes_of
from sparseoco.training.learner import Learner
from sparseoco.training.mixture import Mixture, Snapshot
from sparseoco.training.models import write_model
from sparseoco.training.options import MixtureOptions, SearchOptions
from sparseoco.training.stream import (
    NO_FOLD,
    FeatureRows,
    MeasuredRows,
    RowSource,
    StreamLearner,
    StreamPosition,
    curve_marks,
    strongest_features,
    train,
)
from sparseoco.training.warm_start import take_weights

MEMORY = 1 << 30
"""Bytes for the columns of a mixture; of a larger grid some configurations choose the features first."""
SCREENED = 3
MIXTURE_REGRET = pa.schema(
    [
        ("rows", pa.int64()),  # learned so far, all epochs; sums and means are over them
        ("progressive_loss", pa.float64()),  # mean of the mixture, each example predicted before it is learned
        ("progressive_error", pa.float64()),
        ("best_loss", pa.float64()),  # of the best column so far
        ("best_loss_column", pa.int32()),
        ("best_error", pa.float64()),
        ("best_error_column", pa.int32()),
        ("drawn", pa.float64()),  # expected error or loss of a column drawn by the weights, mean
        ("regret", pa.float64()),  # sum: `drawn` minus the sum of the best column; the bounds are bounds of it
        ("bound", pa.float64()),  # sum: s log n + Σ m_t
        ("printed_bound", pa.float64()),  # sum: Corollary 3 as printed; null with by="loss"
    ]
)
COLUMNS = pa.schema(
    [
        ("rows", pa.int64()),
        ("column", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("weight", pa.float64()),  # in the prediction of the next row
        ("progressive_loss", pa.float64()),  # null after divergence
        ("progressive_error", pa.float64()),
        ("diverged", pa.int64()),  # the row, or null
    ]
)
MIXTURE_TIMINGS = pa.schema([("rows", pa.int64()), ("seconds", pa.float64())])


def train_mixture(
    client: Client,
    options: SearchOptions,
    mixing: MixtureOptions,
    store: Store,
    model: Location,
    progress: ProgressCallback,
) -> None:
    """Train the whole grid of `options` in one pass and mix it; the model is written to the folder `model`.

    Raises `InputError` for several weightings and if not even one configuration fits in memory, `SparseocoError` if
    every column diverges.
    """
    _ = options.features.weighting
    options = resolve_relative(client, store, options) if options.relative_parameters else options
    setting = search_setting(options, store, NO_FOLD)
    configurations = options.configurations()
    if any(configuration.parts > 1 for configuration in configurations):
        raise InputError("A mixture learns one stream: it does not take parts.", code="unsupported-combination")
    grids = groupby(configurations, lambda configuration: configuration.algorithm)
    blocks = [Block.of(setting, list(grid)) for _, grid in grids]
    plan = _plan(blocks, store, cluster_capacity(client, options, store).column_bytes)
    described = mixing.model_dump(mode="json") | plan._asdict()
    name = digest_value([[block.digest for block in blocks], described])[:32]
    with trackers(client, blocks, store, "train", progress):
        arguments = blocks, mixing, name, model.resolve(), plan
        TaskPool(client, "Training failed").call(mix_blocks, Site.of(store), *arguments)


class Plan(NamedTuple):
    """How a mixture fits in memory: if not over all features, a mixture of `screened` columns chooses `features`."""

    features: int | None = None
    screened: int = 0


def mix_blocks(site: Site, blocks: list[Block], mixing: MixtureOptions, name: str, model: Location, plan: Plan) -> None:
    """Train blocks on one stream, mix them and commit the model to a folder, unless it is already there: a task.

    `name` identifies blocks and options. Raises `StorageError`.
    """
    place, epochs = site.open(blocks), blocks[0].setting.epochs
    if model_is_complete(model, name, epochs):
        return
    run = _MixtureRun(place, blocks, mixing)
    store, corpus = run.store, run.corpus
    measured = MeasuredRows(corpus, store.n_features)
    rows: RowSource = measured
    features = np.arange(store.n_features)
    if plan.features is not None:
        features = run.screen(_spread(blocks, plan.screened), measured, plan.features)
        rows = FeatureRows(corpus, features, store.n_features)
    elif mixing.keep != "sparse":
        rows = corpus
    mixture = run.new(blocks, features)
    numbers = mixture.n_classes is None
    marks: list[Snapshot] = []
    timings: list[Row] = []
    curve: list[Row] = []
    points, started = curve_marks(corpus.n_rows), time.monotonic()
    # The weights of columns are right for rows that no column has seen: one pass, if the model is trained again.
    for position in run.learn(mixture, rows, 1 if mixing.keep == "sparse" else epochs, points):
        if position.position in points:
            marks.append(mixture.snapshot())
            timings.append({"rows": marks[-1].rows, "seconds": time.monotonic() - started})
            curve.append({"epoch": position.epoch, "nonzeros": None} | _progress(marks[-1], numbers))
    if (mixture.diverged > 0).all():
        raise SparseocoError("Every column of the mixture diverged: choose smaller steps with --grid.", code="diverged")
    write_result_table(model / "regret.parquet", [_regret_row(mark, numbers) for mark in marks], MIXTURE_REGRET)
    write_result_table(model / "columns.parquet", _column_rows(mixture, marks), COLUMNS)
    write_result_table(model / "timings.parquet", timings, MIXTURE_TIMINGS)
    description = _description(mixture, mixing, name, blocks[0])
    state = None
    if mixing.keep == "sparse":
        kept = strongest_features(mixture.weights(), measured.squares[features], mixing.at_most)
        features = features[kept if kept.size else [0]]  # a learner has at least one
        learner, rules = run.train_sparse(mixture, features)
        description |= rules
        description["mixture"] |= {
            "kept": features.size,
            "trained": {"algorithm": learner.algorithm, "parameters": learner.configurations[0]},
        }
        weights, intercepts = learner.weights_of(0), learner.intercepts()[0]
    elif mixing.keep == "best":
        state = learner = mixture.best()
        weights, intercepts = learner.weights_of(0), learner.intercepts()[0]
    else:
        weights, intercepts = mixture.weights(), mixture.intercepts()
    if plan.features is not None:
        state = None  # of a learner of other features
        description["mixture"]["screened"] = plan.features
    whole = np.zeros((store.n_features, mixture.n_outputs))
    whole[features] = weights
    curve[-1]["nonzeros"] = int(np.count_nonzero(whole))
    own = intercepts if any(learner.intercept for learner in mixture.learners) else None
    write_model(model, whole, store, description, curve, state, intercepts=own)


class _MixtureRun:
    """The stream of a mixture on a worker: what learns from it, over some features of the store."""

    def __init__(self, place: Place, blocks: Sequence[Block], mixing: MixtureOptions) -> None:
        self.store, scratch, self._report, _ = place
        self.corpus = block_corpus(blocks[0], self.store, scratch)
        self._setting, self._mixing = blocks[0].setting, mixing

    def new(self, blocks: Sequence[Block], features: NDArray[np.int64]) -> Mixture:
        """A mixture of blocks, starting from the model that the setting names if there is one."""
        setting, store = self._setting, self.store
        mixture = Mixture(
            {block.algorithm: list(block.configurations) for block in blocks},
            loss=setting.loss,
            penalty=setting.penalty,
            n_features=features.size,
            n_classes=store.n_classes,
            multilabel=store.is_multilabel,
            dtype=setting.dtype,
            by=self._mixing.by,
            predict_gradient=self._mixing.predict_gradient,
            intercept=setting.intercept,
        )
        if setting.origin is not None:
            for learner in mixture.learners:
                take_weights(setting.origin, learner, store, features)
        return mixture

    def learn(
        self, learner: StreamLearner, rows: RowSource, epochs: int, marks: Sequence[int] = ()
    ) -> Iterator[StreamPosition]:
        """Learn rows, and report each position."""
        goal = StreamPosition(epochs, rows.n_rows)
        for position in train(learner, rows, passes_of(self._setting, self.corpus, goal, marks=marks)):
            self._report(position.rows_before(rows.n_rows))
            yield position

    def screen(self, blocks: Sequence[Block], rows: MeasuredRows, at_most: int) -> NDArray[np.int64]:
        """The strongest features of a mixture of a few configurations after one epoch."""
        mixture = self.new(blocks, np.arange(self.store.n_features))
        for _ in self.learn(mixture, rows, 1):
            pass
        return strongest_features(mixture.weights(), rows.squares, at_most)

    def train_sparse(self, mixture: Mixture, features: NDArray[np.int64]) -> tuple[Learner, dict[str, Any]]:
        """The `_sparse_column` of a mixture, trained on these features only, with its calibration.

        Raises `SparseocoError` if it diverges.
        """
        algorithm, parameters = _sparse_column(mixture)
        trained = next(learner for learner in mixture.learners if learner.algorithm == algorithm)
        learner = Learner(**trained.description | {"grid": [parameters], "n_features": features.size})
        if self._setting.origin is not None:
            take_weights(self._setting.origin, learner, self.store, features)
        recorder = MarginRecorder.of_first_pass(learner, self.corpus.n_rows)
        rows = FeatureRows(self.corpus, features, self.store.n_features)
        for _ in self.learn(recorder, rows, self._setting.epochs):
            pass
        if learner.diverged.any():
            raise SparseocoError(
                f"{algorithm} diverged with {parameters} on the strongest features: choose smaller steps with --grid.",
                code="diverged",
            )
        return learner, recorder.rules()


def _spread(blocks: Sequence[Block], count: int) -> list[Block]:
    """So many configurations of the grid, spread evenly over it."""
    every = [(block, parameters) for block in blocks for parameters in block.configurations]
    chosen = [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]
    grouped: dict[str, tuple[Block, list[dict[str, Any]]]] = {}
    for block, parameters in chosen:
        grouped.setdefault(block.algorithm, (block, []))[1].append(parameters)
    return [block.select(parameters) for block, parameters in grouped.values()]


def _sparse_column(mixture: Mixture) -> tuple[str, dict[str, Any]]:
    """Of the columns whose error is within one standard error of the least, the one with the largest λ.

    Of equal ones the heaviest, and for numbers, which have no errors, the heaviest of all.
    """
    marks, columns = mixture.snapshot(), mixture.columns
    if mixture.n_classes is None:
        return columns[mixture.heaviest]
    least = float(marks.errors.min()) / marks.rows
    bound = marks.errors.min() + math.sqrt(least * (1 - least) * marks.rows)
    near = [c for c in range(len(columns)) if marks.errors[c] <= bound]
    return columns[max(near, key=lambda c: (columns[c][1].get("lam", 0.0), marks.weights[c]))]


def _description(mixture: Mixture, mixing: MixtureOptions, name: str, block: Block) -> dict[str, Any]:
    """How the model was trained; with ``keep="best"`` it is a model of the learner of the heaviest column."""
    options = mixing.model_dump(mode="json") | {"by": mixture.by}
    algorithm, parameters = ("auto", options)
    if mixing.keep == "best":
        algorithm, parameters = mixture.columns[mixture.heaviest]
    columns = [
        {"algorithm": column, "parameters": values, "weight": weight}
        for (column, values), weight in zip(mixture.columns, mixture.column_weights.tolist(), strict=True)
    ]
    return describe_setting(block) | {
        "algorithm": algorithm,
        "parameters": parameters,
        "block": name,
        "mixture": {"options": options, "columns": columns},
    }


def _progress(mark: Snapshot, numbers: bool) -> dict[str, Any]:
    return {
        "rows": mark.rows,
        "progressive_loss": mark.loss_sum / mark.rows,
        "progressive_error": None if numbers else mark.error_count / mark.rows,
    }


def _regret_row(mark: Snapshot, numbers: bool) -> dict[str, Any]:
    return _progress(mark, numbers) | {
        "best_loss": float(mark.losses.min()) / mark.rows,
        "best_loss_column": int(mark.losses.argmin()),
        "best_error": None if numbers else float(mark.errors.min()) / mark.rows,
        "best_error_column": int(mark.errors.argmin()),
        "drawn": mark.drawn / mark.rows,
        "regret": mark.regret,
        "bound": mark.bound,
        "printed_bound": None if math.isnan(mark.printed_bound) else mark.printed_bound,
    }


def _column_rows(mixture: Mixture, marks: list[Snapshot]) -> list[Row]:
    names = [(algorithm, json.dumps(parameters, sort_keys=True)) for algorithm, parameters in mixture.columns]
    diverged = mixture.diverged.tolist()
    return [
        {
            "rows": mark.rows,
            "column": c,
            "algorithm": algorithm,
            "parameters": parameters,
            "weight": float(mark.weights[c]),
            "progressive_loss": None if out else float(mark.losses[c]) / mark.rows,
            "progressive_error": None if out or mixture.n_classes is None else float(mark.errors[c]) / mark.rows,
            "diverged": diverged[c] if out else None,
        }
        for mark in marks
        for c, (algorithm, parameters) in enumerate(names)
        for out in [0 < diverged[c] <= mark.rows]
    ]


def _plan(blocks: list[Block], store: Store, available: float) -> Plan:
    """How a grid fits in `MEMORY`, or in what a task has if that is less.

    If the grid does not fit over all features, `SCREENED` of its configurations choose as many as it fits for. Raises
    `InputError` if not even one fits over all features.
    """
    budget = min(available, MEMORY)
    if _bytes_needed(blocks, store) <= budget:
        return Plan()
    count = sum(len(block.configurations) for block in blocks)
    for screened in range(min(SCREENED, count), 0, -1):
        if (needed := _bytes_needed(_spread(blocks, screened), store)) <= available:
            return Plan(max(1, int(store.n_features * budget / _bytes_needed(blocks, store))), screened)
    raise InputError(
        f"A mixture needs {format_bytes(needed)} for one configuration ({store.n_features:,} features × "
        f"{store.n_outputs} columns) and a task has {format_bytes(max(available, 0))} for it: keep fewer features at "
        "ingest (--min-df, --max-features, --hash-bits) or give workers more memory.",
        code="out-of-memory",
    )


def _bytes_needed(blocks: Sequence[Block], store: Store) -> float:
    """Bytes of the columns and of the weights of one block."""
    widest = max(len(block.configurations) for block in blocks) * store.n_outputs
    weights = store.n_features * (widest * np.dtype(blocks[0].setting.dtype).itemsize + 16 * store.n_outputs)
    return sum(state_bytes(block, store) for block in blocks) + weights
