"""The status of folders, and what is removed from them."""

import json
import os
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import FolderInUseError, SparseocoError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.ops.status import Removed, Status, best_so_far, clean, read_status
from sparseoco.pipeline.nightly import roll_back, run_nightly
from sparseoco.pipeline.nightly.records import TABLES, add_increment, add_rollback, read_history
from sparseoco.pipeline.run_file import RunFile
from sparseoco.pipeline.steps import search, train_best
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import model_entries
from sparseoco.scoring.score import ScoreRun
from sparseoco.storage.commit import commit_json, exclusive_lock, read_json
from sparseoco.storage.locations import files_below
from sparseoco.storage.temporary import boot
from sparseoco.store.manifest import commit_manifest, read_manifest
from sparseoco.training.models import Model
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts, write_files
from tests.support.models import random_model
from tests.support.nightly_runs import PROMOTES, arrive, contents, copy_of, promoting
from tests.support.searches import metrics_row, plain_search
from tests.support.stores import make_store
from tests.support.texts import write_run_file

OPTIONS = plain_search(
    algorithms={"rda": {"gamma": [1.0, 3.0], "lam": [1e-3]}, "fobos": {"eta0": [0.5, 1e12], "lam": [1e-4]}},
    folds=2,
    epochs=2,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("status")
    store = make_store(folder / "shards")
    search(store, folder / "run", OPTIONS, ClusterOptions(threads=1), name="here")
    train_best(store, folder / "run", ClusterOptions(threads=1))
    return folder / "run"


def states(found: Status) -> dict[str, str]:
    return {step.name: step.state for step in found.steps}


def test_a_run_is_reported_step_by_step(run: Path) -> None:
    found = read_status(run)
    done, later = ("ingest", "search", "train"), ("evaluate", "report")
    assert states(found) == dict.fromkeys(done, "done") | dict.fromkeys(later, "not started")
    figures = found.steps[1].figures
    assert (figures["cells"], figures["completed"], figures["running"]) == (8, 8, 0)
    assert figures["rows"] == figures["total_rows"] == 8 * 2 * 300
    best = json.loads((run / "search" / "best.json").read_bytes())
    assert figures["best"]["configuration"] == best["configuration"]
    assert figures["best"]["error"] == best["held_out_error"]
    assert (found.locks, found.under_way, found.ended) == ([], False, False)


def test_a_run_is_locked_while_its_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    file, out, held = write_run_file(tmp_path), tmp_path / "run", {}

    def look(path: Path, *_: object, **__: object) -> None:
        held[path.name] = any(path.is_relative_to(lock.folder) for lock in read_status(out).locks)

    def looking(write: Callable[..., None]) -> Callable[..., None]:
        return lambda path, *arguments, **options: (look(path), write(path, *arguments, **options))[1]

    for name in (
        "sparseoco.storage.commit.commit_json",
        "sparseoco.search.run.write_result_table",
        "sparseoco.pipeline.evaluation.commit_json",
        "sparseoco.report.page.commit_bytes",
    ):
        monkeypatch.setattr(name, looking(pydoc.locate(name)))  # type: ignore[arg-type]
    cli("run", file)
    assert set(held) >= {"run.json", "metrics.parquet", "best.json", "evaluation.json", "report.html"}
    assert all(held.values()), held


def test_a_running_search_is_read_from_its_cells(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    os.symlink(run.parent / "shards", tmp_path / "shards")
    (copy / "search" / "cells").mkdir(parents=True)
    (copy / "run.json").write_bytes((run / "run.json").read_bytes())
    kept = [path for path in (run / "search" / "cells").iterdir() if not path.stem.endswith("-2-300")]
    for path in kept:
        (copy / "search" / "cells" / path.name).write_bytes(path.read_bytes())
    with exclusive_lock(copy):
        found = read_status(copy)
        assert found.under_way
        assert [lock.owner.split()[1] for lock in found.locks] == [str(os.getpid())]
    figures = found.steps[1].figures
    diverged = figures["by_status"].get("diverged", 0)
    assert figures["completed"] == diverged
    assert figures["running"] == 8 - diverged
    assert figures["rows"] == 300 * (8 - diverged) + 600 * diverged
    assert figures["best"]["epoch"] == 1
    found = read_status(copy)
    assert (states(found)["search"], found.under_way) == ("started", False)


def test_cells_of_a_search_of_more_epochs_count_up_to_the_epochs_requested(run: Path, tmp_path: Path) -> None:
    described = read_json(run / "run.json")
    described["search"]["epochs"] = 1
    os.symlink(run.parent / "shards", tmp_path / "shards")
    (tmp_path / "run" / "search").mkdir(parents=True)
    os.symlink(run / "search" / "cells", tmp_path / "run" / "search" / "cells")
    commit_json(tmp_path / "run" / "run.json", described)
    figures = read_status(tmp_path / "run").steps[1].figures
    assert (figures["completed"], figures["running"]) == (8, 0)
    assert figures["rows"] == figures["total_rows"] == 8 * 300
    assert figures["best"]["epoch"] == 1


def test_locks_are_reported(run: Path, cli: Cli) -> None:
    def lines() -> list[str]:
        return cli("status", run).out.splitlines()

    assert lines()[1] == "no process is running"
    with exclusive_lock(run):
        assert lines()[1].startswith(f"{run} is locked by process {os.getpid()} on ")
    lock = run / ".lock"
    lock.write_text("process 1 on another-machine")
    try:
        assert lines()[1] == (
            f"{run} was locked by process 1 on another-machine; it cannot be checked from here whether that process is "
            "still running: new files in the folder show that it is"
        )
    finally:
        lock.unlink()


def test_a_search_without_candidates_is_reported(run: Path, tmp_path: Path) -> None:
    store, out = run.parent / "shards", tmp_path / "run"
    grid = {"fobos": {"eta0": [1e12], "lam": [1e-4]}}
    with raises_code("no-candidate", kind=SparseocoError):
        search(store, out, plain_search(algorithms=grid, folds=2), ClusterOptions(threads=1))
    found = read_status(out)
    assert found.steps[1].figures["by_status"] == {"diverged": 2}
    assert found.steps[1].figures["completed"] == 2


def test_status_writes_nothing(run: Path, cli: Cli) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.parent.rglob("*")}
    assert "8 of 8 cells completed" in cli("status", run).out
    printed = json.loads(cli("status", run, "--json").out)
    assert (printed["name"], printed["steps"][0]["figures"]["rows"]) == ("here", 300)
    assert {path: path.stat().st_mtime_ns for path in run.parent.rglob("*")} == before


def test_shards_and_models_alone_have_a_status(run: Path) -> None:
    assert states(read_status(run.parent / "shards")) == {"ingest": "done"}
    assert states(read_status(run / "model")) == {"train": "done"}


def test_scores_have_a_status(tmp_path: Path) -> None:
    random_model(tmp_path / "run")
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(300, 7)))
    models, options = model_entries(str(tmp_path / "run" / "model"), ()), ScoreOptions(shard_bytes=4096)
    ScoreRun(models, [str(tmp_path / "a.jsonl")], tmp_path / "scores", options, {}).score()
    found = read_status(tmp_path / "scores")
    assert states(found) == {"score": "done"}
    assert found.steps[0].summary.startswith("300 documents scored")
    assert found.ended
    (tmp_path / "scores" / "manifest.json").unlink()  # as before it is committed
    with exclusive_lock(tmp_path / "scores"):
        found = read_status(tmp_path / "scores")
    assert states(found) == {"score": "started"}
    assert found.under_way


def record(folder: Path, *rows: dict[str, Any]) -> None:
    """The history of increments."""
    for increment, row in enumerate(rows, start=1):
        add_increment(folder, increment, {name: [row] if name == "history" else [{}] for name in TABLES})


def test_increments_are_reported_with_the_deployed_model(tmp_path: Path) -> None:
    first = {"documents": 50, "error": 0.25, "promoted": True}
    second = {"documents": 40, "error": 0.3, "deployed": 1, "deployed_error": 0.2, "promoted": False}
    record(tmp_path, first, second)
    found = read_status(tmp_path)
    assert (found.increments.total, found.increments.last["increment"]) == (2, 2)
    assert "the last has 40 documents" in found.increments.summary
    assert "not promoted; the model of increment 1 is deployed" in found.increments.summary


def test_errors_after_a_rollback_are_those_of_the_models_they_name(tmp_path: Path) -> None:
    first = {"documents": 50, "error": 0.25, "promoted": True, "store": "1"}
    second = first | {"documents": 40, "error": 0.3, "deployed": 1, "deployed_error": 0.2, "store": "2"}
    third = second | {"error": 0.4, "deployed": 2, "deployed_error": 0.9, "store": "3"}
    record(tmp_path, first, second, third)
    summary = increments_summary(tmp_path)
    assert "error of the candidate 40.0 %, of the model of increment 2 90.0 %: promoted; the model of inc" in summary
    assert summary.endswith(", progressive error 40.0 % on increment 3")
    add_rollback(tmp_path, 1, read_history(tmp_path, "history"))
    assert increments_summary(tmp_path).endswith(" UTC), error 20.0 % on increment 2")


def increments_summary(folder: Path) -> str:
    return read_status(folder).increments.summary.replace("\N{NO-BREAK SPACE}", " ")


def test_an_increment_that_is_ingested_and_not_trained_is_reported(tmp_path: Path, cli: Cli) -> None:
    make_store(tmp_path / "shards")
    found = read_status(tmp_path)
    assert (states(found), found.increments) == ({"ingest": "done"}, None)
    write_files(tmp_path, {"nightly/checkpoints/of-a-block.json": "{}"})
    lines = cli("status", tmp_path).out.splitlines()
    assert lines[1] == "no process is running"
    assert lines[3:] == ["train     started      nightly: 0 of 1 increment completed"]
    record(tmp_path, {"documents": 300, "error": 0.25, "promoted": True})
    assert states(read_status(tmp_path)) == {"ingest": "done", "train": "done"}


def test_the_time_of_the_last_write_includes_ingested_files(tmp_path: Path) -> None:
    store = make_store(tmp_path / "shards")
    manifest = read_manifest(store, 1)
    for path in store.iterdir():
        os.utime(path, (0, 0))
    commit_manifest(store, manifest.model_copy(update={"version": 2}))
    assert read_status(tmp_path).seconds < 3600


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with raises_code("not-a-run", tmp_path):
        read_status(tmp_path)
    (tmp_path / "reviews.jsonl").write_text("{}\n")
    with raises_code("not-a-run", "is a file"):
        read_status(tmp_path / "reviews.jsonl")


def test_configurations_are_compared_over_the_same_folds() -> None:
    easy, hard = 0.1, 0.3
    rows = [metrics_row(c, 0, easy + c / 100) for c in range(3)]
    best = best_so_far(rows, "error")
    assert (best["configuration"], best["folds"], best["compared"]) == (0, 1, 3)
    assert best_so_far([*rows, metrics_row(3, 1, hard)], "error") is None
    both = [*rows, metrics_row(3, 1, hard), metrics_row(1, 1, hard), metrics_row(2, 1, hard - 0.05)]
    found = best_so_far(both, "error")
    assert (found["configuration"], found["folds"], found["compared"]) == (2, 2, 2)
    assert found["error"] == pytest.approx((0.12 + 0.25) / 2)
    assert best_so_far([], "error") is None


# ----------------------------------------------------------------------------------------------------------------------
# What no later run needs is removed, and nothing else: runs afterwards end with the same bytes.


INCREMENTS = 4


@pytest.fixture(scope="module")
def increments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return promoting(tmp_path_factory.mktemp("increments"), INCREMENTS)


@pytest.fixture
def copy(increments: Path, tmp_path: Path) -> Callable[[str], RunFile]:
    """Copies of the run by name."""
    return lambda name: copy_of(increments, tmp_path / name, INCREMENTS, **PROMOTES)


def models(run: RunFile) -> list[int]:
    return sorted(int(path.name) for path in (Path(str(run.out)) / "models").iterdir())


def after_another_increment(run: RunFile) -> dict[str, bytes]:
    """The files of a run after one more increment, without models of the increments before, and
    without the times of rollbacks and the places of inputs."""
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    run_nightly(run)
    found = contents(Path(str(run.out)))
    gone = ("nightly/", "history-rollbacks", "shards/manifest-", "shards/sources-")
    return {
        name: data
        for name, data in found.items()
        if not name.startswith(gone) and not (name.startswith("models/") and f"{INCREMENTS + 1:08d}" not in name)
    }


def test_a_clean_run_goes_on_as_before(copy: Callable[[str], RunFile]) -> None:
    run, whole = copy("cleaned"), copy("whole")
    roll_back(run, 1)
    roll_back(whole, 1)
    before = contents(Path(str(run.out)))
    would = clean(run.out, keep_models=1, dry_run=True)
    assert contents(Path(str(run.out))) == before
    assert clean(run.out, keep_models=1) == would
    assert models(run) == [1, 3]  # the deployed one, and that of the last promotion
    assert {entry.kind for entry in would} == {"models"}
    removed = set(before) - set(contents(Path(str(run.out))))
    assert sum(entry.bytes for entry in would) == sum(len(before[name]) for name in removed)
    assert sum(entry.files for entry in would) == len(removed)
    assert clean(run.out, keep_models=1) == []
    assert Model(run.out).folder.name == "00000001"
    assert after_another_increment(run) == after_another_increment(whole)
    assert models(whole) == [1, 2, 3, 5]
    roll_back(run, 3)
    clean(run.out, keep_models=2)
    assert models(run) == [3, 5]


def test_killed_at_any_removal(copy: Callable[[str], RunFile], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model that is left can be opened, and the next call removes the rest."""
    expected = copy("expected")
    clean(expected.out, keep_models=1)
    remove, step = os.unlink, 0
    while True:
        run, calls = copy(str(step)), 0

        def killed(path: str, *, dir_fd: int | None = None, at: int = step) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise KeyboardInterrupt
            remove(path, dir_fd=dir_fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", killed)
            try:
                clean(run.out, keep_models=1)
            except KeyboardInterrupt:
                pass
            else:
                break
        for path in (Path(str(run.out)) / "models").iterdir():
            if (path / "model.json").exists():
                Model(path).predict(["wave"])
        assert read_status(run.out).increments is not None
        clean(run.out, keep_models=1)
        assert contents(Path(str(run.out))) == contents(Path(str(expected.out)))
        step += 2
    assert step > 4


def test_files_of_a_store_that_no_manifest_lists(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    before = contents(store)
    left = store / f"shard-{'0' * 24}.parquet"
    left.write_bytes(b"12345")
    (store / "notes.parquet").write_bytes(b"not ours")
    staging = store / ".staging" / boot()
    staging.mkdir(parents=True)
    assert clean(store) == []  # a killed ingest resumes with it
    old = staging.rename(store / ".staging" / "another boot")
    (old / "x.counts").write_bytes(b"123")
    assert clean(store) == []  # perhaps another machine's
    os.utime(old, (0, 0))
    assert clean(store) == [
        Removed("staging files of an earlier boot", 1, 3),
        Removed("data files that no manifest lists", 1, 5),
    ]
    assert contents(store) == before | {"notes.parquet": b"not ours"}


def test_results_of_other_settings(tmp_path: Path) -> None:
    store, out, cluster = make_store(tmp_path / "shards"), tmp_path / "run", ClusterOptions(threads=1)
    options = plain_search(algorithms={"rda": {"gamma": [1.0], "lam": [1e-3]}}, folds=2)
    search(store, out, options.model_copy(update={"seed": 5}), cluster)
    other = {path for path, _ in files_below(out / "search" / "cells")}
    search(store, out, options, cluster)
    before = contents(out)
    own = {path for path, _ in files_below(out / "search" / "cells")} - other
    (removed,) = clean(out)
    assert removed[:2] == ("cells and checkpoints of other settings", len(other))
    assert {path for path, _ in files_below(out / "search" / "cells")} == own
    search(store, out, options, cluster)
    assert {path for path, _ in files_below(out / "search" / "cells")} == own
    assert contents(out) == before


def test_a_folder_that_is_used_or_is_none(tmp_path: Path) -> None:
    with raises_code("not-a-run", tmp_path):
        clean(tmp_path)
    assert not list(tmp_path.iterdir())
    store = make_store(tmp_path)
    with exclusive_lock(store), pytest.raises(FolderInUseError):
        clean(store)


def test_the_command(tmp_path: Path, cli: Cli) -> None:
    store = make_store(tmp_path)
    assert cli("clean", store).out == "nothing to remove\n"
    left = store / f"names-{'0' * 24}.parquet"
    left.write_bytes(b"12345")
    said = "data files that no manifest lists: 1 file, 5 B\n"
    assert cli("clean", store, "--dry-run").out == f"{said}nothing was removed (--dry-run)\n"
    assert left.exists()
    assert cli("clean", store).out == said
    assert not left.exists()
