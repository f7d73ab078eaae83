"""The border of kept documents: that of sorting all scores, with many ties, signs and any division into parts."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.scoring.kept import Counts, Ranking, count_digits, find_border, key_value, ordered_keys
from sparseoco.scoring.options import ScoreOptions, kept_rows
from tests.support.errors import raises_code

few = st.sampled_from([-1.5, -0.0, 0.0, 1e-300, 0.25, 0.25000001, 1.0, 3.0])
scores = st.lists(few, min_size=1) | st.lists(st.floats(allow_nan=False), min_size=1)


@given(scores, st.integers(0, 1 << 20), st.integers(1, 5), st.sampled_from([0, 2, 1 << 20]))
def test_border_is_that_of_sorting(values: list[float], number: int, pieces: int, max_values: int) -> None:
    every = np.array(values)
    rows = 1 + number % len(values)

    def count(*digit: int) -> Iterator[Counts]:
        return (count_digits(part, *digit) for part in np.array_split(every, pieces))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparseoco.scoring.kept.MAX_VALUES", max_values)
        border = find_border(rows, count)
    assert border.value == np.sort(every)[::-1][rows - 1]
    kept = border.keeps(every)
    assert border.rows == kept.sum() == (every >= border.value).sum() >= rows
    assert border.ties == (every == border.value).sum()
    assert border.rows - border.ties < rows


@given(scores)
def test_keys_have_the_order_of_values(values: list[float]) -> None:
    every = np.array(values)
    keys = ordered_keys(every)
    assert ((every[:, None] < every) == (keys[:, None] < keys)).all()
    assert [key_value(int(key)) for key in keys] == values


@pytest.mark.parametrize(
    ("asked", "rows", "kept"),
    [
        ("10%", 1000, 100),
        ("10 %", 1001, 101),
        ("0.1", 30, 3),
        ("100%", 7, 7),
        ("5", 3, 3),
        ("2", 3, 2),
        (".5", 5, 3),
        ("1e-1", 30, 3),
    ],
)
def test_kept_rows(asked: str, rows: int, kept: int) -> None:
    assert kept_rows(asked, rows) == kept


@pytest.mark.parametrize(
    "asked",
    ["0", "0%", "101%", "-1", "1.5", "1.0", "ten", "1/0", "nan", "", ".", "1e99999999", "1e-99999999", "9" * 5000],
)
def test_invalid_shares(asked: str) -> None:
    with pytest.raises(InputError, match="keep_top"):
        validate(ScoreOptions, {"keep_top": asked})


def test_top_and_above() -> None:
    with pytest.raises(InputError, match="keep_above: cannot be combined"):
        validate(ScoreOptions, {"keep_top": "10%", "keep_above": 0.5})
    for name, value in (("keep_class", "a"), ("keep_model", "m"), ("keep_as", "ids")):
        with raises_code("invalid-option", name, "keep_top"):
            validate(ScoreOptions, {name: value})
        assert validate(ScoreOptions, {name: value, "keep_above": 0.5}).keeps
    assert not validate(ScoreOptions, {"keep_as": "documents"}).keeps


@pytest.mark.parametrize("of", ["value", "negative", "complement"])
def test_what_is_not_a_number_comes_last(of: str) -> None:
    values = Ranking("margin", of, "margin").values(pa.chunked_array([[np.nan, 0.5, -np.inf, np.inf]]))
    assert not np.isnan(values).any()
    assert values[0] == -np.inf
    border = find_border(1, lambda *digit: [count_digits(values, *digit)])
    assert np.flatnonzero(border.keeps(values)).tolist() == [3 if of == "value" else 2]
