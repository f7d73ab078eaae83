"""Regret on Dask: curves and bounds as tasks, optima as tasks or by passes; each result is a file.

A curve and a bound are one task per configuration. Each optimum of the first T
rounds is solved from 0: starting from the previous mark's weights, which overfit its rounds, took a hundred times as
long. Epoch methods run over all examples, one after another, and have a single optimum.
Existing files are not computed again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads scipy.sparse when it is used
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.logs import progress_of, report_progress
from sparseoco.execution.clusters import Call, TaskPool, failure_reason, remove_damaged
from sparseoco.kernels.columns import RowBatch, loss_kernels
from sparseoco.learners import find_algorithm, takes_intercept
from sparseoco.learners.cao_rcd import slope_bounds
from sparseoco.learners.losses import Loss
from sparseoco.offline.bounds import Bound, NoBound, regret_bound
from sparseoco.offline.cluster import passes as cluster_passes
from sparseoco.offline.cluster.epochs import EpochTask, epoch_metrics, open_coordinates, run_epoch_block
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS, PassProblem, RowsSource
from sparseoco.offline.epochs import Blocks, row_sizes
from sparseoco.offline.optimum import MAX_CURVATURE, OptimumProblem, minimise, minimise_groups
from sparseoco.offline.passes import Floats, LocalPasses, Span, SpanRows, local_passes, row_weights
from sparseoco.offline.regret import bounds as measures
from sparseoco.offline.regret.bounds import Comparator, Measurement, Solution, slope_row
from sparseoco.storage.commit import digest_value, read_json, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_checkpoint, write_checkpoint
from sparseoco.store.corpus import worker_corpus
from sparseoco.store.shards import Session, StoreReference, open_store, store_reference
from sparseoco.store.transpose import transpose
from sparseoco.store.weighting import Weighting
from sparseoco.training.block import Block, Setting, search_setting
from sparseoco.training.options import MAX_PASSES, Configuration, SearchOptions
from sparseoco.training.stream import NO_FOLD, class_weighted, curve_marks

# ----------------------------------------------------------------------------------------------------------------------
# The loss of an epoch method, Σ_{t≤T} H(x_t) with H = Σ_j f_j + αψ, estimated from the ends of its epochs.
#
# Evaluating H takes a pass over all examples: it is computed at the iterate x̄_s at the start of epoch s + 1 and
# interpolated linearly (`bounds.LinearSum`). Mohri and Yang (2015), Corollaries 6 and 7 and Theorem 7, bound the
# expectation of the sum over the draws, minus T·H(x*), in the worst case. What the data say of it is the run's own
# 4 Σ_i R_iΔ_{T,i}, one sample: its mean over the draws bounds the mean regret, and is at most the data-dependent bounds
# of the theorem and the corollaries.


def epoch_marks(
    rounds: int,
    at_zero: float,
    objectives: Sequence[float],
    passes: Sequence[float],
    data_bounds: Sequence[float | None],
) -> Iterator[Row]:
    """The marks of epochs with `rounds` rounds each, from H(0), and H, the passes read and 4 Σ_i R_iΔ_i at the end of
    each epoch.

    ``penalty_error`` is the difference from the sum over every second epoch; H includes the penalty.
    """
    values = [at_zero, *objectives]
    # The weights at the end of an epoch are those of the next round; of epochs with many rounds, about its last.
    ends = [1, *(max(rounds * epoch, epoch + 1) for epoch in range(1, len(values)))]
    for epoch in range(1, len(values)):
        every, second = measures.LinearSum(), measures.LinearSum()
        for k in range(epoch + 1):
            every.add(ends[k], values[k])
            if k % 2 == 0 or k == epoch:
                second.add(ends[k], values[k])
        loss = float(every.total)
        mark: Row = {"epoch": epoch, "T": ends[epoch], "passes": passes[epoch - 1], "epoch_objective": values[epoch]}
        mark |= {"loss": loss, "penalty_error": abs(loss - float(second.total)), "penalty": 0.0, "exact": False}
        yield mark | {"data_bound": data_bounds[epoch - 1]}


class Sums(NamedTuple):
    """Sums over examples, which can be added over parts of the data."""

    at_zero: float
    """Σ_j f_j(0), all outputs together."""
    L: float
    """Σ_j L_j, L_j ≥ max_i |∂f_j/∂x_i| in the box."""
    L2: float
    """Σ_j L_j²."""
    G_1: float
    """Σ_j ω_j·ℓ_j·‖a_j‖₁ ≥ Σ_i |Σ_j ∂f_j/∂x_i|, ℓ_j the loss's slope bound in the box."""
    squares: float
    """Σ_j ω_j·‖a_j‖₁²."""

    @classmethod
    def of(cls, rows: RowBatch, loss: Loss, positive: Sequence[int], R: float) -> "Sums":
        """The sums over some rows, for a box |x_i| ≤ R."""
        indptr, _, counts, labels, _ = rows
        weights = row_weights(rows)
        z = np.zeros((labels.size, len(positive)))
        loss_sum: Floats = np.zeros(len(positive))
        loss_kernels(loss).respond(
            z, np.asarray(labels, np.float64), weights, np.array(positive, np.int64), np.empty_like(z), loss_sum
        )
        owner = np.repeat(np.arange(labels.size), np.diff(indptr))
        sizes = np.abs(np.asarray(counts, np.float64))
        norms, largest = np.bincount(owner, sizes, labels.size), np.zeros(labels.size)
        np.maximum.at(largest, owner, sizes)
        targets = np.abs(labels) if -1 in positive else np.ones(labels.size)
        bounds = weights * slope_bounds(loss, norms, targets, R)
        L = bounds * largest
        more = float(bounds @ norms), float(weights @ norms**2)
        return cls(float(loss_sum.sum()), float(bounds @ largest), float(L @ L), *more)

    def __add__(self, other: object) -> "Sums":
        assert isinstance(other, Sums)
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


def block_quantities(L: Floats, R: Floats, batch: int) -> dict[str, float]:
    """`bounds.QUANTITIES` of runs of `batch` coordinates, from the bounds L of their gradients and their ranges R
    (features,)."""
    starts = np.arange(0, L.size, batch)
    sides = np.add.reduceat(R, starts) * np.sqrt(np.add.reduceat(L**2, starts))
    return {
        "RL": float((sides ** (2 / 3)).sum()),
        "RL1": float(sides.sum()),
        "blocks": float(np.count_nonzero(sides)),
    }


def measure_epochs(session: Session, block: Block, cells: Location, work: Location) -> dict[str, Any]:
    """Run a block of one configuration; returns its marks, status, the inputs of its bound and R_i/R (features,
    outputs), or None for one R. No rows are held out.

    The cells of its epochs go to `cells`, its state to `work`. Raises `InputError` and `SparseocoError`.
    """
    client, store = session
    run_epoch_block(session, block, cells, work, lambda rows: None)
    ends = epoch_metrics(cells, block, store)
    fine = [end for end in ends if end["status"] == "ok"]
    columns = None
    if block.algorithm == "cao-rcd":
        columns = store_reference(transpose(client, store, work, block.weighting, intercept=block.intercept))
    pool = TaskPool(client, "The quantities of a bound could not be computed")
    facts = pool.call(_facts, EpochTask(block, store_reference(store)), columns)
    objectives, passes = [end["objective"] for end in fine], [end["rows"] / store.n_rows for end in fine]
    data_bounds = [end.get("data_bound") for end in fine]  # cells of earlier versions have none
    if find_algorithm(block.algorithm).driver == "pass":
        data_bounds = [None] * len(fine)  # theirs bound the last mean's H, not the sum over the rounds
    return {
        "marks": list(epoch_marks(facts["rounds"], facts["at_zero"], objectives, passes, data_bounds)),
        "status": ends[-1]["status"],
        "reason": ends[-1]["reason"],
        "quantities": facts["quantities"],
        "scale": facts["scale"],
    }


def _facts(task: EpochTask, columns: StoreReference | None) -> dict[str, Any]:
    """Rounds per epoch, H(0), and the inputs of bounds."""
    problem, corpus, (parameters,) = task.problem, cluster_passes.open_rows(task.rows), task.block.configurations
    examples = SpanRows(corpus)
    sums = Sums(*np.zeros(5).tolist())
    for rows in examples.chunks(0, corpus.n_rows):
        sums += Sums.of(rows, problem.loss, problem.positive, parameters["R"])
    quantities, scale = {"n": float(problem.coordinates), "L": sums.L, "L2": sums.L2}, None
    if problem.algorithm.driver == "pass":
        rounds, smooth = 1, problem.loss.curvature is not None
        curvature = MAX_CURVATURE[problem.loss.name] if smooth else 0.0
        quantities |= {"G_1": sums.G_1, "M": curvature * sums.squares}
    elif columns is None:
        blocks = Blocks.of(row_sizes(examples, 0, corpus.n_rows), parameters, task.block.setting.seed)
        rounds = sum(share.rounds for share in blocks.shares(parameters))
        quantities["blocks"] = float(np.count_nonzero(blocks.weights))
    else:
        method = open_coordinates(task, columns)
        rounds = method.draws.rounds
        if parameters["scale"] != "none":
            scale = np.repeat(method.draws.scale[: problem.n_features, None], problem.outputs, axis=1)
        L, _, order, batch = method.draws.sampling
        quantities |= block_quantities(L[order], method.ranges[order, 0], batch)
    return {"rounds": rounds, "at_zero": sums.at_zero, "quantities": quantities, "scale": scale}


# ----------------------------------------------------------------------------------------------------------------------
# The optima that learners are compared with, over the first T rounds of a stream: of few rows in one task, of many by
# passes of the cluster.


MIN_THRESHOLD = 1e-4


class Stream(NamedTuple):
    """The stream of a learner, and the class of each output."""

    store: StoreReference
    setting: Setting
    positive: tuple[int, ...]


class Target(NamedTuple):
    """An optimum to find: that of a comparator after T rounds, to a gap, and the file of its `Solution`."""

    path: Location
    comparator: Comparator
    T: int
    tol: float
    weighting: Weighting
    curve: tuple[Location, int] | None
    """The file of a curve and the index of T in its thresholds (marks, features, outputs), if they weight the penalty;
    or that of a curve with the factors R_i/R."""

    def factors(self) -> Floats | None:
        """(features, outputs): what weights are multiples of; see `weight_factors`. R_i/R, if weights have ranges."""
        if self.curve is None:
            return None
        path, mark = self.curve
        with read_checkpoint(path) as (_, read):
            if self.comparator.scaled:
                return np.asarray(read("scale"))
            h = np.asarray(read("thresholds")[mark], np.float64)
        return weight_factors(h, self.T)


def weight_factors(h: Floats, T: int) -> Floats:
    """(features, outputs): the factors 1/h̄_i with which the l1 norm weighted by a learner's mean h̄ has no weights.

    `h` is summed over T rounds. Σ_i h̄_i|w_i| = ‖v‖₁ for v = h̄∘w, and ⟨w, x⟩ = ⟨v, x/h̄⟩. Each h_i is raised to at least
    `MIN_THRESHOLD` times the largest of its output: if a learner was certain of every example of a feature, its h is
    almost 0 (1e-93 was observed), its weight is almost free, and certifying the optimum would need equally small
    slopes. This increases the comparator's objective and decreases regret: by 0.01 % after 479 rounds of film reviews
    and 0.9 % after 25,000, compared with a threshold of 1e-6. Without any threshold, the factors are 0.
    """
    mean = np.maximum(h, MIN_THRESHOLD * h.max(axis=0)) / T
    return np.asarray(np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0))


def comparator_problem(loss: str, positive: tuple[int, ...], comparator: Comparator, T: int) -> OptimumProblem:
    """The problem whose minimum is the comparator's loss and penalty over T rounds."""
    box = math.inf if comparator.R is None else comparator.R
    return OptimumProblem(loss, (comparator.alpha(T),), comparator.l1_ratio, box, positive)


def grouped_optimum(passes: LocalPasses, problem: OptimumProblem, tol: float, groups: NDArray[np.int64]) -> Solution:
    """The optimum of a comparator, a problem of one α, whose penalty is of groups (features,)."""
    found = minimise_groups(passes, problem, groups, tol=tol)
    weights = found.weights[0].reshape(passes.shape.n_features, len(problem.positive))
    return Solution(weights, float(found.objective[0]), float(found.gap[0]), np.atleast_1d(found.intercept[0]))


def find_optimum(
    passes: LocalPasses, problem: OptimumProblem, tol: float, factors: Floats | None = None, *, ranges: bool = False
) -> Solution:
    """The optimum of a comparator, a problem of one α, over the span of `passes`.

    With `factors` (features, outputs) the penalty is weighted by their inverse (see `weight_factors`); or, as `ranges`,
    they are factors of the box.
    """
    parts = []
    alone = [] if factors is None else [((y,), h) for y, h in zip(problem.positive, factors.T, strict=True)]
    together: list[tuple[tuple[int, ...], Floats | None]] = [(problem.positive, None)]
    for outputs, own in alone or together:
        weighted = None if ranges else own
        scaled = passes if weighted is None else passes.scaled(weighted)
        found = minimise(scaled, problem._replace(positive=outputs), tol=tol, ranges=own if ranges else None)
        weights = found.weights[0].reshape(passes.shape.n_features, len(outputs))
        weights = weights if weighted is None else weights * weighted[:, None]
        parts.append((weights, float(found.objective[0]), float(found.gap[0]), np.atleast_1d(found.intercept[0])))
    weights, objectives, gaps, intercepts = zip(*parts, strict=True)
    return Solution(np.hstack(weights), sum(objectives), sum(gaps), np.concatenate(intercepts))


def optimum_task(stream: Stream, target: Target) -> None:
    """Find an optimum in the features that occur in the first rows; all other weights are 0."""
    if target.path.exists():
        return
    store, T = open_store(stream.store), target.T
    corpus = class_weighted(worker_corpus(store, target.weighting), stream.setting.class_weights)
    rows = corpus.gather(stream.setting.order.rows(measures.FIRST_EPOCH, store.n_rows, 0, T))
    seen = np.flatnonzero(np.bincount(rows.indices, minlength=store.n_features))
    if not seen.size:
        seen = np.zeros(1, np.int64)  # solvers need a feature
    place = np.zeros(store.n_features, np.int32)
    place[seen] = np.arange(seen.size)
    matrix = scipy.sparse.csr_matrix((rows.values, place[rows.indices], rows.indptr), shape=(T, seen.size), copy=False)
    passes = local_passes(matrix, rows.labels, row_weights(rows), fit_intercept=target.comparator.intercept)
    factors = target.factors()
    own = None if factors is None else factors[seen]
    problem = comparator_problem(stream.setting.loss, stream.positive, target.comparator, T)
    if target.comparator.grouped:
        named = stream.setting.feature_groups
        groups = np.unique(seen if named is None else named.read(store)[seen], return_inverse=True)[1]
        found = grouped_optimum(passes, problem, target.tol, groups)
    else:
        found = find_optimum(passes, problem, target.tol, own, ranges=target.comparator.scaled)
    weights = np.zeros((store.n_features, len(stream.positive)))
    weights[seen] = found.weights
    found._replace(weights=weights).write(target.path)


def solve_by_cluster(client: Client, stream: Stream, targets: Sequence[Target], work: Location) -> None:
    """Find optima of the same rounds that differ only in λ, or one whose penalty a learner's thresholds weight.

    `work` is a folder for files.
    """
    first, T, setting = targets[0], targets[0].T, stream.setting
    source = RowsSource(stream.store, first.weighting, setting.class_weights)
    span = Span(seed=setting.seed, epoch=measures.FIRST_EPOCH, range_rows=setting.range_rows, stop=T)
    alphas = tuple(target.comparator.alpha(T) for target in targets)
    files, outputs = list[Location](), len(stream.positive)
    # With factors of its own every output has passes of its own.
    together = [stream.positive] if first.curve is None else [(label,) for label in stream.positive]
    for i, positive in enumerate(together):
        problem = comparator_problem(setting.loss, positive, first.comparator, T)._replace(alphas=alphas)
        own = [work / f"{i}" / f"{column}.npz" for column in range(problem.size)]
        factors = None if first.curve is None else partial(_output_factors, first, i)
        kinds = (None, factors) if first.comparator.scaled else (factors, None)
        task = PassProblem(source, span, problem, first.tol, MAX_PASSES, *kinds)
        cluster_passes.solve_by_passes(client, task, own)
        files += own
    for i, target in enumerate(targets):
        TaskPool(client, cluster_passes.FAILURE).call(_write_solution, files[i * outputs : (i + 1) * outputs], target)
    remove_folder(work)


def _output_factors(target: Target, output: int) -> Floats:
    """(features,): the factors of one output."""
    factors = target.factors()
    assert factors is not None
    return factors[:, output]


def _write_solution(files: Sequence[Location], target: Target) -> None:
    """Write the `Solution` of one comparator from the solved columns of its outputs."""
    columns = [cluster_passes.read_column(file) for file in files]
    factors = None if target.comparator.scaled else target.factors()
    weights = np.stack([column.best for column in columns], axis=1)
    weights = weights if factors is None else weights * factors
    objective, gap = sum(column.objective for column in columns), sum(column.gap for column in columns)
    Solution(weights, objective, gap, np.array([column.best_intercept for column in columns])).write(target.path)


# ----------------------------------------------------------------------------------------------------------------------
# The run.


TOL = 1e-3  # relative to the objective at w = 0; regret is typically some tenths of it
DTYPE = "float64"  # regret is a small difference of large sums
EPOCHS_TOL = 0.01  # factor of the tolerance for epoch methods, which come that close


@dataclass(eq=False)
class _Curve:
    """A configuration's curve: its comparator, and its result files in `folder`."""

    measurement: Measurement
    comparator: Comparator
    bound: Bound | NoBound
    tol: float
    """Accuracy of its optima."""
    last: int
    """The last mark."""
    folder: Location
    failure: str | None = None
    bound_failure: str | None = None

    @property
    def path(self) -> Location:
        """The file of the curve."""
        return self.folder / f"curve-{self.measurement.digest}.npz"

    @cached_property
    def content(self) -> dict[str, Any]:
        """The description in that file: marks, status and reason."""
        with read_checkpoint(self.path) as (content, _):
            return content

    @property
    def status(self) -> tuple[str, str]:
        """(status, reason)."""
        if self.failure is not None:
            return "failed", self.failure
        return self.content["status"], self.content["reason"]

    def compared_marks(self) -> list[int]:
        """The marks with an optimum: for epoch methods only the last one, which has all examples."""
        marks = [mark["T"] for mark in self.content["marks"]]
        return [self.last] if self.comparator.epochs and marks else marks

    def optimum(self, T: int) -> Location:
        """The file of the optimum after T rounds, which curves with the same comparator share."""
        m, weighting = self.measurement.block.setting, self.measurement.block.weighting
        comparator: Any = self.measurement.digest if self.comparator.own else list(self.comparator)
        rows = [m.manifest, weighting.model_dump(mode="json"), m.class_weights]
        groups = None if m.feature_groups is None else m.feature_groups.sha256
        stream = [*rows, m.loss, m.seed, m.range_rows, m.sparseoco, groups]
        return self.folder / f"optimum-{digest_value([stream, comparator, T, self.tol])[:32]}.npz"

    @property
    def bound_path(self) -> Location:
        """The file of its bounds."""
        return self.folder / f"bound-{digest_value([self.measurement.digest, self.optimum(self.last).stem])[:32]}.json"

    def targets(self) -> list[Target]:
        """Its optima."""
        found = []
        for index, T in enumerate(self.compared_marks()):
            curve = (self.path.resolve(), index) if self.comparator.own else None
            path = self.optimum(T).resolve()
            found.append(Target(path, self.comparator, T, self.tol, self.measurement.block.weighting, curve))
        return found


@dataclass(eq=False)
class Regret:
    """The regret of configurations of a search, measured on a cluster.

    Parameters
    ----------
    session : Session
    options : SearchOptions
        Loss, penalty, class weights, seed, shuffling and epochs. With an intercept, optima are found in one task: in a
        store that is too large for it learners are measured without one, unless `intercept` asks for it.
    folder : Location
        Folder of the result files; existing ones are not computed again.
    marks : int
        Rounds at which regret is measured, at most.
    tol : float
        Accuracy of the optima, relative to the objective at w = 0.

    Raises
    ------
    InputError
        An intercept is asked for in a store that is too large.
    """

    session: Session
    options: SearchOptions
    folder: Location
    marks: int
    tol: float

    def __post_init__(self) -> None:
        options, store = self.options, self.session.store
        self.store, self.outputs = store, store.n_outputs
        self.folder = self.folder.absolute()  # workers have other folders
        self.rounds = curve_marks(store.n_rows, self.marks)
        # Of what a search sets, a stream has no selection and no start but 0.
        chosen = options.model_copy(update={"dtype": DTYPE, "halving": None, "warm_start": None})
        self.setting = search_setting(chosen, store, NO_FOLD)
        positive = tuple(range(self.outputs)) if self.outputs > 1 else (1,)
        self.stream = Stream(store_reference(store), self.setting, positive)
        self.fits_task = store.manifest.nonzeros * self.outputs <= NEWTON_NONZEROS
        if options.intercept and not self.fits_task:
            raise unsupported(
                f"With an intercept regret is measured for at most {NEWTON_NONZEROS:,} nonzeros times "
                "classes: keep fewer documents or features at ingest, or search with intercept = false."
            )

    def measure(self, configurations: Sequence[Configuration]) -> tuple[list[Row], list[Row]]:
        """The rows of the tables: see `regret.bounds.REGRET` and `SLOPES`.

        A configuration that diverges has the marks before that; one that cannot be measured has no marks but a reason.

        Raises
        ------
        InputError
            No configuration has a comparator.
        SparseocoError
            An error that would stop every task or pass.
        """
        compared, reasons = {}, {}
        for c in configurations:
            try:
                compared[c.number] = self.compare(c)
            except InputError as error:
                reasons[c.number] = str(error)
        if not compared:
            raise InputError(next(iter(reasons.values())), code="no-comparator")
        self._compute(list(compared.values()))
        rows, ends = [], []
        for c in configurations:
            key: Row = {"configuration": c.number, "algorithm": c.algorithm, "parameters": c.parameters_json}
            if c.number not in compared:
                ends.append(key | slope_row([], NoBound(reasons[c.number]), "failed", reasons[c.number]))
                continue
            curve = compared[c.number]
            key["objective"] = curve.comparator.formula
            own = self.rows(curve)
            rows += [key | row for row in own]
            end = slope_row(own, curve.bound, *curve.status)
            ends.append(key | end | ({"bound_note": curve.bound_failure} if curve.bound_failure else {}))
        return rows, ends

    def compare(self, c: Configuration) -> _Curve:
        """The curve to measure for a configuration. Raises `InputError` if it has no comparator."""
        options, store = self.options, self.store
        if c.parts > 1:
            raise unsupported(
                f"{c.algorithm} with parts = {c.parts} is an average of learners, which has no regret of its own."
            )
        intercept = self.fits_task and takes_intercept(c.algorithm, options.penalty) and options.intercept is not False
        comparator = measures.find_comparator(
            c.algorithm, c.parameters, options.loss, options.penalty, intercept=intercept
        )
        if comparator.grouped and not self.fits_task:
            raise unsupported(
                f"With groups regret is measured for at most {NEWTON_NONZEROS:,} nonzeros times classes: keep fewer "
                "documents or features at ingest."
            )
        own = {"epochs": options.epochs, "range_rows": 0} if comparator.epochs else {"epochs": 1}
        block = Block.of(self.setting.model_copy(update=own | {"intercept": intercept}), [c])
        samples = measures.sample_size(store.n_rows, store.manifest.nonzeros, store.n_features)
        measurement = (
            Measurement(block, (), 0) if comparator.epochs else Measurement(block, tuple(self.rounds), samples)
        )
        bound = measures.measurable(regret_bound(c.algorithm, c.parameters, options.penalty), options.loss)
        tol = self.tol * (EPOCHS_TOL if comparator.epochs else 1.0)
        return _Curve(measurement, comparator, bound, tol, self.rounds[-1], self.folder)

    def _compute(self, curves: Sequence[_Curve]) -> None:
        """Compute all files of these curves, unless they exist and are intact; failed curves get a reason."""
        remove_damaged(TaskPool(self.session.client), self.folder)
        streams = [curve for curve in curves if not curve.comparator.epochs]
        for curve, reason in self._run("curves", {c: (c.path, measures.curve_task, ()) for c in streams}).items():
            curve.failure = reason
        self._run_epochs([curve for curve in curves if curve.comparator.epochs])
        self._find_optima([curve for curve in curves if curve.failure is None])
        tasks: Tasks = {}
        for curve in streams:
            if curve.failure is None:
                optima = {T: curve.optimum(T) for T in curve.compared_marks()}
                tasks[curve] = curve.bound_path, measures.bound_task, (optima,)
        for curve, reason in self._run("bounds", tasks).items():
            curve.bound_failure = reason

    def _run(self, step: str, tasks: "Tasks") -> dict[_Curve, str]:
        """Run the tasks whose files are missing; returns the reasons of failures."""
        store = store_reference(self.store)
        calls: dict[str, Call] = {
            path.stem: (function, curve.measurement, store, path.resolve(), *extra)
            for curve, (path, function, extra) in tasks.items()
            if not path.exists()
        }
        report = progress_of(step, len(tasks), before=len(tasks) - len(calls))
        failures = TaskPool(self.session.client).run_all(calls, report)
        return {curve: failures[path.stem].reason for curve, (path, *_) in tasks.items() if path.stem in failures}

    def _run_epochs(self, curves: Sequence[_Curve]) -> None:
        """Run epoch methods over all examples, one after another."""
        work = self.folder / "epochs"
        for k, curve in enumerate(curves):
            report_progress("epochs", k, len(curves))
            if curve.path.exists():
                continue
            try:
                found = measure_epochs(self.session, curve.measurement.block, self.folder, work)
            except Exception as error:  # of a worker; `failure_reason` re-raises errors that affect every block
                curve.failure = failure_reason(error)
            else:
                scale = found.pop("scale")
                arrays = [] if scale is None else [("scale", scale)]
                write_checkpoint(curve.path, {"measurement": curve.measurement.described, **found}, arrays)
        remove_folder(work)

    def _find_optima(self, curves: Sequence[_Curve]) -> None:
        """Find the optimum of every comparator at every mark.

        Each optimum of few rows is a task; the others are solved by passes for all comparators over the rows of a mark,
        or for one with a learner's own norm. The division depends on the store only.
        """
        store, stream = self.store, self.stream
        targets = {target.path: target for curve in curves for target in curve.targets()}
        missing = [target for target in targets.values() if not target.path.exists()]
        limit = NEWTON_NONZEROS * store.n_rows
        calls: dict[str, Call] = {}
        groups: dict[tuple[Any, ...], list[Target]] = {}
        for own in missing:
            if own.T * store.manifest.nonzeros * self.outputs <= limit:
                calls[own.path.stem] = optimum_task, stream, own
            else:
                groups.setdefault((own.T, own.weighting, own.comparator[1:], own.curve), []).append(own)
        report = progress_of("optima", len(targets), before=len(targets) - len(missing))
        for error in TaskPool(self.session.client, "An optimum was not found").run_all(calls, report).values():
            raise error
        done = len(calls)
        for group in groups.values():
            solve_by_cluster(
                self.session.client, stream, group, self.folder.resolve() / f"solving-{group[0].path.stem}"
            )
            done += len(group)
            report(done)

    def rows(self, curve: _Curve) -> list[Row]:
        """The rows of a curve in `REGRET`."""
        if curve.failure is not None:
            return []
        bounds: dict[int, float] = {}
        if curve.comparator.epochs and isinstance(curve.bound, Bound):
            values = curve.content["quantities"]
            marks = [mark["T"] for mark in curve.content["marks"]]
            if np.abs(Solution.read(curve.optimum(curve.last)).intercepts).max() <= (curve.bound.radius or np.inf):
                bounds = {T: self.outputs * float(curve.bound.value(T, values)) for T in marks}
        elif curve.bound_path.exists():
            bounds = dict(read_json(curve.bound_path)["bounds"])
        rows: list[Row] = []
        for mark in curve.content["marks"]:
            T, extra = mark["T"], {}
            if curve.comparator.epochs:
                one = Solution.read(curve.optimum(curve.last))
                extra = {name: mark[name] for name in ("epoch", "passes", "epoch_objective")}
                extra["suboptimality"] = mark["epoch_objective"] - one.objective
                optimum, gap = T * one.objective, T * one.gap
            else:
                _, optimum, gap, _ = Solution.read(curve.optimum(T))
            incurred = mark["loss"] + mark["penalty"]
            figures = {"learner_loss": incurred, "optimum": optimum, "gap": gap, "regret": incurred - optimum}
            if T in bounds and curve.comparator.epochs:
                figures["data_bound"] = mark["data_bound"]
            elif T in bounds and not (curve.comparator.own_history or curve.comparator.grouped):
                penalty = curve.comparator.penalty(T, Solution.read(curve.optimum(T)).weights)
                figures |= {"loss_regret": mark["loss"] - (optimum - penalty), "loss_bound": bounds[T] + penalty}
            exact = {name: mark[name] for name in ("exact", "penalty_error")}
            bound = {"bound": bounds.get(T), "bound_name": getattr(curve.bound, "name", None) if T in bounds else None}
            rows.append({"T": T} | extra | figures | exact | bound)
        return rows


Tasks = dict[_Curve, tuple[Location, Callable[..., None], tuple[Any, ...]]]
"""Per curve: a file, the task that writes it, and further arguments."""
