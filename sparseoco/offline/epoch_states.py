"""States of epoch methods on disk: one file an epoch (see `checkpoints`), which the next begins with."""

from sparseoco.storage.checkpoints import is_complete
from sparseoco.storage.locations import Location


class EpochStates:
    """The states in a folder, which belongs to one block."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder

    def path(self, epoch: int) -> Location:
        """Where the state after an epoch goes."""
        return self._folder / f"state-{epoch}.npz"

    def latest(self) -> Location | None:
        """The furthest state that is undamaged."""
        found = sorted(self._folder.glob("state-*.npz"), key=lambda path: int(path.stem.split("-")[1]), reverse=True)
        return next((path for path in found if is_complete(path)), None)
