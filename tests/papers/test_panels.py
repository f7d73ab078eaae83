"""Panels of prices and relatives: one reader for all their forms."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.papers.panels import read_panel
from tests.support.errors import raises_code

ROWS, NAMES = 24, ("600000", "600008", "600009")
RELATIVES = np.random.default_rng(2).lognormal(0.001, 0.03, (ROWS - 1, 3))
PRICES = np.array([12.5, 3.0, 80.0]) * np.vstack([np.ones(3), np.cumprod(RELATIVES, axis=0)])
DAYS = [f"2019-{1 + day // 20}-{1 + day % 20}" for day in range(ROWS)]


def write(path: Path, matrix: np.ndarray, first: list[str] | None = None, header: str = "") -> Path:
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
    panel = read_panel(write(tmp_path / "p.csv", matrix, first, header))
    np.testing.assert_allclose(panel.returns, RELATIVES - 1, rtol=1e-12, atol=1e-12)
    assert panel.values == values
    if named:
        assert panel.stocks == tuple(f"stock {name}" for name in NAMES)


def test_figures_as_names_are_a_header_beside_a_word_or_an_empty_cell(tmp_path: Path) -> None:
    for name in ("date", ""):
        panel = read_panel(write(tmp_path / "p.csv", PRICES, DAYS, ",".join([name, *NAMES])))
        assert panel.stocks == NAMES
    panel = read_panel(write(tmp_path / "p.csv", PRICES, None, ",".join(NAMES)), header=True)
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
    panel = read_panel(write(tmp_path / "p.csv", PRICES[::-1], DAYS[::-1]))
    np.testing.assert_allclose(panel.returns, RELATIVES - 1, rtol=1e-12, atol=1e-12)
    with raises_code("unordered-dates", tmp_path / "p.csv", "'1'"):
        read_panel(write(tmp_path / "p.csv", PRICES, [*DAYS[1:], DAYS[0]]))


def test_options_overrule_what_it_looks_like(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", RELATIVES, DAYS[1:], "day,a,b,c")
    relative = write(tmp_path / "p.csv", np.cumprod(RELATIVES, axis=0))
    np.testing.assert_allclose(read_panel(relative, from_one=True).returns, RELATIVES - 1, rtol=1e-9)
    path = write(tmp_path / "p.csv", np.column_stack([PRICES, PRICES[:, 0]]), None, "a,b,c,index")
    assert read_panel(path, dates="index").stocks == ("a", "b", "c")


def test_errors_name_the_column(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("A,B\n1,1\n1.1,0\n1,1\n")
    with raises_code("invalid-price", path, "row 2", "column 'B'"):
        read_panel(path)
    path.write_text("A,B,C\n1,1,1\n1.1,1,x\n1,1,1\n")
    with raises_code("not-a-number", "row 2", "column 'C'"):
        read_panel(path)
    path.write_text("A,B\n1,1\n1.1,\n1,1\n")
    with raises_code("too-small", path):
        read_panel(path)
    with raises_code("unknown-column", "'day'"):
        read_panel(path, dates="day")


def test_a_stock_with_a_gap_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", PRICES, DAYS, "date,a,b,c")
    path.write_text(path.read_text().replace(repr(PRICES[3, 1].item()), ""))
    panel = read_panel(path)
    assert (panel.stocks, panel.incomplete) == (("a", "c"), ("b",))
    np.testing.assert_allclose(panel.returns, RELATIVES[:, [0, 2]] - 1, rtol=1e-12, atol=1e-12)
