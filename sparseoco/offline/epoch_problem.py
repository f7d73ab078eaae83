"""The problem of an epoch method: configurations, loss, penalty, and the columns they train."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.binding import MEASURE
from sparseoco.kernels.epoch import EpochColumns
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.learners.penalties import Penalty, find_penalty, penalty_values
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import PassRequest
from sparseoco.training.grid import Grid, expand, group_by_static
from sparseoco.training.validation import output_shape


class Problem(NamedTuple):
    """Configurations of one epoch method, their loss and penalty; `positive` as in `EpochColumns`."""

    algorithm: Algorithm
    loss: Loss
    penalty: Penalty
    configurations: tuple[dict[str, Any], ...]
    positive: tuple[int, ...]
    n_features: int
    intercept: bool = False
    """Whether one more feature, the last one, is 1 in every row and has no penalty."""

    @classmethod
    def of(
        cls,
        algorithm: str,
        loss: str,
        penalty: str,
        grid: Grid | None,
        n_classes: int | None,
        n_features: int,
        *,
        intercept: bool = False,
    ) -> "Problem":
        """A checked problem. Raises `InputError` for unknown names and unsupported combinations."""
        loss_, penalty_ = find_loss(loss), find_penalty(penalty)
        definition = find_algorithm(algorithm).under(penalty_)
        if definition.online:
            raise InputError(f"{algorithm} learns from a stream: use sparseoco.Learner.", code="unsupported-algorithm")
        outputs, response = output_shape(loss_, n_classes)
        positive = {"regression": (-1,), "binary": (1,)}.get(response, tuple(range(outputs)))
        problem = cls(definition, loss_, penalty_, tuple(expand(definition, grid)), positive, n_features, intercept)
        problem.groups()
        return problem

    @property
    def outputs(self) -> int:
        """Columns per configuration."""
        return len(self.positive)

    @property
    def coordinates(self) -> int:
        """Features, including the intercept."""
        return self.n_features + self.intercept

    def split(self, weights: Floats) -> tuple[Floats, Floats]:
        """(weights (n_features, columns), intercepts (configurations, outputs)) of (coordinates, columns)."""
        features, shape = weights[: self.n_features], (len(self.configurations), self.outputs)
        return features, weights[-1].reshape(shape) if self.intercept else np.zeros(shape)

    @property
    def response(self) -> str:
        """The function of `kernels.responses` that evaluates margins."""
        return "one_vs_rest" if self.outputs > 1 else "binary" if self.positive[0] == 1 else "regression"

    @property
    def pass_request(self) -> PassRequest:
        """The request of a full pass."""
        return PassRequest(self.loss.name, self.positive * len(self.configurations))

    def groups(self) -> list[tuple[list[int], "Problem"]]:
        """Groups of configurations that share their rounds: their indices, and a problem of that group."""
        for configuration in self.configurations:
            self.algorithm.rule(self.loss, self.penalty, configuration)  # raises for unsupported combinations
        return [
            (members, self._replace(configurations=tuple(self.configurations[i] for i in members)))
            for members in group_by_static(self.algorithm, self.configurations)
        ]

    def sampled(self) -> EpochColumns:
        """The state before the first round, for configurations that share their rounds."""
        columns = self.loss, self.penalty, self.configurations, self.positive
        return EpochColumns(*columns, self.coordinates, intercept=self.intercept)

    def penalties(self, weights: Floats) -> Floats:
        """(configurations,): αψ of weights (n_features, columns)."""
        size = len(self.configurations)
        absolute, squares, norms = np.zeros(size * self.outputs), np.zeros(size * self.outputs), np.zeros(size)
        MEASURE(weights, absolute, squares, norms)
        ratio = np.repeat([c.get("l1_ratio", 0.0) for c in self.configurations], self.outputs)
        alpha = np.array([c.get("alpha", 0.0) for c in self.configurations])  # a box has none
        values = penalty_values(self.penalty, absolute, squares, norms, ratio)
        return np.asarray(alpha * self.by_configuration(values))

    def by_configuration(self, values: NDArray[Any]) -> NDArray[Any]:
        """(columns,) summed over the outputs of each configuration."""
        return np.asarray(values.reshape(-1, self.outputs).sum(axis=1))

    def diverged(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """(configurations,): the first round in which a column of each diverged, or 0."""
        rounds = columns.reshape(-1, self.outputs)
        first = np.where(rounds > 0, rounds, np.iinfo(np.int64).max).min(axis=1)
        return np.where((rounds > 0).any(axis=1), first, 0)
