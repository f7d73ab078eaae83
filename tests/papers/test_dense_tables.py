"""Tables of numbers: values, and errors with row and column."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError, StorageError
from sparseoco.papers.tables import read_table, standardise
from tests.support.errors import raises_code

HOUSES = "area,rooms,town,price\n50,2,north,100\n80,3,south,150.5\n20,1,north,40\n"


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_of_a_target(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, HOUSES), target="price", labels="numbers", leave_out=["town"])
    assert table.names == ("area", "rooms")
    assert table.features.tolist() == [[50, 2], [80, 3], [20, 1]]
    assert table.labels.tolist() == [100, 150.5, 40]
    assert table.classes == ()


def test_classes_of_a_target(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, HOUSES), target="town")
    assert table.classes == ("north", "south")
    assert table.labels.tolist() == [0, 1, 0]
    assert table.names == ("area", "rooms", "price")


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "10,1\n9,2\n-1,3\n"), target="1")
    assert table.classes == ("-1", "9", "10")
    assert table.labels.tolist() == [2, 1, 0]


def test_without_a_header_columns_are_called_by_their_place(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "1,2.5, 3\r\n4,5,6e-1\r\n"), target="3", labels="numbers")
    assert table.names == ("1", "2")
    assert table.features.tolist() == [[1, 2.5], [4, 5]]
    assert table.labels.tolist() == [3, 0.6]


def test_a_first_line_of_numbers_is_no_header(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "2001,2002\n1,2\n")).features.shape == (2, 2)


def test_quotes_tabs_marks_of_order_and_compression(tmp_path: Path) -> None:
    plain = read_table(write(tmp_path, '\ufeff"a b"\tc\n"1"\t2\n', "t.tsv"))
    assert plain.names == ("a b", "c")
    assert plain.features.tolist() == [[1, 2]]
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,c\n1,2\n"))
    assert read_table(packed).names == ("a", "c")


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"a": pa.array([1, 2, None], pa.int32()), "b": [True, False, True], "c": ["x", "y", "x"]}
    pq.write_table(pa.table(columns), path)
    table = read_table(path, target="c", leave_out=["a"])
    assert table.features.tolist() == [[1], [0], [1]]
    assert table.labels.tolist() == [0, 1, 0]
    with raises_code("missing-value", "row 3, column 'a'"):
        read_table(path, target="c")
    with raises_code("not-a-number", "row 1, column 'c': 'x'"):
        read_table(path, leave_out=["a"])


def test_columns_without_cells_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1.0], "b": [[1.0, 2.0]]}), path)
    with raises_code("not-a-number", "'b'", "list"):
        read_table(path)


@pytest.mark.parametrize("word", ["", "?", "NA", "nan"])
def test_missing_cells(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, f"a,b\n1,2\n3,{word}\n5,6\n")
    with raises_code("missing-value", "row 2, column 'b'"):
        read_table(path)
    assert read_table(path, leave_out=["b"]).features.tolist() == [[1], [3], [5]]


@pytest.mark.parametrize(
    ("text", "options", "code", "values"),
    [
        ("a,b\n1,2\n3,four\n", {}, "not-a-number", ["t.csv, row 2, column 'b': 'four'"]),
        ("a,b\n1,inf\n", {}, "not-a-number", ["row 1, column 'b': 'inf'"]),
        ("a,b\n1,2\n3\n", {}, "wrong-number-of-cells", ["t.csv, line 3: 1 cells", "has 2."]),
        ("1,2\n3,4,5\n", {}, "wrong-number-of-cells", ["t.csv, line 2: 3 cells", "has 2."]),
        ("a,b\n1,2\n", {"target": "c"}, "unknown-column", ["'c'", "a, b."]),
        ("a,b\n1,2\n", {"leave_out": ["z"]}, "unknown-column", ["'z'"]),
        ("a,b\n1,2\n", {"target": "a", "leave_out": ["a"]}, "invalid-option", ["'a' is the target"]),
        ("a,b\n1,2\n", {"target": "a", "leave_out": ["b"]}, "no-features", ["t.csv"]),
        ("a,b\n1,2\n3,2\n", {"target": "b"}, "one-class", ["'b' is '2'"]),
        ("a,a\n1,2\n", {}, "duplicate-column", ["'a'"]),
        ("a,b\n", {}, "no-rows", ["t.csv"]),
        ("", {}, "no-rows", ["empty"]),
        ("\na,b\n1,2\n", {}, "invalid-table", ["first line is empty"]),
        ("x" * 200_000, {}, "invalid-table", ["t.csv"]),
    ],
)
def test_invalid_tables(tmp_path: Path, text: str, options: dict[str, object], code: str, values: list[str]) -> None:
    with raises_code(code, *values):
        read_table(write(tmp_path, text), **options)  # type: ignore[arg-type]


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"no")
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,\xff\xfe\n")
    (tmp_path / "u.csv").write_bytes(b"\xff,b\n1,2\n")
    for name, code, kind in (
        ("t.parquet", "invalid-table", InputError),
        ("t.csv", "invalid-table", InputError),
        ("u.csv", "encoding", InputError),
        ("nowhere.csv", "missing-file", StorageError),
    ):
        with raises_code(code, name, kind=kind):
            read_table(tmp_path / name)


@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=30)
def test_every_number_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float]]
) -> None:
    text = "a,b,c\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows)
    table = read_table(write(tmp_path_factory.mktemp("t"), text))
    assert table.features.tobytes() == np.array(rows).tobytes()


def test_standardised_columns_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(3.0, 5.0, (50, 3))
    numbers[:, 1] = 0.1
    text = "".join(",".join(map(repr, map(float, row))) + "\n" for row in numbers)
    table, scaling = standardise(read_table(write(tmp_path, text)))
    assert scaling.constant == ("2",)
    np.testing.assert_allclose(table.features.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(table.features.std(axis=0), [1, 0, 1], atol=1e-14)
    assert (table.features[:, 1] == 0.0).all()
    np.testing.assert_array_equal(scaling.apply(numbers), table.features)


def test_columns_too_large_to_be_standardised_are_reported(tmp_path: Path) -> None:
    for text in ("a,b\n1,1e200\n2,3\n", "a,b\n1,1e308\n2,1.5e308\n"):
        with raises_code("overflow", "'b'"):
            standardise(read_table(write(tmp_path, text)))
