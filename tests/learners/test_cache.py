"""Machine code is compiled once: cached on disk, found by other processes, safe when several compile it at once."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.core import compile_cache as compiling
from sparseoco.training.learner import Learner
from tests.support.damage import flip_bit

LEARNER = """
import hashlib
import numpy as np, scipy.sparse as sp
from sparseoco.training.learner import Learner
X = sp.csr_matrix(np.arange(40).reshape(8, 5) % 3)
learner = Learner("rda", loss="hinge", grid={"lam": [0.0, 1e-3]}, n_features=5, dtype="float32")
print(hashlib.sha256(learner.partial_fit(X, np.arange(8) % 2).weights().tobytes()).hexdigest())
"""
SMALL = """
import sys
import numpy as np
from sparseoco.core.compile_cache import _Cache
from sparseoco.kernels.columns import MEASURE, MEASURE_ABSOLUTE
save, saved = _Cache.save_overload, []
_Cache.save_overload = lambda *given: (saved.append(given), save(*given))
weights, norms, (absolute, squares, groups) = np.arange(6.0).reshape(3, 2) % 3, np.zeros(2), np.zeros((3, 2))
run = [lambda: MEASURE(weights, absolute, squares, groups), lambda: MEASURE_ABSOLUTE(weights, norms)]
for call in run[:: int(sys.argv[1])]:
    call()
print(len(saved), squares.tolist(), norms.tolist())
"""
RESULT = "[5.0, 5.0] [3.0, 3.0]\n"
"""Of `SMALL`, after the number of kernels that it compiled and cached."""


def start(cache: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


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
    """One of them compiles a kernel, and the others wait for it."""
    together = [start(tmp_path, SMALL, order) for order in ("1", "1", "-1")]
    counts, results = zip(*(finish(process).split(" ", 1) for process in together), strict=True)
    assert set(results) == {RESULT}
    assert sum(map(int, counts)) == 2
    paths = sorted(tmp_path.rglob("*.nb?"))
    assert len(paths) == 2
    for i, path in enumerate(paths):
        data = path.read_bytes()
        path.write_bytes(data[: i * 7 % len(data)])
    assert finish(start(tmp_path, SMALL, "1")) == f"2 {RESULT}"
    mended = files(tmp_path)
    assert finish(start(tmp_path, SMALL, "1")) == f"0 {RESULT}"
    assert files(tmp_path) == mended


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
    command = [sys.executable, "-B", "-c", SMALL, "1"]
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
