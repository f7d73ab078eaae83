"""The base of all option tables, and what is wrong with a value in plain words instead of pydantic's."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError


class OptionModel(BaseModel):
    """A table of options: immutable, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    "list": "must be a list",
    "model": "must be a table",
    "path": "must be a path",
    "set": "must be a list",
    "string": "must be text",
    "tuple": "must be a list",
}


def matching(pattern: str, form: str) -> AfterValidator:
    """What checks, in a field's type, that all of a text is of a pattern; `form` says in words what it must be."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"must be {form}")
        return value

    return AfterValidator(check)


def describe_problem(problem: Mapping[str, Any]) -> str:
    """What is wrong with a value, one of `ValidationError.errors`, without the value itself.

    >>> describe_problem({"type": "greater_than_equal", "ctx": {"ge": 1}, "msg": "Input should be greater than or
    equal to 1"})
    'must be at least 1'
    """
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such key"
    if kind == "missing":
        return "this key is required"
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        return sentence.format(context[name])
    if kind.endswith("too_short"):
        return "must not be empty" if context["min_length"] == 1 else f"must have {context['min_length']} entries"
    for beginning, sentence in _KINDS.items():
        if kind == beginning or kind.startswith(f"{beginning}_"):
            return sentence
    return str(problem["msg"]).removeprefix("Value error, ")


def describe_invalid(error: ValidationError, under: tuple[str, ...] = ()) -> str:
    """The first things wrong, each with its key, `under` before it; values are not repeated."""
    sentences = []
    for problem in error.errors()[:5]:
        own = (str(part) for part in problem["loc"])
        key = ".".join((*under, *(part for part in own if not part.startswith(("list[", "function-", "Range")))))
        sentence = f"{key}: {describe_problem(problem)}" if key else describe_problem(problem)
        if sentence not in sentences:
            sentences.append(sentence)
    return "; ".join(sentences)
