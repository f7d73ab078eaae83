"""Runs on numbers and on any number of labels: from text to model, evaluation and report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, r2_score, root_mean_squared_error

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows
from sparseoco.pipeline import steps
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import SearchOptions
from tests.support.commands import call

WORDS = [f"word{k}" for k in range(30)]
PRICES = np.random.default_rng(5).normal(0.0, 2.0, len(WORDS))
RUN = """
name = "{name}"
out = "run"

[ingest]
inputs = ["documents.jsonl"]
where = {{ split = "train" }}
shard_bytes = 4096
ngram_range = [1, 1]
min_df = 1
{ingest}

[features]
tf = "count"
idf = false
norm = "none"

[search]
folds = 2
dtype = "float64"
algorithms.adagrad = {{ eta = [0.3, 3.0], lam = [1e-5, 1e-1] }}
{search}

[evaluate]
where = {{ split = "test" }}

[cluster]
threads = 2
"""


def write_documents(folder: Path, label: Callable[[list[int], np.random.Generator], Any], rows: int = 300) -> Path:
    """Documents of random words, each labelled by them; every third is of the test set."""
    random = np.random.default_rng(1)
    lines = []
    for number in range(rows):
        words = random.choice(len(WORDS), size=8).tolist()
        text = " ".join(WORDS[k] for k in words)
        row = {"id": f"d{number}", "text": text, "label": label(words, random), "w": float(random.integers(0, 3))}
        lines.append(json.dumps(row | {"split": "test" if number % 3 == 0 else "train"}))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "documents.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def price(words: list[int], random: np.random.Generator) -> float:
    return float(PRICES[words].sum() + random.normal(0.0, 0.1))


def topics(words: list[int], random: np.random.Generator) -> list[str]:
    """The topic of each of the first four words that occurs; one in twenty is wrong."""
    return [f"t{k}" for k in range(4) if (k in words) != (random.random() < 0.05)]


def prepare(folder: Path, label: Callable[..., Any], ingest: str, search: str = "", **options: Any) -> RunFile:
    write_documents(folder, label, **options)
    (folder / "run.toml").write_text(RUN.format(name=folder.name, ingest=ingest, search=search))
    return load_run_file(folder / "run.toml")


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> RunFile:
    run = prepare(tmp_path_factory.mktemp("labels") / "prices", price, 'labels = "numbers"', "epochs = 3")
    run_steps.run_all(run)
    return run


def test_a_run_on_numbers(prices: RunFile) -> None:
    best = read_json(prices.out / "search" / "best.json")
    assert (best["metric"], best["beats_baseline"]) == ("rmse", True)
    described = read_json(prices.out / "run.json")
    assert described["search"]["loss"] == "squared"
    metrics = pq.read_table(prices.out / "search" / "metrics.parquet").to_pylist()
    assert all(row["progressive_error"] is None and row["held_out_error"] is None for row in metrics)
    assert min(row["held_out_rmse"] for row in metrics) == pytest.approx(best["value"], rel=0.5)
    test = pq.read_table(prices.out / "test.parquet")
    truth, predicted = test["label"].to_numpy(), test["margin"].to_numpy()
    evaluation = read_json(prices.out / "evaluation.json")
    assert evaluation["rows"] == 100
    assert evaluation["rmse"] == pytest.approx(root_mean_squared_error(truth, predicted))
    assert evaluation["mae"] == pytest.approx(mean_absolute_error(truth, predicted))
    assert evaluation["r2"] == pytest.approx(r2_score(truth, predicted))
    assert evaluation["r2"] > 0.9
    model = Model(prices.out / "model")
    texts = ["word1 word2", "word3"]
    assert model.predict(texts) == pytest.approx([PRICES[1] + PRICES[2], PRICES[3]], abs=1.0)
    assert "RMSE" in (prices.out / "report" / "report.html").read_text()


def evaluate_and_predict(
    run: RunFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, list[str]]:
    """What the commands print of the test documents: the evaluation, and the predictions."""
    documents = run.out.parent / "documents.jsonl"
    printed = []
    for command in ("evaluate", "predict"):
        assert call(monkeypatch, command, run.out, documents, "--where", "split=test") == 0
        printed.append(capsys.readouterr().out)
    return printed[0], [line.split("\t")[1] for line in printed[1].splitlines()]


def test_commands_on_numbers(
    prices: RunFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    evaluated, predicted = evaluate_and_predict(prices, monkeypatch, capsys)
    assert "RMSE" in evaluated
    assert len([float(answer) for answer in predicted]) == 100
    assert call(monkeypatch, "status", prices.out) == 0
    store = prices.store
    for algorithm in ("auto", "adagrad"):
        command = "train", store, "--out", tmp_path / algorithm, "--algorithm", algorithm, "--loss", "huber"
        assert call(monkeypatch, *command) == 0
    assert call(monkeypatch, "train", store, "--out", tmp_path / "c", "--algorithm", "adagrad", "--loss", "hinge") == 2
    assert "needs classes" in capsys.readouterr().err


def test_numbers_warm_start_numbers_only(prices: RunFile, tmp_path: Path) -> None:
    chosen = SearchOptions.model_validate(
        {
            "algorithms": {"fobos": {"eta0": 0.1, "lam": 0.0}},
            "features": {"tf": "count", "idf": False, "norm": "none"},
            "warm_start": str(prices.out / "model"),
            "folds": 2,
        }
    )
    steps.search(prices.store, tmp_path / "again", chosen, ClusterOptions(threads=2))
    warm = read_json(tmp_path / "again" / "search" / "best.json")["value"]
    cold = read_json(prices.out / "search" / "best.json")["value"]
    assert warm < 1.1 * cold


def nightly(folder: Path, label: Callable[..., Any], ingest: str) -> RunFile:
    """A run whose documents come in two files, each learned when it came."""
    source = write_documents(folder / "source", label, rows=240).read_text().splitlines()
    (folder / "incoming").mkdir()
    text = RUN.format(name="nightly", ingest=ingest, search="folds = 1")
    for old, new in {
        '"documents.jsonl"': '"incoming"',
        'where = { split = "train" }\nshard': "shard",
        "folds = 2\n": "",
        '[evaluate]\nwhere = { split = "test" }\n': "",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "run.toml").write_text(text)
    run = load_run_file(folder / "run.toml")
    for increment in range(2):
        lines = source[120 * increment : 120 * (increment + 1)]
        (folder / "incoming" / f"{increment}.jsonl").write_text("\n".join(lines) + "\n")
        run_nightly(run)
    return run


def test_nightly_runs_on_numbers(tmp_path: Path) -> None:
    run = nightly(tmp_path, price, 'labels = "numbers"')
    history = pq.read_table(run.out / "history.parquet").to_pylist()
    assert history[0]["promoted"]
    assert history[1]["reason"].startswith("rmse ")
    assert history[1]["metric"] == "rmse"
    assert history[1]["value"] < history[1]["deployed_value"]
    assert history[1]["error"] is None
    assert Model(run.out).predict(["word1 word2"]) == pytest.approx([PRICES[1] + PRICES[2]], abs=1.5)
    assert "rmse" in (run.out / "nightly.html").read_text().lower()


@pytest.fixture(scope="module")
def topical(tmp_path_factory: pytest.TempPathFactory) -> RunFile:
    folder = tmp_path_factory.mktemp("labels") / "topics"
    run = prepare(folder, topics, 'labels = "multi"\nweight_field = "w"', 'epochs = 3\nthreshold = "f1"')
    run_steps.run_all(run)
    return run


def test_a_run_on_label_sets(topical: RunFile) -> None:
    store = Store.open(topical.store)
    assert store.classes == ["t0", "t1", "t2", "t3"]
    best = read_json(topical.out / "search" / "best.json")
    assert best["metric"] == "error"
    metrics = pq.read_table(topical.out / "search" / "metrics.parquet").to_pylist()
    assert all(row["held_out_f1_micro"] is not None for row in metrics)
    held_out = pq.read_table(topical.out / "search" / "held_out.parquet")
    assert held_out.num_rows == 200
    assert {len(labels) for labels in held_out["label"].to_pylist()} >= {0, 1, 2}
    model = Model(topical.out / "model")
    assert model.outputs == 4
    assert len(model.thresholds.outputs) == 4
    assert model.predict(["word0 word3 word7", "word9"]) == [["t0", "t3"], []]
    assert model.predict_proba(["word0"]).shape == (1, 4)
    test = pq.read_table(topical.out / "test.parquet")
    margins = np.stack([test[f"margin {name}"].to_numpy() for name in store.classes], axis=1)
    truth = np.array([[name in labels for name in store.classes] for labels in test["label"].to_pylist()])
    predicted = model.decide_sets(margins)
    evaluation = read_json(topical.out / "evaluation.json")
    assert evaluation["error"] == pytest.approx(np.mean((truth != predicted).any(axis=1)))
    assert evaluation["f1_micro"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert evaluation["f1_macro"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert [row["f1"] for row in evaluation["classes"]] == pytest.approx(f1_score(truth, predicted, average=None))
    average = [average_precision_score(truth[:, k], margins[:, k]) for k in range(4)]
    assert [row["average_precision"] for row in evaluation["classes"]] == pytest.approx(average)
    assert [row["threshold"] for row in evaluation["classes"]] == model.thresholds.margins.tolist()
    assert evaluation["f1_micro"] > 0.8
    assert "trained_on" not in evaluation
    assert "t3" in (topical.out / "report" / "report.html").read_text()


def test_label_sets_have_the_weights_of_binary_learners(topical: RunFile) -> None:
    """In a model trained from text by `run`, its documents weighted by a field."""
    store, model = Store.open(topical.store), Model(topical.out / "model")
    X, _ = read_shards(topical.store)
    described = model.description
    rows = np.concatenate(
        [epoch_rows(0, epoch, True, 200, 0, 200, -1, 1) for epoch in range(1, described["epochs"] + 1)]
    )
    weights = np.zeros((store.n_features, 4))
    order = {name: k for k, name in enumerate(store.classes)}
    for row in model.table.to_pylist():
        weights[row["feature_id"], order[row["class"]]] = row["weight"]
    assert store.column("weight").min() == 0
    assert store.column("weight").max() == 2
    for k in range(4):
        learner = Learner(
            described["algorithm"],
            loss=described["loss"],
            grid=[described["parameters"]],
            n_features=store.n_features,
            intercept=True,
        ).partial_fit(X[rows], store.labels().toarray()[rows, k], store.column("weight")[rows])
        np.testing.assert_array_equal(learner.weights()[:, 0], weights[:, k])


def test_commands_on_label_sets(
    topical: RunFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    evaluated, predicted = evaluate_and_predict(topical, monkeypatch, capsys)
    assert "macro F1" in evaluated
    assert {"", "t0", "t0,t1"} <= set(predicted)
    assert call(monkeypatch, "train", topical.store, "--out", tmp_path / "auto", "--algorithm", "auto") == 0
    assert Model(tmp_path / "auto").predict(["word0 word1"])[0]
    for loss, algorithm in (("softmax", "adagrad"), ("logistic", "caos-erm"), ("logistic", "ons")):
        command = "train", topical.store, "--out", tmp_path / "no", "--algorithm", algorithm, "--loss", loss
        assert call(monkeypatch, *command) == 2
        assert "label" in capsys.readouterr().err


def test_nightly_runs_on_label_sets(tmp_path: Path) -> None:
    run = nightly(tmp_path, topics, 'labels = "multi"\nweight_field = "w"\nclasses = ["t0", "t1", "t2", "t3"]')
    history = pq.read_table(run.out / "history.parquet").to_pylist()
    assert history[0]["promoted"]
    assert history[1]["reason"].startswith("error ")
    classes = pq.read_table(run.out / "history-classes.parquet").to_pylist()
    assert [row["class"] for row in classes if row["increment"] == 2] == ["t0", "t1", "t2", "t3"]
    assert isinstance(Model(run.out).predict(["word0"])[0], list)
