"""The files of a run folder, read and checked once for everything that reports on them."""

from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError, StorageError
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import CURVES, FEATURE_SURVIVAL, METRICS, TIMINGS, WEIGHTS
from sparseoco.storage.parquet import read_parquet_file
from sparseoco.storage.validated import Count, read_validated, validated, with_other_keys
from sparseoco.store.weighting import Weighting
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ClassRecord(_Record):
    """A class and its number of documents."""

    name: str
    rows: Count


class SelectionRecord(_Record):
    """The number of features selected by a model, if training was restricted to them, and whether that model was
    trained on documents of the corpus."""

    features: Count
    model_sha256: str
    same_documents: bool = False


class CorpusRecord(_Record):
    """The training corpus: digest of the shards' manifest, sizes, classes in index order."""

    store: str
    rows: Count
    features: Count
    classes: tuple[ClassRecord, ...]
    folder: str | None = None
    text: dict[str, Any] = {}
    features_from: SelectionRecord | None = None


class RunRecord(_Record):
    """RUN/run.json: the resolved run file."""

    name: str
    seed: Count
    version: str
    corpus: CorpusRecord
    search: dict[str, Any] = {}

    def options(self, path: Location) -> SearchOptions:
        """The options of the search; `path` is the file. Raises `DamagedError` if they are of another version."""
        return validated(path, self.search, SearchOptions)


class BestRecord(_Record):
    """RUN/search/best.json: the configuration that was chosen, after how many epochs, and by which rule."""

    configuration: Count
    epochs: Annotated[int, Field(ge=1, lt=1 << 31)]
    unfinished: Count = 0
    rule: Literal["best", "one-standard-error", "at-most"]
    metric: str = "error"
    notes: tuple[str, ...] = ()
    """What to know about the choice: nothing beats the largest class, a best value at the edge of its grid."""
    beats_baseline: bool = True


class ChoiceRecord(BestRecord):
    """RUN/search/best.json, with all that training and the summary of a run need."""

    algorithm: str
    parameters: dict[str, Any]
    weighting: Weighting
    value: float
    standard_error: float

    @property
    def chosen(self) -> Configuration:
        """The configuration."""
        return Configuration(
            number=self.configuration,
            algorithm=self.algorithm,
            parameters=self.parameters,
            weighting=self.weighting,
        )


class ClassScore(_Record):
    """Precision, recall and F1 of one class on the test set."""

    name: str
    precision: float
    recall: float
    f1: float


class EvaluationRecord(_Record):
    """RUN/evaluation.json: the model on the test set; `confusion` is [truth][predicted].

    Numbers have no error, and label sets no confusion.
    """

    rows: Count
    inputs: tuple[str, ...] = ()
    where: dict[str, str] = {}
    bad_rows: Count | None = None
    multiline_rows: Count | None = None
    missing: dict[str, Count] = {}
    error: float | None = None
    majority_error: float | None = None
    log_loss: float | None = None
    roc_auc: float | None = None
    average_precision: float | None = None
    f1: float | None = None
    f1_macro: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    never_predicted: tuple[str, ...] = ()
    trained_on: tuple[str, ...] = ()
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[Count, ...], ...] = ()

    @model_validator(mode="after")
    def _square(self) -> Self:
        if self.confusion and {len(self.classes)} != {len(self.confusion), *map(len, self.confusion)}:
            raise ValueError("confusion must have a row and a column for each class")
        return self


@with_other_keys
class ProvenanceRecord(TypedDict):
    """The number of the raw files of a model, and the digest of their digests."""

    sources: Count
    sources_sha256: NotRequired[str]


@with_other_keys
class ModelRecord(TypedDict):
    """RUN/model/model.json, as far as reports read it."""

    provenance: NotRequired[ProvenanceRecord]
    loss: NotRequired[str]
    weighting: NotRequired[Weighting]
    calibration: NotRequired[dict[str, Any] | None]
    threshold: NotRequired[dict[str, Any] | None]
    never_predicted: NotRequired[list[Count]]


class Results(NamedTuple):
    """The files of a run; those that a run may lack are None."""

    run: RunRecord
    best: BestRecord | None
    model: ModelRecord | None
    evaluation: EvaluationRecord | None
    metrics: pa.Table
    curves: pa.Table
    feature_survival: pa.Table
    timings: pa.Table
    regret: pa.Table
    slopes: pa.Table
    weights: pa.Table | None
    digests: dict[str, str]  # of the files that are equal between equal runs

    @property
    def metric(self) -> str:
        """The metric by which configurations are ranked."""
        return self.best.metric if self.best else str(self.run.search.get("metric") or "error")

    @property
    def several(self) -> bool:
        """Whether documents have any number of labels."""
        return bool(self.run.corpus.text.get("labels") == "multi")

    @property
    def simplest(self) -> str:
        """What the simplest model predicts, whose error is the baseline."""
        return "no label" if self.several else "the largest class"

    @property
    def numbers(self) -> bool:
        """Whether labels are numbers, which have no error."""
        return not self.run.corpus.classes

    @property
    def held_out(self) -> bool:
        """Whether errors are of held-out folds; otherwise they are progressive."""
        return (pc.max(self.metrics["held_out_rows"]).as_py() or 0) > 0


def read_evaluation(path: Location) -> EvaluationRecord | None:
    """An evaluation.json, if it is there. Raises `StorageError` if it cannot be trusted."""
    return read_validated(path, EvaluationRecord) if path.is_file() else None


def check_results(run: Location) -> None:
    """Raises `InputError` for a folder that is not a run."""
    if not (run / "run.json").is_file() or not (run / "search" / "metrics.parquet").is_file():
        raise InputError(
            f"{run} holds no results to report on: run.json or search/metrics.parquet is missing.", code="no-results"
        )


def read_results(run: Location) -> Results:
    """Read RUN.

    Raises `InputError` for a folder that is not a run, `StorageError` for a file that cannot be read or trusted.
    """
    check_results(run)
    best, model, evaluation = (run / name for name in ("search/best.json", "model/model.json", "evaluation.json"))
    weights = run / "model" / "weights.parquet"
    named = (
        *(f"search/{name}.parquet" for name in ("metrics", "curves", "feature_survival")),
        *(f"regret/{name}.parquet" for name in ("regret", "slopes")),
        "model/weights.parquet",
    )
    return Results(
        run=read_validated(run / "run.json", RunRecord),
        best=read_validated(best, BestRecord) if best.is_file() else None,
        model=read_validated(model, ModelRecord) if model.is_file() else None,
        evaluation=read_evaluation(evaluation),
        metrics=_table(run / "search" / "metrics.parquet", METRICS),
        curves=_optional(run / "search" / "curves.parquet", CURVES),
        feature_survival=_optional(run / "search" / "feature_survival.parquet", FEATURE_SURVIVAL),
        timings=_optional(run / "search" / "timings.parquet", TIMINGS),
        regret=_optional(run / "regret" / "regret.parquet", REGRET),
        slopes=_optional(run / "regret" / "slopes.parquet", SLOPES),
        weights=_table(weights, WEIGHTS) if weights.is_file() else None,
        digests={name: digest_file(run / name) for name in named if (run / name).is_file()},
    )


def _optional(path: Location, schema: pa.Schema) -> pa.Table:
    return _table(path, schema) if path.is_file() else schema.empty_table()


def _table(path: Location, schema: pa.Schema) -> pa.Table:
    try:
        return read_parquet_file(path).select(schema.names).cast(schema)
    except KeyError as error:
        raise StorageError(f"{path} is not what this version writes: {error.args[0]}", code="format-version") from error
