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
from sparseoco.bounds import Bound, bound_of, state_quantities
from sparseoco.learner import Learner
from sparseoco.optimum import offline_optimum
from sparseoco.reproduce.cells import Cell
from sparseoco.reproduce.records import Records, Row
from sparseoco.reproduce.truncation.documents import Documents

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
    repeats, marks = ARRANGEMENTS[arrangement], marks_of(documents.rows.shape[0])
    keys: Row = {"set": name, "arrangement": arrangement}
    records: Records = {"regret": [], "steps": [], "timings": []}
    for player in PLAYERS:
        grid = grid_of(player, documents.rows)
        last = np.mean([play[player.name]["losses"][-1] for play in plays], axis=0)
        for r, R in enumerate(RADII):
            own = [k for k, configuration in enumerate(grid) if configuration["R"] == R]
            best = min(own, key=lambda k: last[k])
            columns = {player.name: own[FACTORS.index(1.0)], player.name + BEST: best} if player.step else {}
            for k, factor in zip(own, FACTORS, strict=True) if player.step else ():
                told = {"algorithm": player.name, "factor": factor, "step": grid[k][player.step]}
                records["steps"].append(keys | {"R": R, "loss": float(last[k]), "chosen": k == best} | told)
            for method, k in (columns or {player.name: own[0]}).items():
                for order, (minima, play) in enumerate(zip(optima, plays, strict=True)):
                    for m, mark in enumerate(marks):
                        loss, (optimum, gap) = play[player.name]["losses"][m][k], minima[m][r]
                        records["regret"].append(
                            keys
                            | {
                                "R": R,
                                "method": method,
                                "step": grid[k].get(player.step),
                                "order": order,
                                "T": mark * repeats,
                                "loss": loss,
                                "optimum": repeats * optimum,
                                "gap": repeats * gap,
                                "regret": loss - repeats * optimum,
                                "bound": None if player.step else play[player.name]["bounds"][m][r],
                            }
                        )
        spent = sum(play[player.name]["seconds"] for play in plays)
        records["timings"].append(
            {
                "set": name,
                "method": player.name,
                "columns": len(grid),
                "passes": float(repeats),
                "seconds": spent / len(plays),
                "spent": spent,
            }
        )
    return records
