"""Increments of a store, learned in order by every configuration of a grid, and their results."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from distributed import Client

from sparseoco.core.errors import DamagedError, SparseocoError, unsupported
from sparseoco.core.formatting import plural
from sparseoco.search.runner import ProgressTracker, Runner
from sparseoco.search.worker import Checkpoint, furthest_checkpoints, increment_store
from sparseoco.storage.commit import digest_value, make_folder, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file, write_parquet
from sparseoco.store.manifest import read_manifests
from sparseoco.store.shards import Session
from sparseoco.training.block import Increment, Key, Setting, search_setting
from sparseoco.training.options import PROGRESSIVE, SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition, range_rows_of

# ----------------------------------------------------------------------------------------------------------------------
# The results of the increments that are decided, in one file: the cells of an increment are only kept until then.


FILE = "increments.parquet"
DESCRIPTION = b"sparseoco"
"""The key in the file's metadata of the plan and the settings."""
KEPT_METRICS = ("nonzeros", "features", "status", "reason")


class IncrementResults(NamedTuple):
    """The metrics of configurations in increments.

    Parameters
    ----------
    plan : str
        Identifies everything that the results depend on, except the configurations.
    settings : sequence of str
        The digests of the increments' settings.
    rows : dict
        By version and identity of the configuration: `KEPT_METRICS` and the progressive metrics.
    """

    plan: str
    settings: Sequence[str]
    rows: Mapping[tuple[int, str], Row]

    def extended(
        self, plan: str, settings: Sequence[str], configurations: Sequence[str], find: Callable[[int, str], Row | None]
    ) -> "IncrementResults":
        """The results of these increments and configurations; `find` gives those that are missing here."""
        rows: dict[tuple[int, str], Row] = {}
        for key in ((version, name) for version in range(1, len(settings) + 1) for name in configurations):
            row = self.rows.get(key) or find(*key)
            if row is not None:
                rows[key] = {k: v for k, v in row.items() if k in KEPT_METRICS or k.startswith("progressive_")}
        return IncrementResults(plan, settings, rows)

    def write(self, folder: Location) -> None:
        """Commit the file. Raises `StorageError`."""
        rows = [{"increment": version, "identity": name} | row for (version, name), row in self.rows.items()]
        described = json.dumps({"plan": self.plan, "settings": list(self.settings)})
        table = pa.Table.from_pylist(rows).replace_schema_metadata({DESCRIPTION: described})
        write_parquet(folder / FILE, table)


EMPTY = IncrementResults("", [], {})


def read_increment_results(folder: Location) -> IncrementResults:
    """The results in a folder, `EMPTY` if the file is missing or corrupt: then the increments are learned again.

    Raises `StorageError` if it cannot be read now.
    """
    with suppress(DamagedError):
        table = read_parquet_file(folder / FILE)
        described = json.loads(table.schema.metadata[DESCRIPTION])
        rows = {(row.pop("increment"), row.pop("identity")): row for row in table.to_pylist()}
        return IncrementResults(**described, rows=rows)
    return EMPTY


# ----------------------------------------------------------------------------------------------------------------------
# A chain of increments, learned in order by every configuration of a grid.
#
# A configuration continues from its state at the end of the previous increment. Without one, since it is new in the
# grid or the state was lost, it restarts after the last increment with a state, or from the first increment.


MAX_MARKS = 365  # of the curve of a model: a mark per increment


def increment_seed(seed: int, version: int) -> int:
    """The seed of the order of an increment: for the first that of the run, for each later one another."""
    return seed if version == 1 else int(digest_value([seed, version])[:15], 16)


@dataclass(eq=False)
class IncrementChain:
    """The increments of a store up to version `last`, learned by the configurations of a grid in `folder`.

    The first `decided` of them are learned only if a later one continues from them.
    """

    options: SearchOptions
    store: Location
    last: int
    decided: int
    folder: Location
    deadline: float | None = None

    def __post_init__(self) -> None:
        options, last = self.options, self.last
        if any(configuration.parts > 1 for configuration in options.configurations()):
            raise unsupported("Nightly training continues from the state of one learner: it does not take parts.")
        self._increments = [manifest.increment for manifest in read_manifests(self.store, last)]
        self._documents = [added.rows for added in self._increments]
        common = search_setting(options, increment_store(self.store, 1), NO_FOLD)
        progressive = options.metric is not None and options.metric not in PROGRESSIVE
        self._common = common.model_copy(update={"epochs": 1, "progressive_metrics": progressive})
        results = read_increment_results(self.folder)
        if len(results.settings) > last or results.plan != self._plan(len(results.settings)):
            results = EMPTY  # of other options or other documents
        self._results, self._digests = results, list(results.settings)
        for version in range(len(self._digests) + 1, last + 1):
            self._digests.append(self.setting(version).digest)
        self._runner = Runner(options, self._digests, self.folder, self.deadline)
        self._configurations = self._runner.configurations
        states = self._states()
        self._first = {name: self._first_to_learn(name, states) for name in self._configurations}

    def setting(self, version: int) -> Setting:
        """The setting of an increment. It has the digest of the one before, so the same documents in the same
        increments have the same digests and states."""
        added = self._increments[version - 1]
        own = {
            "manifest": added.digest,
            "seed": increment_seed(self.options.seed, version),
            "range_rows": range_rows_of(self.options.shuffle, added.rows, added.nonzeros),
            "increment": Increment(version=version, previous=self._digests[version - 2] if version > 1 else None),
        }
        return self._common.model_copy(update=own)

    @property
    def first(self) -> int:
        """The first increment that has to be learned; one after the last if all have been."""
        return min(self._first.values())

    @property
    def checkpoints(self) -> Location:
        """The folder of the states at the ends of increments."""
        return self._runner.folders.checkpoints

    def learn(self, client: Client, version: int) -> bool:
        """Learn an increment, whose predecessors were learned; returns whether anything was left to learn.

        Raises `InputError` if not even one configuration fits in memory, `SparseocoError` at the time limit and for
        what would stop every block (a corrupt shard, a full disk).
        """
        names = [name for name, first in self._first.items() if first <= version]
        names = [name for name in names if (NO_FOLD, name) not in self._runner.failures]
        if not names:
            return False
        failures = self._run(client, version, names)
        if failures:  # promotion is final, so configurations that failed, perhaps for want of memory, are tried again
            for key in failures:
                del self._runner.failures[key]
            self._run(client, version, [name for _, name in failures])
        unfinished = [
            name
            for name in names
            if self._metrics(version, name) is None and (NO_FOLD, name) not in self._runner.failures
        ]
        if unfinished:
            raise SparseocoError(
                f"The time limit of {self.options.time_limit:g} s left {plural(len(unfinished), 'configuration')} of "
                f"increment {version} unfinished: run again to resume.",
                code="time-limit",
            )
        return True

    def _run(self, client: Client, version: int, names: list[str]) -> dict[Key, str]:
        """Learn an increment with these configurations; returns the reasons of failures."""
        setting, store = self.setting(version), increment_store(self.store, version)
        for folder in self._runner.folders[:2]:
            make_folder(folder)
        keys = [(NO_FOLD, name) for name in names]
        session = Session(client, store)
        tracker = ProgressTracker(session, f"increment {version}", keys, max(store.n_rows, 1))
        return self._runner.run(tracker, [(setting, name, (self._end(version),)) for name in names])

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
            metrics = self._metrics(version, name) or {"status": "failed", "reason": reason}
            found.append(metrics | configuration.columns | {"documents": self._documents[version - 1]})
        return found

    def curve(self, version: int, configuration: int) -> list[Row]:
        """The curve of a configuration's model: means since the first document at the last `MAX_MARKS` increments."""
        name = next(name for name, c in self._configurations.items() if c.number == configuration)
        points, documents, loss = [], 0, 0.0
        error: float | None = 0.0
        for passed in range(1, version + 1):
            row, rows = self._metrics(passed, name), self._documents[passed - 1]
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
        plan = self._plan(len(self._digests))
        self._results = self._results.extended(plan, self._digests, list(self._configurations), self._metrics)
        self._results.write(self.folder)
        for path in list(self._runner.folders.cells.glob("*.json")):
            remove_file(path)

    def _plan(self, last: int) -> str:
        """Identifies the settings of the increments up to version `last`."""
        digests = [added.digest for added in self._increments[:last]]
        return digest_value([self._common.described, self.options.shuffle, digests])

    def _end(self, version: int) -> StreamPosition:
        """The last position of an increment."""
        return StreamPosition(1, self._documents[version - 1])

    def _metrics(self, version: int, name: str) -> Row | None:
        known = self._results.rows.get((version, name))
        if known:
            return known
        tables = self._runner.cells.at(self._digests[version - 1], name, self._end(version))
        return None if tables is None else tables["metrics"][0]

    def _first_to_learn(self, name: str, states: dict[tuple[int, str], Checkpoint]) -> int:
        """The first increment that a configuration has to learn; one after the last if it has learned all."""
        last = len(self._digests)

        def is_missing(version: int) -> bool:
            """Whether the metrics are missing or, before promotion is decided, the state of a possible model."""
            return (version > self.decided and (version, name) not in states) or self._metrics(version, name) is None

        missing = next(filter(is_missing, range(1, last + 1)), last + 1)
        return 1 + max((version for version, found in states if found == name and version < missing), default=0)

    def _states(self) -> dict[tuple[int, str], Checkpoint]:
        """The states at the ends of increments, by version and configuration."""
        versions = {digest: version for version, digest in enumerate(self._digests, 1)}
        found = furthest_checkpoints(self.checkpoints, versions, strict=True)
        return {
            (versions[setting], name): state
            for (setting, name), state in found.items()
            if state.position == self._end(versions[setting])
        }
