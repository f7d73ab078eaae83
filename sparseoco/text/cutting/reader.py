"""The splits of a source in order, with their content, from one pass over it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from sparseoco.text.cutting.listings import Listing
from sparseoco.text.cutting.rule import cut_in_order
from sparseoco.text.cutting.tables import cut_table
from sparseoco.text.folders import iter_files
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import SLACK
from sparseoco.text.sources import FOLDERS, TABLES, Source
from sparseoco.text.splits import Content, Split
from sparseoco.text.streams import Stream


@dataclass
class SplitReader:
    """Iterates over the splits of one source, each with the content that `read_split` parses; None for tables.

    Afterwards `sha256`, of files that are no tables, and `codec` are set; `inflation`, of files of lines or records, is
    the size of their text so far, relative to that of the file. Memory is bounded by `shard_bytes` and the longest
    line, whatever the source expands to.
    """

    index: int
    source: Source
    options: TextOptions
    shard_bytes: int
    sha256: str = field(default="", init=False)
    codec: str = field(default="", init=False)
    inflation: float = field(default=1.0, init=False)

    def __iter__(self) -> Iterator[tuple[Split, Content | None]]:
        if self.source.format in TABLES:
            for start, stop, size in cut_table(self.source, self.options, self.shard_bytes):
                yield self._split(start, stop, size), None
        elif self.source.format in FOLDERS:
            yield from self._read_folder()
        else:
            yield from self._read_file()

    def _split(self, *place: Any) -> Split:
        return Split.of(self.index, self.source, self.options, *place)

    def _read_folder(self) -> Iterator[tuple[Split, Content]]:
        self.codec = self.options.encoding
        listing = Listing.of(self.source.absolute, iter_files(self.source.absolute, self.options))
        for start, stop, size in listing.cuts(self.shard_bytes):
            yield self._split(start, stop, size), listing.files(start, stop)

    def _read_file(self) -> Iterator[tuple[Split, Content]]:
        source, options = self.source, self.options
        stream = Stream(
            source.absolute, source.compression, options.max_inflation, None, options.encoding, source.pin, source.path
        )
        for head, cut, data in cut_in_order(self._measured(stream), source, options, self.shard_bytes):
            self.codec = stream.codec
            content = np.empty(len(data) + SLACK, np.uint8)
            content[: len(data)] = data
            runs = [(cut.stop, xxh3_64_intdigest(data))]
            yield self._split(cut.start, cut.stop, len(data), cut.line, head.header, head.quoted, runs), content
        self.codec, self.sha256 = stream.codec, stream.sha256

    def _measured(self, stream: Stream) -> Iterator[bytes]:
        size = 0
        for part in stream:
            size += len(part)
            self.inflation = size / max(stream.bytes, 1)
            yield part
