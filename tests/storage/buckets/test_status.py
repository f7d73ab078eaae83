"""Status and doctor where a run is in a bucket."""

from pathlib import Path

from sparseoco.ops.checks import check_folder
from sparseoco.ops.status import read_status
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage import commit as leases
from sparseoco.storage.commit import commit_json, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock
from tests.support.texts import write_run_file


def test_status_of_a_run_in_a_bucket(tmp_path: Path, bucket: Location) -> None:
    run = load_run_file(write_run_file(tmp_path)).model_copy(update={"out": bucket / "run"})
    run_steps.run_ingest(run)
    run_steps.run_search(run)
    found = read_status(run.out)
    assert {step.name: step.state for step in found.steps} == {
        "ingest": "done",
        "search": "done",
        "train": "not started",
        "evaluate": "not started",
        "report": "not started",
    }
    assert found.steps[1].figures["completed"] == 12
    assert found.seconds is not None
    assert not found.locks
    with exclusive_lock(run.out):
        (lock,) = read_status(run.out).locks
        assert lock.held
        assert lock.owner.startswith("process ")
        assert [finding.state for finding in check_folder("out", run.out)] == ["ok", "error"]
    assert [finding.state for finding in check_folder("out", run.out)] == ["ok"]
    *machine, number, beginning = leases._process_identity()
    ended = {"owner": "process 1 on here", "process": [*machine, number, int(beginning) + 1], "heartbeats": 3}
    commit_json(run.out / ".lock", ended)
    (lock,) = read_status(run.out).locks
    assert (lock.held, lock.expired) == (False, True)
    assert lock.message.endswith("which has ended: the next run takes it over")
    commit_json(run.out / ".lock", ended | {"process": ["elsewhere", 0, 1, 1]})
    (lock,) = read_status(run.out).locks
    assert lock.held
    assert 15 <= lock.seconds < 60  # three renewals
    assert [finding.state for finding in check_folder("out", run.out)] == ["ok", "error"]
    remove_file(run.out / ".lock")
    assert not [place for place in run.out.iterdir() if "doctor" in place.name]
