"""Raw documents in batches, for whoever does not ingest: prediction and evaluation."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparseoco.text.counting.partial_counts import count_bad
from sparseoco.text.documents import Bags, Documents
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import Cutter, read_split


def read_documents(
    inputs: Sequence[str], options: TextOptions, *, labelled: bool = True, batch_bytes: int = SHARD_BYTES
) -> Iterator[Documents | Bags]:
    """The documents of the inputs in order, about `batch_bytes` of text at a time.

    Raises `InputError` naming file and line when more than options.max_bad_rows rows are bad.
    """
    bad = 0
    with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
        for index, source in enumerate(find_sources(list(inputs), options)):
            for split in Cutter(index, source, options, batch_bytes, Path(folder), lambda key: False):
                batch = read_split(split, options, labelled=labelled and source.format != "lines")
                if split.staged:
                    Path(split.path).unlink()
                bad = count_bad(split, batch.bad, options, bad)
                yield batch
