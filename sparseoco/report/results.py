"""The files of a run folder, read and checked once for everything that reports on them."""

from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, ValidationError

from sparseoco.core.errors import InputError, StorageError
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.storage.commit import digest_file, read_json
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import CURVES, FEATURE_SURVIVAL, METRICS, TIMINGS, WEIGHTS
from sparseoco.storage.parquet import read_parquet_file


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


_R = TypeVar("_R", bound=_Record)


class ClassRecord(_Record):
    """A class and its number of documents."""

    name: str
    rows: int


class SelectionRecord(_Record):
    """The number of features selected by a model, if training was restricted to them."""

    features: int


class CorpusRecord(_Record):
    """The training corpus: digest of the shards' manifest, sizes, classes in index order."""

    store: str
    rows: int
    features: int
    classes: tuple[ClassRecord, ...]
    features_from: SelectionRecord | None = None


class RunRecord(_Record):
    """RUN/run.json: the resolved run file."""

    name: str
    seed: int
    version: str
    corpus: CorpusRecord
    search: dict[str, Any] = {}


class BestRecord(_Record):
    """RUN/search/best.json: the configuration that was chosen, after how many epochs, and by which rule."""

    configuration: int
    epochs: int
    rule: Literal["best", "one-standard-error", "at-most"]
    metric: str = "error"
    notes: tuple[str, ...] = ()
    """What to know about the choice: nothing beats the largest class, a best value at the edge of its grid."""
    beats_baseline: bool = True


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

    rows: int
    error: float | None = None
    majority_error: float | None = None
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()


class Results(NamedTuple):
    """The files of a run; those that a run may lack are None."""

    run: RunRecord
    best: BestRecord | None
    model: dict[str, Any] | None
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
        text = (self.run.corpus.model_extra or {}).get("text") or {}
        return bool(text.get("labels") == "multi")

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
    return _record(path, EvaluationRecord) if path.is_file() else None


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
        run=_record(run / "run.json", RunRecord),
        best=_record(best, BestRecord) if best.is_file() else None,
        model=read_json(model) if model.is_file() else None,
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


def _record(path: Location, kind: type[_R]) -> _R:
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise StorageError(f"{path}: {key}: {first['msg']}.", code="corrupt-file") from error
