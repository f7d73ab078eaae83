"""Counts of the features of a model in new text."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.counting.partial_counts import count_documents
from sparseoco.text.documents import CountedDocuments, Documents, ParsedRow
from sparseoco.text.encoding.encode import encode_rows
from sparseoco.text.encoding.hashing import hash_ngrams
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.fields import MalformedRowError, encode_text
from sparseoco.text.vocabulary.trie import Vocabulary


class Features(NamedTuple):
    """The columns of a count matrix: terms, or hashed features."""

    vocabulary: Vocabulary | None
    ids: NDArray[np.int64] | None
    hash_bits: int | None
    hash_seed: int

    @classmethod
    def named(cls, terms: pa.Array | list[str], *, characters: bool = False) -> "Features":
        """Column i counts terms[i]; terms are distinct, of words or of `characters`."""
        return cls(Vocabulary.from_terms(terms, characters=characters), np.arange(len(terms), dtype=np.int64), None, 0)

    @classmethod
    def hashed(cls, ids: NDArray[np.int64] | None, hash_bits: int, hash_seed: int) -> "Features":
        """Column i counts the terms whose hash is ids[i], or i without ids; ids strictly increase."""
        return cls(None, ids, hash_bits, hash_seed)


def count_texts(
    texts: Sequence[str] | Documents | CountedDocuments, features: Features, options: TextOptions
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Count the features in documents; other terms are ignored.

    Parameters
    ----------
    texts : sequence of str, Documents or CountedDocuments
    features : Features
        The columns.
    options : TextOptions
        The options the features were counted with.

    Returns
    -------
    indptr, indices, counts
        CSR matrix of shape (n_documents, n_features).

    Raises
    ------
    InputError
        For one string instead of a sequence, for texts that are not strings, and for a text with lone surrogates,
        unless ``encoding_errors`` is "replace".
    """
    documents = texts if isinstance(texts, Documents | CountedDocuments) else _documents(texts, options)
    counts = count_documents(documents, options)
    size = 0 if features.ids is None else features.ids.size
    if features.vocabulary is not None:
        columns = features.vocabulary.features(counts)
    else:
        assert features.hash_bits is not None
        hashing = options.model_copy(update={"hash_bits": features.hash_bits, "hash_seed": features.hash_seed})
        hashed = hash_ngrams(counts, hashing).features
        if features.ids is None:
            columns, size = hashed, 1 << features.hash_bits
        elif size:
            positions = np.minimum(np.searchsorted(features.ids, hashed), size - 1)
            columns = np.where(features.ids[positions] == hashed, positions, -1)
        else:
            columns = np.full(hashed.size, -1)
    return encode_rows(counts, columns, size, options)


def _documents(texts: Sequence[str], options: TextOptions) -> Documents:
    if isinstance(texts, str | bytes | Mapping | Set) or hasattr(texts, "columns"):  # whose items are no texts in order
        raise InputError(
            f"The texts are one {type(texts).__name__}: write [text], a list of strings.", code="invalid-texts"
        )
    rows = []
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"Text {number} is not a string, but {type(text).__name__}.", code="invalid-texts")
        try:
            rows.append(ParsedRow(encode_text(text, options), "", None, number))
        except MalformedRowError as error:
            raise InputError(f"Text {number}: {error.reason}.", code=error.code) from None
    return Documents.from_rows(rows, [], None)
