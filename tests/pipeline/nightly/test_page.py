"""The page of nightly runs from a synthetic history: figures of promotions and classes."""

import datetime
import re
from typing import Any

import numpy as np
import pytest

from sparseoco.core.formatting import percent
from sparseoco.pipeline.nightly.history import (
    CLASSES,
    CONFIGURATIONS,
    HISTORY,
    INCREMENT_TIMINGS,
    QUARANTINE,
    ROLLBACKS,
    HistoryRows,
)
from sparseoco.pipeline.nightly.page import (
    SHOWN,
    class_figure,
    difference_figure,
    difference_text,
    increment_line,
    render_nightly,
)
from sparseoco.storage.tables import Row
from tests.support.pages import figures

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOSTILE = "<script>alert(1)</script>"


def rows_of(schema: Any, rows: list[Row]) -> list[Row]:
    """Rows with all columns of a schema, those not given null."""
    return [dict.fromkeys(schema.names) | row for row in rows]


def history(increments: int, metric: str = "error") -> list[Row]:
    random = np.random.default_rng(1)
    rows = []
    for n in range(1, increments + 1):
        error = 0.05 + 0.2 / n + float(random.normal(0, 0.005))
        difference = float(random.normal(-0.01, 0.02)) if n > 1 else None
        rows.append(
            {
                "increment": n,
                "documents": 1000 + 10 * n,
                "features": 5000 + 100 * n,
                "new_terms": 100,
                "unknown_share": 0.1 / n if n > 1 else None,
                "configuration": 0,
                "algorithm": "adagrad",
                "parameters": '{"eta": 1.0, "lam": 1e-06}',
                "nonzeros": 900,
                "window": 3,
                "error": error,
                "deployed_error": None if difference is None else error - difference,
                "metric": metric,
                "value": error,
                "deployed_value": None if difference is None else error - difference,
                "difference": difference,
                "low": None if difference is None else difference - 0.015,
                "high": None if difference is None else difference + 0.015,
                "confidence": 0.95,
                "margin": 0.0,
                "promoted": difference is None or difference + 0.015 < 0,
                "reason": f"because {HOSTILE}",
                "store": "0",
            }
        )
    return rows_of(HISTORY, rows)


def classes(increments: int, names: list[str]) -> list[Row]:
    random = np.random.default_rng(2)
    return rows_of(
        CLASSES,
        [
            {
                "increment": n,
                "class": name,
                "documents": 100 * (k + 1),
                "recall": None if n == 2 and k == 0 else 0.9 - 0.2 / (n + k),
                "precision": float(random.uniform(0.8, 1)),
                "deployed_recall": 0.7,
                "deployed_precision": 0.8,
            }
            for n in range(1, increments + 1)
            for k, name in enumerate(names)
        ],
    )


def test_the_difference_has_its_interval() -> None:
    rows = history(9)
    chart = difference_figure(rows)
    drawn = {
        x: (y, low, high)
        for own in chart.series
        for x, y, low, high in zip(own.x, own.y, own.low, own.high, strict=True)
    }
    assert drawn == {
        row["increment"]: (100 * row["difference"], 100 * row["low"], 100 * row["high"])
        for row in rows
        if row["difference"] is not None
    }
    assert {own.name for own in chart.series} == {"promoted", "not promoted"}
    row = rows[3] | {"difference": -0.0123, "low": -0.02, "high": 0.001}
    assert difference_text(row).replace("\N{NO-BREAK SPACE}", " ") == "−1.23 % (95 % interval −2.00 % to +0.10 %)"
    assert difference_text(row | {"metric": "roc_auc", "low": None}) == "−0.0123"
    assert difference_text(rows[0]) == "–"


def test_an_outlier_does_not_flatten_the_other_differences() -> None:
    rows = history(9)
    rows[4] |= {"difference": -0.86, "low": -0.87, "high": -0.85}
    others = max(100 * max(abs(row["low"]), abs(row["high"])) for row in rows[1:] if row is not rows[4])
    chart = difference_figure(rows)
    assert -6 * others < chart.y.low < -others
    assert [level.value for level in chart.levels] == [0, min(y for own in chart.series for y in own.low)]
    assert "−86.00" in "".join(label for own in chart.series for label in own.labels)


def test_recall_of_the_largest_classes() -> None:
    names = [f"class {k}" for k in range(20)]
    rows = classes(4, names)
    chart = class_figure(rows, "recall")
    assert [own.name for own in chart.series] == names[:7:-1]
    last = chart.series[0]
    assert last.y == pytest.approx([100 * row["recall"] for row in rows if row["class"] == "class 19"])
    first = class_figure(classes(3, ["a", "b"]), "recall").series[1]
    assert first.y[1] is None


def test_the_page_shows_promotions_and_classes() -> None:
    timings = [
        {"increment": n, "seconds": 2.0, "ended": datetime.datetime(2026, 1, n, tzinfo=datetime.UTC)}
        for n in range(1, 10)
    ]
    configurations = rows_of(
        CONFIGURATIONS,
        [
            {
                "increment": 9,
                "configuration": 0,
                "algorithm": "adagrad",
                "parameters": "{}",
                "documents": 9,
                "status": "ok",
            }
        ],
    )
    rows, mix = history(9), classes(9, ["ham", HOSTILE])
    tables = [(HISTORY, rows), (CONFIGURATIONS, configurations), (CLASSES, mix), (INCREMENT_TIMINGS, timings)]
    page = render_nightly(
        "mail", *(HistoryRows.of(own, schema) for schema, own in [*tables, (ROLLBACKS, []), (QUARANTINE, [])])
    )
    assert set(figures(page)) == {"errors", "difference", "recall", "precision", "mix", "unknown"}
    assert f"Last increment: {difference_text(rows[-1])}." in page
    assert "alert(1)" in page


def test_errors_are_those_of_the_models_they_name() -> None:
    """After a rollback, after a promotion, and while the model stays."""
    before = [None, 1, 2, 2]  # deployed when increments 1 to 4 came
    errors = {"error": [0.11, 0.12, 0.13, 0.14], "deployed_error": [None, 0.01, 0.02, 0.95]}
    rows = [
        row | {"deployed": deployed, "promoted": n in (1, 2, 4)} | {name: own[n - 1] for name, own in errors.items()}
        for n, (row, deployed) in enumerate(zip(history(4), before, strict=True), 1)
    ]

    def shown(total: int, *rollback: int) -> dict[str, str]:
        made = [{"after": total, "increment": n, "store": "0", "time": NOW} for n in rollback]
        tables = [(HISTORY, rows[:total]), (CONFIGURATIONS, []), (CLASSES, []), (INCREMENT_TIMINGS, [])]
        page = render_nightly(
            "mail", *(HistoryRows.of(own, schema) for schema, own in [*tables, (ROLLBACKS, made), (QUARANTINE, [])])
        )
        return {k: v.replace("\N{NO-BREAK SPACE}", " ") for k, v in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page)}

    rolled_back = shown(4, 1)
    assert rolled_back["increment of the deployed model"] == "1"
    assert rolled_back["error of the deployed model on increment 2"] == "1.0 %"
    assert rolled_back["error of the model deployed before, of increment 2, on the last increment"] == "95.0 %"
    assert rolled_back["error of the candidate on the last increment"] == "14.0 %"
    promoted = shown(4)
    assert promoted["progressive error of the deployed model on the last increment"] == "14.0 %"
    assert promoted["error of the model deployed before, of increment 2, on the last increment"] == "95.0 %"
    stays = shown(3)
    assert stays["error of the deployed model on the last increment"] == "2.0 %"
    assert [name for name in stays if "error" in name] == [
        "error of the deployed model on the last increment",
        "error of the candidate on the last increment",
    ]
    assert "promoted over the model of increment 2: " in increment_line(rows[3])


def test_the_page_does_not_grow_with_the_increments() -> None:
    """It has the last increments; totals and the shift of the class mix are those of all."""

    def page(increments: int) -> str:
        times = [{"increment": n, "seconds": 2.0, "ended": NOW} for n in range(1, increments + 1)]
        mix = classes(increments, ["ham", "spam"])
        mix[-1]["documents"] = 600
        tables = [(HISTORY, history(increments)), (CONFIGURATIONS, []), (CLASSES, mix), (INCREMENT_TIMINGS, times)]
        return render_nightly(
            "mail", *(HistoryRows.of(own, schema) for schema, own in [*tables, (ROLLBACKS, []), (QUARANTINE, [])])
        )

    short, long = page(SHOWN), page(5 * SHOWN)
    assert len(long) < 1.1 * len(short)
    assert f"The last {SHOWN} of {5 * SHOWN}" in long
    assert "The last " not in short.split(">Increments</h2>")[1]
    before = 5 * SHOWN - 1
    shift = abs(600 / 700 - 200 / 300)
    assert f"differs from that of all before by\n  {percent(shift)}" in long
    assert f"<dd>{sum(1000 + 10 * n for n in range(1, before + 2)):,}</dd>" in long
