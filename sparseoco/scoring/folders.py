"""Folders in which no scores are written: those of other things, and those of the inputs."""

from collections.abc import Sequence

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.text.paths import RealPaths, absolute_path, real_path
from sparseoco.text.sources import Source
from sparseoco.training.models.description import DESCRIPTION


def check_folder(out: Location) -> None:
    """Raises `InputError` if a folder without scores is a store, a model or a run."""
    if Store.find(out) is not None or any((out / name).exists() for name in (DESCRIPTION, "run.json")):
        raise InputError(
            f"{out} is the folder of a store, a model or a run: choose another for the scores.", code="folder-not-empty"
        )


def check_apart(out: Location, inputs: Sequence[str], sources: Sequence[Source], options: TextOptions) -> None:
    """Check that the folder of the scores holds no input and, unless files are chosen, is in none.

    Raises `InputError`: another run would score the files of this one.
    """
    real = RealPaths()
    folder = real_path(str(out))
    found = [source.path for source in sources if real(source.absolute).startswith(f"{folder}/")]
    if not (options.include or options.exclude):
        found += [item for item in inputs if f"{folder}/".startswith(f"{_real_input(item)}/")]
    if found:
        raise InputError(
            f"{found[0]} is an input, and the folder of the scores, {out}, is in it or around it: choose another.",
            code="unsupported-combination",
        )


def _real_input(item: str) -> str:
    return real_path(absolute_path(item.removeprefix("file://"))).rstrip("/")
