"""Parts of an experiment: run once, in their order, what was found before read again."""

from pathlib import Path

import pytest

from sparseoco.papers.cells import Cell, run_cells


def test_a_cell_runs_once_and_what_breaks_off_goes_on(tmp_path: Path) -> None:
    ran: list[int] = []

    def cell(k: int, breaks: bool = False) -> Cell:
        def run() -> dict[str, float]:
            if breaks:
                raise RuntimeError("killed")
            ran.append(k)
            return {"value": k / 3}

        return Cell({"k": k}, run)

    told: list[tuple[str, int, int]] = []

    def run(cells: list[Cell]) -> list[dict[str, float]]:
        return list(run_cells(tmp_path, "play", cells, lambda *step: told.append(step), threads=1))

    with pytest.raises(RuntimeError):
        run([cell(0), cell(1), cell(2, breaks=True)])
    assert ran == [0, 1]
    assert run([cell(k) for k in range(4)]) == [{"value": k / 3} for k in range(4)]
    assert ran == [0, 1, 2, 3]
    assert told[-4:] == [("play", done, 4) for done in (1, 2, 3, 4)]
