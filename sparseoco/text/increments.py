"""The sources of an increment: those that a store or scores do not have yet, and whether a source is still the same."""

from collections.abc import Collection, Sequence

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.inputs import check_unchanged, names_versions
from sparseoco.storage.locations import Location, real_path
from sparseoco.storage.remote import map_concurrently
from sparseoco.store.entries import SourceEntry
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.cutting import digest_source, files_again
from sparseoco.text.encoding import check_label_kinds
from sparseoco.text.options import PER_INGEST, TextOptions
from sparseoco.text.sources import Source, check_apart, check_applied, find_sources, with_unique_names


def find_new(
    inputs: list[str], out: Location, options: TextOptions, store: Store | None, left_out: Collection[str] = ()
) -> tuple[list[Source], int]:
    """The sources of the inputs that are not in the store yet, and the number of those that are."""
    if store is not None:
        _check_options(out, options, store.manifest)
    found = find_sources(inputs, options, may_be_empty=store is not None)
    check_apart(out, inputs, options, (source.absolute for source in found))
    found = [source for source in found if source.absolute not in left_out]
    sources = new_sources(found, options, store)
    return sources, len(found) - len(sources)


def new_sources(sources: list[Source], options: TextOptions, store: Store | None) -> list[Source]:
    """The sources that are not in the store yet, if there is one, with unique short names.

    Raises `InputError` for sources that do not fit the options, the store or each other.
    """
    if store is None:  # later files need not be of the formats of the first
        check_applied(sources, options, options.model_fields_set)
    new = sources_beyond(() if store is None else tuple(store.sources), sources, options)
    check_label_kinds(new, options, None if store is None else store.manifest)
    return new


def _check_options(out: Location, options: TextOptions, previous: Manifest) -> None:
    """Raises `InputError` for options that differ from those of the store, except for `PER_INGEST`."""
    if digest_value(previous.options) != previous.options_digest:
        raise InputError(
            f"{out} holds shards made from those of another folder: ingest into a new one.",
            code="unsupported-combination",
        )
    before = TextOptions().plain() | previous.options
    changed = {key for key, value in options.plain().items() if before[key] != value} - PER_INGEST
    if changed:
        raise InputError(
            f"{out} was ingested with other options ({', '.join(sorted(changed))}): ingest into a new folder (set "
            "another out in a run file), or use the same options.",
            code="options-changed",
        )


def sources_beyond(before: Sequence[SourceEntry], sources: Sequence[Source], options: TextOptions) -> list[Source]:
    """The sources that are not among those `before`, with unique short names.

    Raises `InputError` if one of those before has changed, or if a source is given twice.
    """
    known = {real_path(entry.path): entry for entry in before}
    seen: set[str] = set()
    new: list[Source] = []
    for source in sources:
        path = source.real
        if path in seen:
            raise InputError(f"{source.path} is given twice.", code="duplicate-input")
        seen.add(path)
        entry = known.get(path)
        if entry is None:
            new.append(source)
        else:
            check_ingested(source, entry, options)
    return with_unique_names(new, [entry.path for entry in before])


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
        for _ in () if names_versions(source.path) else files_again(source, options):
            pass
    elif source.pin.condition is None:
        check_unchanged(source.path, source.pin)


def source_entries(sources: Sequence[Source], digests: Sequence[str], rows: Sequence[int]) -> list[SourceEntry]:
    """The sources in a manifest, with their digests and numbers of documents."""
    return [
        SourceEntry(path=source.absolute, bytes=source.bytes, modified_ns=source.modified_ns, sha256=sha256, rows=n)
        for source, sha256, n in zip(sources, digests, rows, strict=True)
    ]
