"""What a search costs: per configuration against scikit-learn, and what Dask and Prefect add. Prints ratios."""

import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.search.selection import full_run
from sparseoco.search.worker import Folders, run_block
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.training.block import Block, search_setting
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import NO_FOLD
from tests.benchmarks.corpora import corpus
from tests.support.searches import site

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def imdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """IMDB, 50,000 reviews, uni- and bigrams, as shards."""
    store = tmp_path_factory.mktemp("imdb") / "shards"
    options = TextOptions(ngram_range=(1, 2), duplicates="all")
    inputs = [str(corpus("imdb/imdb_50k.jsonl.gz"))]
    steps.ingest_texts(inputs, store, options, ClusterOptions(), shard_bytes=SHARD_BYTES)
    return store


def search_options(columns: int, folds: int = 1, epochs: int = 1) -> SearchOptions:
    lam = [float(value) for value in np.geomspace(1e-7, 1e-4, columns // 4)]
    return SearchOptions(
        algorithms={"cl-fobos": {"lam": lam, "eta0": [0.03, 0.1, 0.3, 1.0]}}, folds=folds, epochs=epochs
    )


def test_sixty_four_configurations_against_sgd(imdb: Path, tmp_path: Path) -> None:
    """One core each: a whole search of 64 configurations, and an epoch of SGDClassifier on the same matrix."""
    X, _ = read_shards(imdb)
    X = X.astype(np.float64)
    y = Store.open(imdb).labels()
    one_core = ClusterOptions(threads=1)
    steps.search(imdb, tmp_path / "warm", search_options(64), one_core)
    ratios = []
    for i in range(3):
        started = time.perf_counter()
        steps.search(imdb, tmp_path / f"run{i}", search_options(64), one_core)
        ours = (time.perf_counter() - started) / 64
        started = time.perf_counter()
        SGDClassifier(loss="log_loss", penalty="l1", alpha=1e-6, max_iter=1, tol=None).fit(X, y)
        theirs = time.perf_counter() - started
        ratios.append(theirs / ours)
        print(f"\nsearch {ours * 1e3:.1f} ms a configuration, SGD {theirs * 1e3:.0f} ms an epoch: {ratios[-1]:.1f}×")
    print(f"a configuration of a 64-configuration search costs 1/{np.median(ratios):.1f} of an SGDClassifier epoch")


def test_what_dask_adds(imdb: Path, tmp_path: Path) -> None:
    """A search step against its only block run in a plain call of this process, one core each."""
    options = search_options(64, epochs=12)
    store = Store.open(imdb)
    setting = search_setting(options, store, NO_FOLD)
    milestones = full_run(options, store.n_rows).milestones
    grid = tuple(configuration.parameters for configuration in options.configurations())
    block = Block(setting=setting, algorithm="cl-fobos", configurations=grid)
    ratios = []
    for i in range(3):
        started = time.perf_counter()
        folders = Folders.of(tmp_path / f"bare{i}")
        run_block(site(store, tmp_path / f"scratch{i}"), block, milestones, folders)
        bare = time.perf_counter() - started
        started = time.perf_counter()
        steps.search(imdb, tmp_path / f"run{i}", options, ClusterOptions(threads=1))
        whole = time.perf_counter() - started
        ratios.append(whole / bare)
        print(f"\nplain call {bare:.1f} s, search step {whole:.1f} s: {ratios[-1] - 1:+.1%}")
    print(f"Dask adds {np.median(ratios) - 1:+.1%}")


def test_what_prefect_adds(imdb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search flow, its temporary server included, against the search step, in one process each after a warm-up."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    lam = ", ".join(f"{value:.3g}" for value in np.geomspace(1e-7, 1e-4, 16))
    run_file = tmp_path / "imdb.toml"
    run_file.write_text(
        f"""
out = "RUN"
[ingest]
inputs = ["unused"]
store = "{imdb}"
[search]
folds = 5
epochs = 8
algorithms.cl-fobos = {{ lam = [{lam}], eta0 = [0.03, 0.1, 0.3, 1.0] }}
"""
    )
    from sparseoco.flows.search import search

    def timed(name: str, call: object) -> float:
        path = tmp_path / f"{name}.toml"
        path.write_text(run_file.read_text().replace("RUN", name))
        started = time.perf_counter()
        call(path)  # type: ignore[operator]
        return time.perf_counter() - started

    timed("warm", lambda path: search(str(path)))
    flow = timed("flow", lambda path: search(str(path)))
    step = timed("step", lambda path: run_steps.run_search(load_run_file(path)))
    print(f"\nsearch step {step:.1f} s, search flow {flow:.1f} s: {flow / step - 1:+.1%}")


@pytest.mark.parametrize("kind", ["threads", "workers"])
def test_two_workers(imdb: Path, tmp_path: Path, kind: str) -> None:
    """A search of a minute or more on one task at a time and on two, threads of a process or processes of a thread."""
    options = search_options(128, folds=5, epochs=6)

    def seconds(count: int) -> float:
        cluster = ClusterOptions(threads=count) if kind == "threads" else ClusterOptions(workers=count, threads=1)
        started = time.perf_counter()
        steps.search(imdb, tmp_path / f"{kind}-{count}", options, cluster)
        return time.perf_counter() - started

    one, two = seconds(1), seconds(2)
    print(f"\n{kind}: one {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast")
