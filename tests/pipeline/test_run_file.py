"""A run from its file: options, kinds of labels, what it writes, its step of scoring, and kernels compiled ahead."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, r2_score, root_mean_squared_error

from sparseoco.core.errors import InputError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.scoring.kept import read_kept
from sparseoco.scoring.parts import read_scores
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store
from sparseoco.training.models import Model, find_model
from sparseoco.training.options import SearchOptions
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts, write_files
from tests.support.models import random_model
from tests.support.nightly_runs import arrive, prepare
from tests.support.texts import write_reviews, write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Options of a run file.


RUN = """
name = "reviews"
out = "runs/reviews"

[ingest]
inputs = ["reviews.jsonl.gz", "s3://bucket/more.jsonl"]
ngram_range = [1, 2]
min_df = 2
where = { split = "train" }

[search]
folds = 3
algorithms.cl-fobos = { lam = [1e-6, 1e-5], eta0 = 0.5 }
algorithms.stda = { p = ["inf", 2], lam = 1e-4 }

[evaluate]
where = { split = "test" }

[cluster]
workers = 2
"""


def write(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_paths_in_a_run_file_are_relative_to_it(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, RUN))
    assert run.out == tmp_path / "runs" / "reviews"
    assert run.store == run.out / "shards"
    assert run.ingest.inputs == (str(tmp_path / "reviews.jsonl.gz"), "s3://bucket/more.jsonl")
    assert run.ingest.text.ngram_range == (1, 2)
    assert run.ingest.text.where == {"split": "train"}
    assert run.cluster.workers == 2
    configurations = run.search.configurations()
    assert [c.number for c in configurations] == [0, 1, 2, 3]
    assert configurations[0].parameters == {"eta0": 0.5, "lam": 1e-6, "step": "sqrt", "average": "none"}
    assert json.loads(configurations[2].parameters_json)["p"] in ("inf", 2)


@pytest.mark.parametrize(
    ("old", "new", "code", "values"),
    [
        ("folds = 3", "fold = 3", "unknown-option", ["search.fold", "did you mean folds?"]),
        ("folds = 3", "folds = 0", "invalid-option", ["search.folds", "at least 1"]),
        ("folds = 3", 'folds = "many"', "invalid-option", ["search.folds"]),
        ("folds = 3", 'loss = "huge"', None, ["search", "loss='huge'"]),
        ("cl-fobos", "cl-fobo", "unknown-algorithm", ["search", "cl-fobo", "did you mean cl-fobos?"]),
        ("eta0 = 0.5", "et0 = 1", "unknown-parameter", ["'et0'", "did you mean eta0?"]),
        ("folds = 3", "metric = 'averge_precision'", "invalid-option", ["did you mean average_precision?"]),
        ("folds = 3", "metric = 'accuracy'", "invalid-option", ["error, which is 1 − accuracy", "balanced_accuracy"]),
        ("folds = 3", "loss = 'logstic'", "unknown-loss", ["search.loss", "did you mean logistic?"]),
        ("folds = 3", "penalty = 'elasticnet'", "unknown-penalty", ["search.penalty", "did you mean elastic_net?"]),
        ("folds = 3", "shuffle = 'row'", "invalid-option", ["search.shuffle", "did you mean rows?"]),
        ("[search]", "[serch]", "unknown-option", ["serch", "did you mean search?"]),
        ("workers = 2", "worker = 2", "unknown-option", ["cluster.worker", "did you mean workers?"]),
        ("min_df = 2", "fields.a = { type = 'text', ngram_rang = [1, 2] }", None, ["did you mean ngram_range?"]),
        ("eta0 = 0.5", "eta = 0.5", None, ["cl-fobos", "'eta'", "eta0", "lam"]),
        ("eta0 = 0.5", "eta0 = -1", None, ["cl-fobos", "eta0=-1.0", "0"]),
        ("eta0 = 0.5", "eta0 = { low = 0.1, high = 1 }", None, ["cl-fobos.eta0", "samples"]),
        ("lam = 1e-4", "lam = 1e999", None, ["stda", "lam=inf"]),
        ("min_df = 2", "min_df = -2", "invalid-option", ["ingest", "min_df"]),
        ("min_df = 2", "mindf = 2", "unknown-option", ["ingest.mindf"]),
        ("min_df = 2", 'hash_bits = 9\nvocabulary = "extend"', "invalid-option", ["ingest", "vocabulary"]),
        (
            "min_df = 2",
            "stop_words = 'english'\nfields.a.type = 'number'",
            "invalid-option",
            ["ingest", "stop_words", "fields"],
        ),
        ("[cluster]", "holdout = 0.2\n[cluster]", "invalid-option", ["evaluate", "holdout"]),
        ("workers = 2", 'kind = "slurm"', "unknown-option", ["cluster.kind"]),
        ('name = "reviews"', "name = 3", "invalid-option", ["name: "]),
        ("runs/reviews", "a\\u0000b", "invalid-option", ["out: "]),
        ("min_df = 2", "holdout = 0.2", "invalid-option", ["ingest.holdout", "[evaluate]"]),
        ("inputs = [", "input = [", "missing-option", ["ingest.inputs"]),
        ("workers = 2", "scheduler = 3", "invalid-option", ["cluster.scheduler"]),
        ("workers = 2", 'memory = "5XX"', "invalid-option", ["cluster.memory"]),
        ("workers = 2", 'memory = "10MB"', "invalid-option", ["cluster.memory", "512 MiB"]),
        ("lam = 1e-4", "lam = true", "invalid-option", ["search.algorithms"]),
        ("[search]", "[search", "invalid-toml", ["line"]),
    ],
)
def test_every_error_names_its_key(tmp_path: Path, old: str, new: str, code: str | None, values: list[str]) -> None:
    path = write(tmp_path, RUN.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_run_file(path)
    assert error.value.code == (code or error.value.code)
    for value in [path, *values]:
        assert str(value) in str(error.value)


def test_an_error_without_message_is_reported_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.storage.locations.RemotePath.read_bytes", Mock(side_effect=TimeoutError()))
    with raises_code("unreadable-file", "run.toml", "TimeoutError"):
        load_run_file("memory://there/run.toml")


def test_random_draws_depend_on_the_seed_and_stay_within_the_range() -> None:
    def options(**changes: Any) -> SearchOptions:
        grid = {"lam": {"low": 1e-7, "high": 1e-3}, "eta0": [0.1, 1.0]}
        return SearchOptions.model_validate({"algorithms": {"fobos": grid}, "samples": 200} | changes)

    drawn = options().configurations()
    assert drawn == options().configurations()
    assert drawn != options(seed=1).configurations()
    values = sorted(configuration.parameters["lam"] for configuration in drawn)
    assert 1e-7 <= values[0] < 1e-6
    assert 1e-4 < values[-1] <= 1e-3
    assert abs(values[100] - 1e-5) < 1e-5  # half of the draws below the middle of the logarithm
    assert {configuration.parameters["eta0"] for configuration in drawn} == {0.1, 1.0}


def test_an_enormous_grid_is_rejected_before_it_is_expanded() -> None:
    wide = [0.001 * (i + 1) for i in range(400)]
    with pytest.raises(ValidationError, match=r"fobos.*160,000"):
        SearchOptions.model_validate({"algorithms": {"fobos": {"lam": wide, "eta0": wide}}})


def test_an_option_of_the_format_of_the_test_set(tmp_path: Path) -> None:
    rows = [{"id": f"d{k}", "label": "ab"[k % 2], "text": f"word{k} more"} for k in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    (tmp_path / "test.csv").write_text("id,label,text\nx,a,word more\n")
    table = '[ingest]\ninputs = ["train.parquet"]\nmin_df = 1\nheader = false\n[evaluate]\ninputs = ["test.csv"]'
    run_steps.run_ingest(load_run_file(write(tmp_path, table)))  # it is of the test set


# ----------------------------------------------------------------------------------------------------------------------
# Runs on numbers and on any number of labels: from text to model, evaluation and report.


WORDS = [f"word{k}" for k in range(30)]
PRICES = np.random.default_rng(5).normal(0.0, 2.0, len(WORDS))
LABELS_RUN = """
name = "labels"
out = "run"

[ingest]
inputs = ["{inputs}"]
shard_bytes = 4096
ngram_range = [1, 1]
min_df = 1
{ingest}

[features]
tf = "count"
idf = false
norm = "none"

[cluster]
threads = 2

[search]
dtype = "float64"
algorithms.adagrad = {{ eta = [0.3, 3.0], lam = [1e-5, 1e-1] }}
{search}
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


def prepare_labels(folder: Path, label: Callable[..., Any], ingest: str, search: str) -> RunFile:
    write_documents(folder, label)
    train = f'where = {{ split = "train" }}\n{ingest}'
    text = LABELS_RUN.format(inputs="documents.jsonl", ingest=train, search=f"folds = 2\n{search}")
    return load_run_file(write(folder, f'{text}\n[evaluate]\nwhere = {{ split = "test" }}'))


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> RunFile:
    run = prepare_labels(tmp_path_factory.mktemp("labels") / "prices", price, 'labels = "numbers"', "epochs = 3")
    run_steps.run_all(run)
    return run


def test_a_run_on_numbers(prices: RunFile) -> None:
    best = read_json(prices.out / "search" / "best.json")
    assert (best["metric"], best["beats_baseline"]) == ("rmse", True)
    assert read_json(prices.out / "run.json")["search"]["loss"] == "squared"
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


def evaluate_and_predict(run: RunFile, cli: Cli) -> tuple[str, list[str]]:
    """What the commands print of the test documents: the evaluation, and the predictions."""
    asked = (run.out, run.out.parent / "documents.jsonl", "--where", "split=test")
    return cli("evaluate", *asked).out, [line.split("\t")[1] for line in cli("predict", *asked).out.splitlines()]


def test_commands_on_numbers(prices: RunFile, tmp_path: Path, cli: Cli) -> None:
    evaluated, predicted = evaluate_and_predict(prices, cli)
    assert "RMSE" in evaluated
    assert len([float(answer) for answer in predicted]) == 100
    cli("status", prices.out)
    train = ("train", prices.store, "--out")
    cli(*train, tmp_path / "adagrad", "--loss", "huber", "--dtype", "float64")
    error = cli(*train, tmp_path / "c", "--algorithm", "adagrad", "--loss", "hinge", code=2).err
    assert "needs classes" in error


def nightly(folder: Path, label: Callable[..., Any], ingest: str) -> RunFile:
    """A run whose documents come in two files, each learned when it came."""
    source = write_documents(folder / "source", label, rows=240).read_text().splitlines()
    (folder / "incoming").mkdir()
    run = load_run_file(write(folder, LABELS_RUN.format(inputs="incoming", ingest=ingest, search="folds = 1")))
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
    run = prepare_labels(
        folder, topics, 'labels = "multi"\nweight_field = "w"', 'epochs = 3\nthreshold = "f1"\nloss = "logistic"'
    )
    run_steps.run_all(run)
    return run


def test_a_run_on_label_sets(topical: RunFile) -> None:
    store = Store.open(topical.store)
    assert store.classes == ["t0", "t1", "t2", "t3"]
    assert read_json(topical.out / "search" / "best.json")["metric"] == "error"
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
    predicted = model.labels(margins)
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


def test_commands_on_label_sets(topical: RunFile, tmp_path: Path, cli: Cli) -> None:
    evaluated, predicted = evaluate_and_predict(topical, cli)
    assert "macro F1" in evaluated
    assert {"", "t0", "t0,t1"} <= set(predicted)
    train = ("train", topical.store, "--out")
    cli(*train, tmp_path / "trained")
    assert Model(tmp_path / "trained").predict(["word0 word1"])[0]
    for loss, algorithm in (("softmax", "adagrad"), ("logistic", "caos-erm"), ("logistic", "ons")):
        assert "label" in cli(*train, tmp_path / "no", "--algorithm", algorithm, "--loss", loss, code=2).err


def test_nightly_runs_on_label_sets(tmp_path: Path) -> None:
    run = nightly(tmp_path, topics, 'labels = "multi"\nweight_field = "w"\nclasses = ["t0", "t1", "t2", "t3"]')
    history = pq.read_table(run.out / "history.parquet").to_pylist()
    assert history[0]["promoted"]
    assert history[1]["reason"].startswith("error ")
    classes = pq.read_table(run.out / "history-classes.parquet").to_pylist()
    assert [row["class"] for row in classes if row["increment"] == 2] == ["t0", "t1", "t2", "t3"]
    assert isinstance(Model(run.out).predict(["word0"])[0], list)


# ----------------------------------------------------------------------------------------------------------------------
# Output never destroys input: what a command read, or what is of another kind, is never written over.


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a model in `run`, and a folder of inputs."""
    folder = tmp_path_factory.mktemp("outputs")
    random_model(folder / "run", positive_class="b")
    write_files(folder, {"data/a.jsonl": jsonl(random_texts(40, 7), label=lambda k: "ab"[k % 2])})
    return folder


@pytest.fixture
def folder(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as the working directory."""
    shutil.copytree(origin, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


STORE, MODEL = "run/shards", "run/model"
INTO_FOLDERS = {
    "ingest": "ingest data/a.jsonl --out",
    "search": f"search {STORE} --folds 1 --out",
    "train": f"train {STORE} --out",
    "score": f"score {MODEL} data/a.jsonl --out",
    "optimum": f"optimum {STORE} --out",
    "generate": "generate --bytes 10kB",
    "demo": "demo --out",
}
OTHERS = {
    "notes": {"notes.txt": b"mine"},
    "names": dict.fromkeys(("model.json", "run.json", "manifest.json", "planted.json"), b"mine"),
    "tables": {"weights.parquet": b"mine", "metrics.parquet": b"mine"},
    "corpus": {"docstrings.jsonl": b'{"id": 1}\n'},
    "odd": {"shards-notes.parquet": b"mine", "optimum.json": b"{}"},
}


OWN = (("ingest", STORE), ("train", MODEL))


@pytest.mark.parametrize(
    ("command", "other"), [pair for pair in product(INTO_FOLDERS, (*OTHERS, STORE, MODEL, "run")) if pair not in OWN]
)
def test_a_folder_of_other_things_is_left_alone(folder: Path, command: str, other: str, cli: Cli) -> None:
    write_files(folder / other, OTHERS.get(other, {}))
    before = contents(folder)
    error = cli(*INTO_FOLDERS[command].split(), other, code=2).err
    # An output in the folder of the shards is noticed first.
    assert "[folder-not-empty]" in error or (other == STORE and "[unsupported-combination]" in error)
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["export {model} --to sklearn --out", "evaluate {model} data --predictions"])
@pytest.mark.parametrize("target", ["a.jsonl", "soft", "hard", MODEL + "/weights.parquet", MODEL + "/model.json"])
def test_a_file_of_another_kind_is_left_alone(folder: Path, command: str, target: str, cli: Cli) -> None:
    shutil.move("data/a.jsonl", "a.jsonl")
    os.link("a.jsonl", "data/b.jsonl")
    os.link("a.jsonl", "hard")
    Path("soft").symlink_to("a.jsonl")
    before = contents(folder)
    assert "[file-exists]" in cli(*command.format(model=MODEL).split(), target, code=2).err
    assert contents(folder) == before


def test_an_input_is_not_replaced_by_predictions(folder: Path, cli: Cli) -> None:
    import skops.io  # in a second

    cli("evaluate", MODEL, "data", "--predictions", "p.parquet")
    before = Path("p.parquet").read_bytes()
    cli("evaluate", MODEL, "data", "--predictions", "p.parquet")
    assert Path("p.parquet").read_bytes() == before
    for source, target in (("p.parquet", "p.parquet"), ("data", "data/p.parquet")):
        error = cli("evaluate", MODEL, source, "--text-field", "id", "--predictions", target, code=2).err
        assert "[unsupported-combination]" in error
    assert Path("p.parquet").read_bytes() == before
    cli("export", MODEL, "--to", "sklearn", "--out", "p.skops")
    cli("export", MODEL, "--to", "sklearn", "--out", "p.skops")
    skops.io.load("p.skops", trusted=[])


def test_a_log_is_only_appended_to_a_log(folder: Path, cli: Cli) -> None:
    before = contents(folder / "data")
    command = ["ingest", "data", "--out", "store/shards"]
    assert "[file-exists]" in cli("--log", "data/a.jsonl", *command, code=2).err
    assert contents(folder / "data") == before
    for _ in range(2):  # also in the folder of the output
        cli("--log", "store/shards/log.jsonl", *command)
    assert len(Path("store/shards/log.jsonl").read_text().splitlines()) > 4


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("ingest data --out", "data"),
        ("ingest data --out", "data/store"),
        ("ingest data --exclude drafts --out", "data/store"),
        ("ingest link --out", "data/store"),
        ("ingest data/.. --exclude run --out", "store"),
        ("score run data --out", "data"),
        ("score run data --out", "data/scores"),
        (f"score run {STORE} --out", f"{STORE}/scores"),
        (f"search {STORE} --out", STORE),
        (f"search {STORE} --out", f"{STORE}/run"),
        (f"train {STORE} --out", f"{STORE}/model"),
        (f"optimum {STORE} --out", f"{STORE}/optimum"),
        ("init data --out", "data/run.toml"),
    ],
)
def test_outputs_among_the_inputs_are_refused_in_front(folder: Path, command: str, out: str, cli: Cli) -> None:
    Path("link").symlink_to("data")
    before = contents(folder)
    assert "[unsupported-combination]" in cli(*command.split(), out, code=2).err
    assert contents(folder) == before


@pytest.mark.parametrize("out", ["store --exclude store", "store --include *.jsonl", ".store"])
def test_outputs_that_are_not_among_the_inputs(folder: Path, out: str, cli: Cli) -> None:
    for _ in range(2):
        cli("ingest", "data", "--out", *f"data/{out}".split())


@pytest.mark.parametrize(
    "text",
    [
        'ingest.inputs = ["."]',
        'out = "runs/x"\ningest.inputs = ["data/a.jsonl", "runs"]',
        'out = "data/out"\ningest.inputs = ["data"]',
        'out = "run"\ningest = { inputs = ["data"], store = "data/store" }',
        'out = "run"\ningest.inputs = ["data/a.jsonl"]\nevaluate.inputs = ["run"]',
        'out = "run"\ningest.inputs = ["data/a.jsonl"]\nscore = { inputs = ["data"], out = "data/scores" }',
        'out = "run"\ningest.inputs = ["data"]\nlog.file = "data/log.jsonl"',
    ],
)
def test_a_run_file_with_outputs_among_its_inputs(folder: Path, text: str) -> None:
    Path("runs").mkdir()
    Path("run.toml").write_text(text)
    with raises_code("unsupported-combination"):
        load_run_file("run.toml")


# ----------------------------------------------------------------------------------------------------------------------
# The table [score] of a run file: the model of the run scores a corpus as a step of it.


TABLE = """
[score]
inputs = ["crawl"]
columns = ["split"]
keep_top = "10%"
keep_class = "town"
also = ["again=run/model"]
new_model = "replace"
"""


def test_scores_of_a_run(tmp_path: Path) -> None:
    path = write_run_file(tmp_path, **{"folds = 3": "folds = 2", "[cluster]": f"{TABLE}[cluster]"})
    write_reviews(tmp_path / "crawl" / "a.jsonl", rows=120, classes=3, first=1000)
    run = load_run_file(path)
    assert run_steps.run_all(run).name == "report.html"
    assert run.scores == tmp_path / "run" / "scores"
    found, kept = read_scores(run.scores), read_kept(run.scores)
    assert [model.name for model in found.manifest.models] == ["run", "again"]
    assert found.manifest.rows == 120
    assert kept.rows >= 12
    write_reviews(tmp_path / "crawl" / "b.jsonl", rows=60, classes=3, first=5000)
    run_steps.run_score(run)
    more = read_scores(run.scores)
    assert more.manifest.rows == 180
    assert more.parts[0] == found.parts[0]
    assert (run.scores / "scores.html").exists()


def test_the_deployed_model_of_nightly_runs(tmp_path: Path) -> None:
    prepare(tmp_path)
    path = tmp_path / "places.toml"
    path.write_text(path.read_text() + '\n[score]\ninputs = ["crawl.jsonl"]\nlabelled = true\nnew_model = "replace"\n')
    write_reviews(tmp_path / "crawl.jsonl", rows=60, classes=3, first=1000)
    run = load_run_file(path)
    folders = []
    for increment in (1, 2):
        arrive(tmp_path, increment)
        run_nightly(run)
        run_steps.run_score(run)
        found = read_scores(run.scores)
        assert found.manifest.rows == 60
        (model,) = found.manifest.models
        assert model.folder == str(find_model(run.out))
        folders.append(model.folder)
    assert folders[0] != folders[1]


def test_a_run_file_without_the_table(tmp_path: Path) -> None:
    assert run_steps.run_score(load_run_file(write_run_file(tmp_path))) is None


@pytest.mark.parametrize("line", ['keep_top = "0%"', "keep_above = 0.5\nkeep_top = '5%'", "keep = 3"])
def test_mistakes_name_the_key(tmp_path: Path, line: str) -> None:
    path = write_run_file(tmp_path, **{"[cluster]": f'[score]\ninputs = ["a"]\n{line}\n[cluster]'})
    with pytest.raises(InputError, match=r"score[.:] ?keep"):
        load_run_file(path)


# ----------------------------------------------------------------------------------------------------------------------
# The process that compiles the kernels of a first run compiles those that the run needs, and ends with it.


AHEAD = """
import sys
from sparseoco.core import compile_cache
from sparseoco.pipeline.ahead import compile_kernels, compiled_ahead
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.pipeline.steps import run_all
from sparseoco.storage.locations import location

names, compile_ = [], compile_cache._compile
compile_cache._compile = lambda function, *more: (names.append(function.__name__), compile_(function, *more))[1]
run = load_run_file(location(sys.argv[1]))
compile_kernels(run, location(sys.argv[2]))
print(*names)
names.clear()
run_all(run)
print(*names)
for _ in range(2):
    with compiled_ahead(run):
        compile_cache.before_compiling.pop()()
        print("started", flush=True)
        sys.stdin.readline()
"""


def second_process(first: int) -> psutil.Process:
    """The process that compiles for this one."""
    children = psutil.Process(first).children()
    (found,) = (child for child in children if "sparseoco.pipeline.ahead" in child.cmdline())
    return found


def test_it_compiles_what_a_run_needs_and_ends_with_it_and_if_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AHEAD, str(write_run_file(tmp_path)), str(tmp_path / "small")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        printed = list(iter(process.stdout.readline, "started\n"))
        first = second_process(process.pid)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "started\n"
        assert not first.is_running()
        second = second_process(process.pid)
        process.kill()
    assert not psutil.wait_procs([second], timeout=60)[1]
    ahead, after = (set(line.split()) for line in printed[-2:])
    assert {"learn", "materialize", "find_ngrams", "tokenize_words"} <= ahead
    assert "count_ngrams" in after
    assert not after & {"learn", "materialize", "evaluate", "gather", "find_ngrams"}
