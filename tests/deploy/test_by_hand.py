"""The processes of a deployment, each started by hand: a Prefect server on PostgreSQL, a worker, and Dask under TLS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.deployments import check_results, copy_with_three_lines_changed, deployed
from tests.deploy.postgres import Database, postgres
from tests.search.by_hand import as_environment, certificates, cluster_by_hand
from tests.support.prefect_server import FINAL, ask, flow_runs, prefect_server, wait_for
from tests.support.texts import write_run_file

NEVER = "0 0 1 1 *"


@pytest.fixture
def database() -> Iterator[Database]:
    with postgres() as found:
        yield found


def run_with(server: str, certificates: dict[str, str]) -> dict[str, Any]:
    """The state in which a run of the pipeline ends that has these certificates in its environment."""
    (pipeline,) = ask(server, "deployments/filter", deployments={"name": {"any_": ["pipeline"]}})
    variables = {"job_variables": {"env": certificates}}
    run = ask(server, f"deployments/{pipeline['id']}/create_flow_run", **variables)["id"]
    wait_for(lambda: any(ended["id"] == run for ended in flow_runs(server, *FINAL)), "the run to end", seconds=300)
    state: dict[str, Any] = next(ended["state"] for ended in flow_runs(server, *FINAL) if ended["id"] == run)
    return state


@pytest.mark.slow
def test_a_deployment_on_postgresql_runs_through_dask_under_tls(tmp_path: Path, database: Database) -> None:
    ours, theirs = (certificates(tmp_path / name) for name in ("ours", "theirs"))
    run_file = write_run_file(tmp_path)
    with (
        prefect_server(tmp_path / "server", PREFECT_SERVER_DATABASE_CONNECTION_URL=database.address) as server,
        cluster_by_hand(tmp_path, workers=2, tls=ours) as cluster,
    ):
        assert cluster.address.startswith("tls://")
        text = run_file.read_text()
        run_file.write_text(text.replace("threads = 2", f'scheduler = "{cluster.address}"'))
        copy_with_three_lines_changed(tmp_path, run_file, cron=NEVER)
        with deployed(tmp_path, server):
            wrong = run_with(server, as_environment(theirs))
            assert wrong["type"] == "FAILED"
            assert "do not accept each other's certificates" in wrong["message"]
            missing = run_with(server, {})
            assert missing["type"] == "FAILED"
            assert "needs certificates: set them in Dask's configuration" in missing["message"]
            assert not list((tmp_path / "run" / "shards").glob("*.parquet"))
            assert run_with(server, as_environment(ours))["type"] == "COMPLETED"
        run_file.write_text(text)
        check_results(server, tmp_path / "run")
    states = database.ask(
        "select state_type, count(*) from flow_run where start_time is not null group by 1 order by 2"
    )
    assert states.split() == ["COMPLETED|1", "FAILED|2"]
