"""The nightly flow, as a person runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.pipeline.nightly import run_nightly
from tests.support.nightly_runs import contents, prepare
from tests.support.prefect_server import artifacts, environment, flow_runs, prefect_server


@pytest.mark.slow
def test_the_flow_does_what_the_command_does(tmp_path: Path) -> None:
    run = prepare(tmp_path / "command", 1)
    (tmp_path / "command" / "incoming" / "broken.jsonl").write_text("{")
    run_nightly(run)
    texts = f'inputs = ["{tmp_path / "command" / "incoming"}"]'
    prepare(tmp_path / "flow", **{'inputs = ["incoming"]': texts})
    with prefect_server(tmp_path / "server") as address:
        env = environment(tmp_path / "home", PREFECT_API_URL=address)
        command = [sys.executable, "-m", "flows.nightly", str(tmp_path / "flow" / "places.toml")]
        for _ in range(2):  # the second finds nothing new
            ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=env)
            assert ran.returncode == 0, ran.stderr
            assert "left out until it changes: " in ran.stderr
        assert "Nothing new: all files that can be read are learned" in ran.stderr
        by_hand = f"from flows.nightly import nightly; nightly({command[-1]!r}, rollback=1)"
        ran = subprocess.run(
            [sys.executable, "-c", by_hand], capture_output=True, text=True, timeout=180, check=False, env=env
        )
        assert "The model of increment 1 is already deployed." in ran.stderr
        assert [entry["state_type"] for entry in flow_runs(address)] == ["COMPLETED"] * 3
        found = artifacts(address)
    assert "The model of increment 1 is deployed" in found["places-nightly"]["data"]
    assert "broken.jsonl, line 1: not valid JSON" in found["places-nightly"]["data"]
    assert "promoted" in found["places-increments"]["data"]
    assert "nightly.html" in found["places-nightly-page"]["data"]
    assert contents(tmp_path / "flow" / "run") == contents(tmp_path / "command" / "run")
