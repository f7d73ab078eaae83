"""Machine code has the bits of the functions that it is compiled from: each function of a learner in a kernel.

A process that does not compile learns all cases at once. Between them they have every loss and every response.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sparseoco.kernels.stream import rule_key
from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.learners.contract import Rule
from sparseoco.learners.losses import LOSSES, PORTFOLIO_LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.offline.epochs import fit_epochs
from tests.learners.cases import BANDITS, HALF, ROWS, Case, Configuration, kinds, labels, rows
from tests.oracles.losses import JOINT_SLOPES

WIDE = {"cl-fobos": "float64", "cao-ftrl": "float32"}
"""Learners that are compiled for other numbers of columns, with weights of this type."""
GRID: list[Configuration] = [{"lam": lam} for lam in (0.1, 1e-2, 1e-4, 0.0)]
WRITE = "import sys; from tests.learners import test_compiled; test_compiled.write(sys.argv[1])"
Arrays = Mapping[str, np.ndarray]


class Streamed(NamedTuple):
    """A learner of a stream, its configurations, the type of its weights, and whether they are read."""

    case: Case
    grid: list[Configuration]
    dtype: str = "float64"
    read: bool = True

    def learned(self) -> Arrays:
        """The state after all rows, and what users read."""
        learner = self.case.new(self.grid, from_weights=False, dtype=self.dtype)
        self.case.learn(self.case.learn(learner, 0, HALF), HALF, ROWS)
        own = {"weights": learner.weights()} if self.read else {}
        return own | dict(learner._arrays())


class Passed(NamedTuple):
    """An epoch method, with sample weights and an intercept."""

    name: str
    loss: str
    penalty: str
    form: Configuration

    def learned(self) -> Arrays:
        y, weights = labels("two classes"), np.random.default_rng(5).choice([0.0, 0.5, 1.0, 2.0], ROWS)
        own: dict[str, Any] = {"algorithm": self.name, "loss": self.loss, "penalty": self.penalty}
        fit = fit_epochs(rows(), y, sample_weight=weights, fit_intercept=True, grid=[{"R": 1.0} | self.form] * 2, **own)
        return {"weights": fit.weights, "intercepts": fit.intercepts, "objective": fit.objective}


def forms(case: Case) -> list[list[Configuration]]:
    """Configurations that share compiled code."""
    algorithm, found = ALGORITHMS[case.name], dict[Any, list[Configuration]]()
    for entry in case.grid:
        found.setdefault(algorithm.static_values(algorithm.configuration(entry)), []).append(entry)
    return list(found.values())


def functions(name: str, configuration: Configuration) -> set[str]:
    """What the kernel of a configuration is compiled from."""
    algorithm, loss = ALGORITHMS[name], LOSSES[ALGORITHMS[name].loss_names[0]]
    rule = algorithm.rule(loss, PENALTIES["l1"], algorithm.configuration(configuration))
    if isinstance(rule, Rule):
        return set(rule_key(rule))
    return {str(each) for each in (rule.move, rule.project, rule.begin, rule.bandit)}


def cases() -> Iterator[tuple[str, Streamed | Passed]]:
    """Losses and kinds of labels in turn."""
    turn, compiled = itertools.count(), set[str]()
    for name in (*algorithm_names("stream"), *algorithm_names("dense")):
        losses = [loss for loss in ALGORITHMS[name].loss_names if loss not in PORTFOLIO_LOSSES]
        losses = [loss for loss in losses if loss not in JOINT_SLOPES or name not in BANDITS]
        for form, grid in enumerate(forms(Case(name, "l1", "hinge", "two classes"))):
            if functions(name, grid[0]) <= compiled:
                continue
            compiled |= functions(name, grid[0])
            number = next(turn)
            loss = losses[number % len(losses)]
            own = kinds(name, "l1", loss)
            case = Case(name, "l1", loss, own[number % len(own)])
            yield f"{case} {number}", Streamed(case, grid, read=form == 0)
    group = Case("cl-fobos", "group", "softmax", "classes")
    yield str(group), Streamed(group, forms(group)[0])
    for name in WIDE:
        yield f"{name} float32", Streamed(Case(name, "l1", "logistic", "two classes"), GRID, "float32")
    for name in ("caos-erm", "cao-rcd"):
        yield name, Passed(name, "logistic", "l1", {})
        for p in ALGORITHMS[name].parameters:
            for choice in p.choices:
                if p.static and choice != p.default:
                    yield f"{name} {p.name}={choice}", Passed(name, "logistic", "l1", {p.name: choice})
    yield "cao-rcd l2", Passed("cao-rcd", "hinge", "l2", {})


CASES = dict(cases())


def write(path: str) -> None:
    """What the functions compute, in a process that does not compile."""
    np.savez(path, **{f"{name} {k}": array for name, case in CASES.items() for k, array in case.learned().items()})


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    path = tmp_path_factory.mktemp("uncompiled") / "arrays.npz"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", WRITE, str(path)], env=environment, cwd=root, check=True)
    return dict(np.load(path))


@pytest.mark.parametrize("name", CASES)
def test_machine_code_has_the_bits_of_the_functions(name: str, uncompiled: Arrays) -> None:
    for key, array in CASES[name].learned().items():
        if "float32" in name:  # NumPy rounds each operation to float32, compiled code not those with a constant
            np.testing.assert_allclose(array, uncompiled[f"{name} {key}"], 1e-5, 1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(array, uncompiled[f"{name} {key}"], key)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("nonzeros", [0, 150])
def test_columns_alone_or_with_others(name: str, nonzeros: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with kernels of their number, from the first row or from a later one on."""
    monkeypatch.setattr("sparseoco.training.columns.MANY_NONZEROS", nonzeros)
    case = Case(name, "l1", "logistic", "two classes")
    one, few, many = (
        Streamed(case, list(itertools.islice(itertools.cycle(GRID), n)), WIDE[name]).learned()["weights"]
        for n in (1, 8, 20)
    )
    assert one.tobytes() == few[:, 0].tobytes()
    for first in (0, 12):  # every fourth configuration is the same
        assert many[:, first : first + 8].tobytes() == few.tobytes()


@pytest.mark.parametrize(("name", "penalty"), [("subgradient", "l1"), ("fobos", "elastic_net"), ("cl-fobos", "group")])
def test_margins_have_the_bits_with_which_rows_are_predicted(name: str, penalty: str) -> None:
    """In float32, whose weights have been rounded unless `Rule.weight_is_float64`."""
    case, played = Case(name, penalty, "hinge", "classes"), np.empty((1, 1, 3), np.float32)
    learner = case.new([{}], from_weights=False)
    for t in range(ROWS):
        margins = learner.decision_function(rows()[t])
        case.learn(learner, t, t + 1, margins_out=played)
        assert margins.tobytes() == played.tobytes()


def test_every_loss_is_in_a_case() -> None:
    assert {case.case.loss for case in CASES.values() if isinstance(case, Streamed)} == set(LOSSES)


def test_shard_arrays_are_taken_as_they_are() -> None:
    X, (case, grid, *_) = rows(), next(case for name, case in CASES.items() if name.startswith("fobos"))
    expected = case.learn(case.new(grid, from_weights=False, dtype="float64"), 0, ROWS).weights().tobytes()
    for counts in (np.uint16, np.uint32, np.float32, np.float64):
        for index in (np.int32, np.int64):
            y = labels(case.kind).astype(float if case.kind == "numbers" else np.int32)
            arrays = X.indptr.astype(np.int64), X.indices.astype(index), X.data.astype(counts), y
            for array in arrays:
                array.flags.writeable = False
            learner = case.new(grid, from_weights=False, dtype="float64")
            learner.learn_rows(*arrays, case.weights)
            assert learner.weights().tobytes() == expected


@pytest.mark.fault(48)
def test_many_threads() -> None:
    case = next(case for name, case in CASES.items() if name.startswith("stda"))

    def learned(_: int) -> bytes:
        return b"".join(array.tobytes() for array in case.learned().values())

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(learned, range(8))) == {learned(0)}


# ----------------------------------------------------------------------------------------------------------------------
# Machine code for another processor: without AVX and fused multiply-add, in kernels, NumPy and the C library.


FIT = """
import hashlib, sys
import numpy as np
import scipy.sparse as sp
from sparseoco import Learner
random = np.random.default_rng(0)
X = sp.random(2000, 300, 0.05, "csr", random_state=random)
X.data = 1 + np.log(np.ceil(X.data * 4))
y = X @ random.normal(size=300) + random.normal(size=2000) > 0
learner = Learner(sys.argv[1], loss="logistic", n_features=300).partial_fit(X, y.astype(int))
print(hashlib.sha256(learner.weights().tobytes() + learner.progress.loss_sum.tobytes()).hexdigest())
"""
OLDEST = {
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
}


def fit(name: str, **settings: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", FIT, name]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | settings).stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adagrad", "cl-fobos", "rda"])
def test_the_same_bits_on_an_older_processor(name: str, tmp_path: Path) -> None:
    assert fit(name) == fit(name, **OLDEST, NUMBA_CACHE_DIR=str(tmp_path))
