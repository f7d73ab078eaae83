"""Checks before a run: what is installed and reachable, and the memory and time the run would take."""

from collections.abc import Iterator

from sparseoco.core.errors import SparseocoError
from sparseoco.ops.doctor.findings import Finding, error, run_check
from sparseoco.ops.doctor.machine import check_machine, prefect
from sparseoco.ops.doctor.run import check_run
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file, name_keys
from sparseoco.storage.locations import Location

__all__ = ["Finding", "examine"]

ORDER = {"error": 0, "warning": 1, "ok": 2}


def examine(run_file: Location | None, cluster_file: Location | None = None) -> list[Finding]:
    """Check this machine and, if given, a run file, with the cluster of a file of its own if there is one.

    Returns
    -------
    list of Finding
        Errors first.
    """
    once: dict[tuple[str, str], Finding] = {}
    for finding in _all(run_file, cluster_file):
        if run_file is not None:
            finding = finding._replace(message=name_keys(finding.message))
        # Several checks may find the same missing file.
        once.setdefault((finding.state, finding.message), finding)
    return sorted(once.values(), key=lambda finding: ORDER[finding.state])


def _all(run_file: Location | None, cluster_file: Location | None) -> Iterator[Finding]:
    yield from run_check("this machine", check_machine)
    yield from run_check("Prefect", prefect)
    if run_file is None:
        return
    try:
        run = load_run_file(run_file)
        if cluster_file is not None:
            run = run.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    except SparseocoError as raised:
        yield error("run file", str(raised), raised.code)
        return
    yield from check_run(run)
