from typing import Any

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.search.selection import candidates, choose
from tests.support.errors import raises_code


def row(configuration: int, fold: int, error: float, nonzeros: int, **changes: Any) -> dict[str, Any]:
    return {
        "configuration": configuration,
        "algorithm": "fobos",
        "parameters": "{}",
        "fold": fold,
        "epoch": 1,
        "rows": 80,
        "progressive_error": error,
        "held_out_rows": 20,
        "held_out_error": error,
        "nonzeros": nonzeros,
        "status": "ok",
        "reason": "",
    } | changes


TABLE = [
    row(0, 0, 0.10, 100), row(0, 1, 0.14, 100),
    row(1, 0, 0.11, 10), row(1, 1, 0.15, 20),
    row(2, 0, 0.30, 1), row(2, 1, 0.30, 1),
]  # fmt: skip


def test_the_least_error_or_the_sparsest_within_one_standard_error() -> None:
    best = choose(TABLE, "error")
    assert (best.configuration, best.error) == (0, pytest.approx(0.12))
    assert best.standard_error == pytest.approx(0.02)  # (0.14 − 0.10)/√2 over √2
    assert choose(TABLE, "one-standard-error").configuration == 1


def test_what_failed_in_one_fold_is_no_candidate() -> None:
    table = [*TABLE, row(3, 0, 0.0, 5), row(3, 1, 0.0, 5, status="diverged", reason="diverged at row 3")]
    assert [candidate.configuration for candidate in candidates(table)] == [0, 1, 2]
    assert [candidate.configuration for candidate in candidates(table[:-1])] == [0, 1, 2]  # a fold is missing


def test_one_split_has_the_binomial_standard_error() -> None:
    best = choose([row(0, -1, 0.2, 5, held_out_rows=0, held_out_error=None)], "error")
    assert best.standard_error == pytest.approx((0.2 * 0.8 / 80) ** 0.5)


def test_equal_errors_are_settled_by_sparseness_then_by_number() -> None:
    assert choose([row(0, 0, 0.1, 9), row(1, 0, 0.1, 5), row(2, 0, 0.1, 5)], "error").configuration == 1


def test_no_configuration_succeeded() -> None:
    with raises_code("no-candidate", "diverged at row 3", kind=SparseocoError):
        choose([row(0, 0, 0.1, 1, status="diverged", reason="diverged at row 3")], "error")
