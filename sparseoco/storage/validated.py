"""JSON files whose content has a stated shape."""

from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from sparseoco.core.errors import DamagedError
from sparseoco.storage.commit import read_json
from sparseoco.storage.locations import Location

T = TypeVar("T")


def read_validated(path: Location, shape: type[T]) -> T:
    """The value of a JSON file, which has a shape: a TypedDict, whose other keys are left as they are.

    Raises as `read_json`, and as `validated`.
    """
    return validated(path, read_json(path), shape)


def validated(path: Location, value: Any, shape: type[T]) -> T:
    """`value`, which was read from a file, unchanged. Raises `DamagedError` if it has another shape."""
    try:
        _adapter(cast(Any, shape)).validate_python(value, strict=True)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"]) or "the whole file"
        raise DamagedError(f"{path} is corrupt or of another version (at {where}).", code="corrupt-file") from error
    return cast(T, value)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
