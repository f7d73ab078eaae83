"""The flows, as a person runs them: in a process of their own, with a Prefect home of their own."""

import logging
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from sparseoco.core.errors import InputError
from sparseoco.flows.steps import fails_with_message, main
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.deploy.test_deployments import check_results
from tests.support.errors import raises_code
from tests.support.folders import assert_same_results
from tests.support.http_servers import answering
from tests.support.prefect_server import (
    answers,
    environment,
    flow_runs,
    free_port,
    furnished,
    prefect_server,
    running,
    wait_for,
)
from tests.support.texts import write_run_file

# As `python -m sparseoco.flows.NAME` for one name after another, but the libraries are loaded once.
ONE_BY_ONE = """
import runpy, sys
import sparseoco.flows.steps
sparseoco.flows.steps.run_and_exit = lambda command: command()
run_file, *names = sys.argv[1:]
for name in names:
    sys.argv = ["-m", run_file]
    try:
        runpy.run_module(f"sparseoco.flows.{name}", run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, name
"""
# A flow whose step fails, first in one way and then in another, as `python -m sparseoco.flows.ingest` runs it.
FAILING = """
import sys
run_file, *codes = sys.argv[1:]
sys.argv[0] = "-m"
from sparseoco.core.errors import InputError, StorageError
from sparseoco.flows import command
from sparseoco.pipeline import steps as run_steps

def fail(run):
    code = codes.pop(0)
    raise (InputError if code == "encoding" else StorageError)(f"x.jsonl, line 3: {code}.", code=code)

run_steps.STEPS["ingest"] = fail
sys.argv = ["ingest", run_file]
command.main("ingest")
"""
PACKAGE = "sparseoco.flows"
FLOWS = ("ingest", "nightly", "pipeline", "report", "score", "search", "train")


def test_the_flow_writes_the_same_files_as_the_command(tmp_path: Path) -> None:
    # The server makes its database itself, as a person's first one does; by default it must then answer in 20 seconds.
    env = environment(tmp_path / "home", PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120")
    log = tmp_path / "flow.log"
    small = {"folds = 3": "folds = 1", "lam = [1e-4, 1e-2]": "lam = [1e-4]"}
    command = [sys.executable, "-m", f"{PACKAGE}.pipeline", str(write_run_file(tmp_path / "flow", **small))]
    with running(command, log, env) as process:
        server = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), "Prefect's server")[0]
        wait_for(lambda: answers(f"{server}/api/health"), "Prefect's server to answer")
        # Not to other users of this machine.
        assert httpx.post(f"{server}/api/flow_runs/filter", json={}).status_code == 401
        assert process.wait(180) == 0, log.read_text()
    shown = log.read_text()
    assert "Completed" in shown
    run_steps.run_all(load_run_file(write_run_file(tmp_path / "command", **small)))
    assert_same_results(tmp_path / "flow" / "run", tmp_path / "command" / "run")
    assert (tmp_path / "flow" / "run" / "report" / "report.html").exists()
    assert "r0" not in shown.split()  # no document, no id of one


def test_an_error_is_the_message_of_a_state(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is not logged; those of other errors are."""

    @fails_with_message
    def fail(error: Exception) -> None:
        raise error

    state: Any = fail(InputError("x.jsonl, line 3: not valid JSON.", code="malformed-record"))
    assert state.is_failed()
    assert state.message == "x.jsonl, line 3: not valid JSON. [malformed-record]"
    with raises_code("malformed-record"):
        state.result()
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    logger = logging.getLogger("prefect.flow_runs")
    monkeypatch.setattr(logger, "handlers", [caplog.handler])  # not the server's
    monkeypatch.setattr(logger, "propagate", False)
    for error in (state.data, ZeroDivisionError(), None):
        logger.error("Encountered exception", exc_info=error or True)
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError, None]


@pytest.mark.slow
def test_errors_are_sentences_in_states_and_logs(tmp_path: Path) -> None:
    """A step whose disk failed is run again; invalid input is not. No log has a traceback."""
    env = environment(furnished(tmp_path / "home"), PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS="0.1")
    command = [sys.executable, "-c", FAILING, str(write_run_file(tmp_path)), "disk-full", "encoding"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "Retry 1/1 will start" in ran.stderr
    printed = ran.stderr.partition("Retry 1/1 will start")[2]
    state = re.escape("Failed('x.jsonl, line 3: encoding. [encoding]')")
    for kind in ("Task", "Flow"):
        assert re.search(rf"{kind} run '.*' - Finished in state {state}", printed)
    assert "sparseoco: x.jsonl, line 3: encoding. [encoding]" in ran.stderr.splitlines()
    assert "Traceback" not in ran.stderr
    assert "NoneType" not in ran.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with prefect_server(tmp_path / "server") as address:
        yield address


@pytest.mark.slow
def test_a_configured_server_is_used(tmp_path: Path, server: str) -> None:
    env = environment(tmp_path / "home", PREFECT_API_URL=server)
    command = [sys.executable, "-c", ONE_BY_ONE, str(write_run_file(tmp_path)), "ingest", "search", "train", "report"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr
    runs = flow_runs(server)
    assert [run["state_type"] for run in runs] == ["COMPLETED"] * 4
    assert all(run["name"].startswith("places 2") for run in runs)
    assert all(run["tags"] == ["sparseoco"] for run in runs)
    check_results(server, tmp_path / "run")


@pytest.mark.parametrize("name", FLOWS)
def test_help_shows_the_command(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["-m", "--help"])
    monkeypatch.delitem(sys.modules, f"{PACKAGE}.{name}", raising=False)  # imported by another test
    monkeypatch.setattr("sparseoco.flows.steps.run_and_exit", lambda command: command())  # it would end this process
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"{PACKAGE}.{name}", run_name="__main__")
    assert not ended.value.code
    assert f"python -m {PACKAGE}.{name} RUN_FILE" in capsys.readouterr().out


def test_prefect_is_an_extra() -> None:
    code = "import sys; sys.modules['prefect'] = None; sys.argv[0] = '-m'; import sparseoco.flows.nightly"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert "pip install 'sparseoco[flows]'" in line
    assert line.endswith("[missing-package]")


def refused(capsys: pytest.CaptureFixture[str], name: str, *arguments: object, server: str | None = None) -> str:
    """What a flow prints that is not started."""
    with (
        pytest.MonkeyPatch.context() as patch,
        temporary_settings({PREFECT_API_URL: server}),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        main(name)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_run_file_errors_are_reported_before_prefect_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "places.toml").write_text("out = 3")
    monkeypatch.setattr("sparseoco.flows.steps._check_server", lambda: pytest.fail("Prefect was asked"))
    (line,) = refused(capsys, "ingest", tmp_path / "places.toml").splitlines()
    assert line.startswith("sparseoco: ")


def test_a_server_with_another_password_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda path, headers: 200 if path == "/api/health" else 401) as port:
        error = refused(capsys, "pipeline", write_run_file(tmp_path), server=f"http://127.0.0.1:{port}/api")
    assert error.endswith("[prefect-password]\n")


@pytest.mark.fault(7)
def test_a_server_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    error = refused(capsys, "pipeline", write_run_file(tmp_path), server=f"http://me:secret@{address}/api")
    assert address in error
    assert error.endswith("[no-prefect-server]\n")
    assert "secret" not in error
