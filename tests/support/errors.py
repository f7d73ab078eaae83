"""Assertions on errors by code and by the values their message names, not by its prose."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparseoco.core.errors import InputError, SparseocoError


@contextmanager
def raises_code(
    code: str, *values: object, kind: type[SparseocoError] = InputError
) -> Iterator[pytest.ExceptionInfo[SparseocoError]]:
    """Expect an error of this type and code whose message names all these values."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code}: {caught.value}"
    for value in values:
        assert str(value) in str(caught.value)


def check_causes(error: BaseException) -> None:
    """Check that no error is its own cause: Dask collects the causes of errors of tasks until there are no more."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        assert cause not in seen
        seen.append(cause)
        cause = cause.__cause__
