"""The files of a run: its inputs, and the folders it writes to."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from dask.utils import format_bytes

from sparseoco.core.formatting import plural
from sparseoco.ops.doctor.findings import Finding, error, ok, warning
from sparseoco.ops.status.locks import folder_lock
from sparseoco.pipeline.nightly.history import read_history
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.shards import Store
from sparseoco.text.ingest import find_new
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import FOLDERS, TABLES, Source, find_sources
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.files import open_table

LARGE_BYTES = 1 << 30  # of a compressed file, which is not cut before it is read


def check_inputs(subject: str, inputs: Sequence[str], options: TextOptions) -> Iterator[Finding]:
    """Whether the inputs exist and can be read."""
    yield from _readable(subject, find_sources(list(inputs), options), options)


def check_new_inputs(run: RunFile) -> Iterator[Finding]:
    """Whether the raw text of a run can be read, and how many of its files are new if some are already ingested."""
    options, store = text_options(run), Store.find(run.store)
    sources = find_sources(list(run.ingest.inputs), options, may_be_empty=is_nightly(run))
    new, _ = find_new(list(run.ingest.inputs), run.store, options, store)
    yield from _readable("inputs", sources, options, "" if store is None else f", {len(new):,} of them new")


def text_options(run: RunFile) -> TextOptions:
    """The options that the text of a run, or of nightly increments, is ingested with."""
    return run.ingest.text if is_nightly(run) else run.text


def is_nightly(run: RunFile) -> bool:
    """Whether the folder has nightly increments: then files may be deleted once they are ingested."""
    return bool(read_history(run.out, "history"))


def _readable(subject: str, sources: list[Source], options: TextOptions, more: str = "") -> Iterator[Finding]:
    for source in sources:
        if source.format in TABLES:
            open_table(source.absolute, source.format, source.key, source.pin)
        elif source.format not in FOLDERS:
            first_bytes(source.path, source.compression, 1, options.encoding)
    size = f"{plural(len(sources), 'source')}, {format_bytes(sum(source.bytes for source in sources))}{more}"
    yield ok(subject, f"{size}, all can be opened." if sources else "There are no new files.")
    for source in sources:
        if source.compression is not None and source.bytes > LARGE_BYTES:
            yield warning(
                subject,
                f"{source.path} is one compressed file of {format_bytes(source.bytes)}, which only one worker "
                "reads from beginning to end: use several files, or leave it uncompressed.",
            )


def check_folder(subject: str, folder: Location) -> Iterator[Finding]:
    """Whether a folder is writable, locked, and how much space is free."""
    existing = nearest_existing(folder)
    probe = existing / f".doctor-{os.getpid()}"
    commit_bytes(probe, b"doctor")
    if probe.read_bytes() != b"doctor":
        yield error(subject, f"{folder} does not return what was written to it.")
    remove_file(probe)
    space = f" ({format_bytes(free_bytes(existing))} free)" if isinstance(existing, Path) else ""
    yield ok(subject, f"{folder} is writable{space}.")
    lock = folder_lock(folder)
    if lock is not None and lock.held:
        yield error(subject, f"{lock.message}: only one process can write to a folder.")
    elif lock is not None:
        yield (ok if lock.expired else warning)(subject, f"{lock.message}.")


def nearest_existing(folder: Location) -> Location:
    """The folder, or its nearest existing parent; a remote URI itself, since it has no folders."""
    if not isinstance(folder, Path) or folder.exists() or folder == folder.parent:
        return folder
    return nearest_existing(folder.parent)


def free_bytes(folder: Path) -> int:
    """Free bytes of the file system."""
    return int(psutil.disk_usage(str(nearest_existing(folder))).free)
