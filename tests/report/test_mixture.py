"""The page of a mixture from synthetic marks: lines that differ, features, and the test error where there is one."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.report.charts import styles
from sparseoco.report.mixture import MixtureColumn, mixture_errors_figure, weights_figure, write_mixture_page
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import WEIGHTS, write_parquet
from tests.support.errors import raises_code
from tests.support.pages import figures, legend

MARKS = (10, 100, 1000)
ALGORITHMS = [("adagrad", 6), ("ftrl-proximal", 4)]


def columns() -> list[dict]:
    named = [(name, json.dumps({"eta": 0.1 * k, "lam": 1e-6})) for name, number in ALGORITHMS for k in range(number)]
    return [
        {
            "rows": rows,
            "column": k,
            "algorithm": name,
            "parameters": parameters,
            "weight": (k + 1) / 55,
            "progressive_loss": None if k == 3 else 0.5,
            "progressive_error": None if k == 3 else 0.3 - 0.01 * k,
            "diverged": 7 if k == 3 else None,
        }
        for rows in MARKS
        for k, (name, parameters) in enumerate(named)
    ]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    commit_json(
        tmp_path / "model.json",
        {
            "algorithm": "auto",
            "classes": ["ham", "<b>spam"],
            "nonzeros": 2,
            "features": {"count": 50},
            "seed": 0,
            "loss": "logistic",
            "penalty": "l1",
            "epochs": 1,
            "mixture": {"options": {"by": "error", "keep": "mixture", "predict_gradient": "last"}, "columns": []},
            "provenance": {"sparseoco": "0", "store": "0"},
            "weights_sha256": "0",
        },
    )
    regret = [
        {
            "rows": rows,
            "progressive_loss": 0.4,
            "progressive_error": 0.2,
            "best_loss": 0.3,
            "best_loss_column": 1,
            "best_error": 0.1,
            "best_error_column": 9,
            "drawn": 0.3,
            "regret": 2.0,
            "bound": 9.0,
            "printed_bound": None,
        }
        for rows in MARKS
    ]
    for name, rows in (("regret", regret), ("columns", columns()), ("timings", [{"seconds": 1.5}])):
        write_parquet(tmp_path / f"{name}.parquet", pa.Table.from_pylist(rows))
    weights = [
        {"feature_id": k, "feature": f"term{k}", "class": "<b>spam", "weight": w, "count": 3, "documents": 2}
        for k, w in enumerate((1.0, -2.0))
    ]
    write_parquet(tmp_path / "weights.parquet", pa.Table.from_pylist(weights, schema=WEIGHTS))
    return tmp_path


def test_the_page_has_classes_features_and_the_test_error(model: Path) -> None:
    page = write_mixture_page(model).read_text()
    drawn = figures(page)
    assert set(drawn) == {"weights", "errors", "regret"}
    assert "Test error" not in page
    assert "uses 2 of 50 features" in page
    assert "term1" in page
    assert "<b>" not in page
    assert len(legend(drawn["weights"])) == 9
    scores = [{"name": name, "rows": 10, "precision": 0.9, "recall": 0.8, "f1": 0.85} for name in ("ham", "<b>spam")]
    evaluation = {"rows": 20, "error": 0.05, "majority_error": 0.5, "classes": scores, "confusion": [[9, 1], [0, 10]]}
    commit_json(model / "evaluation.json", evaluation)
    page = write_mixture_page(model).read_text()
    assert "Test error 5.00&nbsp;% on 20 documents" in page
    assert "confusion" in figures(page)


def test_lines_differ(model: Path) -> None:
    rows = pq.read_table(model / "columns.parquet").to_pylist()
    found = [
        MixtureColumn(k, rows[k]["algorithm"], f"eta {k}", [row for row in rows if row["column"] == k])
        for k in range(10)
    ]
    style = styles(column.algorithm for column in found)
    regret = pq.read_table(model / "regret.parquet").to_pylist()
    for chart in (weights_figure(found, style), mixture_errors_figure(regret, found, style)):
        looks = [(own.colour, own.dash, own.width) for own in chart.series]
        assert len(set(looks)) == len(looks) >= 9


def test_a_model_that_is_no_mixture_is_refused(tmp_path: Path) -> None:
    commit_json(tmp_path / "model.json", {"algorithm": "fobos"})
    with raises_code("not-a-mixture", kind=InputError):
        write_mixture_page(tmp_path)
