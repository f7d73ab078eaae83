"""Raw documents in batches, for prediction and evaluation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sparseoco.store.shards import Store
from sparseoco.text.cutting.plans import check_ingested
from sparseoco.text.cutting.reader import SplitReader
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.folders import hidden_files
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.paths import real_path
from sparseoco.text.sources import UNLABELLED, check_applied, find_sources
from sparseoco.text.splits import check_bad_rows, read_split
from sparseoco.text.tables.files import close_tables


@dataclass
class ReadOutcome:
    """What was read: documents, rows that are left out as bad, documents that span several lines, documents without
    a value by field, empty and hidden files."""

    documents: int = 0
    bad_rows: int = 0
    multiline_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    empty: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    def add(self, batch: Documents | CountedDocuments) -> None:
        """Count documents that were read."""
        self.documents += len(batch)
        self.bad_rows += len(batch.bad)
        self.multiline_rows += batch.multiline.size
        if isinstance(batch, Documents):
            self.missing.update(batch.missing)


def read_documents(
    inputs: Sequence[str],
    options: TextOptions,
    *,
    labelled: bool = True,
    withheld: bool = False,
    batch_bytes: int = SHARD_BYTES,
    outcome: ReadOutcome | None = None,
    ingested: Store | None = None,
    given: Iterable[str] = (),
) -> Iterator[Documents | CountedDocuments]:
    """Iterate over the documents of the inputs, in order.

    Parameters
    ----------
    inputs : sequence of str
        Files, folders or remote URIs.
    options : TextOptions
        Weights, groups and times are not read.
    labelled : bool
        Whether labels are requested; plain text has none, and otherwise folders of plain text need none.
    withheld : bool
        Read the documents that `options.holdout` withholds from a store, instead of the others.
    batch_bytes : int
        Approximate size of a batch.
    outcome : ReadOutcome, optional
        Counts what is read, as it is read.
    ingested : Store, optional
        Its sources must be the versions that were ingested.
    given : iterable of str
        Names of options that were set for these inputs: each must apply to one of them.

    Raises
    ------
    InputError
        With file and line, if more than ``max_bad_rows`` rows are bad; for a file that changes while it is read.
    """
    bad = 0
    outcome = outcome or ReadOutcome()
    options = options.without_columns()
    if not labelled:
        options = options.model_copy(update={"label_depth": 0})
    outcome.hidden += hidden_files(inputs, options)
    entries = {} if ingested is None else {real_path(entry.path): entry for entry in ingested.sources}
    sources = find_sources(list(inputs), options)
    check_applied(sources, options, given)
    for index, source in enumerate(sources):
        entry = entries.get(source.real)
        if entry is not None:
            check_ingested(source, entry, options)
        outcome.empty += [source.path] * (not source.bytes)
        wanted = labelled and source.format not in UNLABELLED
        reader = SplitReader(index, source, options, batch_bytes)
        for split, content in reader:
            batch = read_split(split, options, labelled=wanted, withheld=withheld, content=content)
            bad = check_bad_rows(split, batch.bad, options, bad)
            outcome.add(batch)
            yield batch
        if entry is not None and reader.sha256:
            check_ingested(source, entry, options, reader.sha256)
    close_tables()
