"""Results and checkpoints of blocks of configurations, and of their increments."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import (
    Count,
    commit_json,
    digest_value,
    read_validated,
    remove_file,
    row_shape,
    with_other_keys,
)
from sparseoco.storage.locations import Location
from sparseoco.storage.metric_names import PROGRESSIVE
from sparseoco.storage.tables import CURVES, Row
from sparseoco.store.corpus import Corpus
from sparseoco.store.manifest import Manifest, read_manifest
from sparseoco.store.segments import read_increment_table
from sparseoco.store.shards import Store
from sparseoco.store.terms import TermWeights, frequency_bins, frequency_rows, increment_weights, term_weights
from sparseoco.training.block import Block, Increment, Setting, Tables, search_setting
from sparseoco.training.decisions import PredictingLearner
from sparseoco.training.folds import fold_order, passes_of
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics import Scores, curve_rows, difference, evaluate_held_out, metric_rows, new_scores
from sparseoco.training.options import SearchOptions, learner_parameters
from sparseoco.training.stream import (
    NO_FOLD,
    START,
    Order,
    Passes,
    StreamLearner,
    StreamPosition,
    curve_marks,
    range_rows_of,
)
from sparseoco.training.warm_start import take_weights

# ----------------------------------------------------------------------------------------------------------------------
# A block in progress: its learner, its position in the stream, and the metrics recorded so far.
#
# Its state at a position depends only on the block and the position, not on where it was stopped, saved or resumed.


class BlockRun:
    """A block at a position in its stream.

    Parameters
    ----------
    epoch_start : totals of the learner when the current epoch began.
    curves : the points recorded in the current epoch, for each configuration.
    seconds : time spent on the current epoch so far.
    totals : of all epochs so far, where they are not those of the learner: those of the parts that it averages.

    Attributes
    ----------
    recorder : learns in place of the learner, to record margins or score them, if it is set.
    clock : the time of the last state, as `time.monotonic()`.
    """

    def __init__(
        self,
        block: Block,
        learner: Learner,
        position: StreamPosition = START,
        epoch_start: ProgressiveTotals | None = None,
        curves: list[list[Row]] | None = None,
        seconds: float = 0.0,
        totals: ProgressiveTotals | None = None,
    ) -> None:
        self.block, self.learner, self.position = block, learner, position
        self.epoch_start = learner.progress if epoch_start is None else epoch_start
        self.curves = [[] for _ in block.configurations] if curves is None else curves
        self.seconds = seconds
        self._totals = totals
        self.recorder: StreamLearner | None = None
        self.clock = 0.0
        self._scores: Scores | None = None
        self._marks: list[int] = []
        self._before = self.epoch_start

    @classmethod
    def new(cls, block: Block, store: Store) -> "BlockRun":
        """A block before its first row, starting from the weights of its setting's model if there is one."""
        learner = new_learner(block, store)
        if block.setting.origin is not None:
            take_weights(block.setting.origin, learner, store)
        return cls(block, learner)

    @property
    def _numbers(self) -> bool:
        return self.learner.n_classes is None

    def select(self, block: Block) -> "BlockRun":
        """The run of `block`, whose configurations are some of this one's, as if they had been run alone."""
        if block.identities == self.block.identities:
            return self
        numbers = [self.block.identities.index(name) for name in block.identities]
        start = self.epoch_start
        start = start._replace(loss_sum=start.loss_sum[numbers], error_count=start.error_count[numbers])
        curves = [self.curves[number] for number in numbers]
        return BlockRun(block, self.learner.select(numbers), self.position, start, curves, self.seconds)

    @property
    def columns(self) -> StreamLearner:
        """What learns: the recorder if there is one, or the learner."""
        return self.recorder or self.learner

    def score(self, n_rows: int) -> None:
        """Score the progressive predictions of so many rows, for the metrics."""
        self._scores = new_scores(self.learner, n_rows, self.block.setting.positive)
        self.recorder = PredictingLearner(self.learner, self._scores.add)

    def passes(self, corpus: Corpus, goal: StreamPosition) -> Passes:
        """The passes from here up to `goal`; `reached` is to be called with every state of them."""
        self._marks = curve_marks(corpus.n_rows)
        self._before, self.clock = self.learner.progress, time.monotonic()
        return passes_of(self.block.setting, corpus, goal, self.position, self._marks, self.learner)

    def reached(self, position: StreamPosition) -> None:
        """Record that the columns have learned up to a position."""
        now = self.learner.progress
        if position.epoch > self.position.epoch:
            self.epoch_start, self.curves, self.seconds = self._before, [[] for _ in self.curves], 0.0
        if position.position in self._marks:
            for curve, point in zip(self.curves, curve_rows(now, numbers=self._numbers), strict=True):
                curve.append(point)
        self.position, self._before = position, now
        self.seconds += time.monotonic() - self.clock
        self.clock = time.monotonic()

    def tables(self, corpus: Corpus, store: Store) -> list[Tables]:
        """Each configuration's rows of the tables; at the end of an epoch, the held-out fold is evaluated.

        An increment of a nightly run has metrics only: the others would require reading the whole vocabulary.
        """
        if self.block.setting.increment is not None:
            return [{"metrics": [row]} for row in self._metrics(corpus, self.learner.nonzeros())]
        started = time.monotonic()
        bins, features = frequency_bins(store)
        counts = self.learner.nonzeros(bins=bins)
        metrics = self._metrics(corpus, counts.sum(axis=0))
        self.seconds += time.monotonic() - started
        timing = {"epoch": self.position.epoch, "seconds": self.seconds / len(metrics)}
        return [
            {
                "metrics": [row],
                "curves": list(curve),
                "feature_survival": frequency_rows(own, features),
                "timings": [timing],
            }
            for row, curve, own in zip(metrics, self.curves, counts.T, strict=True)
        ]

    def _metrics(self, corpus: Corpus, nonzeros: NDArray[np.int64]) -> list[Row]:
        now = self._totals or self.learner.progress
        at_end = self.position.position == corpus.n_rows
        setting = self.block.setting
        order = fold_order(setting, corpus) if at_end or setting.evaluate_rungs else Order()
        held_out, scores = evaluate_held_out(self.learner, corpus, order, positive=setting.positive)
        prefix = "held_out"
        if self._scores is not None:
            prefix, scores = "progressive", self._scores.rows()
        return metric_rows(
            self.position.epoch,
            [now.rows] * len(nonzeros),
            difference(now, self.epoch_start),
            held_out,
            scores,
            nonzeros,
            self.learner.features_used(),
            [f"diverged at row {row:,}" if row else "" for row in self.learner.diverged.tolist()],
            prefix,
            numbers=self._numbers,
        )


def new_learner(block: Block, store: Store) -> Learner:
    """A new learner for a block."""
    setting = block.setting
    return Learner(
        block.algorithm,
        loss=setting.loss,
        penalty=setting.penalty,
        grid=[learner_parameters(configuration) for configuration in block.configurations],
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype=setting.dtype,
        intercept=block.intercept,
    )


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints of blocks, from which the block or any of its configurations can be resumed.
#
# A checkpoint is two files: the saved learner, large and uncompressed, and a JSON file with its name, the block and
#     the
# position. A block has one checkpoint, its latest. Checkpoints are looked up by configuration, so configurations can
#     be
# resumed in other groups. A missing or corrupt one only costs time: the stream is learned again from an earlier
# position, with the same results.


@with_other_keys
class State(TypedDict):
    """The content of the JSON file of a checkpoint: a block, its position, and its sums since the epoch's start."""

    block: Block
    position: StreamPosition
    rows: Count
    loss_sum: list[float]
    error_count: list[int]
    curves: list[list[row_shape(CURVES)]]  # type: ignore[valid-type]
    seconds: float


def read_state(path: Location) -> State:
    """The state of a block. Raises `StorageError`."""
    return read_validated(path, State)


class Checkpoint(NamedTuple):
    """The files of a block's state at a position, and the contents of the JSON file in `state`."""

    block: Block
    position: StreamPosition
    path: Location
    learner: Location
    state: State

    def remove(self) -> None:
        """Remove it, the JSON file first."""
        remove_file(self.path)
        remove_file(self.learner)


def save_checkpoint(folder: Location, run: BlockRun) -> None:
    """Commit the state of a block and remove the earlier one; does nothing if there is a later one."""
    path = _path(folder, run.block)
    with suppress(StorageError):
        if read_state(path)["position"] >= run.position:
            return
    learner = _learner_path(path, run.position)
    run.learner.save(learner, named=True)
    commit_json(
        path,
        {
            "block": run.block.model_dump(mode="json"),
            "position": list(run.position),
            "rows": run.epoch_start.rows,
            "loss_sum": run.epoch_start.loss_sum.tolist(),
            "error_count": run.epoch_start.error_count.tolist(),
            "curves": run.curves,
            "seconds": run.seconds,
        },
    )
    for old in folder.glob(f"{path.stem}-*.learner"):
        if old.name != learner.name:
            remove_file(old)


def load_checkpoint(folder: Location, block: Block, last: StreamPosition) -> BlockRun | None:
    """A block at its furthest checkpoint up to `last`; None if no checkpoint has all of its configurations."""
    for found in fitting_checkpoints(folder, block, last):
        state = found.state
        with suppress(StorageError):
            learner = Learner.load(found.learner)
            epoch_start = ProgressiveTotals(
                state["rows"], np.array(state["loss_sum"], np.float64), np.array(state["error_count"], np.int64)
            )
            run = BlockRun(found.block, learner, found.position, epoch_start, state["curves"], state["seconds"])
            return run.select(block)
    return None


def fitting_checkpoints(folder: Location, block: Block, last: StreamPosition) -> list[Checkpoint]:
    """The checkpoints up to `last` that have all configurations of a block, the furthest first."""
    needed = set(block.identities)
    fitting = [
        found
        for found in find_checkpoints(folder, [block.setting.digest])
        if found.position <= last and needed <= set(found.block.identities)
    ]
    return sorted(fitting, key=lambda found: found.position, reverse=True)


def reached_position(folder: Location, block: Block) -> StreamPosition:
    """The position of the checkpoint of this block, `START` without one."""
    with suppress(DamagedError):
        return read_state(_path(folder, block))["position"]
    return START


def has_checkpoint(folder: Location, block: Block, position: StreamPosition) -> bool:
    """Whether this block has a checkpoint at a position. Raises `StorageError` if it cannot be read now."""
    path = _path(folder, block)
    with suppress(DamagedError):
        return read_state(path)["position"] == position and _learner_path(path, position).exists()
    return False


def find_checkpoints(
    folder: Location, settings: Iterable[str], ignore: type[StorageError] = StorageError
) -> Iterator[Checkpoint]:
    """The checkpoints of blocks under settings, given by digest; files that raise `ignore` are skipped.

    By default these are all that cannot be read; with `DamagedError`, a file that cannot be read now raises.
    """
    digests = set(settings)
    for path in sorted(folder.glob("*.json")):
        if path.name.partition("-")[0] in digests:
            try:
                state = read_state(path)
                block, position = state["block"], state["position"]
                found = Checkpoint(block, position, path, _learner_path(path, position), state)
            except (ignore, KeyError, TypeError, ValueError):
                continue
            if found.learner.exists():
                yield found


def furthest_checkpoints(
    folder: Location, settings: Iterable[str], ignore: type[StorageError] = StorageError
) -> dict[tuple[str, str], Checkpoint]:
    """By (digest of the setting, configuration), its furthest checkpoint; see `find_checkpoints`."""
    furthest: dict[tuple[str, str], Checkpoint] = {}
    for found in find_checkpoints(folder, settings, ignore):
        for name in found.block.identities:
            key = found.block.setting.digest, name
            if key not in furthest or _order(found) > _order(furthest[key]):
                furthest[key] = found
    return furthest


def remove_unneeded(folder: Location, settings: Sequence[str], alive: set[str]) -> None:
    """Remove checkpoints that are not the furthest of any configuration in `alive`."""
    furthest = furthest_checkpoints(folder, settings).items()
    needed = {found.block.digest for (_, name), found in furthest if name in alive}
    for found in list(find_checkpoints(folder, settings)):
        if found.block.digest not in needed:
            found.remove()


def _order(found: Checkpoint) -> tuple[StreamPosition, str]:
    return found.position, found.block.digest


def _path(folder: Location, block: Block) -> Location:
    return folder / f"{block.setting.digest}-{block.digest}.json"


def _learner_path(path: Location, position: StreamPosition) -> Location:
    return path.with_name(f"{path.stem}-{position.epoch}-{position.position}.learner")


# ----------------------------------------------------------------------------------------------------------------------
# The results of the increments that are decided, in one file: the cells of an increment are only kept until then.
#
# increments.npz  by increment, the digest of its setting; by increment and configuration, the metrics


FILE = "increments.npz"
COUNTS = ("nonzeros", "features")
PROGRESSIVE_PREFIX = "progressive_"
MISSING = -1


class IncrementResults(NamedTuple):
    """Metrics of V increments and C configurations.

    Parameters
    ----------
    plan : str
        Identifies everything that the results depend on, except the configurations.
    settings : sequence of str
        The digests of the increments' settings.
    configurations : sequence of str
        The identities of the configurations.
    outcomes : list of (status, reason)
    outcome : (V, C) int32
        Index into `outcomes`, or `MISSING`.
    columns : dict of (V, C) float64
        The counts of `COUNTS` and all metrics that begin with `PROGRESSIVE_PREFIX`, by name; NaN where there is none.
    """

    plan: str
    settings: Sequence[str]
    configurations: Sequence[str]
    outcomes: list[tuple[str, str]]
    outcome: NDArray[np.int32]
    columns: dict[str, NDArray[np.float64]]

    def row(self, version: int, configuration: str) -> Row | None:
        """The metrics of a configuration in an increment; None if there are none."""
        if version > len(self.settings) or configuration not in self.configurations:
            return None
        place = version - 1, self.configurations.index(configuration)
        if self.outcome[place] == MISSING:
            return None
        found: Row = {name: _number(name, column[place]) for name, column in self.columns.items()}
        found["status"], found["reason"] = self.outcomes[self.outcome[place]]
        return found

    def known(self, configuration: str) -> NDArray[np.bool_]:
        """(V,): the increments in which a configuration has metrics."""
        if configuration not in self.configurations:
            return np.zeros(len(self.settings), np.bool_)
        return np.asarray(self.outcome[:, self.configurations.index(configuration)] != MISSING)

    def extended(
        self,
        plan: str,
        settings: Sequence[str],
        configurations: Sequence[str],
        find: Callable[[int, str], Row | None],
    ) -> "IncrementResults":
        """The results of these increments and configurations; `find` gives those that are missing here."""
        shape, kept = (len(settings), len(configurations)), min(len(self.settings), len(settings))
        pairs = [(new, name) for new, name in enumerate(configurations) if name in self.configurations]
        new, old = [number for number, _ in pairs], [self.configurations.index(name) for _, name in pairs]
        outcome = np.full(shape, MISSING, np.int32)
        outcome[:kept, new] = self.outcome[:kept, old]
        columns = {name: np.full(shape, np.nan) for name in self.columns}
        for name, column in columns.items():
            column[:kept, new] = self.columns[name][:kept, old]
        outcomes = {pair: number for number, pair in enumerate(self.outcomes)}
        for place in map(tuple, np.argwhere(outcome == MISSING).tolist()):
            row = find(place[0] + 1, configurations[place[1]])
            if row is None:
                continue
            pair = row["status"], row["reason"]
            outcome[place] = outcomes.setdefault(pair, len(outcomes))
            for name, value in row.items():
                if name in COUNTS or name.startswith(PROGRESSIVE_PREFIX):
                    column = columns.setdefault(name, np.full(shape, np.nan))
                    column[place] = np.nan if value is None else value
        return IncrementResults(plan, settings, configurations, list(outcomes), outcome, columns)

    def write(self, folder: Location) -> None:
        """Commit the file. Raises `StorageError`."""
        described = self._asdict() | {"outcome": None, "columns": list(self.columns)}
        arrays = [(f"column-{number}", column) for number, column in enumerate(self.columns.values())]
        write_checkpoint(folder / FILE, described, [("outcome", self.outcome), *arrays])


EMPTY = IncrementResults("", [], [], [], np.empty((0, 0), np.int32), {})


def read_increment_results(folder: Location) -> IncrementResults:
    """The results in a folder, `EMPTY` if the file is missing or corrupt: then the increments are learned again.

    Raises `StorageError` if it cannot be read now.
    """
    with suppress(DamagedError), read_checkpoint(folder / FILE) as (described, read):
        outcomes = [(str(status), str(reason)) for status, reason in described["outcomes"]]
        columns = {str(name): read(f"column-{number}") for number, name in enumerate(described["columns"])}
        found = IncrementResults(
            described["plan"], described["settings"], described["configurations"], outcomes, read("outcome"), columns
        )
        shape = len(found.settings), len(found.configurations)
        if any(array.shape != shape for array in (found.outcome, *columns.values())):
            raise ValueError("arrays of another shape")
        if found.outcome.size and not MISSING <= found.outcome.min() <= found.outcome.max() < len(outcomes):
            raise ValueError("an outcome that does not exist")
        return found
    return EMPTY


def _number(name: str, value: np.float64) -> float | int | None:
    if np.isnan(value):
        return None
    return int(value) if name in COUNTS else float(value)


# ----------------------------------------------------------------------------------------------------------------------
# Increments: the documents that each version of a store added, and the settings that learn them in order.
#
# Increment v is the shards of version v that are not in version v − 1, over the features of version v. Its setting has
# the digest of the previous one, so its results are identified by all that was learned before: the same documents in
# the same increments have the same digests and states.


class StateLostError(StorageError):
    """The state at the end of an increment is missing or corrupt; corrupt files are removed, to be learned again."""


def increment_store(folder: Location, version: int) -> Store:
    """The documents that a version of a store added, over the features of that version.

    Raises `StorageError` for a manifest that is missing or cannot be read.
    """
    return Store(folder, read_manifest(folder, version)).increment


def previous_manifest(folder: Location, version: int) -> Manifest | None:
    """The manifest before that of a version; None for the first. Raises `StorageError`."""
    return None if version == 1 else read_manifest(folder, version - 1)


class IncrementPlan:
    """Every increment of a store up to version `last`, and the settings that learn them in order.

    Parameters
    ----------
    options : SearchOptions
    folder : Location
        The folder of the store.
    last : int
        The last version.

    Raises
    ------
    StorageError
        For a manifest or a segment that is missing or corrupt.
    """

    def __init__(self, options: SearchOptions, folder: Location, last: int) -> None:
        self._options = options
        self._increments = read_increment_table(folder, read_manifest(folder, last))
        common = search_setting(options, increment_store(folder, 1), NO_FOLD)
        progressive = options.metric is not None and options.metric not in PROGRESSIVE
        self._common = common.model_copy(update={"epochs": 1, "progressive_metrics": progressive})
        self.rows: list[int] = self._increments.column("rows").tolist()
        self.digests: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    def identity(self, last: int) -> str:
        """Identifies the settings of the increments up to version `last`."""
        digests = self._increments.table["sha256"].slice(0, last).to_pylist()
        return digest_value([self._common.described, self._options.shuffle, digests])

    def resolve(self, known: Sequence[str]) -> None:
        """Compute the digests of all settings, given those of the first increments."""
        self.digests = list(known)
        for version in range(len(known) + 1, len(self) + 1):
            self.digests.append(self.setting(version).digest)

    def setting(self, version: int) -> Setting:
        """The setting of an increment, whose predecessors have a digest."""
        added = self._increments[version - 1]
        own = {
            "manifest": added.sha256,
            "seed": increment_seed(self._options.seed, version),
            "range_rows": range_rows_of(self._options.shuffle, added.rows, added.nonzeros),
            "increment": Increment(version=version, previous=self.digests[version - 2] if version > 1 else None),
        }
        return self._common.model_copy(update=own)

    def end(self, version: int) -> StreamPosition:
        """The last position of an increment."""
        return StreamPosition(1, self.rows[version - 1])


def increment_seed(seed: int, version: int) -> int:
    """The seed of the order of an increment: for the first that of the run, for each later one another."""
    return seed if version == 1 else int(digest_value([seed, version])[:15], 16)


def block_weights(block: Block, store: Store) -> TermWeights:
    """The weighting of a block with the idf of the features of its store: in an increment they keep theirs."""
    increment = block.setting.increment
    if increment is None:
        return term_weights(store, block.weighting)
    return increment_weights(store.folder, increment.version, block.weighting)


def start_run(folder: Location, block: Block, store: Store) -> BlockRun:
    """A block before its first row: new or, after the first increment, with the final state of the previous one.

    Raises `StateLostError` if that state is missing or corrupt.
    """
    increment = block.setting.increment
    if increment is None or increment.previous is None:
        run = BlockRun.new(block, store)
    else:
        version = increment.version - 1
        run = BlockRun(block, learner_after(folder, increment.previous, version, block.identities, store))
    if block.setting.progressive_metrics:
        run.score(store.n_rows)
    return run


def learner_after(folder: Location, setting: str, version: int, names: Sequence[str], store: Store) -> Learner:
    """Configurations, by identity, as they were at the end of an increment, over the features of `store`.

    The state is as if features that were added later had been there from the start. `setting` is the digest of the
    increment's setting. Raises `StateLostError` if the state in `folder` is missing or corrupt, `StorageError` if it
    cannot be read now; then it is left unchanged.
    """
    end = StreamPosition(1, increment_store(store.folder, version).n_rows)
    for found in find_checkpoints(folder, [setting], DamagedError):
        own = found.block.identities
        if found.position != end or not set(names) <= set(own):
            continue
        try:
            learner = Learner.load(found.learner, n_features=store.n_features)
        except DamagedError:
            found.remove()
            continue
        return learner if list(names) == own else learner.select([own.index(name) for name in names])
    raise StateLostError(
        f"The state of increment {version} in {folder} is missing or corrupt: the increment has to be learned again.",
        code="state-lost",
    )
