"""New files that cannot be read are left out as a whole, told, and tried again when they have changed."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.pipeline.nightly import increments_table, left_out_lines, nightly_markdown, run_nightly
from sparseoco.pipeline.nightly import run as nightly_run
from sparseoco.pipeline.nightly.page import LISTED
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage import commit
from sparseoco.store.manifest import latest_manifest
from sparseoco.text.ingest import ingest
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, prepare, rows_of

BAD_LINE = b'{"text": \n'


def lines(folder: Path, rows: int = 30) -> bytes:
    """The text of a file that can be read."""
    return arrive(folder, 9, rows=rows).read_bytes()


def broken(text: bytes) -> dict[str, tuple[bytes, str]]:
    """Names and contents of files that cannot be read, and the codes of their errors."""
    return {
        "b.jsonl": (text + BAD_LINE, "malformed-record"),
        "c.jsonl.gz": (gzip.compress(text)[:-20], "corrupt-file"),
        "d.jsonl": (text + b'{"text": "\xff", "label": "sea"}\n', "encoding"),
        "e.csv": (b"x,y\n1,2\n", "missing-field"),
        "f.parquet": (b"PAR1", "corrupt-file"),
        "g.jsonl": (text * 40 + BAD_LINE, "malformed-record"),  # several splits
    }


def deliver(run: RunFile, files: dict[str, bytes]) -> Path:
    folder = Path(run.ingest.inputs[0])
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def without(run: RunFile, name: str) -> RunFile:
    """The same run in another folder."""
    return run.model_copy(update={"out": run.out.parent / name})


def quarantine(run: RunFile) -> list[dict[str, Any]]:
    return rows_of(Path(str(run.out)), "history-quarantine")


def learned(run: RunFile) -> dict[str, bytes]:
    """What a run leaves, but for its table of files that were left out."""
    found = contents(Path(str(run.out)))
    found.pop("history-quarantine.parquet", None)
    return found


@pytest.mark.fault(63)
def test_unreadable_files_are_left_out_and_tried_again(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    run_nightly(without(run, "clean"))
    text = lines(tmp_path / "elsewhere")
    files = broken(text)
    folder = deliver(run, {name: data for name, (data, _) in files.items()})

    outcome = run_nightly(run)
    assert [row["documents"] for row in outcome.increments] == [90]
    assert {Path(row["file"]).name: row["code"] for row in outcome.left_out} == {k: v for k, (_, v) in files.items()}
    assert learned(run) == learned(without(run, "clean"))
    assert rows_of(Path(str(run.out)), "history-quarantine") == outcome.left_out
    page = (run.out / "nightly.html").read_bytes().decode()
    assert page.index("6 files could not be read") < page.index("is deployed")
    assert "b.jsonl, line 31: not valid JSON" in page
    assert "c.jsonl.gz is truncated" in nightly_markdown(run.out, "places")
    assert len(increments_table(run.out)) == 1

    again = run_nightly(run)  # they have not changed
    assert again.message == "Nothing new: all files that can be read are learned, up to increment 1."
    assert again.left_out == outcome.left_out

    deliver(run, {"b.jsonl": text})  # mended
    (folder / "c.jsonl.gz").unlink()
    outcome = run_nightly(run)
    assert [row["documents"] for row in outcome.increments] == [30]
    assert {Path(row["file"]).name for row in outcome.left_out} == {"d.jsonl", "e.csv", "f.parquet", "g.jsonl"}
    assert [row["until"] for row in quarantine(run)] == [1, 1, None, None, None, None]


@pytest.mark.fault(63)
def test_a_night_of_unreadable_files_only_is_an_error(tmp_path: Path) -> None:
    """Every night again, as long as it is the only new one; also the first night."""
    run = prepare(tmp_path)
    (tmp_path / "incoming").mkdir()
    deliver(run, {"b.jsonl": BAD_LINE, "c.jsonl": BAD_LINE, "empty.jsonl": b""})
    with raises_code("malformed-record", "b.jsonl"):
        run_nightly(run)
    good = arrive(tmp_path, 1)
    assert [Path(row["file"]).name for row in run_nightly(run).left_out] == ["b.jsonl", "c.jsonl"]
    deliver(run, {"d.jsonl": BAD_LINE})
    for _ in range(2):
        with raises_code("malformed-record", "d.jsonl"):
            run_nightly(run)
    assert [row["increment"] for row in quarantine(run)] == [1, 1]
    assert good.exists()


def test_bad_rows_count_in_files_that_are_read(tmp_path: Path) -> None:
    """The limit is that of an increment, and a file that exceeds it is left out with all of its rows."""
    limit = {"min_df = 1": 'min_df = 1\nduplicates = "all"\nmax_bad_rows = 3'}
    run = prepare(tmp_path, 1, **limit)
    text = lines(tmp_path / "elsewhere")
    deliver(run, {"a.jsonl": text + 9 * BAD_LINE, "b.jsonl": text + 2 * BAD_LINE, "c.jsonl": text + 2 * BAD_LINE})
    outcome = run_nightly(run)
    assert [(Path(row["file"]).name, row["code"]) for row in outcome.left_out] == [
        ("a.jsonl", "too-many-bad-rows"),
        ("c.jsonl", "too-many-bad-rows"),
    ]
    manifest = latest_manifest(run.store)
    assert manifest is not None
    assert (manifest.rows, manifest.quarantined_rows) == (120, 2)
    outcome = run_nightly(prepare(tmp_path, **limit, **{"max_bad_rows = 3": "max_bad_rows = 9"}))
    assert [row["documents"] for row in outcome.increments] == [30]  # a.jsonl, and its nine bad rows
    assert [Path(row["file"]).name for row in outcome.left_out] == ["c.jsonl"]


@pytest.mark.parametrize("when", ["while it is read", "before it is read"])
def test_a_file_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    run = prepare(tmp_path, 1)
    path = deliver(run, {"b.jsonl": lines(tmp_path / "elsewhere")}) / "b.jsonl"

    def append() -> None:
        with path.open("ab") as file:
            file.write(b"\n")

    def writing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if when == "before it is read":
                append()
            result = function(*arguments, **options)
            append()
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.text.ingest.find_sources", writing(nightly_run.find_sources))
        outcome = run_nightly(run)
    assert [row["documents"] for row in outcome.increments] == [90]
    assert [row["code"] for row in outcome.left_out] == ["input-changed"]
    outcome = run_nightly(run)
    assert (outcome.increments[0]["documents"], outcome.left_out) == (30, [])


def test_an_error_that_is_not_of_a_file_ends_the_run(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    path = arrive(tmp_path, 2)
    path.write_text(path.read_text().replace('"id": "r180"', '"id": "r181"'))
    with raises_code("duplicate-id"):
        run_nightly(run)
    assert not (run.out / "history-quarantine.parquet").exists()


def test_too_many_unreadable_files_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly_run, "MAX_UNREADABLE", 2)
    run = prepare(tmp_path, 1)
    deliver(run, dict.fromkeys(("b.jsonl", "c.jsonl", "d.jsonl"), BAD_LINE))
    with raises_code("malformed-record", "d.jsonl"):
        run_nightly(run)


def test_an_ingest_reads_all_files_or_none(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    deliver(run, {"b.jsonl": BAD_LINE})
    with pytest.raises(InputError) as raised:
        ingest(list(run.ingest.inputs), run.store, run.ingest.text)
    assert raised.value.source == str(Path(run.ingest.inputs[0]) / "b.jsonl")


def check_stopped(run: RunFile, monkeypatch: pytest.MonkeyPatch, commits: range) -> int:
    """Stop the second of two nights at each of these commits, and run it again: the bytes of an undisturbed run."""
    text = lines(Path(str(run.out.parent)) / "elsewhere")
    whole, sync = without(run, "whole"), commit._sync
    first = {"inputs": (str(Path(run.ingest.inputs[0]) / "increment-1.jsonl"),)}

    def begin(run: RunFile) -> None:
        run_nightly(run.model_copy(update={"ingest": run.ingest.model_copy(update=first)}))

    arrive(Path(str(run.out.parent)), 2)
    deliver(run, {"b.jsonl": text + BAD_LINE, "c.jsonl": gzip.compress(text)})
    begin(whole)
    run_nightly(whole)
    for at in commits:
        stopped = without(run, f"at-{at}")
        begin(stopped)
        calls = 0

        def stop(path: Path, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise SparseocoError("stopped", code="stopped")
            sync(path)

        monkeypatch.setattr(commit, "_sync", stop)
        try:
            run_nightly(stopped)
        except SparseocoError as error:
            assert error.code == "stopped"  # noqa: PT017 - the last round does not fail
        monkeypatch.setattr(commit, "_sync", sync)
        run_nightly(stopped)
        found = contents(Path(str(stopped.out)))
        expected = contents(Path(str(whole.out)))
        assert {name: found.get(name) for name in expected} == expected, at
        if calls < at:
            return at
    return commits.stop


def test_stopped_while_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_stopped(prepare(tmp_path, 1), monkeypatch, range(1, 14, 4))


@pytest.mark.slow
def test_stopped_at_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_stopped(prepare(tmp_path, 1), monkeypatch, range(1, 200)) > 20


def test_a_file_that_is_mended_before_the_run_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an ingest that was not committed has recorded is dropped."""
    run = prepare(tmp_path, 1)
    text = lines(tmp_path / "elsewhere")
    deliver(run, {"b.jsonl": text + BAD_LINE})

    def stop(*_: Any) -> None:
        raise SparseocoError("stopped", code="stopped")

    with monkeypatch.context() as patch, raises_code("stopped", kind=SparseocoError):
        patch.setattr("sparseoco.text.ingest.commit_manifest", stop)
        run_nightly(run)
    assert len(quarantine(run)) == 1
    deliver(run, {"b.jsonl": text})
    outcome = run_nightly(run)
    assert (outcome.increments[0]["documents"], outcome.left_out, quarantine(run)) == (120, [], [])


def test_the_command_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = prepare(tmp_path, 1)
    deliver(run, {"b.jsonl": BAD_LINE})
    assert call(monkeypatch, "nightly", tmp_path / "places.toml") == 0
    printed = capsys.readouterr()
    assert "b.jsonl, line 1: not valid JSON" in printed.err
    assert "[malformed-record]" in printed.err
    assert "increment 1: 90 documents" in printed.out
    assert call(monkeypatch, "status", run.out) == 0
    assert "b.jsonl, line 1: not valid JSON" in capsys.readouterr().out
    assert call(monkeypatch, "status", run.out, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["increments"]["left_out"]
    assert os.path.basename(row["file"]) == "b.jsonl"


def test_the_first_of_many_are_named() -> None:
    row = {"until": None, "reason": "why", "code": "encoding"}
    lines = left_out_lines([row] * (LISTED + 2) + [row | {"until": 3}])
    assert len(lines) == LISTED + 1
    assert "2 other files" in lines[-1]
