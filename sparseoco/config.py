"""The run file: one TOML or YAML file that describes a run, every error naming its key.

Paths in it are relative to the file. Tables: `[ingest]`, `[search]`, `[evaluate]`, `[nightly]`, `[cluster]`, `[log]`.
"""

import json
import math
from typing import Annotated, Any, Literal

import numpy as np
from dask.utils import parse_bytes
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from sparseoco.durations import in_seconds
from sparseoco.errors import InputError, SparseocoError
from sparseoco.grid import Grid, expand
from sparseoco.ingest import Policy
from sparseoco.invalid import words
from sparseoco.learners import find_algorithm
from sparseoco.losses import find_loss
from sparseoco.penalties import find_penalty
from sparseoco.plain import read_values
from sparseoco.storage.locations import Location, beside, is_local, joined, location
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.workers.connect import ClusterOptions

Folder = Annotated[Location, PlainValidator(location), PlainSerializer(str, return_type=str)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Configuration(_Table):
    """An algorithm and all its parameters, numbered within a search."""

    number: int
    algorithm: str
    parameters: dict[str, Any]

    @property
    def parameters_json(self) -> str:
        """The parameters as canonical JSON."""
        return json.dumps(self.parameters, sort_keys=True)


class IngestOptions(TextOptions):
    """`[ingest]`: the raw files and how they are read."""

    inputs: tuple[str, ...] = Field(min_length=1, description="Files, folders or fsspec addresses.")
    store: str | None = Field(None, description="Where the shards go; by default `shards` in the run's folder.")
    shard_bytes: int = Field(SHARD_BYTES, ge=1 << 16, description="Bytes of raw text a shard.")
    vocabulary: Policy = Field("frozen", description="Whether files added later add terms, after the last one's id.")

    @property
    def text(self) -> TextOptions:
        """The options that decide the content of shards."""
        return TextOptions(**{name: getattr(self, name) for name in TextOptions.model_fields})


class Range(_Table):
    """Values to draw at random: `{ low = 1e-7, high = 1e-3 }`, evenly in the logarithm unless `scale = "linear"`."""

    low: float
    high: float
    scale: Literal["log", "linear"] = "log"

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError("low and high must be finite, low ≤ high")
        if self.scale == "log" and self.low <= 0:
            raise ValueError('a range in the logarithm starts above 0 (or set scale = "linear")')
        return self

    def at(self, share: float) -> float:
        """The value this share of the way up, 0 ≤ share ≤ 1."""
        if self.scale == "linear":
            return self.low + share * (self.high - self.low)
        return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))


Values = list[float | str] | Range
MAX_CONFIGURATIONS = 100_000


def _listed(values: Any) -> Any:
    """A single value as a list of one; words that are numbers as numbers (YAML takes 1e-3 for a word)."""
    if isinstance(values, _SINGLE):
        values = [values]
    return [_number(value) for value in values] if isinstance(values, list) else values


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are not values of a parameter")
    try:
        return float(value) if isinstance(value, str) and value != "inf" else value
    except ValueError:
        return value


_SINGLE = (int, float, str)


class Halving(_Table):
    """`halving = { factor = 3 }` or `halving = 3`: drop the worst within the first pass, at rungs."""

    factor: float = Field(2.0, gt=1, le=1e6, description="One configuration in so many survives a rung.")
    rungs: tuple[float, ...] | None = Field(
        None,
        min_length=1,
        description="Shares of the first pass; by default as many as lead to one configuration, the last 1/factor.",
    )
    min_rows: int = Field(1000, ge=1, description="No rung before so many rows of the stream.")

    @field_validator("rungs")
    @classmethod
    def _inside(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not all(0 < share < 1 for share in value):
            raise ValueError("rungs are shares of the first pass, between 0 and 1")
        return value


MODELS = ("warm_start", "features_from")
"""Options of a search that are folders of models."""


class SearchOptions(_Table):
    """`[search]`: what is tried, how it is judged."""

    algorithms: dict[str, dict[str, Values]] = Field(
        min_length=1, description="A table an algorithm: parameter = values."
    )
    samples: int | None = Field(
        None,
        ge=1,
        le=MAX_CONFIGURATIONS,
        description="Draw this many configurations an algorithm; else the whole grid.",
    )
    loss: str = "logistic"
    penalty: str = "l1"
    folds: int = Field(
        5,
        ge=1,
        description="Folds of cross-validation; 1 judges by progressive (epoch methods: training) error.",
    )
    epochs: int = Field(1, ge=1)
    select: Literal["error", "one-standard-error"] = Field(
        "error", description="The smallest error, or the sparsest within one standard error of it."
    )
    shuffle: bool = Field(True, description="Stream in an order shuffled by the seed; else in document order.")
    dtype: Literal["float32", "float64"] = "float32"
    seed: int = Field(0, ge=0, lt=2**63)
    warm_start: str | None = Field(
        None, description="Folder of a model whose weights all configurations begin from; none by default."
    )
    features_from: str | None = Field(
        None, description="Folder of a model: learn on the features that it kept alone; by default on all."
    )
    halving: Halving | None = Field(None, description="Successive halving; none by default.")
    patience: int | None = Field(
        None, ge=1, description="Stop a configuration after so many epochs in a row without improvement."
    )
    min_improvement: float = Field(
        0.0, ge=0, lt=1, description="An epoch improves the error if it lowers it by more than this."
    )
    time_limit: float | None = Field(
        None,
        gt=0,
        le=1e8,
        description="Seconds, or a time such as 2h, after which nothing is begun; run again to go on.",
    )
    max_memory: int | None = Field(
        None, gt=0, description="Bytes a worker may use in all, such as 2GB; blocks of columns are sized by it."
    )

    @field_validator("halving", mode="before")
    @classmethod
    def _factor(cls, value: Any) -> Any:
        return {"factor": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("time_limit", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return in_seconds(value)

    @field_validator("max_memory", mode="before")
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse_bytes(value)
        except ValueError:
            raise ValueError("write a size as bytes, or as 500MB, 2GB") from None

    @field_validator("algorithms", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: {key: _listed(values) for key, values in grid.items()} if isinstance(grid, dict) else grid
            for name, grid in value.items()
        }

    @model_validator(mode="after")
    def _meaningful(self) -> "SearchOptions":
        try:
            find_loss(self.loss)
            find_penalty(self.penalty)
            self.configurations()
        except SparseocoError as error:
            raise ValueError(str(error)) from error
        for name in self.algorithms if self.warm_start is not None else ():
            if not find_algorithm(name).online:
                raise ValueError(f"{name} begins with a pass over all data, not from a model: warm_start is not for it")
        if self.min_improvement and self.patience is None:
            raise ValueError("min_improvement says what patience waits for: set patience too")
        return self

    def configurations(self) -> list[Configuration]:
        """Every configuration, numbered from 0: algorithms as listed, then the grid's product or the random draw.

        Raises `InputError` for an algorithm or parameter that does not exist or a value out of its range.
        """
        found = []
        for name, grid in self.algorithms.items():
            algorithm = find_algorithm(name).under(find_penalty(self.penalty))
            found += [(name, chosen) for chosen in expand(algorithm, self._grid(name, grid))]
        return [
            Configuration(number=number, algorithm=name, parameters=parameters)
            for number, (name, parameters) in enumerate(found)
        ]

    def _grid(self, name: str, grid: dict[str, Values]) -> Grid:
        if self.samples is not None:
            return _draw(grid, self.samples, self.seed)
        for key, values in grid.items():
            if isinstance(values, Range):
                raise InputError(f"{name}.{key} is a range: say how many to draw with `samples`, or list the values.")
        size = math.prod(len(values) for values in grid.values() if isinstance(values, list))
        if size > MAX_CONFIGURATIONS:
            raise InputError(
                f"The grid of {name} has {size:,} configurations, more than {MAX_CONFIGURATIONS:,}: draw some of them "
                "with `samples`."
            )
        return grid


class EvaluateOptions(_Table):
    """`[evaluate]`: text the model has not seen, read with the options of `[ingest]` but for what is set here."""

    inputs: tuple[str, ...] | None = Field(None, description="By default those of [ingest].")
    where: dict[str, str] = Field({}, description="Rows to take, by field.")


class NightlyOptions(_Table):
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


class LogOptions(_Table):
    """`[log]`: where what happens is told as JSON lines."""

    file: str | None = Field(None, description="A file of this machine, or - for standard error; by default nowhere.")


class RunFile(_Table):
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
    `read_values` where it cannot be read.
    """
    file = location(path)
    return parse_run_file(read_values(file), source=str(file), folder=file.parent)


def parse_run_file(values: Any, *, source: str, folder: Location) -> RunFile:
    """Check the values of a run file; paths are relative to `folder`. Raises `InputError` naming the key."""
    if isinstance(values, dict) and isinstance(values.get("cluster"), str):
        values = values | {"cluster": load_cluster_file(beside(folder, values["cluster"]))}
    try:
        run = RunFile.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {describe_invalid(error)}") from None
    ingest = run.ingest.model_copy(
        update={
            "inputs": tuple(joined(folder, item) for item in run.ingest.inputs),
            "store": None if run.ingest.store is None else joined(folder, run.ingest.store),
        }
    )
    models = {name: getattr(run.search, name) for name in MODELS}
    search = run.search.model_copy(update={name: model and joined(folder, model) for name, model in models.items()})
    evaluate = run.evaluate
    if evaluate is not None and evaluate.inputs is not None:
        inputs = tuple(joined(folder, item) for item in evaluate.inputs)
        evaluate = evaluate.model_copy(update={"inputs": inputs})
    return run.model_copy(
        update={
            "out": beside(folder, str(run.out)),
            "ingest": ingest,
            "search": search,
            "evaluate": evaluate,
            "log": LogOptions(file=run.log.file and _log_beside(folder, run.log.file)),
        }
    )


def _log_beside(folder: Location, file: str) -> str:
    if file == "-":
        return file
    place = beside(folder, file)
    if not is_local(place):
        raise InputError(f"log.file: {place} is an address; lines are added to a file of this machine alone.")
    return str(place)


def load_cluster_file(path: str | Location) -> ClusterOptions:
    """Read and check a file that holds what stands in `[cluster]`, for all runs of a site, as `load_run_file`."""
    try:
        return ClusterOptions.model_validate(read_values(location(path)))
    except ValidationError as error:
        raise InputError(f"{path}: {describe_invalid(error)}") from None


def describe_invalid(error: ValidationError, under: tuple[str, ...] = ()) -> str:
    """The first things wrong, each with its key, `under` before it; values are not repeated."""
    sentences = []
    for problem in error.errors()[:5]:
        own = (str(part) for part in problem["loc"])
        key = ".".join((*under, *(part for part in own if not part.startswith(("list[", "function-", "Range")))))
        sentence = f"{key}: {words(problem)}" if key else words(problem)
        if sentence not in sentences:
            sentences.append(sentence)
    return "; ".join(sentences)


def _draw(grid: dict[str, Values], samples: int, seed: int) -> list[dict[str, Any]]:
    random = np.random.Generator(np.random.Philox(key=seed))
    return [
        {
            key: values.at(random.random()) if isinstance(values, Range) else values[int(random.random() * len(values))]
            for key, values in grid.items()
        }
        for _ in range(samples)
    ]
