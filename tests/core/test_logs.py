import json
import logging
import math
from pathlib import Path

import pytest

from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event, log_to, logged_step
from sparseoco.pipeline.run_file import load_run_file
from tests.support.commands import call
from tests.support.texts import WORDS, write_run_file


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.fault(45)
def test_a_run_is_logged_as_json_lines_without_document_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_run_file(tmp_path)
    file.write_text(file.read_text() + '\n[log]\nfile = "run.jsonl"\n')
    monkeypatch.setattr("sparseoco.cli.console.FIRST_LINE", math.inf)  # of a run that takes long
    assert call(monkeypatch, "--log", "-", "run", file) == 0
    events = lines(tmp_path / "run.jsonl")
    printed = capsys.readouterr().err
    assert [json.loads(line)["event"] for line in printed.splitlines()] == [line["event"] for line in events]
    started = [line["step"] for line in events if line["event"] == "step started"]
    assert started == ["ingest", "search", "train", "evaluate", "report"]
    assert [line["step"] for line in events if line["event"] == "step finished"] == started
    assert {line["run"] for line in events} == {str(tmp_path / "run")}
    assert any(line["event"] == "shard written" and line["rows"] == 150 for line in events)
    blocks = [line for line in events if line["event"] == "block finished"]
    assert {line["fold"] for line in blocks} == {0, 1, 2}
    assert all({"time", "level", "block", "seconds"} <= line.keys() for line in blocks)
    for word in ["morning", *WORDS["sea"]]:
        assert word.lower() not in printed.lower()
    assert call(monkeypatch, "run", file) == 0  # appends
    assert lines(tmp_path / "run.jsonl")[: len(events)] == events
    again = lines(tmp_path / "run.jsonl")[len(events) :]
    assert [line["found"] for line in again if line["event"] == "search started"] == [12]


def test_a_failed_step_is_logged_with_its_error(tmp_path: Path) -> None:
    @logged_step("search", "out")
    def step(out: Path, error: Exception) -> None:
        raise error

    with log_to(str(tmp_path / "log")):
        for error in (InputError("No such thing.", code="missing-file"), KeyError("secret word")):
            with pytest.raises(type(error)):
                step(tmp_path / "out", error)
    ends = [line for line in lines(tmp_path / "log") if line["event"] == "step failed"]
    assert [(end["level"], end["error"], end.get("code"), end.get("reason")) for end in ends] == [
        ("error", "InputError", "missing-file", "No such thing."),
        ("error", "KeyError", None, None),
    ]


def test_a_log_file_given_twice_gets_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with log_to(str(tmp_path / "log")), log_to("log"), log_to(None):
        log_event("search", "begun")
    with log_to("log"):
        log_event("search", "begun again")
    assert [line["event"] for line in lines(tmp_path / "log")] == ["begun", "begun again"]


def test_loggers_are_unchanged_without_a_log_file(caplog: pytest.LogCaptureFixture) -> None:
    with log_to(None), caplog.at_level(logging.INFO, logger="sparseoco"):
        log_event("search", "begun", rows=3)
    assert [record.getMessage() for record in caplog.records] == ["begun (rows 3)"]  # as Prefect would forward it


def test_a_log_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--log", tmp_path, "algorithms") == 2
    assert "[not-writable]" in capsys.readouterr().err
    file = write_run_file(tmp_path)
    file.write_text(file.read_text() + '\n[log]\nfile = "s3://bucket/log"\n')
    assert call(monkeypatch, "run", file) == 2
    assert "[not-local]" in capsys.readouterr().err


def test_a_log_may_be_named_by_its_uri(tmp_path: Path) -> None:
    file = write_run_file(tmp_path)
    file.write_text(file.read_text() + f'\n[log]\nfile = "file://{tmp_path}/run.jsonl"\n')
    assert load_run_file(file).log.file == str(tmp_path / "run.jsonl")
