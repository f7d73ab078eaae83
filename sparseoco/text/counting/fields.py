"""The features of the fields of records, joined to one set of partial counts.

The terms of a text field begin with its namespace, which belongs to the first token of an n-gram: ``title:good movie``
has the tokens ``title:good`` and ``movie``. Categories and numbers are one token.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.array_files import Arrays, store_strings, stored_strings
from sparseoco.text.counting.ngrams import all_levels, alphabetical_order, count_text, inverse, n_ngrams, named_counts
from sparseoco.text.documents import CountedDocuments, Documents, Texts, is_missing
from sparseoco.text.fields import NumberField, TextField, namespace
from sparseoco.text.kernels.keys import locate, pack_keys, unpack_keys
from sparseoco.text.options import TextOptions

MISSING, VALUES = "missing_", "values_"  # prefixes of the names of arrays
_COUNTS = ("indptr", "ngrams", "counts", "nodes_", "keys_", "totals_", "documents_", "token_", "numbers")


def count_fields(documents: Documents | CountedDocuments, options: TextOptions) -> Arrays:
    """The partial counts of records; numbers whose bins are not chosen yet are kept as values.

    Raises `InputError` for documents without fields.
    """
    if isinstance(documents, CountedDocuments) or (len(documents) and not documents.fields):
        raise InputError(
            f"The options name fields ({', '.join(options.fields)}), and a document has none: give records, as JSON "
            "lines, CSV or TSV.",
            code="unsupported-combination",
        )
    parts: list[tuple[str, Arrays]] = []
    kept: Arrays = {}
    for name, field in options.fields.items():
        values = documents.fields[name] if len(documents) else pa.array([], pa.string())
        if isinstance(field, NumberField):
            numbers = np.asarray(values, np.float64)
            kept[f"{MISSING}{name}"] = is_missing(numbers)
            if field.transform == "bins" and field.cuts is None:
                kept[f"{VALUES}{name}"] = numbers
            else:
                parts.append(("", _count_number(numbers, name, field)))
            continue
        kept[f"{MISSING}{name}"] = is_missing(values)
        if isinstance(field, TextField):
            parts.append((namespace(name), count_text(Texts.of(values), field)))
        else:
            parts.append(("", _count_category(values, name)))
    return join_counts(parts, len(documents), options) | kept


def count_bins(arrays: Arrays, options: TextOptions) -> Arrays:
    """Partial counts with the bins of the values that `count_fields` kept, now that the options have their cuts."""
    parts = [("", arrays)]
    for name, field in options.fields.items():
        if isinstance(field, NumberField) and f"{VALUES}{name}" in arrays:
            parts.append(("", _count_number(arrays[f"{VALUES}{name}"], name, field)))
    others = {name: array for name, array in arrays.items() if not name.startswith((*_COUNTS, VALUES))}
    return others | join_counts(parts, arrays["indptr"].size - 1, options)


def _count_category(values: pa.Array, name: str) -> Arrays:
    present = pc.greater(pc.binary_length(values), 0)
    found = values.filter(present).dictionary_encode()
    names = pc.binary_join_element_wise(pa.scalar(name), found.dictionary.cast(pa.string()), "=")
    codes = found.indices.to_numpy().astype(np.int64)
    return named_counts(_indptr(present.to_numpy(zero_copy_only=False)), codes, np.ones(codes.size, np.uint8), names)


def _count_number(values: NDArray[np.float64], name: str, field: NumberField) -> Arrays:
    if field.transform == "bins":
        present = ~np.isnan(values)
        bins = np.searchsorted(np.array(field.cuts or ()), values[present], side="right").astype(np.int64)
        names = pa.array(bin_names(name, field.cuts or ()), pa.string())
        return named_counts(_indptr(present), bins, np.ones(bins.size, np.uint8), names)
    if field.transform == "log":
        values = np.sign(values) * np.log1p(np.abs(values))
    present = ~np.isnan(values) & (values != 0)
    own = np.zeros(np.count_nonzero(present), np.int64)
    return named_counts(_indptr(present), own, values[present], pa.array([name], pa.string()))


def bin_names(name: str, cuts: Sequence[float]) -> list[str]:
    """The names of the bins of a number: all lower than the first cut, from each cut to the next, and above.

    >>> bin_names("price", [1.5, 3.0])
    ['price=(-inf, 1.5)', 'price=[1.5, 3)', 'price=[3, inf)']
    """
    ends = ["(-inf", *(f"[{_shortest(cut)}" for cut in cuts)]
    return [f"{name}={low}, {high})" for low, high in zip(ends, [*map(_shortest, cuts), "inf"], strict=True)]


def _shortest(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _indptr(present: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(present)])


def join_counts(parts: list[tuple[str, Arrays]], n_rows: int, options: TextOptions) -> Arrays:
    """The partial counts of the same documents in several parts, each with the beginning of its terms, in one.

    N-grams are numbered level by level in alphabetical order.
    """
    firsts, lasts, tokens = _join_tokens(parts)
    arrays: Arrays = {}
    store_strings(arrays, "token", tokens)
    numbers = [np.full(n_ngrams(part), -1, np.int64) for _, part in parts]  # of the n-grams of each part
    positions = firsts  # in the level before
    size = 0
    for n in range(1, max([1, *(max(all_levels(part)) for _, part in parts)]) + 1):
        members = [(k, part) for k, (_, part) in enumerate(parts) if f"nodes_{n}" in part]
        level_size = len(tokens)
        if n > 1:
            keys = {}
            for k, part in members:
                high, low = unpack_keys(part[f"keys_{n}"])
                keys[k] = pack_keys(positions[k][high], lasts[k][low])
            level = np.sort(np.concatenate(list(keys.values())), kind="stable")  # runs of different n-grams
            positions = [locate(keys[k], level) if k in keys else np.empty(0, np.int64) for k in range(len(parts))]
            arrays[f"keys_{n}"], level_size = level, level.size
        totals, documents = np.zeros(level_size, np.int64), np.zeros(level_size, np.int64)
        for k, part in members:
            numbers[k][part[f"nodes_{n}"]] = size + positions[k]
            if f"totals_{n}" in part:
                totals[positions[k]] += part[f"totals_{n}"]
                documents[positions[k]] += part[f"documents_{n}"]
        arrays[f"nodes_{n}"] = np.arange(size, size + level_size, dtype=np.int32)
        arrays[f"totals_{n}"], arrays[f"documents_{n}"] = totals, documents
        size += level_size
    rows = [np.repeat(np.arange(n_rows), np.diff(part["indptr"])) for _, part in parts]
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *rows]), kind="stable")
    entries = [number[part["ngrams"]] for number, (_, part) in zip(numbers, parts, strict=True)]
    arrays["indptr"] = sum((part["indptr"] for _, part in parts), np.zeros(n_rows + 1, np.int64))
    arrays["ngrams"] = np.concatenate([np.empty(0, np.int64), *entries])[order].astype(np.int32)
    arrays["counts"] = np.concatenate([np.empty(0, np.uint8), *(part["counts"] for _, part in parts)])[order]
    real = [name for name, field in options.fields.items() if isinstance(field, NumberField) and field.is_real]
    found = pc.index_in(pa.array(real, tokens.type), value_set=tokens).drop_null().to_numpy()
    arrays["numbers"] = found.astype(np.int64)
    documents = arrays["documents_1"]
    arrays["totals_1"][found] = documents[found]
    return arrays


def _join_tokens(parts: list[tuple[str, Arrays]]) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]], pa.Array]:
    """(positions of the first tokens and of the other tokens of each part in the sorted tokens, these tokens)."""
    strings: list[pa.Array] = [pa.array([], pa.large_string())]
    for prefix, part in parts:
        own = stored_strings(part, "token").cast(pa.large_string())
        empty = pa.scalar("", pa.large_string())
        strings.append(pc.binary_join_element_wise(pa.scalar(prefix, pa.large_string()), own, empty) if prefix else own)
        strings.append(own if prefix and len(all_levels(part)) > 1 else own[:0])
    united = pa.chunked_array(strings).combine_chunks().dictionary_encode()
    order = alphabetical_order(united.dictionary)
    ranks = np.split(inverse(order)[united.indices.to_numpy()], np.cumsum([len(part) for part in strings[:-1]]))
    firsts, lasts = ranks[1::2], ranks[2::2]
    lasts = [last if last.size else first for first, last in zip(firsts, lasts, strict=True)]
    return firsts, lasts, united.dictionary.take(pa.array(order))
