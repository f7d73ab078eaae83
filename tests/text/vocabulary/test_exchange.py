"""The vocabulary does not depend on the division of documents into pieces, of pieces into groups, or on ranges."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store
from sparseoco.text.array_files import read_block, save_arrays, stored_strings
from sparseoco.text.counting import count_documents, n_ngrams
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import _documents
from sparseoco.text.vocabulary import exchange as module
from sparseoco.text.vocabulary import selection as selecting
from sparseoco.text.vocabulary.exchange import Exchange, plan_exchange
from sparseoco.text.vocabulary.index import collect_tokens, sample_edges, unite_group, unite_range
from sparseoco.text.vocabulary.merge import gather_ids, merge_group, merge_range, number_range, piece_features
from sparseoco.text.vocabulary.selection import Selection, choose_features, stage_known_terms
from tests.support.ingests import write_documents


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
def test_small_ranges_give_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ngram_range: tuple[int, int]
) -> None:
    write_documents(tmp_path / "x.jsonl", [f"d{k}" for k in range(200)])
    options = TextOptions(ngram_range=ngram_range)
    whole = ingest([str(tmp_path / "x.jsonl")], tmp_path / "whole", options, shard_bytes=2000)
    assert whole.n_shards > 5
    monkeypatch.setattr(module, "NGRAMS_PER_TASK", 50)
    parts = ingest([str(tmp_path / "x.jsonl")], tmp_path / "parts", options, shard_bytes=2000)
    assert (parts.shard_segments, parts.features.count) == (whole.shard_segments, whole.features.count)
    assert len(parts.features.files) > len(whole.features.files) == 1
    stores = [Store.open(tmp_path / name) for name in ("whole", "parts")]
    assert stores[0].vocabulary().equals(stores[1].vocabulary())
    some = np.array([7, 0, 3])
    assert stores[0].describe(some).equals(stores[1].describe(some))
    assert stores[0].document_frequencies().tolist() == stores[1].document_frequencies().tolist()


class Pieces:
    """Documents as pieces, and the steps of an exchange, one after the other."""

    def __init__(self, folder: Path, pieces: list[list[str]], options: TextOptions) -> None:
        self.folder, self.options = folder, options
        self.counts = [count_documents(_documents(texts, options), options) for texts in pieces]
        self.names = [f"{i}.counts" for i in range(len(pieces))]
        self.n_documents = sum(map(len, pieces))
        for name, arrays in zip(self.names, self.counts, strict=True):
            save_arrays(folder / name, arrays)

    def exchange(
        self, key: str, group_size: int, n_ranges: int, known: tuple[FileEntry, ...] = (), n_known: int = 0
    ) -> tuple[dict[str, tuple[int, ...]], list[FileEntry]]:
        """(feature, count, documents of each term; the vocabulary files); checks the features of all pieces."""
        names = self.names + [
            stage_known_terms(str(self.folder), str(self.folder), entry, n_known, self.options)[0] for entry in known
        ]
        planned = plan_exchange(self.folder, key, names, 0, self.options.counted_from)
        exchange = planned._replace(group_size=group_size, n_ranges=n_ranges)
        (self.folder / f"{key}.plan-0").unlink()
        with module.write_blocks(exchange.path("plan"), exchange.n_groups) as write:
            for first in range(0, len(names), group_size):
                arrays: dict[str, Any] = {}
                module.store_strings(arrays, "piece", pa.array(names[first : first + group_size]))
                write(arrays)
        selection = Selection(self.options, self.n_documents, n_known, (n_known,), True, False)
        entries = run_steps(exchange, selection, self.folder)
        terms = {}
        for entry in [*known, *entries]:
            for row in pq.read_table(self.folder / entry.file).to_pylist():
                terms[row["term"]] = (row["feature"], row["count"], row["documents"])
        for index, counts in enumerate(self.counts):
            self._check(piece_features(exchange, index, counts), counts, terms)
        return terms, entries

    def _check(self, features: Any, counts: Any, terms: dict[str, tuple[int, ...]]) -> None:
        tokens = stored_strings(counts, "token").to_pylist()
        names: list[str] = tokens
        assert features.size == n_ngrams(counts)
        for n in range(1, 4):
            if f"nodes_{n}" not in counts:
                break
            if n > 1:
                keys = counts[f"keys_{n}"].tolist()
                names = [f"{names[key >> 32]} {tokens[key & 0xFFFFFFFF]}" for key in keys]
            for node, name in zip(counts[f"nodes_{n}"].tolist(), names, strict=True):
                known = terms[name][0] if f"totals_{n}" in counts and name in terms else -1
                assert features[node] == known


def run_steps(exchange: Exchange, selection: Selection, out: Path) -> list[FileEntry]:
    sample_edges(exchange)
    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    for group in groups:
        unite_group(exchange, group)
    for number in ranges:
        unite_range(exchange, number)
    collect_tokens(exchange)
    for group in groups:
        merge_group(exchange, group)
    for number in ranges:
        merge_range(exchange, selection, number)
    n_features = choose_features(exchange, selection, new=False)
    entries = [number_range(exchange, selection, number, n_features, str(out)) for number in ranges]
    for group in groups:
        gather_ids(exchange, group)
    return [entry for entry in entries if entry is not None]


TEXTS = st.lists(st.text("ab é\U00010400", max_size=12), min_size=1, max_size=8)
OPTIONS = st.builds(
    TextOptions,
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 3)]),
    token_pattern=st.just("short_words"),
    min_df=st.sampled_from([1, 2]),
    max_features=st.sampled_from([None, 1, 3]),
)


@given(
    texts=TEXTS,
    later=TEXTS,
    cuts=st.sets(st.integers(1, 7)),
    options=OPTIONS,
    group_size=st.integers(1, 4),
    n_ranges=st.integers(1, 6),
)
def test_any_division_gives_the_same_vocabulary(
    texts: list[str],
    later: list[str],
    cuts: set[int],
    options: TextOptions,
    group_size: int,
    n_ranges: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of a new vocabulary, and of one that is extended by other documents."""
    folder = tmp_path_factory.mktemp("exchange")
    for name in ("whole", "parts"):
        (folder / name).mkdir()

    def divide(documents: list[str]) -> list[list[str]]:
        bounds = [0, *sorted(cut for cut in cuts if cut < len(documents)), len(documents)]
        return [documents[a:b] for a, b in itertools.pairwise(bounds)]

    whole = Pieces(folder / "whole", [texts], options)
    parts = Pieces(folder / "parts", divide(texts), options)
    expected, files = whole.exchange("x", 1, 1)
    found, found_files = parts.exchange("x", group_size, n_ranges)
    assert found == expected
    whole = Pieces(folder / "whole", [later], options)
    parts = Pieces(folder / "parts", divide(later), options)
    extended, _ = whole.exchange("y", 1, 1, tuple(files), len(expected))
    assert parts.exchange("y", group_size, n_ranges, tuple(found_files), len(found))[0] == extended


def test_ties_are_alphabetical_beyond_a_number_of_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `max_features`: the terms of the least count that are first in the order of all lengths mixed."""
    monkeypatch.setattr(selecting, "MAX_SORTED", 5)
    options = TextOptions(ngram_range=(1, 2), token_pattern="short_words", max_features=5)
    (tmp_path / "other").mkdir()
    pieces = Pieces(tmp_path, [["e e e d d", "c b a"], ["a a c", "d"]], options)
    for n_ranges in (1, 2, 6):
        terms, _ = pieces.exchange(f"x{n_ranges}", 1, n_ranges)
        # a, d and e occur three times, c and "e e" twice, and b and the other pairs of words once.
        assert {term: row[0] for term, row in terms.items()} == {"a": 0, "d": 1, "e": 2, "c": 3, "e e": 4}
        limited = Pieces(tmp_path / "other", [["b c", "a"]], options.model_copy(update={"max_features": 2}))
        assert sorted(limited.exchange(f"y{n_ranges}", 1, n_ranges)[0]) == ["a", "b"]


def test_positions_and_tokens_are_read_from_their_range_only(tmp_path: Path) -> None:
    """The block of a range has its tokens alone."""
    pieces = Pieces(tmp_path, [["a b c d e f"], ["g h a b"]], TextOptions(token_pattern="short_words"))
    pieces.exchange("x", 1, 3)
    exchange = Exchange(str(tmp_path), "x", 2, 1, 3, 1)
    blocks = [stored_strings(read_block(exchange.path("tokens"), r), "token").to_pylist() for r in range(3)]
    assert [token for block in blocks for token in block] == list("abcdefgh")
    assert all(blocks)


def test_opens_grow_with_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fixed number of ranges; counted by the audit events of the interpreter."""
    monkeypatch.setattr(module, "NGRAMS_PER_TASK", 7)
    monkeypatch.setattr(module, "MAX_RANGES", 8)
    opened = [0]
    sys.addaudithook(lambda event, _: opened.__setitem__(0, opened[0] + (event == "open")))
    counts = []
    for pieces in (20, 80, 320):
        folder = tmp_path / str(pieces)
        folder.mkdir()
        own = Pieces(folder, [[f"a b{i % 5} c d{i}"] for i in range(pieces)], TextOptions(ngram_range=(1, 2)))
        size = sum(n_ngrams(arrays) for arrays in own.counts)
        before = opened[0]
        exchange = plan_exchange(folder, "x", own.names, size, 1)
        assert exchange.n_ranges == 8
        run_steps(exchange, Selection(own.options, pieces, 0, (0,), True, False), folder)
        for index, arrays in enumerate(own.counts):
            piece_features(exchange, index, arrays)
        counts.append(opened[0] - before)
    assert counts[2] - counts[1] <= 4.4 * (counts[1] - counts[0])
    assert counts[2] <= 28 * 320
