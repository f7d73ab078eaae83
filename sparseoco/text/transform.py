"""Counting new text against features that are already known."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.counting.partial_counts import count_documents
from sparseoco.text.documents import Bags, Documents, Row, documents_of
from sparseoco.text.encoding.encode import encode_rows, hash_features
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import UnreadableError, utf8
from sparseoco.text.vocabulary.trie import Vocabulary


class Features(NamedTuple):
    """The columns counts are wanted of: terms, or hashed feature ids."""

    vocabulary: Vocabulary | None
    ids: NDArray[np.int64]
    hash_bits: int | None
    hash_seed: int

    @classmethod
    def named(cls, terms: pa.Array | list[str]) -> "Features":
        """Column i counts term i; terms are different."""
        return cls(Vocabulary.from_terms(terms), np.arange(len(terms), dtype=np.int64), None, 0)

    @classmethod
    def hashed(cls, ids: NDArray[np.int64], hash_bits: int, hash_seed: int) -> "Features":
        """Column i counts the terms whose hash is ids[i]; ids strictly increase."""
        return cls(None, ids, hash_bits, hash_seed)


def count_texts(
    texts: Sequence[str] | Documents | Bags, features: Features, options: TextOptions
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """(indptr, indices, counts): CSR of the documents over the columns of `features`; other terms do not count.

    Raises `InputError` for a text with lone surrogates, unless options.encoding_errors is "replace".
    """
    if isinstance(texts, Documents | Bags):
        documents = texts
    else:
        rows = []
        for k, text in enumerate(texts):
            try:
                rows.append(Row(utf8(text, options), "", None, k + 1))
            except UnreadableError as error:
                raise InputError(f"Text {k + 1}: {error.reason}.") from None
        documents = documents_of(rows, [], numbers=False, labelled=False)
    piece = count_documents(documents, options)
    if features.vocabulary is not None:
        columns = features.vocabulary.features(piece)
    else:
        hashed, _, _ = hash_features(
            piece, options.model_copy(update={"hash_bits": features.hash_bits, "hash_seed": features.hash_seed})
        )
        places = np.minimum(np.searchsorted(features.ids, hashed), max(features.ids.size - 1, 0))
        known = (hashed >= 0) & (features.ids[places] == hashed) if features.ids.size else np.zeros(hashed.size, bool)
        columns = np.where(known, places, -1)
    return encode_rows(piece, columns, features.ids.size, options)
