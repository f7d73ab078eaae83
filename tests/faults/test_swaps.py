"""Files of one kind that were swapped: each reader refuses them or computes them again, never gives another result."""

import shutil
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.scoring.kept import KEPT
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS
from sparseoco.storage.locks import is_intact
from sparseoco.storage.tables import read_metrics
from sparseoco.store.shards import Store
from tests.faults.searches import tables
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model
from tests.support.searches import plain_search
from tests.support.stores import make_store

SEARCH = plain_search(algorithms={"cl-fobos": {"lam": [1e-4, 1e-2], "eta0": [0.1]}}, folds=2, epochs=2)
ONE = ClusterOptions(threads=1)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a search of it, and scores."""
    folder = tmp_path_factory.mktemp("swaps")
    make_store(folder / "store")
    steps.search(folder / "store", folder / "run", SEARCH, ONE)
    random_model(folder / "model", positive_class="b")
    (folder / "texts.jsonl").write_bytes(jsonl(random_texts(200, 7)))
    score(folder, "30%")
    return folder


@pytest.fixture
def folder(origin: Path, tmp_path: Path) -> Path:
    """A copy, whose sources are those of the scores."""
    for name in ("store", "run", "scores"):
        shutil.copytree(origin / name, tmp_path / name)
    (tmp_path / "model").symlink_to(origin / "model")
    (tmp_path / "texts.jsonl").symlink_to(origin / "texts.jsonl")
    return tmp_path


def score(folder: Path, keep_top: str) -> None:
    options = ScoreOptions(shard_bytes=12288, keep_top=keep_top)
    steps.score(str(folder / "model"), [str(folder.resolve() / "texts.jsonl")], folder / "scores", options, ONE)


def rotate(folder: Path, pattern: str) -> None:
    """Give every file the content of the next one."""
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    assert len(paths) > 1
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


@pytest.mark.fault(52)
def test_every_pair_of_files_of_a_kind(folder: Path) -> None:
    kinds: dict[str, list[Path]] = defaultdict(list)
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".npz", ".parquet"):
            assert is_intact(path)
            kinds[path.suffix].append(path)
    pairs = [pair for paths in kinds.values() for pair in permutations(paths, 2) if pair[0].name != pair[1].name]
    assert len(pairs) > 100
    for first, second in pairs:
        before = first.read_bytes()
        first.write_bytes(second.read_bytes())
        assert not is_intact(first), (first, second)
        first.write_bytes(before)


@pytest.mark.fault(52)
def test_cells_and_tables_of_a_search_are_computed_again(folder: Path) -> None:
    before = tables(folder / "run")
    rotate(folder / "run" / "search", "*.parquet")
    with pytest.raises(StorageError):
        read_metrics(folder / "run")
    rotate(folder / "run" / "search" / "cells", "*")
    steps.search(folder / "store", folder / "run", SEARCH, ONE)
    assert tables(folder / "run") == before


@pytest.mark.fault(52)
def test_shards_and_scores(folder: Path) -> None:
    rotate(folder / "store", "shard-*")
    store = Store.open(folder / "store")
    for shard in range(store.n_shards):
        with pytest.raises(StorageError):
            store.read(shard)
    kept = {path.name: path.read_bytes() for path in (folder / "scores" / KEPT).iterdir()}
    rotate(folder / "scores" / KEPT, "*")
    score(folder, "30%")
    assert {path.name: path.read_bytes() for path in (folder / "scores" / KEPT).iterdir()} == kept
    rotate(folder / "scores" / PARTS, "*")
    with pytest.raises(StorageError):
        score(folder, "20%")
