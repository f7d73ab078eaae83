"""The scoring of a run file as a flow of its own: the model of the run on the corpus of `[score]`.

python -m sparseoco.flows.score RUN_FILE
"""

from sparseoco.core.errors import InputError

from .steps import TASKS, read_run, run_flow, start


@run_flow("score")
def score(run_file: str) -> None:
    """Score the corpus, and keep what the options keep."""
    run = read_run(run_file)
    if run.score is None:
        raise InputError(f"{run_file} has no table [score].", code="missing-option")
    TASKS["score"](run)


if __name__ == "__main__":
    start("score")
