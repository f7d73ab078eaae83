"""Machine code is made once: kept on disk, found by other processes, safe when several make it at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.core import compile_cache as compiling
from sparseoco.training.learner import Learner

SCRIPT = """
import hashlib, sys, time
import numpy as np, scipy.sparse as sp
start = time.perf_counter()
from sparseoco.training.learner import Learner
X = sp.csr_matrix(np.arange(40).reshape(8, 5) % 3)
digest = hashlib.sha256()
for name in sys.argv[1:]:
    learner = Learner(name, loss="hinge", grid={"lam": [0.0, 1e-3]}, n_features=5, dtype="float32")
    digest.update(learner.partial_fit(X, np.arange(8) % 2).weights().tobytes())
print(digest.hexdigest(), time.perf_counter() - start)
"""


def start(cache: Path, *names: str) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *names], stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[str, float]:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    digest, seconds = output.split()
    return digest, float(seconds)


def files(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("stream.*.nb?")}


@pytest.mark.slow
def test_a_second_process_finds_the_machine_code(tmp_path: Path) -> None:
    first, _ = finish(start(tmp_path, "fobos"))
    before = files(tmp_path)
    assert len(before) == 4  # learn and sweep, an index and a body each
    second, seconds = finish(start(tmp_path, "fobos"))
    assert (first, before) == (second, files(tmp_path))
    assert seconds < 1.5  # 0.4 s on a quiet machine, numba's own start included


@pytest.mark.slow
def test_processes_that_compile_at_once_and_files_cut_short(tmp_path: Path) -> None:
    expected, _ = finish(start(tmp_path / "alone", "fobos", "rda"))
    together = [start(tmp_path / "shared", *names) for names in (("fobos", "rda"), ("rda", "fobos"))]
    digests = [finish(process)[0] for process in together]
    assert digests[0] == expected
    assert finish(start(tmp_path / "shared", "fobos", "rda"))[0] == expected
    for i, path in enumerate(sorted((tmp_path / "shared").rglob("stream.*.nb?"))):
        data = path.read_bytes()
        path.write_bytes(data[: i * 7 % len(data)])
    assert finish(start(tmp_path / "shared", "fobos", "rda"))[0] == expected
    mended = files(tmp_path / "shared")
    assert finish(start(tmp_path / "shared", "fobos", "rda"))[0] == expected
    assert files(tmp_path / "shared") == mended


@pytest.mark.slow
def test_no_folder_for_the_cache(tmp_path: Path) -> None:
    """A package and a home that cannot be written: compiled without a cache, same weights."""
    package = tmp_path / "site" / "sparseoco"
    shutil.copytree(Path(compiling.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package.parent), "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    block = "import pathlib\nfor part in ('kernels',): (pathlib.Path(sys.argv.pop()) / part / '__pycache__').touch()\n"
    script = f"import sys\nsys.dont_write_bytecode = True\n{block}{SCRIPT}"
    command = [sys.executable, "-c", script, "fobos", str(package)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert finish(process)[0] == finish(start(tmp_path / "cache", "fobos"))[0]


def test_nothing_is_compiled_again_for_a_grid_of_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import scipy.sparse as sp

    X, y = sp.csr_matrix(np.eye(6)), np.arange(6) % 2

    def train(lams: list[float], n_features: int) -> None:
        learner = Learner("fobos", grid={"lam": lams}, n_features=n_features)
        learner.partial_fit(sp.csr_matrix((X.data, X.indices, X.indptr), (6, n_features)), y).weights()
        learner.decision_function(sp.csr_matrix((6, n_features)))

    train([0.1, 0.2], 6)
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    train([0.3, 0.4, 0.5], 9)
    train([0.3] * 40, 6)
