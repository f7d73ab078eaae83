"""Files that are lost, cut, swapped, damaged or edited, and power that fails: the same bytes, or one sentence."""

import copy
import io
import os
import pickle
import random
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.estimators.export import export_sklearn
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.pipeline.evaluation import predict_lines
from sparseoco.pipeline.explanation import Explainer, compare_models
from sparseoco.scoring.kept import KEPT
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS
from sparseoco.storage.checkpoints import read_checkpoint
from sparseoco.storage.commit import CHECKSUM, read_json
from sparseoco.storage.locks import is_intact
from sparseoco.storage.tables import read_metrics
from sparseoco.store.manifest import REMOVED
from sparseoco.store.shards import Store
from sparseoco.text import ingest as ingesting
from sparseoco.text.array_files import StagingError, save_arrays
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.models import Model
from tests.faults.commands import DIVIDED, quick_run, tables
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.ingests import file_bytes, jsonl, random_texts
from tests.support.models import random_model
from tests.support.searches import plain_search
from tests.support.stores import make_store
from tests.support.wrong_shapes import checksummed

# ----------------------------------------------------------------------------------------------------------------------
# A model of a machine that loses its power: what was not synced is gone.
#
# The content of a file is durable as it was at its last `fsync`, the names in a folder as they were at the `fsync` of
# the folder. A journalling file system may also have renamed a file whose content it has not yet written: it is then
# empty.


Names = dict[str, int]  # inode by name


class Disk:
    """What would be left of the folder `root` after each of its syncs.

    `states` has the paths and contents of the files that are left after each `fsync`: those whose names are durable,
    and with `ahead` those that have a name, of which some are empty.
    """

    def __init__(self, root: Path, *, ahead: bool = False) -> None:
        self._root, self._ahead = root, ahead
        self._contents: dict[int, bytes] = {}
        self._folders: dict[str, Names] = {}
        self.states: list[dict[str, bytes]] = []

    def synced(self, path: Path) -> None:
        """Note that a file or folder was synced."""
        if not path.is_relative_to(self._root):
            return
        if path.is_dir():
            self._folders[str(path)] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()
        self.states.append(dict(self._left(self._root)))

    def _left(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        names = self._folders.get(str(folder), {})
        if self._ahead:
            names = {entry.name: entry.inode() for entry in os.scandir(folder)}
        for name, inode in names.items():
            path = folder / name
            if path.is_dir():
                yield from self._left(path)
            elif inode in self._contents or self._ahead:
                yield str(path.relative_to(self._root)), self._contents.get(inode, b"")


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch, *, ahead: bool = False) -> Iterator[Disk]:
    """Record what this process syncs below a folder. Only names of folders that are in a synced folder are durable."""
    disk, sync = Disk(root, ahead=ahead), os.fsync

    def record(descriptor: int) -> None:
        sync(descriptor)
        disk.synced(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", record)
        yield disk


def restore(state: dict[str, bytes], root: Path) -> None:
    """Write what is left to a new folder."""
    root.mkdir()
    for name, data in state.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


# ----------------------------------------------------------------------------------------------------------------------
# Files that are lost, cut or foreign, power that fails, clocks that jump: the same bytes, or one sentence.


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
        assert_same_folder(tmp_path / f"{number}", out, more=True, what=number)


@pytest.mark.chaos
@pytest.mark.fault(20)
@pytest.mark.parametrize("ahead", [False, True], ids=["lost", "empty"])
def test_power_that_fails_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    whole = quick_run(tmp_path / "whole")
    out = Path(str(whole.out))
    out.mkdir()
    with recorded(out, monkeypatch, ahead=ahead) as disk:
        steps.run_all(whole)
    expected = folder_bytes(out)
    for number, state in enumerate(disk.states):
        run = quick_run(tmp_path / f"{number}")
        restore(state, Path(str(run.out)))
        steps.run_all(run)
        assert_same_folder(Path(str(run.out)), expected, more=True, what=number)


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


# ----------------------------------------------------------------------------------------------------------------------
# Files of one kind that were swapped: each reader refuses them or computes them again, never gives another result.


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


# ----------------------------------------------------------------------------------------------------------------------
# Cases 12, 13 and 52 of the faults: staging files damaged between a kill and the resume are counted again.


OPTIONS = TextOptions.of({"ngram_range": [1, 2], "duplicates": "first"})


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "x.jsonl").write_bytes(jsonl(random_texts(60)))
    return str(tmp_path / "x.jsonl")


def run(text: str, out: Path) -> dict[str, bytes]:
    ingesting.ingest([text], out, OPTIONS, shard_bytes=4096)
    return file_bytes(out)


@pytest.fixture
def killed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose first ingest was killed right before its commit."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ingesting, "commit_manifest", kill)
        run(text, tmp_path / "killed")
    return tmp_path / "killed"


@pytest.mark.fault(52)
def test_damaged_staging_files_are_counted_again(text: str, killed: Path, tmp_path: Path) -> None:
    expected = run(text, tmp_path / "whole")
    files = [path.relative_to(killed) for path in sorted(killed.rglob("*")) if path.is_file()]
    assert len(files) > 15
    for number, name in enumerate(files):
        out = shutil.copytree(killed, tmp_path / f"out-{number}")
        damage(out / name, KINDS[number % len(KINDS)], random.Random(number))
        assert {key: value for key, value in run(text, out).items() if key in expected} == expected, name
        assert not (out / ".staging").exists()


@pytest.mark.fault(52)
def test_a_staging_file_under_the_name_of_another(text: str, killed: Path, tmp_path: Path) -> None:
    expected = run(text, tmp_path / "whole")
    first, second, *_ = sorted(killed.rglob("*.counts"))
    shutil.copy(first, second)
    assert run(text, killed) == expected


@pytest.mark.fault(52)
def test_a_folder_that_damages_all_it_is_given(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ingest starts over once, and then tells the file."""

    def save(path: Path, *content: object) -> None:
        save_arrays(path, *content)
        damage(path, "flipped", random.Random(0))

    monkeypatch.setattr("sparseoco.text.counting.save_arrays", save)
    with raises_code("corrupt-file", ".counts", kind=StagingError):
        run(text, tmp_path / "out")


# ----------------------------------------------------------------------------------------------------------------------
# Models and stores that were edited, their checksums recomputed: commands end as usual, or with an error of ours.


LINES = (b"alpha beta gamma\n", b"the delta\n", b"\n")
VALUES = (None, True, -1, 7, 10**30, 0.5, 1e308, "zzz", [], [None], {}, {"a": 1})
CHOICES = ("hashed", "vocabulary", "classes", "multi", "numbers", "softmax", "logistic", "l2", "none", "char")
MISSING = object()
PLAIN = {"tf": "count", "idf": False, "norm": "none"}
MODELS: dict[str, dict[str, Any]] = {
    "two": {"positive_class": "b", "calibration": {"method": "sigmoid", "slopes": [0.5], "offsets": [1.0]}},
    "three": {"classes": 3, "weighting": PLAIN, "loss": "softmax"},
    "multi": {"classes": 3, "labels": "multi"},
    "hashed": {"hash_bits": 8, "min_df": 1},
}


def commands(folder: Path, original: Model) -> Iterator[Any]:
    yield lambda: predict_lines(Model(folder), LINES, io.StringIO(), margins=True)
    yield lambda: list(Explainer(Model(folder)).explain(["alpha beta", "the"]))
    yield lambda: compare_models(Model(folder), original).described
    yield lambda: export_sklearn(Model(folder), folder.parent / "model.skops")


def edited(value: Any, path: tuple[Any, ...], new: object) -> Any:
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if new is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return value


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each entry; of lists the first only."""
    if above:
        yield above
    entries = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from paths(inner, (*above, key))


def check(folder: Path, forged: Any, original: Model) -> bool:
    """Whether the forged description is refused somewhere. Any other exception is a failure."""
    (folder / "model.json").write_bytes(checksummed(forged))
    refused = False
    for command in commands(folder, original):
        try:
            command()
        except SparseocoError:
            refused = True
    return refused


@pytest.mark.fault(57)
@pytest.mark.parametrize(
    ("kind", "path", "new"),
    [
        ("hashed", ("features", "hash_bits"), None),
        ("hashed", ("features", "hash_seed"), None),
        ("hashed", ("features", "hash_seed"), -1),
        ("two", ("features", "kind"), "hashed"),
        ("two", ("positive_class",), 7),
        ("two", ("positive_class",), "zzz"),
        ("two", ("calibration", "slopes"), [1e308]),
        ("two", ("intercept",), [1e308]),
        ("two", ("classes",), ["a", "a"]),
        ("multi", ("labels",), "numbers"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(
    tmp_path: Path, kind: str, path: tuple[str, ...], new: object
) -> None:
    original = random_model(tmp_path / kind, **MODELS[kind])
    described = read_json(original.folder / "model.json")
    described.pop(CHECKSUM, None)
    assert check(original.folder, edited(described, path, new), original)


@pytest.mark.fault(57)
def test_label_sets_with_a_loss_of_one_class(tmp_path: Path) -> None:
    original = random_model(tmp_path / "three", **MODELS["three"])
    described = read_json(original.folder / "model.json")
    described.pop(CHECKSUM, None)
    check(original.folder, edited(described, ("labels",), "multi"), original)


@pytest.mark.slow
@pytest.mark.fault(57)
@pytest.mark.parametrize("kind", MODELS)
def test_any_entry_of_a_model_may_be_anything(tmp_path: Path, kind: str) -> None:
    original = random_model(tmp_path / kind, **MODELS[kind])
    described = read_json(original.folder / "model.json")
    described.pop(CHECKSUM, None)
    for path in paths(described):
        for new in (*VALUES, *CHOICES, MISSING):
            check(original.folder, edited(described, path, new), original)


@pytest.mark.fault(57)
def test_a_store_that_says_it_is_hashed_is_refused(tmp_path: Path) -> None:
    original = random_model(tmp_path / "two")
    store = original.folder / "shards"
    if not store.exists():
        store = original.folder.parent / "shards"
    (manifest,) = store.glob("manifest-*.json")
    described = read_json(manifest)
    described.pop(CHECKSUM, None)
    manifest.write_bytes(checksummed(edited(described, ("features", "kind"), "hashed")))
    with pytest.raises(SparseocoError):
        Store.open(store)


@pytest.mark.parametrize("name", REMOVED)
def test_options_of_earlier_versions_are_read_with_their_defaults_only(tmp_path: Path, name: str) -> None:
    original = random_model(tmp_path / "two")
    (manifest,) = (original.folder.parent / "shards").glob("manifest-*.json")
    for value, readable in ((REMOVED[name], True), (7, False)):
        for path, key, read in (
            (original.folder / "model.json", "text", Model),
            (manifest, "options", Store.open),
        ):
            before = path.read_bytes()
            described = read_json(path)
            described.pop(CHECKSUM, None)
            path.write_bytes(checksummed(edited(described, (key, name), value)))
            if readable:
                read(path.parent)
            else:
                with raises_code("removed-option", f"{name} = 7", kind=StorageError):
                    read(path.parent)
            path.write_bytes(before)
