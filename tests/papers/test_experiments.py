"""What the experiments of all papers have in common: cells, bytes, pages and the command."""

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.logs import progress_to
from sparseoco.papers import PAPERS
from sparseoco.papers.claims import FIRST, LEVEL, MADE_OF, MIXED, UNDECIDED, ordered_claims
from sparseoco.papers.rows import select
from tests.papers.small import SMALL, rows_of
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.pages import figures

TIMES = {"timings.parquet", "equal_time.parquet"}
ALL = ["caos", "cl-fobos", *(pytest.param(paper, marks=pytest.mark.slow) for paper in ("onseg", "stda", "sgft"))]
Folder = Callable[[str], Path]


@pytest.mark.parametrize("paper", ALL)
def test_interrupted_runs_give_equal_bytes(small_data: Folder, reproduced: Folder, tmp_path: Path, paper: str) -> None:
    """Every other cell is that of the run that was not interrupted, so that it is quick."""
    run: Any = PAPERS[paper].load()

    def stop(step: str, done: int, total: int) -> None:
        assert done <= total
        if step != "read" and done == 3:
            raise KeyboardInterrupt

    with progress_to(stop), pytest.raises(KeyboardInterrupt):
        run(small_data(paper), tmp_path, **SMALL[paper].options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(before) >= 3
    for cell in sorted((reproduced(paper) / "cells").iterdir())[::2]:
        if tmp_path / "cells" / cell.name not in before:
            shutil.copy(cell, tmp_path / "cells")
    run(small_data(paper), tmp_path, **SMALL[paper].options)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    tables = {path.name for path in tmp_path.glob("*.parquet")}
    assert tables == {path.name for path in reproduced(paper).glob("*.parquet")}
    for name in {*tables, "inputs.json"} - TIMES:
        assert (tmp_path / name).read_bytes() == (reproduced(paper) / name).read_bytes(), name


def outline(page: str) -> str:
    """What is on a page, without its numbers: headings, claims, columns of tables, figures and lists.

    Without what depends on run times: of CL-FOBOS, the K that takes as long on this machine, if there is one.
    """
    page = re.sub(r"<h2[^>]*>Figure 2 at equal run time.*?</section>", "", page, flags=re.DOTALL)
    lines, claims = [], []
    for name, content in re.findall(r"<(h\d|caption|summary|th|title|li)\b[^>]*>(.*?)</\1>", page, re.DOTALL):
        text = re.sub(r'<span class="badge">.*?</span>|<svg.*?</svg>', "", content, flags=re.DOTALL)
        text = " ".join(re.sub("<[^>]*>", " ", html.unescape(text)).split())
        if re.search(r"equal run time|the K found here|^λ = .*, K = ", text):
            continue
        if (name == "th" and "</span>" in content and "The paper:" in text) or 'class="badge">ours' in content:
            claims.append(f"claim  {text}")  # their order depends on the verdicts
        elif not (name == "li" and re.search(r"\d s\b", text)):
            lines.append(f"{name:7}{text}".rstrip())
    return "\n".join([*dict.fromkeys(lines), *sorted(claims)]) + "\n"


@pytest.mark.parametrize("paper", ALL)
def test_a_page_is_as_before(reproduced: Folder, paper: str) -> None:
    """Its outline is that of tests/papers/golden."""
    page = (reproduced(paper) / f"{paper}.html").read_text()
    assert outline(page) == (Path(__file__).parent / "golden" / f"{paper}.txt").read_text()
    assert figures(page)


@pytest.mark.parametrize("paper", ALL)
def test_verdicts_follow_from_the_comparisons(reproduced: Folder, paper: str) -> None:
    """Of every page: each word is that of the comparisons of its row, and the page has the counts of the words."""
    claims, comparisons = (rows_of(reproduced(paper), name) for name in ("claims", "comparisons"))
    assert {row["holds"] for row in claims} <= set(FIRST)
    for row in claims:
        found = select(comparisons, claim=row["claim"], where=row["where"])
        own = {each["holds"] for each in found if not each["elsewhere"]} or {each["holds"] for each in found}
        assert own <= MADE_OF[row["holds"]] | ({UNDECIDED} if row["holds"] == MIXED else set())
        assert {each["p"] < LEVEL for each in found if each["holds"] == UNDECIDED} <= {False}
    page = (reproduced(paper) / f"{paper}.html").read_text()
    for claim in ordered_claims(claims):
        if len(claim.counts) > 1:
            counts = ", ".join(f"{sum(row['holds'] == word for row in claim.rows)} {word}" for word in claim.counts)
            assert f'<span class="badge">{claim.verdict}: {counts}</span>' in page


@pytest.mark.parametrize("paper", SMALL)
def test_the_command_names_missing_files(tmp_path: Path, paper: str, cli: Cli) -> None:
    message = cli("reproduce", paper, "--data", tmp_path, "--out", tmp_path / "none", code=2).err
    assert "missing-file" in message
    assert ("abalone.data" if paper == "onseg" else "books.svmlight") in message
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("paper", "option", "value"),
    [("caos", "repetitions", 1), ("onseg", "draws", 1), ("cl-fobos", "rounds", 399), ("stda", "passes", 0)],
)
def test_too_few_repetitions_rounds_or_passes(tmp_path: Path, paper: str, option: str, value: int) -> None:
    run: Any = PAPERS[paper].load()
    with raises_code("invalid-option", f"{option}={value}"):
        run(tmp_path, tmp_path / "none", **{option: value})


def test_missing_data_sets_are_skipped_and_reported(small_data: Folder, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "some").mkdir()
    lines = (small_data("onseg") / "breast.data").read_text().splitlines(keepends=True)
    (tmp_path / "some" / "breast.data").write_text("".join(lines[:5]))
    options = ["--data", tmp_path / "some", "--out", tmp_path / "out", "--repetitions", 2, "--draws", 2]
    assert "report: " in cli("reproduce", "onseg", *options).out
    page = (tmp_path / "out" / "onseg.html").read_text()
    assert "Not in the folder given: abalone.data; kin8nm.csv; ionosphere.data; nyse_o.csv.gz" in page
