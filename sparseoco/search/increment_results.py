"""The results of the increments that are decided, in one file: the cells of an increment are only kept until then.

increments.npz  by increment, the digest of its setting; by increment and configuration, the metrics
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row

FILE = "increments.npz"
COUNTS = ("nonzeros", "features")
PROGRESSIVE = "progressive_"
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
        The counts of `COUNTS` and all metrics that begin with `PROGRESSIVE`, by name; NaN where there is none.
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
                if name in COUNTS or name.startswith(PROGRESSIVE):
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
