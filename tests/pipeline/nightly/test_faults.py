"""Faults of nightly runs: kills, full disks, lost or corrupt files, unreadable inputs, runs that overlap."""

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError, SparseocoError, StorageError
from sparseoco.pipeline.nightly import increments_table, left_out_lines, nightly_markdown, run_nightly
from sparseoco.pipeline.nightly import run as nightly_run
from sparseoco.pipeline.nightly.records import LISTED
from sparseoco.pipeline.run_file import RunFile
from sparseoco.search import worker
from sparseoco.storage.commit import commit_json, exclusive_lock, read_json
from sparseoco.storage.tables import write_parquet
from sparseoco.store.manifest import latest_manifest
from sparseoco.text.ingest import ingest
from tests.support.commands import Cli
from tests.support.damage import stopped_at
from tests.support.errors import raises_code
from tests.support.nightly_runs import UNGUARDED, arrive, contents, copy_of, prepare, rows_of
from tests.support.pages import figures

# ----------------------------------------------------------------------------------------------------------------------
# Lost, corrupt or outdated files between increments: the bytes of an undisturbed run, or an error.
#
# tests/faults/test_every_command.py has kills and full disks at every commit of a run.


INCREMENTS = 3


@pytest.fixture
def run(four_nights: Path, tmp_path: Path) -> RunFile:
    """A run of some increments."""
    return copy_of(four_nights, tmp_path, INCREMENTS)


@pytest.fixture(scope="module")
def undisturbed(four_nights: Path) -> dict[str, bytes]:
    """What a run leaves that learned one more increment."""
    return comparable(four_nights / f"after-{INCREMENTS + 1}")


def comparable(run: Path) -> dict[str, bytes]:
    """Without manifests, which say where the inputs are."""
    left_out = ("sources-", "manifest")
    return {name: data for name, data in contents(run).items() if not any(word in name for word in left_out)}


def same(run: RunFile, undisturbed: dict[str, bytes]) -> None:
    """Run one more increment, and compare its files with those of an undisturbed run."""
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    run_nightly(run)
    found = comparable(run.out)
    assert {name for name, data in undisturbed.items() if found.get(name) != data} == set()


def results(run: Path, *changes: Callable[[bytes], bytes | None]) -> None:
    """Change every file of results, one after the other in one of these ways; nothing is left of some."""
    nightly = run / "nightly"
    for pattern in ("increments.parquet", "checkpoints/*.json", "checkpoints/*.learner"):
        paths = list(nightly.glob(pattern))
        assert paths
        for path, change in zip(sorted(paths), cycle(changes), strict=False):
            data = change(path.read_bytes())
            path.unlink() if data is None else path.write_bytes(data)


def flipped(data: bytes) -> bytes:
    """A digit that is another one."""
    place = next((i for i in range(len(data) // 2, len(data)) if chr(data[i]).isdigit()), len(data) // 2)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def lose_history(run: Path) -> None:
    """And a model that was not deployed, as if it had been deleted: its increment is learned again."""
    (run / "history.parquet").unlink()
    shutil.rmtree(run / "models" / "00000001")


def overwrite_model(run: Path) -> None:
    """As if killed after another model's weights, when the grid had changed: model.json still names the old."""
    models = run / "models"
    shutil.copy(models / "00000001" / "weights.parquet", models / "00000003" / "weights.parquet")
    (run / "history.parquet").unlink()


def move_states(run: Path) -> None:
    """As if killed between the states and their files, after another run had left the results of the increment."""
    for path in (run / "nightly" / "checkpoints").glob("*.json"):
        commit_json(path, read_json(path) | {"position": [1, 31]})


LOSSES: dict[str, Callable[[Path], None]] = {
    "objects or null": lambda run: results(run, lambda data: b"{}", lambda data: b"null"),
    "torn or empty": lambda run: results(run, lambda data: data[:-9], lambda data: b""),
    "flipped or missing": lambda run: results(run, flipped, lambda data: None),
    "the history": lose_history,
    "a model": overwrite_model,
    "positions": move_states,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_or_corrupt_is_computed_again(run: RunFile, undisturbed: dict[str, bytes], loss: str) -> None:
    LOSSES[loss](run.out)
    same(run, undisturbed)


def states(run: RunFile) -> set[str]:
    return {path.name for path in (run.out / "nightly" / "checkpoints").iterdir()}


@pytest.mark.parametrize(
    ("step", "removed"),
    [
        ("sparseoco.pipeline.nightly.records.add_increment", False),
        ("sparseoco.search.increments.IncrementChain.remove_unneeded", False),
        ("sparseoco.search.increments.IncrementResults.write", True),
    ],
)
def test_what_was_not_done_before_a_stop(run: RunFile, undisturbed: dict[str, bytes], step: str, removed: bool) -> None:
    """A run that has decided, without new files, or one that has learned: the next removes states, commits results."""
    before = states(run)
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    with stopped_at(step):
        run_nightly(run)
    assert (before < states(run)) != removed
    assert run_nightly(run).message.startswith("Nothing new") != step.endswith("add_increment")
    assert comparable(run.out) == undisturbed
    assert not before & states(run)
    assert len(before) == len(states(run))


def test_a_transient_memory_error_decides_nothing(
    run: RunFile, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"cl-fobos", "rda"}
    learn = worker.BlockRun.learn

    def learn_rows(self: worker.BlockRun, *arguments: object) -> object:
        if self.block.algorithm in short and len(self.block.configurations) == 1:
            short.remove(self.block.algorithm)
            raise MemoryError
        if self.block.algorithm in short:
            raise MemoryError  # the block is halved, until one is alone
        return learn(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.BlockRun, "learn", learn_rows)
    same(run, undisturbed)
    assert not short


@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("sparseoco.search.worker.block_corpus", errno.ESTALE),
        ("sparseoco.storage.tables.as_local_file", errno.EMFILE),
    ],
)
def test_a_transient_error_of_the_system_ends_the_run(
    run: RunFile, undisturbed: dict[str, bytes], step: str, number: int
) -> None:
    """A file system that does not answer, or no file descriptors: all states are kept, and the next run resumes."""
    before = states(run)
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    error = OSError(number, os.strerror(number))
    with patch(step, side_effect=error), raises_code("io-error", os.strerror(number), kind=StorageError):
        run_nightly(run)
    assert states(run) == before
    assert len(rows_of(run.out, "history")) == INCREMENTS
    with patch("sparseoco.search.worker.StateLostError", None):
        same(run, undisturbed)


def test_a_missing_table_is_not_overwritten(run: RunFile, undisturbed: dict[str, bytes]) -> None:
    (run.out / "history-configurations.parquet").unlink()
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    with raises_code("incomplete-history", "history-configurations.parquet lacks 3 of 3", kind=StorageError):
        run_nightly(run)
    assert not (run.out / "history-configurations.parquet").exists()
    (run.out / "history.parquet").unlink()
    same(run, undisturbed)


def test_a_deployed_model_that_is_missing(run: RunFile) -> None:
    shutil.rmtree(run.out / read_json(run.out / "promoted.json")["model"])
    arrive(run.out.parent, INCREMENTS + 1, to="later")
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


def test_a_history_of_another_version_is_an_error(run: RunFile) -> None:
    path = run.out / "history.parquet"
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


def deliver(run: RunFile, files: dict[str, bytes]) -> Path:
    folder = Path(run.ingest.inputs[0])
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def without(run: RunFile, name: str) -> RunFile:
    """The same run in another folder."""
    return run.model_copy(update={"out": run.out.parent / name})


def without_quarantine(run: RunFile) -> dict[str, bytes]:
    """What a run leaves, but for its table of files that were left out."""
    found = contents(run.out)
    found.pop("history-quarantine.parquet", None)
    return found


@pytest.mark.fault(63)
def test_unreadable_files_are_left_out_and_tried_again(tmp_path: Path) -> None:
    run = prepare(tmp_path, 1)
    run_nightly(without(run, "clean"))
    text = lines(tmp_path / "elsewhere")
    files = {
        "b.jsonl": (text + BAD_LINE, "malformed-record"),
        "c.jsonl.gz": (gzip.compress(text)[:-20], "corrupt-file"),
        "d.jsonl": (text + b'{"text": "\xff", "label": "sea"}\n', "encoding"),
        "e.csv": (b"x,y\n1,2\n", "missing-field"),
        "f.parquet": (b"PAR1", "corrupt-file"),
        "g.jsonl": (text * 40 + BAD_LINE, "malformed-record"),  # several splits
    }
    folder = deliver(run, {name: data for name, (data, _) in files.items()})

    outcome = run_nightly(run)
    assert [row["documents"] for row in outcome.increments] == [90]
    assert {Path(row["file"]).name: row["code"] for row in outcome.left_out} == {k: v for k, (_, v) in files.items()}
    assert without_quarantine(run) == without_quarantine(without(run, "clean"))
    assert rows_of(run.out, "history-quarantine") == outcome.left_out
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
    assert [row["until"] for row in rows_of(run.out, "history-quarantine")] == [1, 1, None, None, None, None]


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
    assert [row["increment"] for row in rows_of(run.out, "history-quarantine")] == [1, 1]
    assert good.exists()


def test_bad_rows_count_in_files_that_are_read(tmp_path: Path) -> None:
    """The limit is that of an increment, and a file that exceeds it is left out with all of its rows."""
    limit = {"min_df = 1": 'min_df = 1\nduplicates = "all"\nmax_bad_rows = 3'} | UNGUARDED
    run = prepare(tmp_path, 1, **limit)
    text = lines(tmp_path / "elsewhere")
    deliver(run, {"a.jsonl": text + 9 * BAD_LINE, "b.jsonl": text + 2 * BAD_LINE, "c.jsonl": text + 2 * BAD_LINE})
    outcome = run_nightly(run)
    assert [(Path(row["file"]).name, row["code"]) for row in outcome.left_out] == [
        ("a.jsonl", "too-many-bad-rows"),
        ("c.jsonl", "too-many-bad-rows"),
    ]
    manifest = latest_manifest(run.store)
    assert (manifest.rows, manifest.quarantined_rows) == (120, 2)
    outcome = run_nightly(prepare(tmp_path, **limit, **{"max_bad_rows = 3": "max_bad_rows = 9"}))
    assert [row["documents"] for row in outcome.increments] == [30]  # a.jsonl, and its nine bad rows
    assert [Path(row["file"]).name for row in outcome.left_out] == ["c.jsonl"]


@pytest.mark.parametrize("when", ["while it is read", "before it is read"])
def test_a_file_that_is_being_written(tmp_path: Path, when: str) -> None:
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

    with patch("sparseoco.text.passes.find_sources", writing(nightly_run.find_sources)):
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


def test_a_file_that_is_mended_before_the_run_is_repeated(tmp_path: Path) -> None:
    """What an ingest that was not committed has recorded is dropped."""
    run = prepare(tmp_path, 1)
    text = lines(tmp_path / "elsewhere")
    deliver(run, {"b.jsonl": text + BAD_LINE})
    with stopped_at("sparseoco.text.ingest.commit_manifest"):
        run_nightly(run)
    assert len(rows_of(run.out, "history-quarantine")) == 1
    deliver(run, {"b.jsonl": text})
    outcome = run_nightly(run)
    assert (outcome.increments[0]["documents"], outcome.left_out) == (120, [])
    assert rows_of(run.out, "history-quarantine") == []


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


def test_the_command_and_its_page(tmp_path: Path, cli: Cli) -> None:
    prepare(tmp_path, 1)
    file, page = tmp_path / "places.toml", tmp_path / "run" / "nightly.html"
    said = cli("nightly", file).out
    assert "increment 1: 90 documents, " in said
    assert "promoted: no model was deployed before" in said
    assert str(page) in said
    printed = cli("nightly", file, "--if-running", "wait").out
    assert printed.startswith("Nothing new: all files are learned, up to increment 1.")
    with exclusive_lock(tmp_path / "run"):
        assert "Nothing was done" in cli("nightly", file, "--if-running", "end").out
    assert "on 90 documents" in cli("evaluate", tmp_path / "run", tmp_path / "incoming" / "increment-1.jsonl").out
    odd = file.with_name("odd.toml")
    odd.write_text(file.read_text().replace("window = 2", "window = 0"))
    assert "nightly.window" in cli("nightly", odd, code=2).err
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('inputs = ["incoming"]', 'inputs = ["incoming"]\nstore = "elsewhere"'))
    assert "were not learned from the shards in" in cli("nightly", other, code=2).err
    (tmp_path / "incoming" / "increment-2.jsonl").write_text(
        '{"id": "x", "label": "sea", "text": "<script>alert(1)</script> wave"}\n'
    )
    (tmp_path / "incoming" / "b.jsonl").write_bytes(BAD_LINE)
    printed = cli("nightly", file).err
    assert "b.jsonl, line 1: not valid JSON" in printed
    assert "[malformed-record]" in printed
    assert "b.jsonl, line 1: not valid JSON" in cli("status", tmp_path / "run").out
    (row,) = json.loads(cli("status", tmp_path / "run", "--json").out)["increments"]["left_out"]
    assert os.path.basename(row["file"]) == "b.jsonl"
    text = page.read_text()
    assert "The model of increment" in text
    assert set(figures(text)) == {"errors", "drift", "shares", "recall"}
    assert "://" not in text
    assert len(rows_of(tmp_path / "run", "history-timings")) == 2
