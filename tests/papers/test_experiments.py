"""What the experiments of all papers have in common: cells, bytes, pages and the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparseoco.papers import PAPERS
from sparseoco.papers.experiment import Cell, Run
from tests.papers.small import SMALL, rows_of
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.pages import figures

TIMES = {"timings.parquet", "equal_time.parquet"}
ALL = ["caos", "cl-fobos", *(pytest.param(paper, marks=pytest.mark.slow) for paper in ("onseg", "stda", "sgft"))]
Folder = Callable[[str], Path]


def test_a_cell_runs_once_and_an_interrupted_run_resumes(tmp_path: Path) -> None:
    ran: list[int] = []

    def cell(k: int, fails: bool = False) -> Cell:
        def run() -> dict[str, float]:
            if fails:
                raise RuntimeError("killed")
            ran.append(k)
            return {"value": k / 3}

        return Cell({"k": k}, run)

    reported: list[tuple[str, int, int]] = []

    def run(cells: list[Cell]) -> list[dict[str, float]]:
        return Run(tmp_path, lambda *step: reported.append(step)).cells("play", cells, threads=1)

    with pytest.raises(RuntimeError):
        run([cell(0), cell(1), cell(2, fails=True)])
    assert ran == [0, 1]
    assert run([cell(k) for k in range(4)]) == [{"value": k / 3} for k in range(4)]
    assert ran == [0, 1, 2, 3]
    assert reported[-4:] == [("play", done, 4) for done in (1, 2, 3, 4)]


@pytest.mark.parametrize("paper", ALL)
def test_equal_data_give_equal_bytes_and_an_interrupted_run_resumes(
    small_data: Folder, reproduced: Folder, tmp_path: Path, paper: str
) -> None:
    run: Any = PAPERS[paper].load()

    def stop(step: str, done: int, total: int) -> None:
        if step != "read" and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(small_data(paper), tmp_path, **SMALL[paper].options, progress=stop)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(before) >= 3
    run(small_data(paper), tmp_path, **SMALL[paper].options)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    tables = {path.name for path in tmp_path.glob("*.parquet")}
    assert tables == {path.name for path in reproduced(paper).glob("*.parquet")}
    for name in {*tables, "inputs.json"} - TIMES:
        assert (tmp_path / name).read_bytes() == (reproduced(paper) / name).read_bytes(), name


PAGES = {
    "caos": (["The regret of AO-GD is at most", "Not in the folder given: dvd, ob-2-1, sb-2-1"], 8),
    "cl-fobos": (["57.3 % and 2,953 of 4,465, which is 66.1 %", "0.4199"], 2 * 6 + 3),
    "onseg": (["ONSEG converges faster than OGDEG at the same δ and γ", "1 stock left out"], 2 * 6 + 2),
    "stda": (
        [
            "STDA p = ∞ has a lower error than RDA and is sparser.",
            "paper 13.50 (91.13)",
            "<li>kitchen, which would have shown kitchen in Table III and Table IV: the papers&#39; documents</li>",
        ],
        1 + 3 * 2,
    ),
    "sgft": (["SGFT p = 2 has a lower error than SG-L1.", "Not printed: the cumulative forms of §4"], 2 + 1),
}
"""Sentences of a page and the number of its figures."""


@pytest.mark.parametrize("paper", ALL)
def test_a_page_has_claims_figures_and_what_is_missing(reproduced: Folder, paper: str) -> None:
    page = (reproduced(paper) / f"{paper}.html").read_text()
    sentences, count = PAGES[paper]
    assert [sentence for sentence in sentences if sentence not in page] == []
    assert len(figures(page)) == count
    assert {row["holds"] for row in rows_of(reproduced(paper), "claims")} <= {"yes", "no", "in part", "undecided"}
    if paper == "stda":
        assert page.split("<main ")[1].count("<li>") == 7  # books and the two sets of newsgroups are there


@pytest.mark.parametrize("paper", SMALL)
def test_the_command_names_missing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], paper: str
) -> None:
    assert call(monkeypatch, "reproduce", paper, "--data", tmp_path, "--out", tmp_path / "none") == 2
    message = capsys.readouterr().err
    assert "missing-file" in message
    assert ("abalone.data" if paper == "onseg" else "books.svmlight") in message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("paper", "options", "message"),
    [
        ("cl-fobos", ["--draws", 3], "have no --draws"),
        ("other", [], "other"),
    ],
)
def test_the_command_refuses_options_of_other_papers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    paper: str,
    options: list[Any],
    message: str,
) -> None:
    assert call(monkeypatch, "reproduce", paper, "--data", tmp_path, "--out", tmp_path / "none", *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("paper", "option", "value"),
    [("caos", "repetitions", 1), ("onseg", "draws", 1), ("cl-fobos", "rounds", 399), ("stda", "passes", 0)],
)
def test_too_few_repetitions_rounds_or_passes(tmp_path: Path, paper: str, option: str, value: int) -> None:
    run: Any = PAPERS[paper].load()
    with raises_code("invalid-option", f"{option}={value}"):
        run(tmp_path, tmp_path / "none", **{option: value})


def test_missing_data_sets_are_skipped_and_reported(
    small_data: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "breast.data").write_bytes((small_data("onseg") / "breast.data").read_bytes())
    options = ["--data", tmp_path / "some", "--out", tmp_path / "out", "--repetitions", 2, "--draws", 2]
    assert call(monkeypatch, "reproduce", "onseg", *options) == 0
    assert "report: " in capsys.readouterr().out
    page = (tmp_path / "out" / "onseg.html").read_text()
    assert "Not in the folder given: abalone.data, kin8nm.csv, ionosphere.data, nyse_o.csv.gz" in page
