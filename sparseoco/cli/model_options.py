"""Options of commands generated from the fields of option models: a new field is a new flag."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sparseoco.cli.completion import BY_FIELD
from sparseoco.core.errors import InputError
from sparseoco.core.quantities import number_or_text

METAVARS = {
    "columns": "FIELD",
    "also": "MODEL",
    "keep_top": "SHARE",
    "keep_class": "CLASS",
    "keep_model": "NAME",
    "alphas": "A,A,…",
    "class_weight": "balanced|CLASS=WEIGHT,…",
    "classes": "NAME",
    "features_from": "MODEL",
    "idf": "true|false,…",
    "id_field": "FIELD",
    "label_field": "FIELD",
    "loss": "NAME",
    "max_memory": "SIZE",
    "memory": "SIZE",
    "norm": "none|l2,…",
    "ngram_range": "MIN,MAX",
    "metric": "NAME",
    "penalty": "NAME",
    "scheduler": "ADDRESS",
    "select": "RULE",
    "stop_words": "english|FILE",
    "text_field": "FIELD",
    "tf": "count|binary|log,…",
    "time_limit": "DURATION",
    "warm_start": "MODEL",
}
"""Placeholders of fields for which that of the type says too little."""


@dataclass(frozen=True)
class ModelOptions:
    """Annotates a parameter of a command: one option for each field of `model`.

    The command receives a dict of the values given on the command line, to be validated by the model. Fields that are
    themselves models have no option.

    Parameters
    ----------
    only, without : names of the fields to take, by default all, and to leave out.
    flags : names of flags, by default those of the fields.
    panels : headings in the help, by field.
    panel : heading of all other fields.
    defaults : whether the help shows the model's defaults.
    """

    model: type[BaseModel]
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    panels: Mapping[str, str] = field(default_factory=dict)
    panel: str | None = None
    defaults: bool = True

    @property
    def fields(self) -> dict[str, FieldInfo]:
        """The fields that have an option."""
        return {
            name: info
            for name, info in self.model.model_fields.items()
            if name in (self.only or self.model.model_fields) and name not in self.without and not _is_model(info)
        }

    def flag(self, name: str) -> str:
        """The flag of a field."""
        return self.flags.get(name, "--" + name.replace("_", "-"))

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters from which Typer makes the options."""
        return [self._parameter(name, info) for name, info in self.fields.items()]

    def _parameter(self, name: str, info: FieldInfo) -> inspect.Parameter:
        kind = _type(info)
        default = (info.get_default() if self.defaults else None) or None
        annotation: Any = str
        metavar: str | None = METAVARS.get(name)
        flag, text = self.flag(name), info.description or ""
        if kind is bool:
            annotation = bool
            known = self.defaults and info.default is not None  # otherwise either may be a change
            flag = flag if known and not default else f"{flag}/--no-{flag[2:]}"
            default = bool(default) if known else None
        elif get_origin(kind) is Literal:
            annotation = Literal[tuple(map(str, get_args(kind)))]
        elif _is_repeated(kind):
            annotation, text = list[str], f"{text} Repeatable."
            metavar = metavar or ("FIELD=VALUE" if get_origin(kind) is dict else "TEXT")
        elif metavar is None:
            numbers = {int, float} & {kind, *get_args(kind)}
            metavar = "TEXT" if not numbers else "N" if int in numbers else "X"
        if isinstance(default, tuple):
            default = ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in default)
        elif kind is not bool and isinstance(info.default, int | float) and self.defaults:
            default = str(info.default)
        option = typer.Option(
            flag,
            metavar=metavar,
            help=text,
            show_default=True,
            rich_help_panel=self.panels.get(name, self.panel),
            autocompletion=BY_FIELD.get(name),
        )
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[annotation | None, option],
        )

    def value(self, name: str, given: Any) -> Any:
        """What was given for a field, in the form that its model takes."""
        kind = _type(self.fields[name])
        if get_origin(kind) is Literal:
            return {str(value): value for value in get_args(kind)}[given]
        if get_origin(kind) is dict:
            return pairs(given, self.flag(name))
        if get_origin(kind) is tuple and not _is_repeated(kind):
            return [_typed(item, get_args(kind)[0]) for item in given.split(",")]
        if set(get_args(kind)) == {int, float}:
            return _int_or_float(given, self.flag(name))
        return _typed(given, kind)


def with_model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command with its parameters that are annotated with `ModelOptions` replaced by the options of the models."""
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    models: dict[str, ModelOptions] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        found = [item for item in getattr(parameter.annotation, "__metadata__", ()) if isinstance(item, ModelOptions)]
        if found:
            models[parameter.name] = found[0]
            parameters += found[0].parameters()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def call(context: typer.Context, **arguments: Any) -> None:
        for parameter, options in models.items():
            values = {name: arguments.pop(name) for name in options.fields}
            arguments[parameter] = {
                name: options.value(name, value)
                for name, value in values.items()
                if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
            }
        function(**arguments)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def pairs(items: list[str] | None, flag: str) -> dict[str, str]:
    """NAME=VALUE items as a mapping. Raises `InputError` for an item of another form, and for two of one name."""
    found: dict[str, str] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"{flag} {item}: write it as NAME=VALUE.", code="invalid-option")
        if key in found:
            raise InputError(f"{flag}: {key} is given twice: give it once.", code="invalid-option")
        found[key] = value
    return found


def _type(info: FieldInfo) -> Any:
    """The type of a field apart from None."""
    kinds = [kind for kind in get_args(info.annotation) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 and NoneType in get_args(info.annotation) else info.annotation


def _is_model(info: FieldInfo) -> bool:
    """Whether the values of a field are models, or tables of models by name."""
    kind = _type(info)
    if get_origin(kind) is dict:
        return get_args(kind)[1] is not str
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_repeated(kind: Any) -> bool:
    """Whether a flag is repeated for each entry; numbers are separated by commas instead."""
    return get_origin(kind) is dict or (get_origin(kind) is tuple and get_args(kind)[0] is str)


def _typed(given: Any, kind: Any) -> Any:
    """Text as a number or truth value if it is one, and the type says so."""
    if kind in (int, float) and isinstance(given, str):
        return number_or_text(given)
    return {"true": True, "false": False}.get(given, given) if kind is bool else given


def _int_or_float(text: str, flag: str) -> int | float:
    """A count if it is written as an integer, otherwise a fraction."""
    number = number_or_text(text)
    if not isinstance(number, str):
        return number
    raise InputError(f"{flag} {text}: write an integer (a count) or a fraction such as 0.01.", code="invalid-option")
