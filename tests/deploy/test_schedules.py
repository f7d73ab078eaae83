"""Schedules: deploy/prefect.yaml as a person copies and changes it, and a flow served by a script."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from sparseoco.flows.steps import TAG
from tests.deploy.deployments import (
    EXAMPLE,
    check_results,
    copy_with_three_lines_changed,
    deployed,
    prefect,
    search_begun,
    write_long_run_file,
)
from tests.support.prefect_server import (
    ROOT,
    ask,
    environment,
    flow_runs,
    prefect_server,
    running,
    wait_for,
)
from tests.support.texts import write_run_file

AUTOMATIONS = ROOT / "deploy" / "prefect-automations.yaml"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with prefect_server(tmp_path / "server") as address:
        yield address


def test_every_deployment_names_a_flow_and_its_parameters() -> None:
    deployments = yaml.safe_load(EXAMPLE.read_text())["deployments"]
    assert {"pipeline", "ingest", "search", "train", "report"} <= {deployment["name"] for deployment in deployments}
    for deployment in deployments:
        flow: Any = load_flow_from_entrypoint(deployment["entrypoint"])
        assert flow.name == f"sparseoco-{deployment['name']}"
        assert flow.validate_parameters(deployment["parameters"])
        assert deployment["schedules"]
    active = [d["name"] for d in deployments for schedule in d["schedules"] if schedule.get("active", True)]
    assert active == ["pipeline"]


def test_a_live_run_sends_several_heartbeats_before_it_counts_as_crashed() -> None:
    (automation,) = yaml.safe_load(AUTOMATIONS.read_text())["automations"]
    pools = [deployment["work_pool"] for deployment in yaml.safe_load(EXAMPLE.read_text())["deployments"]]
    for env in [os.environ, *(pool["job_variables"]["env"] for pool in pools)]:  # the first: by hand, or served
        assert automation["trigger"]["within"] >= 4 * int(env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert automation["trigger"]["match_related"]["prefect.resource.id"] == f"prefect.tag.{TAG}"


@pytest.mark.slow
def test_a_deployed_schedule_fires_and_the_run_is_read_through_the_api(tmp_path: Path, server: str) -> None:
    run_file = write_run_file(tmp_path)
    copy_with_three_lines_changed(tmp_path, run_file)
    with deployed(tmp_path, server):
        (run, *_) = wait_for(lambda: flow_runs(server, "COMPLETED", "FAILED", "CRASHED"), "a run to end", seconds=300)
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"run_file": run_file.name}
    assert {"sparseoco", "pipeline"} <= set(run["tags"])
    assert run["auto_scheduled"]
    assert run["name"].startswith("places 2")
    (deployment,) = ask(server, "deployments/filter", deployments={"id": {"any_": [run["deployment_id"]]}})
    assert deployment["name"] == "pipeline"
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    check_results(server, tmp_path / "run")


SERVE = """
import sys
from prefect.types.entrypoint import EntrypointType
from sparseoco.flows.pipeline import pipeline

module = EntrypointType.MODULE_PATH
pipeline.serve("reviews", interval=10, parameters={"run_file": sys.argv[1]}, global_limit=1, entrypoint_type=module)
"""
"""A script like that in docs/operations/prefect.md."""


@pytest.mark.slow
def test_a_flow_served_by_a_script_runs_at_an_interval(tmp_path: Path, server: str) -> None:
    env = environment(tmp_path / "home", PREFECT_API_URL=server, PREFECT_RUNNER_POLL_FREQUENCY="1")
    command = [sys.executable, "-c", SERVE, str(write_run_file(tmp_path))]
    with running(command, tmp_path / "served.log", env, tmp_path):
        runs = wait_for(lambda: two_of(flow_runs(server, "COMPLETED")), "two runs to end", seconds=300)
    assert runs[0]["name"] != runs[1]["name"]
    assert not flow_runs(server, "FAILED", "CRASHED")
    check_results(server, tmp_path / "run")


def two_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return runs if len(runs) >= 2 else []


@pytest.mark.slow
def test_a_cancelled_run_of_a_worker_ends_soon(tmp_path: Path, server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron="0 0 1 1 *")
    with deployed(tmp_path, server):
        run = start_run(server, tmp_path)
        begun = time.monotonic()
        ask(server, f"flow_runs/{run}/set_state", state={"type": "CANCELLING"})
        wait_for(lambda: flow_runs(server, "CANCELLED"), "the run to be cancelled")
        assert time.monotonic() - begun < 25  # of which Prefect takes ten to look
    assert not flow_runs(server, "RUNNING", "CANCELLING")


@pytest.mark.slow
def test_runs_without_heartbeats_are_marked_as_crashed(tmp_path: Path, server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron="0 0 1 1 *")
    with deployed(tmp_path, server) as worker:
        env = environment(tmp_path / "home", PREFECT_API_URL=server)
        prefect("automation", "create", "--from-file", str(AUTOMATIONS), env=env, folder=tmp_path)
        start_run(server, tmp_path)
        time.sleep(35)  # the first heartbeat
        worker.kill()
        for row in sessions_below(tmp_path):
            os.killpg(row, signal.SIGKILL)
        (run,) = wait_for(lambda: flow_runs(server, "CRASHED"), "the run to be given up", seconds=240)
    assert run["state"]["message"] == "No heartbeat of this run for two minutes."


def start_run(server: str, folder: Path) -> str:
    """A run of the pipeline whose search has begun; gives its id."""
    (pipeline,) = ask(server, "deployments/filter", deployments={"name": {"any_": ["pipeline"]}})
    run: str = ask(server, f"deployments/{pipeline['id']}/create_flow_run")["id"]
    wait_for(lambda: search_begun(folder), "the search to begin", seconds=300)
    return run


def sessions_below(folder: Path) -> list[int]:
    """Groups of processes that work in the folder: the runs of a worker."""
    working = (path for path in Path("/proc").glob("[0-9]*/cwd"))
    return sorted({os.getpgid(int(path.parent.name)) for path in working if path.exists() and path.resolve() == folder})
