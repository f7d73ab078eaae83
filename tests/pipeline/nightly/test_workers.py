"""Increments on worker processes that are killed have the bytes of increments in threads."""

from pathlib import Path

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile
from tests.support.kills import check_under_kills
from tests.support.nightly_runs import arrive, contents, prepare


def increments(run: RunFile, files: list[Path]) -> dict[str, bytes]:
    """Run an increment for each file; returns the contents of the run folder."""
    for count in range(1, len(files) + 1):
        inputs = tuple(map(str, files[:count]))
        increment = run.model_copy(update={"ingest": run.ingest.model_copy(update={"inputs": inputs})})
        while True:
            try:
                run_nightly(increment)
            except SparseocoError as error:  # of workers that die before they have begun none is started again
                if "could not be started" not in str(error):
                    raise
                continue
            break
    return contents(Path(str(run.out)))


@pytest.mark.fault(1)
@pytest.mark.slow
def test_workers_that_die(tmp_path: Path) -> None:
    files = [arrive(tmp_path, increment, rows=600) for increment in (1, 2, 3)]
    expected = increments(prepare(tmp_path / "threads"), files)

    def check(folder: Path) -> None:
        run = prepare(folder, **{"threads = 2": "workers = 2"})
        assert increments(run, files) == expected

    check_under_kills(tmp_path / "workers", check, kills=6, seed=0)
