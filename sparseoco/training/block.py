"""A block of columns: configurations of one algorithm that share a stream, and the cells their results are kept in.

A block belongs to a fold: the examples of that fold are only predicted, all others are predicted and learned from. Its
run is cut into legs, each ending at a `StreamPosition`; the results of a leg are a cell, a JSON file named by the
setting, the
block and the place. A result is found again by what it is: setting, configuration and place, however the
configurations were grouped.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from sparseoco import __version__
from sparseoco.core.logs import log_event
from sparseoco.storage.commit import commit_checksummed, digest_value, read_all_checksummed, remove_file
from sparseoco.storage.locations import Location
from sparseoco.training.stream import NO_FOLD as NO_FOLD
from sparseoco.training.stream import Order
from sparseoco.training.stream import StreamPosition as StreamPosition
from sparseoco.training.warm_start import Origin

Tables = dict[str, list[dict[str, Any]]]
"""Rows of the tables of a search (see `sparseoco.storage.metrics`) for one configuration and fold, without their
numbers."""

Key = tuple[int, str]
"""A configuration in a fold: the fold's number and the configuration's name."""


class Description(BaseModel):
    """A value that names what it describes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @cached_property
    def digest(self) -> str:
        """A name for it: equal descriptions have equal ones."""
        return digest_value(self._identity())[:32]

    def _identity(self) -> Any:
        return self.model_dump(mode="json")


class Night(BaseModel):
    """What a version of a store added, learned from where the night before ended: see `sparseoco.search.increments`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    before: str | None
    """Digest of the setting of the night before; None for the first."""


class Setting(Description):
    """All that decides a configuration's result at a place besides itself; `manifest` is the digest of the store's.

    How many epochs there are to be is no part of its name: what is learned in one does not depend on those to come.
    Neither is where the model that all begin from lies, but what it is.
    """

    manifest: str
    loss: str
    penalty: str
    dtype: str
    fold: int  # held out; −1 for none
    folds: int
    epochs: int
    seed: int
    shuffle: bool
    origin: Origin | None = None
    night: Night | None = None
    sparseoco: str = __version__

    @property
    def order(self) -> Order:
        """The order of its stream."""
        return Order(self.seed, self.shuffle, self.fold, self.folds)

    @property
    def described(self) -> dict[str, Any]:
        """What it is named by."""
        described = self.model_dump(mode="json", exclude={"epochs": True, "origin": {"model"}})
        return described if self.night is not None else {k: v for k, v in described.items() if k != "night"}

    def _identity(self) -> Any:
        return self.described


class Block(Description):
    """Configurations of one algorithm under one setting. How they are grouped does not change their results."""

    setting: Setting
    algorithm: str
    configurations: tuple[dict[str, Any], ...]

    def _identity(self) -> Any:
        return [self.setting.digest, self.algorithm, self.configurations]

    @cached_property
    def identities(self) -> list[str]:
        """The name of each configuration."""
        return [configuration_id(self.algorithm, parameters) for parameters in self.configurations]

    @property
    def keys(self) -> list[Key]:
        """Its configurations, in its fold."""
        return [(self.setting.fold, name) for name in self.identities]

    def of(self, configurations: Sequence[dict[str, Any]]) -> "Block":
        """The same block with these configurations."""
        return Block(setting=self.setting, algorithm=self.algorithm, configurations=tuple(configurations))


def configuration_id(algorithm: str, parameters: dict[str, Any]) -> str:
    """The name of a configuration."""
    return digest_value([algorithm, parameters])


def cell_path(folder: Location, block: Block, place: StreamPosition) -> Location:
    """Where a block's results at a place go: by the setting, so that those of any grouping are found, and the block."""
    return folder / f"{block.setting.digest}-{block.digest}-{place.epoch}-{place.position}.json"


def write_cell(path: Location, block: Block, place: StreamPosition, tables: Sequence[Tables]) -> None:
    """Commit the tables of each configuration of a block at a place."""
    results = [
        {"algorithm": block.algorithm, "parameters": parameters, "tables": rows}
        for parameters, rows in zip(block.configurations, tables, strict=True)
    ]
    commit_checksummed(path, {"setting": block.setting.described, "place": list(place), "results": results})


def read_cells(paths: Sequence[Location]) -> Iterator[tuple[Location, dict[str, Any]]]:
    """The cells at these paths; damaged ones are removed, so that they are learned anew. Raises `StorageError`."""
    for path, cell in read_all_checksummed(paths):
        if cell is not None:
            yield path, cell
            continue
        log_event("search", "damaged result removed", level=logging.WARNING, file=path.name)
        remove_file(path)


class Cells:
    """The results in a folder under some settings, by (fold, configuration) and place."""

    def __init__(self, folder: Location, settings: Iterable[Setting]) -> None:
        self._folder = folder
        self._folds = {setting.digest: setting.fold for setting in settings}
        self._seen: set[str] = set()
        self._found: dict[Key, dict[StreamPosition, Tables]] = {}

    def refresh(self) -> None:
        """Read the cells that were not there before."""
        new = [
            path
            for path in sorted(self._folder.glob("*.json"))
            if path.name.split("-")[0] in self._folds and path.name not in self._seen
        ]
        for path, cell in read_cells(new):
            self._seen.add(path.name)
            fold, place = self._folds[path.name.split("-")[0]], StreamPosition(*map(int, path.stem.split("-")[2:]))
            for result in cell["results"]:
                key = fold, configuration_id(result["algorithm"], result["parameters"])
                self._found.setdefault(key, {})[place] = result["tables"]

    def __len__(self) -> int:
        """Configurations, in a fold each, that have any result."""
        return len(self._found)

    def at(self, fold: int, configuration: str, place: StreamPosition) -> Tables | None:
        """The tables of a configuration at a place, if they are there."""
        return self._found.get((fold, configuration), {}).get(place)

    def furthest(self, fold: int, configuration: str, epoch: int) -> Tables | None:
        """The tables of a configuration at the last place of an epoch that is there."""
        found = self._found.get((fold, configuration), {})
        last = max((place for place in found if place.epoch == epoch), default=None)
        return None if last is None else found[last]
