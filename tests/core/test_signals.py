import signal
import subprocess
from pathlib import Path

import pytest

from sparseoco.core.signals import MESSAGE
from tests.support.processes import COMMAND, End, after, stop
from tests.support.texts import write_reviews


def check(end: End | None, number: signal.Signals) -> None:
    assert end.said == f"sparseoco: {MESSAGE}\n"
    assert end.code == 128 + number
    assert end.seconds < 10
    assert not end.alive


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND[0], "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.5)])
def test_a_stop_during_imports_prints_the_message(number: signal.Signals, seconds: float) -> None:
    check(stop(["doctor"], number, after(seconds), group=True), number)


def test_worker_processes_do_not_outlive_a_stop(tmp_path: Path) -> None:
    file = write_reviews(tmp_path / "reviews.jsonl")
    scratch = tmp_path / "out" / ".scratch"
    command = ["ingest", str(file), "--out", str(tmp_path / "out"), "--workers", "2"]
    end = stop(command, signal.SIGINT, lambda: any(scratch.glob("*/worker-*")), group=True)
    check(end, signal.SIGINT)


def test_a_hanging_process_is_killed_with_its_children() -> None:
    program = """
import signal, subprocess, sys, threading, time
from sparseoco.core import signals as stopping
stopping.install_handlers()
stopping.kill_after(0.2)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
for number in stopping.SIGNALS:
    signal.signal(number, stopping.raise_stopped)
while True:
    try:
        time.sleep(60)
    except stopping.Stopped:
        pass
"""
    with subprocess.Popen([COMMAND[0], "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 143
    assert said.decode() == f"sparseoco: {MESSAGE}\n"
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()


RAISES = """
import ctypes, signal, sys, time
finished = [True]
from sparseoco.core import signals as stopping
stopping.install_handlers()
for number in stopping.SIGNALS:
    signal.signal(number, stopping.raise_stopped)
"""
SWALLOWS = """
class Swallows:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
        for _ in range(10): pass
one = Swallows()
try:
    del one
"""
PRINTS = """
try:
    ctypes.pythonapi.PyRun_SimpleString(b"import signal; signal.raise_signal(signal.SIGTERM)")
"""
CALLS = """
finished = []
called = {"__name__": stopping.NO_EXCEPTIONS, "stop": lambda: signal.raise_signal(signal.SIGTERM), "finished": finished}
exec("def unpickle(): stop(); finished.append(True)", called)
try:
    called["unpickle"]()
"""
WAITS = """
    time.sleep(60)
except stopping.Stopped as stopped:
    sys.exit(stopped.args[0] if finished else 0)
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SWALLOWS, id="swallowed by a callback"),
        pytest.param(PRINTS, id="whose traceback C code prints"),
        pytest.param(CALLS, id="in a function that numba calls, after it"),
    ],
)
def test_a_stop_is_raised_again(program: str) -> None:
    ended = run_program(RAISES + program + WAITS)
    assert (ended.returncode, ended.stderr) == (signal.SIGTERM, "")


def test_a_stop_of_which_a_library_makes_another_exception_ends_the_command() -> None:
    program = """
import signal
from sparseoco.cli.console import error_exits
from sparseoco.core import signals as stopping
with error_exits():
    try:
        signal.raise_signal(signal.SIGTERM)
    except stopping.Stopped:
        raise ValueError
"""
    ended = run_program(program)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, f"sparseoco: {MESSAGE}\n")


def test_threads_and_exit_functions_finish() -> None:
    program = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from sparseoco.core.signals import run_and_exit
atexit.register(print, "at exit")
ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.3), print("pool")))
threading.Thread(target=lambda: (time.sleep(0.6), print("thread"))).start()
threading.Thread(target=time.sleep, args=[60], daemon=True).start()
print("main")
run_and_exit(lambda: sys.exit(3))
"""
    end = run_program(program)
    assert (end.returncode, end.stdout, end.stderr) == (3, "main\npool\nthread\nat exit\n", "")


def test_a_library_thread_at_exit_does_not_abort_the_command() -> None:
    """Arrow reads from a Python object in a thread; finalizing the interpreter would abort the process in C++."""
    program = """
import io, threading, time
import pyarrow as pa, pyarrow.parquet as pq
from sparseoco.core.signals import run_and_exit
file = io.BytesIO()
pq.write_table(pa.table({"a": range(100_000)}), file, row_group_size=1000)

def read():
    while True:
        pq.read_table(io.BytesIO(file.getvalue()), use_threads=True)

for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
run_and_exit(lambda: time.sleep(0.2))
"""
    for _ in range(5):
        end = run_program(program)
        assert (end.returncode, end.stderr) == (0, "")


def test_output_to_a_full_disk() -> None:
    with open("/dev/full", "w") as full:
        end = subprocess.run([*COMMAND, "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert end.returncode == 1
    assert "Standard output" in end.stderr
    assert "free" not in end.stderr  # of another disk
    assert end.stderr.endswith("[disk-full]\n")


def test_a_closed_output_pipe() -> None:
    with subprocess.Popen([*COMMAND, "algorithms"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read() == b""
