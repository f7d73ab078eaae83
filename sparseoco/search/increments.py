"""Increments: the documents that each version of a store added, and the settings that learn them in order.

Increment v is the shards of version v that are not in version v − 1, over the features of version v. Its setting has
the digest of the previous one, so its results are identified by all that was learned before: the same documents in the
same increments have the same digests and states.
"""

from collections.abc import Sequence

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.search.block_run import BlockRun
from sparseoco.search.checkpoints import find_checkpoints
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location
from sparseoco.storage.metric_names import PROGRESSIVE
from sparseoco.store.manifest import Manifest, read_manifest
from sparseoco.store.segments import read_increment_table
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import TermWeights, increment_weights, term_weights
from sparseoco.training.block import Block, Increment, Setting, search_setting
from sparseoco.training.learner import Learner
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.orders import range_rows_of
from sparseoco.training.stream import NO_FOLD, StreamPosition


class StateLostError(StorageError):
    """The state at the end of an increment is missing or corrupt; corrupt files are removed, to be learned again."""


def increment_store(folder: Location, version: int) -> Store:
    """The documents that a version of a store added, over the features of that version.

    Raises `StorageError` for a manifest that is missing or cannot be read.
    """
    return Store(folder, read_manifest(folder, version)).increment


def previous_manifest(folder: Location, version: int) -> Manifest | None:
    """The manifest before that of a version; None for the first. Raises as `increment_store`."""
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
