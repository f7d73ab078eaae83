"""Parts of an experiment: run once, in order, and read again afterwards."""

from pathlib import Path

import pytest

from sparseoco.papers.experiment import Cell, Run


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
