"""A saved model is found from its own folder, from a run's and from that of nightly runs."""

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit

from sparseoco import Model
from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_json, digest_file, read_json
from sparseoco.storage.tables import write_parquet
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.training.models import amend_model, write_model
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.stores import make_store

LINES = ["t0 t0 t3", "t1", "t5 unknown", ""]


OUTPUT = {"margin": 0.5, "precision": 1.0, "recall": 0.5, "f1": 0.7, "share": 0.2}  # of a threshold


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with weights for three features: t0 and t5 for the second class, t1 for the first."""
    store = Store.open(make_store(tmp_path / "store"))
    store.manifest.options.update(TextOptions().plain())
    weights = np.zeros((store.n_features, 1))
    weights[[0, 1, 5], 0] = 1.0, -2.0, 0.5
    write_model(tmp_path / "model", weights, store, {"algorithm": "none", "parameters": {}}, [])
    return tmp_path / "model"


def in_model_folder(model: Path, folder: Path) -> None:
    shutil.copytree(model, folder)


def in_run_folder(model: Path, folder: Path) -> None:
    shutil.copytree(model, folder / "model")


def in_nightly_folder(model: Path, folder: Path) -> None:
    """Two increments with models, the first of which is deployed."""
    shutil.copytree(model, folder / "models" / "00000001")
    (folder / "models" / "00000002").mkdir()
    commit_json(folder / "promoted.json", {"model": "models/00000001", "increment": 1})


@pytest.mark.parametrize("layout", [in_model_folder, in_run_folder, in_nightly_folder])
def test_model_and_predict_take_any_of_the_folders(
    layout: Callable[[Path, Path], None],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    layout(model, folder)
    expected = ["c1", "c0", "c1", "c0"]
    assert Model(folder).predict(LINES) == Model(str(folder)).predict(LINES) == expected
    np.testing.assert_array_equal(Model(folder).margins(LINES), [[2.0], [-2.0], [0.5], [0.0]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join([*LINES, ""]).encode())))
    assert call(monkeypatch, "predict", folder) == 0
    assert capsys.readouterr().out.split() == expected


def amended(model: Path, **entries: object) -> Model:
    amend_model(model, entries)
    return Model(model)


def test_probabilities_are_calibrated_or_those_of_the_loss(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with raises_code("no-probabilities", model):
        Model(model).predict_proba(LINES)
    margins = np.array([2.0, -2.0, 0.5, 0.0])
    found = amended(model, loss="logistic").predict_proba(LINES)
    np.testing.assert_allclose(found, np.stack([expit(-margins), expit(margins)], axis=1))
    calibration = {"method": "sigmoid", "slopes": [0.5], "offsets": [1.0]}
    calibrated = amended(model, loss="hinge", calibration=calibration)
    np.testing.assert_allclose(calibrated.predict_proba(LINES)[:, 1], expit(0.5 * margins + 1))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join([*LINES, ""]).encode())))
    assert call(monkeypatch, "predict", model, "--margins", "--proba") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["c1", "c0", "c1", "c0"]
    numbers = np.array([row[1:] for row in rows], float)
    np.testing.assert_allclose(numbers[:, 0], margins)
    np.testing.assert_allclose(numbers[:, 1:], calibrated.predict_proba(LINES), rtol=1e-5)


def test_a_threshold_decides_between_two_classes(model: Path) -> None:
    found = amended(model, threshold={"rule": {"rule": "top", "value": 0.2}, "outputs": [OUTPUT], "rows": 10})
    assert found.predict(LINES) == ["c1", "c0", "c0", "c0"]


@pytest.mark.parametrize(
    "entries",
    [
        {"calibration": {"method": "sigmoid", "slopes": [1.0, 1.0], "offsets": [0.0, 0.0]}},
        {"calibration": {"method": "sigmoid", "slopes": ["x"], "offsets": [0.0]}},
        {"threshold": {"rule": "f1", "outputs": [], "rows": 1}},
        {"threshold": "f1"},
        {"calibration": {"method": "sigmoid", "slopes": [1e308], "offsets": [0.0]}},
        {"calibration": {"method": "sigmoid", "slopes": [1.0], "offsets": [-1e308]}},
        {"threshold": {"rule": {"rule": "top", "value": 0.2}, "outputs": [OUTPUT | {"margin": -1e308}], "rows": 10}},
        {"intercept": [1e308]},
    ],
)
def test_a_description_with_another_calibration_or_threshold_is_refused(
    model: Path, entries: dict[str, object]
) -> None:
    with raises_code("corrupt-model", "model.json", kind=StorageError):
        amended(model, **entries)


def test_a_model_of_an_earlier_version_is_told(model: Path) -> None:
    described = read_json(model / "model.json")
    del described["weighting"]
    commit_json(model / "model.json", described)
    with raises_code("format-version", model, kind=StorageError):
        Model(model)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with raises_code("missing-model", tmp_path):
        Model(tmp_path)
    commit_json(tmp_path / "promoted.json", {"increment": 3})
    with raises_code("corrupt-file", "promoted.json", kind=StorageError):
        Model(tmp_path)
    commit_json(tmp_path / "promoted.json", {"model": "models/00000003"})
    with raises_code("missing-model", tmp_path):
        Model(tmp_path)


@pytest.mark.fault(55)
@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "models/../../x", "models/00000001/../../..", 3])
def test_promoted_json_names_a_model_of_its_folder(tmp_path: Path, name: object) -> None:
    commit_json(tmp_path / "promoted.json", {"model": name})
    with raises_code("corrupt-file", "promoted.json", kind=StorageError):
        Model(tmp_path)


@pytest.mark.fault(55)
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, model: Path) -> None:
    commit_json(tmp_path / "run" / "promoted.json", {"model": "models/00000001"})
    (tmp_path / "run" / "models").mkdir()
    (tmp_path / "run" / "models" / "00000001").symlink_to(model)
    with raises_code("outside-folder", "promoted.json", kind=StorageError):
        Model(tmp_path / "run")


def _edit_description(model: Path, **features: object) -> None:
    described = read_json(model / "model.json")
    described["features"] |= features
    commit_json(model / "model.json", described)


@pytest.mark.parametrize("changes", [{"count": 5}, {"count": 0}, {"hash_bits": 3}])
@pytest.mark.fault(51)
def test_a_description_of_other_features_is_refused(model: Path, changes: dict[str, object]) -> None:
    _edit_description(model, **changes)
    with raises_code("corrupt-model", model, kind=StorageError):
        Model(model)


@pytest.mark.parametrize(
    "column",
    [{"class": "other"}, {"feature_id": -1}, {"weight": np.nan}, {"weight": -1e308}, {"weight": None}, {"weight": "1"}],
    ids=str,
)
@pytest.mark.fault(51)
def test_a_table_of_other_weights_is_refused(model: Path, column: dict[str, object]) -> None:
    """Its digest matches: someone computed it again."""
    table = Model(model).table
    for name, value in column.items():
        values = pa.array([value] * len(table), pa.string() if value == "1" else table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    write_parquet(model / "weights.parquet", table)
    amend_model(model, {"weights_sha256": digest_file(model / "weights.parquet")})
    with raises_code("corrupt-model", "weights.parquet", kind=StorageError):
        Model(model)


def test_margins_are_the_sums_of_values_times_weights(model: Path) -> None:
    """Bit for bit those of SciPy's product; with norms, features without a weight count too."""
    found = Model(model)
    expected = found.values(LINES) @ found.weights + found.intercepts
    assert found.margins(LINES).tobytes() == expected.tobytes()
    assert expected[:3, 0].tolist() == [2.0, -2.0, 0.5]
