"""Removing what no later run needs from a folder of a run or of shards."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.ops.status import is_of_search, search_setting_values
from sparseoco.pipeline.nightly.records import read_history, remove_model, unneeded_models
from sparseoco.report.results import RunRecord
from sparseoco.storage.commit import read_validated, remove_file, remove_folder
from sparseoco.storage.locations import Location, files_below, local_work_folder
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.temporary import TEMPORARY_SECONDS, boot
from sparseoco.store.entries import read_shard_table
from sparseoco.store.manifest import Manifest, latest_manifest, read_manifests
from sparseoco.text.array_files import STAGING

_DATA_FILE = re.compile(r"(shard|shards|sources|vocabulary|names|frequencies|quarantine)-[0-9a-f]{24}\.parquet")


class _Setting(BaseModel):
    """The setting of a cell or of a block."""

    setting: dict[str, Any] = {}


class _State(_Setting):
    """What is read of a cell, or of a checkpoint, which has a block."""

    block: _Setting | None = None
    learner: str | None = None


KNOWN = ("run.json", "history.parquet", "model.json")
"""Files of a folder of a run, of nightly runs or of a model."""


class Removed(NamedTuple):
    """What was removed, or would be: the kind, the number of files, and their size in bytes."""

    kind: str
    files: int
    bytes: int


class _Unneeded(NamedTuple):
    """A model, a folder or a file that may go."""

    kind: str
    path: Location
    files: list[tuple[Location, int]]


def clean(folder: Location, *, keep_models: int | None = None, dry_run: bool = False) -> list[Removed]:
    """Remove what neither a later run, a rollback within the retention, a resumed run nor a report reads.

    A killed call leaves a folder that every command reads as before; the next call removes the rest.

    Parameters
    ----------
    folder : Location
        The folder of a run, of nightly runs or of shards. A store elsewhere, which others may use, stays as it is.
    keep_models : int, optional
        Of nightly runs, keep the models of this many promotions and the deployed one; by default all.
    dry_run : bool
        Remove nothing.

    Returns
    -------
    list of Removed
        One for each kind of which there is something.

    Raises
    ------
    FolderInUseError
        If a run uses the folder.
    InputError
        If it is no folder of a run or of shards.
    StorageError
        For a manifest or a table that is corrupt: then nothing is removed.
    """
    store = folder if latest_manifest(folder) is not None else folder / "shards"
    manifest = latest_manifest(store)
    if manifest is None and not any((folder / name).exists() for name in KNOWN):
        raise InputError(f"{folder} is not a folder of a run or of shards.", code="not-a-run")
    if keep_models is not None and not read_history(folder, "history"):
        raise InputError(
            f"{folder} has no nightly runs, whose models --keep-models is of.", code="unsupported-combination"
        )
    with ExitStack() as locks:
        for own in dict.fromkeys((folder, store) if manifest is not None else (folder,)):
            locks.enter_context(exclusive_lock(own.resolve()))
        found = list(_unneeded(folder, store, keep_models))
        removed: dict[str, Removed] = {}
        for entry in found:
            if not dry_run:
                _remove(entry)
            before = removed.get(entry.kind, Removed(entry.kind, 0, 0))
            size = sum(size for _, size in entry.files)
            removed[entry.kind] = Removed(entry.kind, before.files + len(entry.files), before.bytes + size)
    return list(removed.values())


def _unneeded(folder: Location, store: Location, keep_models: int | None) -> Iterator[_Unneeded]:
    """Everything that may go; it is found before anything is removed."""
    manifest, history = latest_manifest(store), read_history(folder, "history")
    for model in unneeded_models(folder, history, keep_models):
        yield _Unneeded("models", model, files_below(model))
    if (folder / "run.json").exists():
        yield from _of_other_settings(folder)
    if manifest is not None:
        staging = [path for own in dict.fromkeys((store, local_work_folder(store))) for path in _staging(own)]
        earlier = [path for path in staging if _is_outdated(path)]
        for path in earlier:
            yield _Unneeded("staging files of an earlier boot", path, files_below(path))
        if len(earlier) == len(staging):  # otherwise a killed ingest may use them when it resumes
            listed = _listed(store, manifest)
            for path, size in files_below(store, recursive=False):
                if _DATA_FILE.fullmatch(path.name) and path.name not in listed:
                    yield _Unneeded("data files that no manifest lists", path, [(path, size)])


def _of_other_settings(folder: Location) -> Iterator[_Unneeded]:
    """Cells and checkpoints of the search that another grid, seed or version of the package has left."""
    run = read_validated(folder / "run.json", RunRecord)
    wanted = search_setting_values(run, run.options(folder / "run.json"))
    for kind in ("cells", "checkpoints"):
        files = {path.name: (path, size) for path, size in files_below(folder / "search" / kind, recursive=False)}
        for path, size in files.values():
            if path.suffix != ".json":
                continue
            with suppress(DamagedError):  # a search removes it
                state = read_validated(path, _State)
                setting = (state.block or state).setting
                if not is_of_search(setting, wanted):
                    learner = [files[state.learner]] if state.learner in files else []
                    yield _Unneeded("cells and checkpoints of other settings", path, [(path, size), *learner])


def _staging(folder: Location) -> list[Location]:
    """The staging folders of ingests into a store."""
    staging = folder / STAGING
    return sorted(staging.iterdir()) if staging.exists() else []


def _is_outdated(staging: Location) -> bool:
    """Whether staging files were made before this machine was started, and not by another one that is working."""
    if not isinstance(staging, Path) or staging.name in (boot(), "shared"):
        return False
    return staging.stat().st_mtime < time.time() - TEMPORARY_SECONDS


def _listed(store: Location, last: Manifest) -> set[str]:
    """The names of the files that the manifests of a store list: later versions have all shards of earlier ones."""
    names = set(read_shard_table(store, last).table["file"].to_pylist())
    for manifest in read_manifests(store, last.version):
        listed = manifest.shard_listing, manifest.source_listing, manifest.frequencies
        entries = *listed, *manifest.features.files, *manifest.quarantine
        names |= {entry.file for entry in entries if entry is not None}
    return names


def _remove(entry: _Unneeded) -> None:
    match entry.kind:
        case "models":
            remove_model(entry.path)
        case "staging files of an earlier boot":
            remove_folder(entry.path)
        case _:
            for path, _ in entry.files:
                remove_file(path)
