"""The Typer application, and options that commands share: from the option models, with completion of their values."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from sparseoco.cli.console import check_address_space, names_of_keys
from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.formatting import not_one_of, number_or_text, parse_bytes
from sparseoco.core.logs import ENVIRONMENT, log_to
from sparseoco.core.option_models import validate
from sparseoco.execution.options import ClusterOptions
from sparseoco.learners import algorithm_names, check_algorithm_name, find_algorithm, name_learner
from sparseoco.papers import PAPERS
from sparseoco.pipeline.run_file import load_cluster_file
from sparseoco.storage.locations import Location, absolute_path, check_name, location
from sparseoco.store.weighting import FeatureOptions
from sparseoco.text.options import TextOptions
from sparseoco.training.options import LOSS_NAMES, METRICS, PENALTY_NAMES, with_parts

# ----------------------------------------------------------------------------------------------------------------------
# Values that the shell completes. Nothing here loads a numerical library: completion must be quick.


def _corpora() -> Iterable[str]:
    from sparseoco.datasets.corpora import card_files

    return (path.stem for path in card_files())


COMPLETERS: dict[str, Callable[[], Iterable[str]]] = {
    **dict.fromkeys(("algorithm", "algorithms", "learner"), lambda: algorithm_names()),
    "corpus": _corpora,
    "loss": lambda: ("auto", *LOSS_NAMES),
    "metric": lambda: METRICS,
    "paper": lambda: PAPERS,
    "penalty": lambda: PENALTY_NAMES,
    "select": lambda: ("best", "one-standard-error", "at_most="),
    "class_weight": lambda: ("balanced",),
    "stop_words": lambda: ("english",),
    "norm": lambda: ("none", "l2"),
    "tf": lambda: ("count", "binary", "log"),
}
"""Values, by the name of the field or parameter: functions without parameters, which Typer would fill in."""


# ----------------------------------------------------------------------------------------------------------------------
# Options of commands generated from the fields of option models: a new field is a new flag.


METAVARS = {
    **dict.fromkeys(("columns", "id_field", "label_field", "text_field"), "FIELD"),
    **dict.fromkeys(("also", "features_from", "warm_start"), "MODEL"),
    **dict.fromkeys(("classes", "loss", "metric", "penalty"), "NAME"),
    **dict.fromkeys(("max_memory", "memory"), "SIZE"),
    "keep_top": "SHARE",
    "keep_class": "CLASS",
    "alphas": "A,A,…",
    "class_weight": "balanced|CLASS=WEIGHT,…",
    "idf": "true|false,…",
    "norm": "none|l2,…",
    "ngram_range": "MIN,MAX",
    "scheduler": "ADDRESS",
    "select": "RULE",
    "stop_words": "english|FILE",
    "tf": "count|binary|log,…",
    "time_limit": "DURATION",
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

    @cached_property
    def fields(self) -> dict[str, FieldInfo]:
        """The fields that have an option."""
        return {
            name: info
            for name, info in self.model.model_fields.items()
            if name in (self.only or self.model.model_fields) and name not in self.without and not _is_model(info)
        }

    def flag(self, name: str) -> str:
        """The flag of a field."""
        return self.flags.get(name, _flag(name))

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters from which Typer makes the options."""
        return [self._parameter(name, info) for name, info in self.fields.items()]

    def _parameter(self, name: str, info: FieldInfo) -> inspect.Parameter:
        kind = without_none(info.annotation)
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
            autocompletion=COMPLETERS.get(name),
        )
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation | None, option]
        )

    def collect(self, arguments: dict[str, Any], context: typer.Context) -> Any:
        """What the command receives; takes the values of the options out of its arguments."""
        values = {name: arguments.pop(name) for name in self.fields}
        return {
            name: self.value(name, value)
            for name, value in values.items()
            if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
        }

    def value(self, name: str, given: Any) -> Any:
        """What was given for a field, in the form that its model takes."""
        kind = without_none(self.fields[name].annotation)
        if get_origin(kind) is Literal:
            return {str(value): value for value in get_args(kind)}[given]
        if get_origin(kind) is dict:
            return pairs(given, self.flag(name))
        if get_origin(kind) is tuple and not _is_repeated(kind):
            return [_typed(item, get_args(kind)[0]) for item in given.split(",")]
        if set(get_args(kind)) == {int, float}:
            number = number_or_text(given)
            if isinstance(number, str):
                message = f"{self.flag(name)} {given}: write an integer (a count) or a fraction such as 0.01."
                raise InputError(message, code="invalid-option")
            return number
        return _typed(given, kind)


def typer_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command that Typer makes of a function: keyword-only parameters are options, the others arguments.

    Each is described in the section Parameters of the docstring, or else in `SHARED`: the placeholder of its value,
    then the help. Its type says how its value is parsed. ``Annotated`` adds what else Typer should know, as a flag
    other than ``--name``; `ModelOptions` there stands for the options of a model.

    Raises `TypeError` for a description of a parameter that the function does not have.
    """
    text, _, section = inspect.cleandoc(function.__doc__ or "").partition("\n\nParameters\n----------\n")
    described = SHARED | {name: (head, " ".join(help.split())) for name, head, help in _DESCRIBED.findall(section)}
    signature = inspect.signature(function, eval_str=True).parameters
    if unknown := described.keys() - SHARED.keys() - signature.keys():
        raise TypeError(f"{function.__name__} has no parameter {', '.join(sorted(unknown))}")
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    models: dict[str, ModelOptions] = {}
    for parameter in signature.values():
        found = [item for item in getattr(parameter.annotation, "__metadata__", ()) if isinstance(item, ModelOptions)]
        if found:
            models[parameter.name] = found[0]
            parameters += found[0].parameters()
        else:
            parameters.append(_parameter(parameter, *described.get(parameter.name, ("", ""))))

    def call(context: typer.Context, **arguments: Any) -> None:
        for parameter, options in models.items():
            arguments[parameter] = options.collect(arguments, context)
        function(**arguments)

    call.__name__, call.__doc__ = function.__name__, text
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameter(parameter: inspect.Parameter, head: str, text: str) -> inspect.Parameter:
    """A parameter of a command with the option or argument that Typer makes of it."""
    annotation = parameter.annotation
    kind, *more = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    info: Any = copy(more[0]) if more else typer.Option() if is_option else typer.Argument()
    flags = [word for word in head.split() if word.startswith("--")]
    if is_option and info.default is ...:  # `Annotated` names no flag
        info.param_decls = flags or [_flag(parameter.name)]
    info.metavar = info.metavar or head.removeprefix(" ".join(flags)).strip() or None
    info.help = info.help or text
    single = without_none(kind)
    info.parser = PARSERS.get(get_args(single)[0] if get_origin(single) is list else single)
    info.autocompletion = COMPLETERS.get(parameter.name)
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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


def without_none(annotation: Any) -> Any:
    """A type apart from None."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 and NoneType in get_args(annotation) else annotation


def _is_model(info: FieldInfo) -> bool:
    """Whether the values of a field are models, or tables of models by name."""
    kind = without_none(info.annotation)
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


# ----------------------------------------------------------------------------------------------------------------------
# Arguments and options that several commands share, and the parsing of their values.


def path_or_uri(text: str | Path) -> Location:
    """A local path or the URI of an object store; the default of an option is a path already.

    Raises `typer.BadParameter` if it is malformed, or not UTF-8.
    """
    try:
        check_name(absolute_path(str(text)))
        return location(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def local_path(text: str | Path) -> Path:
    """A path of this machine. Raises `typer.BadParameter` for a URI."""
    found = path_or_uri(text)
    if not isinstance(found, Path):
        raise typer.BadParameter(f"{text} is a remote URI: only local paths can be used here.")
    return found


PARSERS: dict[Any, Callable[..., Any]] = {Path: local_path, Location: path_or_uri}
"""How values are parsed, by the type of the parameter."""
SHARED = {
    "as_json": ("--json", "Print the result as JSON."),
    "cluster_file": ("--cluster FILE", "TOML file with the keys of a run file's [cluster] table."),
    "file": ("RUN_FILE", "Path or URI of a run file (TOML)."),
    "inputs": ("INPUT", "Files, folders or URIs such as s3://…; may be .gz or .zst."),
    "model": ("MODEL", "Folder of a saved model, or of a run."),
    "run": ("RUN", "Folder of a run or of a search."),
    "store": ("STORE", "Folder of shards, written by ingest."),
}
"""What several commands have: the placeholder, after a flag other than ``--name``, and the help, by parameter."""
_DESCRIBED = re.compile(r"^(\w+)(?: : (.+))?\n((?:    .*\n?)+)", re.MULTILINE)
"""An entry of the section Parameters of a docstring."""
ClusterFile = Annotated[Location | None, typer.Option(rich_help_panel="Cluster")]
Count = Annotated[int | None, typer.Option(min=1)]
Positive = Annotated[int, typer.Option(min=1)]


def cluster_options(file: Location | None, flags: Mapping[str, Any]) -> ClusterOptions:
    """The options of a file, if one is named, overridden by flags: all of them by a scheduler. Raises `InputError`."""
    values = {} if file is None else load_cluster_file(file).model_dump(exclude_unset=True)
    return validate(ClusterOptions, flags if "scheduler" in flags else {**values, **flags})


class _ClusterFlags(ModelOptions):
    """The options of a cluster, with those of a file."""

    def parameters(self) -> list[inspect.Parameter]:
        """That of the file first."""
        name = "cluster_file"
        file = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ClusterFile)
        return [_parameter(file, *SHARED[name]), *super().parameters()]

    def collect(self, arguments: dict[str, Any], context: typer.Context) -> ClusterOptions:
        """Raises `InputError` naming the key."""
        file = arguments.pop("cluster_file")
        return cluster_options(file, super().collect(arguments, context))


ClusterFlags = Annotated[ClusterOptions, _ClusterFlags(ClusterOptions, panel="Cluster")]
READING = ("where", "format", "text_field", "id_field", "header", "encoding", "include", "exclude")
"""Options of the files that a model is used on."""
ReadingFlags = Annotated[dict[str, Any], ModelOptions(TextOptions, only=READING, defaults=False)]
FeatureFlags = Annotated[dict[str, Any], ModelOptions(FeatureOptions)]


def stated(**values: Any) -> dict[str, Any]:
    """The values of the options that are given."""
    return {name: value for name, value in values.items() if value is not None}


def size_in_bytes(text: str, flag: str) -> int:
    """The bytes of a size such as 5GB or 256MiB. Raises `InputError` naming the flag."""
    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise InputError(f"{flag} {text}: {error}.", code="invalid-option") from None


def search_tables(names: list[str], grid: list[str], penalty: str) -> dict[str, dict[str, Any]]:
    """The grid of a search by learner: its own for the penalty, overridden by `--grid`."""
    known_as = {given: check_algorithm_name(name_learner(given)) for given in names}
    names = list(known_as.values())
    from sparseoco.learners.penalties import find_penalty  # loads numba

    learners = {name: find_algorithm(name).under(find_penalty(penalty)) for name in names}
    tables = {name: dict(learner.grid) for name, learner in learners.items()}
    taken = {name: {own.name for own in with_parts(learner).parameters} for name, learner in learners.items()}
    given = pairs(grid, "--grid")
    for key, values in sorted(given.items(), key=lambda item: "." in item[0]):  # those of one learner override
        owner, _, parameter = key.rpartition(".")
        owner = known_as.get(owner, owner)
        if owner and owner not in tables:
            raise InputError(
                f"--grid {key}: {owner} is not a learner of this search: {not_one_of(owner, tables)}.",
                code="unknown-algorithm",
            )
        takers = [owner] if owner else [name for name in names if parameter in taken[name]]
        if not takers:
            known = dict.fromkeys(own.name for name in names for own in learners[name].parameters)
            raise InputError(
                f"--grid {key}: {' and '.join(names)} {'has' if len(names) == 1 else 'have'} no parameter {parameter}: "
                f"{not_one_of(parameter, known)}.",
                code="unknown-parameter",
            )
        if not owner and all(f"{name}.{parameter}" in given for name in takers):
            raise unsupported(
                f"--grid {key}: every learner that has it has values of its own, in --grid NAME.{parameter}."
            )
        for name in takers:
            tables[name][parameter] = _values(values)
    return tables


def _values(text: str) -> Any:
    if text.startswith("relative:"):
        return {"relative": [number_or_text(factor) for factor in text.removeprefix("relative:").split(",")]}
    low, dots, high = text.partition("..")
    if dots:
        return {"low": number_or_text(low), "high": number_or_text(high)}
    return [number_or_text(value) for value in text.split(",")]


# ----------------------------------------------------------------------------------------------------------------------
# The Typer application that the commands are registered with.


START, RUNS, STEPS, MODELS = "Start here", "Runs", "Steps of a run", "Models"
ANALYSIS, INFORMATION = "Learners and papers", "Information"
ORDER = (
    *("demo", "init", "fetch", "generate"),
    *("doctor", "run", "nightly", "status", "report", "clean"),
    *("ingest", "search", "train", "score"),
    *("predict", "evaluate", "explain", "compare", "leaderboard", "export"),
    *("algorithms", "check-learner", "optimum", "regret", "reproduce"),
    *("errors", "schema"),
)
"""The commands in the order of the help; those not listed here follow, sorted by name."""


class _Plain(TyperCommand if TYPE_CHECKING else object):  # type: ignore[misc]
    """A command whose help shows no Python types: arguments are described by their names, flags take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperArgument) or (isinstance(param, TyperOption) and param.is_flag):
                param.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises `InputError` for an option of one value that is given twice.

        Click takes the last of the values, and drops the others in silence.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(order).items():
            if times > 1 and isinstance(param, TyperOption) and not (param.multiple or param.is_eager):
                flags = "/".join((*param.opts, *param.secondary_opts))
                raise InputError(f"{flags} is given {times} times: it takes one value.", code="invalid-option")
        return list(super().parse_args(ctx, args))


class Command(_Plain, TyperCommand):
    """A command; if it reads a run file, its errors name keys of the file instead of flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        check_address_space()
        reads_run_file = any(isinstance(each, TyperArgument) and each.metavar == "RUN_FILE" for each in self.params)
        with names_of_keys() if reads_run_file else nullcontext():
            return super().invoke(ctx)


class Group(_Plain, TyperGroup):
    """Commands, grouped by task."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in `ORDER`."""
        rank = {name: i for i, name in enumerate(ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: (rank.get(name, len(ORDER)), name))


app = typer.Typer(
    name="sparseoco",
    cls=Group,
    help=(
        "Sparse online learning over large text corpora: raw text to shards, search, model and report.\n\n"
        "Start with **sparseoco demo**. For your own data, **sparseoco init INPUT** writes a run file and **sparseoco "
        "run RUN_FILE** runs it; each of its steps is also a command. An interrupted command resumes when it is run "
        "again. **sparseoco COMMAND --help** has an example of each."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(panel: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command under a heading of the help."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, cls=Command, rich_help_panel=panel)(typer_command(function))
        return function

    return register


def _log_file(text: str) -> str:
    return str(local_path(text))


Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)]
LogFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Append log events to a local file, one JSON object per line; - is standard error.",
        parser=_log_file,
        envvar=ENVIRONMENT,
    ),
]


LearnerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--learner",
        metavar="FILE.py:NAME",
        help="Load a learner from a file of yours, which the run or the model that is read was made with. Repeatable.",
    ),
]


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context, version: Version = False, log: LogFile = None, learner: LearnerNames = None
) -> None:
    for given in learner or ():
        check_algorithm_name(name_learner(given))
    if version:
        from sparseoco import __version__

        print(__version__)
        raise typer.Exit
    context.with_resource(log_to(log))
