"""The offline optimum of a store, on the cluster: passes, the solver's state on disk, a model for each α."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from sparseoco import __version__
from sparseoco.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.cluster.passes import ClusterPasses
from sparseoco.commit import commit_json, digest_value, read_json
from sparseoco.errors import StorageError
from sparseoco.metrics import write_table
from sparseoco.model import write_model
from sparseoco.optimum import MAX_PASSES, TOLERANCE, Problem, Solver
from sparseoco.shards import Store

Progress = Callable[[str, int, int], None]

KEEP_SECONDS = 20.0  # of work that a killed run may have to do again

OPTIMUM = pa.schema(
    [
        ("alpha", pa.float64()),
        ("class", pa.string()),  # that is y = +1; "value" where numbers are predicted
        ("objective", pa.float64()),
        ("dual", pa.float64()),  # a lower bound of the least objective
        ("gap", pa.float64()),
        ("relative_gap", pa.float64()),  # of the objective at 0
        ("converged", pa.bool_()),
        ("passes", pa.int32()),
        ("nonzeros", pa.int64()),
    ]
)
PASSES = pa.schema(
    [
        ("alpha", pa.float64()),
        ("class", pa.string()),
        ("pass", pa.int32()),
        ("objective", pa.float64()),  # the least so far
        ("dual", pa.float64()),  # the greatest so far
        ("nonzeros", pa.int64()),  # of the best point so far
    ]
)


class OptimumOptions(BaseModel):
    """What is to be minimised and how far; see `sparseoco.offline_optimum`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alphas: tuple[float, ...] = Field(min_length=1)
    loss: str = "logistic"
    penalty: str = "l1"
    l1_ratio: float = 0.5
    box: float | None = None
    tol: float = TOLERANCE
    max_passes: int = MAX_PASSES

    def problem(self, classes: list[str]) -> Problem:
        """The same as a problem over these classes, none for numbers. Raises `InputError` for nonsense."""
        count = len(classes) or None
        return Problem.of(self.loss, self.alphas, self.penalty, self.l1_ratio, self.box, count)


def run_optimum(client: Client, store: Store, out: Path, options: OptimumOptions, progress: Progress) -> None:
    """Find the optimum for every α, into the folder `out`, which belongs to this process.

    It gets ``optimum.parquet``, ``passes.parquet``, a model folder for each α (see `model_folder`), and
    ``optimum.json``, which comes last. A finished run is left as it is, a killed one goes on from the state it kept.

    Raises `InputError` for options that have no meaning, `SparseocoError` if a pass cannot be run.
    """
    problem = options.problem(store.classes)
    description = options.model_dump(mode="json") | {"store": store.manifest.digest, "sparseoco": __version__}
    digest = digest_value(description)
    done, kept = out / "optimum.json", out / "state.npz"
    if done.exists() and read_json(done).get("digest") == digest:
        return
    done.unlink(missing_ok=True)
    passes = ClusterPasses(client, store, out / ".passes")
    solver = Solver(passes, problem, tol=options.tol, max_passes=options.max_passes)
    state = _read_state(kept, digest)
    if state is not None:
        solver.restore(state)
    last = time.monotonic()
    while solver.active:
        solver.step()
        progress("optimum", _share_done(solver), 1000)
        if time.monotonic() - last > KEEP_SECONDS:
            state = solver.state()
            write_checkpoint(kept, {"digest": digest, "names": list(state)}, state.items())
            last = time.monotonic()
    _write(solver, problem, store, out, options)
    commit_json(done, description | {"digest": digest})
    passes.clear()
    kept.unlink(missing_ok=True)


def model_folder(out: Path, alpha: float) -> Path:
    """Where the model of an α goes."""
    return out / f"alpha-{alpha!r}"


def _share_done(solver: Solver) -> int:
    """Of the way to the gap asked for, in the logarithm, in thousandths."""
    shares = []
    for column in solver.columns:
        relative = column.gap / column.at_zero if column.at_zero > 0.0 else 1.0
        shares.append(1.0 if column.done else min(1.0, math.log(max(relative, solver.tol)) / math.log(solver.tol)))
    return round(1000 * max(0.0, sum(shares) / len(shares)))


def _write(solver: Solver, problem: Problem, store: Store, out: Path, options: OptimumOptions) -> None:
    """The tables and the models of a solver that is done."""
    names = store.classes or ["value"]
    rows, passes = [], []
    for column, (alpha, positive) in zip(
        solver.columns, [(alpha, p) for alpha in problem.alphas for p in problem.positive], strict=True
    ):
        key = {"alpha": alpha, "class": names[positive]}
        rows.append(
            key
            | {
                "objective": column.objective,
                "dual": column.dual,
                "gap": column.gap,
                "relative_gap": column.gap / column.at_zero if column.at_zero > 0.0 else 0.0,
                "converged": column.converged,
                "passes": column.passes,
                "nonzeros": int(np.count_nonzero(column.best)),
            }
        )
        passes += [
            key | {"pass": i + 1, "objective": float(objective), "dual": float(dual), "nonzeros": int(nonzeros)}
            for i, (objective, dual, nonzeros) in enumerate(column.history)
        ]
    write_table(out / "optimum.parquet", rows, OPTIMUM)
    write_table(out / "passes.parquet", passes, PASSES)
    outputs = len(problem.positive)
    for i, alpha in enumerate(problem.alphas):
        mine = solver.columns[i * outputs : (i + 1) * outputs]
        parameters = {"alpha": alpha} | ({"l1_ratio": options.l1_ratio} if options.penalty == "elastic_net" else {})
        description = {
            "algorithm": "offline-optimum",
            "parameters": parameters | ({} if options.box is None else {"box": options.box}),
            "loss": options.loss,
            "penalty": options.penalty,
            "objective": sum(column.objective for column in mine),
            "gap": sum(column.gap for column in mine),
        }
        write_model(model_folder(out, alpha), np.stack([c.best for c in mine], axis=1), store, description, [])


def _read_state(path: Path, digest: str) -> dict[str, NDArray[Any]] | None:
    """The state of a run that was stopped, if it is of this run and undamaged."""
    with suppress(StorageError), read_checkpoint(path) as (description, read):
        if description["digest"] == digest:
            return {name: read(name) for name in description["names"]}
    return None
