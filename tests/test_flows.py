"""The flows, as a person runs them: in a process of their own, with a Prefect home of their own."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparseoco import steps
from sparseoco.config import load_run_file
from tests.texts import write_run_file

SAME = ("metrics.parquet", "curves.parquet", "kept.parquet", "best.json")


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PREFECT_HOME": str(home), **more}


def run_flow(name: str, *arguments: str, **env: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"flows.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, **env)


def test_the_flow_does_what_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "flow").mkdir()
    (tmp_path / "command").mkdir()
    ran = run_flow("pipeline", str(write_run_file(tmp_path / "flow")), env=environment(tmp_path / "home"))
    assert ran.returncode == 0, ran.stderr
    assert "Completed" in ran.stderr
    steps.run_all(load_run_file(write_run_file(tmp_path / "command")))
    for file in [*(f"search/{name}" for name in SAME), "model/weights.parquet"]:
        assert (tmp_path / "flow/run" / file).read_bytes() == (tmp_path / "command/run" / file).read_bytes(), file
    assert (tmp_path / "flow" / "run" / "report" / "report.html").exists()
    assert "r0" not in ran.stderr.split()  # no document, no id of one


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-ui",
    ]
    quiet = environment(tmp_path / "server", PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    process = subprocess.Popen(command, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}/api"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def ask(address: str, what: str) -> Any:
    request = urllib.request.Request(f"{address}/{what}/filter", b"{}", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def test_a_server_that_is_named_is_used(tmp_path: Path, server: str) -> None:
    env = environment(tmp_path / "home", PREFECT_API_URL=server)
    run_file = str(write_run_file(tmp_path))
    for name in ("ingest", "search", "train", "report"):
        ran = run_flow(name, run_file, env=env)
        assert ran.returncode == 0, ran.stderr
    runs = {run["name"]: run["state_type"] for run in ask(server, "flow_runs")}
    assert list(runs.values()) == ["COMPLETED"] * 4
    artifacts = {artifact["key"]: artifact for artifact in ask(server, "artifacts")}
    leaderboard = json.loads(artifacts["sparseoco-leaderboard"]["data"])
    assert len(leaderboard) == 4
    assert leaderboard[0]["algorithm"].startswith(("rda", "cl-fobos"))
    assert "| rank |" in artifacts["sparseoco-summary"]["data"]
    (tmp_path / "places.toml").write_text("out = 3")
    bad = run_flow("ingest", run_file, env=env)
    assert bad.returncode == 2
    assert bad.stderr.splitlines()[-1].startswith("sparseoco: ")


def test_help_says_how(tmp_path: Path) -> None:
    for name in ("pipeline", "ingest"):
        ran = run_flow(name, "--help", env=environment(tmp_path))
        assert f"python -m flows.{name} RUN_FILE" in ran.stdout
        assert ran.returncode == 0
