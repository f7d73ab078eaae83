"""What no later run needs is removed, and nothing else: runs afterwards end with the same bytes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparseoco.core.errors import FolderInUseError, StorageError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.ops.status import Removed, clean, read_status
from sparseoco.pipeline.nightly import roll_back, run_nightly
from sparseoco.pipeline.run_file import RunFile
from sparseoco.pipeline.steps import search
from sparseoco.storage.locations import files_below
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.temporary import boot
from sparseoco.training.models import Model
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, copy_of, nights
from tests.support.searches import plain_search
from tests.support.stores import make_store

INCREMENTS = 4
PROMOTES = {"window = 2": "window = 2\nmargin = 0.9"}


@pytest.fixture(scope="module")
def increments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has promoted all increments but the last, which is empty."""
    folder = tmp_path_factory.mktemp("increments")
    run = nights(folder, INCREMENTS - 1, **PROMOTES)
    (folder / "incoming" / f"increment-{INCREMENTS}.jsonl").write_text("")
    run_nightly(run)
    return folder


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
    with raises_code("missing-model", "increment 2 is missing", kind=StorageError):
        roll_back(run, 2)
    assert Model(run.out).folder.name == "00000001"
    assert after_another_increment(run) == after_another_increment(whole)
    assert models(whole) == [1, 2, 3, 5]
    roll_back(run, 3)
    clean(run.out, keep_models=2)
    assert models(run) == [3, 5]


def test_a_run_keeps_the_models_that_its_file_says(copy: Callable[[str], RunFile]) -> None:
    run = copy("run")
    run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"keep_models": 2})})
    arrive(run.out.parent, INCREMENTS + 1, to="later")
    run_nightly(run)
    assert models(run) == [3, 5]
    assert read_status(run.out).increments is not None


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
