"""Files by which the steps of a vocabulary are exchanged, and how its ranges are numbered."""

import math
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import (
    ArrayReader,
    read_block,
    stored_strings,
    string_array,
    string_buffers,
)
from sparseoco.text.tokenizer import Naming

# ----------------------------------------------------------------------------------------------------------------------
# The exchange that turns partial counts into a vocabulary: pieces are merged in groups, groups in ranges of tokens.
#
# A piece is a file of sorted n-grams: the partial counts of a split, or a file of the vocabulary of the store. Groups
# of pieces are merged first, so that every piece is opened a fixed number of times; a task per range of tokens then
# reads its block of the file of each group. Every task commits one file, named by what it depends on, so that a killed
# run resumes; Dask's P2P shuffle keeps its state on the workers and starts again when one is lost.
#
# The files, one of each task, in the order in which they are written:
#
#     edges            the tokens between ranges, from a sample of the pieces
#     group-tokens     the tokens of a group by range, and their positions by piece
#     range-tokens     the tokens of a range, and their positions by group
#     tokens           all tokens by range, for the names of terms
#     group-ngrams     the n-grams of a group by range, and their positions by piece
#     range-ngrams     the n-grams of a range with their sums, and their positions by group
#     chosen           the ids of the terms of each range by count (`selection`)
#     range-ids        the ids of the n-grams of a range by group; and a vocabulary file of the store
#     group-ids        the ids of the n-grams of a group by piece


# N-grams of all pieces in a range or group: enough to amortise the task. With more ranges than `MAX_RANGES`, they grow
# up to the memory of a task. The store does not depend on the number of workers, so neither do ranges.
NGRAMS_PER_TASK = 1 << 20
MAX_NGRAMS_PER_RANGE = 1 << 23
MAX_RANGES = 1024
RANGES_PER_PIECE = 4  # at most, of a group: bounds the files that are opened for each piece
MERGED = ("token_", "keys_", "totals_", "documents_", "known_")  # beginnings of the names of the arrays of n-grams
MAX_SMALL_PIECES = 256  # in a group, for their number alone


class Exchange(NamedTuple):
    """The division of pieces into groups and of tokens into ranges.

    Parameters
    ----------
    folder : str
        Of the staging files; pieces are files of it too.
    key : str
        Begins the names of all files of the exchange.
    n_pieces, group_size, n_ranges : int
        Pieces, those of a group, and ranges of tokens.
    counted_from : int
        The length of the shortest n-grams that are counted; shorter ones are only prefixes.
    """

    folder: str
    key: str
    n_pieces: int
    group_size: int
    n_ranges: int
    counted_from: int

    @property
    def n_groups(self) -> int:
        """Number of groups of pieces."""
        return -(-self.n_pieces // self.group_size)

    def path(self, name: str, number: int = 0) -> Location:
        """The file of this name of a group or range."""
        return location(self.folder) / f"{self.key}.{name}-{number}"

    def group(self, names: Sequence[str], number: int) -> list[str]:
        """The names of the pieces of a group, of the names of all pieces."""
        return list(names[number * self.group_size : (number + 1) * self.group_size])

    def pieces(self, names: Sequence[str]) -> list[Location]:
        """The files of pieces with these names."""
        return [location(self.folder) / name for name in names]

    def edges(self) -> list[bytes]:
        """The first tokens of all ranges but the first."""
        if self.n_ranges == 1:
            return []
        return stored_strings(read_block(self.path("edges"), 0), "edge").cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def plan_exchange(folder: Location, key: str, names: Sequence[str], size: int, counted_from: int) -> Exchange:
    """Plan the exchange of pieces with these file names and `size` n-grams in all."""
    n_ranges = max(1, min(MAX_RANGES, math.ceil(size / NGRAMS_PER_TASK)), math.ceil(size / MAX_NGRAMS_PER_RANGE))
    small = min(MAX_SMALL_PIECES, len(names) * NGRAMS_PER_TASK // max(1, size))
    group_size = max(1, small, math.ceil(n_ranges / RANGES_PER_PIECE))
    return Exchange(str(folder), key, len(names), group_size, n_ranges, counted_from)


@contextmanager
def open_pieces(paths: Sequence[Location]) -> Iterator[list[ArrayReader]]:
    """Open all pieces of a group; the limit on open files of this process is raised as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as opened:
        yield [opened.enter_context(ArrayReader(path, MERGED)) for path in paths]


# ----------------------------------------------------------------------------------------------------------------------
# From the names of terms to their tokens and fields, as a `Naming` says.


def split_terms(terms: pa.Array, naming: Naming) -> tuple[pa.Array, NDArray[np.int64]]:
    """(the tokens of all terms, number of tokens of each); terms are large strings."""
    if naming.namespaces is None:
        lists = _characters(terms) if naming.characters else pc.split_pattern(terms, " ")
    else:
        fields = term_fields(terms, naming)
        rows = [np.flatnonzero(fields == field) for field in range(-1, len(naming.namespaces))]
        others, *texts = (terms.take(pa.array(own)) for own in rows)
        parts = [pa.ListArray.from_arrays(pa.array(np.arange(len(others) + 1), pa.int32()), others)]
        parts += [_without_prefix(text, *space) for text, space in zip(texts, naming.namespaces, strict=True)]
        lists = pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))
    return lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)


def term_fields(strings: pa.Array, naming: Naming) -> NDArray[np.int64]:
    """The position in `namespaces` of the field of terms, or of their first tokens; −1 for none."""
    found = np.full(len(strings), -1, np.int64)
    for field, (name, _) in enumerate(naming.namespaces or ()):
        found[np.asarray(pc.starts_with(strings, name))] = field
    return found


def token_spaces(tokens: pa.Array, naming: Naming) -> NDArray[np.uint8]:
    """Bytes between the tokens of the terms that begin with each of these tokens: 1 for a space, or 0."""
    if naming.namespaces is None:
        return np.full(len(tokens), 0 if naming.characters else 1, np.uint8)
    own = np.array([*(0 if characters else 1 for _, characters in naming.namespaces), 1], np.uint8)
    return own[term_fields(tokens, naming)]


def _without_prefix(terms: pa.Array, name: str, characters: bool) -> pa.ListArray:
    """The tokens of terms that begin with a namespace, which stays with the first token of each."""
    rest = pc.utf8_slice_codeunits(terms, len(name))
    lists = _characters(rest) if characters else pc.split_pattern(rest, " ")
    tokens, offsets = lists.flatten(), lists.offsets
    first = np.zeros(len(tokens), np.bool_)
    first[offsets[:-1].to_numpy()] = True
    prefixes = pc.if_else(pa.array(first), pa.scalar(name, pa.large_string()), pa.scalar("", pa.large_string()))
    named = pc.binary_join_element_wise(prefixes, tokens, pa.scalar("", pa.large_string()))
    return pa.ListArray.from_arrays(offsets, named)


def _characters(terms: pa.Array) -> pa.ListArray:
    data, offsets = string_buffers(terms)
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    characters = string_array(data, np.append(starts, data.size)).cast(pa.large_string())
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(starts, offsets), pa.int32()), characters)
