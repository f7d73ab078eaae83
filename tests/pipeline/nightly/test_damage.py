"""Lost, corrupt or outdated files between increments: the bytes of an undisturbed run, or an error."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile
from sparseoco.search import results as block_run
from sparseoco.storage.tables import write_parquet
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, prepare, rows_of

INCREMENTS = 3
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
