"""Models and stores that were edited, their checksums recomputed: commands end as usual, or with an error of ours."""

import copy
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.estimators.export import export_sklearn
from sparseoco.pipeline.evaluation import predict_lines
from sparseoco.pipeline.explanation import Explainer, compare_models
from sparseoco.storage.commit import CHECKSUM, read_json
from sparseoco.store.manifest import REMOVED
from sparseoco.store.shards import Store
from sparseoco.training.models import Model
from tests.support.errors import raises_code
from tests.support.models import random_model
from tests.support.wrong_shapes import checksummed

LINES = (b"alpha beta gamma\n", b"the delta\n", b"\n")
VALUES = (None, True, -1, 7, 10**30, 0.5, 1e308, "zzz", [], [None], {}, {"a": 1})
CHOICES = ("hashed", "vocabulary", "classes", "multi", "numbers", "softmax", "logistic", "l2", "none", "char")
MISSING = object()
PLAIN = {"tf": "count", "idf": False, "norm": "none"}
KINDS: dict[str, dict[str, Any]] = {
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
    original = random_model(tmp_path / kind, **KINDS[kind])
    described = read_json(original.folder / "model.json")
    described.pop(CHECKSUM, None)
    assert check(original.folder, edited(described, path, new), original)


@pytest.mark.fault(57)
def test_label_sets_with_a_loss_of_one_class(tmp_path: Path) -> None:
    original = random_model(tmp_path / "three", **KINDS["three"])
    described = read_json(original.folder / "model.json")
    described.pop(CHECKSUM, None)
    check(original.folder, edited(described, ("labels",), "multi"), original)


@pytest.mark.slow
@pytest.mark.fault(57)
@pytest.mark.parametrize("kind", KINDS)
def test_any_entry_of_a_model_may_be_anything(tmp_path: Path, kind: str) -> None:
    original = random_model(tmp_path / kind, **KINDS[kind])
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
