"""The folder of a search, its regret and the optima by SciPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize as scipy_minimize

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import METRICS_SCHEMA, write_result_table
from sparseoco.store.shards import Store
from tests.support.searches import plain_search

ROWS, FEATURES, MARKS, SEED = 160, 30, 4, 3
ALGORITHMS: dict[str, dict[str, Any]] = {
    "fobos": {"lam": [0.01, 0.003], "eta0": [0.5]},
    "cl-fobos": {"lam": [0.01], "eta0": [0.5]},
    "ftrl-proximal": {"lam": [0.01], "R": [0.2]},
    "stda": {"lam": [0.02], "gamma": [2.0], "p": [2]},
    "rda": {"lam": [0.0], "gamma": [2.0]},
}
CLUSTER = ClusterOptions(threads=2)


def write_search(run: Path, store: Path, **more: Any) -> Path:
    """Write the files of a search that regret reads: of a search in which all configurations succeeded."""
    options = plain_search(**({"algorithms": ALGORITHMS, "folds": 1, "seed": SEED, "intercept": False} | more))
    opened = Store.open(store)
    classes = [entry.model_dump(mode="json") for entry in opened.manifest.labels.classes]
    sizes = {"rows": opened.n_rows, "features": opened.n_features, "classes": classes}
    corpus = {"store": opened.manifest.digest, "folder": str(store.resolve()), **sizes}
    search = options.model_dump(mode="json")
    commit_json(run / "run.json", {"name": "r", "seed": SEED, "version": "0", "corpus": corpus, "search": search})
    rows = [
        {
            "configuration": c.number,
            "algorithm": c.algorithm,
            "parameters": c.parameters_json,
            **c.weighting.model_dump(),
            "loss": options.loss,
            "penalty": options.penalty,
            "fold": -1,
            "epoch": 1,
            "rows": opened.n_rows,
            "progressive_loss": 0.5,
            "progressive_error": 0.1 + c.number / 100,
            "held_out_rows": 0,
            "nonzeros": 5,
            "status": "ok",
            "reason": "",
        }
        for c in options.configurations()
    ]
    write_result_table(run / "search" / "metrics.parquet", rows, METRICS_SCHEMA)
    return run


def table(run: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / "regret" / f"{name}.parquet").to_pylist()
    return rows


def minimum(X: np.ndarray, y: np.ndarray, alpha: np.ndarray, R: Any, weights: np.ndarray | float = 1.0) -> float:
    """min Σ ω·log(1 + exp(−y⟨x, w⟩)) + Σ_i α_i|w_i|, |w_i| ≤ R_i, by L-BFGS-B over w = u − v."""
    d = X.shape[1]

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        m = y * (X @ (z[:d] - z[d:]))
        g = X.T @ (-y * weights / (1 + np.exp(m)))
        both = np.tile(alpha, 2)
        return (weights * np.logaddexp(0, -m)).sum() + both @ z, np.concatenate([g, -g]) + both

    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9}
    bounds = [(0, bound) for bound in (R if isinstance(R, list) else [R] * d)] * 2
    found = scipy_minimize(value, np.zeros(2 * d), jac=True, bounds=bounds, options=options)
    return float(found.fun)


def files(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
