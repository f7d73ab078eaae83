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
    Arrays,
    read_block,
    store_strings,
    stored_strings,
    string_array,
    string_buffers,
    write_blocks,
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
# Steps, and the files of one task of each:
#
#     sample  edges            the tokens between ranges
#     A1      group-tokens     the tokens of a group by range, and their positions by piece
#     A2      range-tokens     the tokens of a range, and their positions by group
#     tokens  tokens           all tokens by range, for the names of terms
#     B1      group-ngrams     the n-grams of a group by range, and their positions by piece
#     B2      range-ngrams     the n-grams of a range with their sums, and their positions by group
#     choose  chosen           the ids of the terms of each range by count (`selection`)
#     B3      range-ids        the ids of the n-grams of a range by group, and a vocabulary file
#     B4      group-ids        the ids of the n-grams of a group by piece


# N-grams of all pieces in a range or group: enough to amortise the task. With more ranges than `MAX_RANGES`, they grow
# up to the memory of a task. The store does not depend on the number of workers, so neither do ranges.
NGRAMS_PER_TASK = 1 << 20
MAX_NGRAMS_PER_RANGE = 1 << 23
MAX_RANGES = 1024
RANGES_PER_PIECE = 4  # at most, of a group: bounds the files that are opened for each piece
MERGED = ("token_", "keys_", "totals_", "documents_", "known_")  # beginnings of the names of the arrays of n-grams
MAX_SMALL_PIECES = 256  # in a group, for their number alone


class Exchange(NamedTuple):
    """The division of pieces into groups and of tokens into ranges; its plan is a file.

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

    def path(self, step: str, number: int = 0) -> Location:
        """The file of a task of a step."""
        return location(self.folder) / f"{self.key}.{step}-{number}"

    def names(self, group: int) -> list[str]:
        """The names of the pieces of a group, from the plan."""
        return stored_strings(read_block(self.path("plan"), group), "piece").to_pylist()  # type: ignore[no-any-return]

    def pieces(self, group: int) -> list[Location]:
        """The pieces of a group."""
        return [location(self.folder) / name for name in self.names(group)]

    def edges(self) -> list[bytes]:
        """The first tokens of all ranges but the first."""
        if self.n_ranges == 1:
            return []
        return stored_strings(read_block(self.path("edges"), 0), "edge").cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def plan_exchange(folder: Location, key: str, names: Sequence[str], size: int, counted_from: int) -> Exchange:
    """Plan the exchange of pieces with these file names and `size` n-grams in all, and write the plan."""
    n_ranges = max(1, min(MAX_RANGES, math.ceil(size / NGRAMS_PER_TASK)), math.ceil(size / MAX_NGRAMS_PER_RANGE))
    small = min(MAX_SMALL_PIECES, len(names) * NGRAMS_PER_TASK // max(1, size))
    group_size = max(1, small, math.ceil(n_ranges / RANGES_PER_PIECE))
    exchange = Exchange(str(folder), key, len(names), group_size, n_ranges, counted_from)
    if not exchange.path("plan").is_file():
        with write_blocks(exchange.path("plan"), exchange.n_groups) as write:
            for first in range(0, len(names), group_size):
                arrays: Arrays = {}
                store_strings(arrays, "piece", pa.array(names[first : first + group_size], pa.string()))
                write(arrays)
    return exchange


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
        return _characters(terms) if naming.characters else _words(terms)
    fields = term_fields(terms, naming)
    parts, rows, sizes = [], [], []
    for field in range(-1, len(naming.namespaces)):
        own = np.flatnonzero(fields == field)
        tokens, counts = terms.take(pa.array(own)), np.ones(own.size, np.int64)
        if field >= 0:
            tokens, counts = _without_prefix(tokens, *naming.namespaces[field])
        parts.append(tokens)
        rows.append(own)
        sizes.append(counts)
    # Back to the order of the terms.
    order = np.argsort(np.concatenate(rows))
    counts = np.concatenate(sizes)
    starts = np.cumsum(counts) - counts
    ordered = counts[order]
    first = np.cumsum(ordered) - ordered
    positions = np.arange(ordered.sum()) + np.repeat(starts[order] - first, ordered)
    return pa.concat_arrays(parts).take(pa.array(positions)), ordered


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


def _without_prefix(terms: pa.Array, name: str, characters: bool) -> tuple[pa.Array, NDArray[np.int64]]:
    """The tokens of terms that begin with a namespace, which stays with the first token of each."""
    rest = pc.utf8_slice_codeunits(terms, len(name))
    tokens, counts = _characters(rest) if characters else _words(rest)
    first = np.zeros(len(tokens), np.bool_)
    first[np.cumsum(counts) - counts] = True
    prefixes = pc.if_else(pa.array(first), pa.scalar(name, pa.large_string()), pa.scalar("", pa.large_string()))
    return pc.binary_join_element_wise(prefixes, tokens, pa.scalar("", pa.large_string())), counts


def _words(terms: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    lists = pc.split_pattern(terms, " ")
    return lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)


def _characters(terms: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    data, offsets = string_buffers(terms)
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    characters = string_array(data, np.append(starts, data.size)).cast(pa.large_string())
    return characters, np.diff(np.searchsorted(starts, offsets))
