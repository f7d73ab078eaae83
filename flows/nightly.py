"""Nightly training: ingests new files, evaluates the deployed model on them, and promotes a model that is no worse.

python -m sparseoco.flows.nightly RUN_FILE

`sparseoco nightly RUN_FILE` does the same without Prefect. The flow's parameter `rollback` is the increment whose
model to deploy again, as in `sparseoco nightly RUN_FILE --rollback INCREMENT`, and `held` says whether the increment
that is held is accepted or discarded.
"""

from functools import partial
from typing import Literal

from prefect import get_run_logger
from prefect import task as prefect_task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from sparseoco.pipeline import nightly as increments
from sparseoco.pipeline.run_file import HeldDecision, RunFile
from sparseoco.report.page import plain
from sparseoco.storage.locations import Location

from .steps import artifact_key, make_task, read_run, run_flow, start


def _run(run: RunFile, rollback: int | None, held: HeldDecision | None) -> Location | None:
    """Run one increment or deploy an earlier model, and log what was done; returns the page."""
    outcome = increments.run_nightly(run, held) if rollback is None else increments.roll_back(run, rollback)
    for line in increments.left_out_lines(outcome.left_out):
        get_run_logger().warning("%s: %s", run.name, line)
    for line in (*map(increments.increment_line, outcome.increments), outcome.message):
        if line:
            get_run_logger().info("%s: %s", run.name, line)
    return outcome.page


@prefect_task(name="publish-increments", cache_policy=NO_CACHE)
def publish_increments(run: RunFile) -> None:
    """Publish the newest increment, with the place of the page, and the table of increments as Prefect artifacts."""
    key = artifact_key(run)
    page = f"Page: {plain((run.out.absolute() / 'nightly.html').as_uri())}"
    newest = f"{increments.nightly_markdown(run.out, run.name)}\n{page}\n"
    create_markdown_artifact(newest, key=f"{key}-nightly", description=run.name)
    create_table_artifact(increments.increments_table(run.out), key=f"{key}-increments", description=run.name)


@run_flow("nightly")
def nightly(
    run_file: str,
    if_running: Literal["wait", "end"] | None = None,
    rollback: int | None = None,
    held: HeldDecision | None = None,
) -> str | None:
    """Run one increment or, with `rollback`, deploy the model of an earlier increment again.

    Returns the path of the page, or None if another run was in progress. The run fails while an increment is held;
    `held` accepts or discards it.
    """
    run = read_run(run_file)
    if if_running is not None:
        run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"if_running": if_running})})
    name = "nightly" if rollback is None else "rollback"
    page = make_task(name, partial(_run, rollback=rollback, held=held))(run)
    if page is None:
        return None
    publish_increments(run)
    return str(page)


if __name__ == "__main__":
    start("nightly")
