"""Every penalty with every learner that takes it: the same bits however the work is cut."""

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.cli.options import mixture_tables, search_tables
from sparseoco.learners import ALGORITHMS
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.learners.checks import TOLERANCE
from tests.learners.streams import PENALISED
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
REFUSED = [(name, penalty) for name in ALGORITHMS for penalty in PENALTIES if penalty not in ALGORITHMS[name].penalties]


@pytest.mark.parametrize(("name", "penalty"), [pair for pair in PENALISED if pair[1] not in ("l1", "group")])
def test_the_same_bits_for_any_cut(name: str, penalty: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = sp.csr_matrix(rng.integers(1, 5, (200, 30)) * (rng.random((200, 30)) < 1.0 / np.arange(1, 31)))
    y = rng.integers(0, 2, 200)
    grid: list[dict[str, Any]] = [{"R": R} for R in (0.1, 0.5)] if penalty == "box" else [{"lam": 1e-3}, {"lam": 2.0}]

    def new(entries: list[dict[str, Any]]) -> Learner:
        return Learner(name, loss="hinge", penalty=penalty, grid=entries, n_features=30)

    whole, pieces = new(grid * 4).partial_fit(X, y), new(grid * 4)
    for start in range(0, 200, 23):
        pieces.partial_fit(X[start : start + 23], y[start : start + 23]).weights()
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state")
    assert whole.weights().any()
    assert pieces.weights().tobytes() == whole.weights().tobytes()
    for i, entry in enumerate(grid):
        alone = new([entry]).partial_fit(X, y)
        assert alone.weights().tobytes() == whole.weights_of(i).tobytes() == whole.weights_of(6 + i).tobytes()


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
@pytest.mark.parametrize("name", ["fobos", "l-fobos", "cl-fobos", "rda"])
def test_groups_keep_the_same_bits_and_drop_features_whole(name: str, loss: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = sp.csr_matrix(rng.integers(1, 5, (200, 30)) * (rng.random((200, 30)) < 1.0 / np.arange(1, 31)))
    y = rng.integers(0, 3, 200)
    lams = [1e-3, 0.5]

    def new(among: list[float]) -> Learner:
        return Learner(name, loss=loss, penalty="group", grid={"lam": among}, n_features=30, n_classes=3)

    whole, pieces = new(lams * 4).partial_fit(X, y), new(lams * 4)
    for start in range(0, 200, 23):
        pieces.partial_fit(X[start : start + 23], y[start : start + 23]).weights()
        pieces.save(tmp_path / "state")
        pieces = Learner.load(tmp_path / "state")
    assert pieces.weights().tobytes() == whole.weights().tobytes()
    for i, lam in enumerate(lams):
        assert new([lam]).partial_fit(X, y).weights().tobytes() == whole.weights_of(i).tobytes()
        assert whole.weights_of(i).tobytes() == whole.weights_of(6 + i).tobytes()
    zeros = set((whole.weights_of(1) == 0).sum(axis=1))
    untouched = {1, 2} if loss == "hinge" else set()  # weights of classes whose gradient has been 0 in every round
    assert {3} <= zeros <= {0, 3} | untouched


def test_l2_over_many_lazy_rounds_neither_underflows_nor_drifts() -> None:
    """A weight that many rounds have shrunk is the product of its factors; one shrunk away entirely is 0."""
    rounds, lams = 100_000, [1e-6, 1e-4, 1e-2, 10.0]
    learner = Learner("fobos", loss="squared", penalty="l2", grid={"eta0": 1.0, "lam": lams}, n_features=1)
    learner.partial_fit(sp.csr_matrix([[1.0]]), [1])
    learner.partial_fit(sp.csr_matrix((rounds - 1, 1)), np.zeros(rounds - 1, int))
    eta = 1 / np.sqrt(np.arange(1, rounds + 1))
    expected = [np.exp(-np.log1p(eta * lam).sum()) for lam in lams]
    np.testing.assert_allclose(learner.weights()[0], expected, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize(("name", "penalty"), REFUSED)
def test_combinations_without_meaning_are_refused_and_say_why(name: str, penalty: str) -> None:
    with raises_code("unsupported-combination", name, f"penalty={penalty!r}", ALGORITHMS[name].why):
        ALGORITHMS[name].under(PENALTIES[penalty])


def test_parameters_of_a_penalty() -> None:
    assert Learner("rda", penalty="box", n_features=3).configurations == [{"gamma": 1.0, "R": 1.0}]
    with raises_code("unknown-parameter", "'lam'"):
        Learner("fobos", penalty="box", grid={"lam": 0.1}, n_features=3)
    with raises_code("unsupported-combination", "penalty='group'"):
        Learner("fobos", penalty="group", n_features=3)
    with raises_code("invalid-parameter", "l1_ratio=1"):
        Learner("fobos", penalty="elastic_net", grid={"l1_ratio": 1}, n_features=3)


def test_the_search_of_the_command_line_takes_the_parameters_of_the_penalty() -> None:
    assert search_tables(["rda"], ["R=1,2"], "box") == {"rda": {"gamma": ANY, "R": [1.0, 2.0]}}
    assert "l1_ratio" in search_tables(["fobos"], [], "elastic_net")["fobos"]
    with raises_code("unknown-parameter", "fobos", "lam"):
        search_tables(["fobos"], ["lam=1"], "box")
    assert list(mixture_tables(["sgft.p=1,2"], "l1")) == ["sgft"]
    with raises_code("unsupported-combination", "penalty='group'"):
        mixture_tables([], "group")


def test_elastic_net_without_l1_is_l2() -> None:
    X, y = sp.csr_matrix(np.eye(5)), np.arange(5) % 2
    both = [
        Learner("fobos", penalty=name, grid=entry, n_features=5).partial_fit(X, y).weights()
        for name, entry in (("l2", {"lam": 0.1}), ("elastic_net", {"lam": 0.1, "l1_ratio": 0.0}))
    ]
    np.testing.assert_allclose(both[0], both[1], **TOLERANCE)
