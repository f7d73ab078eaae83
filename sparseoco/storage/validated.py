"""JSON files whose content has a stated shape: a pydantic model, or a TypedDict where keys are looked up."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError
from sparseoco.storage.commit import read_json
from sparseoco.storage.locations import Location

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LARGEST = 1e100
"""Bound of the numbers of a model: what is computed of them, such as squares, is finite."""
Moderate = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
with_other_keys = with_config(ConfigDict(extra="allow"))
"""Decorates a TypedDict that says only something of a file."""


def row_shape(schema: "pa.Schema") -> Any:
    """The shape of a row of a table of this schema: values have the types of their columns, columns may be missing."""
    columns = {field.name: _value_shape(field.type) for field in schema}
    return with_other_keys(TypedDict("Row", columns, total=False))  # type: ignore[operator]


def _value_shape(kind: "pa.DataType") -> Any:
    import pyarrow as pa  # the manifest of a store is read without it

    if pa.types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return Annotated[int, Strict(), Field(ge=-bound, lt=bound)] | None
    for is_kind, value in ((pa.types.is_floating, float), (pa.types.is_boolean, bool), (pa.types.is_string, str)):
        if is_kind(kind):
            return Annotated[value, Strict()] | None
    return Any


def read_validated(path: Location, shape: type[T]) -> T:
    """The value of a JSON file as `shape`. Raises as `read_json`, and as `validated`."""
    return validated(path, read_json(path), shape)


def validated(path: Location, value: Any, shape: type[T]) -> T:
    """A value that was read from a file, as `shape`. Raises `DamagedError`, naming the file and the key."""
    try:
        return cast(T, _adapter(cast(Any, shape)).validate_python(value))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"]) or "the whole file"
        raise DamagedError(f"{path} is corrupt or of another version (at {where}).", code="corrupt-file") from error


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
