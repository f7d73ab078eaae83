"""A chain of increments, learned in order by every configuration of a grid.

A configuration continues from its state at the end of the previous increment. Without one, since it is new in the grid
or the state was lost, it restarts after the last increment with a state, or from the first increment.
"""

from typing import Any

from distributed import Client

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.core.progress import ProgressCallback
from sparseoco.core.quantities import plural
from sparseoco.search.checkpoints import Checkpoint, furthest_checkpoints
from sparseoco.search.increment_results import EMPTY, read_increment_results
from sparseoco.search.increments import IncrementPlan, increment_store
from sparseoco.search.runner import Runner
from sparseoco.search.tasks import ProgressTracker
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import NO_FOLD

MAX_MARKS = 365  # of the curve of a model: a mark per increment


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
        self._options, self._store, self._folder = options, store, folder
        self.plan = IncrementPlan(options, store, last)
        results = read_increment_results(folder)
        if len(results.settings) > last or results.plan != self.plan.identity(len(results.settings)):
            results = EMPTY  # of other options or other documents
        self.plan.resolve(results.settings)
        self._results = results
        self._runner = Runner(options.configurations(), options, self.plan.digests, folder, deadline)
        self._configurations = self._runner.configurations
        states = self._states()
        self._first = {name: self._first_to_learn(name, decided, states) for name in self._configurations}

    @property
    def first(self) -> int:
        """The first increment that has to be learned; one after the last if all have been."""
        return min(self._first.values())

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
                f"The time limit of {self._options.time_limit:g} s left {plural(len(unfinished), 'configuration')} of "
                f"increment {version} unfinished: run again to resume.",
                code="time-limit",
            )
        return True

    def _run(self, client: Client, version: int, names: list[str], progress: ProgressCallback) -> dict[Any, str]:
        """Learn an increment with these configurations; returns the reasons of failures."""
        setting, store = self.plan.setting(version), increment_store(self._store, version)
        for folder in self._runner.folders[:2]:
            make_folder(folder)
        keys = [(NO_FOLD, name) for name in names]
        tracker = ProgressTracker(f"increment {version}", keys, max(store.n_rows, 1), progress)
        work = [(setting, name, (self.plan.end(version),)) for name in names]
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
                "documents": self.plan.rows[version - 1],
            }
            found.append((self._metrics(version, name) or {"status": "failed", "reason": reason}) | key)
        return found

    def curve(self, version: int, configuration: int) -> list[Row]:
        """The curve of a configuration's model: means since the first document at the last `MAX_MARKS` increments."""
        name = next(name for name, c in self._configurations.items() if c.number == configuration)
        points, documents, loss = [], 0, 0.0
        error: float | None = 0.0
        for passed in range(1, version + 1):
            row, rows = self._metrics(passed, name), self.plan.rows[passed - 1]
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
        return points[-MAX_MARKS:]

    def keep_results(self) -> None:
        """Commit the results of all increments to one file, and remove the cells, after all are learned."""
        last = len(self.plan)
        plan, names = self.plan.identity(last), list(self._configurations)
        self._results = self._results.extended(plan, self.plan.digests, names, self._cell)
        self._results.write(self._folder)
        for path in list(self._runner.folders.cells.glob("*.json")):
            remove_file(path)

    def _metrics(self, version: int, name: str) -> Row | None:
        return self._results.row(version, name) or self._cell(version, name)

    def _cell(self, version: int, name: str) -> Row | None:
        tables = self._runner.cells.at(self.plan.digests[version - 1], name, self.plan.end(version))
        return None if tables is None else tables["metrics"][0]

    def _first_to_learn(self, name: str, decided: int, states: dict[tuple[int, str], Checkpoint]) -> int:
        """The first increment that a configuration has to learn; one after the last if it has learned all."""
        last, known = len(self.plan), self._results.known(name)

        def is_missing(version: int) -> bool:
            """Whether the metrics are missing or, before promotion is decided, the state of a possible model."""
            if version > decided and (version, name) not in states:
                return True
            return not (version <= known.size and known[version - 1]) and self._cell(version, name) is None

        missing = next(filter(is_missing, range(1, last + 1)), last + 1)
        return 1 + max((version for version, found in states if found == name and version < missing), default=0)

    def _states(self) -> dict[tuple[int, str], Checkpoint]:
        """The states at the ends of increments, by version and configuration."""
        versions = {digest: version for version, digest in enumerate(self.plan.digests, 1)}
        found = furthest_checkpoints(self.checkpoints, versions, DamagedError)
        return {
            (versions[setting], name): state
            for (setting, name), state in found.items()
            if state.position == self.plan.end(versions[setting])
        }
