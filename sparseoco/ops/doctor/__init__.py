"""Whether a run would go through here, before it is begun: what is installed and reachable, and what it takes."""

from collections.abc import Iterator

from sparseoco.core.errors import SparseocoError
from sparseoco.ops.doctor.findings import Finding, checked, wrong
from sparseoco.ops.doctor.machine import look_at_machine, prefect
from sparseoco.ops.doctor.run import look_at_run
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file
from sparseoco.storage.locations import Location

__all__ = ["Finding", "examine"]

ORDER = {"wrong": 0, "doubtful": 1, "fine": 2}


def examine(run_file: Location | None, cluster_file: Location | None = None) -> list[Finding]:
    """What is found of this machine and, given one, of a run file, on the cluster of a file of its own if there is one.

    What is wrong comes first.
    """
    once = dict.fromkeys(_all(run_file, cluster_file))  # two checks may meet the same file that is not there
    return sorted(once, key=lambda finding: ORDER[finding.state])


def _all(run_file: Location | None, cluster_file: Location | None) -> Iterator[Finding]:
    yield from checked("this machine", look_at_machine)
    yield from checked("Prefect", prefect)
    if run_file is None:
        return
    try:
        run = load_run_file(run_file)
        if cluster_file is not None:
            run = run.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    except SparseocoError as error:
        yield wrong("run file", str(error))
        return
    yield from look_at_run(run)
