"""Small random problems for the tests of the optimum, and their objective."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from sparseoco.learners.losses import LOSSES

SMOOTH = ("logistic", "squared_hinge", "squared")


PENALTIES = (("l1", 1.0), ("l2", 0.0), ("elastic_net", 0.4))


def problem(loss: str, rows: int, features: int, seed: int) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(seed)
    X = sp.random(rows, features, 0.4, format="csr", random_state=random, data_rvs=lambda n: random.integers(1, 6, n))
    truth = random.normal(size=features) * (random.random(features) < 0.5)
    z = X @ truth + random.normal(size=rows)
    return X.astype(np.int64), z if loss == "squared" else np.where(z > 0, 1.0, -1.0)


def objective(loss: str, X: Any, y: np.ndarray, alpha: float, rho: float, w: np.ndarray) -> float:
    losses = sum(LOSSES[loss].value(z, t) for z, t in zip(X @ w, y, strict=True))
    return float(losses + alpha * (rho * np.abs(w).sum() + (1 - rho) * (w @ w) / 2))
