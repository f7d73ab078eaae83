import signal
import subprocess
from pathlib import Path

import pytest

from sparseoco.stopping import SENTENCE
from tests.stopping import COMMAND, End, after, stop
from tests.texts import write_reviews

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
from sparseoco import stopping
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
from sparseoco import stopping
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
