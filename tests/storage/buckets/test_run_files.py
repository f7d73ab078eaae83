"""Run files and cluster files in a bucket, with relative paths."""

import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

import sparseoco.flows.command as flows_command
from sparseoco.flows.steps import read_run
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from tests.storage.buckets.contents import contents, names
from tests.support.commands import call
from tests.support.prefect_server import environment
from tests.support.texts import RUN_FILE, write_run_file


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
