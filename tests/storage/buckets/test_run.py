"""Commands whose folders and run files are in an object store leave what they leave in a local folder."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

import sparseoco.flows.command as flows_command
from sparseoco.core.errors import StorageError
from sparseoco.datasets.synthetic import SyntheticCorpus, generate
from sparseoco.execution.options import ClusterOptions
from sparseoco.flows.steps import read_run
from sparseoco.ops.checks import check_folder
from sparseoco.ops.status import read_status
from sparseoco.pipeline import steps
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.nightly import roll_back, run_nightly
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage import commit as leases
from sparseoco.storage.commit import commit_bytes, commit_json, remove_file
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.remote import map_concurrently
from sparseoco.store.manifest import commit_manifest, read_manifest, read_manifests
from sparseoco.training.models import Model
from tests.storage.buckets.conftest import SECRET
from tests.storage.buckets.contents import contents, names
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model
from tests.support.nightly_runs import arrive
from tests.support.nightly_runs import prepare as prepare_nightly
from tests.support.prefect_server import environment
from tests.support.stores import make_store
from tests.support.texts import RUN_FILE, write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# A whole run on a bucket gives the files of a run in a folder.


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


# ----------------------------------------------------------------------------------------------------------------------
# Run files and cluster files in a bucket, with relative paths.


def check_same(there: Location, here: Location) -> None:
    """Two runs learned the same, whose texts were in different places."""
    both = [[name for name in names(run) if "/sources-" not in name] for run in (there, here)]
    assert both[0] == both[1]  # but for the table of sources, which has their paths
    for name in ("search/metrics.parquet", "search/best.json", "model/weights.parquet"):
        assert contents(there)[name] == contents(here)[name], name


@pytest.fixture
def file(bucket: Location, tmp_path: Path) -> Location:
    """A run file in a bucket, with its text in the same folder."""
    folder = bucket / "runs" / "places"
    write_run_file(tmp_path)
    for name in ("places.jsonl", "places.toml"):
        commit_bytes(folder / name, (tmp_path / name).read_bytes())
    return folder / "places.toml"


def test_paths_are_relative_to_the_file(bucket: Location) -> None:
    text = RUN_FILE.replace('"places.jsonl"', '"raw/", "a[1].txt", "/here/x.txt", "../../y.txt", "s3://other/z.txt"')
    text = text.replace('out = "run"', 'out = "."').replace("[ingest]", '[ingest]\nstore = "../shards"')
    text = text.replace("[search]", '[search]\nwarm_start = "../yesterday/model"')
    commit_bytes(bucket / "runs" / "places" / "run.toml", text.partition("[cluster]")[0].encode())
    top = str(bucket).rstrip("/")
    run = load_run_file(f"{top}/runs/places/run.toml")
    assert (str(run.out), str(run.store)) == (f"{top}/runs/places", f"{top}/runs/shards")
    resolve_against = f"{top}/runs/places"
    assert run.ingest.inputs == (
        f"{resolve_against}/raw", f"{resolve_against}/a[1].txt", "/here/x.txt", f"{top}/y.txt", "s3://other/z.txt",
    )  # fmt: skip
    assert run.search.warm_start == f"{top}/runs/yesterday/model"
    commit_bytes(bucket / "run.toml", RUN_FILE.encode())
    assert str(load_run_file(bucket / "run.toml").out) == f"{top}/run"


def test_commands_take_the_uri_of_a_run_file(
    file: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "doctor", file) == 0
    assert "150 documents" in capsys.readouterr().out
    assert call(monkeypatch, "run", file) == 0
    assert f"report: {file.parent}/run/report/report.html" in capsys.readouterr().out
    run_steps.run_all(load_run_file(tmp_path / "places.toml"))
    check_same(file.parent / "run", tmp_path / "run")


def test_nightly_takes_the_uri_of_a_run_file(
    file: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RUN_FILE.replace("folds = 3", "folds = 1").replace("algorithms.rda", "# ")
    commit_bytes(file, text.partition("[evaluate]")[0].encode())
    assert call(monkeypatch, "nightly", file) == 0
    assert f"report: {file.parent}/run/nightly.html" in capsys.readouterr().out
    assert "nightly.html" in names(file.parent / "run")


def test_a_file_of_a_cluster_may_be_in_a_bucket(
    file: Location, bucket: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_bytes(bucket / "site" / "here.toml", b"threads = 3\n")
    assert call(monkeypatch, "doctor", file, "--cluster", bucket / "site" / "here.toml") == 0
    assert "3 concurrent tasks in this process" in capsys.readouterr().out
    text = 'cluster = "../../site/here.toml"\n' + RUN_FILE.partition("[cluster]")[0]
    commit_bytes(file, text.encode())
    assert load_run_file(file).cluster.threads == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.toml", None, "none.toml: No such file or directory."),
        ("run.json", b"{}", "run.json"),
        ("big.toml", b"#" * (1 << 20) + b"#", "big.toml is larger than"),
        ("run.yaml", b"", "run.yaml"),
        ("latin.toml", b"\xff", "latin.toml is not UTF-8 text."),
        ("empty.toml", b"", "empty.toml: ingest: this key is required"),
        ("log.toml", RUN_FILE.encode() + b'[log]\nfile = "run.jsonl"\n', "is a remote URI; a log is a local file"),
        ("up.toml", b'out = "../../run"\n' + RUN_FILE.replace('out = "run"', "").encode(), "../../run"),
    ],
)
def test_invalid_run_files(
    bucket: Location,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    said: str,
) -> None:
    if content is not None:
        commit_bytes(bucket / "runs" / name, content)
    assert call(monkeypatch, "run", bucket / "runs" / name) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert call(monkeypatch, "doctor", bucket / "runs" / name) == 1
    assert said in capsys.readouterr().out.splitlines()[0]


def test_errors_of_the_store(
    bucket: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "s3://no-such-bucket/run.toml") == 3
    assert "s3://no-such-bucket does not exist" in capsys.readouterr().err
    assert call(monkeypatch, "run", "s3://key:secret@bucket/run.toml") == 2
    error = capsys.readouterr().err
    assert "credentials" in error
    assert "secret@" not in error
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert call(monkeypatch, "run", bucket / "run.toml") == 3
    assert "needs credentials: set AWS_ACCESS_KEY_ID" in capsys.readouterr().err
    assert call(monkeypatch, "doctor", bucket / "run.toml") == 1
    assert "error     run file: " in capsys.readouterr().out


def test_flows_take_the_uri_as_it_is(file: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_run(str(file)) == load_run_file(file)
    served: list[dict[str, str]] = []
    monkeypatch.setattr(flows_command, "serve_flow", lambda flow, name, parameters, *rest: served.append(parameters))
    monkeypatch.setattr(flows_command, "_check_server", lambda: None)
    monkeypatch.setattr(sys, "argv", ["pipeline", "serve", str(file)])
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}), pytest.raises(SystemExit):
        flows_command.main("pipeline")
    assert served == [{"run_file": str(file)}]


@pytest.mark.slow
def test_a_flow_runs_a_run_file_in_a_bucket(file: Location, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparseoco.flows.pipeline", str(file)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment(tmp_path / "home")
    )
    assert ran.returncode == 0, ran.stderr
    run_steps.run_all(load_run_file(tmp_path / "places.toml"))
    check_same(file.parent / "run", tmp_path / "run")


# ----------------------------------------------------------------------------------------------------------------------
# Nightly runs in a bucket give the same files as in a folder.


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
    here = prepare_nightly(tmp_path / "here")
    increments(here, tmp_path / "here", tmp_path / "here" / "incoming", 3)
    there = prepare_nightly(tmp_path / "there", **{'inputs = ["incoming"]': f'inputs = ["{bucket / "incoming"}/"]'})
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


# ----------------------------------------------------------------------------------------------------------------------
# A made corpus in a bucket.


def test_a_made_corpus_is_the_same_in_a_bucket(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ("--bytes", "60kB", "--files", 3, "--vocabulary", 5000)
    for out in (tmp_path / "made", bucket / "made"):
        assert call(monkeypatch, "generate", out, *made) == 0
        assert capsys.readouterr().out.strip() == f"{out}/text"
    assert contents(bucket / "made") == contents(tmp_path / "made")
    remove_file(bucket / "made" / "text" / "part-00001.jsonl")  # as if it had been killed before that one
    generate(SyntheticCorpus(60_000, 3, 5000), bucket / "made")
    assert contents(bucket / "made") == contents(tmp_path / "made")
    assert call(monkeypatch, "generate", bucket / "made", *made, "--seed", 2) == 2
    assert "has another synthetic corpus" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------------------
# A corpus in a bucket is scored into a bucket as one on this machine.


KEEP = {"keep_top": "10%", "keep_class": "b", "shard_bytes": 4096}


@pytest.mark.parametrize(
    ("keep_as", "cluster"),
    [
        pytest.param("documents", ClusterOptions(workers=2), marks=pytest.mark.slow),
        ("ids", ClusterOptions(threads=2)),
    ],
)
def test_scores_in_a_bucket(bucket: Location, tmp_path: Path, keep_as: str, cluster: ClusterOptions) -> None:
    random_model(tmp_path / "run")
    for path in (tmp_path / "run" / "model").iterdir():
        commit_bytes(bucket / "model" / path.name, path.read_bytes())
    rows = pa.Table.from_pylist([{"id": f"t{k}", "text": text} for k, text in enumerate(random_texts(200, 4))])
    pq.write_table(rows, tmp_path / "b.parquet", row_group_size=50)
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(200, 3)))
    for name in ("a.jsonl", "b.parquet"):
        commit_bytes(bucket / "in" / name, (tmp_path / name).read_bytes())
    options = ScoreOptions(**KEEP, keep_as=keep_as)
    out = bucket / f"scores-{options.keep_as}"
    manifest = steps.score(str(bucket / "model"), [str(bucket / "in")], out, options, cluster)
    assert manifest.rows == 400
    local = tmp_path / f"scores-{options.keep_as}"
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.parquet")]
    steps.score(str(tmp_path / "run"), inputs, local, options, ClusterOptions())
    found, expected = contents(out), contents(local)
    assert len(found) == len(expected)
    kept = {
        side: sorted(data or b"" for name, data in files.items() if name.startswith("kept/"))
        for side, files in (("remote", found), ("local", expected))
    }
    if options.keep_as == "documents":
        assert kept["remote"] == kept["local"]
    assert b"".join(kept["remote"])


# ----------------------------------------------------------------------------------------------------------------------
# Status and doctor where a run is in a bucket.


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
