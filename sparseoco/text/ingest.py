"""Raw text to a store of bags of words.

Count every split apart (`text.pieces`), unite their vocabularies (`text.merge`), choose the features
(`text.selection`), write every piece as a shard. Steps hand each other files, staged beside the store under names
made of what they depend on; a run that was killed finds those that are there. Nothing is visible before the manifest.
"""

import os
from pathlib import Path

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event
from sparseoco.core.progress import ProgressCallback
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import (
    SCHEMA_VERSION,
    FeatureTable,
    FileEntry,
    Manifest,
    SourceEntry,
    commit_manifest,
    latest_manifest,
)
from sparseoco.store.shards import Store, write_quarantine
from sparseoco.text.counting.partial_counts import PieceInfo
from sparseoco.text.encoding.labels import check_labelled, settle_labels
from sparseoco.text.options import OF_EACH_INGEST, SHARD_BYTES, Policy, TextOptions
from sparseoco.text.sources import Source, find_sources, name_apart
from sparseoco.text.splits import Cutter, forget_handed
from sparseoco.text.staging import clear_staging, staging_folder
from sparseoco.text.tasks import open_tasks
from sparseoco.text.vocabulary.build import (
    EncodedShard,
    Features,
    Plan,
    build_features,
    count_sources,
    drop_duplicates,
    encode_pieces,
    extend_features,
    freeze_features,
)


def _silent(step: str, done: int, total: int) -> None:
    """ProgressCallback that nobody watches."""


def ingest(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    *,
    client: object | None = None,
    shard_bytes: int = SHARD_BYTES,
    vocabulary: Policy = "frozen",
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Count the text of `inputs` into the store `out`, a shard about every `shard_bytes` of text; gives its manifest.

    inputs     files, folders and fsspec addresses. Those ingested before and unchanged are passed over; new ones add
               shards, counted over the classes of the first ingest, or those that `options` name
    client     a `distributed.Client` whose workers see the same files; None works in threads of this process
    vocabulary what new files do to it: "frozen", nothing; "extend", those of their terms that it lacks and that pass
               min_df and max_df among the new files alone get the ids after its last one. No id ever moves
    progress   called with (step, done, total)
    Raises `InputError` for input or options that cannot be taken, naming file and line, and `StorageError`.
    """
    if not 1 << 10 <= shard_bytes <= 1 << 30:
        raise InputError("shard_bytes must lie between 1 KiB and 1 GiB.")
    previous = latest_manifest(out)
    if previous is not None:
        _check_options(out, options, previous)
    found = find_sources(inputs, options, may_be_empty=previous is not None)
    sources = new_sources(found, options, previous)
    log_event("ingest", "sources found", new=len(sources), known=len(found) - len(sources))
    if previous is not None and not sources:
        # A run killed right after its commit leaves it.
        clear_staging(out)
        return previous
    store = Store(out, previous) if previous is not None else None
    with open_tasks(client) as tasks:
        whole = out.absolute()  # workers may work in other folders
        staging = staging_folder(whole, here=tasks.on_machine)
        counting = options
        if previous is not None and previous.labels.kind == "classes":
            counting = options.over(entry.name for entry in previous.labels.classes)
        plan = Plan(whole, staging, counting, shard_bytes, progress or _silent, tasks)
        try:
            counted, states = count_sources(plan, sources)
        finally:
            forget_handed(staging)
        pieces = drop_duplicates(plan, counted, store)
        if store is None and not any(piece.rows for piece in pieces):
            reasons = [row.reason for piece in counted for row in piece.bad]
            why = f"every row was set aside, the first for: {reasons[0]}" if reasons else "is where right?"
            raise InputError(f"There is nothing to ingest: no document was read ({why}).")
        labels = settle_labels(pieces, options, previous)
        features = None
        if options.hash_bits is None:
            features = _features(plan, pieces, store, vocabulary)
        shards = encode_pieces(plan, pieces, labels, features, 0 if previous is None else len(previous.sources))
        table = _feature_table(options, previous, features, shards)
    bad = [
        (f"{place}/{row.file}" if row.file else place, row.line, row.offset, row.reason)
        for piece in counted
        for place in [sources[piece.split.source].place]
        for row in piece.bad
    ]
    quarantine: tuple[FileEntry, ...] = (write_quarantine(out, bad),) if bad else ()
    rows = dict.fromkeys(range(len(sources)), 0)
    for piece in pieces:
        rows[piece.split.source] += piece.rows
    entries = tuple(
        SourceEntry(
            path=source.place, bytes=state.bytes, modified_ns=source.modified_ns, sha256=state.sha256, rows=rows[index]
        )
        for index, (source, state) in enumerate(zip(sources, states, strict=True))
    )
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        version=1 if previous is None else previous.version + 1,
        sparseoco=__version__,
        options=options.plain(),
        options_digest=options.digest,
        features=table,
        labels=labels.table,
        rows=sum(rows.values()) + (previous.rows if previous else 0),
        nonzeros=sum(shard.entry.nonzeros for shard in shards) + (previous.nonzeros if previous else 0),
        empty_rows=sum(piece.empty for piece in pieces) + (previous.empty_rows if previous else 0),
        dropped_terms=sum(shard.dropped for shard in shards) + (previous.dropped_terms if previous else 0),
        quarantined_rows=len(bad) + (previous.quarantined_rows if previous else 0),
        quarantine=(previous.quarantine if previous else ()) + quarantine,
        sources=(previous.sources if previous else ()) + entries,
        shards=(previous.shards if previous else ()) + tuple(shard.entry for shard in shards),
    )
    commit_manifest(out, manifest)
    clear_staging(out)
    return manifest


def _check_options(out: Location, options: TextOptions, previous: Manifest) -> None:
    """Raises `InputError` for options that are not the store's. Those of `OF_EACH_INGEST` may differ."""
    if digest_value(previous.options) != previous.options_digest:
        raise InputError(f"{out} holds shards made from those of another folder: ingest into a new one.")
    before = TextOptions().plain() | previous.options
    changed = {key for key, value in options.plain().items() if before[key] != value} - OF_EACH_INGEST
    if not changed:
        return
    raise InputError(
        f"{out} was ingested with other options ({', '.join(sorted(changed))}): ingest into a new folder, or repeat "
        "them."
    )


def new_sources(sources: list[Source], options: TextOptions, previous: Manifest | None) -> list[Source]:
    """The sources that a store, whose newest manifest is `previous`, has not got yet, whatever their spelling.

    Named apart from those it has. Raises `InputError` if one of those has changed since, or one is given twice, and as
    `check_labelled`.
    """
    known = {_real(entry.path): entry for entry in previous.sources} if previous is not None else {}
    given: set[str] = set()
    new: list[Source] = []
    for source in sources:
        real = _real(source.path)
        if real in given:
            raise InputError(f"{source.path} is given twice.")
        given.add(real)
        entry = known.get(real)
        if entry is None:
            new.append(source)
        elif entry.modified_ns is None or (entry.bytes, entry.modified_ns) != (source.bytes, source.modified_ns):
            cutter = Cutter(0, source, options, SHARD_BYTES, Path(), lambda key: True)
            for _ in cutter:
                pass
            if cutter.sha256 != entry.sha256:
                raise InputError(f"{source.path} has changed since it was ingested: ingest into a new folder.")
    check_labelled(new, options, previous)
    return name_apart(new, [entry.path for entry in previous.sources] if previous is not None else [])


def _features(plan: Plan, pieces: list[PieceInfo], store: Store | None, vocabulary: Policy) -> Features:
    if store is None:
        return build_features(plan, pieces)
    return extend_features(plan, pieces, store) if vocabulary == "extend" else freeze_features(plan, store)


def _real(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def _feature_table(
    options: TextOptions, previous: Manifest | None, features: Features | None, shards: list[EncodedShard]
) -> FeatureTable:
    if options.hash_bits is not None:
        before = previous.features.files if previous is not None else ()
        return FeatureTable(
            kind="hashed",
            count=1 << options.hash_bits,
            files=before + tuple(shard.names for shard in shards if shard.names is not None),
            hash_bits=options.hash_bits,
            hash_seed=options.hash_seed,
        )
    assert features is not None
    before = previous.features.files if previous is not None else ()
    files = before if features.written is None else (*before, features.written.result())
    return FeatureTable(kind="vocabulary", count=features.size, files=files)
