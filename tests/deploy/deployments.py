"""Deployments of the example in deploy/prefect.yaml, and runs long enough to be stopped."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.prefect_server import (
    ROOT,
    artifacts,
    environment,
    running,
)
from tests.support.texts import write_run_file

EXAMPLE = ROOT / "deploy" / "prefect.yaml"


PREFECT = [sys.executable, "-m", "prefect"]


def copy_with_three_lines_changed(folder: Path, run_file: Path, cron: str = "* * * * *") -> None:
    """The example in a folder, as its comments say it is to be changed."""
    changed = {
        "folder:": f"folder: &folder {folder}",
        "run_file:": f"run_file: {run_file.name}",
        "cron:": f'cron: "{cron}"',
    }
    lines = EXAMPLE.read_text().splitlines()
    for i, line in enumerate(lines):
        if "# change" in line:
            key = line.split()[0]
            lines[i] = line[: line.index(key)] + changed.pop(key)
    assert not changed
    (folder / "prefect.yaml").write_text("\n".join(lines))


def prefect(*arguments: str, env: dict[str, str], folder: Path) -> None:
    ran = subprocess.run([*PREFECT, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def deployed(folder: Path, server: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """What prefect.yaml of the folder says deployed, and a process worker that waits for its runs."""
    env = environment(folder / "home", PREFECT_API_URL=server, PREFECT_WORKER_QUERY_SECONDS="1", **settings)
    prefect("work-pool", "create", "sparseoco", "--type", "process", env=env, folder=folder)
    prefect("--no-prompt", "deploy", "--all", env=env, folder=folder)
    with running([*PREFECT, "worker", "start", "--pool", "sparseoco"], folder / "worker.log", env, folder) as worker:
        yield worker


def check_results(server: str, out: Path) -> None:
    """The artifacts of a finished run lead to its files, which are those of a run without Prefect."""
    found = artifacts(server)
    assert len(json.loads(found["places-leaderboard"]["data"])) == 4
    assert "| rank |" in found["places-summary"]["data"]
    links = {key: artifact["data"] for key, artifact in found.items() if "(file://" in artifact["data"]}
    for key, file in (("report", "report/report.html"), ("weights", "model/weights.parquet")):
        assert (out / file).as_uri() in links[f"places-{key}"]
        assert (out / file).exists()
    here = load_run_file(out.parent / "places.toml").model_copy(update={"out": out.parent / "here"})
    run_steps.run_all(here)
    for file in ("search/metrics.parquet", "model/weights.parquet"):
        assert (out / file).read_bytes() == (here.out / file).read_bytes()


def write_long_run_file(folder: Path) -> Path:
    """A run whose search takes minutes."""
    run_file = write_run_file(folder)
    run_file.write_text(run_file.read_text().replace("epochs = 1", "epochs = 5000"))
    return run_file


def search_begun(folder: Path) -> bool:
    return (folder / "run" / "run.json").exists()
