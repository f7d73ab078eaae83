"""Objectives against passes: CAOS-ERM beside scikit-learn's SGD and SAGA, CAO-RCD by equal chances and by bounds.

All minimise H(x) = Σ_j f_j(x) + α‖x‖₁, logistic loss, without an intercept. A pass goes once through the nonzeros: an
epoch of caos-erm is two, the full one and its rounds; one of cao-rcd is one for its margins, and its rounds as many as
the nonzeros that they read are expected to come to.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import normalize

from sparseoco import __version__
from sparseoco.learners.losses import find_loss
from sparseoco.offline.coordinates import Coordinates, column_major
from sparseoco.offline.epochs import fit_epochs
from sparseoco.offline.optimum import offline_optimum
from sparseoco.offline.passes import LocalPasses, PassRequest
from sparseoco.offline.regret.epochs import block_quantities
from sparseoco.papers.cells import Cell
from sparseoco.papers.means import mean_and_error
from sparseoco.papers.records import Records, Row
from sparseoco.papers.truncation.documents import Documents

ALPHAS: Final = (1.0, 10.0)
RADII: Final = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ETA0: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""First steps of SGD, which fall as 1/√t."""
VALUES: Final[dict[str, tuple[float | None, ...]]] = {"R": RADII, "eta0": ETA0, "": (None,)}
"""By what is tuned: R, the first step, or nothing."""
EPOCHS: Final = (1, 2, 5, 10, 20)
"""Of two passes each, after which objectives are looked at."""
TOLERANCE: Final = 1e-9
ANY_R: Final = 0.1
"""R of the bounds of Theorem 7, whose ratio does not depend on it."""
WHAT: Final = {"own": "", "equal": ", documents of one length"}
"""Lengths ‖a_j‖₂ of the documents, and what is said of them."""


class Method(NamedTuple):
    """A way to minimise H: ours by its parameters, or a class of scikit-learn."""

    name: str
    family: str
    algorithm: str
    parameters: dict[str, Any]
    tuned: str = "R"


SAMPLED: Final = Method("CAOS-ERM", "examples", "caos-erm", {"estimate": "sampled"})
CORRECTED: Final = Method("SVRG's estimate in CAOS-ERM", "examples", "caos-erm", {"estimate": "corrected"})
SGD: Final = Method("SGD", "examples", "", {}, "eta0")
SAGA: Final = Method("SAGA", "examples", "", {}, "")
CHANCES: Final = ("uniform", "lipschitz")
PREDICTIONS: Final = {"none": "", "half": ", L/2 predicted", "last": ", the last one predicted"}
WORDS: Final = {"uniform": "equal chances", "lipschitz": "chances by (RL)^⅔"}
ALIKE: Final = ", as many rounds"


def coordinates(sample: str, predict: str, alike: bool = False) -> Method:
    """CAO-RCD; `alike`: as many rounds an epoch as equal chances take for a pass, one a feature."""
    rounds: dict[str, Any] = {"rounds": "features"} if alike else {}
    name = f"CAO-RCD, {WORDS[sample]}{PREDICTIONS[predict]}{ALIKE if alike else ''}"
    return Method(name, "coordinates", "cao-rcd", {"sample": sample, "predict": predict, **rounds})


METHODS: Final = (
    *(SAMPLED, CORRECTED, SGD, SAGA),
    *(coordinates(sample, predict) for sample in CHANCES for predict in PREDICTIONS),
    coordinates("lipschitz", "none", alike=True),
)


def with_lengths(documents: Documents, lengths: str) -> Documents:
    """Documents as they are, or each scaled to the mean of their lengths: SAGA's step is that of the longest."""
    if lengths == "own":
        return documents
    mean = float(np.sqrt(documents.rows.multiply(documents.rows).sum(axis=1)).mean())
    return documents._replace(rows=normalize(documents.rows) * mean, digest=f"{documents.digest}, {lengths} lengths")


def methods_of(lengths: str) -> tuple[Method, ...]:
    """What runs on documents of such lengths: all, or what goes by documents."""
    return tuple(method for method in METHODS if lengths == "own" or method.family == "examples")


def optimum_cell(documents: Documents) -> Cell:
    """[H*, gap, nonzeros, largest weight] of every α."""

    def run() -> Any:
        found = offline_optimum(
            documents.rows, documents.labels, loss="logistic", alpha=list(ALPHAS), tol=TOLERANCE, max_passes=10_000
        )
        sizes = np.abs(found.weights)
        columns = (found.objective, found.gap, np.count_nonzero(sizes, axis=1), sizes.max(axis=1))
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    return Cell(_key("caos optimum", documents) | {"alpha": ALPHAS, "tol": TOLERANCE}, run)


def cells_of(documents: Documents, method: Method, repetitions: int) -> list[Cell]:
    """A cell a repetition: `objectives` [α][value][mark], what a mark's `passes` and `rounds` are, and `seconds`: of
    all its `columns` side by side, or of scikit-learn's last run; `spent` are those of the whole cell."""
    key = _key("caos objectives", documents) | {"method": method.name, "alpha": ALPHAS, "marks": EPOCHS}
    run = _ours if method.algorithm else _peers
    return [
        Cell(key | {"values": VALUES[method.tuned], "repetition": seed}, partial(run, documents, method, seed))
        for seed in range(repetitions)
    ]


def _ours(documents: Documents, method: Method, seed: int) -> Any:
    rows, labels = documents.rows, documents.labels
    parameters = dict(method.parameters)
    if parameters.get("rounds") == "features":
        parameters["rounds"] = rows.shape[1]
    grid = [{"alpha": alpha, "R": R, **parameters} for alpha in ALPHAS for R in RADII]
    fit_epochs(rows[:2], labels[:2], algorithm=method.algorithm, grid=grid, epochs=1)  # its loops are compiled
    before = time.thread_time()
    fit = fit_epochs(rows, labels, algorithm=method.algorithm, grid=grid, epochs=EPOCHS[-1], seed=seed)
    seconds = time.thread_time() - before
    each, rounds = 2.0, None
    if method.family == "coordinates":
        played = _coordinates(documents, grid[:1])
        each, rounds = played.examples[0] / rows.shape[0], played.rounds[0]
    values = fit.objective[np.array(EPOCHS) - 1].T.reshape(len(ALPHAS), len(RADII), len(EPOCHS))
    return {
        "objectives": values.tolist(),
        "passes": [each * epoch for epoch in EPOCHS],
        "rounds": [None if rounds is None else rounds * epoch for epoch in EPOCHS],
        "columns": len(grid),
        "seconds": seconds,
        "spent": seconds,
    }


def _coordinates(documents: Documents, grid: list[dict[str, Any]]) -> Coordinates:
    filled = [{"rounds": "pass", "batch": 1, **configuration} for configuration in grid]
    data = column_major(documents.rows, documents.labels)
    return Coordinates(data, filled, loss=find_loss("logistic"), positive=(1,), seed=0)


def _peers(documents: Documents, method: Method, seed: int) -> Any:
    """scikit-learn's; a mark is a run of its own, from 0, of so many passes; SAGA warns that they were no more."""
    passes = [2 * epoch for epoch in EPOCHS]
    found = np.array(
        [
            [
                [_fitted(documents, _peer(documents, alpha, value, count, seed), alpha) for count in passes]
                for value in VALUES[method.tuned]
            ]
            for alpha in ALPHAS
        ]
    )
    objectives, seconds = found[..., 0], found[..., 1]
    return {
        "objectives": objectives.tolist(),
        "passes": passes,
        "rounds": [None] * len(passes),
        "columns": 1,
        "seconds": float(seconds[-1, -1, -1]),
        "spent": float(seconds.sum()),
    }


def _fitted(documents: Documents, peer: Any, alpha: float) -> tuple[float, float]:
    """H where the peer ends, and the seconds that it took."""
    before = time.thread_time()
    x = peer.fit(documents.rows, documents.labels).coef_[0]
    seconds = time.thread_time() - before
    totals = LocalPasses.of(documents.rows, documents.labels).totals(x[:, None], PassRequest("logistic", (1,)))
    return float(totals.loss_sum[0] + alpha * np.abs(x).sum()), seconds


def _peer(documents: Documents, alpha: float, eta0: float | None, passes: int, seed: int) -> Any:
    """SGD from a first step; SAGA where there is none."""
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


def chances_row(name: str, documents: Documents) -> Row:
    """Theorem 7's bounds, of a round's √T, without predictions."""
    parameters = {"alpha": 1.0, "R": ANY_R, "predict": "none", "sample": "lipschitz"}
    found = block_quantities(_coordinates(documents, [parameters]).bounds(0), 1, ANY_R)
    lipschitz, uniform = 4.0 * found["RL"] ** 1.5, 4.0 * found["blocks"] ** 0.5 * found["RL1"]
    return {"set": name, "R": ANY_R, "lipschitz": lipschitz, "uniform": uniform}


def optimum_rows(name: str, lengths: str, found: Sequence[Any]) -> list[Row]:
    """Rows of `records.OPTIMA`."""
    names = ("objective", "gap", "nonzeros", "largest")
    return [
        {"set": name, "lengths": lengths, "alpha": alpha, **dict(zip(names, row, strict=True))}
        for alpha, row in zip(ALPHAS, found, strict=True)
    ]


def objective_rows(method: Method, optima: Sequence[Row], parts: Sequence[Any]) -> Records:
    """Rows of a method, from what its cells found on documents whose `optima` these are, a row an α of `ALPHAS`;
    `chosen` is the value of the least H at the last mark."""
    table = np.array([part["objectives"] for part in parts])  # [repetition][α][value][mark]
    records: Records = {"objectives": [], "timings": []}
    for a, of in enumerate(optima):
        keys = {key: of[key] for key in ("set", "lengths", "alpha")}
        best = int(np.argmin(table[:, a, :, -1].mean(axis=0)))
        for v, value in enumerate(VALUES[method.tuned]):
            for m, passes in enumerate(parts[0]["passes"]):
                own = table[:, a, v, m]
                excess, error = mean_and_error((own / of["objective"] - 1.0).tolist())
                records["objectives"].append(
                    keys
                    | {
                        "family": method.family,
                        "method": method.name,
                        "tuned": method.tuned,
                        "value": value,
                        "passes": passes,
                        "rounds": parts[0]["rounds"][m],
                        "objective": float(own.mean()),
                        "excess": excess,
                        "excess_error": error,
                        "chosen": v == best,
                    }
                )
    records["timings"].append(
        {
            "set": optima[0]["set"],
            "method": method.name + WHAT[optima[0]["lengths"]],
            "columns": parts[0]["columns"],
            "passes": parts[0]["passes"][-1],
            "seconds": sum(part["seconds"] for part in parts) / len(parts),
            "spent": sum(part["spent"] for part in parts),
        }
    )
    return records
