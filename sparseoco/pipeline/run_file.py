"""The run file: one TOML file that describes a run, every error naming its key.

Paths in it are relative to the file. Tables: `[ingest]`, `[search]`, `[evaluate]`, `[nightly]`, `[cluster]`, `[log]`.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import OptionModel, describe_invalid
from sparseoco.execution.options import ClusterOptions
from sparseoco.storage.locations import Location, is_local, join_path, location, resolve_against
from sparseoco.storage.toml_files import read_toml
from sparseoco.text.options import IngestOptions
from sparseoco.training.options import MODELS, SearchOptions

Folder = Annotated[Location, PlainValidator(location), PlainSerializer(str, return_type=str)]


class EvaluateOptions(OptionModel):
    """`[evaluate]`: text the model has not seen, read with the options of `[ingest]` but for what is set here."""

    inputs: tuple[str, ...] | None = Field(None, description="By default those of [ingest].")
    where: dict[str, str] = Field({}, description="Rows to take, by field.")


class NightlyOptions(OptionModel):
    """`[nightly]`: how the nights of a store that grows are judged, and what a run does that meets another."""

    window: int = Field(
        7, ge=1, description="The candidate is chosen by the progressive error of so many nights, the last among them."
    )
    margin: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="The candidate is promoted where its error on the new documents is above that of the model that "
        "serves by no more than this.",
    )
    if_running: Literal["wait", "end"] = Field(
        "end", description="What a run does while another one works in the same folder."
    )


class LogOptions(OptionModel):
    """`[log]`: where what happens is told as JSON lines."""

    file: str | None = Field(None, description="A file of this machine, or - for standard error; by default nowhere.")


class RunFile(OptionModel):
    """A run: raw text to shards to search to model to report."""

    name: str = Field("run", min_length=1)
    out: Folder = Field(description="The run's folder.")
    ingest: IngestOptions
    search: SearchOptions
    evaluate: EvaluateOptions | None = None
    nightly: NightlyOptions = NightlyOptions()
    log: LogOptions = LogOptions()
    cluster: ClusterOptions = Field(ClusterOptions(), description="A table, or the path of a file that holds it.")

    @property
    def store(self) -> Location:
        """The folder of shards."""
        return location(self.ingest.store) if self.ingest.store else self.out / "shards"


def load_run_file(path: str | Location) -> RunFile:
    """Read and check a run file (.toml, .yaml, .yml), on this machine or at an address.

    Raises `InputError` naming the file and the key, or the line where it is not TOML or YAML at all, and as
    `read_toml` where it cannot be read.
    """
    file = location(path)
    return parse_run_file(read_toml(file), source=str(file), folder=file.parent)


def parse_run_file(values: Any, *, source: str, folder: Location) -> RunFile:
    """Check the values of a run file; paths are relative to `folder`. Raises `InputError` naming the key."""
    if isinstance(values, dict) and isinstance(values.get("cluster"), str):
        values = values | {"cluster": load_cluster_file(resolve_against(folder, values["cluster"]))}
    try:
        run = RunFile.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {describe_invalid(error)}") from None
    ingest = run.ingest.model_copy(
        update={
            "inputs": tuple(join_path(folder, item) for item in run.ingest.inputs),
            "store": None if run.ingest.store is None else join_path(folder, run.ingest.store),
        }
    )
    models = {name: getattr(run.search, name) for name in MODELS}
    search = run.search.model_copy(update={name: model and join_path(folder, model) for name, model in models.items()})
    evaluate = run.evaluate
    if evaluate is not None and evaluate.inputs is not None:
        inputs = tuple(join_path(folder, item) for item in evaluate.inputs)
        evaluate = evaluate.model_copy(update={"inputs": inputs})
    return run.model_copy(
        update={
            "out": resolve_against(folder, str(run.out)),
            "ingest": ingest,
            "search": search,
            "evaluate": evaluate,
            "log": LogOptions(file=run.log.file and _log_beside(folder, run.log.file)),
        }
    )


def _log_beside(folder: Location, file: str) -> str:
    if file == "-":
        return file
    place = resolve_against(folder, file)
    if not is_local(place):
        raise InputError(f"log.file: {place} is an address; lines are added to a file of this machine alone.")
    return str(place)


def load_cluster_file(path: str | Location) -> ClusterOptions:
    """Read and check a file that holds what stands in `[cluster]`, for all runs of a site, as `load_run_file`."""
    try:
        return ClusterOptions.model_validate(read_toml(location(path)))
    except ValidationError as error:
        raise InputError(f"{path}: {describe_invalid(error)}") from None
