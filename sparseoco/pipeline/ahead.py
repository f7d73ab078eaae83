"""Kernels of a first run, compiled in a second process while the first reads the documents.

Numba compiles one kernel at a time in a process. The second process searches, trains and predicts with the options of
the run, on a store of a few documents that it need not ingest. A process waits for a kernel that the other compiles.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
from distributed.system import MEMORY_LIMIT

from sparseoco.core.compile_cache import before_compiling
from sparseoco.core.signals import install_handlers, run_and_exit
from sparseoco.execution.options import ONE_THREAD, ClusterOptions
from sparseoco.pipeline.run_file import LogOptions, RunFile
from sparseoco.pipeline.steps import run_search, run_train, train
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.terms import write_dense
from sparseoco.training.models import Model

DOCUMENTS, TERMS = 64, 8
MIN_MEMORY = 2 << 30  # bytes, of which the second process takes up to 400 MB


@contextmanager
def compiled_ahead(run: RunFile) -> Iterator[None]:
    """Inside, the first kernel that is not in the cache starts the second process, which ends with the first.

    Only where workers are on this machine, and it has a second core and memory for both.
    """
    with ExitStack() as stack:
        if run.cluster.scheduler is None and len(os.sched_getaffinity(0)) > 1 and MEMORY_LIMIT >= MIN_MEMORY:
            stack.callback(before_compiling.clear)
            before_compiling.append(lambda: _start(run, stack))
        yield


def compile_kernels(run: RunFile, folder: Path) -> None:
    """Search, train and predict as `run` does, in an empty `folder`: two classes, and a few documents of each."""
    ingest = run.ingest.model_copy(update={"store": None})
    changed = {"out": folder / "run", "ingest": ingest, "cluster": ClusterOptions(), "log": LogOptions()}
    small = run.model_copy(update=changed)
    labels = np.arange(DOCUMENTS, dtype=np.int32) % 2
    counts = np.random.default_rng(0).integers(0, 2, (DOCUMENTS, TERMS)) + np.arange(TERMS) * labels[:, None]
    write_dense(small.store, counts, labels, run.text.plain(), shard_rows=DOCUMENTS)
    # The slowest first: those of every learner, and those of predictions, which the run needs last.
    for algorithm, configuration in {each.algorithm: each for each in run.search.configurations()}.items():
        model = train(small.store, folder / algorithm, configuration, run.search, small.cluster, epochs=1)
    margins = Model(model).margins(["t1 t2"])
    run_search(small)
    run_train(small)
    Model(small.out / "model").probabilities(margins)


def _start(run: RunFile, stack: ExitStack) -> None:
    """Start the second process, which `stack` ends; the first does without where none can be started."""
    with suppress(OSError):
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD,
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        assert process.stdin is not None
        process.stdin.write(run.model_dump_json().encode() + b"\n")
        process.stdin.flush()


def _compile_for_parent() -> None:
    run = RunFile.model_validate_json(sys.stdin.buffer.readline())
    with temporary_folder() as folder:
        threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
        compile_kernels(run, folder)


def _end_with_parent(folder: Path) -> None:
    """Standard input ends when the first process does, however that ends."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    install_handlers()
    run_and_exit(_compile_for_parent)
