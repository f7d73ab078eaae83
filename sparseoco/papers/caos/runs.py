"""Runs of what Mohri and Yang (2015) propose: objectives against passes, and regret, of the iterates and in a box."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

from sparseoco import __version__
from sparseoco.kernels.epoch import EpochColumns, draw
from sparseoco.offline.bounds import Bound, regret_bound, state_quantities
from sparseoco.offline.epochs import Blocks, Coordinates, EpochProblem, SampledEpochs, fit_epochs, row_sizes
from sparseoco.offline.optimum import offline_optimum
from sparseoco.offline.passes import Floats, LocalPasses, PassRequest, SpanRows, column_major
from sparseoco.offline.regret.run import Sums, block_quantities
from sparseoco.papers.caos.saga import saga
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, as_rows, column, extend, grouped, mark_chosen, mean, select
from sparseoco.papers.sources import Documents
from sparseoco.storage.locations import read_toml
from sparseoco.training.learner import Learner


def _cell(what: str, run: Any, documents: Documents, **key: Any) -> Cell:
    return Cell({"what": f"caos {what}", "sparseoco": __version__, "documents": documents.digest, **key}, run)


def _timing(name: str, method: str, parts: Sequence[Any], columns: int, passes: float) -> Row:
    """A row of timings: the mean seconds of the cells, and what all of them spent."""
    spent = [part.get("spent", part["seconds"]) for part in parts]
    row = {"set": name, "method": method, "columns": columns, "passes": passes}
    return row | {"seconds": mean(column(parts, "seconds")), "spent": sum(spent)}


def _numbered_rows(number: str, key: Row, parts: Sequence[Any]) -> list[Row]:
    """The rows of cells, with a key and the number of their cell."""
    return [key | {number: k} | row for k, part in enumerate(parts) for row in part["rows"]]


# ----------------------------------------------------------------------------------------------------------------------
# Objectives against passes: CAOS-ERM, SAGA and scikit-learn's SGD; CAO-RCD with equal and other probabilities.
#
# All minimise H(x) = Σ_j f_j(x) + α‖x‖₁, logistic loss, without an intercept. A pass reads every nonzero once: an
# epoch of caos-erm is two, the full one and its rounds; one of cao-rcd is one for its margins, plus its rounds, as many
# passes as the nonzeros that they are expected to read.


ALPHAS: Final = (1.0, 10.0)
RADII: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ETA0: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""First steps of SGD, which decrease as 1/√t."""
VALUES: Final[dict[str, tuple[float | None, ...]]] = {"R": RADII, "eta0": ETA0, "": (None,)}
"""By the tuned parameter: R, the first step, or none."""
EPOCHS: Final = (1, 2, 5, 10, 20)
"""Epochs, of two passes each, after which objectives are recorded."""
SGD_EPOCHS: Final = (1, 2, 20)
"""The same of SGD, of which every mark is a run of its own, from 0."""
BOUND_R: Final = 0.1
"""R of the bounds of Theorem 7, whose ratio does not depend on it."""


class Method(NamedTuple):
    """A learner of this package with its parameters, or a peer."""

    name: str
    family: str = ""
    """For the page: examples or coordinates, of a method that minimises H."""
    algorithm: str = ""
    parameters: Mapping[str, Any] = {}
    tuned: str = ""
    """R, or the name of its step parameter."""


_FILE: Final = read_toml(Path(__file__).with_name("methods.toml"))
METHODS: Final = tuple(Method(**row) for row in _FILE["methods"])
SAMPLED, CORRECTED, PRINTED, EQUAL, LAST, TABLE, BATCHES, SGD, SAGA, *COORDINATES = METHODS


def optimum_cell(documents: Documents) -> Cell:
    """A row per α: H*, gap, nonzeros and largest weight."""
    exact: dict[str, Any] = {"alpha": list(ALPHAS), "tol": 1e-9}

    def run() -> Any:
        optimum = offline_optimum(documents.rows, documents.labels, loss="logistic", max_passes=10_000, **exact)
        sizes = np.abs(optimum.weights)
        ends = {"nonzeros": np.count_nonzero(sizes, axis=1), "largest": sizes.max(axis=1)}
        return as_rows({"alpha": ALPHAS, "objective": optimum.objective, "gap": optimum.gap, **ends})

    return _cell("optimum", run, documents, **exact)


def objective_cell(documents: Documents, method: Method, seed: int) -> Cell:
    """Rows of every α, value and mark, and `seconds` of all `columns` together, or of a peer's last run; `spent` are
    those of the whole cell."""
    run, marks = {SGD.name: (_run_sgd, SGD_EPOCHS), SAGA.name: (_run_saga, EPOCHS)}.get(
        method.name, (_run_epochs, EPOCHS)
    )
    key = {"method": method.name, "alpha": ALPHAS, "marks": marks, "values": VALUES[method.tuned], "seed": seed}
    return _cell("objectives", partial(run, documents, method, seed), documents, **key)


def _run_epochs(documents: Documents, method: Method, seed: int) -> Any:
    rows, labels = documents.rows, documents.labels
    parameters = dict(method.parameters)
    if parameters.get("rounds") == "features":
        parameters["rounds"] = rows.shape[1]
    grid = [{"alpha": alpha, "R": R, **parameters} for alpha in ALPHAS for R in RADII]
    fit_epochs(rows[:2], labels[:2], algorithm=method.algorithm, grid=grid, epochs=1)  # compiles
    before = time.thread_time()
    fit = fit_epochs(rows, labels, algorithm=method.algorithm, grid=grid, epochs=EPOCHS[-1], seed=seed)
    seconds = time.thread_time() - before
    passes, rounds = 2.0, None
    if method.family == "coordinates":
        epoch = _coordinates(documents, grid[:1])
        passes, rounds = epoch.examples / rows.shape[0], epoch.draws.rounds
    marks = [
        {"alpha": own["alpha"], "value": own["R"], "passes": passes * epochs}
        | {"rounds": None if rounds is None else rounds * epochs, "objective": float(fit.objective[epochs - 1, k])}
        for k, own in enumerate(grid)
        for epochs in EPOCHS
    ]
    return {"rows": marks, "columns": len(grid), "seconds": seconds}


def _coordinates(documents: Documents, grid: list[dict[str, Any]]) -> Coordinates:
    problem = EpochProblem.of("cao-rcd", "logistic", "l1", grid, 2, documents.rows.shape[1])
    return Coordinates(problem, column_major(documents.rows, documents.labels), seed=0)


def _run_sgd(documents: Documents, method: Method, seed: int) -> Any:
    marks, spent = [], 0.0
    for alpha, value, epochs in product(ALPHAS, VALUES[method.tuned], SGD_EPOCHS):
        step = {"learning_rate": "invscaling", "eta0": value, "power_t": 0.5, "alpha": alpha / documents.rows.shape[0]}
        peer = SGDClassifier(loss="log_loss", penalty="l1", tol=None, fit_intercept=False, **step)
        peer.set_params(max_iter=2 * epochs, random_state=seed)
        before = time.thread_time()
        x = peer.fit(documents.rows, documents.labels).coef_[0]
        seconds = time.thread_time() - before
        spent += seconds
        marks.append(_peer_row(documents, alpha, value, 2 * epochs, x))
    return {"rows": marks, "columns": 1, "seconds": seconds, "spent": spent}


def _run_saga(documents: Documents, method: Method, seed: int) -> Any:
    rows, labels, passes, marks = documents.rows, documents.labels, [2 * epochs for epochs in EPOCHS], []
    saga(rows[:2], labels[:2], ALPHAS[0], (2,), seed)  # compiles
    before = time.thread_time()
    for alpha in ALPHAS:
        weights = zip(passes, saga(rows, labels, alpha, passes, seed), strict=True)
        marks += [_peer_row(documents, alpha, None, mark, x) for mark, x in weights]
    spent = time.thread_time() - before
    return {"rows": marks, "columns": 1, "seconds": spent / len(ALPHAS), "spent": spent}


def _peer_row(documents: Documents, alpha: float, value: float | None, passes: int, x: Floats) -> Row:
    data = LocalPasses.of(documents.rows, documents.labels)
    loss = data.totals(x[:, None], PassRequest("logistic", (1,))).loss_sum[0]
    key = {"alpha": alpha, "value": value, "passes": passes, "rounds": None}
    return key | {"objective": float(loss + alpha * np.abs(x).sum())}


def sampling_row(name: str, documents: Documents) -> Row:
    """Theorem 7's bounds per √T, without predictions."""
    parameters = {"alpha": 1.0, "R": BOUND_R, "predict_gradient": "none", "sample": "lipschitz"}
    method = _coordinates(documents, [parameters])
    quantities = block_quantities(method.draws.sampling.L, method.ranges[:, 0], 1)
    lipschitz, uniform = 4.0 * quantities["RL"] ** 1.5, 4.0 * quantities["blocks"] ** 0.5 * quantities["RL1"]
    return {"set": name, "R": BOUND_R, "lipschitz": lipschitz, "uniform": uniform}


def run_objectives(run: Run, name: str, documents: Documents, repetitions: int) -> Records:
    """The optima and the rows of all methods; `chosen` is the value of the least H at the last mark, in the mean of the
    seeds. `variances` are those of `variance_cell`."""
    cells = {
        method.name: [objective_cell(documents, method, seed) for seed in range(repetitions)] for method in METHODS
    }
    alone = {"optima": [optimum_cell(documents)], "variances": [variance_cell(documents)]}
    results = run.cells_by("objectives", {**alone, **cells})
    records: Records = {own: [{"set": name} | row for row in results[own][0]] for own in alone}
    least = {row["alpha"]: row["objective"] for row in records["optima"]}
    for method in METHODS:
        parts = results[method.name]
        named = {"set": name, "family": method.family, "method": method.name, "tuned": method.tuned}
        rows = _numbered_rows("seed", named, parts)
        for row in rows:
            row["excess"] = row["objective"] / least[row["alpha"]] - 1.0
        mark_chosen(rows, "value", "objective", "passes", "alpha")
        timing = _timing(name, method.name, parts, parts[0]["columns"], rows[-1]["passes"])
        extend(records, {"objectives": rows, "timings": [timing]})
    return records


# ----------------------------------------------------------------------------------------------------------------------
# The variance of a round's estimate, exactly, by all mini-batches that it can draw: at the point x after an epoch, of
# Σ_{j∈Π} ∇f_j(x)/p_Π, and of the same less its prediction by the pass at the point x̄ before that epoch.


VARIANCE_EPOCHS: Final = 5
BATCH_SIZES: Final = (1, 10)
PARTITIONS: Final = ("consecutive", "random")


def variance_cell(documents: Documents) -> Cell:
    """A row per α, size and partition of the mini-batches: E‖ĝ − ∇F‖², without a prediction and with."""
    key = {"alpha": ALPHAS, "R": 1.0, "epochs": VARIANCE_EPOCHS, "sizes": BATCH_SIZES, "partitions": PARTITIONS}
    return _cell("variances", partial(_variances, documents), documents, **key)


def _variances(documents: Documents) -> Any:
    rows, labels, n = documents.rows, documents.labels, documents.rows.shape[0]
    passes = LocalPasses.of(rows, labels)
    grid = [{"alpha": alpha, "R": 1.0} for alpha in ALPHAS]
    problem = EpochProblem.of("caos-erm", "logistic", "l1", grid, 2, rows.shape[1])
    method = SampledEpochs(problem, passes, seed=0)
    for _ in range(VARIANCE_EPOCHS - 1):
        method.play()
    before = method.weights()
    method.play()
    s_bar, s = (passes.slopes(passes.totals(x, problem.pass_request)) for x in (before, method.weights()))
    found = []
    for batch, partition in product(BATCH_SIZES, PARTITIONS):
        own = {"batch": batch, "partition": partition, "sample": "lipschitz"}
        blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, n), own, seed=0)
        importance = blocks.weights.sum() / np.where(blocks.weights > 0.0, blocks.weights, np.inf)
        drawn, edges = blocks.positions(np.arange(blocks.weights.size))
        members = csr_matrix((np.ones(n), drawn, edges), shape=(blocks.weights.size, n))
        for k, alpha in enumerate(ALPHAS):
            estimates = []
            for slopes in (s[:, k], s[:, k] - s_bar[:, k]):
                gradients = members @ rows.multiply(slopes[:, None]).tocsr()
                squares = np.asarray(gradients.multiply(gradients).sum(axis=1)).ravel()
                whole = np.asarray(gradients.sum(axis=0)).ravel()
                estimates.append(float(importance @ squares - whole @ whole))
            row = {"alpha": alpha, "batch": batch, "partition": partition}
            found.append(row | {"plain": estimates[0], "predicted": estimates[1]})
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Regret of the iterates that CAOS-ERM plays, Σ_{t≤T} H(x_t) − T·H*, which Corollary 6 bounds in the mean.
#
# The iterate of a round includes its prediction: with predict_gradient = next, that of the example drawn for it. H
# takes a pass, so an epoch's rounds are cut into `RUNS` runs of about equal length and H is evaluated in one round of
# each, drawn uniformly: the sum of the values times the lengths of their runs is an unbiased estimate. With as many
# runs as rounds it is the sum itself. H* is the least H of all points: regret against the best point of the box is at
# most this.


PRINTED_EQUAL: Final = PRINTED._replace(
    name=f"{PRINTED.name}, equal probabilities", parameters={**PRINTED.parameters, **EQUAL.parameters}
)
PLAYED: Final = (SAMPLED, EQUAL, PRINTED, PRINTED_EQUAL, CORRECTED)
PLAYED_RADII: Final = (0.1, 0.3, 1.0)
EPOCH_MARKS: Final = (1, 2, 5, 10)
"""Epochs after which the regret is recorded."""
RUNS: Final = 10
"""Rounds per epoch in which H is evaluated."""


def played_cell(documents: Documents, method: Method, seed: int, runs: int = RUNS) -> Cell:
    """Rows of every mark, α and R: `loss`, the sum of H(x_t) over the rounds so far, from `runs` of them per epoch, and
    the bound of Corollary 6; and `seconds`."""
    key = {"method": method.name, "alpha": ALPHAS, "R": PLAYED_RADII, "marks": EPOCH_MARKS, "runs": runs, "seed": seed}
    return _cell("played", partial(_play, documents, method, seed, runs), documents, **key)


class _Play(NamedTuple):
    """What is played: the problem, the state of its columns, passes over the documents, and their mini-batches."""

    problem: EpochProblem
    columns: EpochColumns
    passes: LocalPasses
    blocks: Blocks


def _play(documents: Documents, method: Method, seed: int, runs: int) -> Any:
    before = time.thread_time()
    grid = [{"alpha": alpha, "R": R, **method.parameters} for alpha in ALPHAS for R in PLAYED_RADII]
    problem = EpochProblem.of(method.algorithm, "logistic", "l1", grid, 2, documents.rows.shape[1])
    passes = LocalPasses.of(documents.rows, documents.labels)
    size = documents.rows.shape[0]
    blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, size), problem.configurations[0], seed)
    play = _Play(problem, problem.sampled(), passes, blocks)
    cuts = np.arange(runs + 1) * size // runs
    choose = np.random.Generator(np.random.PCG64([seed, size]))
    total, sums = np.zeros(len(grid)), []
    for epoch in range(1, EPOCH_MARKS[-1] + 1):
        drawn = draw(np.cumsum(blocks.weights), seed, epoch, 0, 0, size)
        rounds = choose.integers(cuts[:-1], cuts[1:])
        objectives = _objectives_in(play, rounds, drawn)
        total += (np.diff(cuts)[:, None] * objectives).sum(axis=0)
        if epoch in EPOCH_MARKS:
            sums.append(total.tolist())
    seconds = time.thread_time() - before
    everything = passes.source.rows(0, size)
    drawn_rows = np.count_nonzero(np.diff(documents.rows.indptr))
    marks = []
    for k, own in enumerate(grid):
        bounds = Sums.of(everything, problem.loss, problem.positive, own["R"])
        quantities = {"n": float(problem.coordinates), "L": bounds.L, "L2": bounds.L2, "blocks": float(drawn_rows)}
        bound = regret_bound("caos-erm", problem.configurations[k])
        for epochs, losses in zip(EPOCH_MARKS, sums, strict=True):
            T = epochs * size
            proved = float(bound.value(T, quantities)) if isinstance(bound, Bound) else None
            marks.append({"alpha": own["alpha"], "R": own["R"], "T": T, "loss": losses[k], "bound": proved})
    return {"rows": marks, "seconds": seconds}


def _objectives_in(play: _Play, rounds: NDArray[np.int64], drawn: NDArray[np.int64]) -> Floats:
    """H of the iterates in these rounds, (rounds, configurations), of an epoch of the examples `drawn`, which is
    played."""
    problem, columns, passes, blocks = play
    anchor = passes.totals(columns.weights(), problem.pass_request)
    slopes = passes.slopes(anchor)
    corrected = problem.configurations[0]["estimate"] == "corrected"
    predicted = problem.configurations[0]["predict_gradient"] == "previous"
    importance = np.cumsum(blocks.weights)[-1] / blocks.weights[drawn]
    columns.start_run(anchor.gradient if corrected else None)
    values = []
    for first, stop in zip([0, *rounds.tolist()], [*rounds.tolist(), drawn.size], strict=True):
        own = drawn[first:stop]
        columns.play(passes.source.gather(own), np.arange(own.size + 1), slopes[own], importance[first:stop])
        columns.flush()
        if stop == drawn.size:
            break
        if corrected:
            x = _iterate(columns, anchor.gradient)
        elif predicted:
            x = columns.weights()
        else:
            rows = passes.source.gather(drawn[stop : stop + 1])
            prediction = np.zeros((problem.n_features, slopes.shape[1]))
            prediction[rows.indices] = importance[stop] * np.outer(rows.values, slopes[drawn[stop]])
            x = _iterate(columns, prediction)
        values.append(passes.totals(x, problem.pass_request).loss_sum + problem.penalties(x))
    return np.array(values)


def _iterate(columns: EpochColumns, prediction: Floats) -> Floats:
    """The iterate of the next round, (n_features, columns), with this prediction: that of Z plus it."""
    state = columns.state
    columns.state = state.copy()
    columns.state[:, 0] += prediction
    x = columns.weights()
    columns.state = state
    return x


def run_played(run: Run, documents: Documents, optima: Sequence[Row], repetitions: int) -> Records:
    """The rows of all methods; `optima` has a row per α. `chosen` is the R of the least Σ H(x_t) at the last mark, in
    the mean of the seeds."""
    cells = {method.name: [played_cell(documents, method, seed) for seed in range(repetitions)] for method in PLAYED}
    least, name = {row["alpha"]: row["objective"] for row in optima}, optima[0]["set"]
    records: Records = {}
    for method, parts in run.cells_by("regret of the iterates", cells).items():
        rows = _numbered_rows("seed", {"set": name, "method": method}, parts)
        for row in rows:
            row["regret"] = row["loss"] - row["T"] * least[row["alpha"]]
        mark_chosen(rows, "R", "loss", "T", "alpha")
        title, passes = f"{method}, regret of the iterates", float((2 + RUNS) * EPOCH_MARKS[-1])
        timing = _timing(name, title, parts, len(ALPHAS) * len(PLAYED_RADII), passes)
        extend(records, {"played": rows, "timings": [timing]})
    return records


# ----------------------------------------------------------------------------------------------------------------------
# Regret in a box: AO-GD and its variants, AdaGrad and online gradient descent on the same documents.
#
# Every method stays in |x_i| ≤ R and is compared with the best point of the box for the documents so far. Documents
# come in random order, each once, or each `RUN` times in a row, so that gradients vary slowly.


ONLINE_RADII: Final = (0.03, 0.1, 0.3)
RUN: Final = 10
ARRANGEMENTS: Final = {"shuffled": 1, f"{RUN} times in a row": RUN}
"""How often each document is repeated, consecutively."""
FACTORS: Final = tuple(4.0**k for k in range(-3, 8))
"""Steps that are tried, as factors of the theorem's."""
MARKS: Final = (250, 1000)
"""Documents after which the regret is recorded, besides the last."""
TOLERANCE: Final = 1e-5


LEARNERS: Final = tuple(Method(**row) for row in _FILE["online"])
AO_GD, MEAN, NO_PREDICTION, ADAGRAD, OGD = LEARNERS
BEST: Final = ", best step"


def theorem_step(learner: Method, R: float, rows: csr_matrix) -> float:
    """AdaGrad's η = R, the largest ‖x‖_∞ (Duchi et al. 2011, Corollary 6); of OGD D/G (Zinkevich 2003), D = 2R√n the
    diameter of the box and G the largest ‖a_t‖₂, which bounds the gradients of the logistic loss."""
    if learner is ADAGRAD:
        return R
    longest = float(np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).max()))
    diameter: float = 2.0 * R * rows.shape[1] ** 0.5
    return diameter / longest


def grid(learner: Method, rows: csr_matrix) -> list[dict[str, Any]]:
    """Configurations: one per R, or one per R and step."""
    if not learner.tuned:
        return [{"R": R, **learner.parameters} for R in ONLINE_RADII]
    return [
        {"R": R, learner.tuned: factor * theorem_step(learner, R, rows)} for R in ONLINE_RADII for factor in FACTORS
    ]


def marks(documents: int) -> list[int]:
    """Documents after which the regret is recorded."""
    return [*(mark for mark in MARKS if mark < documents), documents]


def shuffle(documents: int, order: int) -> NDArray[np.int64]:
    """The documents in the order of a repetition."""
    return np.random.Generator(np.random.PCG64([order, documents])).permutation(documents)


def optima_cell(documents: Documents, order: int) -> Cell:
    """[objective, gap] of every mark and R, each document counted once."""
    size = documents.rows.shape[0]

    def run() -> Any:
        results = []
        for mark in marks(size):
            chosen = shuffle(size, order)[:mark]
            rows = documents.rows[chosen]
            rows = rows[:, np.unique(rows.indices)]
            optima = [
                offline_optimum(rows, documents.labels[chosen], loss="logistic", alpha=0.0, box=R, tol=TOLERANCE)
                for R in ONLINE_RADII
            ]
            results.append([[float(optimum.objective), float(optimum.gap)] for optimum in optima])
        return results

    return _cell("optima", run, documents, order=order, R=ONLINE_RADII, marks=marks(size), tol=TOLERANCE)


def playing_cell(documents: Documents, order: int, arrangement: str) -> Cell:
    """For every learner: rows of its configurations at every mark, and its seconds."""
    rows, size, repeats = documents.rows, documents.rows.shape[0], ARRANGEMENTS[arrangement]

    def play(method: Method) -> dict[str, Any]:
        configurations, step = grid(method, rows), method.tuned
        options = {"penalty": "box" if step else "l1", "grid": configurations, "n_features": rows.shape[1]}
        learner = Learner(method.algorithm, loss="logistic", **options)
        chosen, seconds, done, played = shuffle(size, order), 0.0, 0, []
        for mark in marks(size):
            coming = np.repeat(chosen[done:mark], repeats)
            part, labels, done = rows[coming], documents.labels[coming], mark
            before = time.thread_time()
            learner.learn_rows(part.indptr, part.indices, part.data, labels)
            seconds += time.thread_time() - before
            for k, loss in enumerate(learner.progress.loss_sum.tolist()):
                row = {"R": configurations[k]["R"], "T": mark * repeats, "loss": loss}
                row |= {"factor": FACTORS[k % len(FACTORS)] if step else None, "step": configurations[k].get(step)}
                played.append(row | {"bound": None if step else _bound(learner, k)})
        return {"rows": played, "seconds": seconds}

    key = {"order": order, "marks": marks(size), "arrangement": arrangement}
    key["grid"] = [grid(method, rows) for method in LEARNERS]
    return _cell("regret", lambda: {own.name: play(own) for own in LEARNERS}, documents, **key)


def _bound(learner: Learner, configuration: int) -> float:
    """Of Theorem 1 or Corollary 2, 4R Σ_i √(Σ_t (g_{t,i} − g̃_{t,i})²), for any comparator in the box."""
    bound = regret_bound(learner.algorithm, learner.configurations[configuration], learner.penalty)
    assert isinstance(bound, Bound)
    zeros = np.zeros((learner.n_features, 1))
    quantities = state_quantities(learner, configuration, zeros, zeros)
    return float(np.sum(bound.value(learner.progress.rows, quantities)))


def run_regret(run: Run, name: str, documents: Documents, repetitions: int) -> Records:
    """The rows of a data set in every arrangement; the best steps are those of the mean of the orders."""
    orders, ends = range(repetitions), marks(documents.rows.shape[0])
    cells = {own: [playing_cell(documents, order, own) for order in orders] for own in ARRANGEMENTS}
    cells["optima"] = [optima_cell(documents, order) for order in orders]
    results = run.cells_by("regret", cells)
    records: Records = {"regret": [], "steps": [], "timings": []}
    for (arrangement, repeats), learner in product(ARRANGEMENTS.items(), LEARNERS):
        parts = [play[learner.name] for play in results[arrangement]]
        rows = _numbered_rows("order", {"set": name, "arrangement": arrangement}, parts)
        for row in rows:
            minima = results["optima"][row["order"]][ends.index(row["T"] // repeats)]
            row["optimum"], row["gap"] = (repeats * value for value in minima[ONLINE_RADII.index(row["R"])])
            row["regret"] = row["loss"] - row["optimum"]
        if learner.tuned:
            mark_chosen(rows, "factor", "loss", "T", "R")
            for alike in grouped(select(rows, T=rows[-1]["T"]), "R", "factor"):
                records["steps"].append(alike[0] | {"algorithm": learner.name, "loss": mean(column(alike, "loss"))})
        printed = select(rows, factor=1.0 if learner.tuned else None)
        best = select(rows, chosen=True) if learner.tuned else []
        records["regret"] += [row | {"method": learner.name} for row in printed]
        records["regret"] += [row | {"method": learner.name + BEST} for row in best]
        columns = len(rows) // (repetitions * len(ends))
        records["timings"].append(_timing(name, learner.name, parts, columns, float(repeats)))
    return records
