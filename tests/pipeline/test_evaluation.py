"""Documents that a model has not seen: evaluation, probabilities, a rare class, and explanations."""

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest
from sklearn import metrics as sk
from sklearn.preprocessing import label_binarize

from sparseoco.cli.console import as_dicts
from sparseoco.core.errors import InputError
from sparseoco.datasets.corpora import data_folder
from sparseoco.pipeline import demo, evaluation
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.pipeline.explanation import Explainer, compare_models
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training import metrics as scores
from sparseoco.training.decisions import Predictions, read_predictions
from sparseoco.training.metrics import class_probabilities
from sparseoco.training.models import Model, write_model
from sparseoco.training.options import METRICS
from tests.support.commands import Cli, call
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, random_texts, write_files
from tests.support.models import random_model


def on(inputs: list[str]) -> Any:
    """An evaluation of a model on these inputs."""
    return partial(evaluate_model, inputs=inputs, where={})


# ----------------------------------------------------------------------------------------------------------------------
# Evaluations of a model: metrics as scikit-learn's, predictions of every document.


ROWS = 120


def documents(folder: Path, classes: int) -> Path:
    """Documents of random words with random labels."""
    labels = np.random.default_rng(2).integers(0, classes, ROWS)
    path = folder / "test.jsonl"
    path.write_bytes(jsonl(random_texts(ROWS, 2), label=lambda k: "abc"[labels[k]]))
    return path


def evaluated(opened: Model, folder: Path) -> tuple[dict[str, Any], Predictions]:
    inputs = [str(documents(folder, len(opened.classes)))]
    found = evaluate_model(opened, inputs, {}, folder / "test.parquet")
    return found, read_predictions(folder / "test.parquet", opened.classes)


def test_two_classes(tmp_path: Path) -> None:
    opened = random_model(tmp_path / "run", positive=0)
    found, predictions = evaluated(opened, tmp_path)
    assert predictions.ids.to_pylist() == [f"d{i}" for i in range(ROWS)]
    y, z = predictions.labels, predictions.margins[:, 0]
    assert found["positive_class"] == "a"
    assert found["error"] == pytest.approx(sk.zero_one_loss(y, z > 0))
    assert found["f1"] == pytest.approx(sk.f1_score(y, z > 0, pos_label=0))
    assert found["roc_auc"] == pytest.approx(sk.roc_auc_score(y == 0, -z))
    assert found["average_precision"] == pytest.approx(sk.average_precision_score(y == 0, -z))
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, opened.probabilities(predictions.margins)))
    assert {name for name, metric in METRICS.items() if "two classes" in metric.kinds} - {"loss"} <= set(found)
    assert (found["rows"], np.sum(found["confusion"]), found["calibrated"]) == (ROWS, ROWS, False)


def test_a_threshold_and_a_calibration(tmp_path: Path) -> None:
    cut = {"margin": 1.5, "precision": 1.0, "recall": 1.0, "f1": 1.0, "share": 0.5}
    threshold = {"rule": "f1", "rows": 100, "outputs": [cut]}
    calibration = {"method": "sigmoid", "slopes": [0.5], "offsets": [0.2]}
    opened = random_model(tmp_path / "run", threshold=threshold, calibration=calibration)
    found, predictions = evaluated(opened, tmp_path)
    y, z = predictions.labels, predictions.margins[:, 0]
    assert found["f1"] == pytest.approx(sk.f1_score(y, z > 1.5))
    assert found["error"] == pytest.approx(np.mean(y != (z > 1.5)))
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, 1 / (1 + np.exp(-0.5 * z - 0.2))))
    assert found["calibrated"]
    assert found["threshold"]["outputs"][0]["margin"] == 1.5


def test_more_classes(tmp_path: Path) -> None:
    opened = random_model(tmp_path / "run", classes=3)
    found, (_, _, y, z) = evaluated(opened, tmp_path)
    assert found["roc_auc"] == pytest.approx(sk.roc_auc_score(label_binarize(y, classes=range(3)), z))
    assert found["f1_macro"] == pytest.approx(sk.f1_score(y, z.argmax(axis=1), average="macro"))
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, opened.probabilities(z)))
    assert "f1" not in found


def test_intervals_cover_the_figures_of_all_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 samples about 95 do; also where standard errors are those of the first half, scaled."""
    opened = random_model(tmp_path / "run")
    random = np.random.default_rng(1)

    def sample(rows: int) -> dict[str, Any]:
        labels = random.integers(0, 2, rows)
        sums = evaluation._Sums(opened)
        for part in np.array_split(np.arange(rows), 3):
            sums.add(random.normal(2.0 * labels[part] - 1, 1.5)[:, None], labels[part])
        return sums.metrics() if rows < 1000 else sums._metrics()

    population = sample(200_000)
    for values, rows in ((scores.EXACT_VALUES, 150), (200, 400)):
        monkeypatch.setattr(scores, "EXACT_VALUES", values)
        found = [sample(rows) for _ in range(100)]
        for name in ("error", "precision", "recall", "f1", "f1_macro", "roc_auc", "average_precision", "log_loss"):
            covered = sum(own["intervals"][name][0] <= population[name] <= own["intervals"][name][1] for own in found)
            assert 88 <= covered <= 100, (name, covered)
    (row,) = found[:1]
    wilson = binomtest(round(row["error"] * 400), 400).proportion_ci(method="wilson")
    assert row["intervals"]["error"] == pytest.approx([wilson.low, wilson.high])
    assert row["intervals"]["f1"][1] - row["intervals"]["f1"][0] > 0.05


def learned(folder: Path, files: dict[str, bytes], **options: Any) -> Model:
    """A model that was trained on these files in a folder, which are ingested one after the other."""
    for name, data in files.items():
        ingest_bytes(folder, name, data, hash_bits=6, duplicates="all", **options)
    store = Store.open(folder / "out")
    described = {"algorithm": "none", "parameters": {}, "loss": "logistic"}
    write_model(folder / "model", np.ones((store.n_features, 1)), store, described, [])
    return Model(folder / "model")


SPLIT = {"split": lambda k: ["train", "test"][k % 3 == 0]}


def test_documents_that_were_learned_are_named(tmp_path: Path) -> None:
    """Files of the same bytes under any name, of any format; not of other bytes, though there are as many."""
    data = jsonl(random_texts(30), **SPLIT)
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in data.splitlines()]), tmp_path / "t.parquet")
    files = {
        "a.jsonl": data,
        "b.jsonl": jsonl(random_texts(9, seed=1)),
        "c.parquet": (tmp_path / "t.parquet").read_bytes(),
    }
    opened = learned(tmp_path / "all", files)
    (tmp_path / "copy.jsonl").write_bytes(data)
    (tmp_path / "other.jsonl").write_bytes(data.replace(b"alpha", b"ahpla"))
    names = [str(tmp_path / name) for name in ("copy.jsonl", "other.jsonl", "t.parquet")]
    for where in ({}, {"split": "test"}):
        assert evaluate_model(opened, names, where)["trained_on"] == ["copy.jsonl", "t.parquet"]
    assert "trained_on" not in evaluate_model(opened, names[1:2], {})
    part = learned(tmp_path / "part", {"a.jsonl": data}, where={"split": "train"})
    assert "trained_on" not in evaluate_model(part, names[:1], {"split": "test"})
    assert evaluate_model(part, names[:1], {})["trained_on"] == ["copy.jsonl"]
    withheld = learned(tmp_path / "withheld", {"a.jsonl": data}, holdout=0.5)
    assert "trained_on" not in evaluate_model(withheld, names[:1], {}, holdout=0.5)
    assert evaluate_model(withheld, names[:1], {})["trained_on"] == ["copy.jsonl"]
    assert compare_models(opened, part, on(names[1:2])).trained_on == ([], [])
    assert compare_models(opened, part, on(names[2:])).trained_on == (
        ["t.parquet"],
        [],
    )


def test_a_folder_of_text_that_was_learned_is_named(tmp_path: Path) -> None:
    write_files(tmp_path / "texts", {name: f"alpha beta {name}" for name in ("n/1", "p/1", "p/2")})
    ingest([str(tmp_path / "texts")], tmp_path / "out", TextOptions.of({"hash_bits": 6, "duplicates": "all"}))
    opened = learned(tmp_path, {})
    assert evaluate_model(opened, [str(tmp_path / "texts")], {})["trained_on"] == ["texts"]
    (tmp_path / "texts" / "p/1").write_text("alpha beta 1/p")
    assert "trained_on" not in evaluate_model(opened, [str(tmp_path / "texts")], {})


def test_a_model_knows_the_stores_of_documents_that_it_has_learned(tmp_path: Path) -> None:
    data = jsonl(random_texts(30), **SPLIT)
    opened = learned(tmp_path / "a", {"a.jsonl": data})
    grown = learned(tmp_path / "a", {"b.jsonl": jsonl(random_texts(9, seed=1))})
    part = learned(tmp_path / "b", {"c.jsonl": data}, where={"split": "test"})
    other = learned(tmp_path / "c", {"a.jsonl": jsonl(random_texts(30, seed=2))})
    a, b, c = (Store.open(tmp_path / name / "out") for name in "abc")
    assert [opened.has_learned(store) for store in (a, b, c)] == [True, True, False]
    assert [grown.has_learned(store) for store in (a, b, c)] == [True, True, False]
    assert [part.has_learned(store) for store in (a, b, c)] == [True, True, False]
    assert [other.has_learned(store) for store in (a, b, c)] == [False, False, True]
    train = learned(tmp_path / "d", {"c.jsonl": data}, where={"split": "train"})
    assert [train.has_learned(store) for store in (a, b, c)] == [True, False, False]


def test_slices_are_evaluations_of_their_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    opened, path = random_model(tmp_path / "run", classes=3), tmp_path / "test.jsonl"
    texts = [text * (1 + k % 9) for k, text in enumerate(random_texts(ROWS, 2))]
    sources, labels = [None, "x", "y", 3], np.random.default_rng(2).integers(0, 3, ROWS)
    path.write_bytes(jsonl(texts, label=lambda k: "abc"[labels[k]], source=lambda k: sources[k % 7 % 4]))
    found = evaluate_model(opened, [str(path)], {}, slices=["source", "length"])["slices"]
    by_source, by_length = ([own for own in found if own["field"] == name] for name in ("source", "length"))
    assert {own["value"]: own["rows"] for own in by_source} == dict(
        Counter(None if name is None else str(name) for name in (sources[k % 7 % 4] for k in range(ROWS)))
    )
    for own in by_source[:3]:
        if own["value"] is not None:
            alone = evaluate_model(opened, [str(path)], {"source": own["value"]})
            same = own.keys() - {"field", "value"}
            assert {"error", "roc_auc", "intervals"} < same
            assert {name: own[name] for name in same} == {name: alone[name] for name in same}
    starts = [int(own["value"].split("–")[0].split()[0].replace(",", "")) for own in by_length]
    ends = {start: min(limit for limit in (*evaluation.LENGTHS, 10**9) if limit > start) for start in starts}
    assert [own["rows"] for own in by_length] == [
        sum(start <= len(text) < ends[start] for text in texts) for start in starts
    ]
    assert len(starts) > 1
    with raises_code("missing-field", "'sauce'"):
        evaluate_model(opened, [str(path)], {}, slices=["sauce"])
    assert "source: x" in cli("evaluate", opened.folder, path, "--slice", "source").out
    columns = {"id": range(ROWS), "label": ["abc"[k] for k in labels], "text": texts, "tags": [["x"]] * ROWS}
    pq.write_table(pa.table(columns), tmp_path / "test.parquet")
    with raises_code("invalid-option", "'tags'", "list"):
        evaluate_model(opened, [str(tmp_path / "test.parquet")], {}, tmp_path / "predictions.parquet", slices=["tags"])
    assert not (tmp_path / "predictions.parquet").exists()
    for limit in ("MAX_SLICES", "FEWEST_SLICES"):
        monkeypatch.setattr(evaluation, limit, 2)
    fewer = evaluate_model(opened, [str(path)], {}, slices=["source"])["slices"]
    assert [len(fewer), sum(own["rows"] for own in fewer)] == [4, ROWS]  # and those without a source
    assert any(own["value"] == "values after the first 2" for own in fewer)


def test_the_command_prints_the_metrics(tmp_path: Path, cli: Cli) -> None:
    opened, inputs = random_model(tmp_path / "run"), documents(tmp_path, 2)
    target = tmp_path / "predictions.parquet"
    printed = cli("evaluate", opened.folder, inputs, "--predictions", target).out
    assert "ROC AUC" in printed
    assert "average precision" in printed
    assert "optimistic" not in printed
    assert len(read_predictions(target, opened.classes).ids) == ROWS


# ----------------------------------------------------------------------------------------------------------------------
# From text to probabilities: on documents that nobody has seen they are better than those of the loss.


RUN = """
out = "run"
[ingest]
inputs = ["train.jsonl"]
[search]
algorithms.adagrad = { eta = [0.3], lam = [1e-5, 1e-4] }
folds = 2
epochs = 2
[evaluate]
inputs = ["test.jsonl"]
[cluster]
threads = 2
"""


@pytest.mark.slow
def test_calibrated_probabilities_of_the_demo_corpus(tmp_path: Path) -> None:
    demo.write_corpus(tmp_path / "demo.jsonl")
    lines = (tmp_path / "demo.jsonl").read_text().splitlines()[:2400]
    (tmp_path / "train.jsonl").write_text("\n".join(lines[:1600]) + "\n")
    (tmp_path / "test.jsonl").write_text("\n".join(lines[1600:]) + "\n")
    (tmp_path / "run.toml").write_text(RUN)
    run = load_run_file(tmp_path / "run.toml")
    for step in ("ingest", "search", "train", "evaluate"):
        run_steps.STEPS[step](run)
    model = Model(run.out)
    assert model.calibration.rows == 1600
    found = read_predictions(run.out / "test.parquet", model.classes)
    truth = np.arange(len(found.labels)), found.labels
    calibrated = -np.log(model.probabilities(found.margins)[truth]).mean()
    assert calibrated < -np.log(class_probabilities(found.margins, joint=False)[truth]).mean()
    evaluated = json.loads((run.out / "evaluation.json").read_bytes())
    assert evaluated["log_loss"] == pytest.approx(calibrated, rel=1e-6)
    assert evaluated["calibrated"]


# ----------------------------------------------------------------------------------------------------------------------
# A class of 3 % of the documents: found by default, and if it is never predicted, that is the first thing said.


SEARCH = ("--metric", "average_precision", "--grid", "eta=0.1", "--grid", "lam=0.0003", "--folds", 3, "--epochs", 2)
NEVER = "class positive is never predicted for the"


def write_documents(path: Path, seed: int, rows: int) -> None:
    """Documents of two classes that are alike: a good ranking has an average precision of 0.6 to 0.7."""
    drawn = random.Random(seed)
    with path.open("w") as file:
        for number in range(rows):
            label, share = ("positive", 0.38) if drawn.random() < 0.03 else ("negative", 0.12)
            words = [f"{'s' if drawn.random() < share else 'p'}{drawn.randrange(20)}" for _ in range(20)]
            words += [f"w{drawn.randrange(100)}" for _ in range(5)]
            file.write(json.dumps({"id": f"{seed}-{number}", "label": label, "text": " ".join(words)}) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rare")
    write_documents(folder / "train.jsonl", 1, 4000)
    write_documents(folder / "test.jsonl", 2, 4000)
    with pytest.MonkeyPatch.context() as patch:
        ingest = ("ingest", folder / "train.jsonl", "--out", folder / "shards", "--ngram-range", "1,1", "--threads", 1)
        assert call(patch, *ingest) == 0
    return folder


def test_a_rare_class_is_found_by_default(folder: Path, cli: Cli) -> None:
    run = folder / "run"
    lines = cli("search", folder / "shards", "--out", run, "--threads", 1, *SEARCH).out.splitlines()
    assert lines[0].startswith("model: ")
    assert any(line.startswith("threshold: positive above a margin of -") for line in lines)
    assert read_json(run / "model" / "model.json")["threshold"]["rule"]["since"].startswith("positive has ")
    page = (run / "report" / "report.html").read_text()
    assert "(by default, since positive has " in page
    assert NEVER.capitalize() not in page
    found = json.loads(cli("evaluate", run, folder / "test.jsonl", "--json").out)
    assert 0.5 < found["average_precision"] < 0.75
    assert found["recall"] > 0.5
    assert found["precision"] > 0.5
    assert not found.keys() & {"never_predicted", "trained_on"}


def test_a_class_that_is_never_predicted_is_the_first_thing_said(folder: Path, cli: Cli) -> None:
    run, test = folder / "none", folder / "test.jsonl"
    search = ("search", folder / "shards", "--out", run, "--threads", 1, *SEARCH, "--threshold", "none")
    assert cli(*search).out.startswith(f"warning: {NEVER} held-out documents\n")
    assert Model(run).thresholds is None
    page = (run / "report" / "report.html").read_text()
    assert f">{NEVER.capitalize()} held-out documents. adagrad, trained on" in page
    assert cli("evaluate", run, test).out.startswith(f"warning: {NEVER} evaluated documents\n")
    found = json.loads(cli("evaluate", run, test, "--json").out)
    assert (found["never_predicted"], found["recall"]) == (["positive"], 0.0)
    learned = "warning: the model was trained on documents of train.jsonl: the figures are optimistic"
    assert learned in cli("evaluate", run, folder / "train.jsonl").out.splitlines()
    train = ("train", folder / "shards", "--out", folder / "one", "--threads", 1, "--set")
    said = cli(*train, "eta=0.1", "--set", "lam=0.001").out
    assert said.startswith(f"warning: {NEVER} documents that it predicted before it learned them\n")


# ----------------------------------------------------------------------------------------------------------------------
# Contributions sum to the margin; models are compared feature by feature.


TWO = [
    ("sea", "tide boat wave wave"),
    ("wood", "moss leaf tree"),
    ("sea", "boat tide sail"),
    ("wood", "leaf moss bark"),
]
THREE = [*TWO, ("air", "wind cloud kite"), ("air", "kite cloud wind wind")]
TEXTS = ["tide tide moss", "cloud leaf", "unknown words", ""]


def trained(folder: Path, rows: Sequence[tuple[Any, str]], cli: Cli, *options: Any, labels: str = "classes") -> Model:
    folder.mkdir()
    text, store = folder / "text.jsonl", folder / "store"
    lines = [json.dumps({"id": str(k), "label": label, "text": words}) for k, (label, words) in enumerate([*rows] * 6)]
    text.write_text("\n".join(lines) + "\n")
    cli("ingest", text, "--out", store, "--duplicates", "all", "--ngram-range", "1,1", "--labels", labels)
    loss = "squared" if labels == "numbers" else "logistic"
    cli("train", store, "--out", folder / "model", "--algorithm", "adagrad", "--loss", loss, *options)
    return Model(folder / "model")


@pytest.mark.parametrize(("rows", "options"), [(TWO, ("--tf", "log", "--idf", "true", "--norm", "l2")), (THREE, ())])
def test_contributions_sum_to_the_margin(
    tmp_path: Path, cli: Cli, rows: list[tuple[str, str]], options: tuple[str, ...]
) -> None:
    model = trained(tmp_path / "a", rows, cli, *options)
    margins = model.margins(TEXTS)
    for terms in (1, 10):
        found = list(Explainer(model, terms=terms).explain(TEXTS, list("abcd")))
        assert [own.id for own in found] == list("abcd")
        assert [own.prediction for own in found] == model.predict(TEXTS)
        for own, row in zip(found, margins, strict=True):
            if len(model.classes) == 2:
                expected = row[0] if own.of == model.classes[1] else -row[0]
            else:
                ordered = np.sort(row)
                expected = ordered[-1] - ordered[-2]
                assert own.against == model.classes[int(np.argsort(row)[-2])] or ordered[-2] == ordered[-3]
            assert own.margin == pytest.approx(expected)
            total = sum(term.contribution for term in own.terms) + own.rest + own.intercept
            assert total == pytest.approx(own.margin)
            assert all(term.value * term.weight == pytest.approx(term.contribution) for term in own.terms)
            assert len(own.terms) <= terms
    first = found[0]
    assert {term.feature for term in first.terms} <= {"tide", "moss"}
    assert first.probability == pytest.approx(model.predict_proba(TEXTS)[0].max())
    chosen = next(Explainer(model, of="wood").explain(["moss"]))
    assert (chosen.of, chosen.terms[0].feature) == ("wood", "moss")
    assert chosen.terms[0].contribution > 0
    with raises_code("unknown-class", "fire", kind=InputError):
        Explainer(model, of="fire")


def test_several_labels_and_numbers(tmp_path: Path, cli: Cli) -> None:
    sets = [
        (["sea", "wood"], "tide moss"),
        (["sea"], "tide boat"),
        (["wood"], "moss leaf"),
        ([], "stone"),
        (["air"], "kite"),
    ]
    model = trained(tmp_path / "a", sets, cli, "--dtype", "float64", labels="multi")
    found = list(Explainer(model).explain(["tide moss", "kite"]))
    assert set(found[0].prediction) == {"sea", "wood"}
    assert (found[1].prediction, found[1].of, found[1].against) == (["air"], "air", "")
    margins = model.margins(["tide moss", "kite"])
    assert [own.margin for own in found] == pytest.approx(margins.max(axis=1).tolist())
    numbers = trained(tmp_path / "b", [(1.0, "tide"), (3.0, "tide boat"), (-2.0, "moss")], cli, labels="numbers")
    (own,) = Explainer(numbers).explain(["tide boat"])
    assert own.prediction == pytest.approx(own.margin)
    assert (own.of, own.probability, own.threshold) == ("", None, None)
    assert sum(term.contribution for term in own.terms) + own.intercept == pytest.approx(own.margin)


def test_commands(tmp_path: Path, cli: Cli) -> None:
    trained(tmp_path / "a", TWO, cli)
    model, text = tmp_path / "a" / "model", tmp_path / "a" / "text.jsonl"
    printed = cli("explain", model, text, "--id", "1", "--id", "2", "--json").out
    found = [json.loads(line) for line in printed.splitlines()]
    assert [own["id"] for own in found] == ["1", "2"]
    assert [own["prediction"] for own in found] == ["wood", "sea"]
    assert {term["feature"] for term in found[0]["terms"]} <= {"moss", "leaf", "tree"}
    printed = cli("explain", model, text, "--id", "1").out
    assert "1: wood" in printed
    assert "margin of wood over sea" in printed
    assert "[unknown-document]" in cli("explain", model, text, "--id", "nowhere", code=2).err
    for command in ("predict", "explain"):
        assert "[no-documents]" in cli(command, model, text, "--where", "label=nothing", code=2).err
    printed = cli("compare", model, model, text).out
    assert "cosine of the weights: 1.0000" in printed
    assert "gained" not in printed


def test_what_changed(tmp_path: Path, cli: Cli) -> None:
    first = trained(tmp_path / "a", TWO, cli)
    second = trained(tmp_path / "b", [*TWO, ("wood", "fern"), ("sea", "boat")], cli, "--set", "eta=1")
    found = compare_models(first, second, limit=3)
    weights = [dict(zip(of.feature_names, of.weights[:, 0].tolist(), strict=True)) for of in (first, second)]
    assert found.features == (len(weights[0]), len(weights[1]), len(weights[0].keys() & weights[1].keys()))
    assert {row.feature for row in found.gained} == weights[1].keys() - weights[0].keys() == {"fern"}
    assert found.lost == []
    changes = {name: weights[1][name] - weights[0][name] for name in weights[0].keys() & weights[1].keys()}
    largest = sorted(changes, key=lambda name: -abs(changes[name]))[:3]
    assert [abs(row.change) for row in found.changed] == pytest.approx([abs(changes[name]) for name in largest])
    options = {row.name: (row.first, row.second) for row in found.options}
    assert options["parameters.eta"][1] == 1.0
    assert "provenance.store" in options
    dot = sum(weights[0][name] * weights[1][name] for name in changes)
    norms = [sum(w * w for w in of.values()) ** 0.5 for of in weights]
    assert found.cosine == pytest.approx(dot / (norms[0] * norms[1]))
    assert json.dumps(as_dicts(found))
    assert [row.feature for row in compare_models(second, first).lost] == ["fern"]


def test_errors_of_evaluated_models(tmp_path: Path, cli: Cli) -> None:
    model = trained(tmp_path / "a", TWO, cli)
    assert compare_models(model, model).evaluations == []
    found = compare_models(model, model, on([str(tmp_path / "a" / "text.jsonl")]))
    measured = {row.name: (row.first, row.second) for row in found.evaluations}
    assert measured["rows"] == (24, 24)
    assert measured["error"] == (0.0, 0.0)
    assert found.same_text
    commit_json(tmp_path / "a" / "evaluation.json", {"rows": 7, "error": 0.25, "inputs": ["x"], "where": {}})
    recorded = compare_models(model, model)
    assert [(row.name, row.first) for row in recorded.evaluations] == [("rows", 7), ("error", 0.25)]
    other = trained(tmp_path / "b", THREE, cli)
    with raises_code("different-classes", kind=InputError):
        compare_models(model, other)


# ----------------------------------------------------------------------------------------------------------------------
# The corpus of the demo: docstrings of installed packages.


WORDS = "one two three four five six seven eight nine ten"


@pytest.mark.slow
def test_the_documents_of_the_installed_packages(tmp_path):
    """Thousands, in mixed classes of similar size, with unique ids; no text names a library."""
    classes = demo.write_corpus(tmp_path / "docstrings.jsonl")
    documents = [json.loads(line) for line in (tmp_path / "docstrings.jsonl").read_bytes().splitlines()]
    assert len(documents) == sum(classes.values()) > 5000
    assert set(classes) == set(demo.LIBRARIES)
    assert max(classes.values()) <= 4 * min(classes.values())
    assert len({d["label"] for d in documents[:100]}) == len(demo.LIBRARIES)
    assert len({d["id"] for d in documents}) == len({d["text"] for d in documents}) == len(documents)
    for own in documents:
        assert own["id"].split("/")[0] == own["label"]
        assert not demo._NAMES.search(own["text"])


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two packages of our own, which blow up when imported."""
    methods = f'class A:\n    """Class {WORDS}."""\n    def m(self):\n        """Method {WORDS}."""\n'
    again = f'if True:\n    def f():\n        """First {WORDS}."""\ndef f():\n    """Second {WORDS}."""\n'
    files = {
        "aleph/__init__.py": f'"""Module {WORDS}."""\nraise SystemExit\n{methods}{again}',
        "beth/__init__.py": f'"""A sa.thing and a NUMPY_x {WORDS}."""\ndef short():\n    """Too short."""\n',
        "beth/broken.py": "print 'python two'\n",
        "beth/latin.py": b'"""caf\xe9 ' + WORDS.encode() + b'"""\n',
        "beth/copy.py": f'"""Module {WORDS}."""\n',
        "beth/tests/test_x.py": f'"""In a test {WORDS}."""\n',
    }
    write_files(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(demo, "LIBRARIES", ("aleph", "beth", "gimel"))
    return tmp_path


def test_names_places_and_rejects(tiny):
    assert demo.write_corpus(tiny / "out.jsonl") == {"aleph": 5, "beth": 1}
    first = (tiny / "out.jsonl").read_bytes()
    texts = {d["id"]: d["text"] for d in map(json.loads, first.splitlines())}
    assert set(texts) == {f"aleph/__init__.py:{line}" for line in (0, 3, 5, 8, 10)} | {"beth/__init__.py:0"}
    assert texts["aleph/__init__.py:8"].startswith("First")
    assert texts["beth/__init__.py:0"].startswith("A .thing and a _x one")
    assert "aleph" not in sys.modules
    demo.write_corpus(tiny / "again.jsonl")
    assert (tiny / "again.jsonl").read_bytes() == first


def test_documents_per_library_are_limited_and_two_libraries_needed(tiny, monkeypatch):
    monkeypatch.setattr(demo, "MAX_DOCUMENTS", 2)
    assert demo.write_corpus(tiny / "out.jsonl") == {"aleph": 2, "beth": 1}
    monkeypatch.setattr(demo, "LIBRARIES", ("beth",))
    with raises_code("no-documents", "beth"):
        demo.write_corpus(tiny / "one.jsonl")
    assert not (tiny / "one.jsonl").exists()


def test_an_unchanged_corpus_is_not_rewritten(tiny):
    demo.write_corpus(tiny / "out.jsonl")
    first = (tiny / "out.jsonl").stat()
    demo.write_corpus(tiny / "out.jsonl")
    again = (tiny / "out.jsonl").stat()
    assert (again.st_ino, again.st_mtime_ns, again.st_ctime_ns) == (first.st_ino, first.st_mtime_ns, first.st_ctime_ns)


def test_the_run_file_is_valid():
    run = load_run_file(data_folder() / "demo.toml")
    assert run.ingest.ngram_range == (1, 2)
    assert {c.algorithm for c in run.search.configurations()} == {"adagrad"}
