"""Folds by group and by time: of whole groups, of later documents only, whatever the shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.option_models import validate
from sparseoco.search.results import BlockRun
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training import folds as folds_module
from sparseoco.training.block import Block, search_setting
from sparseoco.training.folds import check_folds, fold_order, group_folds, slice_bounds
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import COUNTS, learn_up_to
from tests.support.stores import make_store, with_columns

FOLDS, ROWS = 3, 240


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
        plain = make_store(folder / "plain", rows=ROWS, features=60, shard_rows=shard_rows)
        found.append(Store.open(with_columns(plain, folder / "store")))
    return found


def parts(store: Store, folder: Path, by: str, fold: int) -> tuple[set[int], set[int]]:
    """The rows that a fold learns in an epoch and holds out."""
    setting = search_setting(options(by), store, fold)
    order = fold_order(setting, open_corpus(store, folder))
    learned = order.rows(1, ROWS, 0, ROWS).tolist()
    assert len(learned) == len(set(learned))
    return set(learned), set(order.held_out(0, 100).tolist()) | set(order.held_out(100, ROWS).tolist())


def test_a_group_is_in_one_fold(stores: list[Store], tmp_path: Path) -> None:
    seen: list[int] = []
    for fold in range(FOLDS):
        learned, held_out = parts(stores[0], tmp_path, "group", fold)
        assert learned | held_out == set(range(ROWS))
        assert not {row // 10 for row in learned} & {row // 10 for row in held_out}
        seen += held_out
    assert sorted(seen) == list(range(ROWS))


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
        learn_up_to(run, corpus, StreamPosition(1, ROWS))
        row = run.tables(corpus, store)[0]["metrics"][0]
        assert row["held_out_rows"] == len(parts(store, tmp_path, by, 1)[1])
        assert row["rows"] == len(parts(store, tmp_path, by, 1)[0])
        found.append((row, run.learner.weights().tobytes()))
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50),
    slices=st.integers(2, 6),
    chunk=st.integers(1, 60),
)
def test_slices_end_at_quantiles(times: list[float], slices: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folds_module, "COLUMN_CHUNK", chunk)
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
