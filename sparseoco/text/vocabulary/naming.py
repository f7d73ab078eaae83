"""From the names of terms to their tokens and fields, as a `Naming` says."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import string_array, string_buffers
from sparseoco.text.tokenizer import Naming


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
