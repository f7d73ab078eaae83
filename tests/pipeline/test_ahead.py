"""The process that compiles the kernels of a first run compiles those that the run needs, and ends with it."""

import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.texts import write_run_file

RUN = """
import sys
from sparseoco.core import compile_cache
from sparseoco.pipeline.ahead import compile_kernels
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.pipeline.steps import run_all
from sparseoco.storage.locations import location

names, compile_ = [], compile_cache._compile
compile_cache._compile = lambda function, *more: (names.append(function.__name__), compile_(function, *more))[1]
run = load_run_file(location(sys.argv[1]))
compile_kernels(run, location(sys.argv[2]))
print(*names)
names.clear()
run_all(run)
print(*names)
"""
START = """
import sys
from sparseoco.core.compile_cache import before_compiling
from sparseoco.pipeline.ahead import compiled_ahead
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import location

with compiled_ahead(load_run_file(location(sys.argv[1]))):
    before_compiling.pop()()
    print("started", flush=True)
    sys.stdin.read()
"""


def test_it_compiles_what_search_train_and_evaluate_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(write_run_file(tmp_path)), str(tmp_path / "small")]
    ahead, after = (set(line.split()) for line in subprocess.check_output(command, text=True).splitlines()[-2:])
    assert {"learn", "materialize", "find_ngrams", "tokenize_words"} <= ahead
    assert "count_ngrams" in after
    assert not after & {"learn", "materialize", "evaluate", "gather", "find_ngrams"}


def test_it_ends_with_the_run_and_if_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, str(write_run_file(tmp_path))]
    for kill in (False, True):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            children = psutil.Process(process.pid).children()
            if kill:
                process.kill()
        assert len(children) == 1
        assert not psutil.wait_procs(children, timeout=60)[1]
