"""The files of a run: its inputs, and the folder it writes to."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from dask.utils import format_bytes

from sparseoco.ops.doctor.findings import Finding, doubtful, fine, wrong
from sparseoco.ops.status.holding import hold_on
from sparseoco.pipeline.nightly.history import read_history
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report.wording import plural
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import latest_manifest
from sparseoco.text.ingest import new_sources
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.streams import first_bytes


def look_at_inputs(subject: str, inputs: Sequence[str], options: TextOptions) -> Iterator[Finding]:
    """Whether they are there and can be read."""
    yield _readable(subject, find_sources(list(inputs), options))


def look_at_new_inputs(run: RunFile) -> Iterator[Finding]:
    """The same of the raw text of a run, and how much of it is new where some was taken in already."""
    options, manifest = run.ingest.text, latest_manifest(run.store)
    sources = find_sources(list(run.ingest.inputs), options, may_be_empty=by_night(run))
    new = len(new_sources(sources, options, manifest))
    yield _readable("inputs", sources, "" if manifest is None else f", {new:,} of them new")


def by_night(run: RunFile) -> bool:
    """Whether nights have been learned in the run's folder: then files may be gone once they are taken in."""
    return bool(read_history(run.out, "history"))


def _readable(subject: str, sources: list[Source], more: str = "") -> Finding:
    for source in sources:
        if source.format != "folder":
            first_bytes(source.path, source.compression, 1)
    told = f"{plural(len(sources), 'source')}, {format_bytes(sum(source.bytes for source in sources))}{more}"
    return fine(subject, f"{told}, all can be read." if sources else "They are empty: nothing is new.")


def sources_of(run: RunFile) -> list[Source]:
    """The raw text of a run. Raises `InputError`."""
    return find_sources(list(run.ingest.inputs), run.ingest.text)


def look_at_folder(subject: str, folder: Location) -> Iterator[Finding]:
    """Whether a folder can be written to, who works in it, and what room there is."""
    there = nearest(folder)
    probe = there / f".doctor-{os.getpid()}"
    commit_bytes(probe, b"doctor")
    if probe.read_bytes() != b"doctor":
        yield wrong(subject, f"{folder} does not give back what was written to it.")
    remove_file(probe)
    room = f" ({format_bytes(free_bytes(there))} free)" if isinstance(there, Path) else ""
    yield fine(subject, f"{folder} can be written to{room}.")
    hold = hold_on(folder)
    if hold is not None and hold.sure:
        yield wrong(subject, f"{hold.sentence}: two never work in one folder.")
    elif hold is not None:
        yield (fine if hold.gone else doubtful)(subject, f"{hold.sentence}.")


def nearest(folder: Location) -> Location:
    """The folder, or the next one above it that is there; at an address, where there are no folders, itself."""
    if not isinstance(folder, Path) or folder.exists() or folder == folder.parent:
        return folder
    return nearest(folder.parent)


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written there."""
    return int(psutil.disk_usage(str(nearest(folder))).free)
