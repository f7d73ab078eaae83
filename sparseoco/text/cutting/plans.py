"""The splits of tables, and of folders with one document per file: one task for each."""

from collections.abc import Sequence
from typing import NamedTuple

from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import location
from sparseoco.storage.remote import map_concurrently
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.cutting.listings import NO_FILES, add_digests, cut_files, read_files, save_listing
from sparseoco.text.cutting.tables import cut_table
from sparseoco.text.folders import FolderFile, list_files
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.sources import FOLDERS, TABLES, Source, folder_key
from sparseoco.text.splits import Split
from sparseoco.text.stored import changed, check_unchanged, digest_stored


class Plan(NamedTuple):
    """The splits of a source, and its digest if it is known before they are read."""

    splits: list[Split]
    sha256: str


def plan_source(index: int, source: Source, options: TextOptions, shard_bytes: int, staging: str) -> Plan:
    """The splits of a table or folder. The listing of a folder, and what is known of a table, are staged.

    Raises `InputError` for a source that is corrupt or has changed, and `StorageError`.
    """
    if source.format in FOLDERS:
        files = _list_again(source, options)
        path = location(staging) / f"{source.key[:32]}.listing"
        save_listing(path, source.absolute, files)
        found = cut_files(files, shard_bytes)
        return Plan([Split.of(index, source, options, *cut, path=str(path)) for cut in found], "")
    memo = location(staging) / f"{digest_value([source.key, options.counting_digest, shard_bytes])[:32]}.cuts"
    if memo.exists():
        facts = load_arrays(memo)[1]
    else:
        cuts = list(cut_table(source, options, shard_bytes))
        facts = {"cuts": cuts, "sha256": digest_source(source, options)}
        save_arrays(memo, {}, facts)
    return Plan([Split.of(index, source, options, *cut) for cut in facts["cuts"]], facts["sha256"])


def digest_source(source: Source, options: TextOptions) -> str:
    """The digest that an ingest of this source gives. Raises as the ingest."""
    if source.format in FOLDERS:
        digest = NO_FILES
        files = list_files(source.absolute, options)
        for start, stop, _ in cut_files(files, SHARD_BYTES):
            found = read_files(source.path, source.short, source.format, files[start:stop], options)
            digest = add_digests(digest, found.digest)
        return digest
    # A remote table is not read only for its digest: its ETag identifies it.
    if source.format in TABLES and source.remote:
        return source.key
    return digest_stored(source.absolute, source.path, source.pin)


def check_sources(sources: Sequence[Source], options: TextOptions) -> None:
    """Check that sources are still the versions that `find_sources` found, before an ingest commits.

    Raises `InputError` with the file, and `StorageError`.
    """
    map_concurrently(lambda source: _check_source(source, options), sources)


def _check_source(source: Source, options: TextOptions) -> None:
    if source.pin is None:
        _list_again(source, options)
    else:
        check_unchanged(source.path, source.pin)


def _list_again(source: Source, options: TextOptions) -> list[FolderFile]:
    """The files of a folder. Raises `InputError` if they are not those that were found."""
    files = list_files(source.absolute, options)
    if folder_key(source.absolute, files) != source.key:
        raise changed(source.path)
    return files
