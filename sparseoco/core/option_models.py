"""The base class of option models, and their validation with plain error messages instead of pydantic's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.formatting import did_you_mean

T = TypeVar("T", bound=BaseModel)


def _be_strict(schema: Any) -> None:
    """Accept for every number and truth value in a schema of pydantic its own type only; a float may be whole."""
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _be_strict(value)
    if isinstance(schema, dict) and schema.get("type") in ("int", "float", "bool"):
        schema["strict"] = True


class OptionModel(BaseModel):
    """A table of options: immutable, without unknown keys; true is no number, 2.0 no whole number, and text neither."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _be_strict(schema)
        return schema


_CODES = {"extra_forbidden": "unknown-option", "missing": "missing-option"}
_BOUNDS = {
    "greater_than": ("gt", "must be above {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be below {}"),
    "less_than_equal": ("le", "must be at most {}"),
    "literal_error": ("expected", "must be {}"),
    "enum": ("expected", "must be {}"),
}
_KINDS = {
    "bool": "must be true or false",
    "dict": "must be a table",
    "finite_number": "must be finite",
    "float": "must be a number",
    "int": "must be a whole number",
    "list": "must be a list, in [ ]",
    "model": "must be a table",
    "path": "must be a path",
    "set": "must be a list, in [ ]",
    "string": "must be text",
    "tuple": "must be a list, in [ ]",
}


def validate(model: type[T], values: Any, source: str = "", *, folder: object = None) -> T:
    """The model of these values.

    Parameters
    ----------
    source : str
        Name of the source of the values, such as a file, for error messages.
    folder : path, optional
        What paths of files that validators read are relative to, by default the working directory; their `context`.

    Raises
    ------
    InputError
        Names the source and the keys. Its code is that of an error that a validator raised first, or else
        ``unknown-option``, ``missing-option`` or ``invalid-option``.
    """
    try:
        return model.model_validate(values, context=folder)
    except ValidationError as error:
        raise InputError(f"{source}: " * bool(source) + _describe(error, model), code=_code(error)) from None


def _describe_problem(problem: Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """What is wrong with a value, one of `ValidationError.errors`, without the value itself.

    `known` are the keys of the table that the value is in.

    >>> _describe_problem({"type": "greater_than_equal", "ctx": {"ge": 1}, "msg": "Input should be at least 1"})
    'must be at least 1'
    """
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        question = did_you_mean(problem["loc"][-1], known)
        return f"there is no such key; {question}" if question else "there is no such key"
    if kind == "missing":
        return "this key is required"
    if kind == "union_tag_not_found":
        return f"the key {context['discriminator']} is required"
    if kind == "union_tag_invalid":
        return f"{context['discriminator']} must be {context['expected_tags']}"
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        wanted = str(context[name])
        question = did_you_mean(problem.get("input"), re.findall(r"'([^']*)'", wanted))
        return f"{sentence.format(wanted)}; {question}" if question else sentence.format(wanted)
    if kind.endswith("too_short"):
        return "must not be empty" if context["min_length"] == 1 else f"must have {context['min_length']} entries"
    if kind == "int_type" and isinstance(problem.get("input"), float):
        return "must be a whole number, without a point or an exponent"
    for beginning, sentence in _KINDS.items():
        if kind == beginning or kind.startswith(f"{beginning}_"):
            return sentence
    return str(problem["msg"]).removeprefix("Value error, ")


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys of the table at a path of keys, of all models that it may be."""
    models = [model]
    for part in path:
        annotations = [each.model_fields[str(part)].annotation for each in models if str(part) in each.model_fields]
        models = [found for annotation in annotations for found in _models(annotation)] or models
    return list(dict.fromkeys(name for each in models for name in each.model_fields))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problems as sentences, each with its key; values are not repeated."""
    sentences = []
    for problem in error.errors()[:5]:
        parts = [str(part) for part in problem["loc"]]
        own = [part for part in parts if not part.startswith(("dict[", "list[", "function-", "Range", "Relative"))]
        key = ".".join(own)
        known = _known_keys(model, problem["loc"][:-1])
        sentence = f"{key}: " * bool(key) + _describe_problem(problem, known).removesuffix(".")
        if sentence not in sentences:
            sentences.append(sentence)
    text = "; ".join(sentences)
    return text if text.endswith("?") else f"{text}."


def _code(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] in _CODES:
        return _CODES[first["type"]]
    cause = getattr(first.get("ctx", {}).get("error"), "__cause__", None)
    return cause.code if isinstance(cause, SparseocoError) else "invalid-option"
