"""Which models of nightly runs are kept: the deployed one, and those of the last promotions."""

import re

from sparseoco.pipeline.nightly.history import HistoryRows, increment_model, read_deployed
from sparseoco.storage.commit import remove_file, remove_folder
from sparseoco.storage.locations import Location

_MODEL = re.compile(r"\d{8}")


def unneeded_models(run: Location, history: HistoryRows, keep: int | None) -> list[Location]:
    """The folders of models of decided increments that are not kept, in order of increments.

    Kept are the deployed model and those of the last `keep` promotions, of all of them if it is None. What an increment
    that was not promoted has left is not kept.
    """
    promoted = history.promoted()
    kept = set(promoted if keep is None else promoted[-keep:])
    deployed = read_deployed(run, history)
    if deployed is not None:
        kept.add(deployed.increment)
    models = run / "models"
    if not models.exists():
        return []
    numbers = sorted(int(path.name) for path in models.iterdir() if _MODEL.fullmatch(path.name))
    return [increment_model(run, number) for number in numbers if number <= len(history) and number not in kept]


def remove_model(folder: Location) -> None:
    """Remove a model; one that is removed in part is none, since model.json goes first. Raises `StorageError`."""
    remove_file(folder / "model.json")
    remove_folder(folder)
