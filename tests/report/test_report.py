"""The report of a run: its page, features, style, predictions, and files of another shape."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from sparseoco.core.errors import FolderInUseError, SparseocoError, StorageError
from sparseoco.core.formatting import percent_with_error
from sparseoco.ops.status import read_status
from sparseoco.report import predictions
from sparseoco.report.charts import styles
from sparseoco.report.figures import growth_figure, regret_lines, share_column, sparsity_figure, strongest
from sparseoco.report.page import at_threshold, summary_markdown, write_report
from sparseoco.report.results import _labels, best_of_each, leaderboard_rows, pareto_front, read_results
from sparseoco.storage.commit import commit_json, exclusive_lock, read_json
from sparseoco.storage.locations import location
from sparseoco.storage.tables import write_parquet, write_result_table
from sparseoco.store.manifest import ClassEntry
from sparseoco.store.shards import Store
from sparseoco.store.weighting import COUNTS
from sparseoco.text.options import TextOptions
from sparseoco.training.decisions import Predictions, fit_calibration, read_predictions
from sparseoco.training.models import Model, write_model
from sparseoco.training.search_tables import METRICS_SCHEMA
from tests.report import synthetic
from tests.report.synthetic import ALGORITHMS, grid, write_predictions, write_regret, write_run
from tests.support.damage import checksummed, reshaped
from tests.support.errors import raises_code
from tests.support.pages import figures
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------


TEN = tuple((f"class {k}", 1500 - 140 * k) for k in range(10))
HOSTILE = ["<script>alert(2)</script>", "=cmd()", "</style>", "&amp;", "a" * 300, "$x$", "%{y}", "| `code` |"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"), per_algorithm=4, broken=3)


@pytest.fixture(scope="module")
def page(run):
    return write_report(run).read_text()


def test_equal_inputs_give_equal_bytes(run, page, tmp_path):
    twin = write_run(tmp_path / "elsewhere", per_algorithm=4, broken=3)
    assert write_report(twin).read_text() == page
    assert (twin / "report/leaderboard.parquet").read_bytes() == (run / "report/leaderboard.parquet").read_bytes()


def test_what_the_page_says(page):
    """What was learned, how good and how sparse it is, and why some configurations did not finish."""
    assert set(figures(page)) == {"curves", "sparsity", "density"}
    assert len(page) < 200_000
    assert re.search(r"documents in 2 classes: held-out error [\d.]+ ± [\d.]+\s%", page)
    for words in ("50.0\N{NO-BREAK SPACE}%", "of 116,178 features", "16 configurations of 4 algorithms"):
        assert words in page
    for reason in ("weights are not finite at t = 1,204", "worker died 4 times &lt;b&gt;"):
        assert reason in page


def test_the_leaderboard_agrees_with_the_metrics(run, page):
    table = pq.read_table(run / "report/leaderboard.parquet").to_pylist()
    metrics = pq.read_table(run / "search/metrics.parquet").to_pylist()
    assert [row["rank"] for row in table] == [*range(1, 14), None, None, None]
    assert {row["status"] for row in table[-3:]} == {"diverged", "failed"}
    for row in table[:13]:
        of = [m for m in metrics if (m["configuration"], m["epoch"]) == (row["configuration"], row["epoch"])]
        errors = [m["held_out_error"] for m in of]
        mean = sum(errors) / 5
        assert row["error"] == pytest.approx(mean)
        assert row["standard_error"] == pytest.approx((sum((e - mean) ** 2 for e in errors) / 4 / 5) ** 0.5)
        assert row["nonzeros"] == pytest.approx(sum(m["nonzeros"] for m in of) / 5)
    assert [row["error"] for row in table[:13]] == sorted(row["error"] for row in table[:13])
    assert sum(row["chosen"] for row in table) == 1


def test_best_of_each(run):
    table = leaderboard_rows(read_results(run))
    best = best_of_each(table)
    assert len({s.algorithm for s in best}) == len(best) == 4
    assert best[0].rank == 1
    assert best[0].error == pareto_front(table)[-1].error


@pytest.mark.fault(46)
def test_text_from_data_is_only_ever_text(tmp_path):
    classes = ((HOSTILE[0], 10), (HOSTILE[1], 30))
    run = write_run(tmp_path, classes=classes, words=HOSTILE, name="</title><script>alert(1)</script>", broken=1)
    own = write_report(run).read_text()
    assert "alert(2)" in own
    assert not re.search(r"<script>alert|</style> |<b>", own)
    assert figures(own)
    markdown = summary_markdown(run)
    assert "<script" not in markdown
    assert r"\| \`code\` \|" in markdown


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"classes": TEN, "per_algorithm": 16}, "documents in 10 classes: held-out error"),
        ({"classes": tuple((f"c{k}", k + 1) for k in range(40))}, "The 30 largest of 40 classes"),
        ({"folds": 1, "epochs": 1}, "progressive validation error"),
        ({"words": []}, "No feature has a positive weight for this class"),
        ({"broken": len(ALGORITHMS)}, "No model was trained"),
        ({"tested": True, "classes": TEN}, "10 classes: test error 12.3 %, held-out error"),
        ({"classes": (("only", 10),)}, "1 class"),
    ],
)
def test_runs_of_other_shapes(tmp_path, shape, expected):
    assert expected in " ".join(write_report(write_run(tmp_path, **shape)).read_text().split())
    assert summary_markdown(tmp_path)


def test_pages_of_large_searches_and_of_many_classes_stay_small(tmp_path):
    classes = tuple((f"a class with a name of its own {k}", 400 - k) for k in range(260))
    run = write_run(tmp_path, classes=classes, per_algorithm=40, folds=1, epochs=1, broken=20)
    write_predictions(run, classes, rows=1500, skill=3.0)
    page = write_report(run).read_text()
    assert {"curves", "sparsity", "density", "roc"} < set(figures(page))  # which checks the size
    assert "The first 100 of 160 configurations" in page
    assert "The first 200 of 260 classes" in page


def test_errors_on_training_documents_are_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "ALGORITHMS", {"caos-erm": "R", "fobos": "eta0"})
    own = write_report(write_run(tmp_path, folds=1, epochs=1)).read_text()
    assert "For caos-erm they are training errors" in " ".join(own.split())
    table = leaderboard_rows(read_results(tmp_path))
    assert {s.algorithm: s.online_error is None for s in table if s.rank} == {"caos-erm": True, "fobos": False}
    chosen = next(s for s in table if s.chosen)
    assert ("training error" in own.split("</header>")[0]) == (chosen.algorithm == "caos-erm")


def test_a_run_with_results_only_is_reported_too(tmp_path):
    run = write_run(tmp_path)
    for name in ("search/curves", "search/feature_survival", "search/timings", "model/weights"):
        (run / f"{name}.parquet").unlink()
    own = write_report(run).read_text()
    assert "Learning curves" not in own
    assert "Strongest features" not in own


def test_figures_show_every_configuration_once(run):
    results = read_results(run)
    table = leaderboard_rows(results)
    chart = sparsity_figure(results, table, styles(row.algorithm for row in table), 0.5)
    points = {own.name: len(own.x) for own in chart.series}
    assert points.pop("chosen") == 1
    assert points.pop("Pareto front") == len(pareto_front(table))
    assert sum(points.values()) == 13


def test_the_front_and_its_figure_are_of_the_metric_of_the_ranking(run):
    results = read_results(run)
    rows = leaderboard_rows(results)
    made_up = ((s, 7 * k % 13 / 13) for k, s in enumerate(rows) if s.rank)
    table = [s._replace(metric="average_precision", value=value, features=None) for s, value in made_up]
    front = pareto_front(table)
    assert len(front) > 1
    for on in front:
        assert not any(s.value > on.value and s.size <= on.size for s in table)
    chart = sparsity_figure(results, table, styles(row.algorithm for row in table), 0.5)
    assert chart.y.label == "held-out average precision"
    assert not chart.levels  # the share of the largest class is an error
    (drawn,) = (own.y for own in chart.series if own.name == "Pareto front")
    assert list(drawn) == [s.value for s in front]


def test_regret_is_shown_where_it_was_measured(tmp_path, page):
    assert ">Regret</h2>" not in page
    write_regret(write_run(tmp_path, per_algorithm=2), grid(2), 25_000)
    own = write_report(tmp_path).read_text()
    assert ">Regret</h2>" in own
    words = " ".join(re.sub(r"<[^>]*>", " ", own).split())
    assert "Σ_t f_t(w) + Tλ‖w‖₁" in words
    assert "~ 2,056" in words
    assert "No paper here bounds &lt;it&gt;." in words
    assert "failed: the optimum of &lt;it&gt; was not found" in words
    assert "growth" in figures(own)
    results = read_results(tmp_path)
    table = leaderboard_rows(results)
    style, lines = styles(row.algorithm for row in table), regret_lines(results, table)
    growth = growth_figure(lines, style).series
    linear = [own for own in growth if own.marker]
    assert sorted(own.name for own in linear) == ["cl-fobos", "fobos", "rda"]
    marks = [
        row for row in pq.read_table(tmp_path / "regret/regret.parquet").to_pylist() if row["algorithm"] == "fobos"
    ]
    (band,) = (own for own in linear if own.name == "fobos")
    assert band.high[-1] == marks[-1]["regret"] + marks[-1]["gap"] + marks[-1]["penalty_error"]
    assert band.low[-1] == marks[-1]["regret"] - marks[-1]["penalty_error"]
    slopes = {row["algorithm"]: row for row in pq.read_table(tmp_path / "regret/slopes.parquet").to_pylist()}
    fits = [own.name for own in growth if own.name.startswith("slope")]
    assert fits == [f"slope {slopes[own.name]['slope']:.2f} ± {slopes[own.name]['slope_error']:.2f}" for own in linear]
    bounds = [own for own in growth if own.dash == "dot" and len(own.x)]
    assert [own.y[-1] for own in bounds] == [pytest.approx(60 * 25000**0.5)]  # cl-fobos's is too far away


def test_errors_are_sentences(tmp_path):
    with raises_code("no-results", tmp_path):
        write_report(tmp_path)
    run = write_run(tmp_path)
    (run / "search/curves.parquet").write_bytes(b"PAR1 not really")
    with raises_code("corrupt-file", run / "search/curves.parquet", kind=StorageError):
        write_report(run)
    write_run(tmp_path)
    write_parquet(run / "search/metrics.parquet", pq.read_table(run / "search/metrics.parquet").drop(["fold"]))
    with raises_code("format-version", "fold", kind=StorageError):
        write_report(run)
    write_run(tmp_path)
    commit_json(run / "run.json", {"name": "x"})
    with raises_code("corrupt-file", "seed", kind=StorageError):
        write_report(run)


def test_no_page_is_written_into_the_work_of_another_process(tmp_path):
    with raises_code("no-results", tmp_path / "nowhere"):
        write_report(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    run = write_run(tmp_path)
    with exclusive_lock(run), pytest.raises(FolderInUseError):
        write_report(run)
    assert not (run / "report").exists()


def test_labels_leave_out_what_does_not_differ():
    rows = {
        0: [{"algorithm": "a", "parameters": '{"lam": 1e-05, "V": 100000000.0}'} | COUNTS.model_dump()],
        1: [{"algorithm": "a", "parameters": '{"lam": 0.001, "V": 100000000.0}'} | COUNTS.model_dump()],
        2: [{"algorithm": "b", "parameters": '{"lam": 0.001, "V": 100000000.0}'} | COUNTS.model_dump()],
    }
    assert _labels(rows) == {0: "lam 1e-5", 1: "lam 0.001", 2: "V 1e8, lam 0.001"}


# ----------------------------------------------------------------------------------------------------------------------
# The strongest features of a class.


CLASSES = [ClassEntry(name="sea", rows=3), ClassEntry(name="wood", rows=4)]


def table(*rows: tuple[str, str, float]) -> pa.Table:
    features, classes, weights = zip(*rows, strict=True)
    columns = {"feature_id": range(len(rows)), "feature": features, "class": classes, "weight": weights}
    return pa.table(columns | {"count": [1] * len(rows), "documents": [1] * len(rows)})


def test_two_classes_share_a_column_and_two_labels_have_one_each() -> None:
    shared = table(("moss", "wood", 2.0), ("tide", "wood", -1.0))
    each = table(("tide", "sea", 2.0), ("moss", "sea", -3.0), ("moss", "wood", 1.0), ("tide", "wood", -4.0))
    assert (share_column(shared, CLASSES), share_column(each, CLASSES)) == (True, False)
    for weights in (shared, each):
        panels = strongest(weights, CLASSES, 5)
        assert [(p.name, [f["feature"] for f in p.features]) for p in panels] == [("sea", ["tide"]), ("wood", ["moss"])]


# ----------------------------------------------------------------------------------------------------------------------
# The colours of the style sheet, by the contrast ratio of WCAG 2: text 4.5 and lines 3, on light and on dark pages.


CSS = (files("sparseoco.report") / "templates" / "page.css").read_text()
DARK = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{(.*?)\n\}", CSS, re.DOTALL)
TEXT = [
    *(("ink", ground) for ground in ("page", "wash", "bar")),
    *(("quiet", ground) for ground in ("page", "wash")),
    *(("accent", ground) for ground in ("page", "wash")),
]
LINES = re.findall(r"--c: var\(--(c\w)\)", CSS)


def colours(text: str) -> dict[str, str]:
    """The custom properties that are colours, as six digits."""
    found = re.findall(r"--(\w+): #(\w+)", text)
    return {name: digits if len(digits) == 6 else "".join(2 * digit for digit in digits) for name, digits in found}


LIGHT = colours(CSS.replace(DARK[0], ""))
PAGES = {"light": LIGHT, "dark": LIGHT | colours(DARK[1])}


def channels(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (0, 2, 4)]


def luminance(rgb: list[float]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: list[float], second: list[float]) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", PAGES)
def test_text_and_lines_are_seen(scheme: str) -> None:
    own = {name: channels(colour) for name, colour in PAGES[scheme].items()}
    assert len(LINES) == 8
    assert {
        pair: contrast(own[pair[0]], own[pair[1]]) for pair in TEXT if contrast(*(own[k] for k in pair)) < 4.5
    } == {}
    assert {name for name in LINES if contrast(own[name], own["page"]) < 3} == set()


@pytest.mark.parametrize("scheme", PAGES)
def test_numbers_are_readable_in_every_cell_of_a_confusion(scheme: str) -> None:
    own = {name: channels(colour) for name, colour in PAGES[scheme].items()}
    shades = [int(part) / 100 for part in re.findall(r"\.l\d \{ --part: (\d+)%;", CSS)]
    assert shades == sorted(set(shades))
    assert len(shades) == 8
    for name in ("right", "wrong"):
        for opacity in shades:
            cell = [opacity * a + (1 - opacity) * b for a, b in zip(own[name], own["page"], strict=True)]
            assert contrast(own["ink"], cell) >= 4.5, (name, opacity)


def test_every_other_colour_is_one_of_these() -> None:
    rules = re.sub(r"--\w+: #\w+", "", CSS)
    assert not re.search(r"#[0-9a-f]{3,8}\b", rules)
    assert re.findall(r"rgb\([^)]*\)", rules) == ["rgb(0 0 0 / .16)"]  # the shadow of the label of a point
    assert set(re.findall(r"var\(--(\w+)\)", CSS)) - {"c", "part"} <= LIGHT.keys()


def test_paper_is_light() -> None:
    assert not re.search(r"@media \([^)]*color-scheme", CSS), "a dark page is for screens only"
    assert "@media print" in CSS


# ----------------------------------------------------------------------------------------------------------------------
# JSON files of another shape, whose checksum matches: one error that names the file, or a value that is not used.


DEEP = b"[" * 3000 + b"]" * 3000
SHAPES = [DEEP, b'{"a": ' + DEEP + b"}", b"[1, 1e999]", b"3", b"{}", *map(checksummed, ({}, {"a": [[]]}, {"name": 1}))]
TRIALS = 20


def check_shapes(path: Path, read: Callable[[], Any]) -> None:
    """`read` succeeds or raises an error of ours for every shape; for a file that has nothing it names the file."""
    choose, content = random.Random(0), path.read_bytes()
    for data in (*SHAPES, *(reshaped(content, choose)[0] for _ in range(TRIALS))):
        path.write_bytes(data)
        message = None
        try:
            read()
        except SparseocoError as error:
            message = str(error)
        assert data not in SHAPES or (message is not None and path.name in message)
    path.write_bytes(content)


@pytest.mark.fault(57)
def test_files_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", tested=True)
    for name in ("run.json", "search/best.json", "evaluation.json"):
        check_shapes(run / name, lambda: read_results(run))
    (run / "model" / "model.json").unlink()
    for name in ("run.json", "evaluation.json"):
        check_shapes(run / name, lambda: read_status(run))


@pytest.mark.fault(57)
def test_model_json(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    store.manifest.options.update(TextOptions().plain())
    model = tmp_path / "model"
    write_model(model, np.ones((store.n_features, 1)), store, {"algorithm": "none", "parameters": {}}, [])
    check_shapes(model / "model.json", lambda: Model(model).predict(["t0"]))
    check_shapes(model / "model.json", lambda: read_status(model))


# ----------------------------------------------------------------------------------------------------------------------
# Curves, thresholds, costs and mistakes of predictions, compared with scikit-learn and brute force.


TWO = (("ham", 900), ("spam", 100))
THREE = (("a", 30), ("b", 20), ("c", 10))


def prediction_set(rows: int = 400, classes: int = 2, *, seed: int = 3, ties: bool = True) -> predictions.PredictionSet:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    margins = random.normal(0, 1, (rows, 1 if classes == 2 else classes))
    if classes == 2:
        margins[:, 0] += 2.0 * labels - 1
    else:
        margins[np.arange(rows), labels] += 1.5
    if ties:
        margins = margins.round(1)
    found = Predictions(pa.array([str(k) for k in range(rows)]), None, labels, margins)
    return predictions.PredictionSet("held-out", found, tuple("abcdef"[:classes]), 1, np.zeros(margins.shape[1]), None)


@pytest.mark.parametrize(("classes", "positive"), [(2, 1), (2, 0), (3, 2)])
def test_curves_are_those_of_scikit_learn(classes: int, positive: int) -> None:
    found = prediction_set(rows=60, classes=classes)
    truth, score = found.truth(positive), found.score(positive)
    drawn = predictions.roc(found, positive, "x")
    x, y, _ = metrics.roc_curve(truth, score, drop_intermediate=False)
    assert drawn.area == pytest.approx(metrics.roc_auc_score(truth, score))
    known = {(round(a, 6), round(b, 6)) for a, b in zip(100 * x, 100 * y, strict=True)}
    assert {(round(a, 6), round(b, 6)) for a, b in zip(drawn.x, drawn.y, strict=True)} <= known
    precision, recall, _ = metrics.precision_recall_curve(truth, score)
    ours = predictions.precision_recall(found, positive, "x")
    known = {(round(a, 6), round(b, 6)) for a, b in zip(100 * recall, 100 * precision, strict=True)}
    assert {(round(a, 6), round(b, 6)) for a, b in zip(ours.x, ours.y, strict=True)} <= known
    assert ours.x[-1] == 100.0


def test_reliability_is_that_of_scikit_learn() -> None:
    found = prediction_set(ties=False)
    found = replace(found, calibration=fit_calibration(found.found.margins, found.found.labels))
    bins = predictions.reliability(found)
    share, mean = calibration_curve(found.truth(1), found.probabilities[:, 1], n_bins=10)
    assert [of.share for of in bins] == pytest.approx(share.tolist())
    assert [of.probability for of in bins] == pytest.approx(mean.tolist())
    assert sum(of.rows for of in bins) == found.rows


@pytest.mark.parametrize("positive", [0, 1])
def test_thresholds(positive: int) -> None:
    found = replace(prediction_set(), positive=positive)
    other = replace(prediction_set(seed=9), positive=positive)
    own, f1, precise, *_ = predictions.threshold_rows([found, other])
    assert own.margin == 0.0
    assert own.probability == pytest.approx(0.5)
    sign = 1 if positive else -1
    scores, truth = sign * found.found.margins[:, 0], found.truth(positive)
    best = max(metrics.f1_score(truth, scores > cut) for cut in [-9.0, *np.unique(scores)])
    assert f1.qualities[0].f1 == pytest.approx(best)
    assert precise.qualities[0].precision >= 0.9
    hits = (scores > precise.margin) if positive else (scores >= precise.margin)
    assert precise.qualities[0].share == pytest.approx(hits.mean())  # the margin is that of the positive class
    probabilities, curve = predictions.threshold_curve(found)
    assert (np.diff(probabilities) < 0).all()
    assert len(probabilities) == len(curve.tps)


def test_no_thresholds_without_a_positive_document() -> None:
    found = prediction_set()
    found = replace(found, found=found.found._replace(labels=np.zeros(found.rows, np.int64)))
    assert predictions.threshold_rows([found]) == []
    assert predictions.roc(found, 1, "x").area is None


def test_confusion_and_its_largest_classes() -> None:
    found = prediction_set(classes=3)
    expected = metrics.confusion_matrix(found.found.labels, found.found.margins.argmax(axis=1))
    assert (predictions.confusion(found) == expected).all()
    random = np.random.default_rng(0)
    counts = random.integers(0, 5, (300, 300))
    names, merged = predictions.merged_confusion([str(k) for k in range(300)], counts)
    assert len(names) == len(merged) == predictions.MAX_CONFUSION
    assert merged.sum() == counts.sum()
    kept = [int(name) for name in names[:-1]]
    assert (merged[:-1, :-1] == counts[np.ix_(kept, kept)]).all()
    assert counts.sum(axis=1)[kept].min() >= np.delete(counts.sum(axis=1), kept).max()


def test_mistakes_are_ordered_by_confidence() -> None:
    found = prediction_set(ties=False)
    wrong = predictions.mistakes(found)
    margins, labels = found.found.margins[:, 0], found.found.labels
    rows = [int(own.id) for own in wrong]
    assert all((margins[row] > 0) != (labels[row] == 1) for row in rows)
    sizes = [abs(margins[row]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(abs(margins[(margins > 0) != (labels == 1)]))
    assert all(own.probability > 0.5 for own in wrong)
    cut = replace(found, cut=np.array([10.0]))
    assert {own.answer for own in predictions.mistakes(cut)} == {"a"}


@pytest.mark.parametrize(
    ("classes", "kind", "drawn"),
    [
        (TWO, "single", {"roc", "precision", "reliability", "threshold"}),
        (THREE, "single", {"roc", "precision", "reliability"}),
        (THREE, "several", {"roc", "precision", "reliability"}),
    ],
)
def test_page_of_predictions(tmp_path: Path, classes: tuple[tuple[str, int], ...], kind: str, drawn: set[str]) -> None:
    run = write_run(tmp_path, classes=classes)
    write_predictions(run, classes, rows=300, kind=kind)
    page = write_report(run).read_text()
    assert set(figures(page)) == {"curves", "sparsity", "density"} | drawn
    assert "The most confident mistakes" in page
    assert (">Thresholds</h2>" in page) == ("threshold" in drawn)
    assert ("Confusion of the test documents" in page) == (kind == "single")


def test_calibration_and_threshold_of_the_model_are_used(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=TWO)
    write_predictions(run, TWO, rows=300)
    path = run / "model/model.json"
    model = read_json(path)
    calibration = {"method": "sigmoid", "slopes": [2.0], "offsets": [0.5]}
    chosen = {"margin": 1.25, "precision": 0.9, "recall": 0.5, "f1": 0.6, "share": 0.1}
    threshold = {"rule": "precision=0.9", "outputs": [chosen], "rows": 300}
    commit_json(path, model | {"calibration": calibration, "threshold": threshold})
    results = read_results(location(str(run)))
    results.run.search["positive_class"] = "ham"
    held_out, test = predictions.prediction_sets(location(str(run)), results)
    assert (held_out.positive, held_out.cut.tolist()) == (0, [1.25])
    expected = 1 / (1 + np.exp(-(2.0 * test.found.margins[:, 0] + 0.5)))
    assert test.probabilities[:, 1] == pytest.approx(expected)
    assert (test.predicted == (test.found.margins[:, 0] > 1.25)).all()
    commit_json(path, model | {"calibration": {"method": "magic"}})
    with raises_code("corrupt-file", "calibration", kind=StorageError):
        write_report(run)


@pytest.mark.parametrize("several", [False, True])
def test_held_out_metrics_are_those_at_the_threshold_of_the_model(several: bool) -> None:
    found = prediction_set()
    folds = np.arange(found.rows, dtype=np.int32) % 3
    labels, margins, cut = found.found.labels, found.found.margins, np.array([-0.7])
    if several:
        labels, margins = np.stack([labels == 1, labels == 0], axis=1), np.hstack([margins, -margins])
        cut = np.array([-0.7, 0.4])
    found = replace(found, found=found.found._replace(labels=labels, margins=margins, folds=folds), cut=cut)
    measured = at_threshold([found])
    for name, score in (
        ("error", lambda y, z: 1 - metrics.accuracy_score(y, z)),
        ("f1_macro", lambda y, z: metrics.f1_score(y, z, average="macro")),
        ("f1", None if several else metrics.f1_score),
        ("recall", None if several else metrics.recall_score),
    ):
        if score is not None:
            values = [score(labels[folds == k], found.predicted[folds == k]) for k in range(3)]
            expected = np.mean(values), np.std(values, ddof=1) / np.sqrt(3)
            assert measured[name] == pytest.approx(expected)
    assert at_threshold([replace(found, cut=np.zeros(len(cut)))]) == at_threshold([]) == {}


def test_the_page_has_metrics_at_the_threshold_chosen_by_default(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=TWO, tested=True)
    write_predictions(run, TWO, rows=300)
    before = " ".join(write_report(run).read_text().split())
    model = read_json(run / "model/model.json")
    chosen = {"margin": 1.25, "precision": 0.9, "recall": 0.5, "f1": 0.6, "share": 0.1}
    rule = {"rule": "f1", "since": "spam has 10.0% of the documents"}
    commit_json(run / "model/model.json", model | {"threshold": {"rule": rule, "outputs": [chosen], "rows": 300}})
    evaluation = read_json(run / "evaluation.json")
    commit_json(run / "evaluation.json", evaluation | {"never_predicted": ["spam"], "trained_on": ["a.jsonl"]})
    after = " ".join(write_report(run).read_text().split())
    sentence = "spam above a margin of 1.25, chosen by F1 on 300 held-out documents (by default, since spam has 10.0%"
    assert (sentence in before, sentence in after) == (False, True)
    (found, *_) = predictions.prediction_sets(location(str(run)), read_results(location(str(run))))
    error = " ".join(percent_with_error(*at_threshold([found])["error"]).split())
    assert (f"held-out error {error}" in before, f"held-out error {error}" in after) == (False, True)
    assert f'<td class="number">{error}</td>' in after
    lead = "Class spam is never predicted for the test documents. The model was trained on documents of a.jsonl: "
    assert (f">{lead}" in before, f">{lead}" in after) == (False, True)


def test_the_page_of_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=(("only", 1000),))
    described = read_json(run / "run.json")
    described["corpus"]["classes"] = []
    commit_json(run / "run.json", described)
    best = read_json(run / "search/best.json")
    commit_json(run / "search/best.json", best | {"metric": "rmse", "rule": "best"})
    path = run / "search/metrics.parquet"
    rows = [
        row
        | {
            "held_out_error": None,
            "progressive_error": None,
            "held_out_rmse": 1.0 + row["configuration"],
            "held_out_r2": 0.5,
        }
        for row in pq.read_table(path).to_pylist()
    ]
    write_result_table(path, rows, METRICS_SCHEMA)
    commit_json(run / "evaluation.json", {"rows": 300, "rmse": 1.25, "mae": 1.0, "r2": 0.8, "loss": 0.7})
    write_predictions(run, (), rows=300, kind="numbers")
    page = write_report(run).read_text()
    assert {"numbers", "sparsity"} < set(figures(page))
    text = " ".join(page.split())
    assert "1.2500" in text
    assert "RMSE" in text
    assert "raise the prediction" in text
    assert "classifier" not in text
    learned, found = (read_predictions(run / name, ()) for name in ("search/held_out.parquet", "test.parquet"))
    mean = np.full(len(found.labels), learned.labels.mean())
    for metric in (metrics.root_mean_squared_error, metrics.mean_absolute_error):
        assert f"{metric(found.labels, mean):.4f}" in text
    worst = str(found.ids[int(np.argmax(np.abs(found.labels - found.margins[:, 0])))])
    assert text.index(worst) > text.index("largest residuals")
