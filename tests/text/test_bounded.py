"""What bounds the memory of an ingest changes no byte: ranges of tokens, and hashes in the place of ids."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.array_files import Parts, Reader, load_arrays, save_arrays
from sparseoco.text.encoding import labels
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary import build
from sparseoco.text.vocabulary.merge import collect_tokens, token_edges, unite_range


def write_documents(path: Path, ids: list[str]) -> None:
    random = np.random.default_rng(0)
    words = [f"{'é' * (k % 3)}w{k}" for k in range(400)]
    with path.open("w") as file:
        for number, name in enumerate(ids):
            text = " ".join(random.choice(words, 8))
            file.write(json.dumps({"id": name, "text": text, "label": number % 3}) + "\n")


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
def test_small_ranges_give_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ngram_range: tuple[int, int]
) -> None:
    write_documents(tmp_path / "x.jsonl", [f"d{k}" for k in range(200)])
    options = TextOptions(ngram_range=ngram_range)
    whole = ingest([str(tmp_path / "x.jsonl")], tmp_path / "whole", options, shard_bytes=2000)
    assert len(whole.shards) > 5
    monkeypatch.setattr(build, "UNITED_TOKENS", 17)
    monkeypatch.setattr(build, "MERGED_GRAMS", 50)
    assert ingest([str(tmp_path / "x.jsonl")], tmp_path / "parts", options, shard_bytes=2000) == whole


TOKENS = st.lists(st.text("ab\u00e9\U00010400", max_size=3).map(str.encode), unique=True, max_size=12).map(sorted)


@given(pieces=st.lists(TOKENS, min_size=1, max_size=5), parts=st.integers(1, 8))
def test_union_of_tokens(pieces: list[list[bytes]], parts: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Against Python's own sets, for any number of ranges."""
    folder = tmp_path_factory.mktemp("union")
    paths = []
    for i, tokens in enumerate(pieces):
        offsets = np.cumsum([0, *map(len, tokens)])
        arrays = {"token_bytes": np.frombuffer(b"".join(tokens), np.uint8), "token_offsets": offsets}
        paths.append(str(folder / f"{i}.piece"))
        save_arrays(Path(paths[-1]), arrays)
    edges = [None, *token_edges(paths, parts), None]
    assert len(edges) <= parts + 1
    targets = [str(folder / f"{i}.union") for i in range(len(edges) - 1)]
    for i, target in enumerate(targets):
        unite_range(paths, edges[i], edges[i + 1], target)
    collect_tokens(targets, len(paths), str(folder / "tokens"))
    arrays, _ = load_arrays(folder / "tokens")
    expected = sorted(set().union(*pieces))
    data = arrays["token_bytes"].tobytes()
    offsets = arrays["token_offsets"]
    assert [data[a:b] for a, b in itertools.pairwise(offsets)] == expected
    for i, tokens in enumerate(pieces):
        assert arrays[f"map_{i}"].tolist() == [expected.index(token) for token in tokens]


def test_arrays_in_parts(tmp_path: Path) -> None:
    parts = Parts(np.dtype(np.int64), 5, iter([np.arange(2), np.empty(0, np.int64), np.arange(2, 5)]))
    save_arrays(tmp_path / "x", {"a": np.ones(3, np.uint8), "b": parts, "c": np.zeros((2, 2))}, {"n": 1})
    arrays, facts = load_arrays(tmp_path / "x")
    assert (arrays["b"].tolist(), arrays["c"].shape, facts) == ([0, 1, 2, 3, 4], (2, 2), {"n": 1})
    with Reader(tmp_path / "x") as reader:
        assert (reader.size("b"), reader.read("b", 1, 4).tolist(), reader.read("a", 3, 3).size) == (5, [1, 2, 3], 0)
        assert (reader["c"].shape, reader.facts, "d" in reader) == ((2, 2), {"n": 1}, False)
        assert [reader.search("b", bound) for bound in (-1, 0, 3, 9)] == [0, 0, 3, 5]


@pytest.mark.parametrize("buckets", [1, 2, 1 << 62])
def test_ids_that_share_a_hash_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int) -> None:
    original = labels._hash
    monkeypatch.setattr(labels, "_hash", lambda strings: original(strings) % buckets)
    names = [f"d{k}" for k in range(120)]
    write_documents(tmp_path / "x.jsonl", names)
    apart = ingest([str(tmp_path / "x.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    assert apart.rows == 120
    repeated = [*names[:70], "d3", "d69", *names[70:], "d3", "d119"]
    write_documents(tmp_path / "y.jsonl", repeated)
    with pytest.raises(InputError, match=r"y\.jsonl, line 4 and \S+y\.jsonl, line 71"):
        ingest([str(tmp_path / "y.jsonl")], tmp_path / "error", TextOptions(), shard_bytes=2000)
    ingest([str(tmp_path / "y.jsonl")], tmp_path / "first", TextOptions(duplicates="first"), shard_bytes=2000)
    store = Store.open(tmp_path / "first")
    kept = [name for shard in range(len(store.manifest.shards)) for name in store.read(shard, ids=True).ids.to_pylist()]
    assert kept == names
    with pytest.raises(InputError, match=r"x\.jsonl and \S+z\.jsonl, line 2"):  # against the shards of the store
        write_documents(tmp_path / "z.jsonl", ["new", "d5"])
        ingest([str(tmp_path / "z.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    X, _ = read_shards(tmp_path / "apart")
    assert X.shape[0] == 120
