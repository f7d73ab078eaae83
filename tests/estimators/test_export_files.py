"""A model exported as ONNX, SQL or JSON has the margins and predictions of the model."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pyarrow as pa
import pytest

from sparseoco import Model
from sparseoco.estimators.export import export_json, export_onnx, export_sql
from sparseoco.store.weighting import COUNTS, TFIDF, Weighting
from tests.estimators.test_export import ingested, written
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.ingests import random_texts

NEW = [*random_texts(20, seed=1), "", "unknown words alpha", "don't rock'n'roll Ünknown ab a", "alpha alpha Alpha"]
LOGARITHMS = Weighting(tf="log", idf=True, norm="none")
CASES: list[tuple[str, Weighting, dict[str, Any]]] = [
    ("two", TFIDF, {"ngram_range": (1, 3), "stop_words": ["the", "alpha", "it's"]}),
    ("three", LOGARITHMS, {"token_pattern": "short_words", "max_token_length": 4, "ngram_range": (1, 2)}),
    ("multi", Weighting(tf="binary", idf=False, norm="l2"), {"lowercase": False}),
    ("numbers", COUNTS, {"ngram_range": (2, 2)}),
]


@pytest.fixture(scope="module", params=CASES, ids=[kind for kind, _, _ in CASES])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    kind, weighting, options = request.param
    folder, described = tmp_path_factory.mktemp(kind), {}
    if kind in ("two", "multi"):
        chosen = {"margin": 0.3, "precision": 0.5, "recall": 0.5, "f1": 0.5, "share": 0.5}
        outputs = [chosen] * (1 if kind == "two" else 3)
        described["threshold"] = {"rule": {"rule": "f1"}, "outputs": outputs, "rows": 9}
    return written(folder, ingested(folder, kind, **options), weighting, **described)


def test_sql(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "reviews.sql"
    assert export_sql(model, path) == export_sql(model, path)
    with duckdb.connect() as database:
        database.register("documents", pa.table({"id": range(len(NEW)), "text": NEW}))
        database.execute(path.read_text())
        rows = database.execute("SELECT margin FROM reviews_margins ORDER BY id, output").fetchall()
        found = database.execute("SELECT prediction FROM reviews_predictions ORDER BY id").fetchall()
    margins = np.array(rows).reshape(len(NEW), model.outputs)
    np.testing.assert_allclose(margins, model.margins(NEW), rtol=1e-12, atol=1e-12)
    predicted = [row[0] for row in found]
    wanted = model.predict(NEW)
    assert predicted == (wanted if model.classes else pytest.approx(wanted, rel=1e-12))


def run_onnx(path: Path, texts: list[str]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"text": np.array(texts, object)}), strict=True))


def check_onnx(model: Model, path: Path) -> None:
    assert export_onnx(model, path) == export_onnx(model, path)
    found = run_onnx(path, NEW)
    np.testing.assert_allclose(found["margins"], model.margins(NEW), rtol=1e-12, atol=1e-12)
    wanted = model.predict(NEW)
    if not model.classes:
        np.testing.assert_allclose(found["prediction"], wanted, rtol=1e-12)
    elif model.is_multilabel:
        assert [[model.classes[k] for k in np.flatnonzero(row)] for row in found["prediction"]] == wanted
    else:
        assert found["prediction"].tolist() == wanted
    assert ("probabilities" in found) == model.has_probabilities
    if model.has_probabilities:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), rtol=1e-9, atol=1e-12)


def test_onnx(model: Model, tmp_path: Path) -> None:
    if model.text.ngram_range[1] > 1 and (model.text.stop_list or model.text.max_token_length):
        with raises_code("unsupported-combination", "between those of n-grams"):
            export_onnx(model, tmp_path / "model.onnx")
        return
    check_onnx(model, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("kind", "loss", "calibration"),
    [
        ("two", "hinge", {"method": "sigmoid", "slopes": [1.7], "offsets": [0.5], "rows": 9}),
        ("two", "logistic", None),
        ("multi", "hinge", {"method": "sigmoid", "slopes": [1.7, 0.2, 3.0], "offsets": [0.5, 0.0, -0.5], "rows": 9}),
        ("multi", "logistic", None),
        ("three", "hinge", {"method": "temperature", "slopes": [0.4], "rows": 9}),
        ("three", "softmax", None),
        ("three", "logistic", None),
        ("numbers", "squared", None),
    ],
)
def test_onnx_has_the_models_probabilities(tmp_path: Path, kind: str, loss: str, calibration: Any) -> None:
    options: dict[str, Any] = {"stop_words": ["the", "alpha"], "max_token_length": 5}
    if kind == "three":
        options = {"ngram_range": (1, 3)}
    described = {"loss": loss} | ({} if calibration is None else {"calibration": calibration})
    check_onnx(written(tmp_path, ingested(tmp_path, kind, **options), **described), tmp_path / "model.onnx")


def test_json(model: Model, tmp_path: Path) -> None:
    """Read with the standard library alone."""
    assert export_json(model, tmp_path / "model.json") == export_json(model, tmp_path / "model.json")
    read = json.loads((tmp_path / "model.json").read_text())
    text, weighting = read["text"], read["weighting"]
    idf = dict(zip(read["terms"], read["idf"] or [1.0] * len(read["terms"]), strict=True))
    low, high = text["ngram_range"]

    def values(document: str) -> dict[str, float]:
        tokens = re.findall(text["token_pattern"], document.lower() if text["lowercase"] else document)
        tokens = [token for token in tokens if token not in text["stop_words"]]
        grams = Counter(" ".join(tokens[i : i + n]) for n in range(low, high + 1) for i in range(len(tokens) - n + 1))
        tf = {"count": float, "binary": lambda n: 1.0, "log": lambda n: 1 + math.log(n)}[weighting["tf"]]
        found = {term: tf(n) * idf[term] for term, n in grams.items() if term in idf}
        norms = {"none": 1.0, "l2": math.hypot(*found.values())}
        return {term: value / norms[weighting["norm"]] for term, value in found.items()}

    def margin(document: str, output: dict[str, Any]) -> float:
        products = (output["weights"].get(term, 0.0) * value for term, value in values(document).items())
        return float(sum(products, output["intercept"]))

    margins = [[margin(document, output) for output in read["outputs"]] for document in NEW]
    np.testing.assert_allclose(margins, model.margins(NEW), rtol=1e-12, atol=1e-12)
    assert (read["classes"], read["labels"]) == (model.classes, model.label_kind)
    cuts = 0.0 if model.thresholds is None else model.thresholds.margins
    np.testing.assert_array_equal([output["threshold"] for output in read["outputs"]], cuts + np.zeros(model.outputs))


def test_what_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    for number, options in enumerate(
        ({"strip_accents": "unicode"}, {"analyzer": "char"}, {"token_pattern": "hyphens"})
    ):
        folder = tmp_path / str(number)
        model = written(folder, ingested(folder, **options))
        for write, target in ((export_sql, "SQL"), (export_onnx, "ONNX")):
            with raises_code("unsupported-combination", target):
                write(model, tmp_path / "model.sql")
    with raises_code("invalid-option", "'my-model'"):
        export_sql(model, tmp_path / "my-model.sql")
    (tmp_path / "notes.sql").write_text("SELECT 1;")
    folder = tmp_path / "words"
    model = written(folder, ingested(folder))
    for write in (export_sql, export_onnx):
        with raises_code("file-exists"):
            write(model, tmp_path / "notes.sql")


def test_the_command(tmp_path: Path, cli: Cli) -> None:
    model = written(tmp_path, ingested(tmp_path))
    for kind in ("onnx", "sql", "json"):
        printed = cli("export", model.folder, "--to", kind, "--out", tmp_path / f"reviews.{kind}").out
        assert f"reviews.{kind} (" in printed
