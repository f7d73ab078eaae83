"""Machine code has the bits of the functions that it is compiled from: one kernel of every form of every learner.

A process that does not compile learns all cases at once. Between them they have every loss and every response.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.learners.losses import LOSSES
from sparseoco.offline.epochs import fit_epochs
from sparseoco.training.learner import Learner, state_arrays
from tests.learners.grids import bits, configurations, labels, new

ROWS, FEATURES = 60, 12
CLASSES: dict[str, int | None] = {"logistic": 2, "squared": None, "huber": None}
"""Of losses with other than three classes."""
WIDE = ("cl-fobos", "cao-ftrl")
"""Learners that are compiled for other numbers of columns and for float32."""
WRITE = "import sys; from tests.learners import test_compiled; test_compiled.write(sys.argv[1])"


def forms(name: str) -> Iterator[dict[str, Any]]:
    """The default, and as few others as have every choice that selects functions; of epoch methods one at a time."""
    selecting = [p for p in ALGORITHMS[name].parameters if p.static and p.choices]
    others = {p.name: sorted(set(p.choices) - {p.default}) for p in selecting}
    yield {}
    if ALGORITHMS[name].online:
        for number in range(max(map(len, others.values()), default=0)):
            yield {parameter: own[number] for parameter, own in others.items() if number < len(own)}
    else:
        yield from ({parameter: value} for parameter, own in others.items() for value in own)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Ids and arguments of learners."""
    for name in ALGORITHMS:
        losses = ALGORITHMS[name].loss_names if name in streaming() else ("logistic",)
        for form in forms(name):
            own = " ".join([name, *(f"{parameter}={value}" for parameter, value in form.items())])
            yield own, {"algorithm": name, "form": form, "losses": losses}
    yield "cl-fobos group", {"algorithm": "cl-fobos", "penalty": "group", "losses": ("softmax",)}
    yield "cao-rcd l2", {"algorithm": "cao-rcd", "penalty": "l2", "losses": ("hinge",)}
    for name in WIDE:
        yield f"{name} float32", {"algorithm": name, "dtype": "float32", "losses": ("logistic",)}


CASES = dict(cases())
for number, case in enumerate(CASES.values()):
    case["loss"] = case["losses"][number % len(case.pop("losses"))]


def learned(algorithm: str, loss: str, form: Any = None, columns: int = 2, **arguments: Any) -> dict[str, np.ndarray]:
    """The state after all rows, and what users read."""
    rng = np.random.default_rng(3)
    X = sp.csr_matrix(rng.lognormal(0, 1, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.3))
    classes, sets = CLASSES.get(loss, 3), loss == "squared_hinge"
    y = rng.random((ROWS, 3)) < 0.4 if sets else rng.integers(0, classes or 2, ROWS)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], ROWS)
    entries = itertools.islice(itertools.cycle(configurations(algorithm)[::-1]), columns)
    others = [p for p in ALGORITHMS[algorithm].parameters if p.choices and not p.static]
    choices: list[dict[str, Any]] = [{p.name: p.choices[i] for p in others} for i in (0, -1)]
    grid = [entry | choices[i % 2] | (form or {}) for i, entry in enumerate(entries)]
    if not ALGORITHMS[algorithm].online:
        own = {"algorithm": algorithm, "loss": loss, "grid": grid, "n_classes": classes} | arguments
        fit = fit_epochs(X, y, sample_weight=weights, fit_intercept=True, **own)
        return {"weights": fit.weights, "intercepts": fit.intercepts, "objective": fit.objective}
    learner = Learner(
        algorithm,
        loss=loss,
        grid=grid,
        n_features=FEATURES,
        n_classes=classes,
        multilabel=sets,
        intercept=algorithm in streaming(),
        **arguments,
    )
    learner.partial_fit(X[:40], y[:40], weights[:40]).partial_fit(X[40:], y[40:])
    arrays = dict(state_arrays([block for _, block in learner._blocks], learner.history))
    if not form:
        arrays["weights"] = learner.weights()
    return arrays


def write(path: str) -> None:
    """What the functions compute, in a process that does not compile."""
    np.savez(path, **{f"{name} {k}": array for name, case in CASES.items() for k, array in learned(**case).items()})


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("uncompiled") / "arrays.npz"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", WRITE, str(path)], env=environment, cwd=root, check=True)
    return dict(np.load(path))


@pytest.mark.parametrize("name", CASES)
def test_machine_code_has_the_bits_of_the_functions(name: str, uncompiled: dict[str, np.ndarray]) -> None:
    for key, array in learned(**CASES[name]).items():
        if "float32" in name:  # NumPy rounds each operation to float32, compiled code not those with a constant
            np.testing.assert_allclose(array, uncompiled[f"{name} {key}"], 1e-5, 1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(array, uncompiled[f"{name} {key}"], key)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("nonzeros", [0, 150])
def test_columns_alone_or_with_others(name: str, dtype: str, nonzeros: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with kernels of their number, from the first row or from a later one on."""
    monkeypatch.setattr("sparseoco.training.columns.MANY_NONZEROS", nonzeros)
    one, few, many = (learned(name, "logistic", columns=n, dtype=dtype)["weights"] for n in (1, 8, 20))
    assert one.tobytes() == few[:, 0].tobytes()
    for first in (0, 12):  # every fourth configuration is the same
        assert many[:, first : first + 8].tobytes() == few.tobytes()


@pytest.mark.parametrize(("name", "penalty"), [("subgradient", "l1"), ("fobos", "elastic_net"), ("cl-fobos", "group")])
def test_margins_have_the_bits_with_which_rows_are_predicted(name: str, penalty: str, data: tuple) -> None:
    """In float32, whose weights have been rounded unless `Rule.weight_is_float64`."""
    (X, _), y = data, labels(3)
    learner = Learner(name, loss="hinge", penalty=penalty, n_features=FEATURES, n_classes=3, dtype="float32")
    X = X[:, :FEATURES].multiply(0.37).tocsr()
    for i in range(ROWS):
        row, played = X[i], np.empty((1, 1, 3), np.float32)
        z = learner.decision_function(row)
        learner.learn_rows(row.indptr, row.indices, row.data, y[i : i + 1], margins_out=played)
        assert z.tobytes() == played.tobytes()


def test_every_loss_is_in_a_case() -> None:
    assert {case["loss"] for case in CASES.values()} == set(LOSSES)


def test_shard_arrays_are_taken_as_they_are(data: tuple) -> None:
    X, y = data
    expected = new("fobos", "logistic", "float64").partial_fit(X, y).weights().tobytes()
    for counts in (np.uint16, np.uint32, np.float32, np.float64):
        for index in (np.int32, np.int64):
            arrays = X.indptr.astype(np.int64), X.indices.astype(index), X.data.astype(counts), y.astype(np.int32)
            for array in arrays:
                array.flags.writeable = False
            learner = new("fobos", "logistic", "float64")
            learner.learn_rows(*arrays)
            assert learner.weights().tobytes() == expected


@pytest.mark.fault(48)
def test_many_threads(data: tuple) -> None:
    X, y = data
    expected = bits(new("stda", "logistic", "float64").partial_fit(X, y))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: bits(new("stda", "logistic", "float64").partial_fit(X, y)), range(8)))
    assert set(results) == {expected}
