"""Runs are ranked on the same documents; differences and their intervals are of predictions paired by document."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t as student
from sklearn import metrics as sk

from sparseoco.pipeline.leaderboard import rank_runs
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.storage.tables import write_parquet
from sparseoco.training.decisions import Predictions, predictions_table
from tests.report.synthetic import write_run
from tests.support.commands import Cli
from tests.support.errors import raises_code

ROWS, GROUPS = 203, 20
random = np.random.default_rng(0)


def written(folder: Path, classes: int, labels: Any, margins: Any, **metrics: float) -> Path:
    """A run with these predictions of its test documents."""
    names = [f"c{k}" for k in range(classes)]
    run = write_run(folder, classes=tuple((name, 100) for name in names), tested=True)
    ids = pa.array([f"d{k}" for k in range(len(labels))])
    write_parquet(run / "test.parquet", predictions_table(Predictions(ids, None, labels, margins), names))
    evaluation = {name: value for name, value in read_json(run / "evaluation.json").items() if name != "checksum"}
    commit_json(run / "evaluation.json", evaluation | metrics)
    return run


def error(labels: Any, margins: Any) -> float:
    return float(np.mean(labels != (margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1))))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("metric", ["error", "f1_macro"])
def test_differences_are_those_of_the_paired_jackknife(tmp_path: Path, classes: int, metric: str, cli: Cli) -> None:
    labels = random.integers(0, classes, ROWS)
    truth = np.eye(classes)[labels][:, -1:] * 2 - 1 if classes == 2 else np.eye(classes)[labels]
    margins = [truth + random.normal(0, spread, truth.shape) for spread in (2.0, 1.0)]

    def value(rows: Any, own: Any) -> float:
        predicted = own[rows, 0] > 0 if classes == 2 else own[rows].argmax(axis=1)
        if metric == "error":
            return float(np.mean(predicted != labels[rows]))
        return float(sk.f1_score(labels[rows], predicted, average="macro"))

    every = np.arange(ROWS)
    runs = [
        written(tmp_path / name, classes, labels, own, **{metric: value(every, own)})
        for name, own in zip("ab", margins, strict=True)
    ]
    named, (first, second) = rank_runs(runs, metric)
    assert (named, first.run, second.run, first.difference) == (metric, str(runs[1]), str(runs[0]), None)
    left_out = [
        value(every[every % GROUPS != group], margins[0]) - value(every[every % GROUPS != group], margins[1])
        for group in range(GROUPS)
    ]
    spread = np.sqrt((GROUPS - 1) / GROUPS * np.sum((left_out - np.mean(left_out)) ** 2))
    width, wanted = student.ppf(0.975, GROUPS - 1) * spread, value(every, margins[0]) - value(every, margins[1])
    assert second.difference == pytest.approx((wanted, wanted - width, wanted + width))
    printed = json.loads(cli("leaderboard", *runs, "--metric", metric, "--json").out)
    assert [own["run"] for own in printed["runs"]] == [str(run) for run in runs[::-1]]
    assert "difference" in cli("leaderboard", *runs, "--metric", metric).out


def test_documents_and_classes_in_another_order(tmp_path: Path) -> None:
    labels = random.integers(0, 3, ROWS)
    margins = np.eye(3)[labels] + random.normal(0, 1, (ROWS, 3))
    a = written(tmp_path / "a", 3, labels, margins, error=error(labels, margins))
    order, classes = random.permutation(ROWS), [2, 0, 1]
    b = write_run(tmp_path / "b", classes=(("c2", 100), ("c0", 100), ("c1", 100)), tested=True)
    other = Predictions(
        pa.array([f"d{k}" for k in order]), None, np.argsort(classes)[labels[order]], margins[order][:, classes]
    )
    write_parquet(b / "test.parquet", predictions_table(other, ["c2", "c0", "c1"]))
    _, ranked = rank_runs([a, b], "error")
    assert ranked[1].difference == (0.0, 0.0, 0.0)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    labels = random.integers(0, 2, ROWS)
    margins = random.normal(0, 1, (ROWS, 1))
    a = written(tmp_path / "a", 2, labels, margins)
    with raises_code("different-documents", "202 ids of 203 and 202"):
        rank_runs([a, written(tmp_path / "fewer", 2, labels[1:], margins[1:])], "error")
    with raises_code("different-documents", "labelled again"):
        rank_runs([a, written(tmp_path / "labels", 2, 1 - labels, margins)], "error")
    with raises_code("different-classes"):
        rank_runs([a, written(tmp_path / "three", 3, labels, random.normal(0, 1, (ROWS, 3)))], "error")
    other = written(tmp_path / "positive", 2, labels, margins)
    described = {key: value for key, value in read_json(other / "run.json").items() if key != "checksum"}
    commit_json(other / "run.json", described | {"search": described["search"] | {"positive_class": "c0"}})
    run = {key: value for key, value in read_json(a / "run.json").items() if key != "checksum"}
    commit_json(a / "run.json", run | {"search": run["search"] | {"positive_class": "c1"}})
    with raises_code("different-classes", "positive_class"):
        rank_runs([a, other], "error")
    for metric in ("log_loss", "nothing", "rmse"):
        with raises_code("unsupported-combination", metric):
            rank_runs([a, a], metric)
    with raises_code("no-results", "no test documents"):
        rank_runs([a, write_run(tmp_path / "untested")])
