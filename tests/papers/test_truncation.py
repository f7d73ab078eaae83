"""The experiments of STDA and SGFT on small data of the files' forms: the protocol, the tables, what they say."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.papers.truncation import documents as sets
from sparseoco.papers.truncation import reproduce_sgft, reproduce_stda
from sparseoco.papers.truncation.comparison import error_at
from sparseoco.papers.truncation.documents import SOURCES, files_of, make
from sparseoco.papers.truncation.methods import Method, published_protocol
from sparseoco.papers.truncation.published import SGFT_SHEETS, STDA_SHEETS
from sparseoco.papers.truncation.records import STDA_TABLES, TABLES
from sparseoco.papers.truncation.stemming import stem
from sparseoco.papers.truncation.validation import RULES, Trial, cells_of, held_out, learn, path
from tests.papers.small import write_lines, write_reviews
from tests.support.commands import call

FOLDS = 10
ROWS = 120
SECONDS = {"timings.parquet"}
WORDS = {
    "comp.graphics": "drawing images",
    "sci.space": "orbits",
    "soc.religion.christian": "doubts",
    "comp.os.ms-windows.misc": "crashes",
}
EACH = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_reviews(tmp_path_factory.mktemp("data"), ROWS)
    draw = np.random.default_rng(3)
    news = []
    for k in range(EACH * len(WORDS)):
        group = list(WORDS)[k % len(WORDS)]
        text = f"The {WORDS[group]} of message{k % 7}" + (" noise" if draw.random() < 0.5 else "")
        news.append({"id": str(k // 2), "label": group, "text": text + (" ax" * 1001 if k == 1 else "")})
    write_lines(folder / "20news-bydate.jsonl.gz", [json.dumps(message) for message in news])
    return folder


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    assert reproduce_stda(data, folder, passes=1) == folder / "stda.html"
    return folder


def _method(experiment: str, name: str, passes: int, classes: int = 2) -> Method:
    (own,) = (method for method in published_protocol(experiment).for_classes(classes) if method.name == name)
    return own._replace(search=own.search.model_copy(update={"epochs": passes}))


def _rows(out: Path, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(out / f"{table}.parquet").to_pylist()
    return rows


def test_stems_are_porters() -> None:
    words = """ponies poni cats cat feed feed agreed agre plastered plaster motoring motor sing sing conflated conflat
        sized size falling fall hissing hiss filing file happy happi rational ration digitizer digit operator oper
        feudalism feudal hopefulness hope triplicate triplic formative form electrical electr goodness good
        adoption adopt opinion opinion replacement replac homologous homolog rate rate cease ceas controlling control"""
    pairs = words.split()
    for word, wanted in zip(pairs[::2], pairs[1::2], strict=True):
        assert stem(word) == wanted
    assert stem("10th") == "10th"


def test_sets_of_newsgroups_have_no_stop_words_rare_words_or_encoded_files(data: Path, tmp_path: Path) -> None:
    source = next(source for source in SOURCES if source.name == "ob-2-1")
    made = make(source, files_of(data, [source]), tmp_path)
    assert made.classes == ("comp.graphics", "sci.space")
    assert set(made.terms) >= {"draw", "imag", "orbit", "nois"}
    assert not set(made.terms) & {"the", "of", "doubt", "ax"}
    assert made.rows.shape[0] == len(made.labels) == 2 * EACH - 1
    assert (np.bincount(made.rows.indices) >= sets.RARE).all()
    with_images = np.asarray(made.rows[:, made.terms.index("imag")].todense()).ravel() > 0
    assert (with_images == (made.labels == 0)).all()


def test_what_is_held_out_is_not_learned_and_columns_do_not_know_of_each_other(data: Path, tmp_path: Path) -> None:
    source = SOURCES[0]
    made = make(source, files_of(data, [source]), tmp_path)
    assert set(made.terms) == {f"word_{k}" for k in range(40)}
    trial = Trial("books", made, _method("stda", "STDA p = ∞", 2))
    own = trial.rows_of(4)
    learner = learn(trial, [{"p": "inf", "lam": 1e-3}], (4,))
    assert learner.progress.rows == 2 * (ROWS - len(own))
    changed = made.rows.copy()
    for row in own:
        changed.data[changed.indptr[row] : changed.indptr[row + 1]] = 7.0
    other = trial._replace(documents=made._replace(rows=changed))
    lams = [{"p": "inf", "lam": lam} for lam in (1e-4, 1e-3)]
    assert learn(other, lams, (4,)).weights()[:, 1].tobytes() == learner.weights()[:, 0].tobytes()


def test_lambda_is_tuned_by_weights_that_saw_neither_fold(data: Path, out: Path, tmp_path: Path) -> None:
    made = make(SOURCES[0], files_of(data, SOURCES), tmp_path)
    method = _method("stda", "RDA", 1)
    trial = Trial("books", made, method)
    found = {held: cell.run() for held, cell in zip(held_out(FOLDS), cells_of(trial), strict=True)}
    for row in _rows(out, "folds"):
        if (row["set"], row["method"], row["rule"]) != ("books", "RDA", RULES[0]):
            continue
        fold = int(str(row["fold"]))
        left, right = found[(fold - 1) % FOLDS, fold], found[fold, (fold + 1) % FOLDS]
        wrong = np.array(left["errors"][0]) + np.array(right["errors"][1])
        nonzeros = np.array(left["nonzeros"]) + np.array(right["nonzeros"])
        best = min(range(len(wrong)), key=lambda k: (wrong[k], nonzeros[k]))
        assert row["lam"] == method.strengths[best]
        assert row["errors"] == found[(fold,)]["errors"][0][best]


def test_equal_data_give_equal_bytes_and_what_is_done_is_found(data: Path, out: Path, tmp_path: Path) -> None:
    cells = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    before = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    reproduce_stda(data, out, passes=1)
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == cells
    reproduce_stda(data, tmp_path, passes=1)
    for name in {f"{table}.parquet" for table in STDA_TABLES} - SECONDS:
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes() == before[name], name


def test_tables_hold_every_printed_figure_of_the_sets_there_are(out: Path) -> None:
    results = _rows(out, "results")
    for rule in RULES:
        for sheet in STDA_SHEETS:
            for of in ("books", "sb-2-1"):
                for method, figure in sheet.figures[of].items():
                    keys = (sheet.name, of, method, rule)
                    (row,) = (r for r in results if (r["table"], r["set"], r["method"], r["rule"]) == keys)
                    assert row["paper_error"] == pytest.approx(figure.error / 100)
                    folds = [r for r in _rows(out, "folds") if (r["set"], r["method"], r["rule"]) == (of, method, rule)]
                    assert row["error"] == pytest.approx(np.mean([r["error"] for r in folds]))
                    assert row["deviation"] == pytest.approx(np.std([r["error"] for r in folds], ddof=1))
    assert {row["where"] for row in _rows(out, "claims")} == {"books", "ob-2-1", "sb-2-1"}


def test_precision_of_2011_is_written_as_error() -> None:
    assert SGFT_SHEETS[0].figures["sb-8-1"]["SGFT p = 3"] == (6.22, 70.23, 2.44)
    assert sum(len(row) for sheet in (*STDA_SHEETS, *SGFT_SHEETS) for row in sheet.figures.values()) == 6 * 10 + 7 * 7


def test_features_kept_by_one_are_dropped_by_the_other(out: Path) -> None:
    rows = _rows(out, "features")
    kept: dict[tuple[object, object], set[object]] = {}
    for row in rows:
        kept.setdefault((row["set"], row["method"]), set()).add(row["feature"])
    for (of, method), names in kept.items():
        for (other, another), more in kept.items():
            assert of != other or method == another or not names & more
    for row in _rows(out, "frequencies"):
        assert int(str(row["count"])) >= 1


def test_error_at_a_sparseness_is_on_the_line_between_neighbours() -> None:
    path = [{"sparseness": s, "error": e} for s, e in ((0.1, 0.2), (0.5, 0.1), (0.9, 0.3))]
    assert error_at(path, 0.7) == pytest.approx(0.2)
    assert error_at(path, 0.95) is None


def test_the_page_says_what_holds_and_what_is_missing(
    data: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (out / "stda.html").read_text()
    assert "STDA p = ∞ beats RDA in error and in sparseness, by the means, as the paper counts." in page
    assert "paper 13.50 (91.13)" in page
    assert "for want of their files: dvd, books, from text, dvd, from text" in page
    assert page.count('class="plot"') == page.count('-spec">')
    assert call(monkeypatch, "reproduce", "stda", "--data", tmp_path, "--out", tmp_path / "none") == 2
    assert "none of the files" in capsys.readouterr().err
    with pytest.raises(InputError, match="passes"):
        reproduce_stda(data, tmp_path / "none", passes=0)


def test_topics_of_reuters_are_told_apart_by_the_joint_hinge(tmp_path: Path) -> None:
    topics = {"earn": "profit", "acq": "shares", "crude": "oil"}
    messages = [
        {"id": str(k), "topics": [name], "text": f"the {topics[name]} of today"}
        for k, name in enumerate(["earn"] * 50 + ["acq"] * 40 + ["crude"] * 30)
    ]
    messages.append({"id": "both", "topics": ["earn", "acq"], "text": "profit shares"})
    write_lines(tmp_path / "reuters21578.jsonl.gz", [json.dumps(message) for message in messages])
    source = SOURCES[-1]
    made = make(source, files_of(tmp_path, [source]), tmp_path)
    assert made.classes == ("earn", "acq", "crude")  # the larger first
    assert np.bincount(made.labels.astype(int)).tolist() == [50, 40, 30]
    assert set(made.terms) == {"the", "of", "today", *topics.values()}
    trial = Trial("reut20", made, _method("sgft", "RDA", 2, len(made.classes)))
    part = cells_of(trial)[0].run()
    assert part["errors"][0][0] == 0
    assert trial.weights == 3 * len(made.terms)
    line = path(trial, [part] * len(held_out(FOLDS)))
    assert line[0]["error"] == 0
    assert 0 <= line[0]["sparseness"] < line[-1]["sparseness"] <= 1


def test_sgft_runs_on_the_same_protocol(data: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "books.svmlight.gz").write_bytes((data / "books.svmlight.gz").read_bytes())
    page = reproduce_sgft(tmp_path / "data", tmp_path / "out", passes=1)
    text = page.read_text()
    assert "SGFT p = 2 errs less than SG-L1." in text
    assert "Not printed: the cumulative forms of §4" in text
    assert {path.stem for path in (tmp_path / "out").glob("*.parquet")} == set(TABLES)
