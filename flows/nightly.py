"""A nightly run: new files are taken in, judged and learned, and the model that is no worse is promoted.

python -m flows.nightly RUN_FILE

python -m flows.nightly serve --cron "0 2 * * *" RUN_FILE

`sparseoco nightly RUN_FILE` does the same without Prefect. The flow's parameter `serve` is a night whose model serves
again, as `sparseoco nightly RUN_FILE --serve NIGHT` has it.
"""

from functools import partial
from typing import Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.command import start
from flows.steps import key_of, read_run, run_name, step_of
from sparseoco.pipeline.nightly import Outcome, night_line, nights_markdown, nights_table, run_nightly, serve_night
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.locations import Location


def _take(run: RunFile) -> Location | None:
    return _log_outcome(run, run_nightly(run))


def _serve(run: RunFile, night: int) -> Location | None:
    return _log_outcome(run, serve_night(run, night))


def _log_outcome(run: RunFile, outcome: Outcome) -> Location | None:
    for sentence in (*map(night_line, outcome.nights), outcome.sentence):
        if sentence:
            get_run_logger().info("%s: %s", run.name, sentence)
    return outcome.page


nightly_step = step_of("nightly", _take)


@task(name="publish-nights", cache_policy=NO_CACHE)
def publish_nights(run: RunFile) -> None:
    """Show the last night, the table of nights and where the page is as Prefect artifacts, keyed by the run."""
    key = key_of(run)
    create_markdown_artifact(nights_markdown(run.out, run.name), key=f"{key}-nightly", description=run.name)
    create_table_artifact(nights_table(run.out), key=f"{key}-nights", description=run.name)
    page = run.out.resolve() / "nightly.html"
    create_link_artifact(page.as_uri(), "nightly.html", key=f"{key}-nightly-page", description=run.name)


@flow(name="sparseoco-nightly", flow_run_name=run_name)
def nightly(run_file: str, if_running: Literal["wait", "end"] | None = None, serve: int | None = None) -> str | None:
    """New files to a promoted model, or, with `serve`, an earlier night's model serves again and nothing is learned.

    Gives the path of the page, or None where another run was under way.
    """
    run = read_run(run_file)
    if if_running is not None:
        run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"if_running": if_running})})
    page = nightly_step(run) if serve is None else step_of("serve", partial(_serve, night=serve))(run)
    if page is None:
        return None
    publish_nights(run)
    return str(page)


if __name__ == "__main__":
    start("nightly")
