"""The features of an ingest: a vocabulary built from partial counts, extended by them, or frozen."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store
from sparseoco.store.writing import write_vocabulary
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.counting.partial_counts import PartialCounts
from sparseoco.text.job import IngestJob
from sparseoco.text.options import VocabularyPolicy
from sparseoco.text.tasks import Result
from sparseoco.text.tokenizer import Naming
from sparseoco.text.vocabulary.merge import (
    MergedNgrams,
    collect_tokens,
    merge_range,
    sample_token_bounds,
    token_ranges,
    unite_tokens,
)
from sparseoco.text.vocabulary.naming import term_fields
from sparseoco.text.vocabulary.selection import Candidates
from sparseoco.text.vocabulary.trie import Vocabulary

# N-grams, and tokens, of all splits per task: enough to amortise the task, within its memory (200 MB of tokens).
NGRAMS_PER_TASK = 1 << 20
TOKENS_PER_TASK = 1 << 21
MAX_RANGES = 256


class SelectedNgrams(NamedTuple):
    """Paths of the merged n-grams of this ingest, and of their feature ids."""

    tokens: str
    ranges: list[str]
    counted_from: int
    ids: str

    def merged(self) -> MergedNgrams:
        """The merged n-grams."""
        return MergedNgrams(location(self.tokens), [location(path) for path in self.ranges], self.counted_from)

    def feature_ids(self) -> NDArray[Any]:
        """The feature of each counted n-gram, or −1."""
        arrays, _ = load_arrays(location(self.ids))
        return arrays["ids"]


class FeatureMap(NamedTuple):
    """Maps the n-grams of splits to features of a frozen vocabulary, or of the merged n-grams.

    Parameters
    ----------
    key : str
        Identifies the map.
    frozen : str or None
        Path of the staged vocabulary, if the n-grams were not merged.
    selected : SelectedNgrams or None
        The merged n-grams otherwise.
    n_known, n_features : int
        Number of features before and after this ingest.
    """

    key: str
    frozen: str | None
    selected: SelectedNgrams | None
    n_known: int
    n_features: int

    def features(self, arrays: dict[str, NDArray[Any]], index: int) -> NDArray[np.int64]:
        """The feature of each n-gram of the partial counts of split `index`, or −1."""
        if self.frozen is not None:
            return Vocabulary.load(location(self.frozen)).features(arrays)
        assert self.selected is not None
        return self.selected.merged().features(arrays, index, self.selected.feature_ids())


def build_features(
    job: IngestJob, counts: list[PartialCounts], store: Store | None, policy: VocabularyPolicy
) -> tuple[FeatureMap, Result | None]:
    """The features of an ingest, and the task that writes new terms, if there are any.

    Without a store the vocabulary is new. The vocabulary of a store does not change (frozen), or new terms are appended
    (extend).

    Raises
    ------
    InputError
        If no term is left, or if ids would need more bits than in the existing shards.
    """
    if store is not None and (policy == "frozen" or not any(split.rows for split in counts)):
        return _freeze(job, store), None
    n_known = 0 if store is None else store.manifest.features.count
    known_files = [] if store is None else [file.sha256 for file in store.manifest.features.files]
    key = digest_value([job.options.digest, [location(split.path).name for split in counts], known_files])[:32]
    selected = _merge(job, counts, key)
    merged = selected.merged()
    # Sums of real values would not be counts; those of fields are not summed.
    real = any(split.dtype == "float64" for split in counts) and not job.options.fields
    naming = job.options.naming
    fields = None if naming.namespaces is None else merged.trie().fields(naming)[merged.first :]
    documents = merged.sums("documents")
    totals = documents if real else merged.sums("totals")
    candidates = Candidates(
        totals, documents, merged.first, merged.trie, sum(split.rows for split in counts), job.options, fields
    )
    if store is None:
        ids = candidates.select()
    else:
        known = _load_vocabulary(store, job).features_in_trie(merged.trie(), selected.counted_from)
        ids = candidates.select_new(known, n_known, _field_sizes(store, naming))
        if n_known <= 2**31 <= int(ids.max(initial=-1)):
            raise InputError(
                f"{store.folder} would have more than 2^31 features: ingest into a new folder.", code="too-many-terms"
            )
    n_features = max(n_known, int(ids.max(initial=-1)) + 1)
    save_arrays(location(selected.ids), {"ids": ids.astype(np.int32) if n_features < 2**31 else ids})
    written = None
    if n_features > n_known:
        written = job.tasks(_write_new_terms, str(job.out), selected, n_known, real, job.options.naming)
    return FeatureMap(key, None, selected, n_known, n_features), written


def _field_sizes(store: Store, naming: Naming) -> list[int]:
    """The number of terms of each text field of a store, or of all without fields."""
    if naming.namespaces is None:
        return [store.manifest.features.count]
    fields = term_fields(store.vocabulary()["term"], naming)
    return [int(np.count_nonzero(fields == field)) for field in range(len(naming.namespaces))]


def _freeze(job: IngestJob, store: Store) -> FeatureMap:
    path = job.staging / f"{store.features_digest()[:32]}.vocabulary"
    vocabulary = _load_vocabulary(store, job)
    vocabulary.save(path)
    return FeatureMap(path.name, str(path), None, vocabulary.size, vocabulary.size)


def _load_vocabulary(store: Store, job: IngestJob) -> Vocabulary:
    return Vocabulary.from_terms(store.vocabulary()["term"], job.options.naming)


def _merge(job: IngestJob, counts: list[PartialCounts], key: str) -> SelectedNgrams:
    """Merge the n-grams of all splits, range by range; the features are then staged at `SelectedNgrams.ids`."""
    paths = [split.path for split in counts]
    tokens = job.staging / f"{key}.tokens"
    _unite_tokens(job, counts, key, tokens)
    counted_from = job.options.counted_from
    size = sum(sum(split.levels) for split in counts)
    # Bounds depend on the number of workers, which may differ in a rerun: they are part of the file names.
    bounds = token_ranges(paths, tokens, min(MAX_RANGES, _n_tasks(job, size, NGRAMS_PER_TASK)))
    targets = [str(job.staging / f"{key}-{low}-{high}.range") for low, high in itertools.pairwise(bounds)]
    merging = [
        job.tasks(merge_range, paths, str(tokens), low, high, counted_from, target)
        for (low, high), target in zip(itertools.pairwise(bounds), targets, strict=True)
    ]
    job.wait("merge", merging)
    return SelectedNgrams(str(tokens), targets, counted_from, str(job.staging / f"{key}.ids"))


def _unite_tokens(job: IngestJob, counts: list[PartialCounts], key: str, target: Location) -> None:
    """Stage the union of the tokens of all splits, range by range, with at most `TOKENS_PER_TASK` in a task."""
    paths = [split.path for split in counts]
    parts = _n_tasks(job, sum(split.levels[0] for split in counts if split.levels), TOKENS_PER_TASK)
    bounds = [None, *sample_token_bounds(paths, parts), None]
    ranges = [str(job.staging / f"{key}-{i}-of-{len(bounds) - 1}.tokens") for i in range(len(bounds) - 1)]
    uniting = [
        job.tasks(unite_tokens, paths, low, high, path)
        for (low, high), path in zip(itertools.pairwise(bounds), ranges, strict=True)
    ]
    job.wait("unite", uniting)
    job.tasks(collect_tokens, ranges, len(paths), str(target)).result()


def _n_tasks(job: IngestJob, size: int, per_task: int) -> int:
    """Number of tasks of about `per_task` for `size`: a multiple of the workers, so that none is idle at the end."""
    return job.tasks.width * -(-(1 + size // per_task) // job.tasks.width)


def _write_new_terms(out: str, selected: SelectedNgrams, n_known: int, real: bool, naming: Naming) -> FileEntry:
    merged, ids = selected.merged(), selected.feature_ids()
    new = np.flatnonzero(ids >= n_known)
    order = np.empty(new.size, np.int64)
    order[ids[new] - n_known] = new
    documents = merged.sums("documents")[order]
    totals = documents if real else merged.sums("totals")[order]
    terms = merged.trie().terms(order + merged.first, naming)
    return write_vocabulary(location(out), terms, totals, documents)
