"""Regret in a box: AO-GD and its relatives, AdaGrad and online gradient descent over the same documents.

Every method plays in |x_i| ≤ R and is compared with the best point there of the documents so far. Documents come in a
drawn order, each once, or each `RUN` times in a row, so that gradients vary slowly.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.offline.bounds import Bound, bound_of, state_quantities
from sparseoco.offline.optimum import offline_optimum
from sparseoco.papers.cells import Cell
from sparseoco.papers.records import Records, Row
from sparseoco.papers.truncation.documents import Documents
from sparseoco.training.learner import Learner

RADII: Final = (0.03, 0.1, 0.3)
RUN: Final = 10
ARRANGEMENTS: Final = {"shuffled": 1, f"{RUN} times in a row": RUN}
"""How often each document comes, one time after the other."""
FACTORS: Final = tuple(4.0**k for k in range(-3, 8))
"""Steps that are tried, of the one that a theorem names."""
MARKS: Final = (250, 1000)
"""Documents after which regret is looked at; and after all of them."""
TOLERANCE: Final = 1e-5


class Player(NamedTuple):
    """A learner: its name on the page, its parameters, and its step where it has one."""

    name: str
    algorithm: str
    parameters: dict[str, Any]
    step: str = ""


AO_GD: Final = Player("AO-GD", "ao-gd", {})
MEAN: Final = Player("AO-FTRL, the feature's mean predicted", "ao-ftrl", {"predict": "mean"})
NONE: Final = Player("AO-FTRL, nothing predicted", "ao-ftrl", {"predict": "none"})
ADAGRAD: Final = Player("AdaGrad", "adagrad", {}, "eta")
OGD: Final = Player("OGD", "fobos", {}, "eta0")
PLAYERS: Final = (AO_GD, MEAN, NONE, ADAGRAD, OGD)
BEST: Final = ", best step"


def theorem_step(player: Player, R: float, rows: csr_matrix) -> float:
    """AdaGrad's η = R, the largest ‖x‖_∞ (Duchi et al. 2011, Corollary 6); of OGD D/G (Zinkevich 2003), D = 2R√n the
    diameter of the box and G the largest ‖a_t‖₂, which bounds the gradients of the logistic loss."""
    if player is ADAGRAD:
        return R
    longest = float(np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).max()))
    diameter: float = 2.0 * R * rows.shape[1] ** 0.5
    return diameter / longest


def grid_of(player: Player, rows: csr_matrix) -> list[dict[str, Any]]:
    """Configurations: for every R one, or as many as there are steps to try."""
    if not player.step:
        return [{"R": R, **player.parameters} for R in RADII]
    return [{"R": R, player.step: factor * theorem_step(player, R, rows)} for R in RADII for factor in FACTORS]


def marks_of(documents: int) -> list[int]:
    """Documents after which regret is looked at."""
    return [*(mark for mark in MARKS if mark < documents), documents]


def order_of(documents: int, order: int) -> NDArray[np.int64]:
    """Which document comes when."""
    return np.random.Generator(np.random.PCG64([order, documents])).permutation(documents)


def optima_cell(documents: Documents, order: int) -> Cell:
    """[objective, gap] of every mark and R, each document counted once."""
    size = documents.rows.shape[0]

    def run() -> Any:
        found = []
        for mark in marks_of(size):
            chosen = order_of(size, order)[:mark]
            rows = documents.rows[chosen]
            rows = rows[:, np.unique(rows.indices)]
            optima = [
                offline_optimum(rows, documents.labels[chosen], loss="logistic", alpha=0.0, box=R, tol=TOLERANCE)
                for R in RADII
            ]
            found.append([[float(optimum.objective), float(optimum.gap)] for optimum in optima])
        return found

    return Cell(_key("caos optima", documents, order) | {"R": RADII, "marks": marks_of(size), "tol": TOLERANCE}, run)


def playing_cell(documents: Documents, order: int, arrangement: str) -> Cell:
    """Of every player: [loss of every configuration] and [bound] at every mark, and seconds."""
    rows, size, repeats = documents.rows, documents.rows.shape[0], ARRANGEMENTS[arrangement]

    def play(player: Player) -> dict[str, Any]:
        learner = Learner(
            player.algorithm,
            loss="logistic",
            penalty="box" if player.step else "l1",
            grid=grid_of(player, rows),
            n_features=rows.shape[1],
        )
        chosen, seconds, done = order_of(size, order), 0.0, 0
        losses, bounds = [], []
        for mark in marks_of(size):
            coming = np.repeat(chosen[done:mark], repeats)
            part, labels, done = rows[coming], documents.labels[coming], mark
            before = time.thread_time()
            learner.learn_rows(part.indptr, part.indices, part.data, labels)
            seconds += time.thread_time() - before
            losses.append(learner.progress.loss_sum.tolist())
            bounds.append([] if player.step else [_bound(learner, c) for c in range(len(RADII))])
        return {"losses": losses, "bounds": bounds, "seconds": seconds}

    key = {"marks": marks_of(size), "arrangement": arrangement, "grid": [grid_of(player, rows) for player in PLAYERS]}
    return Cell(_key("caos regret", documents, order) | key, lambda: {player.name: play(player) for player in PLAYERS})


def _bound(learner: Learner, configuration: int) -> float:
    """Of Theorem 1 or Corollary 2, 4R Σ_i √(Σ_t (g_{t,i} − g̃_{t,i})²); of any comparator in the box."""
    bound = bound_of(learner.algorithm, learner.configurations[configuration], learner.penalty)
    assert isinstance(bound, Bound)
    nothing = np.zeros((learner.n_features, 1))
    quantities = state_quantities(learner, configuration, nothing, nothing)
    return float(np.sum(bound.value(learner.progress.rows, quantities)))


def _key(what: str, documents: Documents, order: int) -> dict[str, Any]:
    return {"what": what, "sparseoco": __version__, "documents": documents.digest, "order": order}


def regret_rows(
    name: str, arrangement: str, documents: Documents, optima: Sequence[Any], plays: Sequence[Any]
) -> Records:
    """Rows of a set and arrangement, from what the cells of its orders found; best steps are those of all orders."""
    keys: Row = {"set": name, "arrangement": arrangement}
    records: Records = {"regret": [], "steps": [], "timings": []}
    for player in PLAYERS:
        own = [play[player.name] for play in plays]
        grid = grid_of(player, documents.rows)
        for r, R in enumerate(RADII):
            steps = _steps(player, grid, R, own)
            records["steps"] += [keys | step for step in steps]
            for method, k in _shown(player, grid, R, steps).items():
                told = keys | {"R": R, "method": method, "step": grid[k].get(player.step)}
                for order, (minima, play) in enumerate(zip(optima, own, strict=True)):
                    losses = [losses[k] for losses in play["losses"]]
                    bounds = [None if player.step else bounds[r] for bounds in play["bounds"]]
                    rows = _against([of_mark[r] for of_mark in minima], losses, bounds, documents, arrangement)
                    records["regret"] += [told | {"order": order} | row for row in rows]
        spent = sum(play["seconds"] for play in own)
        passes = float(ARRANGEMENTS[arrangement])
        told = {"columns": len(grid), "passes": passes, "seconds": spent / len(own), "spent": spent}
        records["timings"].append({"set": name, "method": player.name} | told)
    return records


def _steps(player: Player, grid: Sequence[dict[str, Any]], R: float, plays: Sequence[Any]) -> list[Row]:
    """Rows of `records.STEPS` for the steps that a player with steps tries at this R."""
    if not player.step:
        return []
    last = np.mean([play["losses"][-1] for play in plays], axis=0)
    tried = [
        (configuration[player.step], float(loss))
        for configuration, loss in zip(grid, last, strict=True)
        if configuration["R"] == R
    ]
    best = int(np.argmin([loss for _, loss in tried]))
    return [
        {"R": R, "algorithm": player.name, "factor": FACTORS[k], "step": step, "loss": loss, "chosen": k == best}
        for k, (step, loss) in enumerate(tried)
    ]


def _shown(player: Player, grid: Sequence[dict[str, Any]], R: float, steps: Sequence[Row]) -> dict[str, int]:
    """Methods of a player at this R, and which configuration each is: its own, or its theorem's step and the best."""
    first = next(k for k, configuration in enumerate(grid) if configuration["R"] == R)
    if not player.step:
        return {player.name: first}
    best = next(k for k, step in enumerate(steps) if step["chosen"])
    return {player.name: first + FACTORS.index(1.0), player.name + BEST: first + best}


def _against(
    minima: Sequence[Any],
    losses: Sequence[float],
    bounds: Sequence[float | None],
    documents: Documents,
    arrangement: str,
) -> list[Row]:
    """What was suffered at each mark, against the minimum there: [objective, gap] of documents counted once."""
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
            marks_of(documents.rows.shape[0]), losses, bounds, minima, strict=True
        )
    ]
