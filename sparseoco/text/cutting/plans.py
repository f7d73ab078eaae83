"""The splits of tables, and of folders with one document per file: one task for each."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import location
from sparseoco.storage.remote import map_concurrently
from sparseoco.store.entries import SourceEntry
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.cutting.listings import LISTED, Listing, read_files
from sparseoco.text.cutting.tables import cut_table
from sparseoco.text.folders import FolderFile, iter_files
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.paths import RealPaths
from sparseoco.text.sources import FOLDERS, TABLES, Source, folder_key, version_of, with_unique_names
from sparseoco.text.splits import Split
from sparseoco.text.stored import SetDigest, changed, check_unchanged, digest_stored


class Plan(NamedTuple):
    """The splits of a source, and its digest; of a folder, the digest to which those of its splits are added."""

    splits: list[Split]
    sha256: str


def plan_source(index: int, source: Source, options: TextOptions, shard_bytes: int, staging: str) -> Plan:
    """The splits of a table or folder. The listing of a folder, and what is known of a table, are staged.

    Raises `InputError` for a source that is corrupt or has changed, and `StorageError`.
    """
    if source.format in FOLDERS:
        return Plan(list(_plan_folder(index, source, options, shard_bytes, staging)), SetDigest().hexdigest())
    memo = location(staging) / f"{digest_value([source.key, options.counting_digest, shard_bytes])[:32]}.cuts"
    if memo.exists():
        facts = load_arrays(memo)[1]
    else:
        cuts = list(cut_table(source, options, shard_bytes))
        facts = {"cuts": cuts, "sha256": digest_source(source, options)}
        save_arrays(memo, {}, facts)
    return Plan([Split.of(index, source, options, *cut) for cut in facts["cuts"]], facts["sha256"])


def _plan_folder(index: int, source: Source, options: TextOptions, shard_bytes: int, staging: str) -> Iterator[Split]:
    listing = _list_again(source, options)
    part = -1
    for start, stop, size in listing.cuts(shard_bytes):
        if start // LISTED != part:
            part = start // LISTED
            path = location(staging) / f"{source.key[:32]}-{part}.listing"
            listing.save(path, part * LISTED, (part + 1) * LISTED)
        begin = part * LISTED
        split = Split.of(index, source, options, start, stop, size, path=str(path))
        yield split._replace(start=start - begin, stop=stop - begin)


def digest_source(source: Source, options: TextOptions) -> str:
    """The digest that an ingest of this source gives. Raises as the ingest."""
    if source.format in FOLDERS:
        digest = SetDigest()
        listing = _list_again(source, options)
        for start, stop, _ in listing.cuts(SHARD_BYTES):
            files = listing.files(start, stop)
            digest.update(read_files(source.path, source.short, source.format, files, options).digest)
        return digest.hexdigest()
    # A remote table is not read only for its digest: its ETag identifies it.
    if source.format in TABLES and source.remote:
        return source.key
    return digest_stored(source.absolute, source.path, source.pin)


def sources_beyond(before: Sequence[SourceEntry], sources: Sequence[Source], options: TextOptions) -> list[Source]:
    """The sources that are not among those `before`, with unique short names.

    Raises `InputError` if one of those before has changed, or if a source is given twice, be it by a hard link.
    """
    real = RealPaths()
    known = {real(entry.path): entry for entry in before}
    seen: set[str] = set()
    new: list[Source] = []
    for source in sources:
        path = real(source.absolute)
        if path in seen:
            raise InputError(f"{source.path} is given twice.", code="duplicate-input")
        seen.add(path)
        entry = known.get(path)
        if entry is None:
            new.append(source)
        else:
            check_ingested(source, entry, options)
    _check_hard_links(before, new)
    return with_unique_names(new, [entry.path for entry in before])


def _check_hard_links(before: Sequence[SourceEntry], new: Sequence[Source]) -> None:
    """Raises `InputError` if a new file is another new one by another name, or one of those before."""
    states = {(source.bytes, source.modified_ns) for source in new}
    known = {_file_identity(entry.path): entry.path for entry in before if (entry.bytes, entry.modified_ns) in states}
    for source in new:
        identity = _file_identity(source.absolute)
        if identity is not None and identity in known:
            raise InputError(
                f"{source.path} is given twice: it is a hard link of {known[identity]}.", code="duplicate-input"
            )
        known[identity] = source.path


def _file_identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a local file; None for a URI and for a file that is no longer there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_ingested(source: Source, entry: SourceEntry, options: TextOptions, sha256: str = "") -> None:
    """Check that a source, or the digest of what was read of it, is the version that was read first.

    Raises `InputError`, and `StorageError`.
    """
    same = (entry.bytes, entry.modified_ns) == (source.bytes, source.modified_ns)
    if sha256:
        same = entry.sha256 == sha256
    elif not same and entry.bytes == source.bytes:
        same = entry.sha256 == digest_source(source, options)
    if not same:
        raise InputError(
            f"{source.path} has changed since it was first read: choose a new folder (out) for the results.",
            code="input-changed",
        )


def check_sources(sources: Sequence[Source], options: TextOptions) -> None:
    """Check that sources are still the versions that `find_sources` found, before an ingest commits.

    Remote files were read by requests that named their versions; those without a version are checked.

    Raises `InputError` with the file, and `StorageError`.
    """
    map_concurrently(lambda source: _check_source(source, options), sources)


def _check_source(source: Source, options: TextOptions) -> None:
    if source.pin is None:
        for _ in () if source.remote else _files_again(source, options):
            pass
    elif source.pin.condition is None:
        check_unchanged(source.path, source.pin)


def _list_again(source: Source, options: TextOptions) -> Listing:
    return Listing.of(source.absolute, _files_again(source, options))


def _files_again(source: Source, options: TextOptions) -> Iterator[FolderFile]:
    """The files of a folder. Raises `InputError` at the end if they are not those that were found."""
    versions = SetDigest()
    for file in iter_files(source.absolute, options):
        versions.add(version_of(file))
        yield file
    if folder_key(source.absolute, versions) != source.key:
        raise changed(source.path)
