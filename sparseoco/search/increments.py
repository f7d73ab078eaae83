"""Increments: the documents that each version of a store added, and the settings that learn them in order.

Increment v is the shards of version v that are not in version v − 1, over the features of version v. Its setting has
the digest of the previous one, so its results are identified by all that was learned before: the same documents in the
same increments have the same digests and states.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.search.block_run import BlockRun
from sparseoco.search.checkpoints import find_checkpoints
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location
from sparseoco.storage.metric_names import PROGRESSIVE
from sparseoco.store.manifest import Manifest, read_manifest, read_manifests
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import TermWeights, increment_weights, term_weights
from sparseoco.training.block import Block, Increment, Setting, search_setting
from sparseoco.training.learner import Learner
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.orders import range_rows_of
from sparseoco.training.stream import NO_FOLD, StreamPosition


class StateLostError(StorageError):
    """The state at the end of an increment is missing or corrupt; corrupt files are removed, to be learned again."""


class PlannedIncrement(NamedTuple):
    """An increment to learn: its setting and the number of its documents."""

    setting: Setting
    rows: int

    @property
    def end(self) -> StreamPosition:
        """Its last position."""
        return StreamPosition(1, self.rows)


def increment_store(folder: Location, version: int) -> Store:
    """The documents that a version of a store added, over the features of that version.

    Raises `StorageError` for a manifest that is missing or cannot be read.
    """
    return Store(folder, read_manifest(folder, version)).increment


def previous_manifest(folder: Location, version: int) -> Manifest | None:
    """The manifest before that of a version; None for the first. Raises as `increment_store`."""
    return None if version == 1 else read_manifest(folder, version - 1)


def plan_increments(options: SearchOptions, folder: Location, last: int) -> list[PlannedIncrement]:
    """Every increment up to version `last`, in order; increment v is at index v − 1."""
    planned: list[PlannedIncrement] = []
    for version, manifest in enumerate(read_manifests(folder, last), 1):
        added = manifest.increment
        if not planned:
            common = search_setting(options, Store(folder, added), NO_FOLD)
        own = {
            "manifest": added.digest,
            "epochs": 1,
            "progressive_metrics": options.metric is not None and options.metric not in PROGRESSIVE,
            "seed": increment_seed(options.seed, version),
            "range_rows": range_rows_of(options.shuffle, added.rows, added.nonzeros),
            "increment": Increment(version=version, previous=planned[-1].setting.digest if planned else None),
        }
        planned.append(PlannedIncrement(common.model_copy(update=own), added.rows))
    return planned


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
        return BlockRun.new(block, store)
    version = increment.version - 1
    return BlockRun(block, learner_after(folder, increment.previous, version, block.identities, store))


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
