"""Fields of any records have the counts of CountVectorizer, text by text."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.store.shards import read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, count_texts
from tests.support.count_vectorizer import vectorizer
from tests.text.test_tokenizer import nasty, tokenizers

RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "a b": st.text(nasty, max_size=20),
            "t": st.text(nasty, max_size=20),
            "c": st.one_of(st.none(), st.text(nasty, max_size=4), st.integers(0, 3), st.booleans()),
            "x": st.one_of(st.none(), st.integers(-3, 3), st.floats(-2, 2)),
        }
    ),
    min_size=1,
    max_size=8,
)


def expected_columns(records: list[dict[str, Any]], texts: dict[str, dict[str, Any]]) -> dict[str, np.ndarray]:
    """The column of each feature of any records: a text by its vectorizer, a category, a number."""
    columns: dict[str, np.ndarray] = {}
    for name, options in texts.items():
        theirs = vectorizer(**options)
        with suppress(ValueError):  # no token at all
            matrix = theirs.fit_transform([record[name] for record in records]).toarray()
            columns |= {f"{name}:{term}": matrix[:, k] for k, term in enumerate(theirs.get_feature_names_out())}
    for row, record in enumerate(records):
        category, number = record["c"], record["x"]
        if category is not None and category != "":
            shown = str(category).lower() if isinstance(category, bool) else str(category)
            columns.setdefault(f"c={shown}", np.zeros(len(records)))[row] = 1
        if number:
            columns.setdefault("x", np.zeros(len(records)))[row] = number
    return columns


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECORDS, tokenizers, tokenizers)
def test_any_records(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, Any]],
    first: dict[str, Any],
    second: dict[str, Any],
) -> None:
    """Nasty Unicode in texts, categories and names; a model and a second ingest count the same."""
    texts = {"a b": first, "t": second}
    fields = {name: {"type": "text"} | own for name, own in texts.items()}
    options = TextOptions(fields=fields | {"c": {"type": "category"}, "x": {"type": "number"}})
    folder = tmp_path_factory.mktemp("any")
    sources = []
    for name in ("a", "b"):
        sources.append(folder / f"{name}.jsonl")
        rows = [{"label": "l", "id": f"{name}{k}"} | record for k, record in enumerate(records)]
        sources[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        ingest([str(sources[0])], folder / "out", options, shard_bytes=1024)
    except InputError as error:
        if error.code not in ("missing-field", "empty-vocabulary"):
            raise
        return
    matrix, names = read_shards(folder / "out")
    columns = expected_columns(records, texts)
    assert sorted(columns) == sorted(names)
    assert (matrix.toarray() == np.stack([columns[name] for name in names], axis=1)).all()
    found = count_texts(records, Features.named(names, options.naming), options)
    assert all((a == b).all() for a, b in zip(found, (matrix.indptr, matrix.indices, matrix.data), strict=True))
    ingest([str(sources[1])], folder / "out", options, shard_bytes=1024)
    assert (read_shards(folder / "out")[0][len(records) :] != matrix).nnz == 0
