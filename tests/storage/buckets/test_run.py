"""A whole run on a bucket gives the files of a run in a folder."""

from pathlib import Path

import pytest

from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.storage.locations import Location
from tests.storage.buckets.conftest import SECRET
from tests.storage.buckets.contents import contents
from tests.support.commands import call
from tests.support.texts import write_run_file


def prepare(folder: Path, out: Location) -> RunFile:
    """A run of the same text, whose shards and results go to `out`."""
    folder.mkdir(exist_ok=True)
    path = write_run_file(folder)
    run = load_run_file(path)
    return run.model_copy(update={"out": out})


def test_a_run_in_a_bucket_gives_the_files_of_one_in_a_folder(tmp_path: Path, bucket: Location) -> None:
    here, there = prepare(tmp_path / "text", tmp_path / "run"), prepare(tmp_path / "text", bucket / "runs" / "one")
    run_steps.run_all(here)
    run_steps.run_all(there)
    assert contents(there.out) == contents(here.out)
    assert all(SECRET.encode() not in data for data in contents(there.out, timed=True).values() if data is not None)


COMMANDS = """
ingest {text}/places.jsonl --out {out}/shards --where split=train
search {out}/shards --out {out}/search --algorithm cl-fobos --grid lam=1e-4,1e-3 --folds 2 --threads 2
regret {out}/search --threads 2
search {out}/shards --out {out}/passes --algorithm caos-erm --folds 1 --epochs 2 --threads 2
search {out}/shards --out {out}/columns --algorithm cao-rcd --folds 1 --epochs 2 --threads 2
train {out}/shards --out {out}/model --set lam=1e-3 --threads 2
train {out}/shards --out {out}/again --set lam=1e-3 --warm-start {out}/model --threads 2
train {out}/shards --out {out}/kept --set lam=1e-4 --features-from {out}/model --threads 2
train {out}/shards --out {out}/auto --algorithm auto --grid cl-fobos.lam=1e-4,1e-3 --threads 2
optimum {out}/shards --out {out}/optimum --alpha 1 --threads 2
evaluate {out}/model {text}/places.jsonl --where split=test
predict {out}/model {text}/places.jsonl --where split=test
report {out}/search
"""


@pytest.mark.slow
def test_every_command_gives_the_same_in_a_bucket_as_in_a_folder(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run_file(tmp_path)
    here, there = tmp_path / "out", bucket / "out"
    for line in COMMANDS.strip().splitlines():
        said = []
        for out in (here, there):
            code = call(monkeypatch, *line.format(text=tmp_path, out=out).split())
            captured = capsys.readouterr()
            assert code == 0, (line, captured.err)
            assert SECRET not in captured.out + captured.err
            said.append(captured.out.replace(str(out), "OUT"))
        assert said[1] == said[0], line
    assert contents(there) == contents(here)
    assert all(SECRET.encode() not in data for data in contents(there, timed=True).values() if data is not None)
