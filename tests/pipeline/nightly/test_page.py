"""The page of nightly runs from a synthetic history: figures of promotions and classes."""

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sparseoco.pipeline.nightly import records
from sparseoco.storage.tables import Row
from tests.support.pages import figures

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOSTILE = "<script>alert(1)</script>"


def rows_of(schema: Any, rows: list[Row]) -> list[Row]:
    """Rows with all columns of a schema, those not given null."""
    return [dict.fromkeys(schema.names) | row for row in rows]


def history(increments: int) -> list[Row]:
    random, rows = np.random.default_rng(1), list[Row]()
    same = {"new_terms": 100, "configuration": 0, "algorithm": "adagrad", "parameters": '{"eta": 1.0, "lam": 1e-06}'}
    same |= {"nonzeros": 900, "window": 3, "metric": "error", "confidence": 0.95, "margin": 0.0, "store": "0"}
    for n in range(1, increments + 1):
        error = 0.05 + 0.2 / n + float(random.normal(0, 0.005))
        row = same | {"increment": n, "documents": 1000 + 10 * n, "features": 5000 + 100 * n, "promoted": True}
        row |= {"error": error, "value": error, "reason": f"because {HOSTILE}"}
        if n > 1:
            difference = float(random.normal(-0.01, 0.02))
            low, high = difference - 0.015, difference + 0.015
            row |= {"difference": difference, "low": low, "high": high, "promoted": high < 0}
            row |= {"unknown_share": 0.1 / n} | dict.fromkeys(("deployed_error", "deployed_value"), error - difference)
        rows.append(row)
    return rows_of(records.HISTORY, rows)


def classes(increments: int, names: list[str]) -> list[Row]:
    random, rows = np.random.default_rng(2), list[Row]()
    for n in range(1, increments + 1):
        for k, name in enumerate(names):
            recall = None if n == 2 and k == 0 else 0.9 - 0.2 / (n + k)
            row = {"increment": n, "class": name, "documents": 100 * (k + 1), "recall": recall}
            row |= {"precision": float(random.uniform(0.8, 1)), "deployed_recall": 0.7, "deployed_precision": 0.8}
            rows.append(row)
    return rows_of(records.CLASSES, rows)


def times(increments: int) -> list[Row]:
    return [{"increment": n, "seconds": 2.0, "ended": NOW} for n in range(1, increments + 1)]


def page_of(
    history: list[Row],
    *,
    classes: Sequence[Row] = (),
    configurations: Sequence[Row] = (),
    times: Sequence[Row] = (),
    rollbacks: Sequence[Row] = (),
) -> str:
    schemas = (records.HISTORY, records.CONFIGURATIONS, records.CLASSES)
    schemas += (records.INCREMENT_TIMINGS, records.ROLLBACKS, records.QUARANTINE, records.HELD)
    tables = (history, configurations, classes, times, rollbacks, (), ())
    given = (rows_of(schema, own) for own, schema in zip(tables, schemas, strict=True))
    return records.render_nightly("mail", dict(zip(records.DRAWN, given, strict=True)))


def test_the_difference_has_its_interval() -> None:
    rows = history(9)
    chart = records.difference_figure(rows)
    drawn = [point for own in chart.series for point in zip(own.x, own.y, own.low, own.high, strict=True)]
    figures = [(row["increment"], *(100 * row[name] for name in ("difference", "low", "high"))) for row in rows[1:]]
    assert sorted(drawn) == figures
    assert {own.name for own in chart.series} == {"promoted", "not promoted"}
    row = rows[3] | {"difference": -0.0123, "low": -0.02, "high": 0.001}
    shown = records.difference_text(row).replace("\N{NO-BREAK SPACE}", " ")
    assert shown == "−1.23 % (95 % interval −2.00 % to +0.10 %)"
    assert records.difference_text(row | {"metric": "roc_auc", "low": None}) == "−0.0123"
    assert records.difference_text(rows[0]) == "–"


def test_an_outlier_does_not_flatten_the_other_differences() -> None:
    rows = history(9)
    rows[4] |= {"difference": -0.86, "low": -0.87, "high": -0.85}
    others = max(100 * max(abs(row["low"]), abs(row["high"])) for row in rows[1:] if row is not rows[4])
    chart = records.difference_figure(rows)
    assert -6 * others < chart.y.low < -others
    assert [level.value for level in chart.levels] == [0, min(y for own in chart.series for y in own.low)]
    assert "−86.00" in "".join(label for own in chart.series for label in own.labels)


def test_recall_of_the_largest_classes() -> None:
    names = [f"class {k}" for k in range(20)]
    rows = classes(4, names)
    chart = records.recall_figure(rows)
    assert [own.name for own in chart.series] == names[:7:-1]
    last = chart.series[0]
    assert last.y == pytest.approx([100 * row["recall"] for row in rows if row["class"] == "class 19"])
    first = records.recall_figure(classes(3, ["a", "b"])).series[1]
    assert first.y[1] is None


def test_drift_is_against_the_increments_before() -> None:
    counts = [(30, 10), (10, 30), (20, 20)]
    own = [
        {"increment": n, "class": name, "documents": rows}
        for n, pair in enumerate(counts, 1)
        for name, rows in zip("ab", pair, strict=True)
    ]
    rows = [row | {"unknown_to_deployed": unknown} for row, unknown in zip(history(3), (None, 0.1, 0.3), strict=True)]
    chart = records.drift_figure(rows, own)
    assert chart is not None
    labels, words = chart.series
    assert (labels.x, labels.y) == ([2, 3], [50.0, 0.0])
    assert (words.x, words.y) == ([2, 3], [10.0, 30.0])
    shares = records.shares_figure([row | {"documents": 40} for row in rows], rows_of(records.CLASSES, own))
    assert shares is not None
    assert [series.y for series in shares.series] == [[75.0, 25.0, 50.0], [25.0, 75.0, 50.0]]
    assert records.drift_figure(history(2), []) is None


def test_the_page_shows_promotions_and_classes() -> None:
    rows = history(9)
    configuration = {"increment": 9, "configuration": 0, "algorithm": "adagrad", "parameters": "{}", "status": "ok"}
    configurations = rows_of(records.CONFIGURATIONS, [configuration | {"documents": 9}])
    page = page_of(rows, classes=classes(9, ["ham", HOSTILE]), configurations=configurations, times=times(9))
    assert set(figures(page)) == {"errors", "difference", "drift", "shares", "recall"}
    assert f"Last increment: {records.difference_text(rows[-1])}." in page
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
        page = page_of(rows[:total], rollbacks=made)
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
    assert "promoted over the model of increment 2: " in records.increment_line(rows[3])


def test_the_page_does_not_grow_with_the_increments() -> None:
    """It has the last increments; totals are those of all."""

    def page(increments: int) -> str:
        return page_of(history(increments), classes=classes(increments, ["ham", "spam"]), times=times(increments))

    short, long = page(records.SHOWN), page(5 * records.SHOWN)
    assert len(long) < 1.1 * len(short)
    assert f"The last {records.SHOWN} of {5 * records.SHOWN}" in long
    assert "The last " not in short.split(">Increments</h2>")[1]
    assert f"<dd>{sum(1000 + 10 * n for n in range(1, 5 * records.SHOWN + 1)):,}</dd>" in long
