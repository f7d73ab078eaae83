"""A chain of increments, learned in order by every configuration of a grid.

A configuration continues from its state at the end of the previous increment. Without one, since it is new in the grid
or the state was lost, it restarts after the last increment with a state, or from the first increment.
"""

from typing import Any

from distributed import Client

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.core.progress import ProgressCallback
from sparseoco.search.checkpoints import Checkpoint, furthest_checkpoints
from sparseoco.search.increments import PlannedIncrement, increment_store, plan_increments
from sparseoco.search.runner import Runner
from sparseoco.search.tasks import ProgressTracker
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import NO_FOLD


class IncrementChain:
    """The increments of a store up to version `last`, learned by the configurations of a grid in `folder`.

    The first `decided` of them are learned only if a later one continues from them.
    """

    def __init__(
        self,
        options: SearchOptions,
        store: Location,
        last: int,
        decided: int,
        folder: Location,
        deadline: float | None = None,
    ) -> None:
        if any(configuration.parts > 1 for configuration in options.configurations()):
            raise InputError(
                "Nightly training continues from the state of one learner: it does not take parts.",
                code="unsupported-combination",
            )
        self._options, self._store = options, store
        self.planned: list[PlannedIncrement] = plan_increments(options, store, last)
        settings = [increment.setting for increment in self.planned]
        self._runner = Runner(options.configurations(), options, settings, folder, deadline)
        self._configurations = self._runner.configurations
        states = self._states()
        self._first = {name: self._first_to_learn(name, decided, states) for name in self._configurations}

    @property
    def checkpoints(self) -> Location:
        """The folder of the states at the ends of increments."""
        return self._runner.folders.checkpoints

    def learn(self, client: Client, version: int, progress: ProgressCallback) -> bool:
        """Learn an increment, whose predecessors were learned; returns whether anything was left to learn.

        Raises `InputError` if not even one configuration fits in memory, `SparseocoError` at the time limit and for
        what would stop every block (a corrupt shard, a full disk).
        """
        names = [name for name, first in self._first.items() if first <= version]
        names = [name for name in names if (NO_FOLD, name) not in self._runner.failures]
        if not names:
            return False
        failures = self._run(client, version, names, progress)
        if failures:  # promotion is final, so configurations that failed, perhaps for want of memory, are tried again
            retried = [name for _, name in failures]
            for key in failures:
                del self._runner.failures[key]
            self._run(client, version, retried, progress)
        unfinished = [
            name
            for name in names
            if self._metrics(version, name) is None and (NO_FOLD, name) not in self._runner.failures
        ]
        if unfinished:
            raise SparseocoError(
                f"The time limit of {self._options.time_limit:g} s left {len(unfinished):,} configurations of "
                f"increment {version} unfinished: run again to resume.",
                code="time-limit",
            )
        return True

    def _run(self, client: Client, version: int, names: list[str], progress: ProgressCallback) -> dict[Any, str]:
        """Learn an increment with these configurations; returns the reasons of failures."""
        increment, store = self.planned[version - 1], increment_store(self._store, version)
        for folder in self._runner.folders[:2]:
            make_folder(folder)
        keys = [(NO_FOLD, name) for name in names]
        tracker = ProgressTracker(f"increment {version}", keys, max(store.n_rows, 1), progress)
        work = [(increment.setting, name, (increment.end,)) for name in names]
        return self._runner.run(client, store, work, tracker)

    def remove_unneeded(self, version: int) -> None:
        """Remove states that no later increment continues from, after the increments up to `version` are learned."""
        states = self._states()
        needed = [
            state
            for (found, name), state in states.items()
            if name in self._configurations
            and (found >= version or (found == version - 1 and (version, name) not in states))
        ]
        names = {path.name for state in needed for path in (state.path, state.learner)}
        for pattern in ("*.json", "*.learner"):
            for path in list(self.checkpoints.glob(pattern)):
                if path.name not in names:
                    remove_file(path)

    def rows(self, version: int) -> list[Row]:
        """The metrics of every configuration in an increment, in the order of the grid; errors are progressive."""
        found = []
        for name, configuration in self._configurations.items():
            reason = self._runner.failures.get((NO_FOLD, name), "not learned in this increment")
            key = {
                "configuration": configuration.number,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                **configuration.weighting.model_dump(),
                "documents": self.planned[version - 1].rows,
            }
            found.append((self._metrics(version, name) or {"status": "failed", "reason": reason}) | key)
        return found

    def curve(self, version: int, configuration: int) -> list[Row]:
        """The curve of a configuration's model: one point per increment, means since the first document."""
        name = next(name for name, c in self._configurations.items() if c.number == configuration)
        points, documents, loss = [], 0, 0.0
        error: float | None = 0.0
        for passed in range(1, version + 1):
            row, rows = self._metrics(passed, name), self.planned[passed - 1].rows
            assert row is not None
            documents += rows
            loss += row["progressive_loss"] * rows
            errors = row["progressive_error"]
            error = None if errors is None or error is None else error + errors * rows
            mean = {
                "progressive_loss": loss / max(documents, 1),
                "progressive_error": None if error is None else error / max(documents, 1),
            }
            points.append({"epoch": passed, "rows": documents, "nonzeros": row["nonzeros"]} | mean)
        return points

    def _metrics(self, version: int, name: str) -> Row | None:
        increment = self.planned[version - 1]
        tables = self._runner.cells.at(increment.setting, name, increment.end)
        return None if tables is None else tables["metrics"][0]

    def _first_to_learn(self, name: str, decided: int, states: dict[tuple[int, str], Checkpoint]) -> int:
        """The first increment that a configuration has to learn; one after the last if it has learned all."""
        last = len(self.planned)

        def is_missing(version: int) -> bool:
            """Whether the metrics are missing or, before promotion is decided, the state of a possible model."""
            return self._metrics(version, name) is None or (version > decided and (version, name) not in states)

        missing = next(filter(is_missing, range(1, last + 1)), last + 1)
        return 1 + max((version for version in range(1, missing) if (version, name) in states), default=0)

    def _states(self) -> dict[tuple[int, str], Checkpoint]:
        """The states at the ends of increments, by version and configuration."""
        ends = {increment.setting.digest: (v, increment.end) for v, increment in enumerate(self.planned, 1)}
        found = furthest_checkpoints(self.checkpoints, ends, DamagedError)
        return {
            (ends[setting][0], name): state
            for (setting, name), state in found.items()
            if state.position == ends[setting][1]
        }
