"""Scores of a store, from its counts: its text is not read."""

from collections.abc import Mapping, Sequence
from posixpath import splitext
from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.scoring.manifest import PartEntry
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS, part_entry, read_part
from sparseoco.scoring.scorers import ModelVersion, open_scorers
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import location
from sparseoco.storage.parquet import write_parquet
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import ShardRows, Store
from sparseoco.text.job import TextJob
from sparseoco.text.options import changed_options
from sparseoco.text.sources import COMPRESSIONS, SUFFIXES
from sparseoco.text.tokenizer import TokenizerOptions
from sparseoco.training.decisions.predictions import named_labels
from sparseoco.training.models.model import Model

BATCH = 8  # shards of a task
_FILES = frozenset(SUFFIXES) | frozenset(COMPRESSIONS)  # suffixes of inputs that are no folders


def find_store(inputs: Sequence[str]) -> Store | None:
    """The store that the inputs are, or None if they are text. Raises `InputError` for a store among other inputs."""
    folders = [item for item in inputs if splitext(item)[1].lower() not in _FILES]  # a request for each
    stores = [store for item in folders if (store := Store.find(location(item))) is not None]
    if stores and len(inputs) > 1:
        raise InputError(
            f"{stores[0].folder} is a folder of shards: score it by itself, without other inputs.",
            code="unsupported-combination",
        )
    return stores[0] if stores else None


def check_store_options(store: Store, options: ScoreOptions, reading: Mapping[str, Any]) -> None:
    """Raises `InputError` for an option of reading text, or one that a store has no columns or documents for."""
    if options.columns:
        raise InputError("columns: a store has no other columns of its inputs.", code="unsupported-combination")
    if options.keeps and options.keep_as == "documents":
        raise InputError(
            f"{store.folder} has no documents to write: set keep_as to ids.", code="unsupported-combination"
        )
    given = [*changed_options(reading), *(["shard_bytes"] if options.shard_bytes is not None else [])]
    if given:
        raise InputError(
            f"--{given[0].replace('_', '-')}: {store.folder} is a folder of shards, of which all documents are scored "
            "as they were ingested: score the text itself, or leave the option out.",
            code="unsupported-combination",
        )


def check_store(store: Store, models: Sequence[Model], *, labelled: bool) -> None:
    """Raises `InputError` if the features of a store, or its classes, are not those that a model was trained on."""
    names = ("fields", *TokenizerOptions.model_fields)
    for model in models:
        if labelled and (store.classes, store.manifest.labels.kind) != (model.classes, model.label_kind):
            raise InputError(f"{store.folder} has other classes than {model.folder}.", code="unsupported-combination")
        described = model.description["features"]
        plain = model.text.plain()
        same = all(store.manifest.options.get(name, plain[name]) == plain[name] for name in names)
        if same and store.features_digest(described["count"]) == model.description["features_sha256"]:
            continue
        raise InputError(
            f"{store.folder} has other features than {model.folder} was trained on: score the text itself.",
            code="other-features",
        )


def score_store(job: TextJob, store: Store, models: tuple[ModelVersion, ...], *, labelled: bool) -> list[PartEntry]:
    """Score all documents of a store; one part a shard. Raises `StorageError` for a shard that is corrupt."""
    reference, out = store_reference(store), str(job.out)
    calls = (
        (_score_shards, reference, first, min(first + BATCH, store.n_shards), out, models, labelled)
        for first in range(0, store.n_shards, BATCH)
    )
    entries: list[PartEntry] = []
    for found in job.tasks.in_order(calls, 4 * job.tasks.width):
        entries += found
        job.progress("score", len(entries), store.n_shards)
    return entries


def _score_shards(
    reference: StoreReference, first: int, stop: int, out: str, models: tuple[ModelVersion, ...], labelled: bool
) -> list[PartEntry]:
    store = open_store(reference)
    return [_score_shard(store, shard, out, models, labelled) for shard in range(first, stop)]


def _score_shard(store: Store, shard: int, out: str, models: tuple[ModelVersion, ...], labelled: bool) -> PartEntry:
    """The part of a shard; one that is not corrupt is reused."""
    names = [[model.name, model.sha256] for model in models]
    first = int(store.shards.row_offsets[shard])
    key = digest_value([store.shards[shard].sha256, first, names, labelled])[:32]
    path = location(out) / PARTS / f"{key}.parquet"
    if path.exists():
        try:
            return part_entry(path, read_part(path).num_rows, 0)
        except DamagedError:
            pass  # it is written again
    rows = store.read(shard, ids=True)
    n = len(rows.indptr) - 1
    columns: dict[str, Any] = {"id": rows.ids, "row": pa.array(np.arange(first + 1, first + n + 1))}
    if labelled:
        columns["label"] = _labels(store, rows)
    for scorer in open_scorers(models):
        columns |= scorer.columns(scorer.model.count_margins(rows.indptr, rows.indices, rows.counts))
    write_parquet(path, pa.table(columns))
    return part_entry(path, n, 0)


def _labels(store: Store, rows: ShardRows) -> pa.Array:
    labels = rows.labels.indicator(len(store.classes)) if store.is_multilabel else rows.labels
    return named_labels(labels, store.classes)
