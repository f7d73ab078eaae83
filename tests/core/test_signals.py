import signal
import subprocess
from pathlib import Path

import pytest

from sparseoco.core.signals import SENTENCE
from tests.support.stops import COMMAND, End, after, stop
from tests.support.texts import write_reviews

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def check(end: End | None, number: signal.Signals) -> None:
    assert end is not None
    assert end.said == f"sparseoco: {SENTENCE}\n"
    assert end.code == 128 + number
    assert end.seconds < 10
    assert not end.alive


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_stop_while_libraries_are_loaded_is_a_sentence(seconds: float, number: signal.Signals) -> None:
    check(stop(["algorithms"], number, after(seconds), group=True), number)


def test_worker_processes_do_not_outlive_a_stop(tmp_path: Path) -> None:
    file = write_reviews(tmp_path / "reviews.jsonl")
    scratch = tmp_path / "out" / ".scratch"
    command = ["ingest", str(file), "--out", str(tmp_path / "out"), "--workers", "2"]
    end = stop(command, signal.SIGINT, lambda: any(scratch.glob("*/worker-*")), group=True)
    check(end, signal.SIGINT)


def test_what_hangs_is_ended() -> None:
    program = """
import signal, subprocess, sys, threading, time
from sparseoco.core import signals as stopping
stopping.watch()
stopping.end_in_time(0.2)
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
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 143
    assert said.decode() == f"sparseoco: {SENTENCE}\n"
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()


def test_a_stop_that_a_callback_swallows_is_raised_again() -> None:
    program = """
import signal, sys, time
from sparseoco.core import signals as stopping
stopping.watch()
for number in stopping.SIGNALS:
    signal.signal(number, stopping.raise_stopped)
class Swallows:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
        for _ in range(10): pass
one = Swallows()
try:
    del one
    time.sleep(60)
except stopping.Stopped as stopped:
    sys.exit(stopped.args[0])
"""
    ended = subprocess.run([COMMAND[0], "-c", program], capture_output=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (signal.SIGTERM, b"")


def test_what_is_left_to_do_at_the_end_is_done() -> None:
    program = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from sparseoco.core.signals import to_the_end
atexit.register(print, "at exit")
ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.3), print("pool")))
threading.Thread(target=lambda: (time.sleep(0.6), print("thread"))).start()
threading.Thread(target=time.sleep, args=[60], daemon=True).start()
print("main")
to_the_end(lambda: sys.exit(3))
"""
    end = subprocess.run([COMMAND[0], "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (end.returncode, end.stdout, end.stderr) == (3, "main\npool\nthread\nat exit\n", "")


def test_a_library_still_at_work_at_the_end_does_not_abort_the_command() -> None:
    """Arrow reading from an object of Python's in a thread: taking the interpreter down ends the process in its C++."""
    program = """
import io, threading, time
import pyarrow as pa, pyarrow.parquet as pq
from sparseoco.core.signals import to_the_end
file = io.BytesIO()
pq.write_table(pa.table({"a": range(100_000)}), file, row_group_size=1000)

def read():
    while True:
        pq.read_table(io.BytesIO(file.getvalue()), use_threads=True)

for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
to_the_end(lambda: time.sleep(0.2))
"""
    for _ in range(5):
        end = subprocess.run([COMMAND[0], "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (end.returncode, end.stderr) == (0, "")


def test_output_that_cannot_be_written_is_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        end = subprocess.run([*COMMAND, "algorithms"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert end.returncode == 1
    assert end.stderr.startswith("sparseoco: The disk is full: /dev/stdout could not be written")


def test_a_reader_that_has_gone() -> None:
    with subprocess.Popen([*COMMAND, "algorithms"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
