"""The page of scores, and charts."""

import html
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest

from sparseoco.core.errors import DamagedError
from sparseoco.core.formatting import integer, percent
from sparseoco.report import charts
from sparseoco.report.charts import draw_chart, plot
from sparseoco.report.scores import BARS, OTHERS, histogram, histogram_figure, write_scores_page
from sparseoco.scoring.distribution import DISTRIBUTION, DISTRIBUTION_SCHEMA
from sparseoco.scoring.kept import read_kept
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import read_parquet_file, write_parquet
from sparseoco.training.decisions import Predictions, predictions_table
from tests.scoring.test_score import scored, table
from tests.support.ingests import WORDS, jsonl, random_texts
from tests.support.models import random_model
from tests.support.pages import figures, labels, legend

# ----------------------------------------------------------------------------------------------------------------------
# The page of scores: what it says equals a count of the documents, and it holds no text.


FILES = ["one.jsonl", "two.jsonl"]
TESTED = 97


def write_inputs(folder: Path, label: Any) -> None:
    for seed, name in enumerate(FILES):
        (folder / name).write_bytes(jsonl(random_texts(120, seed), label=label))


def words(page: str) -> str:
    """The text of a page, without its elements."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two classes with predictions of test documents, and documents with labels."""
    folder = tmp_path_factory.mktemp("page")
    random_model(folder / "run", positive_class="b")
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, TESTED)
    margins = np.round(rng.normal(size=(TESTED, 1)) + labels[:, None])
    ids = pa.array([f"t{k}" for k in range(TESTED)])
    write_parquet(folder / "run/test.parquet", predictions_table(Predictions(ids, None, labels, margins), ("a", "b")))
    commit_json(folder / "run/run.json", {})
    write_inputs(folder, lambda k: "ab"[k % 2])
    return folder


def test_says_what_was_promised_and_what_is_kept(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "<scores>"
    scored(folder, FILES, out, labelled=True, keep_top="15%", keep_as="ids")
    page = write_scores_page(out).read_text()
    drawn, text = figures(page), words(page)
    kept, documents = read_kept(out), table(out)
    chosen = documents["margin"].to_numpy() >= kept.value
    right = np.array([label == "b" for label in documents["label"].to_pylist()])
    outcome = (len(right), right.mean(), int(chosen.sum()), right[chosen].mean(), right[chosen].sum() / right.sum())
    tested = read_parquet_file(folder / "run/test.parquet")
    wanted, margins = np.array([label == "b" for label in tested["label"].to_pylist()]), tested["margin"].to_numpy()
    best = margins >= np.sort(margins)[-int(np.ceil(chosen.mean() * TESTED))]
    promise = (TESTED, wanted.mean(), int(best.sum()), wanted[best].mean(), wanted[best].sum() / wanted.sum())
    assert best.sum() > np.ceil(chosen.mean() * TESTED)  # ties
    for name, row in (("promise", promise), ("outcome", outcome)):
        low, high = binomtest(round(row[3] * row[2]), row[2]).proportion_ci(method="wilson")
        cells = [integer(row[0]), percent(row[1]), integer(row[2]), percent(row[3])]
        cells += [f"{percent(low)} to {percent(high)}", percent(row[4])]
        expected = " ".join(cells).replace("\xa0", " ")
        assert re.search(f"{name}: [a-z ]* {re.escape(expected)}", text), (name, expected)

    assert legend(drawn["score0"]) == ["a", "b"]
    assert legend(drawn["sources"]) == ["one.jsonl", "two.jsonl"]
    assert set(drawn) == {"score0", "score1", "sources"}
    assert "kept from here" in page
    assert "<scores>" not in page
    assert not any(f" {word} " in text for word in WORDS if word.lower() != "the")


def test_without_labels_only_the_promise(folder: Path, tmp_path: Path) -> None:
    scored(folder, FILES, tmp_path, keep_above=0.6, keep_as="ids")
    text = words(write_scores_page(tmp_path).read_text())
    assert "promise: test documents of the run" in text
    assert "outcome:" not in text
    assert "Labels would show the precision" in text
    assert "probability of b above 0.6" in text


def test_nothing_kept_and_a_source_without_documents(folder: Path, tmp_path: Path) -> None:
    (folder / "empty.jsonl").write_bytes(b"")
    scored(folder, [*FILES, "empty.jsonl"], tmp_path, keep_above=1.0, keep_as="ids", labelled=True)
    text = words(write_scores_page(tmp_path).read_text())
    assert "0 kept: probability of b above 1.00" in text
    assert "1 source without documents" in text
    assert text.count(" – ") >= 2  # the precision of no documents


def test_is_written_only_if_it_changes(folder: Path, tmp_path: Path) -> None:
    scored(folder, FILES[:1], tmp_path)
    page = write_scores_page(tmp_path)
    before = page.stat().st_mtime_ns, page.read_bytes()
    write_scores_page(tmp_path)
    assert page.stat().st_mtime_ns == before[0]
    assert "kept" not in words(page.read_text())
    scored(folder, FILES, tmp_path)
    write_scores_page(tmp_path)
    assert page.read_bytes() != before[1]
    (tmp_path / DISTRIBUTION).write_bytes(b"PAR1")
    with pytest.raises(DamagedError):
        write_scores_page(tmp_path)


LABELS = {"classes": lambda k: "ab"[k % 2], "multi": lambda k: ["a", "b"][k % 3 :], "numbers": lambda k: 0.5 * k}


@pytest.mark.parametrize(
    ("described", "options", "expected"),
    [
        ({"classes": 4}, {}, ["largest probability"]),
        ({"classes": 3}, {"keep_top": "9", "keep_class": "c"}, ["probability of c"]),
        ({"classes": 3, "labels": "multi"}, {"keep_top": "20%", "keep_class": "a"}, ["margin of a", "not a"]),
        ({"loss": "hinge"}, {"keep_top": "20%", "keep_class": "a"}, ["margin of a"]),
        ({"labels": "numbers"}, {"keep_top": "20%"}, ["prediction at least"]),
    ],
)
def test_every_kind_of_model(
    described: dict[str, Any], options: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    random_model(tmp_path / "run", **described)
    kind = described.get("labels", "classes")
    write_inputs(tmp_path, LABELS[kind])
    scored(tmp_path, FILES, tmp_path / "out", labelled=True, **({"keep_as": "ids"} | options if options else {}))
    page = write_scores_page(tmp_path / "out").read_text()
    assert {"score0", "sources"} <= set(figures(page))
    for words_of_it in expected:
        assert words_of_it in words(page)
    assert ("outcome:" in page) == (bool(options) and kind != "numbers")


def rows_of(counts: dict[tuple[int, str], int], width: float) -> pa.Table:
    """A distribution with so many documents in the bin of a number, of a source."""
    rows = [
        {"model": "m", "column": "margin", "source": name, "lower": width * k, "upper": width * (k + 1)}
        | {"documents": n}
        for (k, name), n in counts.items()
    ]
    return pa.Table.from_pylist(rows, schema=DISTRIBUTION_SCHEMA)


def test_a_histogram_counts_every_document_once() -> None:
    rng = np.random.default_rng(2)
    counts = {(int(k), f"s{s}"): int(n) for s in range(9) for k, n in enumerate(rng.integers(1, 50, 200), -90)}
    counts |= {(-120, "s0"): 1, (135, "s8"): 2}
    found = histogram(rows_of(counts, 0.125), "source", probability=False)
    assert found.documents.sum() == sum(counts.values())
    assert found.documents.shape == (len(found.names), len(found.edges) - 1)
    assert len(found.edges) - 1 <= BARS
    sizes = {name: sum(n for (_, own), n in counts.items() if own == name) for name in (f"s{k}" for k in range(9))}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    assert found.names == [*largest, OTHERS]
    assert found.documents.sum(axis=1).tolist()[:5] == [sizes[name] for name in largest]
    low, high = found.edges[0], found.edges[-1]
    assert (low, high) == (-15.0, found.edges[-1])
    assert high > 0.125 * 135
    for j, (left, right) in enumerate(zip(found.edges[:-1], found.edges[1:], strict=True)):
        assert found.documents[:, j].sum() == sum(n for (k, _), n in counts.items() if left <= 0.125 * k < right)


def test_probabilities_are_drawn_from_0_to_1() -> None:
    found = histogram(rows_of({(48, "s"): 7}, 0.02), "source", probability=True)
    assert found.edges.tolist() == pytest.approx([k / 50 for k in range(51)])
    assert found.documents[0, 48] == found.documents.sum() == 7


@pytest.mark.parametrize("width", [2.0**-51, 2.0**-64, 1e6])
def test_equal_scores_are_one_bar(width: float) -> None:
    found = histogram(rows_of({(5, "s"): 7}, width), "source", probability=False)
    assert found.documents.tolist() == [[7]]
    assert "nan" not in draw_chart(histogram_figure(found, "margin", {}), "one", "one")


def test_bars_are_stacked() -> None:
    found = histogram(rows_of({(0, "s"): 3, (0, "t"): 1, (1, "t"): 1}, 1.0), "source", probability=False)
    first, second = histogram_figure(found, "margin", {"s": "c0", "t": "c1"}, 0.5).series
    assert (first.base, first.y) == ([0.0, 0.0], [60.0, None])
    assert (second.base, second.y) == ([60.0, 0.0], [80.0, 20.0])
    assert first.labels[0].endswith("3 documents, 60.0\xa0%")


# ----------------------------------------------------------------------------------------------------------------------
# Axes, and what drawings are: well-formed, equal for equal charts, small for many classes, hostile text only text.


HOSTILE = "</svg><script>alert(1)</script>\x00\x1f\t\n\"'&amp; ÅÄÖ 汉字 \U0001f600"


def drawn(chart: charts.Chart, title: str = "title") -> str:
    return f"default-src 'none' <script></script>{plot('name', title, chart).html}"


def test_ticks_of_linear_axes_are_round_numbers_within() -> None:
    for low, high in ((0.0, 1.0), (-3.2, 7.0), (0.0213, 0.0217), (0, 25_000), (-1e-9, 1e-9), (5.0, 5.0), (0.0, 0.0)):
        axis = charts.linear_axis("x", [low, high])
        assert 2 <= len(axis.ticks) <= 12
        assert all(0 <= axis.position(value) <= 1 for value, _ in axis.ticks)
        assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    assert ticks(charts.linear_axis("x", [0, 100], zero=True)) == "0 20 40 60 80 100"


def ticks(axis: charts.Axis) -> str:
    return " ".join(text for _, text in axis.ticks)


def test_ticks_of_logarithmic_axes() -> None:
    assert ticks(charts.log_axis("x", [1, 1000])) == "1 2 5 10 20 50 100 200 500 1k"
    assert ticks(charts.log_axis("x", [0, 10, 1e6], counts=True)) == "0 1 10 100 1k 10k 100k 1M"
    assert ticks(charts.log_axis("x", [59, 60], counts=True)) == "56 58 60 62 64"
    assert ticks(charts.log_axis("x", [1000, 1500])) == "1k 1.1k 1.2k 1.3k 1.4k 1.5k 1.6k"
    small = charts.log_axis("x", [1e-6, 10.0])
    assert ticks(small) == "10⁻⁶ 10⁻⁵ 10⁻⁴ 0.001 0.01 0.1 1 10"
    assert 0 < small.position(1e-6) < small.position(1.0) < 1
    assert charts.log_axis("x", [0, 0], counts=True).position(charts.ZERO) == pytest.approx(0.5)
    assert len(charts.log_axis("x", [1e-300, 1e300]).ticks) < 20


@pytest.mark.fault(46)
def test_every_style_is_drawn_and_hostile_text_is_only_text() -> None:
    x = [1, 10, 100, 1000]
    series = [
        charts.Series(
            HOSTILE, x, [1, None, math.nan, 3], "c0", dash=dash, marker=marker, heading=HOSTILE, labels=[HOSTILE] * 4
        )
        for dash, marker in zip([*charts.DASHES, ""], [*charts.MARKERS, *[""] * 3, "circle"], strict=True)
    ]
    series += [
        charts.Series("band", x, [1, 2, 3, 4], "c1", low=[0, 1, 2, 3], high=[2, 3, 4, 5], band=True),
        charts.Series("bars", x, [1, 2, 3, 4], "c2", low=[0, 1, 2, 3], high=[2, 3, 4, 5], bars=0.5, dash="", group="g"),
        charts.Series("steps", x, [1, 2, 3, 1e300], "c2", steps=True, legend=False, group="g"),
    ]
    levels = [charts.Level(2.0, HOSTILE), charts.Level(10, HOSTILE, vertical=True), charts.Level(1e9, "outside")]
    chart = charts.Chart(charts.log_axis(HOSTILE, x), charts.linear_axis(HOSTILE, [0, 5]), series, levels)
    page = drawn(chart, HOSTILE)
    (figure,) = figures(page, whole=False).values()
    assert "alert(1)" in page
    assert "outside" not in page
    assert len(legend(figure)) == 11
    assert len(labels(figure)) == 9
    assert page == drawn(chart, HOSTILE)


def test_charts_without_points_and_with_one() -> None:
    empty = charts.Chart(charts.log_axis("x", []), charts.linear_axis("y", []), [])
    assert figures(drawn(empty), whole=False)
    one = charts.Series("one", [3], [0.0], "c0", marker="cross", labels=["at 3"])
    for x in (
        charts.log_axis("x", [3]),
        charts.linear_axis("x", [3]),
        charts.Axis("x", -0.5, 0.5, ()),
        charts.integer_axis("x", [3]),
    ):
        (figure,) = figures(drawn(charts.Chart(x, charts.linear_axis("y", [0.0]), [one])), whole=False).values()
        assert legend(figure) == []
        assert labels(figure) == [["at 3"]]
