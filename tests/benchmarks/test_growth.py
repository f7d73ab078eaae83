"""How the cost of commands grows with the corpus: opens, requests, memory, and what passes through the client."""

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
from dask.utils import parse_bytes
from distributed import Client

from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import model_entries
from sparseoco.scoring.score import ScoreRun
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import LabelTable
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.models import write_model
from tests.benchmarks.support import ROOT, cluster, counters, exponent, install, python

# ----------------------------------------------------------------------------------------------------------------------
# How the cost of an ingest grows with the corpus: opens, requests, and what passes through the client.
#
# ``SPARSEOCO_PIECES`` sets the numbers of pieces (300,1200), ``SPARSEOCO_WORKERS`` the numbers of workers (2),
# ``SPARSEOCO_TEXT`` the bytes of text for the client's share (256MB). The figures that were measured are in
# docs/operations/scaling.md.


pytestmark = pytest.mark.benchmark

PIECES = [int(number) for number in os.environ.get("SPARSEOCO_PIECES", "300,1200").split(",")]
WORKERS = [int(number) for number in os.environ.get("SPARSEOCO_WORKERS", "2").split(",")]
TEXT_BYTES = parse_bytes(os.environ.get("SPARSEOCO_TEXT", "256MB"))
PIECE_BYTES = 1 << 10
BIGRAMS = TextOptions(format="lines", ngram_range=(1, 2), min_df=2)


class Cost(NamedTuple):
    """What an ingest, or scoring, cost: in all processes, and in the client alone."""

    everywhere: Counter[str]
    client: Counter[str]
    client_seconds: float
    seconds: float


def write_text(path: Path, size: int, words: int = 20_000, line_words: int = 20, even: bool = False) -> Path:
    """A file of about `size` bytes: lines of words whose frequencies fall as 1/rank, or are even."""
    random = np.random.default_rng(0)
    names = np.array([f"w{number:x}" for number in range(words)])
    with path.open("w") as file:
        while file.tell() < size:
            ranks = random.random((2000, line_words))
            ranks = ranks * words if even else np.exp(ranks * np.log(words)) - 1
            lines = (" ".join(line) for line in names[ranks.astype(np.int64)])
            remaining = size - file.tell()
            text = "\n".join(lines) + "\n"
            file.write(text if len(text) <= remaining else text[: text.rfind("\n", 0, remaining) + 1] or "w0\n")
    return path


def measured(client: Client, folder: Path, text: Path, out: Location, options: TextOptions, shard_bytes: int) -> Cost:
    """The cost of one ingest on a cluster."""
    return cost_of(client, folder, lambda: ingest([str(text)], out, options, client=client, shard_bytes=shard_bytes))


def cost_of(client: Client, folder: Path, work: Callable[[], object]) -> Cost:
    """The cost of work on a cluster."""
    install(str(folder))
    client.run(install, str(folder))
    before, before_workers = Counter(counters()), total(client)
    began, began_processor = time.perf_counter(), time.process_time()
    work()
    seconds, processor = time.perf_counter() - began, time.process_time() - began_processor
    own, workers = Counter(counters()), total(client)
    own.subtract(before)
    workers.subtract(before_workers)
    return Cost(own + workers, own, processor, seconds)


def total(client: Client) -> Counter[str]:
    """The counters of all workers."""
    return sum((Counter(found) for found in client.run(counters).values()), Counter())


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", ["opens", "requests"])
def test_opens_and_requests_grow_with_pieces(tmp_path: Path, kind: str, workers: int, bucket: Location) -> None:
    """Ingest corpora of more and more pieces; the counts, of local files or of requests to S3, must grow linearly."""
    costs = []
    with cluster(tmp_path, workers) as client:
        warm = write_text(tmp_path / "warm.txt", 10 * PIECE_BYTES)
        measured(client, tmp_path, warm, tmp_path / "warm", BIGRAMS, PIECE_BYTES)
        for pieces in PIECES:
            text = write_text(tmp_path / f"{pieces}.txt", pieces * PIECE_BYTES)
            out = (bucket if kind == "requests" else tmp_path / "stores") / f"{pieces}"
            cost = measured(client, tmp_path, text, out, BIGRAMS, PIECE_BYTES)
            costs.append(cost.everywhere[kind])
            print(
                f"{workers} workers, {pieces:6} pieces: {costs[-1] / pieces:6.1f} {kind} a piece in all, client "
                f"{cost.client[kind]}, {cost.client_seconds:.1f} s of processor, {cost.client['read'] / 1e6:.1f} MB "
                f"read; {cost.seconds:.0f} s"
            )
    print(f"exponent {exponent(PIECES, costs):.2f}")
    assert costs[-1] <= 40 * PIECES[-1]
    assert len(PIECES) == 1 or exponent(PIECES, costs) <= 1.1


def test_share_of_the_client(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", TEXT_BYTES, words=500_000)
    warm = write_text(tmp_path / "warm.txt", 1 << 20)
    with cluster(tmp_path, 2) as client:
        measured(client, tmp_path, warm, tmp_path / "warm", BIGRAMS, 1 << 20)
        cost = measured(client, tmp_path, text, tmp_path / "store", BIGRAMS, 16 << 20)
        manifest = Store.open(tmp_path / "store").manifest
        store = Store(tmp_path / "store", manifest.model_copy(update={"labels": LabelTable(kind="numbers")}))
        weights = np.zeros((store.n_features, 1))
        weights[: 10**5, 0] = np.random.default_rng(0).normal(0, 1, min(10**5, store.n_features))
        described = {"algorithm": "none", "parameters": {}, "loss": "squared"}
        write_model(tmp_path / "model", weights, store, described, [])
        models = model_entries(str(tmp_path / "model"), ())
        options = ScoreOptions(keep_top="10%", shard_bytes=16 << 20)
        run = partial(ScoreRun(models, [str(text)], tmp_path / "scores", options, {}).score, client=client)
        scored = cost_of(client, tmp_path, run)
    gigabytes = TEXT_BYTES / 1e9
    for name, found in (("ingest", cost), ("score", scored)):
        print(
            f"client, per GB of text to {name}: {found.client_seconds / gigabytes:.3f} s of processor, "
            f"{found.client['read'] / gigabytes / 1e6:.2f} MB read; {TEXT_BYTES / 1e6 / found.seconds:.0f} MB/s on 2 "
            "workers"
        )


@pytest.mark.parametrize("grows", ["documents", "terms"])
def test_memory_of_the_client(tmp_path: Path, grows: str) -> None:
    """The client's peak as documents or distinct terms grow, and the pieces stay as many."""
    sizes = [200_000, 4_200_000]
    with cluster(tmp_path, 2) as client:
        address = client.scheduler.address
        peaks = []
        for size in sizes:
            path = tmp_path / f"{size}.txt"
            lines = ("tide" if grows == "documents" else f"t{number:x}" for number in range(size))
            path.write_text("".join(f"{line}\n" for line in lines))
            script = (
                "from distributed import Client; from pathlib import Path\n"
                "from tests.benchmarks.support import counters\n"
                "from sparseoco.text.ingest import ingest; from sparseoco.text.options import TextOptions\n"
                f"with Client({address!r}) as client:\n"
                f"    ingest([{str(path)!r}], Path({str(tmp_path / f'store-{size}')!r}), "
                f"TextOptions(format='lines'), client=client, shard_bytes={max(1 << 20, path.stat().st_size // 8)})\n"
                "print(counters()['peak'])\n"
            )
            peaks.append(int(python(ROOT, "-W", "ignore", "-c", script)))
    print(f"client, per 10^6 {grows}: {(peaks[1] - peaks[0]) / (sizes[1] - sizes[0]):.2f} MB")


@pytest.mark.parametrize("shard_bytes", [8 << 20, 16 << 20])
def test_memory_of_the_largest_task(tmp_path: Path, shard_bytes: int) -> None:
    """The peak of a worker with 30 million distinct n-grams and min_df = 2."""
    text = write_text(tmp_path / "text.txt", 210_000_000, words=1_000_000, line_words=100, even=True)
    with cluster(tmp_path, 2) as client:
        idle = max(found["peak"] for found in client.run(counters).values())
        measured(client, tmp_path, text, tmp_path / "store", BIGRAMS, shard_bytes)
        peak = max(found["peak"] for found in client.run(counters).values())
    print(f"largest worker, shards of {shard_bytes >> 20} MiB of text: {peak / 1e6:.0f} MB, {idle / 1e6:.0f} MB idle")


# ----------------------------------------------------------------------------------------------------------------------
# Text larger than what a worker may hold: made, ingested, searched and trained by two workers of 2 GB each.
#
# SPARSEOCO_LARGE says how much text (500MB); NOTES.md has the figures of a run with 5GB. Prints, for every step,
# seconds, MB/s of text and the peak memory of each process.


SIZE = os.environ.get("SPARSEOCO_LARGE", "500MB")
LIMIT = "2GB"
EACH = 2
CLUSTER = ("--workers", str(EACH), "--memory", LIMIT)
SAMPLE_SECONDS = 0.25


class Peaks(NamedTuple):
    """Peak resident and proportional memory, in bytes, of a process, and its command."""

    resident: int = 0
    proportional: int = 0
    command: str = ""

    @property
    def works(self) -> bool:
        """Whether it is a worker; those that were killed and started again are counted each time."""
        return "spawn_main" in self.command

    def sampled(self, process: psutil.Process) -> "Peaks":
        """These, and what the process holds now."""
        sizes = process.memory_full_info()
        largest = max(self.resident, sizes.rss), max(self.proportional, sizes.pss)
        return Peaks(*largest, " ".join(process.cmdline()))


def run(step: str, *arguments: str | Path) -> list[Peaks]:
    """Run a command of sparseoco to its end; print and give the memory of its processes."""
    started = time.monotonic()
    command = [sys.executable, "-c", "from sparseoco.cli import main; main()", step, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    root, peaks = psutil.Process(process.pid), defaultdict[int, Peaks](Peaks)
    while process.poll() is None:
        for each in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):  # it has ended
                peaks[each.pid] = peaks[each.pid].sampled(each)
        time.sleep(SAMPLE_SECONDS)
    seconds = time.monotonic() - started
    assert process.returncode == 0
    client, workers = peaks[process.pid], [own for own in peaks.values() if own.works]
    print(
        f"{step:9} {seconds:7.0f} s {parse_bytes(SIZE) / seconds / 1e6:7.1f} MB/s   "
        f"client {client.resident / 1e9:.2f} GB   workers, resident (proportional) "
        + ", ".join(f"{own.resident / 1e9:.2f} GB ({own.proportional / 1e9:.2f} GB)" for own in workers)
    )
    return [*peaks.values()]


def test_every_worker_stays_below_its_limit(tmp_path: Path) -> None:
    """No process holds 2 GB at any time, and no worker is killed and started again."""
    text, store = tmp_path / "made" / "text", tmp_path / "store"
    grid = ("--folds", "1", "--algorithm", "cl-fobos", "--grid", "lam=1e-6,1e-5,1e-4", "--grid", "eta0=0.1,0.3,1")
    print(f"\n{SIZE} of text, workers of {LIMIT}, load {os.getloadavg()[0]:.1f}")
    for clusters, step, *arguments in (
        (0, "generate", tmp_path / "made", "--bytes", SIZE),
        (1, "ingest", text, "--out", store, *CLUSTER),
        (1, "train", store, "--out", tmp_path / "model", *CLUSTER),
        (2, "search", store, "--out", tmp_path / "run", *grid, *CLUSTER),  # it trains its best
    ):
        peaks = run(step, *arguments)
        assert max(own.resident for own in peaks) < parse_bytes(LIMIT)
        assert sum(own.works for own in peaks) == clusters * EACH
