"""`train --algorithm auto`: the mixture of one process, whatever the shards, threads and deaths; what it leaves."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco import Learner, Mixture, Model, SparseocoError, Store
from sparseoco.core.logs import no_progress
from sparseoco.core.option_models import validate
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.order import epoch_rows
from sparseoco.report.charts import styles
from sparseoco.report.figures import Line
from sparseoco.report.mixture import mixture_errors_figure, weights_figure, write_mixture_page
from sparseoco.search.mixture_task import train_mixture
from sparseoco.search.models import train_model
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import read_shards
from sparseoco.training.options import Configuration, MixtureOptions, SearchOptions
from sparseoco.training.stream import MeasuredRows, strongest_features
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.models import dense_weights
from tests.support.pages import figures, legend
from tests.support.searches import plain_search
from tests.support.stores import make_store, store_of, with_classes

GRID: dict[str, Any] = {"adagrad": {"eta": [0.03, 0.3], "lam": [1e-5, 1e-3]}, "cl-fobos": {"eta0": [0.1, 1.0]}}
TABLES = ("weights", "regret", "columns", "curve")


def options(**changes: Any) -> SearchOptions:
    return plain_search(**{"algorithms": GRID, "seed": 3} | changes)


def train(client: Client, store: Path, model: Path, *, epochs: int = 1, by: str = "error", **changes: Any) -> Path:
    keep, at_most = changes.pop("keep", "mixture"), changes.pop("at_most", None)
    mixing = MixtureOptions(by=by, keep=keep, at_most=at_most)  # type: ignore[arg-type]
    train_mixture(client, options(epochs=epochs, **changes), mixing, Store.open(store), model, no_progress)
    return model


def left(model: Path) -> dict[str, Any]:
    """All that is not a time."""
    described = read_json(model / "model.json")
    described["provenance"].pop("store")  # which says how it was sharded
    described.pop("block")
    return described | {name: pq.read_table(model / f"{name}.parquet").to_pylist() for name in TABLES}


@pytest.mark.parametrize(
    ("kind", "classes"), [("plain", 2), ("plain", 3), ("classes", 3), ("multi", 3), ("numbers", 3)]
)
def test_it_is_the_mixture_of_one_process(client: Client, tmp_path: Path, kind: str, classes: int) -> None:
    store, loss = store_of(tmp_path, kind, classes=classes), "squared" if kind == "numbers" else "logistic"
    grid = {"adagrad": GRID["adagrad"]} if kind == "numbers" else GRID
    model = train(client, store, tmp_path / "model", epochs=2, by="loss", loss=loss, algorithms=grid)
    opened = Store.open(store)
    corpus = open_corpus(opened, tmp_path)
    shape = {"n_classes": opened.n_classes, "multilabel": opened.is_multilabel, "dtype": "float64"}
    mixture = Mixture(grid, loss=loss, n_features=opened.n_features, by="loss", intercept=True, **shape)
    for epoch in (1, 2):
        mixture.learn_rows(*corpus.gather(epoch_rows(3, epoch, True, corpus.n_rows, 0, corpus.n_rows, -1, 1)))
    np.testing.assert_array_equal(dense_weights(Model(model), opened.n_features), mixture.weights())
    assert Model(model).intercepts.tolist() == mixture.intercepts().tolist()
    last, snapshot = pq.read_table(model / "regret.parquet").to_pylist()[-1], mixture.snapshot()
    assert last["rows"] == snapshot.rows == 2 * corpus.n_rows
    assert (last["regret"], last["bound"], last["printed_bound"]) == (snapshot.regret, snapshot.bound, None)
    assert last["best_loss"] == snapshot.losses.min() / snapshot.rows
    columns = pq.read_table(model / "columns.parquet").to_pylist()[-len(mixture.columns) :]
    assert [row["weight"] for row in columns] == snapshot.weights.tolist()
    assert Model(model).description["algorithm"] == "auto"


@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_sparse_model_learns_the_strongest_features(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, screened: bool
) -> None:
    store = make_store(tmp_path / "store", classes=classes)
    memory = {2: 12_000, 3: 30_000}[classes] if screened else 1 << 30
    monkeypatch.setattr("sparseoco.search.mixture_task.MEMORY", memory)
    model = train(client, store, tmp_path / "model", keep="sparse", at_most=40, epochs=2)
    opened = Store.open(store)
    corpus = open_corpus(opened, tmp_path)
    orders = [epoch_rows(3, epoch, True, corpus.n_rows, 0, corpus.n_rows, -1, 1) for epoch in (1, 2)]
    X, y = read_shards(store)[0].astype(np.float64), opened.labels()
    measured = MeasuredRows(corpus, opened.n_features)
    measured.gather(orders[0])
    squares = measured.squares
    described = read_json(model / "model.json")
    features, settings = np.arange(opened.n_features), {"n_classes": classes, "dtype": "float64", "intercept": True}
    assert ("screened" in described["mixture"]) == screened
    if screened:
        every = options().configurations()
        grid = {"adagrad": [every[1].parameters, every[3].parameters], "cl-fobos": [every[5].parameters]}
        small = Mixture(grid, n_features=X.shape[1], **settings).partial_fit(X[orders[0]], y[orders[0]])
        features = strongest_features(small.weights(), squares, described["mixture"]["screened"])
        assert 40 < features.size < 150
    mixture = Mixture(GRID, n_features=features.size, **settings).partial_fit(X[orders[0]][:, features], y[orders[0]])
    kept = strongest_features(mixture.weights(), squares[features], 40)
    errors = mixture.snapshot().errors
    near = errors <= errors.min() + np.sqrt(errors.min() * (1 - errors.min() / 300))
    chosen = described["mixture"]["trained"]
    column = mixture.columns.index((chosen["algorithm"], chosen["parameters"]))
    assert near[column]
    assert chosen["parameters"]["lam"] == max(mixture.columns[c][1]["lam"] for c in np.flatnonzero(near))
    refit = Learner(chosen["algorithm"], grid=[chosen["parameters"]], n_features=40, **settings)
    for order in orders:
        refit.partial_fit(X[order][:, features[kept]], y[order])
    expected = np.zeros((opened.n_features, mixture.n_outputs))
    expected[features[kept]] = refit.weights_of(0)
    np.testing.assert_array_equal(dense_weights(Model(model), opened.n_features), expected)
    assert described["intercept"] == refit.intercepts()[0].tolist()
    assert described["mixture"]["kept"] == 40


def test_a_sparse_model_has_most_of_the_variance_by_default(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", features=400)
    whole = Model(train(client, store, tmp_path / "whole"))
    sparse = Model(train(client, store, tmp_path / "sparse", keep="sparse"))
    assert sparse.is_mixture
    assert sparse.feature_ids.size < 0.6 * whole.feature_ids.size
    with raises_code("invalid-option", "at_most"):
        validate(MixtureOptions, {"keep": "best", "at_most": 3})


@pytest.mark.parametrize("keep", ["mixture", "sparse"])
def test_shards_and_threads_have_no_part_in_it(client: Client, tmp_path: Path, keep: str) -> None:
    one = left(train(client, make_store(tmp_path / "one"), tmp_path / "model-one", keep=keep))
    with connect(ClusterOptions(workers=1, threads=1), tmp_path / "scratch") as alone:
        other = left(train(alone, make_store(tmp_path / "other", shard_rows=37), tmp_path / "model-other", keep=keep))
    assert one == other


def test_a_run_that_is_repeated_leaves_the_same_files(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    whole = train(client, store, tmp_path / "whole")
    train(client, store, tmp_path / "model")
    before = (tmp_path / "model" / "timings.parquet").stat()
    train(client, store, tmp_path / "model")  # there already
    assert (tmp_path / "model" / "timings.parquet").stat() == before
    (tmp_path / "model" / "weights.parquet").write_bytes(b"of another, killed before it said so")
    assert left(train(client, store, tmp_path / "model")) == left(whole)


def test_the_heaviest_alone_is_the_model_that_it_would_be_alone(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = train(client, store, tmp_path / "model", keep="best")
    described = Model(model).description
    chosen = Configuration(number=0, algorithm=described["algorithm"], parameters=described["parameters"])
    alone = tmp_path / "alone"
    train_model(client, chosen, options(), Store.open(store), alone, no_progress, {})
    for file in ("weights.parquet", "learner.npz"):
        assert (model / file).read_bytes() == (alone / file).read_bytes()
    mixed = described["mixture"]["columns"]
    assert max(mixed, key=lambda column: column["weight"])["parameters"] == described["parameters"]


def test_it_starts_from_a_model(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    first = train(client, store, tmp_path / "first")
    cold = left(train(client, store, tmp_path / "cold"))["regret"]
    warm = left(train(client, store, tmp_path / "warm", warm_start=str(first)))["regret"]
    assert warm[-1]["progressive_error"] < cold[-1]["progressive_error"]


def test_a_sparse_model_starts_from_a_model_on_screened_features(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store", classes=3)
    first = train(client, store, tmp_path / "first")
    monkeypatch.setattr("sparseoco.search.mixture_task.MEMORY", 30_000)
    warm = train(client, store, tmp_path / "warm", warm_start=str(first), keep="sparse", at_most=20)
    cold = train(client, store, tmp_path / "cold", keep="sparse", at_most=20)
    assert Model(warm).feature_ids.size == 20
    errors = [pq.read_table(model / "regret.parquet")["progressive_error"][-1].as_py() for model in (warm, cold)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("by", ["error", "loss"])
def test_the_page(client: Client, tmp_path: Path, by: str) -> None:
    store = with_classes(make_store(tmp_path / "store"), "ham", "<b>spam")
    many = {"adagrad": {"eta": [0.03, 0.1, 0.3, 1.0], "lam": [1e-5, 1e-3]}, "fobos": {"eta0": [0.3, 1e9]}}
    model = train(client, store, tmp_path / "model", by=by, algorithms=many)
    page = write_mixture_page(model).read_text()
    drawn = figures(page)
    assert set(drawn) == {"weights", "errors", "regret"}
    assert len(legend(drawn["weights"])) >= 9
    used = Model(model).feature_names
    for words in ("10 configurations, mixed", "diverged at document", f"uses {len(used)} of 200 features"):
        assert words in page
    assert any(f">{name}<" in page for name in used)
    assert ("Corollary 3" in page) == (by == "error")
    assert "https://" not in page.split("<main ")[1].split("</main>")[0]
    assert "<b>" not in page
    assert "Test error" not in page
    scores = [{"name": name, "rows": 10, "precision": 0.9, "recall": 0.8, "f1": 0.85} for name in ("ham", "<b>spam")]
    evaluation = {"rows": 20, "error": 0.05, "majority_error": 0.5, "classes": scores, "confusion": [[9, 1], [0, 10]]}
    commit_json(model / "evaluation.json", evaluation)
    page = write_mixture_page(model).read_text()
    assert "Test error 5.00&nbsp;% on 20 documents" in page
    assert "Confusion of the test documents" in page
    rows, regret = (pq.read_table(model / f"{name}.parquet").to_pylist() for name in ("columns", "regret"))
    columns = [Line(f"column {k}", [row for row in rows if row["column"] == k], rows[k]) for k in range(10)]
    style = styles(column.algorithm for column in columns)
    for chart in (weights_figure(columns, style), mixture_errors_figure(regret, columns, style)):
        looks = [(own.colour, own.dash, own.width) for own in chart.series]
        assert len(set(looks)) == len(looks) >= 9


def test_a_model_that_is_no_mixture_has_no_page(client: Client, tmp_path: Path) -> None:
    configuration, store = options().configurations()[0], Store.open(make_store(tmp_path / "store"))
    train_model(client, configuration, options(), store, tmp_path / "plain", no_progress, {})
    with raises_code("not-a-mixture", tmp_path / "plain"):
        write_mixture_page(tmp_path / "plain")


def test_what_cannot_be_mixed(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    with raises_code("diverged", kind=SparseocoError):
        train(client, store, tmp_path / "model", algorithms={"fobos": {"eta0": [1e9, 1e10]}})
    with raises_code("out-of-memory"):
        train(client, store, tmp_path / "model", max_memory=1)


def test_the_command(tmp_path: Path, cli: Cli) -> None:
    store, out = make_store(tmp_path / "store"), tmp_path / "model"
    asked = ("--algorithm", "auto", "--grid", "adagrad.eta=0.03,0.3", "--set", "keep=best", "--threads", 1)
    assert str(out / "mixture.html") in cli("train", store, *asked, "--out", out).out
    assert set(figures((out / "mixture.html").read_text())) == {"weights", "errors", "regret"}
    assert {of["algorithm"] for of in read_json(out / "model.json")["mixture"]["columns"]} == {"adagrad"}
    for command, arguments, message in (
        ("train", ("--algorithm", "auto", "--set", "by=luck"), "by"),
        ("train", ("--algorithm", "fobos", "--grid", "eta0=1"), "--grid"),
        ("train", ("--algorithm", "auto", "--grid", "caos-erm.R=1,2"), "caos-erm"),
        ("search", ("--algorithm", "auto"), "auto"),
    ):
        assert message in cli(command, store, *arguments, "--out", tmp_path / "none", code=2).err
