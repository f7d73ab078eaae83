"""Learning nights: what every configuration of the grid still has to learn, and doing it, night by night.

A configuration goes on from the state that it left at the end of the night before. One that has none, since it is new
in the grid or what it left was lost, is learned from the last night on whose end it left a state, or from the first.
"""

from collections.abc import Sequence
from typing import Any

from distributed import Client

from sparseoco.core.errors import SparseocoError
from sparseoco.core.progress import ProgressCallback
from sparseoco.search.increments import NightState, Planned, night_store, plan_nights, states_of
from sparseoco.search.milestones import Folders
from sparseoco.search.packing import Pack, cluster_capacity, pack
from sparseoco.search.tasks import ProgressTracker, run_jobs
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location
from sparseoco.training.block import NO_FOLD, Key, configuration_id, read_cells
from sparseoco.training.options import Configuration, SearchOptions

Row = dict[str, Any]


class Nights:
    """The nights of a store up to that of version `last`, as learned by the configurations of a grid in `folder`.

    The first `decided` of them are decided: nothing is asked of them any more but to lead to the next.
    """

    def __init__(self, options: SearchOptions, store: Location, last: int, decided: int, folder: Location) -> None:
        self._options, self._store = options, store
        self.folders = Folders.of(folder)
        self.planned: list[Planned] = plan_nights(options, store, last)
        self._configurations = {configuration_id(c.algorithm, c.parameters): c for c in options.configurations()}
        self._versions = {night.setting.digest: version for version, night in enumerate(self.planned, 1)}
        self._seen: set[str] = set()
        self._found: dict[tuple[int, str], Row] = {}
        self._refresh()
        self._failures: dict[Key, str] = {}
        held = self._held()
        self._begins = {name: self._first_to_learn(name, decided, held) for name in self._configurations}

    def learn(self, client: Client, version: int, deadline: float | None, progress: ProgressCallback) -> bool:
        """Learn a night, those before it being learned; gives whether there was anything left of it to learn.

        Raises `InputError` if not even one configuration fits in memory, `SparseocoError` where the time was over
        before the end and for what would stop every block (a damaged shard, a full disk).
        """
        names = [name for name, begins in self._begins.items() if begins <= version]
        names = [name for name in names if (NO_FOLD, name) not in self._failures]
        if not names:
            return False
        failures = self._run(client, version, names, deadline, progress)
        if failures:  # a night that is decided stays so: what was short for a moment, memory above all, is no reason
            failures = self._run(client, version, [name for _, name in failures], deadline, progress)
        self._failures |= failures
        left_over = [name for name in names if (version, name) not in self._found]
        left_over = [name for name in left_over if (NO_FOLD, name) not in self._failures]
        if left_over:
            raise SparseocoError(
                f"The time limit of {self._options.time_limit:g} s left {len(left_over):,} configurations of night "
                f"{version} unfinished: run again to go on."
            )
        return True

    def _run(
        self, client: Client, version: int, names: Sequence[str], deadline: float | None, progress: ProgressCallback
    ) -> dict[Key, str]:
        """Learn a night with these configurations; gives the reasons of those that could not."""
        night, store = self.planned[version - 1], night_store(self._store, version)
        for folder in (self.folders.cells, self.folders.states):
            make_folder(folder)
        remove_file(self.folders.stop)
        before = self._held() if version > 1 else {}
        packs: dict[Pack, list[Configuration]] = {}
        for name in names:
            chosen = self._configurations[name]
            left = before.get((version - 1, name))
            key = Pack.of(night.setting, (night.end,), None if left is None else left.block.digest, chosen)
            packs.setdefault(key, []).append(chosen)
        keys = [(NO_FOLD, name) for name in names]
        meter = ProgressTracker(f"night {version}", keys, max(store.n_rows, 1), progress)
        jobs = pack(packs, self._options, store, cluster_capacity(client, self._options, store), resumable=True)
        failures = run_jobs(client, jobs, store, self.folders, meter, deadline)
        self._refresh()
        remove_file(self.folders.stop)
        return failures

    def clear(self, version: int) -> None:
        """Remove the states that nobody goes on from, the nights up to `version` being learned."""
        held = self._held()
        kept = [
            state
            for (night, name), state in held.items()
            if name in self._configurations
            and (night >= version or (night == version - 1 and (version, name) not in held))
        ]
        needed = {path.name for state in kept for path in (state.path, state.learner)}
        for pattern in ("*.json", "*.learner"):
            for path in list(self.folders.states.glob(pattern)):
                if path.name not in needed:
                    remove_file(path)

    def rows(self, version: int) -> list[Row]:
        """What every configuration came to in a night, in the order of the grid: rows as those of a search's metrics.

        Errors and losses are of each document before it was learned.
        """
        found = []
        for name, configuration in self._configurations.items():
            row = self._found.get((version, name))
            if row is None:
                reason = self._failures.get((NO_FOLD, name), "not learned in this night")
                row = {"status": "failed", "reason": reason}
            key = {
                "configuration": configuration.number,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                "documents": self.planned[version - 1].rows,
            }
            found.append(row | key)
        return found

    def curve(self, version: int, configuration: int) -> list[Row]:
        """How a configuration went up to a night, a mark a night as models keep it: means since the first document."""
        own = next(c for c in self._configurations.values() if c.number == configuration)
        name = configuration_id(own.algorithm, own.parameters)
        marks, documents, loss, error = [], 0, 0.0, 0.0
        for night in range(1, version + 1):
            row, rows = self._found[night, name], self.planned[night - 1].rows
            documents += rows
            loss += row["progressive_loss"] * rows
            error += row["progressive_error"] * rows
            mean = {"progressive_loss": loss / max(documents, 1), "progressive_error": error / max(documents, 1)}
            marks.append({"epoch": night, "rows": documents, "nonzeros": row["nonzeros"]} | mean)
        return marks

    def _refresh(self) -> None:
        """Read the cells that were not there before."""
        paths = [path for path in sorted(self.folders.cells.glob("*.json")) if path.name not in self._seen]
        new = [path for path in paths if path.name.partition("-")[0] in self._versions]
        for path, cell in read_cells(new):
            self._seen.add(path.name)
            version = self._versions[path.name.partition("-")[0]]
            for result in cell["results"]:
                name = configuration_id(result["algorithm"], result["parameters"])
                self._found[version, name] = result["tables"]["metrics"][0]

    def _first_to_learn(self, name: str, decided: int, held: dict[tuple[int, str], NightState]) -> int:
        """The first night that a configuration has to learn; one more than there are if it has learned all."""
        last = len(self.planned)
        versions: Sequence[int] = range(1, last + 1)

        def is_missing(version: int) -> bool:
            """A night that is to be decided may be asked for its model too."""
            return (version, name) not in self._found or (version > decided and (version, name) not in held)

        missing = next(filter(is_missing, versions), last + 1)
        states = [version for version in versions if version < missing and (version, name) in held]
        return 1 + max(states, default=0)

    def _held(self) -> dict[tuple[int, str], NightState]:
        """The states of ends of nights, by night and configuration."""
        ends = {night.setting.digest: night.end for night in self.planned}
        return {
            (self._versions[state.block.setting.digest], name): state
            for state in states_of(self.folders.states, ends)
            for name in state.block.identities
        }
