"""Errors and their codes, escaped text, suggestions, logs."""

import ast
import json
import logging
import math
import pickle
import re
from collections import defaultdict
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparseoco.pipeline.steps  # and, with it, every module that has errors of its own
from sparseoco.core.errors import DamagedError, FolderInUseError, InputError, SparseocoError
from sparseoco.core.formatting import did_you_mean, printable, tsv_field, tsv_list
from sparseoco.core.logs import log_event, log_to, logged_step
from sparseoco.execution.clusters import TaskError
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import RemoteError
from tests.support.commands import Cli
from tests.support.texts import WORDS, write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Errors keep their type, message and attributes on their way from a worker.


@pytest.mark.parametrize(
    "error",
    [
        SparseocoError("the message", code="task-failed"),
        InputError("the message", code="unknown-parameter"),
        DamagedError("the message", code="corrupt-file"),
        FolderInUseError.by("process 7", "folder"),
        RemoteError("the message", code="no-answer"),
        TaskError("Training failed", "out of memory", code="out-of-memory"),
    ],
)
def test_errors_survive_pickling(error: SparseocoError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.code, copy.__dict__) == (str(error), error.code, error.__dict__)
    assert str(error)


# ----------------------------------------------------------------------------------------------------------------------
# Every error has a stable code in kebab-case, and a code has one exit status.


PACKAGE = Path(sparseoco.__file__).parent
PATHS = {*PACKAGE.rglob("*.py"), *(PACKAGE / "flows").glob("*.py")}  # flows may be a link, which rglob does not follow
KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
TWO_EXIT_STATUSES = {
    "corrupt-file": "an input or archive of the user, or a file of a store or run",
    "folder-not-empty": "the output of a command, or the folder of a corpus being fetched",
    "missing-file": "a file that the user names, or one of a store or run",
    "missing-model": "a folder that never had a model, or an increment whose model was removed",
    "model-replaced": "found before a run starts, or by one that resumes",
    "no-candidate": "the configurations that were named, or all of a search, diverged or failed",
    "store-changed": "found before a run starts, or by one that resumes",
}


class Construction(NamedTuple):
    """A call of one of our error classes: where, its kind, and the expression of its code."""

    where: str
    kind: type[SparseocoError]
    code: ast.expr | None


@cache
def trees() -> dict[str, ast.Module]:
    """The modules of the package, by path."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PATHS)}


def error_classes() -> dict[str, type[SparseocoError]]:
    """Our error classes, by name."""
    found = [SparseocoError]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.__name__: kind for kind in found}


@cache
def constructions() -> list[Construction]:
    """The calls of the package; a class whose constructor has a default code needs none."""
    known, found = error_classes(), []
    for path, node in ((path, node) for path, tree in trees().items() for node in ast.walk(tree)):
        if (
            isinstance(node, ast.ClassDef)
            and {base.id for base in node.bases if isinstance(base, ast.Name)} & known.keys()
        ):
            assert node.name in known, f"{path} is not imported here"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if codes or signature(known[node.func.id]).parameters["code"].default is Parameter.empty:
                found.append(Construction(f"{path}:{node.lineno}", known[node.func.id], codes[0] if codes else None))
    return found


def literal_codes(code: ast.expr) -> list[str]:
    """The codes written in an expression; none where it passes on that of another error."""
    return [node.value for node in ast.walk(code) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def exit_statuses() -> dict[str, set[int]]:
    """The exit statuses of errors that are constructed, by code."""
    statuses = defaultdict(set)
    for _, kind, code in constructions():
        for text in literal_codes(code) if code is not None else ():
            statuses[text].add(kind.exit_code)
    return statuses


def test_every_error_is_constructed_with_a_code() -> None:
    assert len(constructions()) > 100
    assert [where for where, _, code in constructions() if code is None] == []


def test_a_code_is_in_kebab_case_and_has_one_exit_status() -> None:
    """But for codes of problems that occur both in what the user names and in what an earlier step wrote."""
    statuses = exit_statuses()
    assert [code for code in statuses if not KEBAB_CASE.fullmatch(code)] == []
    assert {code for code, found in statuses.items() if len(found) > 1} == set(TWO_EXIT_STATUSES)


# ----------------------------------------------------------------------------------------------------------------------
# Escapes of names in lines of text: fault 56.


NAMES = st.text(st.one_of(st.characters(), st.sampled_from("\t\n\r\\,\x1b\x85\u2028\u202e\udc80")))


@pytest.mark.fault(56)
@given(NAMES)
@settings(max_examples=50)
def test_a_field_is_one_column_of_one_line_and_can_be_read_back(name: str) -> None:
    field = tsv_field(name)
    assert len(f"{field}x".splitlines()) == 1
    assert "\t" not in field
    assert "\x1b" not in field
    field.encode()
    assert json.loads('"' + field.replace('"', '\\"') + '"') == name


@pytest.mark.fault(56)
@given(st.lists(NAMES, min_size=1))
@settings(max_examples=50)
def test_a_list_of_labels_can_be_read_back(names: list[str]) -> None:
    fields = tsv_list(names).split(",")
    assert [json.loads('"' + field.replace('"', '\\"') + '"') for field in fields] == names


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_is_not_changed(name: str) -> None:
    assert printable(name) == name


# ----------------------------------------------------------------------------------------------------------------------
# Suggestions for names that are not known.


def test_a_suggestion_is_a_known_name_or_nothing() -> None:
    assert did_you_mean("cl-fobo", ["fobos", "cl-fobos"]) == "did you mean cl-fobos?"
    assert did_you_mean("x" * 10_000, ["folds"]) == ""
    assert did_you_mean(3, ["folds"]) == ""


# ----------------------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.fault(45)
def test_a_run_is_logged_without_document_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    file = write_run_file(tmp_path, **{"[cluster]": '[log]\nfile = "run.jsonl"\n[cluster]'})
    monkeypatch.setattr("sparseoco.cli.console.FIRST_LINE", math.inf)  # of a run that takes long
    printed = cli("--log", "-", "run", file).err
    events = lines(tmp_path / "run.jsonl")
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
    cli("run", file)  # appends
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


def test_a_log_file_that_cannot_be_written(tmp_path: Path, cli: Cli) -> None:
    assert "[not-writable]" in cli("--log", tmp_path, "algorithms", code=2).err


def test_a_log_may_be_named_by_its_uri(tmp_path: Path) -> None:
    file = write_run_file(tmp_path, **{"[cluster]": f'[log]\nfile = "file://{tmp_path}/run.jsonl"\n[cluster]'})
    assert load_run_file(file).log.file == str(tmp_path / "run.jsonl")
