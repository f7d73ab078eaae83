"""Regret on Dask: learners' curves as tasks, optima by passes, bounds as tasks; each result is a file.

A curve and a bound are one task for each configuration, pure functions of their descriptions. The optimum of the first
T rounds is found for each mark from 0: to start where the mark before ended, at weights that overfit its rounds, took a
hundred times as long. Epoch methods run their epochs over all examples, one after the other (`regret.epochs`), and have
one optimum. Existing files are not computed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import Call, TaskPool, failure_reason
from sparseoco.learners import find_algorithm
from sparseoco.offline.bounds import Bound, NoBound, bound_of
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS, ClusterPasses
from sparseoco.offline.passes import Span
from sparseoco.offline.regret.bound_quantities import measurable
from sparseoco.offline.regret.comparator import Comparator, find_comparator
from sparseoco.offline.regret.curve import FIRST_EPOCH
from sparseoco.offline.regret.epochs import measure_epochs
from sparseoco.offline.regret.optima import Solution, find_optima
from sparseoco.offline.regret.rounds import sample_size, spread_marks
from sparseoco.offline.regret.tables import Row, slope_row
from sparseoco.offline.regret.tasks import (
    DTYPE,
    Measurement,
    Series,
    bound_task,
    curve_task,
    find_optimum,
    optima_task,
)
from sparseoco.storage.commit import commit_json, digest_value, read_json, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Block, Setting
from sparseoco.training.options import Configuration, SearchOptions

TOL = 1e-3  # of the objective at w = 0; a learner's regret is some tenths of that
EPOCHS_TOL = 0.01  # times the tolerance, for epoch methods: they come that close, and have a single optimum


def run_regret(
    client: Client,
    configurations: Sequence[Configuration],
    options: SearchOptions,
    store: Store,
    folder: Location,
    marks: int,
    tol: float,
    progress: ProgressCallback,
) -> tuple[list[Row], list[Row]]:
    """Measure the regret of configurations.

    Parameters
    ----------
    client : distributed.Client
    configurations : sequence of Configuration
    options : SearchOptions
        Loss, penalty, seed, shuffling and epochs.
    store : Store
    folder : Location
        Folder of the cells; what is there is not computed again.
    marks : int
        Rounds at which regret is measured, at most.
    tol : float
        Accuracy of the optima, relative to the objective at w = 0.
    progress : callable
        Called with (step, done, total).

    Returns
    -------
    rows, ends : lists of rows
        Of `regret.tables.REGRET` and `SLOPES`. A configuration that diverges has the marks before it did; one that
        cannot be measured has none, and its reason.

    Raises
    ------
    InputError
        No configuration has a comparator.
    SparseocoError
        For what would stop every task or pass.
    """
    regret = _Regret(client, options, store, folder.absolute(), marks, tol, progress)  # workers have other folders
    comparators, reasons = {}, {}
    for c in configurations:
        try:
            comparators[c.number] = find_comparator(c.algorithm, c.parameters, options.loss, options.penalty)
        except InputError as error:
            reasons[c.number] = str(error)
    if not comparators:
        raise InputError(next(iter(reasons.values())), code="no-comparator")
    compared = [c for c in configurations if c.number in comparators]
    streams = [c for c in compared if not comparators[c.number].epochs]
    reasons |= regret.curves(streams) | regret.epochs([c for c in compared if comparators[c.number].epochs])
    compared = [c for c in compared if c.number not in reasons]
    regret.optima([(c, comparators[c.number]) for c in compared])
    unbounded = regret.bounds([c for c in compared if not comparators[c.number].epochs], comparators)
    rows, ends = [], []
    for c in configurations:
        key: Row = {"configuration": c.number, "algorithm": c.algorithm, "parameters": c.parameters_json}
        bound: Bound | NoBound = NoBound(reasons.get(c.number, ""))
        if c.number in comparators:
            key["objective"] = comparators[c.number].formula
            bound = measurable(bound_of(c.algorithm, c.parameters, options.penalty), options.loss)
        own = [] if c.number in reasons else list(regret.rows(c, comparators[c.number], bound))
        rows += [key | row for row in own]
        status, reason = ("failed", reasons[c.number]) if c.number in reasons else regret.status(c)
        end = slope_row(own, bound, status, reason)
        if c.number in unbounded:
            end["bound_note"] = unbounded[c.number]
        ends.append(key | end)
    return rows, ends


class _Regret:
    def __init__(
        self,
        client: Client,
        options: SearchOptions,
        store: Store,
        folder: Location,
        marks: int,
        tol: float,
        progress: ProgressCallback,
    ) -> None:
        self.client, self.options, self.store, self.folder = client, options, store, folder
        self.tol, self.progress = tol, progress
        self.marks = spread_marks(store.n_rows, marks)
        self.samples = sample_size(store.n_rows, store.manifest.nonzeros, store.n_features)
        self.outputs = len(store.classes) if len(store.classes) > 2 else 1
        self.positive = list(range(self.outputs)) if self.outputs > 1 else [1]

    def measurement(self, c: Configuration) -> Measurement:
        """The description of a configuration's curve."""
        epochs = not find_algorithm(c.algorithm).online
        return Measurement(
            manifest=self.store.manifest.digest,
            algorithm=c.algorithm,
            parameters=c.parameters,
            loss=self.options.loss,
            penalty=self.options.penalty,
            seed=self.options.seed,
            shuffle=self.options.shuffle and not epochs,
            marks=() if epochs else tuple(self.marks),
            samples=0 if epochs else self.samples,
            epochs=self.options.epochs if epochs else 1,
        )

    def curves(self, configurations: Sequence[Configuration]) -> dict[int, str]:
        """Measure the learners' curves; the reasons of those that failed."""
        tasks = {c.number: (curve_task, self.measurement(c), self._curve(c), ()) for c in configurations}
        return self._run("curves", tasks)

    def epochs(self, configurations: Sequence[Configuration]) -> dict[int, str]:
        """Run the epoch methods over all examples; the reasons of those that failed."""
        reasons = {}
        work, total = self.folder / "epochs", len(configurations) * self.options.epochs * self.store.n_rows
        for k, c in enumerate(configurations):
            cell, measurement = self._curve(c), self.measurement(c)
            if cell.exists():
                continue
            shared = measurement.model_dump(include={"manifest", "loss", "penalty", "seed", "shuffle", "epochs"})
            setting = Setting(**shared, dtype=DTYPE, fold=NO_FOLD, folds=1)
            block = Block(setting=setting, algorithm=c.algorithm, configurations=(c.parameters,))
            before = k * self.options.epochs * self.store.n_rows

            def report(rows: int, before: int = before) -> None:
                self.progress("epochs", before + rows, total)

            report(0)
            try:
                found = measure_epochs(self.client, block, self.store, self.folder, work, report)
            except Exception as error:  # whatever a worker met; what would stop every block is raised again
                reasons[c.number] = failure_reason(error)
            else:
                commit_json(cell, {"measurement": measurement.model_dump(mode="json"), **found})
        remove_folder(work)
        return reasons

    def bounds(self, configurations: Sequence[Configuration], comparators: Mapping[int, Comparator]) -> dict[int, str]:
        """Measure the quantities of the bounds; the reasons of those that failed."""
        tasks = {}
        for c in configurations:
            comparator = comparators[c.number]
            optima = [(T, str(self._optimum(c, comparator, T))) for T in self._reached(c, comparator)]
            tasks[c.number] = (bound_task, self.measurement(c), self._bound(c, comparators[c.number]), (optima,))
        return self._run("bounds", tasks)

    def _run(
        self, step: str, tasks: Mapping[int, tuple[Any, Measurement, Location, tuple[Any, ...]]]
    ) -> dict[int, str]:
        """Run the tasks whose cells are missing; the reasons of those that failed."""
        calls: dict[str, Call] = {}
        numbers: dict[str, list[int]] = {}
        for number, (function, measurement, cell, more) in tasks.items():
            if not cell.exists():
                arguments = (measurement.model_dump(mode="json"), str(self.store.folder.resolve()), str(cell.resolve()))
                calls[cell.stem] = (function, *arguments, *more)
                numbers.setdefault(cell.stem, []).append(number)
        found = len(tasks) - len(calls)
        pool = TaskPool(self.client)
        failures = pool.run_all(calls, lambda done: self.progress(step, found + done, len(tasks)))
        return {number: error.reason for name, error in failures.items() for number in numbers[name]}

    def optima(self, compared: Sequence[tuple[Configuration, Comparator]]) -> None:
        """Find the optimum of every comparator at every mark.

        Those of few rows are one task for each comparator; the others are found by passes of all comparators over the
        rows of a mark. Which marks are which depends on the store alone.
        """
        series: dict[Location, Series] = {}
        for one in compared:
            key, own = self._optimum(*one, self.marks[-1]), self._series(*one)
            if key not in series or len(own.cells) > len(series[key].cells):  # one that diverged has fewer marks
                series[key] = own
        total = sum(len(own.cells) for own in series.values())
        nonzeros, n_rows = self.store.manifest.nonzeros, self.store.n_rows
        near = [T for T in self.marks if T * nonzeros * self.outputs <= NEWTON_NONZEROS * n_rows]

        def report(*_: Any) -> None:
            left = sum(own.missing(T) is not None for own in series.values() for T, _ in own.cells)
            self.progress("optima", total - left, total)

        calls: dict[str, Call] = {}
        for key, own in series.items():
            if any(own.missing(T) for T in near):
                arguments = (self.options.loss, self.positive, self.options.seed, self.options.shuffle)
                mine = own._replace(cells=[(T, cell) for T, cell in own.cells if T in near])
                calls[key.stem] = (optima_task, str(self.store.folder.resolve()), *arguments, tuple(mine))
        for error in TaskPool(self.client, "An optimum was not found").run_all(calls, report).values():
            raise error
        for T in self.marks[len(near) :]:
            self._solve_by_passes(T, list(series.values()))
            report()

    def _solve_by_passes(self, T: int, series: Sequence[Series]) -> None:
        """The missing optima of T rounds, by passes on the cluster; those that differ in λ only are solved together."""
        span = Span(seed=self.options.seed, epoch=FIRST_EPOCH, shuffle=self.options.shuffle, stop=T)
        passes = ClusterPasses(self.client, self.store, self.folder / "passes", span)
        groups: dict[tuple[Any, ...], list[tuple[Location, Series]]] = {}
        for own in series:
            path = own.missing(T)
            if path is not None and own.thresholds is not None:
                find_optimum(passes, self.options.loss, self.positive, own, T, self.store.n_features).write(path)
            elif path is not None:
                groups.setdefault(own.comparator[1:], []).append((path, own))
        for group in groups.values():
            comparators = [own.comparator for _, own in group]
            found = find_optima(passes, self.options.loss, self.positive, comparators, group[0][1].tol)
            for (path, _), solution in zip(group, found, strict=True):
                solution.write(path)
        passes.clear()

    def _series(self, c: Configuration, comparator: Comparator) -> Series:
        cells = [(T, str(self._optimum(c, comparator, T).resolve())) for T in self._reached(c, comparator)]
        thresholds = str(self._curve(c).with_suffix(".npy").resolve()) if comparator.own_history else None
        return Series(comparator, cells, thresholds, self._tol(comparator))

    def rows(self, c: Configuration, comparator: Comparator, bound: Bound | NoBound) -> Iterator[Row]:
        """The rows of a configuration in `REGRET`."""
        curve = read_json(self._curve(c))
        bounds: dict[int, float] = {}
        if comparator.epochs and isinstance(bound, Bound):
            values = {mark["T"]: float(bound.value(mark["T"], curve["quantities"])) for mark in curve["marks"]}
            bounds = {T: self.outputs * value for T, value in values.items()}
        elif not comparator.epochs and self._bound(c, comparator).exists():
            bounds = dict(read_json(self._bound(c, comparator))["bounds"])
        for mark in curve["marks"]:
            more: Row = {}
            if comparator.epochs:
                one = Solution.read(self._optimum(c, comparator, self.marks[-1]))
                more = {name: mark[name] for name in ("epoch", "passes", "epoch_objective")}
                more["suboptimality"] = mark["epoch_objective"] - one.objective
                solution = Solution(one.weights, mark["T"] * one.objective, mark["T"] * one.gap)
            else:
                solution = Solution.read(self._optimum(c, comparator, mark["T"]))
            incurred, optimum = mark["loss"] + mark["penalty"], solution.objective
            value = bounds.get(mark["T"])
            yield more | {
                "T": mark["T"],
                "learner_loss": incurred,
                "exact": mark["exact"],
                "penalty_error": mark["penalty_error"],
                "optimum": optimum,
                "gap": solution.gap,
                "regret": incurred - optimum,
                "bound": value,
                "bound_name": None if value is None else getattr(bound, "name", None),
            }

    def status(self, c: Configuration) -> tuple[str, str]:
        """(status, reason) of a configuration's curve."""
        curve = read_json(self._curve(c))
        return curve["status"], curve["reason"]

    def _reached(self, c: Configuration, comparator: Comparator) -> list[int]:
        """The marks that have a comparator: for epoch methods the last, which has all examples."""
        marks = [mark["T"] for mark in read_json(self._curve(c))["marks"]]
        return self.marks[-1:] if comparator.epochs and marks else marks

    def _tol(self, comparator: Comparator) -> float:
        return self.tol * (EPOCHS_TOL if comparator.epochs else 1.0)

    def _curve(self, c: Configuration) -> Location:
        return self.folder / f"curve-{self.measurement(c).digest}.json"

    def _optimum(self, c: Configuration, comparator: Comparator, T: int) -> Location:
        """The file of the optimum of a comparator."""
        measurement = self.measurement(c)
        own: Any = measurement.digest if comparator.own_history else list(comparator)
        stream = [measurement.manifest, measurement.loss, measurement.seed, measurement.shuffle, measurement.sparseoco]
        return self.folder / f"optimum-{digest_value([stream, own, T, self._tol(comparator)])[:32]}.npz"

    def _bound(self, c: Configuration, comparator: Comparator) -> Location:
        last = self._optimum(c, comparator, self.marks[-1]).stem
        return self.folder / f"bound-{digest_value([self.measurement(c).digest, last])[:32]}.json"
