"""Processor seconds per 10⁹ nonzeros to read a stream and to learn it with blocks of columns of each width.

`sparseoco.search.packing` predicts the end of a search from these figures: repeat it when kernels or the layout change.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.columns import RowBatch
from sparseoco.pipeline import steps
from sparseoco.search.packing import COLUMN_COSTS, STREAM_COSTS
from sparseoco.store import corpus as module
from sparseoco.store.corpus import Corpus
from sparseoco.store.shards import Store
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.training.learner import Learner
from sparseoco.training.stream import START, Order, StreamPosition, range_rows_of, stream
from tests.benchmarks.corpora import corpus

pytestmark = pytest.mark.benchmark

ROWS = 12_288
LEARNERS = {"adagrad": "eta", "cl-fobos": "eta0", "fobos": "eta0", "rda": "gamma"}


@pytest.fixture(scope="module")
def imdb(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """IMDB, 50,000 reviews, uni- and bigrams."""
    folder = tmp_path_factory.mktemp("imdb") / "shards"
    options = TextOptions(ngram_range=(1, 2), duplicates="all")
    inputs = [str(corpus("imdb/imdb_50k.jsonl.gz"))]
    steps.ingest_texts(inputs, folder, options, ClusterOptions(), shard_bytes=SHARD_BYTES)
    return Store.open(folder)


def cpu_seconds(call: Callable[[], object], times: int = 3) -> float:
    """The least processor time of some calls; the first, which compiles, does not count."""
    call()
    found = []
    for _ in range(times):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


@pytest.mark.parametrize(("order", "mapped"), STREAM_COSTS)
def test_cost_of_the_stream(
    imdb: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, mapped: bool
) -> None:
    monkeypatch.setattr(module, "MAPPED_BYTES", 1 << 40 if mapped else 0)
    rows = Corpus(imdb, tmp_path)
    range_rows = range_rows_of(order, rows.n_rows, imdb.manifest.nonzeros)

    def read() -> None:
        for _ in stream(rows, Order(0, range_rows), START, StreamPosition(1, rows.n_rows)):
            pass

    cost = cpu_seconds(read) / imdb.manifest.nonzeros * 1e9
    print(f"\norder {order}, mapped={mapped}: {cost:.1f} (packing: {STREAM_COSTS[order, mapped]:.1f})")


def test_cost_of_columns(imdb: Store, tmp_path: Path) -> None:
    rows = Corpus(imdb, tmp_path)
    batches: list[RowBatch] = [batch for _, batch in stream(rows, Order(0, 1), START, StreamPosition(1, ROWS))]
    nonzeros = sum(len(batch.indices) for batch in batches)
    costs: dict[int, list[float]] = {width: [] for width in COLUMN_COSTS}
    for name, step in LEARNERS.items():
        for width, found in costs.items():
            grid = [{step: 0.1 * (k + 1), "lam": 1e-6} for k in range(width)]
            learner = Learner(
                name, loss="squared_hinge", grid=grid, n_features=imdb.n_features, n_classes=2, intercept=True
            )

            def learn(learner: Learner = learner) -> None:
                for batch in batches:
                    learner.learn_rows(*batch)

            found.append(cpu_seconds(learn) / nonzeros * 1e9)
    print("\ncolumns  " + "  ".join(f"{name:>8}" for name in LEARNERS) + "      mean  packing")
    for width, found in costs.items():
        print(
            f"{width:>7}  "
            + "  ".join(f"{cost:8.1f}" for cost in found)
            + f"  {np.mean(found):8.1f}  {COLUMN_COSTS[width]:7.1f}"
        )
