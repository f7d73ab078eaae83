"""How cao-rcd draws blocks of coordinates: ranges R_i, gradient bounds L_i and probabilities (Corollaries 4 and 5)."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.by_column import block_weights, coordinate_bounds, max_abs_scales, row_norms
from sparseoco.kernels.coordinate import Sampling
from sparseoco.kernels.epoch import DRAW
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners.cao_rcd import lipschitz, slope_bounds
from sparseoco.learners.losses import Loss
from sparseoco.offline.column_major import ColumnMajor, for_features

DRAWS_PART = 2**32  # part number of the draws; larger than the number of parts of caos-erm


class Draws:
    """The blocks of a configuration and their probabilities.

    Parameters
    ----------
    data : ColumnMajor
    weights : (rows,) bool or float64
        Sample weights; rows of weight 0 are not in F.
    configuration : dict
    loss : Loss
    regression : bool
        Whether labels are numbers y_j; otherwise |y_j| = 1.
    seed : int
    release : callable
        As `Coordinates`.

    Attributes
    ----------
    scale : (features,) float64
        R_i/R.
    sampling : Sampling
    nonzeros : float
        Expected number of nonzeros of a drawn block.
    """

    def __init__(
        self,
        data: ColumnMajor,
        weights: NDArray[Any],
        configuration: Mapping[str, Any],
        loss: Loss,
        *,
        regression: bool,
        seed: int,
        release: Callable[[], None],
    ) -> None:
        n, batch = data.n_features, min(int(configuration["batch"]), data.n_features)
        norms, L, self.scale = np.zeros(data.n_rows), np.zeros(n), np.ones(n)
        if configuration["scale"] == "max_abs":
            for_features(data, release, max_abs_scales, data, weights, self.scale)
        if not lipschitz(loss):
            for_features(data, release, row_norms, data, self.scale, norms)
        sizes = np.where(regression, np.abs(data.labels), 1.0)
        bounds = weights * slope_bounds(loss, norms, sizes, configuration["R"])
        for_features(data, release, coordinate_bounds, data, bounds, L)
        order = epoch_rows(seed, 0, configuration["partition"] == "random", n, 0, n, -1, 1)
        block = np.zeros(-(-n // batch))
        block_weights(L[order], self.scale[order], batch, block)
        if configuration["sample"] == "uniform":
            block = (block > 0.0).astype(np.float64)
        self._seed, self._all_nonzeros, self._cumulative = seed, int(data.indptr[-1]), np.cumsum(block)
        total = self._cumulative[-1]
        self.sampling = Sampling(L, block / total if total > 0.0 else block, order, batch)
        sizes = np.add.reduceat(np.diff(data.indptr)[order], np.arange(0, n, batch))
        self.nonzeros = math.fsum(self.sampling.chances * sizes)

    def rounds(self, wanted: Any) -> int:
        """Rounds per epoch: as configured, or as many as are expected to read every nonzero once.

        0 if there is nothing to draw.
        """
        if self._cumulative[-1] == 0.0:
            return 0
        if wanted != "pass":
            return int(wanted)
        return max(1, round(self._all_nonzeros / self.nonzeros))

    def draw(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The blocks of rounds first, first + 1, … of an epoch."""
        return np.asarray(DRAW(self._cumulative, self._seed, epoch, DRAWS_PART, first, count))
