"""Commands and workers that are stopped or killed at many moments: the same bytes, and nobody left behind."""

import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.core.signals import MESSAGE
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.offline.cluster import optimum as cluster_optimum
from sparseoco.offline.cluster.optimum import run_optimum
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS
from sparseoco.offline.options import OptimumOptions
from sparseoco.offline.regret import run as cluster_regret
from sparseoco.offline.regret.run import run_regret
from sparseoco.pipeline import steps
from sparseoco.storage.temporary import remove_abandoned_files
from sparseoco.store.shards import Store
from tests.faults import commands as searches
from tests.faults.commands import DIVIDED, OPTIONS, tables
from tests.storage.buckets.contents import contents
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.kills import check_under_kills, listing
from tests.support.searches import plain_search
from tests.support.soak import RunCost, soak
from tests.support.stops import COMMAND, after, stop
from tests.support.stores import make_store
from tests.support.texts import write_reviews, write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# A search that is halved and stopped early, killed at any moment, ends with the same bytes.


ONE = ClusterOptions(threads=1)
SCRIPT = """
import sys
from pathlib import Path
from sparseoco.pipeline import steps
from sparseoco.search import selection, worker
from sparseoco.training import stream
from sparseoco.execution.clusters import ClusterOptions
from tests.faults import commands as searches
OPTIONS = getattr(searches, sys.argv[2])
worker.POLL_SECONDS, worker._pays, stream.CHUNK_ROWS = 0, lambda *_, **__: True, 41
selection.MIN_RUNG_ROWS = 40
folder = Path(sys.argv[1])
steps.search(folder / "store", folder / "run", OPTIONS, ClusterOptions(threads=2))
"""


POISONED = """
import dask
if __name__ == "__main__":
    options = OPTIONS.model_copy(update={"halving": None, "patience": None, "epochs": 1, "folds": 2})
    folder = Path(sys.argv[1])
    poison = {"distributed.worker.preload": ["tests.faults.poison"], "distributed.scheduler.allowed-failures": 0}
    with dask.config.set(poison):
        steps.search(folder / "store", folder / "run", options, ClusterOptions(workers=2))
"""


def check_kills(folder: Path, moments: int, seed: int, options: str = "OPTIONS") -> None:
    """Kill the process after a random number of changes in the run's folder, resume, and so on; then run to the end."""
    store = make_store(folder / "store", features=40)
    steps.search(store, folder / "whole", getattr(searches, options), ONE)
    watched = folder / "run" / "search"
    choose = random.Random(seed)
    for _ in range(moments):
        before, wanted = listing(watched), choose.randint(1, 12)
        with subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), options], stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(listing(watched) ^ before) < wanted:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            break
        assert not (watched / "metrics.parquet").exists()
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder), options], check=True)
    assert tables(folder / "run") == tables(folder / "whole")
    assert not (watched / "checkpoints").exists()


@pytest.mark.usefixtures("early_rungs")
@pytest.mark.chaos
@pytest.mark.fault(5)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    check_kills(tmp_path, moments=2, seed=0)


@pytest.mark.usefixtures("early_rungs")
@pytest.mark.fault(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_at_many_random_moments(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, moments=20, seed=seed)


@pytest.mark.usefixtures("early_rungs")
@pytest.mark.fault(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_learners_with_parts_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, moments=12, seed=seed, options="DIVIDED")


@pytest.mark.usefixtures("early_rungs")
@pytest.mark.fault(2)
@pytest.mark.slow
def test_a_configuration_that_kills_its_worker_is_isolated(tmp_path: Path) -> None:
    """One configuration ends its worker's process each time; the others succeed."""
    store = make_store(tmp_path / "store", features=40)
    options = OPTIONS.model_copy(update={"halving": None, "patience": None, "epochs": 1, "folds": 2})
    steps.search(store, tmp_path / "whole", options, ONE)
    script = SCRIPT[: SCRIPT.index("worker.POLL")] + POISONED
    subprocess.run([sys.executable, "-c", script, str(tmp_path), "OPTIONS"], check=True)
    expected, got = (pq.read_table(tmp_path / n / "search" / "metrics.parquet").to_pylist() for n in ("whole", "run"))
    bad = [row for row in got if row["configuration"] == 5]
    assert {row["status"] for row in bad} == {"failed"}
    assert all("its worker was killed" in row["reason"] for row in bad)
    assert [r for r in got if r["configuration"] != 5] == [r for r in expected if r["configuration"] != 5]


# ----------------------------------------------------------------------------------------------------------------------
# Workers killed with SIGKILL at random moments change no bit of a search, an optimum or regret.


OPTIMUM = OptimumOptions(alphas=(1.0, 4.0, 12.0), tol=1e-4)


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.parametrize("near", [0, NEWTON_NONZEROS])
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_an_optimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int, near: int) -> None:
    """By passes, and by a task a column."""
    monkeypatch.setattr(cluster_optimum, "NEWTON_NONZEROS", near)
    store = Store.open(make_store(tmp_path / "store"))

    def run_once(folder: Path) -> None:
        folder.mkdir(parents=True)
        run_optimum(client, store, folder, OPTIMUM, lambda step, done, total: None)
        remove_abandoned_files(folder)  # of a worker that was killed, as the next command does
        if folder != tmp_path / "whole":
            assert_same_folder(folder, tmp_path / "whole", without=())

    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        run_once(tmp_path / "whole")
    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:
        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.usefixtures("early_rungs")
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_a_search(tmp_path: Path, kills: int, seed: int) -> None:
    """With halving, early stopping, learners with parts, and epoch methods in the same search."""
    store = make_store(tmp_path / "store", features=40)
    epochs = {"caos-erm": {"alpha": [1.0, 5.0]}, "cao-rcd": {"alpha": [1.0, 5.0], "R": [0.3]}}
    every = {**OPTIONS.algorithms, **DIVIDED.algorithms, **epochs}
    options = OPTIONS.model_copy(update={"algorithms": every, "epochs": 3})
    steps.search(store, tmp_path / "whole", options, ClusterOptions(threads=2))

    def run_once(folder: Path) -> None:
        steps.search(store, folder, options, ClusterOptions(workers=2))
        assert tables(folder) == tables(tmp_path / "whole")

    check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_regret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int) -> None:
    """Of streams with and without a box and with thresholds of their own, epoch methods; optima by passes, too."""
    store = Store.open(make_store(tmp_path / "store", features=40))
    monkeypatch.setattr(cluster_regret, "NEWTON_NONZEROS", store.manifest.nonzeros // 3)
    streams = {"cl-fobos": {"lam": [1e-3]}, "stda": {"lam": [1e-3]}, "cao-ftrl": {"lam": [1e-3]}}
    epochs = {"caos-erm": {"alpha": [1.0]}, "cao-rcd": {"alpha": [1.0], "R": [0.3]}}
    options = plain_search(algorithms={**streams, **epochs}, epochs=2, folds=1)
    first = {c.algorithm: c for c in options.configurations()}.values()

    def kept(folder: Path) -> dict[str, bytes]:
        return {
            name: data for name, data in folder_bytes(folder).items() if name.startswith(("curve", "optimum", "bound"))
        }

    def measure(client: Client, folder: Path) -> Any:
        return run_regret(client, list(first), options, store, folder, 6, 1e-3, lambda step, done, total: None)

    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        rows = measure(client, tmp_path / "whole")

    def run_once(folder: Path) -> None:
        assert measure(client, folder) == rows
        assert kept(folder) == kept(tmp_path / "whole")

    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:
        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


# ----------------------------------------------------------------------------------------------------------------------
# Commands stopped at many moments: each ends within ten seconds, in one sentence, and leaves nobody behind; the same
# command again ends with the bytes of one that was never stopped.


SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _commands(folder: Path) -> dict[str, list[str]]:
    """By what they are, commands that work in `folder`/out; those before them have made what they need."""
    run, out = str(folder / "places.toml"), str(folder / "out")
    store = str(folder / "run" / "shards")
    return {
        "run": ["run", run],
        "workers": ["ingest", str(folder / "places.jsonl"), "--out", out, "--workers", "2"],
        "search-workers": ["search", store, "--out", out, "--workers", "2", "--algorithm", "rda", "--epochs", "5"],
        "epochs": ["train", store, "--out", out, "--algorithm", "caos-erm", "--epochs", "50"],
        "optimum": ["optimum", store, "--out", out, "--alpha", "0.01,0.1,1"],
        "auto": ["train", store, "--out", out, "--algorithm", "auto", "--epochs", "20"],
        "regret": ["regret", str(folder / "run"), "--tol", "1e-8"],
    }


@pytest.mark.fault(6)
@pytest.mark.slow
@pytest.mark.parametrize("what", list(_commands(Path())))
def test_a_stop_at_any_moment_ends_a_command_and_costs_nothing(what: str, tmp_path: Path) -> None:
    write_run_file(tmp_path)
    write_reviews(tmp_path / "places.jsonl", rows=2000, classes=3)
    command = _commands(tmp_path)[what]
    if what != "run":
        subprocess.run([*COMMAND, "run", str(tmp_path / "places.toml")], check=True, stdout=subprocess.DEVNULL)
    result = tmp_path / ("run" if what in ("run", "regret") else "out")
    before = shutil.copytree(result, tmp_path / "before") if result.exists() else None
    subprocess.run([*COMMAND, *command], check=True, stdout=subprocess.DEVNULL)
    undisturbed = contents(result)
    choose, seconds, ends = random.Random(what), 0.5, 0
    _as_before(result, before)
    while True:
        number = choose.choice(SIGNALS)
        end = stop(command, number, after(seconds), group=choose.random() < 0.5)
        if end is None:
            break
        ends += 1
        assert end.said == f"sparseoco: {MESSAGE}\n", (seconds, number)
        assert end.code == 128 + number
        assert end.seconds < 10
        assert not end.alive
        seconds += choose.uniform(0.05, 0.3) + seconds / 10
        if choose.random() < 0.3:
            _as_before(result, before)
    assert ends > 3
    assert contents(result) == undisturbed


def _as_before(result: Path, before: Path | None) -> None:
    shutil.rmtree(result, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, result)


# ----------------------------------------------------------------------------------------------------------------------
# Nightly runs, one after the other into one folder: run 1,000 costs as much as an early one.


KEEP = {"window = 2": "window = 2\nkeep_models = 5"}


@pytest.mark.chaos
@pytest.mark.fault(60)
def test_opens_and_bytes_do_not_grow_with_the_runs(tmp_path: Path) -> None:
    """Counts, not clocks, which `test_many_runs` reads. A run that promotes a model opens more files than others."""
    costs = list(soak(tmp_path, 10, **KEEP))
    early, late = costs[3:6], costs[-3:]
    for counted in ("opens", "listings"):
        most = [max(getattr(cost, counted) for cost in part) for part in (early, late)]
        assert most[1] < most[0] + 15, [getattr(cost, counted) for cost in costs]
    grown = [after.bytes - before.bytes for before, after in pairwise(costs)]
    assert median(grown[-3:]) < 1.25 * median(grown[2:5]), grown
    assert len({cost.descriptors for cost in costs[3:]}) == 1


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39, 60)
@pytest.mark.parametrize(("runs", "varied"), [(1000, False), (200, True)])
def test_many_runs(tmp_path: Path, runs: int, varied: bool) -> None:
    """Processor time, opens, files, descriptors and memory of the last runs against early ones."""
    costs = list(soak(tmp_path, runs, varied=varied, **KEEP))
    print(report(costs))
    early, late, middle = costs[10:30], costs[-20:], costs[runs // 2]
    # Every input file is looked at, twice: 1.8 times at 1,000 files.
    assert median(cost.seconds for cost in late) < 2 * median(cost.seconds for cost in early)
    assert median(cost.opens for cost in late) < 1.5 * median(cost.opens for cost in early)
    assert {cost.descriptors for cost in costs[3:]} == {costs[3].descriptors}
    assert costs[-1].rss - middle.rss < 32 << 20
    second, last = (costs[k * runs // 4 - 1].bytes - costs[(k - 1) * runs // 4 - 1].bytes for k in (2, 4))
    assert last < 1.5 * second  # of four quarters: linear


def report(costs: list[RunCost]) -> str:
    """A line for some of the runs."""
    return "\n".join(
        f"run {number:>4}: {median(cost.seconds for cost in costs[max(0, number - 10) : number]):.3f} s, "
        f"{costs[number - 1].opens} opens, {costs[number - 1].listings} listings, {costs[number - 1].files} files, "
        f"{costs[number - 1].bytes:,} bytes, {costs[number - 1].rss >> 20} MiB"
        for number in (1, 3, 10, 30, 100, 300, 1000)
        if number <= len(costs)
    )
