"""Machine code has the bits of the functions that it is compiled from: each function of a learner in a kernel.

A process that does not compile learns all cases at once. Between them they have every loss and every response.
"""

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.core import compile_cache as compiling
from sparseoco.kernels.stream import bind, rule_key, store, unused
from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.learners.contract import RowInfo, Rule, advance_clock, see_row
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.offline.epochs import fit_epochs
from sparseoco.training.learner import Learner
from tests.learners.cases import BANDITS, HALF, PENALISED, ROWS, Case, Configuration, labels, rows
from tests.support.damage import flip_bit

GIVEN = 4
"""The round before which a weight is given."""
SHARE = 10
"""Rules of one kernel."""
FLOAT32 = ("cl-fobos", "adagrad")
WIDE = {"cl-fobos": "float32", "rda": "float64"}
"""Learners that are compiled for other numbers of columns, with weights of this type."""
LEARNED = {
    "fobos": ("elastic_net", "squared_hinge", "classes"),
    "cl-fobos": ("l1", "logistic", "classes"),
    "rda": ("l1", "squared", "numbers"),
    "stda": ("l1", "logistic", "classes"),
    "adagrad": ("l1", "logistic", "label sets"),
    "ftrl-proximal": ("l1", "huber", "numbers"),
    "arow": ("l1", "hinge", "two classes"),
    "passive-aggressive": ("l1", "multiclass_hinge", "classes"),
    "scinol": ("l1", "softmax", "classes"),
}
"""Learners whose loop over rows is compared, with a penalty, a loss and labels: every option of the loop is in one."""
GRID: list[Configuration] = [{"lam": lam} for lam in (0.1, 1e-2, 1e-4, 0.0)]
WRITE = "import sys; from tests.learners import test_compiled; test_compiled.write(sys.argv[1])"
Arrays = Mapping[str, np.ndarray]


class Streamed(NamedTuple):
    """A learner of a stream, its configurations and the type of its weights."""

    case: Case
    grid: list[Configuration]
    dtype: str = "float64"

    def learned(self) -> Arrays:
        """The state after all rows, and what users read; the norms of one learner are tracked."""
        options = {"dtype": self.dtype, "objective": self.case.name == "cl-fobos" and not self.case.plain}
        learner = self.case.new(self.grid, from_weights=False, **options)
        self.case.learn(self.case.learn(learner, 0, HALF), HALF, ROWS)
        return {"weights": learner.weights()} | dict(learner._arrays())


class Played(NamedTuple):
    """Functions of rules whose loop over rows is not compared, in one kernel: each has one coordinate."""

    rules: dict[str, tuple[Rule, list[list[float]]]]
    """Rules and the params of their configurations."""

    def learned(self) -> Arrays:
        """Weights in every round, without the feature until a weight is given, and the state after the last."""
        rules = [rule for rule, _ in self.rules.values()]
        kernel = compiling.compiled(in_turn([build_rounds(rule) for rule in rules]), *map(str, map(rule_key, rules)))
        x = np.random.default_rng(2).choice([0.0, 0.7, -2.3], ROWS) * (np.arange(ROWS) >= GIVEN)
        columns = max(len(params) for _, params in self.rules.values())
        kinds = [(rule.params, rule.scalars, rule.state) for rule in rules]
        fields = (max(len(kind._fields) for kind in of_rules) for of_rules in zip(*kinds, strict=True))
        arrays = [np.zeros((SHARE, rows, columns)) for rows in (*fields, ROWS)]
        for own, (_, params) in zip(arrays[0], self.rules.values(), strict=False):
            own[: len(params[0])] = np.array(params * columns).T[:, :columns]
        kernel(x, *arrays)
        return {f"{name} {k}": a[number] for number, name in enumerate(self.rules) for k, a in enumerate(arrays)}


def build_rounds(rule: Rule) -> Any:
    """Rounds of one coordinate, as in `sparseoco.kernels.stream`; in every fourth the slope is 0."""
    functions, timed, needs_row_norm, start = bind(rule), rule.clock_time is not None, rule.needs_row_norm, rule.start

    def rounds(x, params, scalars, state, out):  # type: ignore[no-untyped-def]
        f, last, clock = functions(), 0.0, start
        for t in range(x.shape[0]):
            if needs_row_norm:
                clock = see_row(clock, abs(x[t]))
            now = f.clock_time(clock)
            if t == GIVEN:
                last = f.time_after_update(clock)
            elapsed = now - last if timed else 0.0
            for c in range(params.shape[1]):
                store(scalars, c, f.round_scalars(clock, f.read_params(params, c), f.maps))
                own = f.read_scalars(scalars, c)
                if t == GIVEN:
                    store(state, c, f.state_from_weight(0.004, own, f.maps))
                before = f.read_state(state, c)
                out[t, c] = f.weight(before, elapsed, own, f.maps)
                if x[t] != 0.0:
                    slope = 0.0 if t % 4 == 3 else 0.3 if out[t, c] > 0.002 else -0.2
                    row = RowInfo(x[t], 0.4, abs(x[t]), x[t] * x[t], 0.6, 9.0 * slope * slope, 0.2, 1.5)
                    store(state, c, f.update(before, elapsed, own, slope * x[t], row, f.maps))
                store(params, c, f.advance(clock, f.read_params(params, c)))
            if x[t] != 0.0:
                last = now
            clock = advance_clock(clock)

    return rounds


def in_turn(functions: list[Any]) -> Any:
    """A function that calls them all, each with arrays of its own: of one that calls the next, code is made twice."""
    a, b, c, d, e, f, g, h, i, j = [*map(compiling.register_jitable, functions), *[unused] * SHARE][:SHARE]

    def each(x, params, scalars, state, out):  # type: ignore[no-untyped-def]
        a(x, params[0], scalars[0], state[0], out[0])
        b(x, params[1], scalars[1], state[1], out[1])
        c(x, params[2], scalars[2], state[2], out[2])
        d(x, params[3], scalars[3], state[3], out[3])
        e(x, params[4], scalars[4], state[4], out[4])
        f(x, params[5], scalars[5], state[5], out[5])
        g(x, params[6], scalars[6], state[6], out[6])
        h(x, params[7], scalars[7], state[7], out[7])
        i(x, params[8], scalars[8], state[8], out[8])
        j(x, params[9], scalars[9], state[9], out[9])

    return each


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
    algorithm, found = ALGORITHMS[case.name].under(PENALTIES[case.penalty]), dict[Any, list[Configuration]]()
    for entry in case.grid:
        found.setdefault(algorithm.static_values(algorithm.configuration(entry)), []).append(entry)
    return list(found.values())


def rule_of(case: Case, entry: Configuration) -> Any:
    algorithm, penalty = ALGORITHMS[case.name], PENALTIES[case.penalty]
    return algorithm.rule(LOSSES[case.loss], penalty, algorithm.under(penalty).configuration(entry))


def functions(rule: Any) -> set[str]:
    """What its kernel is compiled from."""
    if isinstance(rule, Rule):
        return set(rule_key(rule))
    return {str(each) for each in (rule.move, rule.project, rule.begin, rule.played)}


def cases() -> Iterator[tuple[str, Streamed | Played | Passed]]:
    seen = set[str]()
    for name, own in LEARNED.items():
        case = Case(name, *own)
        seen |= functions(rule_of(case, case.grid[0]))
        yield name, Streamed(case, forms(case)[0])
    joint = Case("adagrad", "l1", "softmax", "classes")  # sums over the row and over the classes
    truncated = next(grid for grid in forms(joint) if grid[0]["model"] == "truncated")
    seen |= functions(rule_of(joint, truncated[0]))
    yield "adagrad truncated", Streamed(joint, truncated)
    rules: dict[str, tuple[Rule, list[list[float]]]] = {}
    for name, penalty in PENALISED:
        algorithm = ALGORITHMS[name].under(PENALTIES[penalty])
        for loss in algorithm.loss_names if penalty != "group" else ():
            case = Case(name, penalty, loss, "classes")
            for grid in forms(case):
                rule = rule_of(case, grid[0])
                if not functions(rule) <= seen:
                    seen |= functions(rule)
                    params = [algorithm.numbers(algorithm.configuration(entry), rule.param_names) for entry in grid]
                    rules[f"{case} {grid[0]}"] = rule, params
    for first in range(0, len(rules), SHARE):
        yield f"functions {first // SHARE}", Played(dict(itertools.islice(rules.items(), first, first + SHARE)))
    for name in algorithm_names("dense"):
        case = Case(name, "l1", *(("squared", "numbers") if name in BANDITS else ("logistic", "classes")))
        for turn, grid in enumerate(forms(case)):
            if not functions(rule_of(case, grid[0])) <= seen:
                seen |= functions(rule_of(case, grid[0]))
                yield f"{name} {turn}", Streamed(case, grid)
    group = Case("cl-fobos", "group", "softmax", "classes")
    yield str(group), Streamed(group, forms(group)[0])
    for name in FLOAT32:
        yield f"{name} float32", Streamed(Case(name, "l1", "logistic", "two classes"), GRID, "float32")
    for name in ("caos-erm", "cao-rcd"):
        yield name, Passed(name, "logistic", "l1", {})
        for p in ALGORITHMS[name].parameters:
            for choice in p.choices:
                if p.static and choice != p.default:
                    own = {"estimate": "sampled"} if choice == "previous" else {}
                    yield f"{name} {p.name}={choice}", Passed(name, "logistic", "l1", own | {p.name: choice})
    yield "cao-rcd l2", Passed("cao-rcd", "logistic", "l2", {})
    yield "cao-rcd with a kink", Passed("cao-rcd", "squared_hinge", "l1", {})


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
@pytest.mark.parametrize("first", [0, HALF])
def test_columns_alone_or_with_others(name: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with kernels of their number, from the first row or from a later one on."""
    monkeypatch.setattr("sparseoco.training.learner.MANY_NONZEROS", rows()[:first].nnz + 1)
    case = Case(name, "l1", "logistic", "two classes")
    one, few, many = (
        Streamed(case, list(itertools.islice(itertools.cycle(GRID), n)), WIDE[name]).learned()["weights"]
        for n in (1, 8, 20)
    )
    assert one.tobytes() == few[:, 0].tobytes()
    for own in (many[:, :8], many[:, 12:]):  # every fourth configuration is the same
        assert own.tobytes() == few.tobytes()


@pytest.mark.parametrize(("name", "penalty"), [("subgradient", "l1"), ("adagrad", "l1"), ("cl-fobos", "group")])
def test_margins_have_the_bits_with_which_rows_are_predicted(name: str, penalty: str) -> None:
    """In float32, whose weights have been rounded unless `Rule.weight_is_float64`."""
    case, played = Case(name, penalty, "logistic", "classes"), np.empty((1, 1, 3), np.float32)
    learner = case.new([{}], from_weights=False)
    for t in range(ROWS):
        margins = learner.decision_function(rows()[t])
        case.learn(learner, t, t + 1, margins_out=played)
        assert margins.tobytes() == played.tobytes()


def test_every_loss_is_in_a_case() -> None:
    assert {case.case.loss for case in CASES.values() if isinstance(case, Streamed)} == set(LOSSES)


def test_shard_arrays_are_taken_as_they_are() -> None:
    X, case = rows(), Case("fobos", *LEARNED["fobos"])
    expected = case.learn(case.new([{}], from_weights=False, dtype="float64"), 0, ROWS).weights().tobytes()
    for counts in (np.uint16, np.uint32, np.float32, np.float64):
        for index in (np.int32, np.int64):
            y = labels(case.kind).astype(float if case.kind == "numbers" else np.int32)
            arrays = X.indptr.astype(np.int64), X.indices.astype(index), X.data.astype(counts), y
            for array in arrays:
                array.flags.writeable = False
            learner = case.new([{}], from_weights=False, dtype="float64")
            learner.learn_rows(*arrays, case.weights)
            assert learner.weights().tobytes() == expected


@pytest.mark.fault(48)
def test_many_threads() -> None:
    def learned(_: int) -> bytes:
        return b"".join(array.tobytes() for array in CASES["stda"].learned().values())

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


# ----------------------------------------------------------------------------------------------------------------------
# The cache of machine code.


LEARNER = """
import hashlib
import numpy as np, scipy.sparse as sp
from sparseoco.training.learner import Learner
X = sp.csr_matrix(np.arange(40).reshape(8, 5) % 3)
learner = Learner("rda", loss="hinge", grid={"lam": [0.0, 1e-3]}, n_features=5, dtype="float32")
print(hashlib.sha256(learner.partial_fit(X, np.arange(8) % 2).weights().tobytes()).hexdigest())
"""
SMALL = """
import numpy as np
from sparseoco.core.compile_cache import _Cache
from sparseoco.kernels.columns import MEASURE, MEASURE_ABSOLUTE
save, saved = _Cache.save_overload, []
_Cache.save_overload = lambda *given: (saved.append(given), save(*given))
weights, norms, (absolute, squares, groups) = np.arange(6.0).reshape(3, 2) % 3, np.zeros(2), np.zeros((3, 2))
MEASURE(weights, absolute, squares, groups)
MEASURE_ABSOLUTE(weights, norms)
print(len(saved), squares.tolist(), norms.tolist())
"""
RESULT = "[5.0, 5.0] [3.0, 3.0]\n"
"""Of `SMALL`, after the number of kernels that it compiled and cached."""


def start(cache: Path, script: str) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return output


def files(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}


@pytest.mark.slow  # as the next one, which is in the gate
def test_a_second_process_finds_the_kernels_of_a_learner(tmp_path: Path) -> None:
    """What a kernel is closed over is identified in the same way by every process."""
    first = finish(start(tmp_path, LEARNER))
    before = files(tmp_path)
    assert len(before) == 3  # the loss, learn and materialize
    assert finish(start(tmp_path, LEARNER)) == first
    assert files(tmp_path) == before


@pytest.mark.fault(21)
def test_processes_that_compile_at_once_and_files_cut_short(tmp_path: Path) -> None:
    """One of them compiles a kernel, and the other waits for it."""
    together = [start(tmp_path, SMALL) for _ in range(2)]
    counts, results = zip(*(finish(process).split(" ", 1) for process in together), strict=True)
    assert set(results) == {RESULT}
    assert sum(map(int, counts)) == 2
    paths = sorted(tmp_path.rglob("*.nb?"))
    assert len(paths) == 2
    for i, path in enumerate(paths):
        data = path.read_bytes()
        path.write_bytes(data[: i * 7 % len(data)])
    assert finish(start(tmp_path, SMALL)) == f"2 {RESULT}"


def twice(x: int) -> int:
    return 2 * x


def thrice(x: int) -> int:
    return 3 * x


@pytest.mark.fault(21)
def test_damaged_machine_code_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flipped, cut, or written for another kernel; in a folder to which others may write it is not cached at all."""
    numba.config.reload_config()  # else the first compilation does it, if an earlier test has changed the environment
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    compiled: list[object] = []
    save = compiling._Cache.save_overload
    monkeypatch.setattr(compiling._Cache, "save_overload", lambda *given: (compiled.append(given), save(*given)))
    rng = random.Random(0)

    def run() -> int:
        """Calls both functions; returns how many were compiled."""
        compiled.clear()
        for function, expected in ((twice, 14), (thrice, 21)):
            assert compiling._compile(function, [], (numba.int64,), False)(7) == expected
        return len(compiled)

    assert (run(), run()) == (2, 0)
    paths = sorted(tmp_path.rglob("*.nbc"))
    first, second = (path.read_bytes() for path in paths)
    for _ in range(4):
        flip_bit(paths[0], rng)
        assert (run(), run()) == (1, 0)
    paths[0].write_bytes(first[: rng.randrange(len(first))])
    assert (run(), run()) == (1, 0)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    assert (run(), run()) == (2, 0)
    monkeypatch.setattr(compiling._Cache, "load_overload", lambda *_: pytest.fail("loaded from an unsafe folder"))
    paths[0].parent.chmod(0o777)
    assert run() == 0


def test_no_folder_for_the_cache(tmp_path: Path) -> None:
    """A package and a home that cannot be written: compiled without a cache, same results."""
    package = tmp_path / "site" / "sparseoco"
    shutil.copytree(Path(compiling.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "__pycache__").touch()
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package.parent), "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    command = [sys.executable, "-B", "-c", SMALL]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert finish(process).split(" ", 1)[1] == RESULT


def test_nothing_is_compiled_again_for_a_grid_of_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sp.csr_matrix(np.eye(6)), np.arange(6) % 2

    def train(lams: list[float], n_features: int) -> None:
        learner = Learner("fobos", grid={"lam": lams}, n_features=n_features)
        learner.partial_fit(sp.csr_matrix((X.data, X.indices, X.indptr), (6, n_features)), y).weights()
        learner.decision_function(sp.csr_matrix((6, n_features)))

    for lams in ([0.1, 0.2], [0.1] * 20):  # few columns, and any number
        train(lams, 6)
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    train([0.3, 0.4, 0.5], 9)
    train([0.3] * 40, 6)
