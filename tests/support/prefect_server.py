"""Prefect servers and workers on loopback, each with its own home, and queries to their API."""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's environment without its Prefect settings, with a home, `more`, and no telemetry."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return inherited | quiet | {"PREFECT_HOME": str(home), "PYTHONPATH": str(ROOT), **more}


def furnished(home: Path) -> Path:
    """A home with an initialised database, copied because creating one takes long."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(_database(), home)
    return home


@cache
def _database() -> Path:
    home = Path(tempfile.mkdtemp(prefix="prefect-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    subprocess.run(command, env=environment(home), check=True, stdout=subprocess.DEVNULL)
    return home / "prefect.db"


def free_port() -> int:
    """A port of loopback that nobody listened on a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def prefect_server(home: Path, **settings: str) -> Iterator[str]:
    """A Prefect server that looks for due runs every second; gives the address of its API."""
    port = free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--no-ui"]
    often = {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1"}
    env = environment(furnished(home), **often, **settings)
    with running([*command, "--port", str(port)], home / "server.log", env):
        address = f"http://127.0.0.1:{port}/api"
        wait_for(lambda: answers(f"{address}/health"), "the Prefect server to answer")
        yield address


@contextmanager
def running(
    command: list[str], log: Path, env: dict[str, str], folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in its own process group, ended on exit; its output goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def check_ends(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Stop a process of `running`, by SIGINT as a terminal does: it ends within ten seconds with the signal's code."""
    begun = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert time.monotonic() - begun < 10


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(done: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
    """Wait until `done` returns something true, and return it. Fails, naming `what`, after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.2)
    raise AssertionError(f"timed out waiting for {what}")


def ask(address: str, what: str, **body: Any) -> Any:
    """The API's answer to a POST to {address}/{what}."""
    request = urllib.request.Request(
        f"{address}/{what}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    for _ in range(20):
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 503:  # the database is in use, at the moment
                raise
            time.sleep(0.5)
    raise AssertionError(f"{address}/{what} is unavailable")


def flow_runs(address: str, *states: str) -> list[dict[str, Any]]:
    """Flow runs in these states, in the order of their start."""
    chosen = {"flow_runs": {"state": {"type": {"any_": list(states)}}}} if states else {}
    found: list[dict[str, Any]] = ask(address, "flow_runs/filter", sort="START_TIME_ASC", **chosen)
    return found


def artifacts(address: str) -> dict[str, dict[str, Any]]:
    """The newest artifact of each key."""
    return {row["key"]: row for row in ask(address, "artifacts/latest/filter")}
