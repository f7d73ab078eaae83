"""Axes, and what drawings are: well-formed, equal for equal charts, small for many classes, hostile text only text."""

import math

import numpy as np
import pytest

from sparseoco.report.charts import (
    DASHES,
    MARKERS,
    ZERO,
    Axis,
    Chart,
    HeatMap,
    Level,
    Series,
    category_axis,
    integer_axis,
    linear_axis,
    log_axis,
)
from sparseoco.report.svg import plot
from tests.support.pages import figures, labels, legend

HOSTILE = "</svg><script>alert(1)</script>\x00\x1f\t\n\"'&amp; ÅÄÖ 汉字 \U0001f600"


def drawn(chart: Chart | HeatMap, title: str = "title") -> str:
    return f"default-src 'none' <script></script>{plot('name', title, chart).html}"


def test_ticks_of_linear_axes_are_round_numbers_within() -> None:
    for low, high in ((0.0, 1.0), (-3.2, 7.0), (0.0213, 0.0217), (0, 25_000), (-1e-9, 1e-9), (5.0, 5.0), (0.0, 0.0)):
        axis = linear_axis("x", [low, high])
        assert 2 <= len(axis.ticks) <= 12
        assert all(0 <= axis.position(value) <= 1 for value, _ in axis.ticks)
        assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    assert [text for _, text in linear_axis("x", [0, 100], zero=True).ticks] == ["0", "20", "40", "60", "80", "100"]


def ticks(axis: Axis) -> str:
    return " ".join(text for _, text in axis.ticks)


def test_ticks_of_logarithmic_axes() -> None:
    assert ticks(log_axis("x", [1, 1000])) == "1 2 5 10 20 50 100 200 500 1k"
    assert ticks(log_axis("x", [0, 10, 1e6], counts=True)) == "0 1 10 100 1k 10k 100k 1M"
    assert ticks(log_axis("x", [59, 60], counts=True)) == "56 58 60 62 64"
    assert ticks(log_axis("x", [1000, 1500])) == "1k 1.1k 1.2k 1.3k 1.4k 1.5k 1.6k"
    small = log_axis("x", [1e-6, 10.0])
    assert ticks(small) == "10⁻⁶ 10⁻⁵ 10⁻⁴ 0.001 0.01 0.1 1 10"
    assert 0 < small.position(1e-6) < small.position(1.0) < 1
    assert log_axis("x", [0, 0], counts=True).position(ZERO) == pytest.approx(0.5)
    assert len(log_axis("x", [1e-300, 1e300]).ticks) < 20


@pytest.mark.fault(46)
def test_every_style_is_drawn_and_hostile_text_is_only_text() -> None:
    x = [1, 10, 100, 1000]
    series = [
        Series(
            HOSTILE, x, [1, None, math.nan, 3], "c0", dash=dash, marker=marker, heading=HOSTILE, labels=[HOSTILE] * 4
        )
        for dash, marker in zip([*DASHES, ""], [*MARKERS, "", "circle"], strict=True)
    ]
    series += [
        Series("band", x, [1, 2, 3, 4], "c1", low=[0, 1, 2, 3], high=[2, 3, 4, 5], band=True),
        Series("bars", x, [1, 2, 3, 4], "c2", low=[0, 1, 2, 3], high=[2, 3, 4, 5], bars=0.5, dash="", group="g"),
        Series("steps", x, [1, 2, 3, 1e300], "c2", steps=True, legend=False, group="g"),
    ]
    levels = [Level(2.0, HOSTILE), Level(10, HOSTILE, vertical=True), Level(1e9, "outside")]
    chart = Chart(log_axis(HOSTILE, x), linear_axis(HOSTILE, [0, 5]), series, levels)
    page = drawn(chart, HOSTILE)
    (figure,) = figures(page, whole=False).values()
    assert "alert(1)" in page
    assert "outside" not in page
    assert len(legend(figure)) == 11
    assert len(labels(figure)) == 9
    assert page == drawn(chart, HOSTILE)


def test_charts_without_points_and_with_one() -> None:
    empty = Chart(log_axis("x", []), linear_axis("y", []), [])
    assert figures(drawn(empty), whole=False)
    one = Series("one", [3], [0.0], "c0", marker="x", labels=["at 3"])
    for x in (log_axis("x", [3]), linear_axis("x", [3]), category_axis("x", []), integer_axis("x", [3])):
        (figure,) = figures(drawn(Chart(x, linear_axis("y", [0.0]), [one])), whole=False).values()
        assert legend(figure) == []
        assert labels(figure) == [["at 3"]]


@pytest.mark.parametrize("classes", [1, 2, 20, 200])
def test_confusions_of_many_classes_stay_small(classes: int) -> None:
    random = np.random.default_rng(3)
    counts = random.poisson(2.0, (classes, classes)) + np.diag(random.integers(1, 500, classes))
    counts[0] = 0
    names = [f"{HOSTILE} {k}" for k in range(classes)]
    page = drawn(HeatMap(names, counts.tolist(), "true class", "predicted class"))
    (figure,) = figures(page, whole=False).values()
    assert len(page) < 400_000
    (matrix,) = (own for own in figure.iter("g") if own.attrib.get("class") == "matrix")
    read = np.zeros_like(counts)
    for i, row in enumerate(matrix.attrib["data-counts"].split(";")):
        for cell in row.split():
            j, count = cell.split(":")
            read[i, int(j)] = int(count)
    assert (read == counts).all()
    shaded = sum(
        int(run.split("h")[1])
        for own in figure.iter("path")
        if own.attrib["class"].split()[0] in ("right", "wrong")
        for run in own.attrib["d"].split("M")[1:]
    )
    assert shaded == (counts > 0).sum()
