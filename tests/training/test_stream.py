"""The stream of rows: its order, folds, and averaged parts."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.option_models import validate
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.order import epoch_rows, fold_rows, gather
from sparseoco.pipeline import demo
from sparseoco.search.worker import BlockRun
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training import stream
from sparseoco.training.block import Block, check_folds, fold_order, group_folds, search_setting, slice_bounds
from sparseoco.training.options import SearchOptions
from tests.benchmarks.corpora import corpus
from tests.support.errors import raises_code
from tests.support.searches import COUNTS, learn_up_to
from tests.support.stores import make_store, with_columns

# ----------------------------------------------------------------------------------------------------------------------
# Orders of a stream: permutations that any cut gives alike, and that read ranges of rows at once.


ROWS = 1000


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**63 - 1),
    n_rows=st.integers(1, 3000),
    range_rows=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    fold=st.integers(-1, 2),
)
def test_any_cut_gives_the_same_permutation_of_the_learned_rows(
    seed: int, n_rows: int, range_rows: int, cuts: list[int], fold: int
) -> None:
    edges = [0, *sorted(min(cut, n_rows) for cut in cuts), n_rows]
    parts = [stream.Order(seed, range_rows, fold, 3).rows(2, n_rows, a, b) for a, b in itertools.pairwise(edges)]
    rows = np.concatenate(parts)
    assert np.array_equal(rows, stream.Order(seed, range_rows, fold, 3).rows(2, n_rows, 0, n_rows))
    held_out = fold_rows(seed, 0, n_rows, fold, 3) if fold >= 0 else np.zeros(0, np.int64)
    assert np.array_equal(np.sort(np.concatenate([rows, held_out])), np.arange(n_rows))


@settings(deadline=None)
@given(n_rows=st.integers(1, 5000), range_rows=st.integers(2, 30), seed=st.integers(0, 100))
def test_a_window_is_the_rows_of_its_ranges(n_rows: int, range_rows: int, seed: int) -> None:
    windows, position, read = stream.Windows(seed, 1, n_rows, range_rows), 0, []
    while position < n_rows:
        starts, stops = windows.ranges(position)
        own = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
        assert starts.size <= stream.WINDOW_RANGES
        assert (starts % range_rows == 0).all()
        assert (stops[:-1] <= starts[1:]).all()
        assert np.array_equal(np.sort(windows.rows(position, windows.end(position))), own)
        read.append(own)
        position = windows.end(position)
    assert np.array_equal(np.sort(np.concatenate(read)), np.arange(n_rows))


def test_every_window_has_rows_of_the_whole_corpus() -> None:
    n_rows, range_rows = 100_000, 50  # 2,000 ranges, 63 windows
    windows, position = stream.Windows(3, 1, n_rows, range_rows), 0
    while position < n_rows:
        starts, _ = windows.ranges(position)
        assert np.diff(np.concatenate([[0], starts, [n_rows]])).max() <= 2 * n_rows / (stream.WINDOW_RANGES - 1)
        position = windows.end(position)


def test_epochs_and_seeds_give_unrelated_orders() -> None:
    for range_rows in (1, 4):
        orders = [
            stream.Order(seed, range_rows, -1, 1).rows(epoch, 20_000, 0, 20_000) for seed in (0, 1) for epoch in (1, 2)
        ]
        for first, second in itertools.combinations([*orders, np.arange(20_000)], 2):
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.04  # 5.6 standard deviations


def test_folds_part_the_rows_evenly() -> None:
    n_rows, folds = 20_000, 5
    held_out = [fold_rows(7, 0, n_rows, fold, folds) for fold in range(folds)]
    assert np.array_equal(np.sort(np.concatenate(held_out)), np.arange(n_rows))
    assert all(abs(rows.size - n_rows / folds) < 5 * np.sqrt(n_rows / folds) for rows in held_out)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_gather_takes_the_rows_named(index: type) -> None:
    indptr = np.array([0, 2, 2, 5])
    indices = np.array([1, 4, 0, 2, 3], dtype=index)
    counts = np.array([1, 2, 3, 4, 5], dtype=np.uint16)
    out = gather(np.array([2, 1, 0]), indptr, indices, counts, np.array([7, 8, 9], dtype=np.int32))
    expected = ([0, 3, 3, 5], [0, 2, 3, 1, 4], [3, 4, 5, 1, 2], [9, 8, 7])
    assert [part.tolist() for part in out] == [list(part) for part in expected]
    assert out[1].dtype == index


def test_orders_of_rows_and_none_are_those_of_the_kernel() -> None:
    assert np.array_equal(stream.Order(5, 1, 1, 4).rows(2, 99, 3, 80), epoch_rows(5, 2, True, 99, 3, 80, 1, 4))
    assert np.array_equal(stream.Order(5, 0, -1, 1).rows(2, 99, 3, 80), np.arange(3, 80))


def test_the_default_depends_on_the_size_of_the_data_only() -> None:
    assert [stream.range_rows_of(name, ROWS, 10) for name in ("none", False, "rows", "auto", True)] == [0, 0, 1, 1, 1]
    assert stream.range_rows_of("auto", stream.BLOCKS_FROM - 1, 10) == 1
    for name in ("auto", True, "blocks"):
        assert stream.range_rows_of(name, stream.BLOCKS_FROM, 100 * stream.BLOCKS_FROM) == 1967  # of 196,608 nonzeros
    assert stream.range_rows_of("blocks", ROWS, 10**9) == 2
    assert [stream.order_name(number) for number in (0, 1, 2, 1967)] == ["none", "rows", "blocks", "blocks"]


class Buffered(stream.MatrixRows):
    """Rows that are only read in the ranges that are in memory."""

    def __init__(self, *arrays: Any) -> None:
        super().__init__(*arrays)
        self.reads: list[list[tuple[int, int]]] = []
        self.allowed = np.zeros(0, np.int64)

    def buffered(self, starts: np.ndarray, stops: np.ndarray) -> "Buffered":
        self.reads.append(list(zip(starts.tolist(), stops.tolist(), strict=True)))
        self.allowed = np.concatenate([np.arange(a, b) for a, b in self.reads[-1]])
        return self

    def gather(self, rows: np.ndarray) -> RowBatch:
        assert np.isin(rows, self.allowed).all()
        return super().gather(rows)


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_stream_reads_every_range_once(chunk: int | None) -> None:
    X = sp.random_array((ROWS, 30), density=0.2, rng=np.random.default_rng(1), format="csr")
    y = np.arange(ROWS) % 2
    order, end, rows = stream.Order(4, 6, 1, 3), stream.StreamPosition(2, ROWS), Buffered(X, y)
    source: stream.RowSource = stream.ClassWeighted(rows, (2.0, 1.0))
    parts = [batch for _, batch in stream.stream(source, stream.Passes(order, end, marks=(10, 400), chunk_rows=chunk))]
    expected = np.concatenate([order.rows(epoch, ROWS, 0, ROWS) for epoch in (1, 2)])
    assert np.array_equal(np.concatenate([part.labels for part in parts]), y[expected])
    assert np.array_equal(np.concatenate([part.values for part in parts]), X[expected].data)
    for epoch in (rows.reads[: len(rows.reads) // 2], rows.reads[len(rows.reads) // 2 :]):
        bounds = sorted(itertools.chain.from_iterable(epoch))
        assert bounds == [(first, min(first + 6, ROWS)) for first in range(0, ROWS, 6)]


def test_a_stream_that_resumes_in_a_window_continues_as_if_it_had_not_stopped() -> None:
    source, order = stream.MatrixRows(sp.random_array((ROWS, 3), format="csr"), np.arange(ROWS)), stream.Order(4, 3)
    end, stop = stream.StreamPosition(1, ROWS), stream.StreamPosition(1, 333)

    def labels(*bounds: stream.StreamPosition) -> list[int]:
        batches = stream.stream(source, stream.Passes(order, *bounds))
        return [label for _, rows in batches for label in rows.labels]

    assert labels(stop) + labels(end, stop) == labels(end)


# ----------------------------------------------------------------------------------------------------------------------
# Folds by group and by time: of whole groups, of later documents only, whatever the shards.


FOLDS, DOCUMENTS = 3, 240


def options(by: str, **changes: Any) -> SearchOptions:
    given: dict[str, Any] = {"loss": "logistic", "epochs": 1, "features": COUNTS} | {
        "algorithms": {"cl-fobos": {"lam": [1e-3], "eta0": [0.3]}},
        "folds": FOLDS,
        "folds_by": by,
    }
    return validate(SearchOptions, given | changes)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    """The same documents in shards of two sizes; the group is the row // 10, the time increases."""
    found = []
    for shard_rows in (100, 37):
        folder = tmp_path_factory.mktemp("store")
        plain = make_store(folder / "plain", rows=DOCUMENTS, features=60, shard_rows=shard_rows)
        found.append(Store.open(with_columns(plain, folder / "store")))
    return found


def parts(store: Store, folder: Path, by: str, fold: int) -> tuple[set[int], set[int]]:
    """The rows that a fold learns in an epoch and holds out."""
    setting = search_setting(options(by), store, fold)
    order = fold_order(setting, open_corpus(store, folder))
    learned = order.rows(1, DOCUMENTS, 0, DOCUMENTS).tolist()
    assert len(learned) == len(set(learned))
    return set(learned), set(order.held_out(0, 100).tolist()) | set(order.held_out(100, DOCUMENTS).tolist())


def test_a_group_is_in_one_fold(stores: list[Store], tmp_path: Path) -> None:
    seen: list[int] = []
    for fold in range(FOLDS):
        learned, held_out = parts(stores[0], tmp_path, "group", fold)
        assert learned | held_out == set(range(DOCUMENTS))
        assert not {row // 10 for row in learned} & {row // 10 for row in held_out}
        seen += held_out
    assert sorted(seen) == list(range(DOCUMENTS))


def test_folds_by_time_learn_from_the_past_only(stores: list[Store], tmp_path: Path) -> None:
    for fold in range(FOLDS):
        learned, held_out = parts(stores[0], tmp_path, "time", fold)
        assert learned == set(range(60 * (fold + 1)))
        assert held_out == set(range(60 * (fold + 1), 60 * (fold + 2)))


@pytest.mark.parametrize("by", ["group", "time"])
def test_shards_and_chunks_change_nothing(
    stores: list[Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    found = []
    for store, chunk in zip(stores, (4096, 7), strict=True):
        monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", chunk)
        search = options(by)
        setting = search_setting(search, store, 1).model_copy(update={"manifest": "of both"})
        block = Block.of(setting, search.configurations())
        run, corpus = BlockRun.new(block, store), open_corpus(store, tmp_path)
        learn_up_to(run, corpus, stream.StreamPosition(1, DOCUMENTS))
        row = run.tables(corpus, store)[0]["metrics"][0]
        assert row["held_out_rows"] == len(parts(store, tmp_path, by, 1)[1])
        assert row["rows"] == len(parts(store, tmp_path, by, 1)[0])
        found.append((row, run.learner.weights().tobytes()))
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50),
    slices=st.integers(2, 6),
)
def test_slices_end_at_quantiles(times: list[float], slices: int) -> None:
    found = slice_bounds(np.array(times), slices)
    ordered = sorted(times)
    assert found.tolist() == [ordered[-(-k * len(times) // slices) - 1] for k in range(1, slices)]


def test_groups_are_spread_evenly() -> None:
    found = group_folds(np.arange(10_000) - 5_000, 7, 5)
    counts = np.bincount(found, minlength=5)
    assert counts.sum() == 10_000
    assert abs(counts - 2000).max() < 200
    assert not np.array_equal(found, group_folds(np.arange(10_000) - 5_000, 8, 5))


def test_what_folds_need(stores: list[Store], tmp_path: Path) -> None:
    plain = Store.open(make_store(tmp_path / "plain", rows=20))
    check_folds(plain, None)
    check_folds(stores[0], "group")
    with raises_code("missing-column", "group_field"):
        check_folds(plain, "group")
    for by, changes in (("group", {"folds": 1}), ("group", {"algorithms": {"caos-erm": {}}}), ("label", {})):
        with raises_code("invalid-option"):
            options(by, **changes)


# ----------------------------------------------------------------------------------------------------------------------
# The examples of streams run as their pages say.


@pytest.fixture
def invariance() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "invariance.py"
    spec: Any = importlib.util.spec_from_file_location("invariance", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_our_weights_are_the_same_bits_for_every_cut(
    invariance: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "LIBRARIES", ("click", "fsspec"))
    invariance.main([])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sparseoco fobos")]
    assert len(lines) == 1 + len(invariance.CHUNKS)
    assert len({tuple(line.split()[-3:]) for line in lines}) == 1


@pytest.mark.corpora
def test_the_figures_of_the_page(invariance: ModuleType) -> None:
    stream = invariance.read(corpus("imdb/imdb_50k.jsonl.gz"))
    assert np.count_nonzero(stream.rare) == 23_771
    for chunk in (None, *invariance.CHUNKS):
        assert np.count_nonzero(invariance.train_sparseoco(stream, chunk)[stream.rare]) == 7_447
