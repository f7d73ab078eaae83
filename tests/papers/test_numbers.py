"""Tables of numbers and panels of prices: values, and errors with row and column."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError, StorageError
from sparseoco.papers.tables import Table, read_panel, read_table, standardise
from tests.support.errors import raises_code


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


HOUSES = "area,rooms,town,price\n50,2,north,100\n80,3,south,150.5\n20,1,north,40\n"
NUMBERS = {"labels": "numbers"}


@pytest.mark.parametrize(
    ("text", "options", "expected"),  # names, features, labels, classes
    [
        (
            HOUSES,
            {"target": "price", "leave_out": ["town"], **NUMBERS},
            (("area", "rooms"), [[50, 2], [80, 3], [20, 1]], [100, 150.5, 40], ()),
        ),
        (
            HOUSES,
            {"target": "town"},
            (("area", "rooms", "price"), [[50, 2, 100], [80, 3, 150.5], [20, 1, 40]], [0, 1, 0], ("north", "south")),
        ),
        ("10,1\n9,2\n-1,3\n", {"target": "1"}, (("2",), [[1], [2], [3]], [2, 1, 0], ("-1", "9", "10"))),  # their order
        ("1,2.5, 3\r\n4,5,6e-1\r\n", {"target": "3", **NUMBERS}, (("1", "2"), [[1, 2.5], [4, 5]], [3, 0.6], ())),
        ("2001,2002\n1,2\n", {"target": "1", **NUMBERS}, (("2",), [[2002], [2]], [2001, 1], ())),  # no header
    ],
)
def test_features_and_labels(tmp_path: Path, text: str, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    table = read_table(write(tmp_path, text), **options)
    assert (table.names, table.features.tolist(), table.labels.tolist(), table.classes) == expected


def test_quotes_tabs_marks_of_order_and_compression(tmp_path: Path) -> None:
    plain = read_table(write(tmp_path, '\ufeff"a b"\tc\n"1"\t2\n', "t.tsv"), target="c", labels="numbers")
    assert (plain.names, plain.features.tolist()) == (("a b",), [[1]])
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,c\n1,2\n"))
    assert read_table(packed, target="c", labels="numbers").names == ("a",)


def test_parquet_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"a": pa.array([1, 2, None], pa.int32()), "b": [True, False, True], "c": ["x", "y", "x"]}
    pq.write_table(pa.table(columns), path)
    table = read_table(path, target="c", leave_out=["a"])
    assert table.features.tolist() == [[1], [0], [1]]
    assert table.labels.tolist() == [0, 1, 0]
    with raises_code("missing-value", "row 3, column 'a'"):
        read_table(path, target="c")
    with raises_code("not-a-number", "row 1, column 'c': 'x'"):
        read_table(path, target="b", leave_out=["a"])
    pq.write_table(pa.table({"a": [1.0], "b": [[1.0, 2.0]]}), path)
    with raises_code("not-a-number", "'b'", "list"):
        read_table(path, target="a", labels="numbers")


@pytest.mark.parametrize("word", ["", "?", "NA", "nan"])
def test_missing_cells(tmp_path: Path, word: str) -> None:
    path = write(tmp_path, f"a,b,c\n1,2,0\n3,{word},1\n5,6,0\n")
    with raises_code("missing-value", "row 2, column 'b'"):
        read_table(path, target="c")
    assert read_table(path, target="c", leave_out=["b"]).features.tolist() == [[1], [3], [5]]


@pytest.mark.parametrize(
    ("text", "options", "code", "values"),
    [
        ("a,b\n1,2\n3,four\n", {}, "not-a-number", ["t.csv, row 2, column 'b': 'four'"]),
        ("a,b\n1,inf\n", {}, "not-a-number", ["row 1, column 'b': 'inf'"]),
        ("a,b\n1,2\n3\n", {}, "wrong-number-of-cells", ["t.csv, line 3: 1 cells", "has 2."]),
        ("a,b\n3,4,5\n", {}, "wrong-number-of-cells", ["t.csv, line 2: 3 cells", "has 2."]),
        ("a,b\n1,2\n", {"target": "c"}, "unknown-column", ["'c'", "a, b."]),
        ("a,b\n1,2\n", {"leave_out": ["z"]}, "unknown-column", ["'z'"]),
        ("a,b\n1,2\n", {"leave_out": ["b"]}, "no-features", ["t.csv"]),
        ("a,b\n2,1\n2,3\n", {"labels": "classes"}, "one-class", ["'a' is '2'"]),
        ("a,a\n1,2\n", {}, "duplicate-column", ["'a'"]),
        ("a,b\n", {}, "no-rows", ["t.csv"]),
        ("", {}, "no-rows", ["empty"]),
        ('{"a": 1}\n', {}, "unknown-format", ["JSON"]),
        ("\na,b\n1,2\n", {}, "invalid-table", ["first line is empty"]),
        ("x" * 200_000, {}, "invalid-table", ["t.csv"]),
    ],
)
def test_invalid_tables(tmp_path: Path, text: str, options: dict[str, Any], code: str, values: list[str]) -> None:
    with raises_code(code, *values):
        read_table(write(tmp_path, text), **{"target": "a", **NUMBERS, **options})


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
            read_table(tmp_path / name, target="a")


@given(st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3), min_size=1, max_size=20))
@settings(max_examples=30)
def test_every_number_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float]]
) -> None:
    text = "a,b,c,y\n" + "".join(",".join(map(repr, (*row, 0))) + "\n" for row in rows)
    table = read_table(write(tmp_path_factory.mktemp("t"), text), target="y", labels="numbers")
    assert table.features.tobytes() == np.array(rows).tobytes()


def test_standardised_columns_have_mean_0_and_deviation_1() -> None:
    numbers = np.random.default_rng(0).normal(3.0, 5.0, (50, 3))
    numbers[:, 1] = 0.1  # constant: scaled to 0
    table = standardise(Table(numbers, ("a", "b", "c"), np.zeros(50), ()))
    np.testing.assert_allclose(table.features.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(table.features.std(axis=0), [1, 0, 1], atol=1e-14)
    assert (table.features[:, 1] == 0.0).all()
    for large in ([1e200, 3.0], [1e308, 1.5e308]):
        with raises_code("overflow", "'b'"):
            standardise(Table(np.array([[1.0, 2.0], large]).T, ("a", "b"), np.zeros(2), ()))


ROWS, NAMES = 24, ("600000", "600008", "600009")
RELATIVES = np.random.default_rng(2).lognormal(0.001, 0.03, (ROWS - 1, 3))
PRICES = np.array([12.5, 3.0, 80.0]) * np.vstack([np.ones(3), np.cumprod(RELATIVES, axis=0)])
DAYS = [f"2019-{1 + day // 20}-{1 + day % 20}" for day in range(ROWS)]


def write_panel(path: Path, matrix: np.ndarray, first: list[str] | None = None, header: str = "") -> Path:
    """A CSV with a first column and a header, or without."""
    rows = [[f"{value!r}" for value in row] for row in matrix.tolist()]
    lines = [",".join(row if first is None else [first[k], *row]) for k, row in enumerate(rows)]
    path.write_text("\n".join([header, *lines] if header else lines) + "\n")
    return path


@pytest.mark.parametrize("values", ["prices", "relatives"])
@pytest.mark.parametrize(
    "first",
    [
        None,
        DAYS,
        [day + " 15:00:00" for day in DAYS],
        [f"{1 + k % 28}/{1 + k // 28}/2019" for k in range(ROWS)],
        [f"201901{k + 1:02}" for k in range(ROWS)],
        [str(k) for k in range(ROWS)],
    ],
    ids=["none", "dates", "times", "day first", "figures", "row numbers"],
)
@pytest.mark.parametrize("named", [True, False])
def test_every_form_of_csv_gives_the_same_returns(
    tmp_path: Path, values: str, first: list[str] | None, named: bool
) -> None:
    matrix = PRICES if values == "prices" else RELATIVES
    header = ",".join((["date"] if first else []) + [f"stock {name}" for name in NAMES]) if named else ""
    panel = read_panel(write_panel(tmp_path / "p.csv", matrix, first, header))
    np.testing.assert_allclose(panel.returns, RELATIVES - 1, rtol=1e-12, atol=1e-12)
    assert panel.values == values
    if named:
        assert panel.stocks == tuple(f"stock {name}" for name in NAMES)


def test_figures_as_names_are_a_header_beside_a_word_or_an_empty_cell(tmp_path: Path) -> None:
    for name in ("date", ""):
        panel = read_panel(write_panel(tmp_path / "p.csv", PRICES, DAYS, ",".join([name, *NAMES])))
        assert panel.stocks == NAMES


@pytest.mark.parametrize("kind", ["date", "text", "none"])
def test_parquet(tmp_path: Path, kind: str) -> None:
    columns: dict[str, object] = {name: PRICES[:, k] for k, name in enumerate(NAMES)}
    if kind != "none":
        days = np.arange("2019-01-01", "2019-01-25", dtype="datetime64[D]")
        columns = {"when": days if kind == "date" else [str(day) for day in days]} | columns
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    panel = read_panel(tmp_path / "p.parquet")
    assert (panel.stocks, panel.values) == (NAMES, "prices")
    np.testing.assert_allclose(panel.returns, RELATIVES - 1, rtol=1e-12, atol=1e-12)


def test_rows_from_the_newest_are_put_in_order_of_time(tmp_path: Path) -> None:
    panel = read_panel(write_panel(tmp_path / "p.csv", PRICES[::-1], DAYS[::-1]))
    np.testing.assert_allclose(panel.returns, RELATIVES - 1, rtol=1e-12, atol=1e-12)
    with raises_code("unordered-dates", tmp_path / "p.csv", "'1'"):
        read_panel(write_panel(tmp_path / "p.csv", PRICES, [*DAYS[1:], DAYS[0]]))


def test_relatives_may_be_from_one(tmp_path: Path) -> None:
    relative = write_panel(tmp_path / "p.csv", np.cumprod(RELATIVES, axis=0))
    np.testing.assert_allclose(read_panel(relative, from_one=True).returns, RELATIVES - 1, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("A,B\n1,1\n1.1,0\n1,1\n", "invalid-price", ["p.csv", "row 2", "column 'B'"]),
        ("A,B,C\n1,1,1\n1.1,1,x\n1,1,1\n", "not-a-number", ["row 2", "column 'C'"]),
        ("A,B\n1,1\n1.1,\n1,1\n", "too-small", ["p.csv"]),
    ],
)
def test_errors_of_a_panel_name_the_column(tmp_path: Path, text: str, code: str, words: list[str]) -> None:
    with raises_code(code, *words):
        read_panel(write(tmp_path, text, "p.csv"))


def test_a_stock_with_a_gap_is_left_out(tmp_path: Path) -> None:
    path = write_panel(tmp_path / "p.csv", PRICES, DAYS, "date,a,b,c")
    path.write_text(path.read_text().replace(repr(PRICES[3, 1].item()), ""))
    panel = read_panel(path)
    assert (panel.stocks, panel.incomplete) == (("a", "c"), ("b",))
    np.testing.assert_allclose(panel.returns, RELATIVES[:, [0, 2]] - 1, rtol=1e-12, atol=1e-12)
