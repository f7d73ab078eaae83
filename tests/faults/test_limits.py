"""One more than a limit is one sentence with the figure."""

from pathlib import Path

import pytest

from sparseoco.text.vocabulary import index as tokens
from sparseoco.text.vocabulary import merge
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl


@pytest.mark.fault(34, 61)
@pytest.mark.parametrize(("module", "limit"), [(tokens, "MAX_TOKENS"), (merge, "MAX_NGRAMS")])
def test_more_distinct_words_than_can_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str
) -> None:
    data = jsonl(["ab cd ef", "gh ij", "ab kl"])
    monkeypatch.setattr(module, limit, 6)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="fits").features.count == 6
    monkeypatch.setattr(module, limit, 5)
    with raises_code("too-many-terms", "More than 5 distinct", "hash_bits"):
        ingest_bytes(tmp_path, "a.jsonl", data)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="hashed", hash_bits=10).rows == 3
