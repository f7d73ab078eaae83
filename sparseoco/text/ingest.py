"""Ingest: raw text to a store of term counts.

Count every split (`text.counting`), merge the vocabularies and choose the features (`text.features`), write every
split as a shard (`text.encoding`). The steps exchange staging files, which are named by a digest of everything they
depend on, so that a run that was killed reuses them. Nothing is visible before the manifest is committed.
"""

from collections.abc import Collection
from typing import Any

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.entries import SourceEntry, add_entries
from sparseoco.store.manifest import SCHEMA_VERSION, FeatureTable, FieldEntry, FileEntry, Manifest, commit_manifest
from sparseoco.store.shards import Store, add_files, write_quarantine
from sparseoco.text.array_files import clear_staging, staging_folder, starting_over
from sparseoco.text.counting import Counting, PartialCounts, choose_bins
from sparseoco.text.encoding import drop_duplicates, encode_labels, encode_shards, merge_frequencies
from sparseoco.text.features import FeatureMap, build_features
from sparseoco.text.options import NumberField, TextOptions, VocabularyPolicy, shard_size
from sparseoco.text.passes import TextJob, check_sources, find_new, open_tasks, pass_over
from sparseoco.text.sources import Source
from sparseoco.text.splits import fields_to_name, quarantined_rows


@starting_over("ingest")
def ingest(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    *,
    client: object | None = None,
    shard_bytes: int | None = None,
    vocabulary: VocabularyPolicy = "frozen",
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
        Raw text per shard, in bytes; by default that of the first ingest, or 8 MiB.
    vocabulary : {"frozen", "extend"}
        New terms in later files are dropped, or, if they pass min_df and max_df in the new files alone, appended after
        the last id. Existing ids never change.
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
    store = Store.find(out)
    previous = None if store is None else store.manifest
    sources, known = find_new(inputs, out, options, store, left_out)
    size = shard_size(previous.shard_bytes if shard_bytes is None and previous is not None else shard_bytes)
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
        job = TextJob(absolute, staging, counting, size, tasks)
        counted, digests = pass_over(job, sources, Counting(str(staging), counting))
        counts = drop_duplicates(job, counted, store)
        if store is None:
            _check_read(job, sources, counted, counts)
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
            files = job.tasks.submit(add_files, job.out, "names", files, names).result()
            bits = options.hash_bits
            features = FeatureTable(kind="hashed", count=1 << bits, files=files, hash_bits=bits)
        else:
            assert feature_map is not None
            files = job.tasks.submit(add_files, job.out, "vocabulary", files, new_terms).result()
            features = FeatureTable(kind="vocabulary", count=feature_map.n_features, files=files)
    rows = [0] * len(sources)
    for split in counts:
        rows[split.split.source] += split.rows
    bad = [row for split in counted for row in quarantined_rows(sources[split.split.source].absolute, split.bad)]
    new: dict[str, Any] = {
        "empty_rows": sum(split.empty for split in counts),
        "dropped_terms": sum(shard.dropped for shard in shards),
        "quarantined_rows": len(bad),
        "multiline_rows": sum(split.multiline for split in counted),
        "duplicate_rows": sum(split.rows for split in counted) - sum(split.rows for split in counts),
    }
    quarantined = (write_quarantine(out, bad),) if bad else ()
    entries = [
        SourceEntry(path=source.absolute, bytes=source.bytes, modified_ns=source.modified_ns, sha256=sha256, rows=n)
        for source, sha256, n in zip(sources, digests, rows, strict=True)
    ]
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
        fields=_field_entries(job, counts, previous),
        quarantine=add_files(out, "quarantine", () if previous is None else previous.quarantine, quarantined),
        shard_bytes=size if previous is None else previous.shard_bytes,
        **add_entries(out, previous, (shard.entry for shard in shards), entries),
        **{name: value if previous is None else getattr(previous, name) + value for name, value in new.items()},
    )
    check_sources(sources, options)
    commit_manifest(out, manifest)
    for entry in {*new_terms, *quarantined} - {*manifest.features.files, *manifest.quarantine}:  # merged with others
        remove_file(out / entry.file)
    clear_staging(out)
    return manifest


def _check_read(job: TextJob, sources: list[Source], counted: list[PartialCounts], counts: list[PartialCounts]) -> None:
    """Raises `InputError` if there is no document, or a field has no value in any document."""
    rows = sum(split.rows for split in counts)
    for name in job.options.fields:
        if rows and sum(split.missing[name] for split in counts) == rows:
            raise InputError(
                f"No document has a value in the field {name!r}: check its name in fields.", code="missing-field"
            )
    if rows:
        return
    bad = next(((split.split, row) for split in counted for row in split.bad), None)
    if bad is not None:
        why = f"every row was quarantined, the first because: {bad[1].reason}{fields_to_name(*bad, job.options)}"
    elif not job.options.where or not any(source.bytes for source in sources):
        why = f"{sources[0].path} is empty"
    else:
        why = "check the option where"
    raise InputError(f"There is nothing to ingest: no document was read ({why}).", code="no-documents")


def _field_entries(job: TextJob, counts: list[PartialCounts], previous: Manifest | None) -> tuple[FieldEntry, ...]:
    """The fields of a store, with the documents without a value of this ingest and those before."""
    before = {} if previous is None else {entry.name: entry.missing for entry in previous.fields}
    return tuple(
        FieldEntry(
            name=name,
            type=field.type,
            cuts=field.cuts if isinstance(field, NumberField) else None,
            missing=before.get(name, 0) + sum(split.missing[name] for split in counts),
        )
        for name, field in job.options.fields.items()
    )
