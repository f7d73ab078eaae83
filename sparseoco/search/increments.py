"""Nights: what each version of a store added to the one before, and the chain of settings that learn them in turn.

Night v is the shards that the manifest of version v lists after those of version v − 1, over the features there were by
then. Its setting names the setting of the night before, so that what a night leaves is named after all that came before
it: the same documents, cut into the same nights, give the same names and the same states.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.search.block_run import BlockRun
from sparseoco.storage.commit import digest_value, read_checksummed, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import Manifest, read_manifest, read_manifests
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Block, Night, Setting, StreamPosition
from sparseoco.training.learner import Learner
from sparseoco.training.options import SearchOptions
from sparseoco.training.warm_start import Origin


class StateLostError(StorageError):
    """What a night left is gone or damaged; what is left of it was removed, so that it is learned anew."""


class Planned(NamedTuple):
    """A night to learn: its setting, and its documents."""

    setting: Setting
    rows: int

    @property
    def end(self) -> StreamPosition:
        """Where it ends."""
        return StreamPosition(1, self.rows)


class NightState(NamedTuple):
    """What a block left at the end of a night: its files, and the block."""

    path: Location
    learner: Location
    block: Block

    def remove(self) -> None:
        """Remove it, description first."""
        remove_file(self.path)
        remove_file(self.learner)


def night_store(folder: Location, version: int) -> Store:
    """The documents that a version of a store added, over the features of that version.

    Raises `StorageError` for a manifest that is missing or cannot be understood.
    """
    before = None if version == 1 else read_manifest(folder, version - 1)
    return Store(folder, _added(read_manifest(folder, version), before))


def plan_nights(options: SearchOptions, folder: Location, last: int) -> list[Planned]:
    """Every night up to that of version `last`, in order; night v is at v − 1."""
    origin = None if options.warm_start is None else Origin.of(options.warm_start)
    nights: list[Planned] = []
    before: Manifest | None = None
    for version, manifest in enumerate(read_manifests(folder, last), 1):
        added = _added(manifest, before)
        setting = Setting(
            manifest=added.digest,
            loss=options.loss,
            penalty=options.penalty,
            dtype=options.dtype,
            fold=NO_FOLD,
            folds=1,
            epochs=1,
            seed=night_seed(options.seed, version),
            shuffle=options.shuffle,
            origin=origin,
            night=Night(version=version, before=nights[-1].setting.digest if nights else None),
        )
        nights.append(Planned(setting, added.rows))
        before = manifest
    return nights


def night_seed(seed: int, version: int) -> int:
    """The seed of a night's order: that of the run for the first, another one for each night after it."""
    return seed if version == 1 else int(digest_value([seed, version])[:15], 16)


def begin(folder: Location, block: Block, store: Store) -> BlockRun:
    """A block before its first row: new or, on a night after the first, as the night before left it in `folder`.

    Features that came since are as if they had always been there. Raises `StateLostError` where what was left is gone
    or damaged.
    """
    night = block.setting.night
    if night is None or night.before is None:
        return BlockRun.begin(block, store)
    return BlockRun.of(block, learner_after(folder, night.before, night.version - 1, block.identities, store))


def learner_after(folder: Location, setting: str, version: int, names: Sequence[str], store: Store) -> Learner:
    """What configurations, by name, had come to at the end of a night, over the features of `store`.

    `setting` is the digest of the night's. Raises `StateLostError` where what was left in `folder` is gone or damaged,
    `StorageError` where it cannot be read now: then it stays.
    """
    for state in states_of(folder, {setting: StreamPosition(1, night_store(store.folder, version).n_rows)}):
        own = state.block.identities
        if not set(names) <= set(own):
            continue
        try:
            learner = Learner.load(state.learner, n_features=store.n_features)
        except DamagedError:
            state.remove()
            continue
        return learner if list(names) == own else learner.select([own.index(name) for name in names])
    raise StateLostError(f"What night {version} left in {folder} is gone or damaged: it has to be learned anew.")


def states_of(folder: Location, ends: Mapping[str, StreamPosition]) -> Iterator[NightState]:
    """The states in a folder that are of the ends of nights, given by the digests of their settings."""
    for path in sorted(folder.glob("*.json")):
        end = ends.get(path.name.partition("-")[0])
        if end is None:
            continue
        with suppress(DamagedError, KeyError, TypeError, ValueError):  # removed a moment ago, or damaged
            state = read_checksummed(path)
            learner = folder / str(state["learner"])
            if StreamPosition(*state["place"]) == end and learner.exists():
                yield NightState(path, learner, Block.model_validate(state["block"]))


def _added(manifest: Manifest, before: Manifest | None) -> Manifest:
    """A manifest with the shards alone that the one before has not."""
    shards = manifest.shards[0 if before is None else len(before.shards) :]
    # Made anew: a copy would keep what was computed of the whole, its digest above all.
    values: dict[str, Any] = dict(manifest)
    values["shards"] = shards
    values["rows"] = sum(shard.rows for shard in shards)
    values["nonzeros"] = sum(shard.nonzeros for shard in shards)
    return Manifest.model_validate(values)
