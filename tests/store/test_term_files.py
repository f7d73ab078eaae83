"""Files of terms are merged as they grow: few of them, with the content of all that were added."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.store import terms as term_files
from sparseoco.store.entries import read_table
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import write_names, write_quarantine, write_vocabulary
from sparseoco.store.terms import add_files


def columns(first: int, count: int) -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]:
    features = np.arange(first, first + count)
    return features, pa.array([f"term{n}" for n in features]), features % 5 + 1, features % 3 + 1


def content(folder: Path, files: tuple[FileEntry, ...]) -> pa.Table:
    return pa.concat_tables([read_table(folder, entry) for entry in files], promote_options="permissive")


@settings(max_examples=30)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.sampled_from([0, 6000, 1 << 20]))
def test_a_vocabulary_in_few_files(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int) -> None:
    folder, files, first = tmp_path_factory.mktemp("terms"), tuple[FileEntry, ...](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(term_files, "MERGED_BYTES", limit)
        for size in sizes:
            added = (write_vocabulary(folder, *columns(first, size)),) if size else ()
            files, first = add_files(folder, "vocabulary", files, added), first + size
    if files:
        expected = columns(0, first)
        assert content(folder, files).equals(
            pa.table(dict(zip(content(folder, files).column_names, expected, strict=True)))
        )
    if limit == 1 << 20:
        assert all(before.bytes > 2 * after.bytes for before, after in pairwise(files))
    if not limit:
        assert len(files) == sum(size > 0 for size in sizes)


def test_terms_of_hashed_features_are_summed(tmp_path: Path) -> None:
    files: tuple[FileEntry, ...] = ()
    for _ in range(50):
        files = add_files(tmp_path, "names", files, (write_names(tmp_path, *columns(3, 4)),))
    table = content(tmp_path, files)
    assert table.num_rows <= 4 * len(files) <= 8
    sums = table.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
    features, terms, counts, documents = columns(3, 4)
    assert sorted(tuple(row.values()) for row in sums.to_pylist()) == [
        (int(f), t, 50 * int(c), 50 * int(d))
        for f, t, c, d in zip(features, terms.to_pylist(), counts, documents, strict=True)
    ]


def test_quarantined_rows_stay_in_order(tmp_path: Path) -> None:
    files: tuple[FileEntry, ...] = ()
    for number in range(30):
        row = (f"file-{number}.jsonl", number, 10 * number, "no label")
        files = add_files(tmp_path, "quarantine", files, (write_quarantine(tmp_path, [row]),))
    assert content(tmp_path, files)["line"].to_pylist() == list(range(30))
    assert len(files) < 5
