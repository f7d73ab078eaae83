"""The features of an ingest: a vocabulary built from partial counts, extended by them, or frozen."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import location
from sparseoco.store.data_files import unlike_manifest
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store
from sparseoco.text.counting.partial_counts import PartialCounts
from sparseoco.text.job import TextJob
from sparseoco.text.options import VocabularyPolicy
from sparseoco.text.vocabulary.exchange import Exchange, plan_exchange
from sparseoco.text.vocabulary.known import stage_known_terms
from sparseoco.text.vocabulary.merge import merge_group, merge_range
from sparseoco.text.vocabulary.numbering import gather_ids, number_range, piece_features
from sparseoco.text.vocabulary.selection import Selection, choose_features
from sparseoco.text.vocabulary.tokens import collect_tokens, sample_edges, unite_group, unite_range


class FeatureMap(NamedTuple):
    """Maps the n-grams of splits to features.

    Parameters
    ----------
    exchange : Exchange
        Its last step wrote the features.
    n_known, n_features : int
        Number of features before and after this ingest.
    """

    exchange: Exchange
    n_known: int
    n_features: int

    @property
    def key(self) -> str:
        """Identifies the map."""
        return self.exchange.key

    def features(self, arrays: dict[str, NDArray[Any]], index: int) -> NDArray[np.int64]:
        """The feature of each n-gram of the partial counts of split `index`, or −1."""
        return piece_features(self.exchange, index, arrays)


def build_features(
    job: TextJob, counts: list[PartialCounts], store: Store | None, policy: VocabularyPolicy
) -> tuple[FeatureMap, tuple[FileEntry, ...]]:
    """The features of an ingest, and the vocabulary files of its new terms.

    Without a store the vocabulary is new. The vocabulary of a store does not change (frozen), or new terms are appended
    (extend).

    Raises
    ------
    InputError
        If no term is left, or if ids would need more bits than in the existing shards.
    StorageError
        If the vocabulary is not that of the manifest.
    """
    extends = store is None or policy == "extend"
    names = [location(split.path).name for split in counts]
    known_files = () if store is None else store.manifest.features.files
    n_known = 0 if store is None else store.manifest.features.count
    n_fields = len(job.options.naming.namespaces or [()])
    known_sizes = np.zeros(n_fields, np.int64)
    folders = str(job.out), str(job.staging)
    staged = [job.tasks(stage_known_terms, *folders, entry, n_known, job.options) for entry in known_files]
    found = 0
    for result in staged:
        name, n_terms, sizes = result.result()
        names.append(name)
        found += n_terms
        known_sizes += sizes
    if found != n_known:
        raise unlike_manifest(job.out, f"the vocabulary has {found:,} terms, not {n_known:,}")
    # Sums of real values would not be counts; those of fields are not summed.
    real = any(split.dtype == "float64" for split in counts) and not job.options.fields
    n_documents = sum(split.rows for split in counts)
    selection = Selection(job.options, n_documents, n_known, tuple(known_sizes.tolist()), extends, real)
    key = digest_value([job.options.digest, names, extends])[:32]
    size = n_known + sum(sum(split.levels) for split in counts)
    exchange = plan_exchange(job.staging, key, names, size, job.options.counted_from)

    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    if exchange.n_ranges > 1:
        job.tasks(sample_edges, exchange).result()
    job.wait("unite", [job.tasks(unite_group, exchange, group) for group in groups])
    job.wait("unite", [job.tasks(unite_range, exchange, number) for number in ranges])
    tokens = job.tasks(collect_tokens, exchange) if extends else None
    job.wait("merge", [job.tasks(merge_group, exchange, group) for group in groups])
    job.wait("merge", [job.tasks(merge_range, exchange, selection, number) for number in ranges])
    n_features: int = job.tasks(choose_features, exchange, selection, store is None).result()
    if 0 < n_known <= 2**31 < n_features:
        raise InputError(
            f"{job.out} would have more than 2^31 features: ingest into a new folder.", code="too-many-terms"
        )
    if tokens is not None:
        tokens.result()
    numbering = [job.tasks(number_range, exchange, selection, r, n_features, str(job.out)) for r in ranges]
    written = job.wait("number", numbering)
    job.wait("number", [job.tasks(gather_ids, exchange, group) for group in groups])
    files = tuple(entry for entry in written if isinstance(entry, FileEntry))
    return FeatureMap(exchange, n_known, n_features), files
