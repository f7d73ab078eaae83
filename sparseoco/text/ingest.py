"""Ingest: raw text to a store of term counts.

Count every split (`text.counting`), merge the vocabularies and choose the features (`text.vocabulary`), write every
split as a shard (`text.encoding`). The steps exchange staging files, which are named by a digest of everything they
depend on, so that a run that was killed reuses them. Nothing is visible before the manifest is committed.
"""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import ProgressCallback, log_event, no_progress
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.entries import SourceEntry, add_entries
from sparseoco.store.manifest import SCHEMA_VERSION, FeatureTable, FieldEntry, FileEntry, Manifest, commit_manifest
from sparseoco.store.shards import Store, write_quarantine
from sparseoco.store.terms import add_files
from sparseoco.text.array_files import clear_staging, staging_folder, starting_over
from sparseoco.text.counting import Counting, PartialCounts, choose_bins
from sparseoco.text.cutting import check_sources, sources_beyond
from sparseoco.text.documents import quarantined_rows
from sparseoco.text.encoding import check_label_kinds, drop_duplicates, encode_labels, encode_shards, merge_frequencies
from sparseoco.text.folders import check_apart, hidden_files
from sparseoco.text.options import PER_INGEST, SHARD_BYTES, NumberField, TextOptions, VocabularyPolicy
from sparseoco.text.passes import pass_over
from sparseoco.text.readers import Kind, describe_sources
from sparseoco.text.sources import Source, check_applied, find_sources
from sparseoco.text.splits import fields_to_name
from sparseoco.text.table_files import close_tables
from sparseoco.text.tasks import TextJob, open_tasks
from sparseoco.text.vocabulary.merge import FeatureMap, build_features

# ----------------------------------------------------------------------------------------------------------------------
# How much raw text a shard has, unless it is given.


MAX_SHARDS = 20_000
MAX_SHARD_BYTES = 16 << 20  # a task has one split in memory: its peak is some 40 bytes per byte of text
COMPRESSION = 4  # bytes of text per byte of a compressed file, about


def shard_size(given: int | None, sources: Iterable[Source], previous: Manifest | None) -> int:
    """Bytes of raw text per shard: those that are given, or those of the first ingest into the store.

    That is 8 MiB, doubled while its text makes more than 20,000 shards, up to 16 MiB, from 168 GB on. It
    depends on the sizes of the files alone, so a run that is resumed or repeated makes the same shards; a
    byte of a compressed file counts as four.

    Raises `InputError` if `given` is not between 1 KiB and 1 GiB.
    """
    if given is not None:
        if not 1 << 10 <= given <= 1 << 30:
            raise InputError("shard_bytes must lie between 1 KiB and 1 GiB.", code="invalid-option")
        return given
    if previous is not None and previous.shard_bytes is not None:
        return previous.shard_bytes
    text = sum(source.bytes * (COMPRESSION if source.compression else 1) for source in sources)
    size = SHARD_BYTES
    while size < MAX_SHARD_BYTES and text > size * MAX_SHARDS:
        size *= 2
    return size


def ingest(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    *,
    client: object | None = None,
    shard_bytes: int | None = None,
    vocabulary: VocabularyPolicy = "frozen",
    progress: ProgressCallback | None = None,
    left_out: Collection[str] = (),
) -> Manifest:
    """Count raw text into a store.

    Running it again adds new inputs and skips those that were ingested before; a run that was killed resumes.
    The content of the store depends neither on the number of workers nor, apart from its division into shards, on
    `shard_bytes`.

    Parameters
    ----------
    inputs : list of str
        Files, folders and remote URIs.
    out : Location
        Folder of the store.
    options : TextOptions
        The same for every ingest into a store, except for ``max_bad_rows`` and ``duplicates``. Later files are counted
        over the classes of the first ingest, or those of the options.
    client : distributed.Client, optional
        A cluster whose workers see the same files; by default the steps run in threads of this process.
    shard_bytes : int, optional
        Raw text per shard, in bytes; by default it grows with the text of the first ingest (see `shard_size`).
    vocabulary : {"frozen", "extend"}
        New terms in later files are dropped, or, if they pass min_df and max_df in the new files alone, appended after
        the last id. Existing ids never change.
    progress : callable, optional
        Called with (step, done, total).
    left_out : collection of str
        Absolute paths of sources that are not read.

    Returns
    -------
    Manifest
        The committed manifest, or the previous one if there is nothing new.

    Raises
    ------
    InputError
        For input or options that cannot be used, with file and line.
    StorageError
        For a folder that cannot be written or read.
    """
    arguments = inputs, out, options, client, shard_bytes, vocabulary, progress or no_progress, left_out
    return starting_over(out, "ingest", lambda: _ingest(*arguments))


def _ingest(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    client: object | None,
    shard_bytes: int | None,
    vocabulary: VocabularyPolicy,
    progress: ProgressCallback,
    left_out: Collection[str],
) -> Manifest:
    """Ingest once, see `ingest`. Raises `StagingError` for a staging file that is missing or corrupt."""
    store = Store.find(out)
    previous = None if store is None else store.manifest
    sources, known = find_new(inputs, out, options, store, left_out)
    size = shard_size(shard_bytes, sources, previous)
    log_event("ingest", "sources found", new=len(sources), known=known)
    if previous is not None and not sources:
        clear_staging(out)  # of a run that was killed right after the commit
        return previous
    with open_tasks(client) as tasks:
        absolute = out.absolute()  # workers may have other working directories
        staging = staging_folder(absolute, local=tasks.on_machine)
        counting = options
        if previous is not None and previous.labels.kind != "numbers":
            counting = options.with_classes(entry.name for entry in previous.labels.classes)
        if previous is not None:
            counting = counting.with_cuts(previous.fields)
        job = TextJob(absolute, staging, counting, size, progress, tasks)
        try:
            counted, digests = pass_over(job, sources, Counting(str(staging), counting))
        finally:
            close_tables()
        counts = drop_duplicates(job, counted, store)
        if store is None:
            _check_not_empty(options, sources, counted, counts)
            _check_fields(options, counts)
        job, counts = choose_bins(job, counts)
        labels = encode_labels(counts, options, previous)
        feature_map: FeatureMap | None = None
        new_terms: tuple[FileEntry, ...] = ()
        if options.hash_bits is None:
            feature_map, new_terms = build_features(job, counts, store, vocabulary)
        shards, staged = encode_shards(job, counts, labels, feature_map, previous)
        frequencies = previous.frequencies if previous is not None else None
        if staged:
            frequencies = merge_frequencies(job, previous, staged)
        files = previous.features.files if previous is not None else ()
        if options.hash_bits is not None:
            names = tuple(shard.names for shard in shards if shard.names)
            files = job.tasks(add_files, job.out, "names", files, names).result()
            bits = options.hash_bits
            features = FeatureTable(kind="hashed", count=1 << bits, files=files, hash_bits=bits)
        else:
            assert feature_map is not None
            files = job.tasks(add_files, job.out, "vocabulary", files, new_terms).result()
            features = FeatureTable(kind="vocabulary", count=feature_map.n_features, files=files)
    bad = [row for split in counted for row in quarantined_rows(sources[split.split.source].absolute, split.bad)]
    new: dict[str, Any] = {
        "empty_rows": sum(split.empty for split in counts),
        "dropped_terms": sum(shard.dropped for shard in shards),
        "quarantined_rows": len(bad),
        "multiline_rows": sum(split.multiline for split in counted),
        "duplicate_rows": sum(split.rows for split in counted) - sum(split.rows for split in counts),
    }
    quarantined = (write_quarantine(out, bad),) if bad else ()
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        version=1 if previous is None else previous.version + 1,
        sparseoco=__version__,
        options=options.plain(),
        options_digest=options.digest,
        features=features,
        frequencies=frequencies,
        labels=labels.table,
        columns=tuple(options.columns),
        fields=_field_entries(job.options, counts, previous),
        quarantine=add_files(out, "quarantine", () if previous is None else previous.quarantine, quarantined),
        shard_bytes=size if previous is None else previous.shard_bytes,
        **add_entries(out, previous, (shard.entry for shard in shards), _source_entries(sources, digests, counts)),
        **{name: value if previous is None else getattr(previous, name) + value for name, value in new.items()},
    )
    check_sources(sources, options)
    commit_manifest(out, manifest)
    for entry in {*new_terms, *quarantined} - {*manifest.features.files, *manifest.quarantine}:  # merged with others
        remove_file(out / entry.file)
    clear_staging(out)
    return manifest


class Preview(NamedTuple):
    """What `ingest` would understand of inputs: the kinds of files, and the empty and the hidden ones."""

    kinds: list[Kind]
    empty: list[str]
    hidden: list[str]


def preview(inputs: list[str], out: Location | None, options: TextOptions) -> Preview:
    """What `ingest` would understand of the inputs that are not in the store yet, if there is one.

    Raises `InputError`, and `StorageError` for a folder that cannot be read.
    """
    if out is None:
        sources = new_sources(find_sources(inputs, options), options, None)
    else:
        sources, _ = find_new(inputs, out, options, Store.find(out))
    empty = [source.path for source in sources if not source.bytes]
    return Preview(describe_sources(sources, options), empty, hidden_files(inputs, options))


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


def _check_not_empty(
    options: TextOptions, sources: list[Source], counted: list[PartialCounts], counts: list[PartialCounts]
) -> None:
    if any(split.rows for split in counts):
        return
    bad = next(((split.split, row) for split in counted for row in split.bad), None)
    if bad is not None:
        why = f"every row was quarantined, the first because: {bad[1].reason}{fields_to_name(*bad, options)}"
    elif not options.where or not any(source.bytes for source in sources):
        why = f"{sources[0].path} is empty"
    else:
        why = "check the option where"
    raise InputError(f"There is nothing to ingest: no document was read ({why}).", code="no-documents")


def _check_fields(options: TextOptions, counts: list[PartialCounts]) -> None:
    """Raises `InputError` for a field without a value in any document."""
    rows = sum(split.rows for split in counts)
    for name in options.fields:
        if rows and sum(split.missing[name] for split in counts) == rows:
            raise InputError(
                f"No document has a value in the field {name!r}: check its name in fields.", code="missing-field"
            )


def _field_entries(
    options: TextOptions, counts: list[PartialCounts], previous: Manifest | None
) -> tuple[FieldEntry, ...]:
    """The fields of a store, with the documents without a value of this ingest and those before."""
    before = {} if previous is None else {entry.name: entry.missing for entry in previous.fields}
    return tuple(
        FieldEntry(
            name=name,
            type=field.type,
            cuts=field.cuts if isinstance(field, NumberField) else None,
            missing=before.get(name, 0) + sum(split.missing[name] for split in counts),
        )
        for name, field in options.fields.items()
    )


def _source_entries(sources: list[Source], digests: list[str], counts: list[PartialCounts]) -> list[SourceEntry]:
    rows = [0] * len(sources)
    for split in counts:
        rows[split.split.source] += split.rows
    return [
        SourceEntry(path=source.absolute, bytes=source.bytes, modified_ns=source.modified_ns, sha256=sha256, rows=n)
        for source, sha256, n in zip(sources, digests, rows, strict=True)
    ]
