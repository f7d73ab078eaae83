"""Faults of nightly runs: kills, full disks, lost or corrupt files, unreadable inputs, runs that overlap."""

import errno
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError, SparseocoError, StorageError
from sparseoco.pipeline.nightly import increments_table, left_out_lines, nightly_markdown, run_nightly
from sparseoco.pipeline.nightly import run as nightly_run
from sparseoco.pipeline.nightly.page import LISTED
from sparseoco.pipeline.run_file import RunFile
from sparseoco.search import results as block_run
from sparseoco.search.results import IncrementResults
from sparseoco.storage import commit
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.tables import write_parquet
from sparseoco.store.manifest import latest_manifest
from sparseoco.text.ingest import ingest
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, prepare, rows_of
from tests.support.pages import figures

# ----------------------------------------------------------------------------------------------------------------------
# A nightly run that is killed, or short of disk, at any moment and is run again ends with the same bytes.


INCREMENTS = 3
KILL = """
import os, sys
from sparseoco.storage import commit
from sparseoco.search import worker
from sparseoco.training import stream
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.pipeline.nightly import run_nightly

worker.POLL_SECONDS, worker._pays, stream.CHUNK_ROWS = 0, lambda *_, **__: True, 31
at, calls, sync = int(sys.argv[2]), 0, commit._sync

def kill(path):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), 9)
    sync(path)

commit._sync = kill
run_nightly(load_run_file(sys.argv[1]))
"""


def fresh(folder: Path, texts: Path) -> RunFile:
    """A run on the files in `texts`, which are the same for all runs: a manifest names its sources."""
    return prepare(folder, **{'inputs = ["incoming"]': f'inputs = ["{texts / "incoming"}"]'})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The folder of the files of all increments, and what an undisturbed run leaves that learns all but one at once."""
    folder = tmp_path_factory.mktemp("whole")
    run = fresh(folder, folder)
    arrive(folder, 1)
    run_nightly(run)
    for increment in range(2, INCREMENTS + 1):
        arrive(folder, increment)
    run_nightly(run)
    return folder, contents(folder / "run")


def begin(folder: Path, texts: Path) -> RunFile:
    """A run that has finished its first increment, with the first file alone."""
    run = fresh(folder, texts)
    first = run.model_copy(
        update={"ingest": run.ingest.model_copy(update={"inputs": (str(texts / "incoming" / "increment-1.jsonl"),)})}
    )
    run_nightly(first)
    return run


def check(run: RunFile, expected: dict[str, bytes], at: int) -> None:
    got = contents(Path(str(run.out)))
    # A shard whose commit failed after it was written may lie there unlisted; nothing else may differ.
    assert {name: got.get(name) for name in expected} == expected, at


def check_failures(folder: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch, first: int, stride: int) -> int:
    """A full disk at the first, first + stride, … commit of the second run."""
    texts, expected = whole
    sync, n = commit._sync, first
    while True:
        run = begin(folder / f"at-{n}", texts)
        calls = 0

        def fail(path: Path, at: int = n) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(path)

        monkeypatch.setattr(commit, "_sync", fail)
        try:
            run_nightly(run)
        except StorageError as error:
            assert "The disk is full" in str(error)  # noqa: PT017 - the last round does not fail
        monkeypatch.setattr(commit, "_sync", sync)
        run_nightly(run)
        check(run, expected, n)
        if calls < n:
            return n
        n += stride


def test_results_that_were_not_committed_are_by_a_run_without_new_files(
    tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(tmp_path, whole[0])
    with monkeypatch.context() as patch:
        patch.setattr(IncrementResults, "write", Mock(side_effect=StorageError("full", code="disk-full")))
        with raises_code("disk-full", kind=StorageError):
            run_nightly(run)
    assert run_nightly(run).message.startswith("Nothing new")
    check(run, whole[1], 0)


@pytest.mark.slow
def test_a_full_disk_at_any_commit(tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, whole, monkeypatch, 9, 31) > 30


@pytest.mark.slow
def test_a_full_disk_at_every_commit(tmp_path: Path, whole: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, whole, monkeypatch, 1, 1) > 30


def killed(run_file: Path, at: int) -> bool:
    return subprocess.run([sys.executable, "-c", KILL, str(run_file), str(at)], check=False).returncode == -9


def test_killed_at_a_commit(tmp_path: Path, whole: tuple) -> None:
    run = begin(tmp_path, whole[0])
    assert killed(tmp_path / "places.toml", 21)
    run_nightly(run)
    check(run, whole[1], 21)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_killed_at_every_commit(tmp_path: Path, whole: tuple, first: int) -> None:
    """Also within increments, which save checkpoints; at every fourth commit from the first on."""
    at = first
    while True:
        run = begin(tmp_path / f"at-{at}", whole[0])
        came_through = not killed(tmp_path / f"at-{at}" / "places.toml", at)
        run_nightly(run)
        check(run, whole[1], at)
        if came_through:
            break
        at += 4
    assert at > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path: Path, whole: tuple, seed: int) -> None:
    """Killed again and again, at moments that no commit decides, until a run comes through."""
    texts, expected = whole
    run = begin(tmp_path, texts)
    choose = random.Random(seed)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", KILL, str(tmp_path / "places.toml"), "-1"]) as process:
            before, wanted = listing(tmp_path / "run"), choose.randint(1, 15)
            while process.poll() is None and len(listing(tmp_path / "run") ^ before) < wanted:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            break
    run_nightly(run)
    check(run, expected, seed)


def listing(folder: Path) -> set[tuple[str, int]]:
    found = set()
    for parent, _, names in os.walk(folder):  # which folders that go meanwhile do not stop
        for name in names:
            with suppress(FileNotFoundError):
                found.add((name, os.stat(os.path.join(parent, name)).st_mtime_ns))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Lost, corrupt or outdated files between increments: the bytes of an undisturbed run, or an error.


KINDS = ("evaluations", "checkpoints")


def learn(folder: Path, increments: int = INCREMENTS) -> RunFile:
    """Increments one by one."""
    for increment in range(1, increments + 1):
        run = prepare(folder)
        arrive(folder, increment)
        run_nightly(run)
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with one more increment."""
    folder = tmp_path_factory.mktemp("undisturbed")
    learn(folder, INCREMENTS + 1)
    return folder


def same(run: RunFile, undisturbed: Path) -> None:
    """Run the last increment, and compare its files with those of an undisturbed run."""
    arrive(Path(str(run.out)).parent, INCREMENTS + 1)
    run_nightly(run)
    found, wanted = contents(Path(str(run.out))), contents(undisturbed / "run")
    wanted = {name: data for name, data in wanted.items() if "sources-" not in name}  # which say where they are
    assert {name for name in wanted if name not in found} == set()
    different = {name for name in wanted if found[name] != wanted[name]}
    # A manifest says where its sources are; evaluations of increments with a decision are no longer needed.
    assert {name for name in different if "manifest" not in name and "evaluations" not in name} == set()


def flip(data: bytes) -> bytes:
    """A digit that is another one."""
    place = next(i for i in range(len(data) // 2, len(data)) if chr(data[i]).isdigit())
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        pytest.param(lambda data: b"{}", marks=pytest.mark.slow),
        pytest.param(lambda data: b"null", marks=pytest.mark.slow),
        pytest.param(lambda data: data[:-9], marks=pytest.mark.slow),
        flip,
    ],
    ids=["empty", "object", "null", "torn", "flipped"],
)
def test_corrupt_results_are_recomputed(tmp_path: Path, undisturbed: Path, damage: Callable[[bytes], bytes]) -> None:
    run = learn(tmp_path)
    nightly = tmp_path / "run" / "nightly"
    for paths in ([nightly / "increments.npz"], *(sorted((nightly / k).glob("*.json")) for k in KINDS)):
        assert paths
        for path in paths:
            path.write_bytes(damage(path.read_bytes()))
    same(run, undisturbed)


def test_a_transient_memory_error_decides_nothing(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = learn(tmp_path)
    short = {"cl-fobos", "rda"}
    passes = block_run.BlockRun.passes

    def learn_rows(self: block_run.BlockRun, *arguments: object) -> object:
        if self.block.algorithm in short and len(self.block.configurations) == 1:
            short.remove(self.block.algorithm)
            raise MemoryError
        if self.block.algorithm in short:
            raise MemoryError  # the block is halved, until one is alone
        return passes(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(block_run.BlockRun, "passes", learn_rows)
    same(run, undisturbed)
    assert not short


def test_a_transient_file_system_error_ends_the_run(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = learn(tmp_path)

    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    arrive(tmp_path, INCREMENTS + 1)
    with monkeypatch.context() as patch, raises_code("io-error", os.strerror(errno.ESTALE), kind=StorageError):
        patch.setattr("sparseoco.search.worker.weighted_corpus", stale)
        run_nightly(run)
    assert len(rows_of(tmp_path / "run", "history")) == INCREMENTS
    same(run, undisturbed)


def test_decisions_of_a_lost_history_are_repeated(tmp_path: Path, undisturbed: Path) -> None:
    """Also where a model that was not deployed had been deleted: its increment is learned again."""
    run = learn(tmp_path)
    (tmp_path / "run" / "history.parquet").unlink()
    shutil.rmtree(tmp_path / "run" / "models" / "00000001")
    same(run, undisturbed)


def test_a_missing_table_is_not_overwritten(tmp_path: Path, undisturbed: Path) -> None:
    run = learn(tmp_path)
    (tmp_path / "run" / "history-configurations.parquet").unlink()
    arrive(tmp_path, INCREMENTS + 1)
    with raises_code("incomplete-history", "history-configurations.parquet lacks 3 of 3", kind=StorageError):
        run_nightly(run)
    assert not (tmp_path / "run" / "history-configurations.parquet").exists()
    (tmp_path / "run" / "history.parquet").unlink()
    same(run, undisturbed)


def test_a_partly_overwritten_model_is_rewritten(tmp_path: Path, undisturbed: Path) -> None:
    """Killed after another model's weights, when the grid had changed: model.json still names the old."""
    run = learn(tmp_path)
    models = tmp_path / "run" / "models"
    shutil.copy(models / "00000001" / "weights.parquet", models / "00000003" / "weights.parquet")
    (tmp_path / "run" / "history.parquet").unlink()
    same(run, undisturbed)


def test_a_deployed_model_that_is_missing(tmp_path: Path) -> None:
    run = learn(tmp_path, 2)
    shutil.rmtree(tmp_path / "run" / "models" / "00000002")
    arrive(tmp_path, 3)
    with raises_code("missing-model", "sparseoco nightly RUN_FILE --rollback INCREMENT", kind=SparseocoError):
        run_nightly(run)


def test_a_first_increment_of_one_class(tmp_path: Path) -> None:
    run = prepare(tmp_path)
    arrive(tmp_path, 1, rows=10, classes=1)
    with raises_code("one-class", "(sea)", "[ingest], classes"):
        run_nightly(run)
    arrive(tmp_path, 2)
    shutil.rmtree(tmp_path / "run" / "shards")
    named = prepare(tmp_path, **{'inputs = ["incoming"]': 'inputs = ["incoming"]\nclasses = ["sea", "town", "wood"]'})
    assert run_nightly(named).increments[0]["documents"] == 100


def test_a_history_of_another_version_is_an_error(tmp_path: Path) -> None:
    run = learn(tmp_path, 1)
    path = tmp_path / "run" / "history.parquet"
    table = pq.read_table(path)
    write_parquet(path, table.rename_columns([name.replace("increment", "night") for name in table.column_names]))
    with raises_code("format-version", path, kind=StorageError):
        run_nightly(run)


# ----------------------------------------------------------------------------------------------------------------------
# New files that cannot be read are left out as a whole, reported, and tried again when they have changed.


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
    assert "b.jsonl, line 31: not valid JSON. To leave such rows out, set max_bad_rows.<" in page
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


def test_the_command_tells(tmp_path: Path, cli: Cli) -> None:
    run = prepare(tmp_path, 1)
    deliver(run, {"b.jsonl": BAD_LINE})
    printed = cli("nightly", tmp_path / "places.toml")
    assert "b.jsonl, line 1: not valid JSON" in printed.err
    assert "[malformed-record]" in printed.err
    assert "increment 1: 90 documents" in printed.out
    assert "b.jsonl, line 1: not valid JSON" in cli("status", run.out).out
    (row,) = json.loads(cli("status", run.out, "--json").out)["increments"]["left_out"]
    assert os.path.basename(row["file"]) == "b.jsonl"


def test_the_first_of_many_are_named() -> None:
    row = {"until": None, "reason": "why", "code": "encoding"}
    lines = left_out_lines([row] * (LISTED + 2) + [row | {"until": 3}])
    assert len(lines) == LISTED + 1
    assert "2 other files" in lines[-1]


# ----------------------------------------------------------------------------------------------------------------------
# Two nightly runs in one folder: one waits or ends, and they never write at once; the command and what it says.


@pytest.mark.fault(9)
def test_a_run_that_overlaps_ends(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    with exclusive_lock(run.out):
        outcome = run_nightly(run)
    assert outcome.message.startswith("Nothing was done: ")
    assert "is in use by process" in outcome.message
    assert (outcome.increments, outcome.page) == ([], None)
    assert not (tmp_path / "run" / "shards").exists()


def test_a_run_that_overlaps_waits(tmp_path: Path) -> None:
    """For whoever holds the run's folder, or the shards'."""
    run = prepare(tmp_path, 1)
    run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"if_running": "wait"})})
    outcomes = []
    waiting = threading.Thread(target=lambda: outcomes.append(run_nightly(run)))
    with exclusive_lock(run.store):
        waiting.start()
        time.sleep(1.0)
        assert not outcomes
    waiting.join()
    assert [row["increment"] for row in outcomes[0].increments] == [1]


def test_shards_in_the_folder_of_the_run(tmp_path: Path) -> None:
    """A run does not meet itself."""
    run = prepare(tmp_path, 1, **{'inputs = ["incoming"]': 'inputs = ["incoming"]\nstore = "run"'})
    outcome = run_nightly(run)
    assert [row["increment"] for row in outcome.increments] == [1], outcome.message


@pytest.mark.fault(9)
@pytest.mark.slow
def test_many_runs_at_once(tmp_path: Path) -> None:
    """Some wait and some end; what they leave is that of runs one by one."""
    for name in ("one", "many"):
        folder = tmp_path / name
        texts = f'inputs = ["{tmp_path / "incoming"}"]'
        prepare(folder, **{'inputs = ["incoming"]': texts})
    arrive(tmp_path, 1)
    for increment in (1, 2):
        arrive(tmp_path, increment)
        run_nightly(prepare(tmp_path / "one", **{'inputs = ["incoming"]': texts}))
        command = [sys.executable, "-m", "sparseoco", "nightly", str(tmp_path / "many" / "places.toml")]
        runs = [subprocess.Popen([*command, "--if-running", what]) for what in ("wait", "end") * 2]
        assert [process.wait() for process in runs] == [0] * 4
    assert contents(tmp_path / "many" / "run") == contents(tmp_path / "one" / "run")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Cli) -> None:
    prepare(tmp_path, 1)
    file = tmp_path / "places.toml"
    said = cli("nightly", file).out
    assert "increment 1: 90 documents, " in said
    assert "promoted: no model was deployed before" in said
    assert "nightly.html" in said
    printed = cli("nightly", file, "--if-running", "wait").out
    assert printed.startswith("Nothing new: all files are learned, up to increment 1.")
    with exclusive_lock(tmp_path / "run"):
        cli("nightly", file, "--if-running", "end")
    assert "Nothing was done" in capsys.readouterr().out
    assert "on 90 documents" in cli("evaluate", tmp_path / "run", tmp_path / "incoming" / "increment-1.jsonl").out
    odd = file.with_name("odd.toml")
    odd.write_text(file.read_text().replace("window = 2", "window = 0"))
    assert "nightly.window" in cli("nightly", odd, code=2).err
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('inputs = ["incoming"]', 'inputs = ["incoming"]\nstore = "elsewhere"'))
    assert "were not learned from the shards in" in cli("nightly", other, code=2).err


def test_the_page(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    run_nightly(run)
    (tmp_path / "incoming" / "increment-2.jsonl").write_text(
        '{"id": "x", "label": "sea", "text": "<script>alert(1)</script> wave"}\n'
    )
    page = run_nightly(run).page
    assert page is not None
    text = page.read_text()
    assert "The model of increment" in text
    assert set(figures(text)) == {"errors", "mix", "unknown", "recall", "precision"}
    assert "://" not in text
    assert len(rows_of(tmp_path / "run", "history-timings")) == 2
