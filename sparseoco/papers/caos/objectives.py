"""Objectives against passes: CAOS-ERM and scikit-learn's SGD and SAGA; CAO-RCD with equal and other probabilities.

All minimise H(x) = Σ_j f_j(x) + α‖x‖₁, logistic loss, without an intercept. A pass reads every nonzero once: an
epoch of caos-erm is two, the full one and its rounds; one of cao-rcd is one for its margins, plus its rounds, as many
passes as the nonzeros that they are expected to read.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import normalize

from sparseoco import __version__
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.offline.coordinates import Coordinates
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.optimum import offline_optimum
from sparseoco.offline.passes import LocalPasses, PassRequest, column_major
from sparseoco.offline.regret.run import block_quantities
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, extend, mean
from sparseoco.papers.sources import Documents
from sparseoco.storage.locations import read_toml

ALPHAS: Final = (1.0, 10.0)
RADII: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ETA0: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""First steps of SGD, which decrease as 1/√t."""
VALUES: Final[dict[str, tuple[float | None, ...]]] = {"R": RADII, "eta0": ETA0, "": (None,)}
"""By the tuned parameter: R, the first step, or none."""
EPOCHS: Final = (1, 2, 5, 10, 20)
"""Epochs, of two passes each, after which objectives are recorded."""
PEER_EPOCHS: Final = (1, 2, 20)
"""The same of scikit-learn's methods, of which every mark is a run of its own, from 0."""
TOLERANCE: Final = 1e-9
BOUND_R: Final = 0.1
"""R of the bounds of Theorem 7, whose ratio does not depend on it."""
LENGTHS: Final = {"own": "", "equal": ", documents of equal length"}
"""Lengths ‖a_j‖₂ of the documents, and their label."""


class Minimiser(NamedTuple):
    """A method that minimises H: a learner of this package with its parameters, or a class of scikit-learn."""

    name: str
    family: str = "examples"
    algorithm: str = ""
    parameters: Mapping[str, Any] = {}
    tuned: str = "R"


METHODS: Final = tuple(Minimiser(**row) for row in read_toml(Path(__file__).with_name("methods.toml"))["methods"])
SAMPLED, CORRECTED, PRINTED, EQUAL, SGD, SAGA, *COORDINATES = METHODS
RESCALED: Final = (SAMPLED, CORRECTED, SAGA)
"""Methods that are also run on documents of equal length."""


def scaled(documents: Documents, lengths: str) -> Documents:
    """The documents, or each scaled to the mean of their lengths, as SAGA's step is that of the longest."""
    if lengths == "own":
        return documents
    average = float(np.sqrt(documents.rows.multiply(documents.rows).sum(axis=1)).mean())
    return documents._replace(rows=normalize(documents.rows) * average, digest=f"{documents.digest}, {lengths} lengths")


def optimum_cell(documents: Documents) -> Cell:
    """[H*, gap, nonzeros, largest weight] of every α."""

    def run() -> Any:
        optimum = offline_optimum(
            documents.rows, documents.labels, loss="logistic", alpha=list(ALPHAS), tol=TOLERANCE, max_passes=10_000
        )
        sizes = np.abs(optimum.weights)
        columns = (optimum.objective, optimum.gap, np.count_nonzero(sizes, axis=1), sizes.max(axis=1))
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    return Cell(_key("caos optimum", documents) | {"alpha": ALPHAS, "tol": TOLERANCE}, run)


def objective_cells(documents: Documents, method: Minimiser, repetitions: int) -> list[Cell]:
    """A cell per repetition: `objectives` [α][value][mark], the `passes` and `rounds` of every mark, and `seconds` of
    all `columns` together, or of scikit-learn's last run; `spent` are those of the whole cell."""
    run, marks = (_run_epochs, EPOCHS) if method.algorithm else (_run_peer, PEER_EPOCHS)
    key = _key("caos objectives", documents) | {"method": method.name, "alpha": ALPHAS, "marks": marks}
    return [
        Cell(key | {"values": VALUES[method.tuned], "repetition": seed}, partial(run, documents, method, seed))
        for seed in range(repetitions)
    ]


def _run_epochs(documents: Documents, method: Minimiser, seed: int) -> Any:
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
        passes, rounds = epoch.examples[0] / rows.shape[0], epoch.rounds[0]
    values = fit.objective[np.array(EPOCHS) - 1].T.reshape(len(ALPHAS), len(RADII), len(EPOCHS))
    return {
        "objectives": values.tolist(),
        "passes": [passes * epochs for epochs in EPOCHS],
        "rounds": [None if rounds is None else rounds * epochs for epochs in EPOCHS],
        "columns": len(grid),
        "seconds": seconds,
        "spent": seconds,
    }


def _coordinates(documents: Documents, grid: list[dict[str, Any]]) -> Coordinates:
    filled = [find_algorithm("cao-rcd").configuration(configuration) for configuration in grid]
    data = column_major(documents.rows, documents.labels)
    return Coordinates(data, filled, loss=find_loss("logistic"), positive=(1,), seed=0)


def _run_peer(documents: Documents, method: Minimiser, seed: int) -> Any:
    """A method of scikit-learn; SAGA warns that it has not converged."""
    passes = [2 * epochs for epochs in PEER_EPOCHS]
    results = np.array(
        [
            [
                [_fit_peer(documents, _peer(documents, alpha, value, count, seed), alpha) for count in passes]
                for value in VALUES[method.tuned]
            ]
            for alpha in ALPHAS
        ]
    )
    objectives, seconds = results[..., 0], results[..., 1]
    return {
        "objectives": objectives.tolist(),
        "passes": passes,
        "rounds": [None] * len(passes),
        "columns": 1,
        "seconds": float(seconds[-1, -1, -1]),
        "spent": float(seconds.sum()),
    }


def _fit_peer(documents: Documents, peer: Any, alpha: float) -> tuple[float, float]:
    """H of the peer's weights, and the seconds of its fit."""
    before = time.thread_time()
    x = peer.fit(documents.rows, documents.labels).coef_[0]
    seconds = time.thread_time() - before
    totals = LocalPasses.of(documents.rows, documents.labels).totals(x[:, None], PassRequest("logistic", (1,)))
    return float(totals.loss_sum[0] + alpha * np.abs(x).sum()), seconds


def _peer(documents: Documents, alpha: float, eta0: float | None, passes: int, seed: int) -> Any:
    """SGD with a first step; SAGA without."""
    common = {"fit_intercept": False, "max_iter": passes, "random_state": seed}
    if eta0 is None:
        return LogisticRegression(solver="saga", C=1.0 / alpha, tol=0.0, **_L1, **common)
    return SGDClassifier(
        loss="log_loss",
        penalty="l1",
        alpha=alpha / documents.rows.shape[0],
        learning_rate="invscaling",
        eta0=eta0,
        power_t=0.5,
        tol=None,
        **common,
    )


_L1: Final = {"l1_ratio": 1.0} | (
    {"penalty": "elasticnet"} if LogisticRegression().get_params()["penalty"] == "l2" else {}  # before 1.8
)


def _key(what: str, documents: Documents) -> dict[str, Any]:
    return {"what": what, "sparseoco": __version__, "documents": documents.digest}


def sampling_row(name: str, documents: Documents) -> Row:
    """Theorem 7's bounds per √T, without predictions."""
    parameters = {"alpha": 1.0, "R": BOUND_R, "predict_gradient": "none", "sample": "lipschitz"}
    method = _coordinates(documents, [parameters])
    quantities = block_quantities(method.bounds(0), method.ranges(0), 1)
    lipschitz, uniform = 4.0 * quantities["RL"] ** 1.5, 4.0 * quantities["blocks"] ** 0.5 * quantities["RL1"]
    return {"set": name, "R": BOUND_R, "lipschitz": lipschitz, "uniform": uniform}


def optimum_rows(name: str, lengths: str, optima: Sequence[Any]) -> list[Row]:
    """A row per α."""
    columns = ("objective", "gap", "nonzeros", "largest")
    return [
        {"set": name, "lengths": lengths, "alpha": alpha, **dict(zip(columns, row, strict=True))}
        for alpha, row in zip(ALPHAS, optima, strict=True)
    ]


def objective_rows(method: Minimiser, optima: Sequence[Row], parts: Sequence[Any]) -> Records:
    """Rows of a method, from the results of its cells on documents with these `optima`, a row per α of `ALPHAS`;
    `chosen` is the value of the least H at the last mark, in the mean of the seeds."""
    table = np.array([part["objectives"] for part in parts])  # [repetition][α][value][mark]
    records: Records = {"objectives": []}
    for a, optimum in enumerate(optima):
        best = int(np.argmin(table[:, a, :, -1].mean(axis=0)))
        for v, value in enumerate(VALUES[method.tuned]):
            key = {name: optimum[name] for name in ("set", "lengths", "alpha")}
            key |= {"family": method.family, "method": method.name, "tuned": method.tuned}
            key |= {"value": value, "chosen": v == best}
            records["objectives"] += [
                key
                | {
                    "seed": seed,
                    "passes": part["passes"][m],
                    "rounds": part["rounds"][m],
                    "objective": objective,
                    "excess": objective / optimum["objective"] - 1.0,
                }
                for seed, part in enumerate(parts)
                for m, objective in enumerate(part["objectives"][a][v])
            ]
    timing = {
        "set": optima[0]["set"],
        "method": method.name + LENGTHS[optima[0]["lengths"]],
        "columns": parts[0]["columns"],
        "passes": parts[0]["passes"][-1],
        "seconds": mean(part["seconds"] for part in parts),
        "spent": sum(part["spent"] for part in parts),
    }
    return records | {"timings": [timing]}


def run_objectives(run: Run, name: str, documents: Documents, lengths: str, repetitions: int) -> Records:
    """The optima and the rows of all methods on documents of these lengths."""
    documents = scaled(documents, lengths)
    methods = METHODS if lengths == "own" else RESCALED
    cells = [cell for method in methods for cell in objective_cells(documents, method, repetitions)]
    with warnings.catch_warnings():  # here, because filters are shared by all threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is deliberate
        optimum, *results = run.cells(f"objectives{LENGTHS[lengths]}", [optimum_cell(documents), *cells])
    optima = optimum_rows(name, lengths, optimum)
    records: Records = {"optima": optima}
    for k, method in enumerate(methods):
        extend(records, objective_rows(method, optima, results[k * repetitions : (k + 1) * repetitions]))
    return records
