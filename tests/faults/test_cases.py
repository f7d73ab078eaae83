"""The list of faults, and files that are foreign, damaged as soon as they are written, or edited: one sentence."""

import ast
import io
import pickle
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.estimators.export import export_sklearn
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline.evaluation import predict, text_and_ids
from sparseoco.pipeline.explanation import Explainer, compare_models
from sparseoco.storage.tables import read_checkpoint
from sparseoco.store.shards import Store
from sparseoco.text import counting
from sparseoco.text import vocabulary as tokens
from sparseoco.text.array_files import StagingError, save_arrays
from sparseoco.text.readers import ReadOutcome
from sparseoco.training.models import Model
from tests.support.damage import damage, forge
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, random_texts
from tests.support.models import random_model
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# docs/operations/faults.md lists every case with the files that test it: tests marked `@pytest.mark.fault(number)`.


TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "operations" / "faults.md"


def marked() -> dict[int, set[str]]:
    """The files with tests of each case."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "pytest.mark.fault" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                for number in node.args:
                    found[ast.literal_eval(number)].add(str(path.relative_to(TESTS)))
    return found


def test_every_case_names_the_files_that_test_it() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    page = {int(number): set(re.findall(r"`([^`]+)`", files)) for number, _, _, files in rows}
    assert len(page) == len(rows)
    assert list(page) == sorted(page)
    wanted = marked()
    assert page == wanted, "\n".join(
        f"{number}: {', '.join(f'`{name}`' for name in sorted(wanted[number]))}"
        for number in sorted(wanted)
        if page.get(number) != wanted[number]
    )


# ----------------------------------------------------------------------------------------------------------------------
# One more than a limit is one sentence with the figure.


@pytest.mark.fault(34, 61)
@pytest.mark.parametrize(("module", "limit"), [(tokens, "MAX_TOKENS"), (counting, "MAX_NGRAMS")])
def test_more_distinct_words_than_can_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str
) -> None:
    data = jsonl(["ab cd ef", "gh ij", "ab kl"])
    monkeypatch.setattr(module, limit, 6)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="fits").features.count == 6
    monkeypatch.setattr(module, limit, 5)
    with raises_code("too-many-terms", "More than 5 distinct", "hash_bits"):
        ingest_bytes(tmp_path, "a.jsonl", data)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="hashed", hash_bits=10).rows == 3


# ----------------------------------------------------------------------------------------------------------------------
# Workers on this machine.


@pytest.mark.fault(16)
def test_workers_spill_nothing_to_disk(tmp_path: Path) -> None:
    def shape(dask_worker: Any) -> tuple[type, Any]:
        return type(dask_worker.data), dask_worker.memory_manager.memory_spill_fraction

    with connect(ClusterOptions(threads=1, memory="1GiB"), tmp_path / "scratch") as client:
        assert set(client.run(shape).values()) == {(dict, False)}


# ----------------------------------------------------------------------------------------------------------------------
# Files that are foreign, that are damaged as soon as they are written, or edited: one sentence.


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


@pytest.mark.fault(52)
def test_a_folder_that_damages_all_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ingest starts over once, and then tells the file."""
    saved: list[Path] = []

    def save(path: Path, *content: object) -> None:
        saved.append(path)
        save_arrays(path, *content)
        damage(path, "flipped", random.Random(0))

    monkeypatch.setattr("sparseoco.text.array_files.save_arrays", save)
    with raises_code("corrupt-file", ".counts", kind=StagingError):
        ingest_bytes(tmp_path, "a.jsonl", jsonl(random_texts(60)))
    assert sum("starting over" in message for message in caplog.messages) == 1
    assert max(Counter(saved).values()) == 2  # tasks that run when the error is found may end later, or not begin


# ----------------------------------------------------------------------------------------------------------------------
# Models and stores that were edited, their checksums recomputed: commands end as usual, or with an error of ours.
# `chaos/test_damage.py` gives any value to any entry.


LINES = (b"alpha beta gamma\n", b"the delta\n", b"\n")
PLAIN = {"tf": "count", "idf": False, "norm": "none"}
MODELS: dict[str, dict[str, Any]] = {
    "two": {"positive_class": "b", "calibration": {"method": "sigmoid", "slopes": [0.5], "offsets": [1.0]}},
    "three": {"classes": 3, "weighting": PLAIN, "loss": "softmax"},
    "multi": {"classes": 3, "labels": "multi"},
    "hashed": {"hash_bits": 8, "min_df": 1},
}


def predict_lines(model: Model) -> None:
    predict(model, text_and_ids(model, (), {}, LINES, ReadOutcome()), io.StringIO(), margins=True)


def commands(folder: Path, original: Model) -> Iterator[Any]:
    yield lambda: predict_lines(Model(folder))
    yield lambda: list(Explainer(Model(folder)).explain(["alpha beta", "the"]))
    yield lambda: compare_models(Model(folder), original)
    yield lambda: export_sklearn(Model(folder), folder.parent / "model.skops")


@pytest.mark.fault(57)
@pytest.mark.parametrize(
    ("kind", "key", "new", "refused"),
    [
        ("hashed", ("features", "hash_bits"), None, True),
        ("two", ("features", "kind"), "hashed", True),
        ("two", ("positive_class",), 7, True),
        ("two", ("positive_class",), "zzz", True),
        ("two", ("calibration", "slopes"), [1e308], True),
        ("two", ("intercept",), [1e308], True),
        ("two", ("classes",), ["a", "a"], True),
        ("multi", ("labels",), "numbers", True),
        ("three", ("labels",), "multi", False),  # with a loss of one class: nothing else than an error of ours
    ],
)
def test_a_model_that_contradicts_itself_is_refused(
    tmp_path: Path, kind: str, key: tuple[str, ...], new: object, refused: bool
) -> None:
    original = random_model(tmp_path / kind, **MODELS[kind])
    forge(original.folder / "model.json", key, new)
    errors = []
    for command in commands(original.folder, original):
        try:
            command()
        except SparseocoError as error:
            errors.append(error)
    assert errors or not refused


@pytest.mark.fault(57)
def test_a_store_that_says_it_is_hashed_is_refused(tmp_path: Path) -> None:
    forge(make_store(tmp_path) / "manifest-00000001.json", ("features", "kind"), "hashed")
    with pytest.raises(SparseocoError):
        Store.open(tmp_path)
