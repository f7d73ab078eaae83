"""Regret on Dask: learners' curves as tasks, optima by passes, bounds as tasks; each result a file named by what it is.

A curve and a bound are a task a configuration, pure functions of their descriptions. The optimum of the first T rounds
is found mark after mark, each begun where the one before ended. What is there is not done again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future, as_completed, get_worker
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sparseoco import __version__
from sparseoco.bounds import bound_of
from sparseoco.cluster.corpus import open_corpus
from sparseoco.cluster.passes import ClusterPasses
from sparseoco.cluster.waiting import reason_of
from sparseoco.commit import commit_json, committed, digest_value, read_json
from sparseoco.config import Configuration, SearchOptions
from sparseoco.drivers.order import epoch_rows
from sparseoco.errors import InputError, SparseocoError
from sparseoco.learner import Learner
from sparseoco.passes import Passes, Span
from sparseoco.regret.comparator import Comparator, comparator_of
from sparseoco.regret.curve import Stream, measure
from sparseoco.regret.optima import Solution, find_optima, find_weighed_optimum, passes_of_seen
from sparseoco.regret.quantities import measurable, measure_bounds
from sparseoco.regret.rounds import sample_size, sampled_rounds, spread_marks
from sparseoco.regret.tables import Row, slope_row
from sparseoco.shards import Store

Progress = Callable[[str, int, int], None]
Floats = NDArray[np.float64]

TOL = 1e-3  # of the objective at w = 0; a learner's regret is some tenths of that
NEAR = 1 << 23  # nonzeros × outputs up to which a pass takes less time than sending it round does, and rows little room
EPOCH = 1
DTYPE = "float64"  # regret is a small difference of large sums


class Measurement(BaseModel):
    """All that decides a learner's curve: a configuration, its stream, and the rounds at which it is looked at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: str
    algorithm: str
    parameters: dict[str, Any]
    loss: str
    penalty: str
    seed: int
    shuffle: bool
    marks: tuple[int, ...]
    samples: int
    sparseoco: str = __version__

    @cached_property
    def digest(self) -> str:
        """A name for it."""
        return digest_value(self.model_dump(mode="json"))[:32]


class Chain(NamedTuple):
    """The optima of one comparator, mark after mark."""

    comparator: Comparator
    cells: list[tuple[int, str]]
    """(T, path of the `Solution`) of each mark."""
    thresholds: str | None
    """Path of Σ_{t≤T} h_t (marks, features, outputs), where they weigh the penalty."""

    def missing(self, T: int) -> Path | None:
        """Where the optimum of T rounds goes, if it is one of its marks and not there."""
        path = next((Path(cell) for mark, cell in self.cells if mark == T), None)
        return None if path is None or path.exists() else path

    def before(self, T: int, shape: tuple[int, int]) -> Floats:
        """Where the search for the optimum of T rounds begins: at that of the mark before."""
        earlier = [cell for mark, cell in self.cells if mark < T]
        return Solution.read(Path(earlier[-1])).weights if earlier else np.zeros(shape)

    def h(self, T: int) -> Floats:
        """Σ_{t≤T} h_t."""
        place = [mark for mark, _ in self.cells].index(T)
        return np.asarray(np.load(self.thresholds, mmap_mode="r")[place], np.float64)  # type: ignore[arg-type]


def run_regret(
    client: Client,
    configurations: Sequence[Configuration],
    options: SearchOptions,
    store: Store,
    folder: Path,
    marks: int,
    tol: float,
    progress: Progress,
) -> tuple[list[Row], list[Row]]:
    """The rows of `regret.tables.REGRET` and `SLOPES` of these configurations; cells are kept in `folder`.

    A configuration that diverges has the marks before it did; one that cannot be measured has none, and its reason.

    Raises `InputError` where no configuration has anything to be compared with, `SparseocoError` for what would stop
    every task or pass.
    """
    regret = _Regret(client, options, store, folder, marks, tol, progress)
    comparators, reasons = {}, {}
    for c in configurations:
        try:
            comparators[c.number] = comparator_of(c.algorithm, c.parameters, options.loss, options.penalty)
        except InputError as error:
            reasons[c.number] = str(error)
    if not comparators:
        raise InputError(next(iter(reasons.values())))
    compared = [c for c in configurations if c.number in comparators]
    reasons |= regret.curves(compared)
    compared = [c for c in compared if c.number not in reasons]
    regret.optima([(c, comparators[c.number]) for c in compared])
    unbounded = regret.bounds(compared, comparators)
    rows, ends = [], []
    for c in configurations:
        key: Row = {"configuration": c.number, "algorithm": c.algorithm, "parameters": c.parameters_json}
        if c.number in comparators:
            key["objective"] = comparators[c.number].formula
        bound = measurable(bound_of(c.algorithm, c.parameters, options.penalty), options.loss)
        own = [] if c.number in reasons else list(regret.rows(c, comparators[c.number], getattr(bound, "name", None)))
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
        folder: Path,
        marks: int,
        tol: float,
        progress: Progress,
    ) -> None:
        self.client, self.options, self.store, self.folder = client, options, store, folder
        self.tol, self.progress = tol, progress
        self.marks = spread_marks(store.n_rows, marks)
        self.samples = sample_size(store.n_rows, store.manifest.nonzeros, store.n_features)
        self.outputs = len(store.classes) if len(store.classes) > 2 else 1
        self.positive = list(range(self.outputs)) if self.outputs > 1 else [1]

    def measurement(self, c: Configuration) -> Measurement:
        """The description of a configuration's curve."""
        return Measurement(
            manifest=self.store.manifest.digest,
            algorithm=c.algorithm,
            parameters=c.parameters,
            loss=self.options.loss,
            penalty=self.options.penalty,
            seed=self.options.seed,
            shuffle=self.options.shuffle,
            marks=tuple(self.marks),
            samples=self.samples,
        )

    def curves(self, configurations: Sequence[Configuration]) -> dict[int, str]:
        """Measure the learners' curves; gives the reasons of those that could not be."""
        tasks = {c.number: (_measure_on_worker, self.measurement(c), self._curve(c), ()) for c in configurations}
        return self._run("curves", tasks)

    def bounds(self, configurations: Sequence[Configuration], comparators: Mapping[int, Comparator]) -> dict[int, str]:
        """Measure what the bounds take; gives the reasons of those that could not be."""
        tasks = {}
        for c in configurations:
            optima = [(T, str(self._optimum(c, comparators[c.number], T))) for T in self._reached(c)]
            tasks[c.number] = (_bound_on_worker, self.measurement(c), self._bound(c, comparators[c.number]), (optima,))
        return self._run("bounds", tasks)

    def _run(self, step: str, tasks: Mapping[int, tuple[Any, Measurement, Path, tuple[Any, ...]]]) -> dict[int, str]:
        """Run tasks whose cells are not there, and tell how many are done."""
        futures: dict[Future, list[int]] = {}
        reasons: dict[int, str] = {}
        for number, (function, measurement, cell, more) in tasks.items():
            if not cell.exists():
                arguments = (measurement.model_dump(mode="json"), str(self.store.folder.resolve()), str(cell.resolve()))
                future = self.client.submit(function, *arguments, *more, key=f"regret-{cell.stem}")
                futures.setdefault(future, []).append(number)
        done = len(tasks) - sum(len(numbers) for numbers in futures.values())
        self.progress(step, done, len(tasks))
        for future in as_completed(futures, loop=self.client.loop):
            if future.status == "error":
                reasons |= dict.fromkeys(futures[future], reason_of(future.exception()))
            done += len(futures[future])
            self.progress(step, done, len(tasks))
        return reasons

    def optima(self, compared: Sequence[tuple[Configuration, Comparator]]) -> None:
        """Find the optimum of every comparator at every mark.

        Those of few rows are a task a comparator, side by side on the workers; the others are found by passes of all
        comparators over the rows of a mark. Which marks are which is decided by the store alone.
        """
        chains: dict[Path, Chain] = {}
        for one in compared:
            key, chain = self._optimum(*one, self.marks[-1]), self._chain(*one)
            if key not in chains or len(chain.cells) > len(chains[key].cells):  # who diverges has fewer marks
                chains[key] = chain
        total = sum(len(chain.cells) for chain in chains.values())
        near = [T for T in self.marks if T * self.store.manifest.nonzeros * self.outputs <= NEAR * self.store.n_rows]
        far = self.marks[len(near) :]

        def tell() -> None:
            left = sum(chain.missing(T) is not None for chain in chains.values() for T, _ in chain.cells)
            self.progress("optima", total - left, total)

        tell()
        futures = []
        for key, chain in chains.items():
            own = chain._replace(cells=[(T, cell) for T, cell in chain.cells if T in near])
            if any(chain.missing(T) for T in near):
                arguments = (self.options.loss, self.positive, self.options.seed, self.options.shuffle, self.tol)
                store = str(self.store.folder.resolve())
                future = self.client.submit(_optima_on_worker, store, *arguments, tuple(own), key=f"regret-{key.stem}")
                futures.append(future)
        for future in as_completed(futures, loop=self.client.loop):
            if future.status == "error":
                raise SparseocoError(f"An optimum was not found: {reason_of(future.exception())}.")
            tell()
        for T in far:
            self._pass_over(T, list(chains.values()))
            tell()

    def _pass_over(self, T: int, chains: Sequence[Chain]) -> None:
        """The optima of T rounds that are not there, by passes on the cluster; those alike but for λ side by side."""
        span = Span(seed=self.options.seed, epoch=EPOCH, shuffle=self.options.shuffle, stop=T)
        passes = ClusterPasses(self.client, self.store, self.folder / "passes", span)
        shape = (self.store.n_features, self.outputs)
        groups: dict[tuple[Any, ...], list[tuple[Path, Chain]]] = {}
        for chain in chains:
            path = chain.missing(T)
            if path is not None and chain.thresholds is not None:
                _find(passes, self.options.loss, self.positive, chain, T, shape[0], self.tol).write(path)
            elif path is not None:
                groups.setdefault(chain.comparator[1:], []).append((path, chain))
        for group in groups.values():
            comparators = [chain.comparator for _, chain in group]
            starts = [chain.before(T, shape) for _, chain in group]
            found = find_optima(passes, self.options.loss, self.positive, comparators, starts, self.tol)
            for (path, _), solution in zip(group, found, strict=True):
                solution.write(path)
        passes.clear()

    def _chain(self, c: Configuration, comparator: Comparator) -> Chain:
        cells = [(T, str(self._optimum(c, comparator, T).resolve())) for T in self._reached(c)]
        thresholds = str(self._curve(c).with_suffix(".npy").resolve()) if comparator.own_history else None
        return Chain(comparator, cells, thresholds)

    def rows(self, c: Configuration, comparator: Comparator, bound_name: str | None) -> Iterator[Row]:
        """The rows of a configuration in `REGRET`."""
        cell = self._bound(c, comparator)
        bounds = dict(read_json(cell)["bounds"]) if cell.exists() else {}
        for mark in read_json(self._curve(c))["marks"]:
            solution = Solution.read(self._optimum(c, comparator, mark["T"]))
            suffered, optimum = mark["loss"] + mark["penalty"], solution.objective
            bound = bounds.get(mark["T"])
            yield {
                "T": mark["T"],
                "learner_loss": suffered,
                "exact": mark["exact"],
                "penalty_error": mark["penalty_error"],
                "optimum": optimum,
                "gap": solution.gap,
                "regret": suffered - optimum,
                "bound": bound,
                "bound_name": None if bound is None else bound_name,
            }

    def status(self, c: Configuration) -> tuple[str, str]:
        """Whether a curve came through, and if not, why."""
        diverged = read_json(self._curve(c))["diverged"]
        return ("diverged", f"diverged at row {diverged:,}") if diverged else ("ok", "")

    def _reached(self, c: Configuration) -> list[int]:
        return [mark["T"] for mark in read_json(self._curve(c))["marks"]]

    def _curve(self, c: Configuration) -> Path:
        return self.folder / f"curve-{self.measurement(c).digest}.json"

    def _optimum(self, c: Configuration, comparator: Comparator, T: int) -> Path:
        """Where the optimum of a comparator goes. Those before it are where it was begun."""
        measurement = self.measurement(c)
        own: Any = measurement.digest if comparator.own_history else list(comparator)
        stream = [measurement.manifest, measurement.loss, measurement.seed, measurement.shuffle, measurement.sparseoco]
        marks = self.marks[: self.marks.index(T) + 1]
        return self.folder / f"optimum-{digest_value([stream, own, marks, self.tol])[:32]}.npz"

    def _bound(self, c: Configuration, comparator: Comparator) -> Path:
        last = self._optimum(c, comparator, self.marks[-1]).stem
        return self.folder / f"bound-{digest_value([self.measurement(c).digest, last])[:32]}.json"


def _measure_on_worker(description: dict[str, Any], store: str, cell: str) -> None:
    measurement, path = Measurement.model_validate(description), Path(cell)
    if path.exists():
        return
    learner, stream = _begin(measurement, Store.open(store), objective=True)
    marks, thresholds = [], []
    for mark in measure(learner, stream, measurement.marks, sampled_rounds(measurement.marks, measurement.samples)):
        marks.append({name: value for name, value in mark._asdict().items() if name != "thresholds"})
        if mark.thresholds is not None:
            thresholds.append(mark.thresholds)
    if thresholds:
        with committed(path.with_suffix(".npy")) as temporary, temporary.open("wb") as file:
            np.save(file, np.stack(thresholds))
    commit_json(path, {"measurement": description, "marks": marks, "diverged": int(learner.diverged[0])})


def _optima_on_worker(
    store: str, loss: str, positive: list[int], seed: int, shuffle: bool, tol: float, description: tuple[Any, ...]
) -> None:
    comparator, cells, thresholds = description
    chain = Chain(Comparator(*comparator), cells, thresholds)
    opened = Store.open(store)
    corpus = open_corpus(opened, Path(get_worker().local_directory))
    for T, _ in chain.cells:
        path = chain.missing(T)
        if path is None:
            continue
        rows = epoch_rows(seed, EPOCH, shuffle, opened.n_rows, 0, T, -1, 1)
        passes, seen = passes_of_seen(corpus.gather(rows), opened.n_features)
        found = _find(passes, loss, positive, chain, T, opened.n_features, tol, seen)
        weights = np.zeros((opened.n_features, len(positive)))
        weights[seen] = found.weights
        found._replace(weights=weights).write(path)


def _find(
    passes: Passes,
    loss: str,
    positive: list[int],
    chain: Chain,
    T: int,
    n_features: int,
    tol: float,
    features: Any = slice(None),
) -> Solution:
    """The optimum of one comparator after T rounds, by passes over all features or those named."""
    start = chain.before(T, (n_features, len(positive)))[features]
    if chain.thresholds is not None:
        return find_weighed_optimum(passes, loss, positive, chain.comparator, start, tol, chain.h(T)[features])
    return find_optima(passes, loss, positive, [chain.comparator], [start], tol)[0]


def _bound_on_worker(description: dict[str, Any], store: str, cell: str, optima: list[tuple[int, str]]) -> None:
    measurement, path = Measurement.model_validate(description), Path(cell)
    if path.exists():
        return
    learner, stream = _begin(measurement, Store.open(store), objective=False)
    comparators = {T: Solution.read(Path(name)).weights for T, name in optima}
    bounds = measure_bounds(learner, stream, sampled_rounds(measurement.marks, measurement.samples), comparators)
    commit_json(path, {"measurement": description, "bounds": list(bounds)})


def _begin(measurement: Measurement, store: Store, *, objective: bool) -> tuple[Learner, Stream]:
    """A new learner of a measurement's configuration, and the stream it learns."""
    corpus = open_corpus(store, Path(get_worker().local_directory))
    learner = Learner(
        measurement.algorithm,
        loss=measurement.loss,
        penalty=measurement.penalty,
        grid=[measurement.parameters],
        n_features=store.n_features,
        n_classes=max(2, len(store.classes)),
        dtype=DTYPE,
        objective=objective,
    )

    def stream(start: int, stop: int) -> Any:
        return corpus.gather(
            epoch_rows(measurement.seed, EPOCH, measurement.shuffle, corpus.n_rows, start, stop, -1, 1)
        )

    return learner, stream
