"""Each paper's own pseudo-code in dense NumPy: no laziness, no columns, nothing of the package.

A method takes `Rounds` and the learner's parameters, of which ``lam`` may be one number per feature (n, 1), and gives
the iterates w_2 … w_{T+1} (n, outputs), one after every row. Slow on purpose. Modules of this package have their
methods by name in ``METHODS``.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

import tests.oracles
from tests.oracles.losses import Rounds, each_margin

METHODS: dict[str, Callable[..., Iterator[np.ndarray]]] = {}
for _, module, _ in iter_modules(tests.oracles.__path__, "tests.oracles."):
    if module != __name__:
        METHODS |= getattr(import_module(module), "METHODS", {})


def of_one_margin(method: Callable[..., Iterator[np.ndarray]]) -> Callable[..., Iterator[np.ndarray]]:
    """``(X, y, loss name, parameters)`` to iterates (n,); labels are ±1, or numbers, and λ may be (n,)."""

    def run(X: np.ndarray, y: np.ndarray, loss: str, **parameters: Any) -> Iterator[np.ndarray]:
        if np.ndim(parameters.get("lam")):
            parameters["lam"] = np.reshape(parameters["lam"], (-1, 1))
        for W in method(Rounds(X, y, each_margin(loss)), **parameters):
            yield W[:, 0]

    return run


ORACLES = {name: of_one_margin(method) for name, method in METHODS.items()}
