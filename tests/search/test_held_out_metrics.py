"""Held-out metrics of a search: those of scikit-learn, whatever the memory for scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.preprocessing import label_binarize

from sparseoco.search.results import BlockRun
from sparseoco.store.corpus import open_corpus
from sparseoco.store.manifest import ClassEntry
from sparseoco.store.shards import Store
from sparseoco.training import metrics as scores
from sparseoco.training.block import Block, positive_class, search_setting
from sparseoco.training.stream import StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import learn_up_to, plain_search
from tests.support.stores import make_store

GRID: dict[str, Any] = {"cl-fobos": {"lam": [1e-4, 1e-2], "eta0": [0.3]}}


def trained(folder: Path, classes: int, loss: str, **options: Any) -> tuple[BlockRun, Any, list[dict[str, Any]]]:
    """A block after an epoch without fold 1, the store's corpus, and the metrics of its configurations."""
    store = Store.open(make_store(folder / "store", rows=200, features=60, classes=classes))
    search = plain_search(algorithms=GRID, folds=4, loss=loss, dtype="float64", **options)
    parameters = tuple(configuration.parameters for configuration in search.configurations())
    block = Block(setting=search_setting(search, store, 1), algorithm="cl-fobos", configurations=parameters)
    run, corpus = BlockRun.new(block, store), open_corpus(store, folder)
    learn_up_to(run, corpus, StreamPosition(1, 200))
    return run, corpus, [tables["metrics"][0] for tables in run.tables(corpus, store)]


def test_two_classes(tmp_path: Path) -> None:
    run, corpus, found = trained(tmp_path, 2, "logistic", positive_class="c0")
    rows = corpus.gather(run.block.setting.order.held_out(0, 200))
    margins = run.learner.margins(rows.indptr, rows.indices, rows.values)
    for q, row in enumerate(found):
        z, truth = margins[:, q, 0], rows.labels == 0
        assert row["held_out_rows"] == len(z)
        assert row["held_out_log_loss"] == pytest.approx(row["held_out_loss"], rel=1e-12)
        assert row["held_out_roc_auc"] == pytest.approx(sk.roc_auc_score(truth, -z))
        assert row["held_out_average_precision"] == pytest.approx(sk.average_precision_score(truth, -z))
        assert row["held_out_f1"] == pytest.approx(sk.f1_score(truth, z <= 0))
        assert (row["held_out_rank_bound"], row["held_out_rmse"]) == (0.0, None)
        assert row["features"] == row["nonzeros"] == np.count_nonzero(run.learner.weights_of(q))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_more_classes(tmp_path: Path, loss: str) -> None:
    run, corpus, found = trained(tmp_path, 3, loss)
    rows = corpus.gather(run.block.setting.order.held_out(0, 200))
    margins = run.learner.margins(rows.indptr, rows.indices, rows.values)
    truth = label_binarize(rows.labels, classes=range(3))
    for q, row in enumerate(found):
        probabilities = scores.class_probabilities(margins[:, q], joint=loss == "softmax")
        ranked = probabilities if loss == "softmax" else margins[:, q]
        predicted = margins[:, q].argmax(axis=1)
        assert row["held_out_log_loss"] == pytest.approx(sk.log_loss(rows.labels, probabilities))
        assert row["held_out_roc_auc"] == pytest.approx(sk.roc_auc_score(truth, ranked))
        assert row["held_out_f1_macro"] == pytest.approx(sk.f1_score(rows.labels, predicted, average="macro"))
        assert row["held_out_error"] == pytest.approx(np.mean(predicted != rows.labels))
        assert row["features"] == np.count_nonzero(run.learner.weights_of(q).any(axis=1)) < row["nonzeros"]


def test_rankings_of_many_rows_come_from_histograms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, exact = trained(tmp_path / "exact", 2, "logistic")
    monkeypatch.setattr(scores, "EXACT_VALUES", 10)
    monkeypatch.setattr(scores, "BINS", 1)
    _, _, rough = trained(tmp_path / "rough", 2, "logistic")
    for one, other in zip(exact, rough, strict=True):
        assert one["held_out_rank_bound"] == 0 < other["held_out_rank_bound"] <= 1
        assert abs(one["held_out_roc_auc"] - other["held_out_roc_auc"]) <= other["held_out_rank_bound"]
        assert one["held_out_f1"] == other["held_out_f1"]


def test_the_positive_class_is_the_rarer_or_the_one_named() -> None:
    classes = [ClassEntry(name="ham", rows=9), ClassEntry(name="spam", rows=10)]
    assert [positive_class(classes, name) for name in (None, "ham", "spam")] == [0, 0, 1]
    assert positive_class(classes[::-1], None) == 1
    assert positive_class([ClassEntry(name=name, rows=5) for name in "ab"], None) == 1
    assert positive_class([], None) == 1
    for several in ([*classes, ClassEntry(name="news", rows=1)], classes, []):
        with raises_code("invalid-positive-class"):
            positive_class(several, "eggs")
