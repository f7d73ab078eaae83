"""Configurations selected from a grid continue with the bits that they would have had in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparseoco.training.learner import Learner
from tests.learners.grids import CASES, FEATURES, LAMS, bits, labels, new
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas

CHOSEN = [3, 0, 2]


@pytest.mark.parametrize(("name", "loss", "dtype", "classes"), CASES)
def test_selected_configurations_continue_with_the_same_bits(
    name: str, loss: str, dtype: str, classes: int, data: tuple, saved: Callable[[Learner], bytes], tmp_path: Path
) -> None:
    X, y = data[0], labels(classes)
    wide = new(name, loss, dtype, classes=classes).partial_fit(X[:60], y[:60])
    some, one = wide.select(CHOSEN), wide.select([2])
    for learner in (wide, some, one):
        learner.partial_fit(X[60:], y[60:])
    again = wide.select([0, 2, 3]).select([2, 0, 1])
    for learner, chosen in ((some, CHOSEN), (one, [2]), (again, CHOSEN)):
        assert learner.configurations == [wide.configurations[i] for i in chosen]
        for i, number in enumerate(chosen):
            assert learner.weights_of(i).tobytes() == wide.weights_of(number).tobytes()
        for own, whole in zip(learner.progress[1:], wide.progress[1:], strict=True):
            assert own.tobytes() == whole[chosen].tobytes()
    assert bits(some) == bits(again)
    # Nothing is left of the others: the file is that of a learner that never had them.
    alone = Learner(name, loss=loss, grid=some.configurations, n_features=FEATURES, n_classes=classes, dtype=dtype)
    assert saved(alone.partial_fit(X, y)) == saved(some) == saved(again)
    assert bits(Learner.load(tmp_path / "learner")) == bits(some)


@pytest.mark.parametrize(
    ("name", "grid", "loss", "penalty"),
    [
        ("stda", {"p": [1, 2, "inf"], "by": ["feature", "subgradient"]}, "logistic", "l1"),
        ("fobos", {"eta0": [0.1, 0.2, 0.3], "l1_ratio": [0.1, 0.5]}, "logistic", "elastic_net"),
        ("cl-fobos", {"eta0": [0.1, 0.2, 0.3], "step": ["sqrt", "constant"]}, "hinge", "l1"),
        ("l-fobos", {"K": [1, 7, 50], "lam": [1e-3, 1e-2]}, "logistic", "l1"),
        ("rda", {"lam": [1e-3, 1e-2, 0.1], "gamma": [1.0, 2.0]}, "softmax", "group"),
        ("caos-ftrl", {"predict_gradient": ["last", "mean", "none"], "seed": [1, 2]}, "logistic", "l1"),
    ],
)
def test_blocks_penalties_marks_and_objectives(
    name: str, grid: dict, loss: str, penalty: str, data: tuple, saved: Callable[[Learner], bytes], tmp_path: Path
) -> None:
    classes = 3 if penalty == "group" else 2
    X, y = data[0], labels(classes)

    def learner(grid: object) -> Learner:
        return Learner(
            name, loss=loss, penalty=penalty, grid=grid, n_features=FEATURES, n_classes=classes, objective=True
        )

    wide = learner(grid)
    wide.partial_fit(X[:100], y[:100]).mark()
    some = wide.select([5, 1, 2])
    saved(wide.select([3]))
    one = Learner.load(tmp_path / "learner")
    narrow, alone = learner(some.configurations), learner(one.configurations)
    for fresh in (narrow, alone):
        fresh.partial_fit(X[:100], y[:100]).mark()
    for each in (some, one, narrow, alone):
        each.partial_fit(X[100:], y[100:]).mark()
    for own, fresh in ((some, narrow), (one, alone)):
        assert bits(own) == bits(fresh)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(own.history, fresh.history, strict=True))


def test_a_diverged_configuration_stays_diverged(data: tuple) -> None:
    X, y = data
    wide = Learner("fobos", grid=[{"eta0": 0.1}, {"eta0": 1e9}, {"eta0": 0.2}], n_features=FEATURES)
    wide.partial_fit(X[:100], y[:100])
    fell = wide.diverged[1]
    chosen = wide.select([1, 2]).partial_fit(X[100:], y[100:])
    assert fell > 0
    assert chosen.diverged.tolist() == [fell, 0]


def test_unknown_configuration_numbers(data: tuple) -> None:
    learner = Learner("fobos", grid={"lam": LAMS}, n_features=FEATURES)
    for number in (4, -1):
        with raises_code("unknown-configuration", number, "0 … 3"):
            learner.select([0, number])
    with raises_code("invalid-grid"):
        learner.select([])
