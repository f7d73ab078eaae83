"""What may be written on the command line: the options that several commands share, and how values are read."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from dask.utils import parse_bytes
from pydantic import BaseModel, ValidationError

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import describe_invalid
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES, find_penalty
from sparseoco.pipeline.run_file import load_cluster_file
from sparseoco.storage.locations import Location, location
from sparseoco.training.mixture import default_grid

T = TypeVar("T", bound=BaseModel)


def place(text: str) -> Location:
    """A folder or file, local or at an address. Raises `typer.BadParameter` for an address that is none."""
    try:
        return location(text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def local_place(text: str) -> Path:
    """A folder or file of this machine. Raises `typer.BadParameter` for an address."""
    found = place(text)
    if not isinstance(found, Path):
        raise typer.BadParameter(f"{text} is an address; this command takes folders and files of this machine alone.")
    return found


class LabelList(StrEnum):
    ERROR, FIRST, SKIP, JOIN = "error", "first", "skip", "join"


class Labels(StrEnum):
    CLASSES, NUMBERS = "classes", "numbers"


class Duplicates(StrEnum):
    ERROR, FIRST, ALL = "error", "first", "all"


class Encoding(StrEnum):
    ERROR, REPLACE, SKIP = "error", "replace", "skip"


class VocabularyPolicy(StrEnum):
    FROZEN, EXTEND = "frozen", "extend"


class Select(StrEnum):
    ERROR, ONE_STANDARD_ERROR = "error", "one-standard-error"


class Dtype(StrEnum):
    FLOAT32, FLOAT64 = "float32", "float64"


File = Annotated[
    Location,
    typer.Argument(parser=place, metavar="RUN_FILE", help="A run file (.toml or .yaml), or its address."),
]
Cluster = Annotated[
    Location | None,
    typer.Option(
        "--cluster",
        parser=place,
        metavar="FILE",
        help="Where Dask is: a file that holds what stands in [cluster] of a run file.",
        rich_help_panel="Cluster",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="A Dask scheduler that runs: tcp://HOST:PORT or tls://HOST:PORT.",
        rich_help_panel="Cluster",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Start this many worker processes; by default none, threads of this process work.",
        rich_help_panel="Cluster",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Threads of each worker, by default 1; without workers, of this process, by default one a processor.",
        rich_help_panel="Cluster",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory of each worker, such as 4GB; by default its share of this machine's.",
        rich_help_panel="Cluster",
    ),
]
Loss = Annotated[
    str,
    typer.Option(metavar="NAME", help=", ".join(name for name, loss in LOSSES.items() if not loss.regression) + "."),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Of the shuffle, of folds and of all that is drawn.")]
Epochs = Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the data.")]
Store = Annotated[Location, typer.Argument(parser=place, metavar="STORE", help="Folder of shards, as ingest makes it.")]
Run = Annotated[Location, typer.Argument(parser=place, metavar="RUN", help="Folder of a run or a search.")]
SavedModel = Annotated[Location, typer.Argument(parser=place, metavar="MODEL", help="Folder of a model.")]
Penalty = Annotated[str, typer.Option(metavar="NAME", help=", ".join(PENALTIES) + ".")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="FIELD=VALUE", help="Take only rows whose field has this value; repeatable, all must hold."
    ),
]
WarmStart = Annotated[
    str | None,
    typer.Option(
        "--warm-start",
        metavar="MODEL",
        help="Begin from a saved model: where its learner stood, or, another learner or vocabulary, from its weights.",
    ),
]
FeaturesFrom = Annotated[
    str | None,
    typer.Option(
        "--features-from",
        metavar="MODEL",
        help="Learn on the features alone that a saved model kept (has weights for); all others get weight 0.",
    ),
]
Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT", help="Files, folders or addresses such as s3://…; .gz and .zst too.")
]


def size_in_bytes(value: str, option: str) -> int:
    """A size as people write it (5GB, 256MiB) in bytes; an error is an `InputError` that names the option."""
    try:
        return int(parse_bytes(value))
    except ValueError:
        raise InputError(f"{option} {value}: not a size such as 500MB or 5GB.") from None


def cluster_options(
    file: Location | None, scheduler: str | None, workers: int | None, threads: int | None, memory: str | None
) -> ClusterOptions:
    """The `[cluster]` table as options: a file of it, and what is said beside it.

    Raises `InputError` naming the key.
    """
    said = {"scheduler": scheduler, "workers": workers, "threads": threads, "memory": memory}
    given = {key: value for key, value in said.items() if value is not None}
    if scheduler is not None:
        given["kind"] = "address"
    found = {} if file is None else load_cluster_file(file).model_dump(exclude_unset=True)
    return checked(ClusterOptions, found | given)


def checked(kind: type[T], values: dict[str, Any]) -> T:
    """A model of these values; an error is an `InputError` that names the key."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(describe_invalid(error)) from None


def pairs(items: list[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE items as a mapping."""
    pairs = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"{option} {item}: write it as NAME=VALUE.")
        pairs[key] = value
    return pairs


def number_or_word(text: str) -> float | str:
    """A number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def count_or_share(text: str, option: str) -> int | float:
    """A whole number of documents, or a share of them as a float."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} {text}: write a whole number of documents or a share such as 0.01.") from None


def mixture_tables(grid: list[str], penalty: str) -> dict[str, dict[str, Any]]:
    """The tables of a mixture: its default grid, replaced by what `--grid` says; of the learners that it names alone,
    where it names any.

    Raises `InputError` where there is none.
    """
    named = dict.fromkeys(owner for key in pairs(grid, "--grid") if (owner := key.rpartition(".")[0]))
    defaults = default_grid(penalty)
    if not named and not defaults:
        raise InputError(
            f"Nothing that auto mixes takes penalty={penalty!r}: name learners that do with --grid NAME.PARAMETER=V,V."
        )
    for name in named:
        find_algorithm(name, online=True)
    return search_tables(list(named or defaults), grid, penalty, defaults)


def search_tables(
    names: list[str], grid: list[str], penalty: str, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """The tables of a search: `defaults` or the learners' own with this penalty, replaced by what `--grid` says."""
    learners = {name: find_algorithm(name).under(find_penalty(penalty)) for name in names}
    tables = {name: dict((defaults or {}).get(name, learner.grid)) for name, learner in learners.items()}
    for key, values in pairs(grid, "--grid").items():
        owner, _, parameter = key.rpartition(".")
        if owner and owner not in tables:
            raise InputError(f"--grid {key}: {owner} is not among the learners tried ({', '.join(tables)}).")
        takers = [owner] if owner else [n for n in names if parameter in {p.name for p in learners[n].parameters}]
        if not takers:
            raise InputError(f"--grid {key}: none of {', '.join(names)} has a parameter {parameter}.")
        for name in takers:
            tables[name][parameter] = _range_or_list(values)
    return tables


def halving_table(factor: float | None, min_rows: int | None) -> dict[str, Any] | None:
    """The table `halving` of a search, none without a factor."""
    if factor is None:
        if min_rows is not None:
            raise InputError("--min-rows says where successive halving begins: set --halving too.")
        return None
    return {"factor": factor} | ({} if min_rows is None else {"min_rows": min_rows})


def _range_or_list(text: str) -> Any:
    low, dots, high = text.partition("..")
    if dots:
        return {"low": number_or_word(low), "high": number_or_word(high)}
    return [number_or_word(value) for value in text.split(",")]
