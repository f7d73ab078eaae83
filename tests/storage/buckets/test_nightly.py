"""Nightly runs in a bucket give the same files as in a folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.pipeline.nightly import roll_back, run_nightly
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import map_concurrently
from sparseoco.store.manifest import commit_manifest, read_manifest, read_manifests
from sparseoco.training.models import Model
from tests.storage.buckets.contents import contents
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, prepare
from tests.support.stores import make_store

# Where the text was, when an increment ended, and the seconds in a state.
ELSEWHERE = ("manifest-", "sources-", "history-timings", "history-rollbacks", "nightly.html", "checkpoints")


def increments(run: RunFile, folder: Path, incoming: Location, count: int) -> None:
    """Files arrive in `incoming`, one for each increment."""
    for increment in range(1, count + 1):
        path = arrive(folder, increment)
        if incoming != path.parent:
            commit_bytes(incoming / path.name, path.read_bytes())
        outcome = run_nightly(run)
        assert [row["increment"] for row in outcome.increments] == [increment]


@pytest.mark.slow
def test_increments_in_a_bucket(tmp_path: Path, bucket: Location) -> None:
    here = prepare(tmp_path / "here")
    increments(here, tmp_path / "here", tmp_path / "here" / "incoming", 3)
    there = prepare(tmp_path / "there", **{'inputs = ["incoming"]': f'inputs = ["{bucket / "incoming"}/"]'})
    there = there.model_copy(update={"out": bucket / "run"})
    increments(there, tmp_path / "there", bucket / "incoming", 3)
    assert run_nightly(there).message == "Nothing new: all files are learned, up to increment 3."
    for run in (here, there):
        roll_back(run, 1)
        assert run_nightly(run).message.startswith("Nothing new")
    expected, got = (
        {name: data for name, data in contents(run.out).items() if not any(part in name for part in ELSEWHERE)}
        for run in (here, there)
    )
    assert got == expected
    assert Model(bucket / "run").folder.name == "00000001"
    assert Model(bucket / "run").predict(["wave boat tide salt", "tree leaf moss"]) == ["sea", "wood"]


def test_manifests_of_several_increments_can_be_batches(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_manifest(make_store(tmp_path), 1)
    expected = [whole.model_copy(update={"version": version}) for version in range(1, 6)]
    for manifest in expected:
        commit_manifest(bucket / "shards", manifest)
    batches = []

    def read(request: Callable[[Location], bytes], paths: list[Location]) -> list[bytes]:
        batches.append(len(paths))
        return map_concurrently(request, paths)

    monkeypatch.setattr("sparseoco.storage.commit.map_concurrently", read)
    monkeypatch.setattr("sparseoco.store.manifest.BATCH", 2)
    assert list(read_manifests(bucket / "shards", 5)) == expected
    assert batches == [2, 2, 1]
    with raises_code("missing-file", "manifest-00000006.json", kind=StorageError):
        list(read_manifests(bucket / "shards", 6))
