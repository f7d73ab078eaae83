"""Array files: written in parts, read as a whole and in ranges."""

from pathlib import Path

import numpy as np

from sparseoco.text.array_files import ArrayParts, ArrayReader, load_arrays, save_arrays


def test_arrays_in_parts(tmp_path: Path) -> None:
    parts = ArrayParts(np.dtype(np.int64), 5, iter([np.arange(2), np.empty(0, np.int64), np.arange(2, 5)]))
    save_arrays(tmp_path / "x", {"a": np.ones(3, np.uint8), "b": parts, "c": np.zeros((2, 2))}, {"n": 1})
    arrays, facts = load_arrays(tmp_path / "x")
    assert (arrays["b"].tolist(), arrays["c"].shape, facts) == ([0, 1, 2, 3, 4], (2, 2), {"n": 1})
    with ArrayReader(tmp_path / "x") as reader:
        assert (reader.size("b"), reader.read("b", 1, 4).tolist(), reader.read("a", 3, 3).size) == (5, [1, 2, 3], 0)
        assert (reader["c"].shape, reader.facts, "d" in reader) == ((2, 2), {"n": 1}, False)
        assert [reader.search("b", bound) for bound in (-1, 0, 3, 9)] == [0, 0, 3, 5]
