"""Rolling back to the model of an earlier increment, until the next promotion.

The rollback is committed first, then promoted.json and the page are written. If the command is killed in between, the
same command writes them.
"""

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.formatting import plural
from sparseoco.core.logs import log_event, logged_step
from sparseoco.pipeline.nightly.history import (
    HistoryRows,
    add_rollback,
    increment_model,
    read_deployed,
    read_history,
)
from sparseoco.pipeline.nightly.page import parameters_label
from sparseoco.pipeline.nightly.run import NightlyResult, publish
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.metrics import Row
from sparseoco.training.models.model import Model

LISTED = 10  # increments named in an error


@logged_step("rollback", "run")
def roll_back(run: RunFile, increment: int) -> NightlyResult:
    """Deploy the model of an earlier increment; nothing is ingested or learned.

    Raises
    ------
    InputError : for an increment without a model.
    StorageError : for a model that is missing or corrupt.
    FolderInUseError : if another run uses the folder and is not waited for.
    """
    _find(run.out, read_history(run.out, "history"), increment)  # before the lock, which creates a missing folder
    with exclusive_lock(run.out.resolve(), wait=run.nightly.if_running == "wait"):
        history = read_history(run.out, "history")
        row = _find(run.out, history, increment)
        _check_model(run.out, increment)
        deployed = read_deployed(run.out, history)
        replaced = increment if deployed is None else deployed.increment
        if replaced == increment:
            message = f"The model of increment {increment} is already deployed."
            return NightlyResult([], publish(run, history), message)
        add_rollback(run.out, increment, history)
        log_event("nightly", "rolled back", increment=increment, instead_of=replaced)
        message = (
            f"Rolled back from the model of increment {replaced} to that of increment {increment}: {row['algorithm']} "
            f"({parameters_label(row)}), {plural(row['nonzeros'], 'nonzero weight')}."
        )
        return NightlyResult([], publish(run, history), message)


def _find(run: Location, history: HistoryRows, increment: int) -> Row:
    """The row of an increment. Raises `InputError` if it has no model."""
    promoted = history.promoted()
    if increment in promoted:
        return history[increment - 1]
    if not promoted:
        raise InputError(f"No increment in {run} has a model to roll back to.", code="no-model")
    last = ", ".join(str(n) for n in promoted[-LISTED:] if (increment_model(run, n) / "model.json").exists())
    listed = f"{'the last of them ' if len(promoted) > LISTED else ''}{last or 'none'}"
    reason = "it was not promoted" if 1 <= increment <= len(history) else f"the last increment is {len(history)}"
    raise InputError(
        f"Increment {increment} in {run} has no model: {reason}. Increments with a model: {listed}.", code="no-model"
    )


def _check_model(run: Location, increment: int) -> None:
    """Raises `StorageError` if the model of an increment is missing or corrupt."""
    folder = increment_model(run, increment)
    if not (folder / "model.json").exists():
        raise StorageError(
            f"The model of increment {increment} is missing: {folder} has no model.json.", code="missing-model"
        )
    Model(folder)
