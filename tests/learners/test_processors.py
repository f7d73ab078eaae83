"""Machine code for another processor: without AVX and fused multiply-add, in kernels, NumPy and the C library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
