"""The process that compiles the kernels of a first run compiles those that the run needs, and ends with it."""

import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.texts import write_run_file

RUN = """
import sys
from sparseoco.core import compile_cache
from sparseoco.pipeline.ahead import compile_kernels, compiled_ahead
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
for _ in range(2):
    with compiled_ahead(run):
        compile_cache.before_compiling.pop()()
        print("started", flush=True)
        sys.stdin.readline()
"""


def second_process(first: int) -> psutil.Process:
    """The process that compiles for this one."""
    children = psutil.Process(first).children()
    (found,) = (child for child in children if "sparseoco.pipeline.ahead" in child.cmdline())
    return found


def test_it_compiles_what_a_run_needs_and_ends_with_it_and_if_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(write_run_file(tmp_path)), str(tmp_path / "small")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        printed = list(iter(process.stdout.readline, "started\n"))
        first = second_process(process.pid)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "started\n"
        assert not first.is_running()
        second = second_process(process.pid)
        process.kill()
    assert not psutil.wait_procs([second], timeout=60)[1]
    ahead, after = (set(line.split()) for line in printed[-2:])
    assert {"learn", "materialize", "find_ngrams", "tokenize_words"} <= ahead
    assert "count_ngrams" in after
    assert not after & {"learn", "materialize", "evaluate", "gather", "find_ngrams"}
