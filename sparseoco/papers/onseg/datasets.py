"""The data of Liu et al. (2019), §4, and the constants that the paper leaves open.

Features are those of the files, without an intercept, which gives the paper's numbers of features; P is the ball of
diameter D around 0, D = 2 or the one that the paper's β implies. `sparseoco.learners.domain_constants` has F, G and α.
"""

import math
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from sparseoco.core.errors import InputError
from sparseoco.datasets.tables import read_table, standardise
from sparseoco.learners.domain_constants import Constants, ball_constants
from sparseoco.papers.tables import Row

D: Final = 2.0
PLAIN: Final = "D = 2"
STANDARDISED: Final = "D = 2, standardised"
IMPLIED: Final = "D by the printed β"
SETTINGS: Final = (PLAIN, STANDARDISED, IMPLIED)
"""Features as in the file or standardised, and the diameter of P."""
PASSES: Final = 150
"""T = 150·n: the rows repeat in order."""


class TableSource(NamedTuple):
    """A data set of §4: the file, which of its columns and rows are used, and the β that the paper estimated."""

    name: str
    title: str
    file: str
    target: str
    leave_out: tuple[str, ...]
    labels: Literal["classes", "numbers"]
    rows: int | None
    beta_ons: float
    beta_onseg: float


SOURCES: Final = (
    TableSource("abalone", "Abalone", "abalone.data", "Rings", ("Sex",), "numbers", None, 4.8501e-4, 3.2813e-6),
    TableSource("kin", "Kin8nm", "kin8nm.csv", "9", (), "numbers", 3000, 3.8063e-4, 1.4715e-5),
    TableSource("ionosphere", "Ionosphere", "ionosphere.data", "1", ("3",), "classes", None, 3.7e-3, 9.2022e-5),
    TableSource("cancer", "Breast cancer", "breast.data", "1", ("2",), "classes", None, 2.5e-4, 1.0948e-5),
)
"""Left out: Sex, which is a word; a column of zeros (n = 33 in the paper); the number of a sample."""


class Dataset(NamedTuple):
    """Rows, labels (numbers, or 0 and 1 for y = −1 and +1) and constants of one experiment."""

    source: TableSource
    setting: str
    D: float
    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    constants: Constants

    @property
    def key(self) -> Row:
        """Its columns in the tables."""
        return {"experiment": self.source.name, "setting": self.setting}

    @property
    def loss(self) -> str:
        """squared or logistic."""
        return _loss(self.source)

    @property
    def rounds(self) -> int:
        """T."""
        return PASSES * len(self.features)


def _loss(source: TableSource) -> str:
    return "squared" if source.labels == "numbers" else "logistic"


def read_dataset(source: TableSource, path: Path, setting: str = PLAIN) -> Dataset:
    """A data set in one of `SETTINGS`. Raises `InputError` if the file is invalid."""
    table = read_table(path, target=source.target, labels=source.labels, leave_out=source.leave_out)
    if source.labels == "classes" and len(table.classes) != 2:
        raise InputError(
            f"{path} has {len(table.classes)} classes; {source.title} has 2.", code="wrong-number-of-classes"
        )
    table = table._replace(features=table.features[: source.rows], labels=table.labels[: source.rows])
    if setting == STANDARDISED:
        table = standardise(table)[0]
    rows = table.features, table.labels, _loss(source)
    diameter = implied_diameter(*rows, source.beta_ons) if setting == IMPLIED else D
    return Dataset(source, setting, diameter, table.features, table.labels, ball_constants(*rows, diameter))


def implied_diameter(features: NDArray[np.float64], labels: NDArray[np.float64], loss: str, beta: float) -> float:
    """The D at which β of ONS is ½·1/(4GD), with the least G that is valid on these rows and D.

    GD increases with D, so there is one. ½·α, the other half of the minimum, is left out: α of the paper is unknown.
    """

    def excess(D: float) -> float:
        return 8.0 * beta * ball_constants(features, labels, loss, D).G * D - 1.0

    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-12))


def best_fixed(dataset: Dataset) -> tuple[NDArray[np.float64], float]:
    """The point of P with the least mean loss over all rows, and that loss, to about six digits."""
    Z, y = dataset.features, dataset.labels
    signs, radius = np.where(y > 0, 1.0, -1.0), dataset.D / 2

    def mean_loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = Z @ x
        if dataset.loss == "squared":
            return float(np.mean(0.5 * (z - y) ** 2)), (z - y) @ Z / len(Z)
        slopes = -signs / (1 + np.exp(np.minimum(signs * z, 700.0)))
        return float(np.mean(np.logaddexp(0.0, -signs * z))), slopes @ Z / len(Z)

    inside = {"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x}
    found = minimize(
        mean_loss,
        np.zeros(Z.shape[1]),
        jac=True,
        method="SLSQP",
        constraints=inside,
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    x = found.x / max(1.0, np.linalg.norm(found.x) / radius)
    return x, mean_loss(x)[0]


def theorem_as_printed(d: int, T: int, F: float, D: float, r: float) -> tuple[float, float]:
    """γ of Theorem 3.1, which must be below 1, and its bound on the regret, as printed; `sparseoco.offline.bounds`
    has the corrected bound."""
    log = math.log(T)
    gamma = (15 * d**2 * D * log / (r * T)) ** (1 / 3)
    delta = (25 * d**4 * D**2 * log**2 * r / (3 * T**2)) ** (1 / 3)
    alpha = delta**2 / (d * F) ** 2
    return gamma, 6 * F * T ** (2 / 3) * (15 * d**2 * D * log / r) ** (1 / 3) + 5 * d / alpha * log


def even_marks(T: int, count: int = 60) -> list[int]:
    """Rounds evenly spaced in the logarithm, up to T."""
    return sorted({max(1, round(T ** (k / count))) for k in range(1, count + 1)})
