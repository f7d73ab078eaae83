"""The experiments of STDA and SGFT on small data: the protocol, tables, claims and the page."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.papers import sources as documents
from sparseoco.papers.claims import Finding, Pair
from sparseoco.papers.rows import column, select
from sparseoco.papers.truncation import trials
from sparseoco.papers.truncation.claims import MEAN, SGFT_TABLES, STDA_INF, STDA_TABLES, error_at, with_mean
from sparseoco.papers.truncation.experiment import sgft_curves, stda_curves
from sparseoco.papers.truncation.trials import RULES, Trial, TunedMethod, group_cells, held_out_folds, learn
from tests.papers.small import EACH, load, rows_of, write_lines
from tests.support.errors import raises_code

PAPER = "stda"
FOLDS = 10
ROWS = 120


def _method(experiment: str, name: str, passes: int, classes: int = 2) -> TunedMethod:
    (own,) = (method for method in trials.published_protocol(experiment).for_classes(classes) if method.name == name)
    return own._replace(search=own.search.model_copy(update={"epochs": passes}))


def test_the_stemmer_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    documents._porter.cache_clear()
    with raises_code("missing-package", "pip install 'sparseoco[papers]'"):
        documents._porter()


def test_sets_of_newsgroups_have_no_stop_words_rare_words_or_encoded_files(data: Path, tmp_path: Path) -> None:
    made = load(data, "ob-2-1", tmp_path)
    assert made.classes == ("comp.graphics", "sci.space")
    assert set(made.terms) >= {"draw", "imag", "orbit", "nois"}
    assert not set(made.terms) & {"the", "of", "doubt", "ax"}
    assert made.rows.shape[0] == len(made.labels) == 2 * EACH - 1
    assert (np.bincount(made.rows.indices) >= documents.MIN_DOCUMENTS).all()
    with_images = np.asarray(made.rows[:, made.terms.index("imag")].todense()).ravel() > 0
    assert (with_images == (made.labels == 0)).all()


def test_held_out_rows_are_not_learned_and_columns_are_independent(data: Path, tmp_path: Path) -> None:
    made = load(data, "books", tmp_path)
    assert set(made.terms) == {f"word_{k}" for k in range(40)}
    trial = Trial("books", made, _method("stda", "STDA p = ∞", 2))
    own = trial.fold_rows(4)
    learner = learn(trial, [{"p": "inf", "lam": 1e-3}], (4,))
    assert learner.progress.rows == 2 * (ROWS - len(own))
    changed = made.rows.copy()
    for row in own:
        changed.data[changed.indptr[row] : changed.indptr[row + 1]] = 7.0
    other = trial._replace(documents=made._replace(rows=changed))
    lams = [{"p": "inf", "lam": lam} for lam in (1e-4, 1e-3)]
    assert learn(other, lams, (4,)).weights()[:, 1].tobytes() == learner.weights()[:, 0].tobytes()


@pytest.mark.slow
def test_lambda_is_tuned_by_weights_trained_without_both_folds(data: Path, out: Path, tmp_path: Path) -> None:
    made = load(data, "books", tmp_path)
    method = _method("stda", "RDA", 1)
    trial = Trial("books", made, method)
    found = {held: cell.run()[0] for held, cell in zip(held_out_folds(FOLDS), group_cells([trial]), strict=True)}
    for row in rows_of(out, "folds", set="books", method="RDA", rule=trials.LEAST):
        fold = row["fold"]
        left, right = found[(fold - 1) % FOLDS, fold], found[fold, (fold + 1) % FOLDS]
        wrong = np.array(left["errors"][0]) + np.array(right["errors"][1])
        nonzeros = np.array(left["nonzeros"]) + np.array(right["nonzeros"])
        best = min(range(len(wrong)), key=lambda k: (wrong[k], nonzeros[k]))
        assert row["lam"] == method.strengths[best]
        assert row["errors"] == found[(fold,)]["errors"][0][best]


@pytest.mark.slow
def test_lambda_of_2011_is_that_of_the_least_mean_error_of_the_ten_folds(out: Path) -> None:
    for method in ("RDA", "STDA p = 2"):
        own = rows_of(out, "paths", set="books", method=method)
        table = np.array(column(own, "error")).reshape(FOLDS, -1)
        lams = [row["lam"] for row in own[: table.shape[1]]]
        chosen = rows_of(out, "folds", set="books", method=method, rule=trials.TEN_FOLD)
        (lam,) = {row["lam"] for row in chosen}
        k = lams.index(lam)
        assert table.mean(axis=0)[k] == pytest.approx(table.mean(axis=0).min())
        assert [row["error"] for row in chosen] == table[:, k].tolist()


def test_methods_trained_together_have_the_results_of_methods_trained_alone(data: Path, tmp_path: Path) -> None:
    made = load(data, "books", tmp_path)
    names = ("STDA p = ∞", "RDA", "STDA p = ∞, by feature", "STDA p = ∞, γ = 10")
    own = [Trial("books", made, _method("stda", name, 1), counted=True) for name in names]
    together = trials.groups(own)
    assert [[trial.method.name for trial in group] for group in together] == [
        ["STDA p = ∞", "STDA p = ∞, by feature"],  # 24 columns
        ["STDA p = ∞, γ = 10"],
        ["RDA"],
    ]
    for cell in (0, FOLDS):
        both = group_cells(together[0])[cell].run()
        for trial, part in zip(together[0], both, strict=True):
            (alone,) = group_cells([trial])[cell].run()
            assert {name: part[name] for name in alone if name != "seconds"} == {
                name: alone[name] for name in alone if name != "seconds"
            }


def test_norms_and_occurrences_are_those_of_the_state_and_the_weights(data: Path, tmp_path: Path) -> None:
    made = load(data, "books", tmp_path)
    trial = Trial("books", made, _method("stda", "STDA p = 2", 1), counted=True)
    (part,) = group_cells([trial])[3].run()
    learner = learn(trial, trial.method.configurations, (3,))
    counts = np.asarray(made.rows[trial.learned((3,))].sum(axis=0)).ravel()
    for k, norm in enumerate(part["norms"]):
        values = learner.thresholds_of(k)
        assert values is not None
        assert norm == values.max()
        selected = sorted(counts[learner.weights()[:, k] != 0])
        if selected:
            assert [part["occurrences"][k][at] for at in (0, 100)] == [selected[0], selected[-1]]
        else:
            assert part["occurrences"][k] == []


def test_drawn_functions_are_the_papers() -> None:
    """2011, Figure 1: ‖(1, …, 1)‖_p; Figures 2 to 4: sign(w)[|w| − h]₊ with ηλ = 1. 2012, Figure 1: as 2011."""
    rows = sgft_curves()
    norms = {(r["curve"], r["x"]): r["y"] for r in rows if r["figure"] == "norm"}
    assert norms == {(r["curve"], r["x"]): pytest.approx(r["y"]) for r in stda_curves()}
    for n in (1, 2, 7, 50):
        for p, name in ((1, "1"), (2, "2"), (3, "3"), (math.inf, "∞")):
            assert norms[f"p = {name}", n] == pytest.approx(n ** (1 / p))
    for curve, h in (("Figure 2: SG-L1", 1), ("Figure 3: SGFT, h = 0.25", 0.25), ("Figure 4: SGFT, h = 2", 2)):
        line = [(r["x"], r["y"]) for r in rows if r["curve"] == curve]
        assert len(line) == 121
        for w, after in line:
            assert after == pytest.approx(math.copysign(max(abs(w) - h, 0), w))


@pytest.mark.slow
def test_tables_have_every_printed_result_of_the_available_sets(out: Path) -> None:
    results, folds = rows_of(out, "results"), rows_of(out, "folds")
    for rule in RULES:
        for table in STDA_TABLES:
            for of in ("books", "sb-2-1"):
                for method, printed in table.results[of].items():
                    keys = {"set": of, "method": method, "rule": rule}
                    (row,) = select(results, table=table.name, **keys)
                    assert row["paper_error"] == pytest.approx(printed.error)
                    errors = column(select(folds, **keys), "error")
                    assert row["error"] == pytest.approx(np.mean(errors))
                    assert row["deviation"] == pytest.approx(np.std(errors, ddof=1))
    assert {row["where"] for row in rows_of(out, "claims")} == {"books", "ob-2-1", "sb-2-1", MEAN}
    assert {row["set"]: row["paper_features"] for row in rows_of(out, "sets")}["books"] == 332_440


@pytest.mark.slow
def test_claims_are_tested_on_the_mean_of_the_sets_as_well(out: Path) -> None:
    """With the mean of the differences of the sets; bounds and printed results are of each set alone."""
    comparisons = pq.read_table(out / "comparisons.parquet").to_pandas()
    claim = "STDA p = ∞ has a lower error than FOBOS."
    own = comparisons[comparisons.claim == claim].set_index("where")
    assert list(own.index) == ["books", "ob-2-1", "sb-2-1", MEAN]
    assert own.difference[MEAN] == pytest.approx((own.difference["books"] + own.difference[1:3].mean()) / 2)
    assert own.pairs[MEAN] == 3 * FOLDS
    alone, together = (column(rows_of(out, "claims", where=where), "claim") for where in ("books", MEAN))
    exact = {"r never attains V = 10⁸.", f"The error of {STDA_INF} is as printed, to within a tenth of it."}
    assert exact <= set(alone) - set(together)


def test_a_corpus_in_two_forms_counts_once_in_the_mean_of_the_sets() -> None:
    folds = [0.1, 0.12, 0.11, 0.14]
    found = [
        Finding("c", "p", title, "", (Pair([f + k / 100 for f in folds], [0.1, 0.1, 0.12, 0.1]).less(),))
        for k, title in enumerate(("books", "books, from text", "sb-2-1"))
    ]
    sets = [("books", "books"), ("books, from text", "books"), ("sb-2-1", "20 Newsgroups")]
    records = {"sets": [{"title": title, "corpus": own} for title, own in sets]}
    (evidence,) = (row.evidence for row in with_mean(records, found) if row.where == MEAN)
    differences = [row.evidence[0].difference for row in found]
    assert evidence[0].difference == pytest.approx((sum(differences[:2]) / 2 + differences[2]) / 2)
    assert with_mean(records, found[:2]) == found[:2]  # one corpus
    undecided = found[2]._replace(evidence=(None,))
    assert with_mean(records, [*found[:2], undecided]) == [*found[:2], undecided]


def test_precision_of_2011_is_converted_to_error() -> None:
    assert SGFT_TABLES[0].results["sb-8-1"]["SGFT p = 3"] == (6.22 / 100, 70.23 / 100, 2.44 / 100)
    assert sum(len(row) for table in (*STDA_TABLES, *SGFT_TABLES) for row in table.results.values()) == 6 * 10 + 7 * 7


@pytest.mark.slow
def test_features_selected_by_one_method_are_not_by_the_other(out: Path) -> None:
    rows = rows_of(out, "features")
    selected: dict[tuple[object, object], set[object]] = {}
    for row in rows:
        selected.setdefault((row["set"], row["method"]), set()).add(row["feature"])
    for (of, method), names in selected.items():
        for (other, another), more in selected.items():
            assert of != other or method == another or not names & more
    for row in rows_of(out, "frequencies"):
        assert row["count"] >= 1


def test_error_at_a_sparsity_is_interpolated() -> None:
    path = [{"sparsity": s, "error": e} for s, e in ((0.1, 0.2), (0.5, 0.1), (0.9, 0.3))]
    assert error_at(path, 0.7) == pytest.approx(0.2)
    assert error_at(path, 0.95) is None


def test_topics_of_reuters_are_separated_by_the_joint_hinge(tmp_path: Path) -> None:
    topics = {"earn": "profit", "acq": "shares", "crude": "oil"}
    messages = [
        {"id": str(k), "topics": [name], "text": f"the {topics[name]} of today"}
        for k, name in enumerate(["earn"] * 50 + ["acq"] * 40 + ["crude"] * 30)
    ]
    messages.append({"id": "both", "topics": ["earn", "acq"], "text": "profit shares"})
    write_lines(tmp_path / "reuters21578.jsonl.gz", [json.dumps(message) for message in messages])
    made = load(tmp_path, "reut20", tmp_path)
    assert made.classes == ("earn", "acq", "crude")  # the larger first
    assert np.bincount(made.labels.astype(int)).tolist() == [50, 40, 30]
    assert set(made.terms) == {"the", "of", "today", *topics.values()}
    trial = Trial("reut20", made, _method("sgft", "RDA", 2, len(made.classes)))
    part = group_cells([trial])[0].run()[0]
    assert part["errors"][0][0] == 0
    assert trial.weights == 3 * len(made.terms)
    line = trials.path_rows(trial, [part] * len(held_out_folds(FOLDS)))
    assert line[0]["error"] == 0
    assert 0 <= line[0]["sparsity"] < line[-1]["sparsity"] <= 1
