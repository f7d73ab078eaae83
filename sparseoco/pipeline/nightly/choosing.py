"""A person's word against the nights': the model of an earlier night serves again, until a later one is promoted.

The choice is committed first; what follows from it, promoted.json and the page, is written after it, and anew by the
same command where that was killed in between.
"""

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.logs import log_event, logged_step
from sparseoco.pipeline.nightly.page import labelled
from sparseoco.pipeline.nightly.records import Row, add_choice, model_of, read_rows, serving
from sparseoco.pipeline.nightly.run import Outcome, follow
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report.wording import plural
from sparseoco.storage.commit import exclusive_lock
from sparseoco.storage.locations import Location
from sparseoco.training.model import Model

MODELS_NAMED = 10  # in the sentence that says which nights left one


@logged_step("serve", "run")
def serve_night(run: RunFile, night: int, *, if_running: str | None = None) -> Outcome:
    """Let the model that a night left serve from now on; nothing is taken in or learned.

    if_running  "wait" for another run in the same folder to end, or "end" at once; as in the run file by default

    Raises `InputError` for a night that left no model, `StorageError` for a model that is gone or damaged,
    `FolderInUseError` where another run works in the folder and is not waited for.
    """
    _find(run.out, read_rows(run.out, "history"), night)  # before a folder that holds no nights is held
    with exclusive_lock(run.out.resolve(), wait=(if_running or run.nightly.if_running) == "wait"):
        history = read_rows(run.out, "history")
        row = _find(run.out, history, night)
        _check_model(run.out, night)
        served = serving(history, read_rows(run.out, "history-choices"))
        replaced = night if served is None else served.night
        if replaced == night:
            return Outcome([], follow(run, history), f"The model of night {night} serves already.")
        add_choice(run.out, night, history)
        log_event("nightly", "model chosen", night=night, instead_of=replaced)
        return Outcome(
            [],
            follow(run, history),
            f"The model of night {night} serves now, that of night {replaced} no more: {row['algorithm']} "
            f"({labelled(row)}), {plural(row['nonzeros'], 'nonzero weight')}.",
        )


def _find(run: Location, history: list[Row], night: int) -> Row:
    """The row of a night that left a model. Raises `InputError`."""
    left = [row["night"] for row in history if row["promoted"]]
    if night in left:
        return history[night - 1]
    if not left:
        raise InputError(f"No night in {run} has left a model that could serve.")
    named = f"{'the last of them ' if len(left) > MODELS_NAMED else ''}{', '.join(map(str, left[-MODELS_NAMED:]))}"
    why = "it was not promoted" if 1 <= night <= len(history) else f"the last night is {len(history)}"
    raise InputError(f"Night {night} left no model in {run}: {why}. Nights that did: {named}.")


def _check_model(run: Location, night: int) -> None:
    """Raises `StorageError` where the model of a night is gone or damaged."""
    folder = model_of(run, night)
    if not (folder / "model.json").exists():
        raise StorageError(f"The model of night {night} is not there any more: {folder} has no model.json.")
    Model(folder)
