"""Regret in a box: AO-GD and its variants, AdaGrad and online gradient descent on the same documents.

Every method stays in |x_i| ≤ R and is compared with the best point of the box for the documents so far. Documents come
in random order, each once, or each `RUN` times in a row, so that gradients vary slowly.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.offline.bounds import Bound, regret_bound, state_quantities
from sparseoco.offline.optimum import offline_optimum
from sparseoco.papers.cells import Cell
from sparseoco.papers.documents import Documents
from sparseoco.papers.tables import Records, Row
from sparseoco.training.learner import Learner

RADII: Final = (0.03, 0.1, 0.3)
RUN: Final = 10
ARRANGEMENTS: Final = {"shuffled": 1, f"{RUN} times in a row": RUN}
"""How often each document is repeated, consecutively."""
FACTORS: Final = tuple(4.0**k for k in range(-3, 8))
"""Steps that are tried, as factors of the theorem's."""
MARKS: Final = (250, 1000)
"""Documents after which the regret is recorded, besides the last."""
TOLERANCE: Final = 1e-5


class BoxLearner(NamedTuple):
    """A learner: its label, its parameters, and the name of its step parameter if it has one."""

    name: str
    algorithm: str
    parameters: dict[str, Any]
    step: str = ""


AO_GD: Final = BoxLearner("AO-GD", "ao-gd", {})
MEAN: Final = BoxLearner("AO-FTRL, prediction the feature's mean", "ao-ftrl", {"predict_gradient": "mean"})
NONE: Final = BoxLearner("AO-FTRL, no prediction", "ao-ftrl", {"predict_gradient": "none"})
ADAGRAD: Final = BoxLearner("AdaGrad", "adagrad", {}, "eta")
OGD: Final = BoxLearner("OGD", "fobos", {}, "eta0")
LEARNERS: Final = (AO_GD, MEAN, NONE, ADAGRAD, OGD)
BEST: Final = ", best step"


def theorem_step(learner: BoxLearner, R: float, rows: csr_matrix) -> float:
    """AdaGrad's η = R, the largest ‖x‖_∞ (Duchi et al. 2011, Corollary 6); of OGD D/G (Zinkevich 2003), D = 2R√n the
    diameter of the box and G the largest ‖a_t‖₂, which bounds the gradients of the logistic loss."""
    if learner is ADAGRAD:
        return R
    longest = float(np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).max()))
    diameter: float = 2.0 * R * rows.shape[1] ** 0.5
    return diameter / longest


def grid(learner: BoxLearner, rows: csr_matrix) -> list[dict[str, Any]]:
    """Configurations: one per R, or one per R and step."""
    if not learner.step:
        return [{"R": R, **learner.parameters} for R in RADII]
    return [{"R": R, learner.step: factor * theorem_step(learner, R, rows)} for R in RADII for factor in FACTORS]


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
                for R in RADII
            ]
            results.append([[float(optimum.objective), float(optimum.gap)] for optimum in optima])
        return results

    return Cell(_key("caos optima", documents, order) | {"R": RADII, "marks": marks(size), "tol": TOLERANCE}, run)


def playing_cell(documents: Documents, order: int, arrangement: str) -> Cell:
    """For every learner: the losses of its configurations and its bounds at every mark, and its seconds."""
    rows, size = documents.rows, documents.rows.shape[0]

    def play(box_learner: BoxLearner) -> dict[str, Any]:
        learner = Learner(
            box_learner.algorithm,
            loss="logistic",
            penalty="box" if box_learner.step else "l1",
            grid=grid(box_learner, rows),
            n_features=rows.shape[1],
        )
        chosen, seconds, done = shuffle(size, order), 0.0, 0
        losses, bounds = [], []
        for mark in marks(size):
            coming = np.repeat(chosen[done:mark], ARRANGEMENTS[arrangement])
            part, labels, done = rows[coming], documents.labels[coming], mark
            before = time.thread_time()
            learner.learn_rows(part.indptr, part.indices, part.data, labels)
            seconds += time.thread_time() - before
            losses.append(learner.progress.loss_sum.tolist())
            bounds.append([] if box_learner.step else [_bound(learner, c) for c in range(len(RADII))])
        return {"losses": losses, "bounds": bounds, "seconds": seconds}

    key = {
        "marks": marks(size),
        "arrangement": arrangement,
        "grid": [grid(box_learner, rows) for box_learner in LEARNERS],
    }
    return Cell(
        _key("caos regret", documents, order) | key,
        lambda: {box_learner.name: play(box_learner) for box_learner in LEARNERS},
    )


def _bound(learner: Learner, configuration: int) -> float:
    """Of Theorem 1 or Corollary 2, 4R Σ_i √(Σ_t (g_{t,i} − g̃_{t,i})²), for any comparator in the box."""
    bound = regret_bound(learner.algorithm, learner.configurations[configuration], learner.penalty)
    assert isinstance(bound, Bound)
    zeros = np.zeros((learner.n_features, 1))
    quantities = state_quantities(learner, configuration, zeros, zeros)
    return float(np.sum(bound.value(learner.progress.rows, quantities)))


def _key(what: str, documents: Documents, order: int) -> dict[str, Any]:
    return {"what": what, "sparseoco": __version__, "documents": documents.digest, "order": order}


def regret_rows(
    name: str, arrangement: str, documents: Documents, optima: Sequence[Any], plays: Sequence[Any]
) -> Records:
    """Rows of a data set and arrangement, from the results of the cells of its orders; the best steps are those of the
    mean of the orders."""
    key: Row = {"set": name, "arrangement": arrangement}
    records: Records = {"regret": [], "steps": [], "timings": []}
    for learner in LEARNERS:
        played = [play[learner.name] for play in plays]
        configurations = grid(learner, documents.rows)
        for r, R in enumerate(RADII):
            steps = _steps(learner, configurations, R, played)
            records["steps"] += [key | step for step in steps]
            for method, k in _reported(learner, configurations, R, steps).items():
                named = key | {"R": R, "method": method, "step": configurations[k].get(learner.step)}
                for order, (minima, play) in enumerate(zip(optima, played, strict=True)):
                    losses = [losses[k] for losses in play["losses"]]
                    bounds = [None if learner.step else bounds[r] for bounds in play["bounds"]]
                    rows = _mark_rows([minimum[r] for minimum in minima], losses, bounds, documents, arrangement)
                    records["regret"] += [named | {"order": order} | row for row in rows]
        spent = sum(play["seconds"] for play in played)
        timing = {"columns": len(configurations), "passes": float(ARRANGEMENTS[arrangement])}
        timing |= {"seconds": spent / len(played), "spent": spent}
        records["timings"].append({"set": name, "method": learner.name} | timing)
    return records


def _steps(learner: BoxLearner, configurations: Sequence[dict[str, Any]], R: float, plays: Sequence[Any]) -> list[Row]:
    """The rows of the steps that a learner tries at this R, if it has steps."""
    if not learner.step:
        return []
    last = np.mean([play["losses"][-1] for play in plays], axis=0)
    tried = [
        (configuration[learner.step], float(loss))
        for configuration, loss in zip(configurations, last, strict=True)
        if configuration["R"] == R
    ]
    best = int(np.argmin([loss for _, loss in tried]))
    return [
        {"R": R, "algorithm": learner.name, "factor": FACTORS[k], "step": step, "loss": loss, "chosen": k == best}
        for k, (step, loss) in enumerate(tried)
    ]


def _reported(
    learner: BoxLearner, configurations: Sequence[dict[str, Any]], R: float, steps: Sequence[Row]
) -> dict[str, int]:
    """The configurations of a learner to report at this R, by name: its own, or its theorem's step and the best."""
    first = next(k for k, configuration in enumerate(configurations) if configuration["R"] == R)
    if not learner.step:
        return {learner.name: first}
    best = next(k for k, step in enumerate(steps) if step["chosen"])
    return {learner.name: first + FACTORS.index(1.0), learner.name + BEST: first + best}


def _mark_rows(
    minima: Sequence[Any],
    losses: Sequence[float],
    bounds: Sequence[float | None],
    documents: Documents,
    arrangement: str,
) -> list[Row]:
    """The loss at each mark and its regret against the minimum [objective, gap] of documents counted once."""
    repeats = ARRANGEMENTS[arrangement]
    return [
        {
            "T": mark * repeats,
            "loss": loss,
            "optimum": repeats * optimum,
            "gap": repeats * gap,
            "regret": loss - repeats * optimum,
            "bound": bound,
        }
        for mark, loss, bound, (optimum, gap) in zip(
            marks(documents.rows.shape[0]), losses, bounds, minima, strict=True
        )
    ]
