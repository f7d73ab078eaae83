"""The experiments of the ONSEG paper on small data: data sets, runs, tables, claims and the page."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from sparseoco import Learner
from sparseoco.papers.experiment import find_file
from sparseoco.papers.onseg import reproduce_onseg
from sparseoco.papers.onseg.datasets import SOURCES, D, best_fixed, even_marks, read_dataset
from sparseoco.papers.onseg.experiment import SCHEMAS
from sparseoco.papers.onseg.play import Game, OnlineMethod, play
from sparseoco.papers.onseg.portfolios import PANELS, STOCKS, draw_stocks, read_panel
from tests.benchmarks.corpora import corpus
from tests.papers.small import write_data
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.pages import figures

SECONDS = {"timings.parquet", "onseg.html"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    reproduce_onseg(data, folder, repetitions=2, draws=2)
    return folder


def test_data_sets_have_the_sizes_of_the_paper(data: Path) -> None:
    sizes = {}
    for source in SOURCES:
        path = find_file(data, source.file)
        assert path is not None
        dataset = read_dataset(source, path)
        sizes[source.name] = dataset.features.shape[1]
        assert dataset.rounds == 150 * len(dataset.labels)
    assert sizes == {"abalone": 7, "kin": 8, "ionosphere": 33, "cancer": 9}


@pytest.mark.corpora
def test_the_real_files_are_those_of_the_paper() -> None:
    sizes = [read_dataset(source, corpus(f"uci/{source.file}")).features.shape for source in SOURCES]
    assert sizes == [(4177, 7), (3000, 8), (351, 33), (683, 9)]  # Table 2
    panels = [read_panel(source, corpus(f"portfolios/{source.file}")) for source in PANELS]
    assert [panel.returns.shape for panel in panels] == [(5651, 36), (127, 171)]
    assert [panel.incomplete for panel in panels] == [(), ()]
    assert all((np.abs(panel.returns) < 0.7).all() for panel in panels)


def test_the_best_fixed_point_is_stationary(data: Path) -> None:
    for source in SOURCES:
        path = find_file(data, source.file)
        assert path is not None
        dataset = read_dataset(source, path, standardised=True)
        x, loss = best_fixed(dataset)
        Z, y = dataset.features, dataset.labels
        if dataset.loss == "squared":
            slopes, own = Z @ x - y, np.mean(0.5 * (Z @ x - y) ** 2)
        else:
            signs = 2 * y - 1
            slopes, own = -signs / (1 + np.exp(signs * (Z @ x))), np.mean(np.logaddexp(0, -signs * (Z @ x)))
        gradient = Z.T @ slopes / len(Z)
        inward = max(-float(x @ gradient), 0.0) / (D / 2) ** 2  # the multiplier of ‖x‖ ≤ D/2
        assert np.linalg.norm(x) <= D / 2 * (1 + 1e-9)
        tolerance = 2e-3 * max(1.0, float(np.linalg.norm(gradient)))
        np.testing.assert_allclose(gradient + inward * x, np.zeros(len(x)), atol=tolerance)
        assert loss == pytest.approx(own)


def test_rows_repeat_in_order_with_any_marks(data: Path) -> None:
    path = find_file(data, "abalone.data")
    assert path is not None
    dataset = read_dataset(SOURCES[0], path)
    n = len(dataset.labels)
    game = Game(dataset.features, dataset.labels, "squared", None, 3 * n + 5)
    method = OnlineMethod("ONSEG", "onseg", {"D": D, "F": dataset.constants.F, "T": game.rounds})
    once = play(game, method, [game.rounds], [4, 1])
    often = play(game, method, even_marks(game.rounds), [1])
    assert once.loss[-1, 1] == often.loss[-1, 0]
    learner = Learner("onseg", loss="squared", grid=[dict(method.parameters)], n_features=7, n_classes=None)
    order = np.arange(game.rounds) % n
    learner.partial_fit(csr_matrix(dataset.features[order]), dataset.labels[order])
    assert play(game, method, [game.rounds], [0]).loss[0, 0] == learner.progress.loss_sum[0] / game.rounds


def test_panels_are_returns_of_stocks_without_gaps(data: Path) -> None:
    relative, weekly = (read_panel(source, find_file(data, source.file) or data) for source in PANELS)
    assert relative.returns.shape == (40, 5)  # the first row is relative to the day before
    assert weekly.returns.shape == (29, 109)
    assert weekly.incomplete == ("600006",)
    np.testing.assert_allclose(np.abs(relative.returns).max(), 0.05, atol=0.05)
    draws = [draw_stocks(weekly, k) for k in range(3)]
    assert all(len(np.unique(draw)) == STOCKS for draw in draws)
    assert any(draw.tolist() != draws[0].tolist() for draw in draws[1:])
    assert draw_stocks(relative, 1).tolist() == list(range(5))


def test_an_invalid_price_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nyse_o.csv"
    path.write_text("A,B\n1,1\n1.1,0\n1,1\n")
    with raises_code("invalid-price", "row 2", "column 'B'"):
        read_panel(PANELS[0], path)
    path.write_text("A,B\n1,1\n1.1,\n1,1\n")
    with raises_code("too-small", path):
        read_panel(PANELS[0], path)


def test_equal_data_give_equal_bytes_except_for_run_times(data: Path, out: Path, tmp_path: Path) -> None:
    reproduce_onseg(data, tmp_path, repetitions=2, draws=2)
    names = {path.name for path in out.iterdir() if path.is_file() and path.name != ".lock"}
    assert names == {f"{name}.parquet" for name in SCHEMAS} | {"inputs.json", "onseg.html"}
    for name in names - SECONDS:
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes(), name
    for cell in sorted((tmp_path / "cells").iterdir())[::2]:  # as if it had been interrupted
        cell.unlink()
    reproduce_onseg(data, tmp_path, repetitions=2, draws=2)
    for name in names - SECONDS:
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes(), name


def test_tables_agree_with_each_other(out: Path) -> None:
    rows = {name: pq.read_table(out / f"{name}.parquet").to_pylist() for name in SCHEMAS}
    last = {(c["experiment"], c["standardised"], c["method"]): c for c in rows["curves"]}  # the last mark stays
    assert len(rows["methods"]) == len(last) == 4 * 2 * 8
    for row in rows["methods"]:
        curve = last[row["experiment"], row["standardised"], row["method"]]
        assert curve["mean_loss"] == pytest.approx(row["mean_loss"])
        assert (row["error_rate"] is None) == (row["experiment"] in ("abalone", "kin"))
        assert row["repetitions"] == (2 if row["algorithm"].endswith("eg") else 1)
    for row in rows["experiments"]:
        assert row["best_loss"] <= row["zero_loss"]
        assert row["theorem_regret"] > 2 * row["F"]  # as printed it is vacuous
    for row in rows["draws"]:
        assert abs(row["mean_return"]) <= max(panel["F"] for panel in rows["panels"])
    assert {row["holds"] for row in rows["claims"]} <= {"yes", "no", "cannot be told"}
    assert {row["where"] for row in rows["claims"]} >= {"Abalone", "Ionosphere, standardised", "NYSE(O) 1962–1984"}


def test_gradient_descent_comes_near_the_best_fixed_point(out: Path) -> None:
    methods = pq.read_table(out / "methods.parquet").to_pylist()
    for row in pq.read_table(out / "experiments.parquet").to_pylist():
        own = {m["method"]: m for m in methods if all(m[k] == row[k] for k in ("experiment", "standardised"))}
        bound = 1.5 * row["G"] * row["D"] / math.sqrt(row["T"])  # Zinkevich's, per round
        assert own["OGD"]["mean_loss"] <= row["best_loss"] + bound + 1e-9


def test_the_page_lists_claims_and_needs_no_network(out: Path) -> None:
    page = (out / "onseg.html").read_text()
    assert "ONSEG converges faster than OGDEG." in page
    assert len(figures(page)) == 6 + 2
    assert "1 stock left out" in page
    assert json.loads((out / "inputs.json").read_bytes())["missing"] == []


def test_missing_data_sets_are_skipped_and_reported(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "breast.data").write_bytes((data / "breast.data").read_bytes())
    options = ["--out", tmp_path / "out", "--repetitions", 2, "--draws", 2]
    assert call(monkeypatch, "reproduce", "onseg", "--data", tmp_path / "some", *options) == 0
    assert "report: " in capsys.readouterr().out
    page = (tmp_path / "out" / "onseg.html").read_text()
    assert "Not in the folder given: abalone.data, kin8nm.csv, ionosphere.data, nyse_o.csv.gz" in page
    assert call(monkeypatch, "reproduce", "onseg", "--data", tmp_path / "out", *options) == 2
    assert "missing-file" in capsys.readouterr().err
    assert call(monkeypatch, "reproduce", "other", "--data", data, *options) == 2
    assert "other" in capsys.readouterr().err
