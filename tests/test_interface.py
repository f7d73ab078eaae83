"""Python does what the command line does, on files and on data in memory, and shows it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sparseoco
from sparseoco.pipeline.evaluation import evaluate_model
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.texts import write_reviews, write_run_file

KEYS: dict[str, Any] = {
    "ingest": {"inputs": ["reviews.jsonl"], "where": {"split": "train"}, "min_df": 1},
    "evaluate": {"where": {"split": "test"}},
    "search": {"folds": 2, "epochs": 1, "algorithms": {"adagrad": {"lam": [1e-4, 1e-3]}}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    write_reviews(folder / "reviews.jsonl")
    sparseoco.run({**KEYS, "out": "reviews"}, folder=folder)
    return folder


def read(folder: Path) -> pd.DataFrame:
    frame = pd.read_json(folder / "reviews.jsonl", lines=True)
    return frame[frame["split"] == "test"].reset_index(drop=True)


def test_a_run_is_that_of_its_file(folder: Path, tmp_path: Path, cli: Cli) -> None:
    run = sparseoco.Run(folder / "reviews")
    assert (run.leaderboard.num_rows, run.metrics.num_rows, run.predictions.num_rows) == (2, 4, 50)
    assert run.report.exists()
    assert repr(run).startswith("Run('reviews'): adagrad")
    assert f"{run.evaluation!r}" in repr(run)
    for shown in (run._repr_html_(), run.model._repr_html_()):
        assert shown.count("<table>") >= 1

    file = write_run_file(tmp_path)
    again = sparseoco.run(file)
    printed = cli("run", file).out  # it is complete: the command prints it
    assert repr(again.model).partition(": ")[2].split(";")[0] in printed
    sentence = repr(again.evaluation).partition(": ")[2]
    assert sentence.split(",")[0] in printed
    with raises_code("no-results"):
        sparseoco.Run(tmp_path)
    with raises_code("unknown-option", "serch"):
        sparseoco.run({**KEYS, "serch": {}}, folder=tmp_path)


def test_evaluations_of_files_and_of_data(folder: Path) -> None:
    """One result, of a file, of texts and labels, and of tables; the run's own has the same metrics."""
    model, frame = sparseoco.Run(folder / "reviews").model, read(folder)
    file, where = folder / "reviews.jsonl", {"split": "test"}
    found = model.evaluate(file, where=where)
    assert dict(found) == evaluate_model(model, [str(file)], where)
    recorded = sparseoco.Run(folder / "reviews").evaluation
    assert recorded is not None
    assert {name: found[name] for name in ("error", "log_loss", "rows")} == {
        name: recorded[name] for name in ("error", "log_loss", "rows")
    }
    texts, labels, table = list(frame["text"]), frame["label"], pa.table(frame)
    given: list[tuple[Any, ...]] = [
        (texts, list(labels)),
        (pa.array(texts), pa.array(labels)),
        (frame["text"], labels),
        (frame,),
        (table,),
        (table.to_batches()[0],),
        (frame[["text"]], np.array(labels)),
        (pl.from_pandas(frame),),
        (pl.Series(texts), pl.Series(list(labels))),
    ]
    for data in given:
        result = model.evaluate(*data)
        assert {name: found[name] for name in result} == dict(result)
    assert found.confusion.column_names == ["class", *model.classes]
    assert sum(sum(found.confusion[name].to_pylist()) for name in model.classes) == 50
    assert found.classes["name"].to_pylist() == model.classes
    assert found._repr_html_().count("<table>") == 2
    np.testing.assert_array_equal(model.margins(frame), model.margins(texts))
    np.testing.assert_array_equal(model.margins(table["text"]), model.margins(texts))

    for code, arguments in {
        "no-labels": (frame[["text"]],),
        "invalid-labels": (texts, ["sea"]),
        "invalid-texts": (frame[["id", "label"]],),
        "no-documents": (frame[:0],),
    }.items():
        with raises_code(code):
            model.evaluate(*arguments)
    with raises_code("invalid-labels", "wood"):
        model.evaluate(["a wave"], ["air"])
    with raises_code("unsupported-combination"):
        model.evaluate(texts, labels, where={"split": "test"})


def test_explanations_and_comparisons(folder: Path) -> None:
    model = sparseoco.Model(folder / "reviews")
    found = model.explain(["the wave & <tide>", "tree", ""], terms=2)
    table = found.table.to_pandas()
    assert [each.prediction for each in found] == model.predict(["the wave & <tide>", "tree", ""])
    assert table["text"].tolist() == [0, 0, 1]
    np.testing.assert_allclose(table["contribution"], table["value"] * table["weight"])
    assert repr(found).count("\n") == 2
    assert "<tide>" not in found._repr_html_()
    with raises_code("unknown-class"):
        model.explain(["tree"], of="air")

    frame = read(folder)
    for other in (model, folder / "reviews"):
        same = model.compare(other, frame)
        assert same.options.num_rows == same.weights.num_rows == 0
        error = model.evaluate(frame)["error"]
        (row,) = (row for row in same.evaluations.to_pylist() if row["name"] == "error")
        assert (row["first"], row["second"]) == (error, error)
    assert re.match("Comparison: features ", repr(same))
    assert model.compare(model).evaluations.num_rows > 1
    assert same._repr_html_().count("<table>") == 1


def test_scores(folder: Path, tmp_path: Path) -> None:
    model, file = sparseoco.Model(folder / "reviews"), folder / "reviews.jsonl"
    options: dict[str, Any] = {"reading": {"where": {"split": "test"}}, "keep_top": "10%"}
    scores = sparseoco.score(model, str(file), tmp_path / "scores", **options)
    assert (scores.rows, scores.table.num_rows, len(scores.files)) == (50, 50, 1)
    np.testing.assert_allclose(scores.table["margin"], model.margins(read(folder))[:, 0], rtol=1e-6)
    assert scores.report.exists()
    assert "50 documents in 1 part" in repr(scores)
    with raises_code("no-results"):
        sparseoco.ScoredCorpus(tmp_path)
    with raises_code("unknown-option", "keep"):
        sparseoco.score(model, str(file), tmp_path / "others", keep="10%")
