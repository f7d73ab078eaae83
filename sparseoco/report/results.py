"""Results of a run, and the leaderboard."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.formatting import metric_with_error, parameters
from sparseoco.learners import ALGORITHMS, check_outside
from sparseoco.offline.regret.bounds import REGRET, SLOPES
from sparseoco.search.selection import Candidate, candidates, standard_error
from sparseoco.storage.commit import Count, read_validated, validated, with_other_keys
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_parquet_file, write_result_table
from sparseoco.store.manifest import ClassEntry
from sparseoco.store.weighting import Weighting
from sparseoco.training.decisions import Calibration, Thresholds
from sparseoco.training.options import METRICS, Configuration, SearchOptions
from sparseoco.training.search_tables import CURVES, FEATURE_SURVIVAL, METRICS_SCHEMA, TIMINGS, WEIGHTS

# ----------------------------------------------------------------------------------------------------------------------
# The files of a run folder, read and checked once for everything that reports on them.


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


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
    classes: tuple[ClassEntry, ...]
    folder: str | None = None
    text: dict[str, Any] = {}
    features_from: SelectionRecord | None = None


class MistakeText(_Record):
    """The beginning of a document among the mistakes, and what its strongest terms add to the margin of the answer."""

    documents: Literal["held-out", "test"]
    id: str
    of: str
    """The class that the terms are of; empty for numbers."""
    text: str
    terms: tuple[tuple[str, float], ...]


class MistakeTexts(_Record):
    """RUN/report/mistakes.json: the texts of mistakes, if the run file asked for them."""

    mistakes: tuple[MistakeText, ...] = ()


class RunRecord(_Record):
    """RUN/run.json: the resolved run file."""

    name: str
    seed: Count
    version: str
    corpus: CorpusRecord
    search: dict[str, Any] = {}

    def options(self, path: Location) -> SearchOptions:
        """The options of the search; `path` is the file. Raises `DamagedError` if they are of another version.

        Raises `InputError` for a learner in a file that the user did not name.
        """
        for name in self.search.get("algorithms", ()):
            check_outside(name)
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


class ClassScore(_Record):
    """Precision, recall and F1 of one class on the test set."""

    name: str
    precision: float
    recall: float
    f1: float


class SliceScore(_Record):
    """Metrics of the test documents with a value of a field; None are those without one."""

    field: str
    value: str | None
    rows: Count
    intervals: dict[str, tuple[float, float]] = {}


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
    intervals: dict[str, tuple[float, float]] = {}
    never_predicted: tuple[str, ...] = ()
    trained_on: tuple[str, ...] = ()
    classes: tuple[ClassScore, ...] = ()
    slices: tuple[SliceScore, ...] = ()
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
    calibration: NotRequired[Calibration | None]
    threshold: NotRequired[Thresholds | None]
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


MISTAKE_TEXTS: Final = "report/mistakes.json"


def read_mistake_texts(run: Location) -> dict[tuple[str, str, str], MistakeText]:
    """The texts of mistakes by set, id and class, if there are any. Raises `StorageError` for a damaged file."""
    path = run / MISTAKE_TEXTS
    found = read_validated(path, MistakeTexts).mistakes if path.exists() else ()
    return {(each.documents, each.id, each.of): each for each in found}


def read_run_record(run: Location) -> RunRecord:
    """The run.json of a run. Raises `StorageError` if it cannot be read or trusted."""
    return read_validated(run / "run.json", RunRecord)


def read_choice(run: Location) -> ChoiceRecord:
    """What the search of a run has chosen. Raises `StorageError` if the file cannot be read or trusted."""
    return read_validated(run / "search" / "best.json", ChoiceRecord)


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
    return Results(
        run=read_run_record(run),
        best=read_validated(best, BestRecord) if best.is_file() else None,
        model=read_validated(model, ModelRecord) if model.is_file() else None,
        evaluation=read_evaluation(evaluation),
        metrics=_table(run / "search" / "metrics.parquet", METRICS_SCHEMA),
        curves=_optional(run / "search" / "curves.parquet", CURVES),
        feature_survival=_optional(run / "search" / "feature_survival.parquet", FEATURE_SURVIVAL),
        timings=_optional(run / "search" / "timings.parquet", TIMINGS),
        regret=_optional(run / "regret" / "regret.parquet", REGRET),
        slopes=_optional(run / "regret" / "slopes.parquet", SLOPES),
        weights=_table(weights, WEIGHTS) if weights.is_file() else None,
    )


def _optional(path: Location, schema: pa.Schema) -> pa.Table:
    return _table(path, schema) if path.is_file() else schema.empty_table()


def _table(path: Location, schema: pa.Schema) -> pa.Table:
    try:
        return read_parquet_file(path).select(schema.names).cast(schema)
    except KeyError as error:
        raise StorageError(f"{path} is not what this version writes: {error.args[0]}", code="format-version") from error


# ----------------------------------------------------------------------------------------------------------------------
# The leaderboard: one row per configuration, its metrics averaged over folds, ranked.


_SEVERITY: Final = {"ok": 0, "dropped": 1, "unfinished": 2, "diverged": 3, "failed": 4}


class LeaderboardRow(NamedTuple):
    """A configuration's means over folds at its best epoch (the chosen one's: at the chosen epoch).

    `value` is the metric that configurations are ranked by, and `value_error` its standard error; `error` is the share
    of wrong predictions, and `standard_error` its own, as in `sparseoco.search.selection`. `online_error` and
    `online_loss` are progressive, of the first epoch: later epochs predict documents already learned from, and so does
    every epoch of an algorithm that `trains_on_all_documents`, which has none. `seconds` is the sum over folds and
    epochs. Ranks count from 1, by the metric, then by nonzeros; configurations that did not finish have none. `front`:
    no other is better in both the metric and size.
    """

    rank: int | None
    configuration: int
    algorithm: str
    parameters: dict[str, Any]
    weighting: Weighting
    loss: str
    penalty: str
    status: str
    reason: str
    chosen: bool
    """Whether the model was refitted with it."""
    folds: int
    epochs: int
    epoch: int | None
    metric: str
    value: float | None
    value_error: float | None
    error: float | None
    standard_error: float | None
    held_out_loss: float | None
    online_error: float | None
    online_loss: float | None
    nonzeros: float | None
    features: float | None
    """Features with a nonzero weight for any class: the most of any fold."""
    seconds: float | None
    front: bool
    label: str
    """The parameters that differ between the configurations of its algorithm (all where none does), and the weighting
    if there are several, for people."""

    @property
    def size(self) -> float | None:
        """Features with a nonzero weight for any class, or the nonzero weights of tables without that number."""
        return self.nonzeros if self.features is None else self.features

    @property
    def measured(self) -> str:
        """The metric that configurations are ranked by, with its standard error, for people."""
        return metric_with_error(self.metric, self.value, self.value_error)

    @property
    def inaccuracy(self) -> float:
        """The metric that configurations are ranked by, negative if greater is better."""
        value = self.value or 0.0
        return -value if METRICS[self.metric].greater_is_better else value


def as_configuration(of: ChoiceRecord | LeaderboardRow) -> Configuration:
    """The configuration that a record is of."""
    return Configuration(
        number=of.configuration, algorithm=of.algorithm, parameters=of.parameters, weighting=of.weighting
    )


def trains_on_all_documents(algorithm: str) -> bool:
    """Whether, without held-out folds, the algorithm's errors are of documents it was trained on."""
    return algorithm in ALGORITHMS and not ALGORITHMS[algorithm].online


def leaderboard_rows(results: Results) -> list[LeaderboardRow]:
    """All configurations, the ranked ones first, then the others in order of their numbers."""
    metrics = results.metrics.to_pylist()
    of: dict[int, list[Row]] = defaultdict(list)
    for row in metrics:
        of[row["configuration"]].append(row)
    seconds: dict[int, float] = defaultdict(float)
    for row in results.timings.to_pylist():
        seconds[row["configuration"]] += row["seconds"]
    best = results.best
    ranked: dict[int, Candidate] = {}
    metric = results.metric
    for candidate in candidates(metrics, metric):  # best first
        ranked.setdefault(candidate.configuration, candidate)
        if best and (candidate.configuration, candidate.epoch) == (best.configuration, best.epochs):
            ranked[candidate.configuration] = candidate
    # A configuration that broke in a later epoch did not finish, however good it was before, unless it was chosen.
    chosen = best.configuration if best else None
    ranked = {n: c for n, c in ranked.items() if n == chosen or all(row["status"] == "ok" for row in of[n])}
    labels = _labels(of)
    table = [
        _leaderboard_row(rows, ranked.get(number), seconds.get(number), metric)._replace(
            chosen=number == chosen, label=labels[number]
        )
        for number, rows in sorted(of.items())
    ]
    ordered = sorted((s for s in table if s.configuration in ranked), key=lambda s: ranked[s.configuration][:4])
    ordered = [s._replace(rank=rank) for rank, s in enumerate(ordered, start=1)]
    front = {s.configuration for s in pareto_front(ordered)}
    others = [s for s in table if s.configuration not in ranked]
    return [s._replace(front=s.configuration in front) for s in ordered] + others


def best_of_each(table: Iterable[LeaderboardRow]) -> list[LeaderboardRow]:
    """The first ranked row of each algorithm, best algorithm first."""
    best: dict[str, LeaderboardRow] = {}
    for row in table:
        if row.rank is not None:
            best.setdefault(row.algorithm, row)
    return list(best.values())


def pareto_front(table: Iterable[LeaderboardRow]) -> list[LeaderboardRow]:
    """Ranked configurations that no other beats in both the metric and size, sparsest first."""
    front: list[LeaderboardRow] = []
    ranked = [s for s in table if s.rank is not None]
    for row in sorted(ranked, key=lambda s: (s.size, s.inaccuracy)):
        if not front or row.inaccuracy < front[-1].inaccuracy:
            front.append(row)
    return front


def write_leaderboard(path: Location, table: Sequence[LeaderboardRow]) -> None:
    """Write the leaderboard as Parquet, `parameters` as canonical JSON, the weighting as tf, idf and norm."""
    rows = [
        s._asdict() | {"parameters": json.dumps(s.parameters, sort_keys=True)} | s.weighting.model_dump() for s in table
    ]
    types = {
        **dict.fromkeys(("rank", "configuration", "folds", "epochs", "epoch"), pa.int32()),
        **dict.fromkeys(("metric", "algorithm", "parameters", "tf", "norm", "loss", "penalty"), pa.string()),
        **dict.fromkeys(("status", "reason"), pa.string()),
        **dict.fromkeys(("chosen", "front", "idf"), pa.bool_()),
    }
    names = [*LeaderboardRow._fields[:-1]]
    where = names.index("weighting")
    names[where : where + 1] = Weighting.model_fields
    write_result_table(path, rows, pa.schema([(name, types.get(name, pa.float64())) for name in names]))


def _leaderboard_row(rows: list[Row], at: Candidate | None, seconds: float | None, metric: str) -> LeaderboardRow:
    worst = max(rows, key=lambda row: _SEVERITY.get(row["status"], 5))
    here = [row for row in rows if at and row["epoch"] == at.epoch]
    first = [row for row in rows if at and row["epoch"] == 1 and not trains_on_all_documents(row["algorithm"])]
    return LeaderboardRow(
        rank=None,
        configuration=rows[0]["configuration"],
        algorithm=rows[0]["algorithm"],
        parameters=json.loads(rows[0]["parameters"]),
        weighting=Weighting.of(rows[0]),
        loss=rows[0]["loss"],
        penalty=rows[0]["penalty"],
        status=worst["status"],
        reason=worst["reason"] or "",
        chosen=False,
        folds=len({row["fold"] for row in rows}),
        epochs=max(row["epoch"] for row in rows),
        epoch=at.epoch if at else None,
        metric=metric,
        value=at.value(metric) if at else None,
        value_error=at.standard_error if at else None,
        error=at.error if at else None,
        standard_error=standard_error(here, "error", at.epoch) if at and at.error is not None else None,
        held_out_loss=_mean(row["held_out_loss"] for row in here),
        online_error=_mean(row["progressive_error"] for row in first),
        online_loss=_mean(row["progressive_loss"] for row in first),
        nonzeros=at.nonzeros if at else None,
        features=at.features if at else None,
        seconds=seconds,
        front=False,
        label="",
    )


def _labels(of: Mapping[int, list[Row]]) -> dict[int, str]:
    chosen = {number: (rows[0]["algorithm"], json.loads(rows[0]["parameters"])) for number, rows in of.items()}
    weightings = {number: Weighting.of(rows[0]).label for number, rows in of.items()}
    # Those parameters in which the configurations of an algorithm differ, or all where none does.
    sizes = Counter(algorithm for algorithm, _ in chosen.values())
    uses = Counter(
        (algorithm, key, json.dumps(value)) for algorithm, all_of in chosen.values() for key, value in all_of.items()
    )
    labels = {}
    for number, (algorithm, all_of) in chosen.items():
        varied = {k: value for k, value in all_of.items() if uses[algorithm, k, json.dumps(value)] < sizes[algorithm]}
        labels[number] = parameters(varied or all_of)
    if len(set(weightings.values())) > 1:
        labels = {number: f"{label} ({weightings[number]})" for number, label in labels.items()}
    return labels


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean; None when there is nothing to average or one of the values is not a number."""
    numbers = list(values)
    if not numbers or any(v is None or not math.isfinite(v) for v in numbers):
        return None
    return math.fsum(v for v in numbers if v is not None) / len(numbers)
