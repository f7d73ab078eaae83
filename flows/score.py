"""The scoring of a run file as a flow of its own: the model of the run on the corpus of `[score]`.

python -m sparseoco.flows.score RUN_FILE

python -m sparseoco.flows.score serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from sparseoco.core.errors import InputError

from .command import start
from .ending import fails_with_message
from .steps import publish_scores, read_run, run_name, score_task


@flow(name="sparseoco-score", flow_run_name=run_name)
@fails_with_message
def score(run_file: str) -> None:
    """Score the corpus, and keep what the options keep."""
    run = read_run(run_file)
    if run.score is None:
        raise InputError(f"{run_file} has no table [score].", code="missing-option")
    score_task(run)
    publish_scores(run)


if __name__ == "__main__":
    start("score")
