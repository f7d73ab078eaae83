"""Merging vocabularies in ranges, which bounds memory, gives the same store for any ranges."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary import build
from sparseoco.text.vocabulary.merge import collect_tokens, sample_token_bounds, unite_tokens
from tests.support.ingests import write_documents


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
def test_small_ranges_give_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ngram_range: tuple[int, int]
) -> None:
    write_documents(tmp_path / "x.jsonl", [f"d{k}" for k in range(200)])
    options = TextOptions(ngram_range=ngram_range)
    whole = ingest([str(tmp_path / "x.jsonl")], tmp_path / "whole", options, shard_bytes=2000)
    assert len(whole.shards) > 5
    monkeypatch.setattr(build, "TOKENS_PER_TASK", 17)
    monkeypatch.setattr(build, "NGRAMS_PER_TASK", 50)
    assert ingest([str(tmp_path / "x.jsonl")], tmp_path / "parts", options, shard_bytes=2000) == whole


TOKENS = st.lists(st.text("ab\u00e9\U00010400", max_size=3).map(str.encode), unique=True, max_size=12).map(sorted)


@given(splits=st.lists(TOKENS, min_size=1, max_size=5), parts=st.integers(1, 8))
def test_union_of_tokens(splits: list[list[bytes]], parts: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compare with Python sets, for any number of ranges."""
    folder = tmp_path_factory.mktemp("union")
    paths = []
    for i, tokens in enumerate(splits):
        offsets = np.cumsum([0, *map(len, tokens)])
        arrays = {"token_bytes": np.frombuffer(b"".join(tokens), np.uint8), "token_offsets": offsets}
        paths.append(str(folder / f"{i}.counts"))
        save_arrays(Path(paths[-1]), arrays)
    bounds = [None, *sample_token_bounds(paths, parts), None]
    assert len(bounds) <= parts + 1
    targets = [str(folder / f"{i}.tokens") for i in range(len(bounds) - 1)]
    for i, target in enumerate(targets):
        unite_tokens(paths, bounds[i], bounds[i + 1], target)
    collect_tokens(targets, len(paths), str(folder / "tokens"))
    arrays, _ = load_arrays(folder / "tokens")
    expected = sorted(set().union(*splits))
    data = arrays["token_bytes"].tobytes()
    offsets = arrays["token_offsets"]
    assert [data[a:b] for a, b in itertools.pairwise(offsets)] == expected
    for i, tokens in enumerate(splits):
        assert arrays[f"map_{i}"].tolist() == [expected.index(token) for token in tokens]
