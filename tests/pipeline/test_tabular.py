"""One learner on a table: the files hold the values of `Learner`, also from the command line."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from sparseoco import Learner
from sparseoco.datasets.tables import read_table, standardise
from sparseoco.learners.domains import ball_constants
from sparseoco.pipeline.tabular import INTERCEPT, fit_table
from tests.support.commands import call
from tests.support.errors import raises_code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(7)
    X = rng.normal(5.0, 2.0, (120, 3))
    number = X @ [1.0, -2.0, 0.5] + 30.0
    word = np.where(number > np.median(number), "high", np.where(number > np.quantile(number, 0.2), "low", "middle"))
    lines = [f"{a},{b},{c},{y},{w}" for (a, b, c), y, w in zip(X, number, word, strict=True)]
    (folder / "t.csv").write_text("\n".join(["a,b,c,y,w", *lines]) + "\n")
    return folder


def test_files_hold_the_learners_values(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    fitted = fit_table(table, tmp_path, algorithm="ogd", parameters={"D": 20, "G": 30}, standardised=True, epochs=2)
    scaled, scaling = standardise(table)
    learner = Learner("ogd", loss="squared", grid=[{"D": 20, "G": 30}], n_features=3, n_classes=None)
    for _ in range(2):
        learner.partial_fit(csr_matrix(scaled.features), table.labels)
    weights = pq.read_table(tmp_path / "weights.parquet").to_pydict()
    assert weights["feature"] == ["a", "b", "c"]
    assert weights["class"] == [None] * 3
    assert weights["weight"] == learner.weights()[:, 0].tolist()
    assert weights["mean"] == scaling.mean.tolist()
    metrics = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert metrics[-1]["rows"] == fitted.rows == 240
    assert metrics[-1]["progressive_loss"] == fitted.progressive_loss == learner.progress.loss_sum[0] / 240
    assert metrics[-1]["progressive_error"] is None


def test_an_intercept_fits_the_mean(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    options = {"algorithm": "ons", "parameters": {"D": 100, "beta": 0.001}, "standardised": True, "epochs": 20}
    without = fit_table(table, tmp_path / "without", **options)
    fitted = fit_table(table, tmp_path / "with", intercept=True, **options)
    assert fitted.progressive_loss < 0.5 * without.progressive_loss
    weights = pq.read_table(tmp_path / "with" / "weights.parquet").to_pydict()
    assert weights["feature"][-1] == INTERCEPT
    assert weights["weight"][-1] == pytest.approx(table.labels.mean(), abs=0.5)


def test_three_classes_have_a_column_each(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="w", leave_out=["y"])
    fitted = fit_table(table, tmp_path, algorithm="ons", standardised=True, intercept=True, epochs=30)
    weights = pq.read_table(tmp_path / "weights.parquet").to_pydict()
    assert weights["class"] == ["high"] * 4 + ["low"] * 4 + ["middle"] * 4
    assert fitted.progressive_error is not None
    assert fitted.progressive_error < 0.3
    assert fitted.loss == "logistic"


def test_rounds_and_bounds_of_a_bandit_are_computed(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    fitted = fit_table(table, tmp_path, algorithm="onseg", standardised=True, epochs=3)
    assert fitted.parameters["T"] == 360
    sizes = np.linalg.norm(standardise(table)[0].features, axis=1)
    D = fitted.parameters["D"]
    assert fitted.parameters["F"] == pytest.approx(np.max(0.5 * (D / 2 * sizes + np.abs(table.labels)) ** 2))
    assert set(fitted.computed) == {"delta", "gamma", "beta"}
    chosen = fit_table(table, tmp_path, algorithm="onseg", parameters={"F": 7, "T": 9}, standardised=True)
    assert (chosen.parameters["F"], chosen.parameters["T"]) == (7, 9)


def test_bounds_on_the_simplex_are_those_of_the_ball_around_it(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    constants = ball_constants(table.features, table.labels, "squared", 2.0)
    for D in (0.1, 10.0):  # which is the ball's alone
        fitted = fit_table(table, tmp_path, algorithm="ogdeg", parameters={"domain": "simplex", "D": D})
        assert fitted.parameters["F"] == constants.F


def test_a_diverged_learner_has_no_metrics(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--target", "w", "--leave-out", "y", "--algorithm", "fobos", "--set", "eta0=1e6"]
    assert call(monkeypatch, "table", folder / "t.csv", *options, "--out", tmp_path) == 0
    printed = capsys.readouterr()
    assert "Diverged at row 2" in printed.err
    assert "progressive loss –" in printed.out
    assert "error" not in printed.out
    metrics = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert [row["rows"] for row in metrics if row["progressive_loss"] is not None] == [1]
    assert metrics[-1]["progressive_error"] is None


def test_equal_tables_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="w", leave_out=["y"])
    for name in ("one", "two"):
        fit_table(table, tmp_path / name, algorithm="ogdeg", standardised=True)
    for file in ("metrics.parquet", "weights.parquet", "fit.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_model_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    (tmp_path / "weights.parquet").write_bytes(b"of a model")
    with raises_code("folder-not-empty", tmp_path):
        fit_table(table, tmp_path)
    assert (tmp_path / "weights.parquet").read_bytes() == b"of a model"


def test_invalid_options(folder: Path, tmp_path: Path) -> None:
    table = read_table(folder / "t.csv", target="y", labels="numbers", leave_out=["w"])
    with raises_code("invalid-option", "epochs=0"):
        fit_table(table, tmp_path, epochs=0)
    with raises_code("unsupported-combination", "logistic"):
        fit_table(table, tmp_path, loss="logistic")
    with raises_code("reserved-name", INTERCEPT):
        fit_table(table._replace(names=("a", "b", INTERCEPT)), tmp_path, intercept=True)


def test_the_command_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--target", "w", "--leave-out", "y", "--standardise", "--algorithm", "ogd", "--set", "D=4"]
    assert call(monkeypatch, "table", folder / "t.csv", *options, "--out", tmp_path / "cli") == 0
    printed = capsys.readouterr().out
    assert "120 rows, 3 features" in printed
    assert "largest weights: " in printed
    table = read_table(folder / "t.csv", target="w", leave_out=["y"])
    fit_table(table, tmp_path / "py", algorithm="ogd", parameters={"D": 4}, standardised=True)
    for file in ("metrics.parquet", "weights.parquet"):
        assert (tmp_path / "cli" / file).read_bytes() == (tmp_path / "py" / file).read_bytes()
    assert json.loads((tmp_path / "cli" / "fit.json").read_bytes())["algorithm"] == "ogd"
    assert call(monkeypatch, "table", folder / "t.csv", "--target", "z", "--out", tmp_path / "no") == 2
    assert "'z'" in capsys.readouterr().err


def test_portfolio_losses_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,2.5\n2,3.5\n")
    table = read_table(tmp_path / "t.csv", target="y", labels="numbers")
    with raises_code("unsupported-combination", "return"):
        fit_table(table, tmp_path / "out", loss="return")
    with raises_code("unknown-algorithm", "sgd", "ons") as error:
        fit_table(table, tmp_path / "out", algorithm="sgd")
    assert "caos-erm" not in str(error.value)  # online learners only
