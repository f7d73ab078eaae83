"""Counts of the features of a model in new text."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.counting.partial_counts import count_documents
from sparseoco.text.documents import CountedDocuments, Documents, ParsedRow
from sparseoco.text.encoding.encode import encode_rows
from sparseoco.text.encoding.hashing import HashIndex
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import SLACK, Chunk
from sparseoco.text.parsers.fields import MalformedRowError, encode_text
from sparseoco.text.parsers.jsonl import read_jsonl
from sparseoco.text.tokenizer import WORDS, Naming
from sparseoco.text.vocabulary.index import NgramIndex
from sparseoco.text.vocabulary.trie import Vocabulary

Inputs: TypeAlias = Sequence[str] | Sequence[Mapping[str, Any]] | Documents | CountedDocuments
"""Texts, records or documents."""


class Features(NamedTuple):
    """The columns of a count matrix: terms, or hashed features."""

    ngrams: NgramIndex | HashIndex

    @classmethod
    def named(cls, terms: pa.Array | list[str], naming: Naming = WORDS) -> "Features":
        """Column i counts terms[i]; terms are distinct."""
        return cls(NgramIndex(Vocabulary.from_terms(terms, naming)))

    @classmethod
    def hashed(cls, ids: NDArray[np.int64], hash_bits: int, hash_seed: int, counts_others: bool = False) -> "Features":
        """Column i counts the terms whose hash is ids[i], or with `counts_others` i; ids strictly increase."""
        return cls(HashIndex(ids, hash_bits, hash_seed, counts_others))


def count_texts(
    texts: Inputs, features: Features, options: TextOptions
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Count the features in documents; other terms are ignored.

    Parameters
    ----------
    texts : sequence of str, Documents or CountedDocuments
        With fields, sequences are of records: mappings, or JSON objects as text.
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
        As `as_documents`.
    """
    documents, index = as_documents(texts, options), features.ngrams
    if isinstance(index, NgramIndex) and isinstance(documents, Documents) and not options.fields:
        return index.count(documents.spans, options)
    counts = count_documents(documents, options)
    return encode_rows(counts, *index.columns(counts, options), options)


def as_documents(texts: Inputs, options: TextOptions) -> Documents | CountedDocuments:
    """Texts or records as documents; documents as they are.

    Raises
    ------
    InputError
        For one string or record instead of a sequence, for texts that are not strings, for a record that cannot be
        read, and for a text with lone surrogates, unless ``encoding_errors`` is "replace".
    """
    if isinstance(texts, Documents | CountedDocuments):
        return texts
    if _is_unordered(texts):
        wanted = "[record], a list of mappings" if options.fields else "[text], a list of strings"
        raise InputError(f"The texts are one {type(texts).__name__}: write {wanted}.", code="invalid-texts")
    return read_records(texts, options) if options.fields else _documents(texts, options)


def _is_unordered(texts: Any) -> bool:
    """Whether it is one text, a set or a table, whose items are no texts in order."""
    return isinstance(texts, str | bytes | Mapping | Set) or hasattr(texts, "columns")


def read_records(records: Sequence[Any], options: TextOptions, first: int = 1) -> Documents:
    """Records read as JSON lines. Raises `InputError` with the number, from `first`, of one that cannot be read."""
    lines = []
    for number, record in enumerate(records, first):
        try:
            line = (
                record.encode() if isinstance(record, str) else orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)
            )
        except (TypeError, UnicodeEncodeError):
            line = b""
        if not line.lstrip().startswith(b"{"):
            raise InputError(
                f"Record {number} is not a JSON object with the fields {', '.join(options.fields)}.",
                code="malformed-record",
            )
        for name in options.fields if isinstance(record, Mapping) else ():
            value = record.get(name)
            if isinstance(value, float | np.floating) and np.isinf(value):  # in JSON null, which is no value
                raise InputError(f"Record {number}: the field {name!r} is not finite.", code="malformed-record")
        lines.append(line.replace(b"\n", b" ") + b"\n")
    data = b"".join(lines)
    chunk = Chunk(np.frombuffer(data + b"\n" + bytes(SLACK), np.uint8).copy(), len(data), "", "", first, 0)
    documents = read_jsonl(chunk, options.without_columns().model_copy(update={"where": {}}), labelled=False)
    for row in documents.bad:
        raise InputError(f"Record {row.line}: {row.reason}.", code=row.code)
    return documents


def _documents(texts: Sequence[Any], options: TextOptions) -> Documents:
    rows = []
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"Text {number} is not a string, but {type(text).__name__}.", code="invalid-texts")
        try:
            rows.append(ParsedRow(encode_text(text, options), "", None, number))
        except MalformedRowError as error:
            raise InputError(f"Text {number}: {error.reason}.", code=error.code) from None
    return Documents.from_rows(rows, [], None)
