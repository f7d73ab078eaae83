"""Files that are lost, cut or foreign, power that fails, clocks that jump: the same bytes, or one sentence."""

import pickle
import shutil
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.pipeline import steps as run_steps
from sparseoco.storage.checkpoints import read_checkpoint
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.faults.power_loss import recorded, restore
from tests.faults.searches import DIVIDED, tables
from tests.faults.test_every_commit import contents, prepare
from tests.support.errors import raises_code
from tests.support.ingests import file_bytes, jsonl, random_texts
from tests.support.stores import make_store


@pytest.mark.fault(12)
def test_a_shard_cut_anywhere_is_found_before_it_is_parsed(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path, rows=3000, features=1000, shard_rows=3000))
    path = tmp_path / store.shards[0].file
    data = path.read_bytes()
    assert len(data) > 5 * 4096
    for part in (*(data[:size] for size in range(0, len(data), 4096)), data[-1000:], data[:4] + data[-1000:]):
        path.write_bytes(part)
        with raises_code("corrupt-file", path, kind=StorageError):
            store.read(0)


@pytest.mark.fault(14)
def test_a_renamed_shard_is_missing_and_one_too_many_is_ignored(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    path = tmp_path / store.shards[1].file
    shutil.copy(path, tmp_path / "shard-copy.parquet")
    assert Store.open(tmp_path).n_rows == 300
    assert [len(Store.open(tmp_path).read(i).labels) for i in range(3)] == [100] * 3
    path.rename(tmp_path / "shard-renamed.parquet")
    with raises_code("missing-file", path, kind=StorageError):
        Store.open(tmp_path).read(1)


@pytest.mark.fault(20)
@pytest.mark.parametrize("ahead", [False, True], ids=["lost", "empty"])
def test_power_that_fails_during_an_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    """After any sync: the store of an undisturbed run; a manifest that was there stays whole."""
    data = jsonl(random_texts(60))
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl").write_bytes(data.replace(b'"d', b'"e'))
    inputs, options = [str(tmp_path / f"{name}.jsonl") for name in "ab"], TextOptions()
    out = tmp_path / "whole"
    out.mkdir()
    with recorded(out, monkeypatch, ahead=ahead) as disk:
        ingest(inputs[:1], out, options, shard_bytes=4096)
        committed = len(disk.states)
        ingest(inputs, out, options, shard_bytes=4096)
    assert 4 < committed < len(disk.states)
    for number, state in enumerate(disk.states):
        if number not in (0, 2, committed - 2) and number < len(disk.states) - 4:
            continue
        restore(state, tmp_path / f"{number}")
        if number >= committed:
            assert Store.find(tmp_path / f"{number}") is not None
        ingest(inputs[:1], tmp_path / f"{number}", options, shard_bytes=4096)
        ingest(inputs, tmp_path / f"{number}", options, shard_bytes=4096)
        left = file_bytes(tmp_path / f"{number}")
        assert {name: left.get(name) for name in file_bytes(out)} == file_bytes(out), number


@pytest.mark.chaos
@pytest.mark.fault(20)
@pytest.mark.parametrize("ahead", [False, True], ids=["lost", "empty"])
def test_power_that_fails_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    whole = prepare(tmp_path / "whole")
    out = Path(str(whole.out))
    out.mkdir()
    with recorded(out, monkeypatch, ahead=ahead) as disk:
        run_steps.run_all(whole)
    expected = contents(whole)
    for number, state in enumerate(disk.states):
        run = prepare(tmp_path / f"{number}")
        restore(state, Path(str(run.out)))
        run_steps.run_all(run)
        got = contents(run)
        assert {name: got.get(name) for name in expected} == expected, number


@pytest.mark.chaos
@pytest.mark.fault(22)
def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day forwards, then back, then two days back, as this package asks for it. Dask keeps the true time."""
    store = make_store(tmp_path / "store", features=40)
    options = DIVIDED.model_copy(update={"time_limit": 600.0})
    steps.search(store, tmp_path / "whole", options, ClusterOptions(threads=1))
    now, calls = time.time, count()

    def jump() -> float:
        ours = sys._getframe(1).f_globals["__name__"].startswith("sparseoco")
        days = (0, 1, -1)[(next(calls) + 3) // 4 % 3] if ours else 0
        return now() + 86_400.0 * days

    monkeypatch.setattr(time, "time", jump)
    steps.search(store, tmp_path / "run", options, ClusterOptions(threads=1))
    assert tables(tmp_path / "run") == tables(tmp_path / "whole")


class Planted:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._path), "w")


@pytest.mark.fault(41)
def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    planted, marker = Planted(tmp_path / "marker"), tmp_path / "marker"
    np.savez(tmp_path / "learner.npz", description=np.array([planted], object))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(planted))
    for name in ("learner.npz", "raw.npz"):
        with raises_code("corrupt-file", name, kind=StorageError), read_checkpoint(tmp_path / name):
            pass
    store = Store.open(make_store(tmp_path / "store"))
    path = tmp_path / "store" / store.shards[0].file
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"pandas": pickle.dumps(planted), b"PANDAS": b"x"}), path)
    with raises_code("corrupt-file", path, kind=StorageError):
        store.read(0)
    assert not marker.exists()
    pickle.loads(pickle.dumps(planted)).close()
    assert marker.exists()
