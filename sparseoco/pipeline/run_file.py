"""The run file: a TOML file that describes a run. Every error names its key.

Paths in it are relative to the file. Tables: `[ingest]`, `[features]`, `[search]`, `[evaluate]`, `[report]`, `[score]`,
`[nightly]`, `[cluster]`, `[log]`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, Field, PlainSerializer, PlainValidator, model_validator

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.option_models import OptionModel, validate
from sparseoco.execution.options import ClusterOptions
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.locations import Location, is_local, join_path, location, read_toml, resolve_against, toml_value
from sparseoco.store.weighting import FeatureOptions
from sparseoco.text.options import IngestOptions, TextOptions
from sparseoco.text.sources import check_apart
from sparseoco.training.options import LOSS_NAMES, METRICS, PENALTY_NAMES, SearchOptions

T = TypeVar("T", bound=BaseModel)


def _folder(value: Any) -> Location:
    if isinstance(value, bool | int | float | list | dict | date | time):
        raise ValueError("must be text")
    return location(value)


Folder = Annotated[Location, PlainValidator(_folder, json_schema_input_type=str), PlainSerializer(str, return_type=str)]


class EvaluateOptions(OptionModel):
    """`[evaluate]`: labelled text to evaluate the model on, read with the options of `[ingest]` otherwise."""

    inputs: tuple[str, ...] | None = Field(
        None, description="Files, folders or URIs; by default those of [ingest].", examples=[["test.jsonl.gz"]]
    )
    where: dict[str, str] = Field(
        {}, description="Read only the documents whose fields have these values.", examples=[{"split": "test"}]
    )
    holdout: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="If neither inputs nor where names a test set: the share of the documents, drawn by a digest of "
        "their ids, that is kept out of the store and evaluated on.",
        examples=[0.2],
    )
    slices: tuple[str, ...] = Field(
        (),
        description="Fields or columns by whose values the test metrics are also given; length is the number of "
        "characters, in ranges.",
        examples=[["source", "length"]],
    )

    @model_validator(mode="after")
    def _one_test_set(self) -> "EvaluateOptions":
        if self.names_test_set and self.holdout not in (0, type(self).model_fields["holdout"].default):
            raise ValueError("holdout is of a test set that neither inputs nor where names: leave it out")
        if self.slices and not self.names_test_set and not self.holdout:
            raise ValueError("slices are of a test set: set inputs, where or holdout")
        return self

    @property
    def names_test_set(self) -> bool:
        """Whether it names the documents to evaluate on."""
        return self.inputs is not None or bool(self.where)


class ReportOptions(OptionModel):
    """`[report]`: what the page of the run has beside its figures."""

    snippets: bool = Field(
        False,
        description="Show the beginnings of the documents among the mistakes, and the terms that decided: their texts "
        "are then in report/mistakes.json and on the page.",
    )


class ScoreTable(ScoreOptions):
    """`[score]`: the corpus that the model of the run scores; without it, none."""

    inputs: tuple[str, ...] = Field(
        min_length=1, description="Files, folders or URIs of the documents to score.", examples=[["crawl"]]
    )
    out: str | None = Field(
        None, description="Folder of the scores; by default `scores` in the run folder.", examples=["scores"]
    )
    where: dict[str, str] = Field(
        {}, description="Read only the documents whose fields have these values.", examples=[{"language": "en"}]
    )

    @property
    def options(self) -> ScoreOptions:
        """The options of the scores alone."""
        return ScoreOptions(**{name: getattr(self, name) for name in ScoreOptions.model_fields})


HeldDecision = Literal["accepted", "discarded"]
"""What is decided about an increment of a nightly run that is held."""


class NightlyOptions(OptionModel):
    """`[nightly]`: how models are compared from increment to increment, and how concurrent runs are handled."""

    window: int = Field(
        7,
        ge=1,
        description="Choose the candidate by its progressive error over this many increments, the newest included.",
        examples=[14],
    )
    confidence: float = Field(
        0.95,
        ge=0,
        lt=1,
        description="Promote the candidate only if it is better than the deployed model at this confidence, by the "
        "paired interval of the difference of the metric on the new documents; 0 compares the metrics as they are.",
        examples=[0.9],
    )
    margin: float = Field(
        0.0,
        ge=0,
        description="Promote it also if, at this confidence, it is worse by less than this, in units of the metric.",
        examples=[0.002],
    )
    max_drop: float = Field(
        0.05,
        ge=0,
        description="Hold an increment on which the error of the deployed model is higher than on those of the window "
        "before by more than this and chance; of numbers the RMSE, by this share of it.",
        examples=[0.02],
    )
    max_shift: float = Field(
        0.25,
        ge=0,
        description="Hold an increment if more than this share of its labels would have to change for the shares of "
        "before, or if the share of words that the deployed model does not know is higher by more than this.",
        examples=[0.1],
    )
    max_bad_share: float = Field(
        0.1,
        ge=0,
        description="Hold an increment if more than this share of its rows could not be read.",
        examples=[0.01],
    )
    keep_models: int | None = Field(
        None,
        ge=1,
        description="After a run, keep the models of this many promotions and the deployed one, to which a rollback is "
        "possible; by default all.",
        examples=[30],
    )
    if_running: Literal["wait", "end"] = Field(
        "end", description="If another run is using the same folder: wait for it, or end."
    )


class LogOptions(OptionModel):
    """`[log]`: where log events are written as JSON lines."""

    file: str | None = Field(
        None, description="A local file, or - for standard error; by default nowhere.", examples=["run.jsonl"]
    )


class RunFile(OptionModel):
    """A run: raw text to shards to search to model to report."""

    name: str = Field(
        "run",
        min_length=1,
        description="Name of the run in reports; by default that of the file.",
        examples=["reviews"],
    )
    out: Folder = Field(
        description="Folder of the run; by default next to the run file, under its name.", examples=["runs/reviews"]
    )
    ingest: IngestOptions = Field(description="The raw text, and how it becomes counts.")
    features: FeatureOptions = Field(FeatureOptions(), description="How counts are weighted.")
    search: SearchOptions = Field(
        default_factory=SearchOptions, description="Which configurations are trained, and how one is chosen."
    )
    evaluate: EvaluateOptions = Field(EvaluateOptions(), description="The test set.")
    report: ReportOptions = Field(ReportOptions(), description="What the page shows.")
    score: ScoreTable | None = Field(None, description="The corpus to score; by default none.")
    nightly: NightlyOptions = Field(NightlyOptions(), description="Training on new files only, and promotion.")
    log: LogOptions = Field(LogOptions(), description="The log of events.")
    cluster: ClusterOptions = Field(
        ClusterOptions(), description="Where Dask runs: a table, or the path of a file with its keys."
    )

    @model_validator(mode="after")
    def _one_table(self) -> "RunFile":
        if self.search.features not in (FeatureOptions(), self.features):
            raise ValueError("search.features: how counts are weighted is set in a table of its own, [features]")
        if self.ingest.holdout:
            raise ValueError("ingest.holdout: the share of a test set is set in [evaluate]")
        return self

    @property
    def store(self) -> Location:
        """The folder of shards."""
        return location(self.ingest.store) if self.ingest.store else self.out / "shards"

    @property
    def scores(self) -> Location:
        """The folder of scores."""
        return location(self.score.out) if self.score is not None and self.score.out else self.out / "scores"

    @property
    def text(self) -> TextOptions:
        """The options of the text that is learned: a test set that is not named is withheld from it.

        With inputs of [evaluate] none counts as set: it may be of the format of those.
        """
        share = 0.0 if self.evaluate.names_test_set else self.evaluate.holdout
        text = self.ingest.text.model_copy(update={"holdout": share})
        return text if self.evaluate.inputs is None else TextOptions.model_construct(set(), **dict(text))


def load_run_file(path: str | Location, cluster_file: Location | None = None) -> RunFile:
    """Read and validate a run file.

    Parameters
    ----------
    path : str or path
        A local path or a URI.
    cluster_file : path, optional
        A file with a `[cluster]` table that replaces that of the run file.

    Raises
    ------
    InputError
        Names the file and the key, or the line if it is not TOML.
    """
    file = location(path)
    name = file.name.removesuffix(".toml")
    values = {"name": name, "out": name} | read_toml(file)
    run = parse_run_file(values, source=str(file), folder=file.parent)
    return run if cluster_file is None else run.model_copy(update={"cluster": load_cluster_file(cluster_file)})


def parse_run_file(values: Any, *, source: str, folder: Location) -> RunFile:
    """Validate the values of a run file; paths are relative to `folder`. Raises `InputError` naming the key."""
    if isinstance(values, dict) and isinstance(values.get("cluster"), str):
        values = values | {"cluster": load_cluster_file(resolve_against(folder, values["cluster"]))}
    run = validate(RunFile, values, source, folder=folder)
    score = run.score
    if score is not None:
        named = (item.rpartition("=") for item in score.also)  # a model, or NAME=MODEL
        also = tuple(name + equals + join_path(folder, path) for name, equals, path in named)
        score = _resolved(score, folder, "inputs", "out").model_copy(update={"also": also})
    run = run.model_copy(
        update={
            "out": resolve_against(folder, str(run.out)),
            "ingest": _resolved(run.ingest, folder, "inputs", "store"),
            "search": _resolved(run.search, folder, *run.search.paths).model_copy(update={"features": run.features}),
            "evaluate": _resolved(run.evaluate, folder, "inputs"),
            "score": score,
            "log": LogOptions(file=run.log.file and _log_file(folder, run.log.file)),
        }
    )
    _check_outputs(run)
    return run


def _resolved(table: T, folder: Location, *keys: str) -> T:
    """A table whose paths under these keys, which may be none or several each, are relative to a folder."""
    paths = {key: getattr(table, key) for key in keys if getattr(table, key)}
    for key, value in paths.items():
        several = isinstance(value, tuple)
        paths[key] = tuple(join_path(folder, path) for path in value) if several else join_path(folder, value)
    return table.model_copy(update=paths)


def _check_outputs(run: RunFile) -> None:
    """Raises `InputError` for an output among the inputs."""
    inputs = [(run.ingest.inputs, run.ingest.text), (run.evaluate.inputs or (), run.ingest.text)]
    inputs += [] if run.score is None else [(run.score.inputs, TextOptions())]
    for items, options in inputs:
        for out in (run.out, run.store, run.scores):
            check_apart(out, items, options)
        if run.log.file not in (None, "-"):
            check_apart(location(str(run.log.file)), items, options, is_file=True)


def _log_file(folder: Location, file: str) -> str:
    if file == "-":
        return file
    path = resolve_against(folder, file)
    if not is_local(path):
        raise InputError(f"log.file: {path} is a remote URI; a log is a local file.", code="not-local")
    return str(path)


def run_file_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a run file: what pydantic prints, with what only validators know."""
    schema = RunFile.model_json_schema()
    schema["required"].remove("out")
    cluster = schema["properties"]["cluster"]
    cluster["anyOf"] = [{"type": "string"}, {"$ref": cluster.pop("$ref")}]
    search = schema["$defs"]["SearchOptions"]["properties"]
    search["algorithms"]["additionalProperties"] = {"type": "object"}
    for key, names in (("loss", ("auto", *LOSS_NAMES)), ("penalty", PENALTY_NAMES), ("metric", (*METRICS, None))):
        search[key]["enum"] = list(names)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def load_cluster_file(path: str | Location) -> ClusterOptions:
    """Read and validate a file with the keys of a `[cluster]` table. Raises `InputError` as `load_run_file`."""
    return validate(ClusterOptions, read_toml(location(path)), str(path))


_TABLES: Final[tuple[type[BaseModel], ...]] = (
    *(
        RunFile,
        IngestOptions,
        FeatureOptions,
        SearchOptions,
        EvaluateOptions,
        ReportOptions,
        ScoreTable,
        NightlyOptions,
    ),
    ClusterOptions,
)
_KEYS: Final = frozenset(name for table in _TABLES for name in table.model_fields)
_OTHER_NAMES: Final = {
    "algorithm": "algorithms",
    "class": "classes",
    "column": "columns",
    "grid": "[search.algorithms]",
}
_FLAG: Final = re.compile(r"--(no-)?([a-z]+(?:-[a-z]+)*)(?: (?!it\b)([\w-]+)(?=[.,)]|$| or ))?")
"""A flag, and the word after it if it ends a phrase: its value."""


def name_keys(message: str) -> str:
    """A message with the keys of a run file in place of flags of the command line.

    >>> name_keys("set --encoding cp1252 or --no-header. To leave rows out, set max_bad_rows (--max-bad-rows).")
    'set encoding = "cp1252" or header = false. To leave rows out, set max_bad_rows.'
    """

    def repeated(match: re.Match[str]) -> str:
        key = match[1].replace("-", "_")
        return "" if re.search(rf"\b{key}\b", message[: match.start()]) else match[0]

    return _FLAG.sub(_key, re.sub(r" \(--([a-z-]+)\)", repeated, message))


def _key(flag: re.Match[str]) -> str:
    """The key of a flag, with its value if there is one."""
    negated, name, value = flag.groups()
    key = _OTHER_NAMES.get(name, name.replace("-", "_"))
    if key not in {*_KEYS, *_OTHER_NAMES.values()}:
        return flag[0]
    if negated:
        return f"{key} = false" + (f" {value}" if value else "")
    return f"{key} = {toml_value(int(value) if value.isdigit() else value)}" if value else key


@contextmanager
def keys_in_errors() -> Iterator[None]:
    """A context for work that a run file describes: the messages of errors name its keys, see `name_keys`."""
    try:
        yield
    except SparseocoError as error:
        error.args = (name_keys(str(error)), *error.args[1:])
        raise
