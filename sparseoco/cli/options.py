"""Arguments and options that several commands share, and the parsing of their values."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparseoco.cli.model_options import ModelOptions, pairs
from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.core.quantities import number_or_text, parse_bytes
from sparseoco.core.suggestions import not_one_of
from sparseoco.execution.options import ClusterOptions
from sparseoco.learners import check_algorithm_name, find_algorithm
from sparseoco.pipeline.run_file import RunFile, load_cluster_file, load_run_file
from sparseoco.storage.locations import Location, check_name, is_remote_uri, location
from sparseoco.store.weighting import FeatureOptions
from sparseoco.text.options import TextOptions
from sparseoco.training.options.configuration import PARTS

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm


def path_or_uri(text: str | Path) -> Location:
    """A local path or the URI of an object store; the default of an option is a path already.

    Raises `typer.BadParameter` if it is malformed, or not UTF-8.
    """
    try:
        if not is_remote_uri(str(text)):
            check_name(os.path.abspath(text))
        return location(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def local_path(text: str | Path) -> Path:
    """A path of this machine. Raises `typer.BadParameter` for a URI."""
    found = path_or_uri(text)
    if not isinstance(found, Path):
        raise typer.BadParameter(f"{text} is a remote URI: only local paths can be used here.")
    return found


RunFileArgument = Annotated[
    Location, typer.Argument(parser=path_or_uri, metavar="RUN_FILE", help="Path or URI of a run file (TOML).")
]
StoreArgument = Annotated[
    Location, typer.Argument(parser=path_or_uri, metavar="STORE", help="Folder of shards, written by ingest.")
]
RunArgument = Annotated[
    Location, typer.Argument(parser=path_or_uri, metavar="RUN", help="Folder of a run or of a search.")
]
ModelArgument = Annotated[
    Location, typer.Argument(parser=path_or_uri, metavar="MODEL", help="Folder of a saved model, or of a run.")
]
InputsArgument = Annotated[
    list[str], typer.Argument(metavar="INPUT", help="Files, folders or URIs such as s3://…; may be .gz or .zst.")
]
ClusterFile = Annotated[
    Location | None,
    typer.Option(
        "--cluster",
        parser=path_or_uri,
        metavar="FILE",
        help="TOML file with the keys of a run file's [cluster] table.",
        rich_help_panel="Cluster",
    ),
]
ClusterFlags = Annotated[dict[str, Any], ModelOptions(ClusterOptions, without=("kind", "wait"), panel="Cluster")]
READING = ("where", "format", "text_field", "id_field", "header", "encoding", "quoting", "include", "exclude")
"""Options of the files that a model is used on."""
ReadingFlags = Annotated[dict[str, Any], ModelOptions(TextOptions, only=READING, defaults=False)]
FeatureFlags = Annotated[dict[str, Any], ModelOptions(FeatureOptions)]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def size_in_bytes(text: str, flag: str) -> int:
    """The bytes of a size such as 5GB or 256MiB. Raises `InputError` naming the flag."""
    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise InputError(f"{flag} {text}: {error}.", code="invalid-option") from None


def cluster_options(file: Location | None, given: Mapping[str, Any]) -> ClusterOptions:
    """The options of a cluster file, if any, overridden by those given on the command line: all by a scheduler.

    Raises `InputError` naming the key.
    """
    values = {} if file is None else load_cluster_file(file).model_dump(exclude_unset=True)
    return validate(ClusterOptions, dict(given) if "scheduler" in given else values | dict(given))


def run_of_file(file: Location, cluster_file: Location | None) -> RunFile:
    """A run file, with the `[cluster]` table of another file if one is given."""
    run = load_run_file(file)
    return run if cluster_file is None else run.model_copy(update={"cluster": load_cluster_file(cluster_file)})


def parameter_values(items: list[str] | None) -> dict[str, int | float | str]:
    """The parameters of a learner given by `--set NAME=VALUE`."""
    return {name: number_or_text(value) for name, value in pairs(items, "--set").items()}


def mixture_tables(grid: list[str], penalty: str) -> dict[str, dict[str, Any]]:
    """The grid of a mixture by learner: the default one, overridden by `--grid`; only the learners named there, if any.

    Raises `InputError` if no learner is left.
    """
    named = dict.fromkeys(owner for key in pairs(grid, "--grid") if (owner := key.rpartition(".")[0]))
    for name in named:
        check_algorithm_name(name, online=True)
    from sparseoco.training.mixture import default_grid

    defaults = default_grid(penalty)
    if not named and not defaults:
        raise InputError(
            f"No learner of the default mixture takes penalty={penalty!r}: name some with --grid NAME.PARAMETER=V,V.",
            code="unsupported-combination",
        )
    return search_tables(list(named or defaults), grid, penalty, defaults)


def _takes(learner: "Algorithm", parameter: str) -> bool:
    """Whether a learner has a parameter, or is one of a stream that can be learned in parts."""
    divisible = learner.online and not learner.touches_all_features
    return parameter in {own.name for own in learner.parameters} or (parameter == PARTS and divisible)


def search_tables(
    names: list[str], grid: list[str], penalty: str, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """The grid of a search by learner: `defaults` or the learners' own for the penalty, overridden by `--grid`."""
    for name in names:
        check_algorithm_name(name)
    from sparseoco.learners.penalties import find_penalty  # loads numba

    learners = {name: find_algorithm(name).under(find_penalty(penalty)) for name in names}
    tables = {name: dict((defaults or {}).get(name, learner.grid)) for name, learner in learners.items()}
    given = pairs(grid, "--grid")
    for key, values in sorted(given.items(), key=lambda item: "." in item[0]):  # those of one learner override
        owner, _, parameter = key.rpartition(".")
        if owner and owner not in tables:
            raise InputError(
                f"--grid {key}: {owner} is not a learner of this search: {not_one_of(owner, tables)}.",
                code="unknown-algorithm",
            )
        takers = [owner] if owner else [name for name in names if _takes(learners[name], parameter)]
        if not takers:
            known = dict.fromkeys(own.name for name in names for own in learners[name].parameters)
            raise InputError(
                f"--grid {key}: {' and '.join(names)} {'has' if len(names) == 1 else 'have'} no parameter {parameter}: "
                f"{not_one_of(parameter, known)}.",
                code="unknown-parameter",
            )
        if not owner and all(f"{name}.{parameter}" in given for name in takers):
            raise InputError(
                f"--grid {key}: every learner that has it has values of its own, in --grid NAME.{parameter}.",
                code="unsupported-combination",
            )
        for name in takers:
            tables[name][parameter] = _range_or_list(values)
    return tables


def _range_or_list(text: str) -> Any:
    if text.startswith("relative:"):
        return {"relative": [number_or_text(factor) for factor in text.removeprefix("relative:").split(",")]}
    low, dots, high = text.partition("..")
    if dots:
        return {"low": number_or_text(low), "high": number_or_text(high)}
    return [number_or_text(value) for value in text.split(",")]
