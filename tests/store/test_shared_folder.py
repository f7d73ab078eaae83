"""One folder for the processes of a host: shared, laid out together, private, and removed with its last user."""

import multiprocessing
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.errors import StorageError
from sparseoco.store.corpus import SharedFolder, folder_on_host, worker_corpus
from sparseoco.store.shards import Store, read_shards
from tests.search.by_hand import cluster_by_hand
from tests.support.errors import raises_code
from tests.support.stores import make_store

SHARDS = 20


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_folder_on_host_is_of_its_user_alone(tmp_path: Path) -> None:
    folder = folder_on_host(tmp_path / "scratch")
    assert folder_on_host(tmp_path / "scratch") == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o770)
    with raises_code("unsafe-folder", folder, kind=StorageError):
        folder_on_host(tmp_path / "scratch")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StorageError):
        folder_on_host(tmp_path / "scratch")


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with raises_code("unsafe-folder", kind=StorageError):
        folder_on_host(tmp_path)


def test_the_last_user_removes_the_folder(tmp_path: Path) -> None:
    first, second = SharedFolder(tmp_path, "corpus"), SharedFolder(tmp_path, "corpus")
    (first.path / "file").write_text("content")
    first.release()
    assert (second.path / "file").exists()
    second.release()
    assert not list(tmp_path.iterdir())
    second.release()
    third = SharedFolder(tmp_path, "corpus")
    assert third.path.is_dir()
    del third
    assert not list(tmp_path.iterdir())


def _hold(parent: str, name: str, seconds: float) -> None:
    folder = SharedFolder(Path(parent), name)
    (folder.path / f"{os.getpid()}").touch()
    time.sleep(seconds)


def test_processes_that_were_killed_leave_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    killed, running, ended = (
        spawn.Process(target=_hold, args=(str(tmp_path), name, seconds))
        for name, seconds in (("left", 60.0), ("used", 60.0), ("ended", 0.0))
    )
    for process in (killed, running, ended):
        process.start()
    ended.join()
    wait_until(lambda: all((tmp_path / p / f"{q.pid}").exists() for p, q in (("left", killed), ("used", running))))
    assert not (tmp_path / "ended").exists()
    killed.kill()
    killed.join()
    assert (tmp_path / "left").exists()
    other = SharedFolder(tmp_path, "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "other.lock", "used", "used.lock"]
    other.release()
    running.kill()
    running.join()


@pytest.mark.fault(52)
def test_files_that_a_killed_process_left_are_not_used(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(str(tmp_path), "corpus", 60.0))
    process.start()
    wait_until(lambda: (tmp_path / "corpus" / f"{process.pid}").exists())
    other = SharedFolder(tmp_path, "corpus")
    assert list(other.path.iterdir())  # they share it
    del other
    process.kill()
    process.join()
    assert list((tmp_path / "corpus").iterdir())
    assert not list(SharedFolder(tmp_path, "corpus").path.iterdir())


def _open_and_release(parent: str, times: int) -> None:
    for _ in range(times):
        folder = SharedFolder(Path(parent), "corpus")
        own = folder.path / f"{os.getpid()}"
        own.touch()
        assert own.exists()
        folder.release()


def test_a_folder_is_not_removed_while_it_is_used(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_open_and_release, args=(str(tmp_path), 300)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def _lay_out(folder: str, log: str, seed: int) -> tuple[int, float]:
    """Read all rows in a random order; every shard that is decoded is a line of the log."""
    original = Store.read

    def slow(self: Store, shard: int, *, ids: bool = False) -> Any:
        with open(log, "a") as file:
            file.write(f"{os.getpid()} {shard}\n")
        time.sleep(0.1)
        return original(self, shard, ids=ids)

    Store.read = slow  # type: ignore[method-assign]
    try:
        corpus = worker_corpus(Store.open(folder))
        rows = corpus.gather(np.random.default_rng(seed).permutation(corpus.n_rows))
    finally:
        Store.read = original  # type: ignore[method-assign]
    return os.getpid(), float(rows.values.sum())


def test_workers_started_by_hand_lay_out_one_copy_together(tmp_path: Path) -> None:
    together, interrupted = (
        make_store(tmp_path / name, rows=rows, shard_rows=rows // SHARDS)
        for name, rows in (("together", 200), ("interrupted", 400))
    )
    with cluster_by_hand(tmp_path, nannies=False) as cluster, Client(cluster.address) as client:
        client.wait_for_workers(2)
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])

        def start(store: Path, log: Path) -> list[Any]:
            return [
                client.submit(_lay_out, str(store), str(log), seed, workers=[address], pure=False)
                for seed, address in enumerate(addresses)
            ]

        def lines(log: Path) -> list[list[int]]:
            return [[int(part) for part in line.split()] for line in log.read_text().splitlines()]

        results = client.gather(start(together, tmp_path / "log"))
        found = lines(tmp_path / "log")
        assert sorted(shard for _, shard in found) == list(range(SHARDS))
        assert {process for process, _ in found} == {process for process, _ in results}
        assert {total for _, total in results} == {float(read_shards(together)[0].sum())}

        futures = start(interrupted, tmp_path / "log2")
        wait_until(lambda: (tmp_path / "log2").exists() and len({p for p, _ in lines(tmp_path / "log2")}) == 2)
        killed = results[0][0]
        os.kill(killed, signal.SIGKILL)
        assert futures[1].result()[1] == float(read_shards(interrupted)[0].sum())
        found = lines(tmp_path / "log2")
        assert {shard for _, shard in found} == set(range(SHARDS))
        again = len(found) - SHARDS
        assert again <= 1  # what the other one was decoding
        (folder,) = (tmp_path / "scratch").glob("*/sparseoco-*")
        assert len(list(folder.iterdir())) == 4  # two corpora and their locks
    assert not list(folder.iterdir())
