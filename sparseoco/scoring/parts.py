"""Parts: the scores of the documents of one split, in a Parquet file that is named by all it depends on."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparseoco.core.errors import DamagedError
from sparseoco.scoring.manifest import PartEntry, PartTable, damaged_scores
from sparseoco.scoring.scorers import ModelVersion, open_scorers, score_documents
from sparseoco.storage.commit import digest_value, read_bytes
from sparseoco.storage.locations import Location, location
from sparseoco.storage.parquet import read_parquet_file, write_parquet
from sparseoco.text.documents import BadRow, Documents
from sparseoco.text.job import TextJob
from sparseoco.text.options import TextOptions
from sparseoco.text.splits import Content, Split, read_split

PARTS = "parts"
BATCH = 64  # parts of a task
FACTS = b"sparseoco"
"""The key of the metadata of a part: what was read besides the documents, as JSON."""


class Part(NamedTuple):
    """The part of a split.

    Parameters
    ----------
    split : Split
    entry : PartEntry
        Its source is the position of the split's.
    bad : list of BadRow
    multiline : int
        Documents that span several lines.
    missing : dict
        Documents without a value, by field.
    digest : str
        Of the files of documents in files of their own.
    """

    split: Split
    entry: PartEntry
    bad: list[BadRow]
    multiline: int
    missing: dict[str, int]
    digest: str


class Scoring(NamedTuple):
    """Scoring documents, the work on each split of a corpus (see `sparseoco.text.cutting.work.Work`).

    Parameters
    ----------
    out : str
        The folder of the scores.
    models : tuple of ModelVersion
    options : TextOptions
        How documents are read.
    labelled : bool
        Whether labels are read too.
    """

    out: str
    models: tuple[ModelVersion, ...]
    options: TextOptions
    labelled: bool

    @property
    def step(self) -> str:
        """The name of the work."""
        return "score"

    def path(self, split: Split) -> str:
        """The file of the part of a split."""
        names = [[model.name, model.sha256] for model in self.models]
        key = digest_value([split.key, names, self.labelled])[:32]
        return str(location(self.out) / PARTS / f"{key}.parquet")

    def run(self, split: Split, content: Content | None) -> Part:
        """Score a split."""
        path = location(self.path(split))
        documents = read_split(split, self.options, labelled=self.labelled, content=content)
        table = score_documents(open_scorers(self.models), documents)
        facts = {
            "bad": documents.bad,
            "multiline": documents.multiline.size,
            "missing": documents.missing if isinstance(documents, Documents) else {},
            "digest": documents.digest if isinstance(documents, Documents) else "",
        }
        write_parquet(path, table.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return _part(split, path, table.num_rows, facts)

    def describe(self, split: Split) -> Part:
        """The part in an existing file. Raises `DamagedError` if it is corrupt."""
        path = location(self.path(split))
        table = read_part(path)
        return _part(split, path, table.num_rows, json.loads(table.schema.metadata[FACTS]))


def _part(split: Split, path: Location, rows: int, facts: dict[str, Any]) -> Part:
    bad = [BadRow(*row) for row in facts["bad"]]
    entry = part_entry(path, rows, split.source)
    return Part(split, entry, bad, facts["multiline"], facts["missing"], facts["digest"])


def part_entry(path: Location, rows: int, source: int) -> PartEntry:
    """The entry of a written file. Raises `StorageError`."""
    data = read_bytes(path)  # one request for the size and the digest
    sha256 = hashlib.sha256(data).hexdigest()
    return PartEntry(file=path.name, bytes=len(data), sha256=sha256, rows=rows, source=source)


def read_part(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a part, or some of its columns.

    Raises `DamagedError` if it is missing or corrupt, or the file of another part, `StorageError` if it cannot be read.
    """
    try:
        return read_parquet_file(path, columns=columns)
    except DamagedError as error:
        raise damaged_scores(path) from error


def over_parts(
    job: TextJob, parts: PartTable, step: str, function: Callable[..., Any], *arguments: Any
) -> Iterator[Any]:
    """The results of tasks `function(folder, entries, *arguments)` for `BATCH` parts each, in order, with progress."""
    calls = (
        (function, str(job.out), list(parts[first : first + BATCH]), *arguments)
        for first in range(0, len(parts), BATCH)
    )
    for done, found in enumerate(job.tasks.in_order(calls, 4 * job.tasks.width), 1):
        job.progress(step, min(done * BATCH, len(parts)), len(parts))
        yield found
