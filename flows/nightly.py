"""A nightly run: ingest new files, evaluate the deployed model on them, learn them, promote a model that is no worse.

python -m flows.nightly RUN_FILE

python -m flows.nightly serve --cron "0 2 * * *" RUN_FILE

`sparseoco nightly RUN_FILE` does the same without Prefect. The flow's parameter `rollback` is an increment to roll back
to, as `sparseoco nightly RUN_FILE --rollback INCREMENT`.
"""

from functools import partial
from typing import Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.command import start
from flows.steps import key_of, read_run, run_name, step_of
from sparseoco.pipeline.nightly import Outcome, night_line, nights_markdown, nights_table, roll_back, run_nightly
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.locations import Location


def _take(run: RunFile) -> Location | None:
    return _log_outcome(run, run_nightly(run))


def _roll_back(run: RunFile, increment: int) -> Location | None:
    return _log_outcome(run, roll_back(run, increment))


def _log_outcome(run: RunFile, outcome: Outcome) -> Location | None:
    for line in (*map(night_line, outcome.increments), outcome.message):
        if line:
            get_run_logger().info("%s: %s", run.name, line)
    return outcome.page


nightly_step = step_of("nightly", _take)


@task(name="publish-nights", cache_policy=NO_CACHE)
def publish_nights(run: RunFile) -> None:
    """Publish the last increment, the table of increments and a link to the page as Prefect artifacts."""
    key = key_of(run)
    create_markdown_artifact(nights_markdown(run.out, run.name), key=f"{key}-nightly", description=run.name)
    create_table_artifact(nights_table(run.out), key=f"{key}-nights", description=run.name)
    page = run.out.resolve() / "nightly.html"
    create_link_artifact(page.as_uri(), "nightly.html", key=f"{key}-nightly-page", description=run.name)


@flow(name="sparseoco-nightly", flow_run_name=run_name)
def nightly(run_file: str, if_running: Literal["wait", "end"] | None = None, rollback: int | None = None) -> str | None:
    """New files to a promoted model or, with `rollback`, only a return to the model of an earlier increment.

    Returns the path of the page, or None if another run was in progress.
    """
    run = read_run(run_file)
    if if_running is not None:
        run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"if_running": if_running})})
    page = nightly_step(run) if rollback is None else step_of("rollback", partial(_roll_back, increment=rollback))(run)
    if page is None:
        return None
    publish_nights(run)
    return str(page)


if __name__ == "__main__":
    start("nightly")
