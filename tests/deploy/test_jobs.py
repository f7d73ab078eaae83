"""deploy/jobs.py with stand-ins for the commands of a batch system, which start a job's script as a process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import load_run_file
from tests.search.by_hand import as_environment, certificates
from tests.support.folders import assert_same_results
from tests.support.prefect_server import ROOT, free_port
from tests.support.texts import write_run_file

SUBMIT = """#!{python}
import os, subprocess, sys
from pathlib import Path

script, number = Path(sys.argv[-1]).read_text(), os.getpid()  # jobs may be submitted at the same time
log = open(Path({jobs!r}).parent / f"{{number}}.log", "w")
job = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
(Path({jobs!r}) / str(number)).write_text(str(job.pid))
print({answer})
"""
CANCEL = """#!{python}
import os, signal, sys
from pathlib import Path

os.killpg(int((Path({jobs!r}) / sys.argv[-1].partition(".")[0]).read_text()), signal.SIGTERM)
"""
SYSTEMS = {
    "SLURM": ("sbatch", "scancel", 'f"Submitted batch job {number}"'),
    "PBS": ("qsub", "qdel", 'f"{number}.server.example.org"'),
}


@pytest.mark.parametrize(("system", "count"), [("SLURM", 1), pytest.param("PBS", 2, marks=pytest.mark.slow)])
def test_a_run_on_jobs_gives_the_same_bytes(tmp_path: Path, system: str, count: int) -> None:
    """With certificates; each job runs one worker of the cores and memory of the job, and none is left."""
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    jobs.mkdir()
    submit, cancel, answer = SYSTEMS[system]
    for name, text in ((submit, SUBMIT), (cancel, CANCEL)):
        (commands / name).write_text(text.format(python=sys.executable, jobs=str(jobs), answer=answer))
        (commands / name).chmod(0o755)
    port, script = free_port(), (ROOT / "deploy" / "jobs.py").read_text()
    for before, after in {
        "SLURMCluster": f"{system}Cluster",
        "cores=4": "cores=1",
        '"16GB"': '"1GB"',
        '"ib0"': '"lo"',
        '"/tmp"': repr(str(tmp_path / "scratch")),
        "/shared": str(ROOT),
        "8786": str(port),
        "minimum=8, maximum=8": f"minimum={count}, maximum={count}",
    }.items():
        assert before in script
        script = script.replace(before, after)
    (tmp_path / "jobs.py").write_text(script)
    run_file = write_run_file(tmp_path)
    cluster = (ROOT / "deploy" / "address.toml").read_text().replace("scheduler.example.org:8786", f"127.0.0.1:{port}")
    (tmp_path / "address.toml").write_text(cluster)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "DASK_CONFIG": str(ROOT / "deploy/dask.yaml"),
    }
    environment |= as_environment(certificates(tmp_path / "certificates"))
    command = [sys.executable, "-m", "sparseoco", "run", run_file.name, "--cluster", "address.toml"]
    subprocess.run([sys.executable, "jobs.py", *command], cwd=tmp_path, env=environment, check=True)
    processes = [int(path.read_text()) for path in jobs.iterdir()]
    assert len(processes) == count
    while any(psutil.pid_exists(number) for number in processes):
        time.sleep(0.1)
    for job in jobs.iterdir():
        log = (tmp_path / f"{job.name}.log").read_text()
        assert "Start worker at" in log
        assert "Threads:                          1" in log
    here = load_run_file(run_file).model_copy(update={"out": tmp_path / "here"})
    steps.run_all(here)
    assert_same_results(tmp_path / "run", tmp_path / "here")
