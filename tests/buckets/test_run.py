"""A whole run on a bucket gives the files of a run in a folder."""

from pathlib import Path

from sparseoco import steps
from sparseoco.config import RunFile, load_run_file
from sparseoco.locations import Location
from tests.buckets.contents import contents
from tests.texts import write_run_file


def prepare(folder: Path, out: Location) -> RunFile:
    """A run of the same text, whose shards and results go to `out`."""
    folder.mkdir(exist_ok=True)
    path = write_run_file(folder)
    run = load_run_file(path)
    return run.model_copy(update={"out": out})


def test_a_run_in_a_bucket_gives_the_files_of_one_in_a_folder(tmp_path: Path, bucket: Location) -> None:
    here, there = prepare(tmp_path / "text", tmp_path / "run"), prepare(tmp_path / "text", bucket / "runs" / "one")
    steps.run_all(here)
    steps.run_all(there)
    assert contents(there.out) == contents(here.out)
