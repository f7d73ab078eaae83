"""How much raw text a shard has, unless it is given."""

from collections.abc import Iterable

from sparseoco.core.errors import InputError
from sparseoco.store.manifest import Manifest
from sparseoco.text.options import SHARD_BYTES
from sparseoco.text.sources import Source

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
