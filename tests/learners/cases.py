"""One case of every learner, penalty and loss, each with all choices of its parameters, and the stream they learn.

Also hard streams of sparse rows, and parameters, for the battery.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import PORTFOLIO_LOSSES
from sparseoco.learners.parameters import Parameter
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.oracles.losses import JOINT_SLOPES, KINDS

Configuration = dict[str, Any]

ROWS, HALF, FEATURES, BEFORE = 20, 10, 12, 8
LAMS = (0.0, 1e-2, 1e-4, 0.1)
SCALES = (0.01, 0.1, 0.3, 1.0)
CHOICES: dict[str, tuple[Any, ...]] = {"p": (2, 1, 1.5, "inf"), "K": (7, 1), "keep": (0.3, 1.0), "T": (500,)}
"""Of parameters that select functions, or what they compute, by a number."""
PENALISED = [(name, penalty) for name in algorithm_names("stream") for penalty in ALGORITHMS[name].penalties]
BANDITS = ("ogdeg", "onseg", "two-point")
SEE_ROWS = ("scinol",)
"""Learners that see the values of a row before they predict it."""
WILD = {"eta0": 1e9, "gamma": 1e-9, "eta": 1e9, "R": 1e9}  # values that make a learner diverge


def kinds(name: str, penalty: str, loss: str) -> list[str]:
    """The kinds of labels that a learner takes with a penalty and a loss."""
    if loss in JOINT_SLOPES or penalty == "group":
        return ["classes"]
    more = ["numbers"] if loss in ("squared", "huber") else ["label sets"] if name in algorithm_names("stream") else []
    return ["two classes", "classes", *more]


def known(parameter: Parameter) -> tuple[Any, ...]:
    """Its choices, without the predictions that come with the rows."""
    return tuple(choice for choice in parameter.choices if choice != "given")


def possible(entry: Configuration, penalty: str) -> Configuration:
    """A configuration whose options go with its penalty, and with its model of the loss or none but the linear one."""
    if penalty == "l1" and entry.get("regularizer") == "none":
        return entry | {"regularizer": "proximal"}
    if entry.get("model") != "truncated":
        return entry
    if penalty == "group" or ("schedule" in entry and penalty in ("l2", "elastic_net")):
        return entry | {"model": "linear"}
    return entry | {
        name: own for name, own in (("predict_gradient", "none"), ("schedule", "constant")) if name in entry
    }


def configurations(name: str, penalty: str = "l1") -> list[Configuration]:
    """Two of every choice, that differ in λ, or where there is none in a number that scales the steps, if any."""
    own = [
        p for p in ALGORITHMS[name].under(PENALTIES[penalty]).parameters if (penalty, p.name) != ("group", "average")
    ]
    choices = {p.name: CHOICES.get(p.name, known(p)) for p in own if p.choices or p.name in CHOICES}
    scale = next((p.name for p in own if not p.static and isinstance(p.default, float)), None)
    varied, values = ("lam", LAMS) if any(p.name == "lam" for p in own) else (scale, SCALES)
    numbers = range(max(2, *map(len, choices.values())) if choices else 2)
    chosen = [possible({name: each[i % len(each)] for name, each in choices.items()}, penalty) for i in numbers]
    each = [(entry, values[(2 * i + j) % 4]) for i, entry in enumerate(chosen) for j in range(2)]
    return [entry | ({varied: value} if varied else {}) for entry, value in each]


@cache
def rows() -> sp.csr_matrix:
    """Counts of frequent features and rare ones, whose first half has none of the last features."""
    rng = np.random.default_rng(11)
    X = rng.integers(1, 5, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 2.0 / np.arange(2, FEATURES + 2))
    X[:HALF, BEFORE:] = 0
    return sp.csr_matrix(X)


@cache
def labels(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "numbers":
        return rng.normal(size=ROWS)
    return (
        rng.random((ROWS, 3)) < 0.4
        if kind == "label sets"
        else rng.integers(0, KINDS[kind][1].get("n_classes", 2), ROWS)
    )


class Case(NamedTuple):
    """A learner; with other labels than two classes also what may come to it: float32, an intercept, sample weights,
    weights that it starts from, the exact objective."""

    name: str
    penalty: str
    loss: str
    kind: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def plain(self) -> bool:
        return self.kind == "two classes"

    @property
    def dense(self) -> bool:
        return self.name in algorithm_names("dense")

    @property
    def grid(self) -> list[Configuration]:
        return configurations(self.name, self.penalty)

    @property
    def weights(self) -> np.ndarray | None:
        return None if self.plain else np.random.default_rng(5).choice([0.0, 0.3, 1.0, 4.0], ROWS)

    def new(self, grid: Sequence[Configuration] | None = None, *, from_weights: bool = True, **changes: Any) -> Learner:
        """A learner before its first row, by default of all configurations; `changes` are of its arguments."""
        arguments = {
            "loss": self.loss,
            "penalty": self.penalty,
            "grid": grid or self.grid,
            "n_features": FEATURES,
            "dtype": "float64" if self.plain else "float32",
            "intercept": not (self.plain or self.dense or self.penalty == "box"),
            "objective": not self.plain,
        }
        learner = Learner(self.name, **arguments | KINDS[self.kind][1] | changes)
        if self.kind == "classes" and from_weights:
            given = np.zeros((learner.n_features, learner.n_outputs))
            given[:BEFORE:2] = np.random.default_rng(1).normal(0, 0.1, given[:BEFORE:2].shape)
            learner.start_from(given, 100)
        return learner

    def learn(self, learner: Learner, start: int, stop: int, **options: Any) -> Learner:
        """Learn some of the rows, without the features that the learner has not."""
        X = rows()[start:stop, : learner.n_features]
        own = None if self.weights is None else self.weights[start:stop]
        learner.learn_rows(X.indptr, X.indices, X.data, labels(self.kind)[start:stop], own, **options)
        return learner

    def learned(self, grid: Sequence[Configuration] | None = None) -> Learner:
        """A learner of all rows, with a mark in the middle and one at the end."""
        learner = self.learn(self.new(grid), 0, HALF)
        learner.measure()
        self.learn(learner, HALF, ROWS).measure()
        return learner


def cases() -> Iterator[Case]:
    """All combinations, the kinds of labels in turn."""
    turn = itertools.count()
    for name, penalty in [*PENALISED, *((name, "l1") for name in algorithm_names("dense"))]:
        for loss in ALGORITHMS[name].loss_names:
            if loss not in PORTFOLIO_LOSSES and not (loss in JOINT_SLOPES and name in BANDITS):
                own = kinds(name, penalty, loss)
                yield Case(name, penalty, loss, own[next(turn) % len(own)])


CASES = list(cases())


def covering(cases: Sequence[Any], parts: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """Some of the cases, which have every part that any of them has."""
    seen, found = set[Any](), []
    for case in itertools.chain(*(cases[first::5] for first in range(5))):
        if not seen.issuperset(own := list(parts(case))):
            seen.update(own)
            found.append(case)
    return found


COVERED = covering(
    [(name, penalty, loss) for name, penalty in PENALISED for loss in ALGORITHMS[name].loss_names],
    lambda case: itertools.combinations(case, 2),
)
"""Learners with a penalty and a loss, any two of which are in one of them."""


# ----------------------------------------------------------------------------------------------------------------------
# Hard streams of sparse rows, and parameters, for the battery.


TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
# Parameters whose hard values lie far from their grids. No round numbers: at a kink of a loss the last bit decides, and
# there two right answers differ.
HARD_VALUES = {
    "eta0": st.floats(0.0371, 2.93),
    "gamma": st.floats(0.271, 6.37),
    "lam": st.sampled_from([0.0, 1.03e-6, 1.37e-3, 0.0517, 0.319, 11.3]),
    "p": st.sampled_from([1, 2, 3, 1.5, "inf"]),
    "l1_ratio": st.sampled_from([0.0, 0.13, 0.5, 0.97]),
    "K": st.sampled_from([1, 2, 3, 7, 20]),
    "V": st.sampled_from([0.61, 500.0, 1e8]),
    "eta": st.floats(0.0371, 2.93),
    "delta": st.sampled_from([1.03e-6, 0.0217, 1.19]),
    "R": st.floats(0.0371, 5.93),
    "keep": st.sampled_from([0.173, 0.619, 1.0]),
    "average": st.just("none"),  # the mean of iterates is not what is learned with
    "seed": st.integers(0, 2**53 - 1),
}
SPREAD = (0.0371, 0.137, 0.619, 1.37, 5.93)


def is_valid(parameter: Parameter, value: object) -> bool:
    try:
        parameter.check(value)
    except ValueError:
        return False
    return True


def parameter_values(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Hard values where they are listed, else all choices, else numbers around the default and the grid."""
    if parameter.name in HARD_VALUES:
        return HARD_VALUES[parameter.name]
    if parameter.choices:
        return st.sampled_from(known(parameter))
    usual = (parameter.default, *parameter.grid)
    numbers = [value for value in usual if not isinstance(value, (bool, str))]
    spread = [value * factor for value in numbers for factor in SPREAD]
    valid = [value for value in spread if is_valid(parameter, value)]
    return st.sampled_from(valid or usual)


@dataclass
class Stream:
    """Rows of one pass, repeated `epochs` times."""

    X: np.ndarray
    y: np.ndarray
    epochs: int
    row_weights: np.ndarray | None = None

    @property
    def dense(self) -> np.ndarray:
        return np.tile(self.X, (self.epochs, 1))

    @cached_property
    def csr(self) -> sp.csr_matrix:
        return sp.csr_matrix(self.dense)

    @cached_property
    def labels(self) -> np.ndarray:
        return np.concatenate([self.y] * self.epochs)

    @cached_property
    def weights(self) -> np.ndarray | None:
        return None if self.row_weights is None else np.tile(self.row_weights, self.epochs)


@st.composite
def streams(draw: st.DrawFn, classes: int = 2, *, weighted: bool = False, kind: str = "classes") -> Stream:
    """Rare and frequent features, empty rows, one feature in every row, several epochs; weights, some of them 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 16)), draw(st.integers(1, 7))
    rates = rng.choice([0.02, 0.1, 0.5, 1.0], features)
    X = rng.normal(0, 1, (rows, features)) * (rng.random((rows, features)) < rates)
    if draw(st.booleans()):
        X = np.abs(X).round(1) * 1.0173  # counts, nearly
    X[rng.random(rows) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = 0.0
    labels: np.ndarray = rng.integers(0, classes, rows)
    if kind in ("numbers", "label sets"):
        labels = rng.normal(0, 1, rows) if kind == "numbers" else rng.random((rows, classes)) < 0.4
    epochs = draw(st.integers(1, 3))
    weights = rng.choice([0.0, 0.371, 1.0, 2.93], rows) if weighted else None
    return Stream(X, labels, epochs, weights)


@st.composite
def hard_configurations(draw: st.DrawFn, algorithm: Algorithm, penalty: str) -> dict[str, Any]:
    """A value for every parameter of the learner."""
    return possible(
        {p.name: draw(parameter_values(p)) for p in algorithm.under(PENALTIES[penalty]).parameters}, penalty
    )


@st.composite
def grids(draw: st.DrawFn, algorithm: Algorithm, penalty: str) -> list[dict[str, Any]]:
    """Two or three configurations that the same compiled code learns."""
    first = draw(hard_configurations(algorithm, penalty))
    shared = {parameter.name: first[parameter.name] for parameter in algorithm.parameters if parameter.static}
    others = draw(st.lists(hard_configurations(algorithm, penalty), min_size=1, max_size=2))
    return [first, *(other | shared for other in others)]


def at_a_jump(name: str, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether rounding decides where the recursion goes: λ·sign(w) with a w that has come to 0, or to 1e-17."""
    return name == "subgradient" and bool(((before != 0) & (np.abs(after) < 1e-11)).any())
