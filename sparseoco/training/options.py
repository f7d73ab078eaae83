"""Options of a search and of training."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from sparseoco.core.errors import InputError, SparseocoError, unsupported
from sparseoco.core.formatting import not_one_of, number_or_text, parse_bytes, parse_duration
from sparseoco.core.option_models import OptionModel
from sparseoco.learners import check_algorithm_name, find_algorithm, name_learner, takes_intercept
from sparseoco.learners.parameters import Parameter, positive_int
from sparseoco.storage.commit import digest_value
from sparseoco.store.weighting import COUNTS, FeatureOptions, Weighting

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm
    from sparseoco.store.shards import Store

# ----------------------------------------------------------------------------------------------------------------------
# The rule of a threshold, as an option.


def _short_forms(schema: dict[str, Any]) -> None:
    """The JSON Schema of what `ThresholdRule` takes, in place of that of its two fields."""
    share = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    table = {
        "precision": share | {"description": "The greatest recall with at least this precision.", "examples": [0.9]},
        "recall": share | {"description": "The greatest precision with at least this recall.", "examples": [0.9]},
        "top": share | {"description": "At most this share of the documents.", "examples": [0.01]},
    }
    one_key = {"additionalProperties": False, "minProperties": 1, "maxProperties": 1}
    described = schema["description"].partition("\n")[0]
    schema.clear()
    schema["description"] = described
    schema["anyOf"] = [
        {"const": "f1", "description": "The greatest F1."},
        {"const": "none", "description": "A margin of 0."},
        {"type": "object", "properties": table, **one_key},
    ]


class ThresholdRule(OptionModel):
    """How a threshold is chosen: `"f1"`, `{ precision = 0.9 }`, `{ recall = 0.8 }`, `{ top = 0.01 }` or `"none"`.

    In place of a table it may be given as text, such as `precision=0.9`. If it was chosen by default, `since` says why.
    """

    model_config = ConfigDict(json_schema_extra=_short_forms)

    rule: Literal["f1", "precision", "recall", "top", "none"]
    value: float | None = None
    since: str = ""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, str):
            rule, separator, value = given.partition("=")
            return {"rule": rule.strip()} | ({"value": number_or_text(value.strip())} if separator else {})
        if isinstance(given, dict) and len(given) == 1 and "rule" not in given:
            ((rule, value),) = given.items()
            return {"rule": rule, "value": value}
        return given

    @model_validator(mode="after")
    def _meaningful(self) -> "ThresholdRule":
        if self.rule in ("f1", "none"):
            if self.value is not None:
                raise ValueError(f"{self.rule} takes no value")
        elif not (self.value is not None and 0 < self.value <= 1):
            raise ValueError(f"{self.rule} takes a number above 0 and at most 1, such as {{ {self.rule} = 0.5 }}")
        return self

    def __str__(self) -> str:
        return self.rule if self.value is None else f"{self.rule}={self.value:g}"


# ----------------------------------------------------------------------------------------------------------------------
# A configuration of a search.


PARTS = "parts"
"""The parameter of learners of a stream: into how many parts an epoch is divided (`sparseoco.search.worker`)."""
MAX_PARTS = 10_000


def part_count(value: Any) -> int:
    """A number of parts. Raises `ValueError`."""
    parts = positive_int(value)
    if parts > MAX_PARTS:
        raise ValueError(f"must be at most {MAX_PARTS:,}")
    return parts


def with_parts(algorithm: "Algorithm") -> "Algorithm":
    """The learner with the parameter `PARTS`, unless it cannot be learned in parts, whose weights are averaged."""
    if not algorithm.online or algorithm.touches_all_features:
        return algorithm
    meaning = "parts of an epoch that are learned in parallel and averaged"
    return replace(algorithm, parameters=(*algorithm.parameters, Parameter(PARTS, 1, meaning, part_count)))


def learner_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a configuration of a stream as its learner takes them: without `PARTS`."""
    return {name: value for name, value in parameters.items() if name != PARTS}


def parts_of(algorithm: str, parameters: Mapping[str, Any]) -> int:
    """Parts of an epoch that are learned in parallel: 1 for one learner, and for methods that make passes over all
    rows, which may have a parameter of this name themselves."""
    return int(parameters.get(PARTS, 1)) if find_algorithm(algorithm).online else 1


class Configuration(OptionModel):
    """An algorithm with all its parameters, on weighted counts, numbered within a search."""

    number: int
    algorithm: str
    parameters: dict[str, Any]
    """With `PARTS` where they are more than one."""
    weighting: Weighting = COUNTS

    @property
    def parts(self) -> int:
        """See `parts_of`."""
        return parts_of(self.algorithm, self.parameters)

    @property
    def parameters_json(self) -> str:
        """The parameters as canonical JSON."""
        return json.dumps(self.parameters, sort_keys=True)

    @cached_property
    def identity(self) -> str:
        """See `configuration_id`."""
        return configuration_id(self.algorithm, self.parameters, self.weighting)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of result tables that describe it."""
        named = {"configuration": self.number, "algorithm": self.algorithm, "parameters": self.parameters_json}
        return named | self.weighting.model_dump()


def configuration_id(algorithm: str, parameters: Mapping[str, Any], weighting: Weighting) -> str:
    """The identity of a configuration."""
    return digest_value([algorithm, parameters, weighting.model_dump(mode="json")])


# ----------------------------------------------------------------------------------------------------------------------
# Values of a parameter in a search: a list, a range to draw from, or factors of λ_max.


MAX_CONFIGURATIONS = 100_000
SCALED = ("lam", "alpha")
"""Parameters that weight the penalty: per row, and for the sum over all rows."""
SPARSE = ("l1", "elastic_net", "group")
"""Penalties for which all weights are 0 from some weight of the penalty on."""


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Range(OptionModel):
    """Values to draw at random: `{ low = 1e-7, high = 1e-3 }`, log-uniform unless `scale = "linear"`."""

    low: float = Field(allow_inf_nan=False, description="Smallest value.", examples=[1e-7])
    high: float = Field(allow_inf_nan=False, description="Largest value.", examples=[1e-3])
    scale: Literal["log", "linear"] = Field("log", description="Draw uniformly in the logarithm, or in the value.")

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError("low must be at most high")
        if self.scale == "log" and self.low <= 0:
            raise ValueError('a logarithmic range must start above 0 (or set scale = "linear")')
        return self

    def at(self, fraction: float) -> float:
        """The value at this fraction of the range, 0 ≤ fraction ≤ 1."""
        if self.scale == "linear":
            return self.low + fraction * (self.high - self.low)
        return math.exp(math.log(self.low) + fraction * (math.log(self.high) - math.log(self.low)))


class Relative(OptionModel):
    """`{ relative = [0.1] }`: values of lam or alpha times λ_max, the least penalty at which all weights are 0."""

    relative: tuple[NotNegative, ...] = Field(min_length=1, description="Factors of λ_max.", examples=[[0.01, 0.1]])


def listed(values: Any) -> Any:
    """A list of values; a single value is a list of one."""
    return [values] if isinstance(values, (int, float, str)) else values


Values = Annotated[list[float | str] | Range | Relative, BeforeValidator(listed)]
NumericGrid = dict[str, list[float | str] | Range]


def numeric_grid(name: str, grid: Mapping[str, Values], penalty: str, scale: float) -> NumericGrid:
    """The grid of an algorithm with `scale` times its relative values. Raises `InputError` where they mean nothing."""
    found: NumericGrid = {}
    for key, values in grid.items():
        if isinstance(values, Relative):
            if key not in SCALED or penalty not in SPARSE:
                raise unsupported(
                    f"{name}.{key} with penalty {penalty}: values relative to λ_max are those of "
                    f"{' or '.join(SCALED)} with penalty {', '.join(SPARSE)}."
                )
            found[key] = [factor * scale for factor in values.relative]
        else:
            found[key] = values
    return found


def check_grid(name: str, grid: NumericGrid) -> dict[str, list[float | str]]:
    """The grid if it can be expanded. Raises `InputError` for a range, and for a grid that is too large."""
    lists = {key: values for key, values in grid.items() if not isinstance(values, Range)}
    for key in grid.keys() - lists.keys():
        raise InputError(
            f"{name}.{key} is a range: set `samples` to draw from it, or list the values.", code="range-without-samples"
        )
    size = math.prod(map(len, lists.values()))
    if size > MAX_CONFIGURATIONS:
        raise InputError(
            f"The grid of {name} has {size:,} configurations, more than {MAX_CONFIGURATIONS:,}: draw some of them "
            "with `samples`.",
            code="grid-too-large",
        )
    return lists


def draw(grid: NumericGrid, samples: int, seed: int) -> list[dict[str, Any]]:
    """So many configurations, a function of the seed."""
    import numpy as np

    random = np.random.Generator(np.random.Philox(key=seed))
    return [
        {
            key: values.at(random.random()) if isinstance(values, Range) else values[int(random.random() * len(values))]
            for key, values in grid.items()
        }
        for _ in range(samples)
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Defaults of a search.


RARE_CLASS = 0.125
"""The least share of the documents at which a class is not rare."""
MANY_DOCUMENTS = 10_000
"""Documents from which on three folds estimate a metric well enough."""
HALVED_WEIGHTS = 30_000_000
"""Weights of a configuration of several classes up to which a search halves by default: at a rung all are stored."""
DEFAULT_ALGORITHM = "adagrad"
AUTO = "auto"
DEFAULT_LOSSES = ("squared_hinge", "hinge", "logistic")
"""Losses for classes, in order of preference."""
SIZED_GRID: dict[str, dict[str, Values]] = {
    DEFAULT_ALGORITHM: {
        "eta": [0.1, 0.3, 1.0],
        "lam": [1e-6, 5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 7e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4, 1e-3],
    }
}
"""The default grid if a model may have only so many features: close values of λ, so that one comes near that size."""


def default_grid() -> dict[str, dict[str, Values]]:
    """The grid of a search that names no algorithm."""
    return {DEFAULT_ALGORITHM: dict(find_algorithm(DEFAULT_ALGORITHM).grid)}


# ----------------------------------------------------------------------------------------------------------------------
# The metrics: their names, for whom they are defined, and which direction is better.


Kind = Literal["two classes", "classes", "label sets", "numbers"]
"""What is predicted: one of two classes, one of more, any number of labels, or a number."""


class Metric(NamedTuple):
    """A metric: `kinds` of labels for which it is defined, and whether more of it is better."""

    greater_is_better: bool
    kinds: tuple[Kind, ...]
    from_ranking: bool = False
    """Whether it ranks the rows, so that beyond `EXACT_VALUES` it comes from histograms."""


_TWO: Final = ("two classes",)
_SINGLE: Final = ("two classes", "classes")
_CLASSES: Final = ("two classes", "classes", "label sets")
_NUMBERS: Final = ("numbers",)
LEVELS: Final = (50, 90, 99)
"""Percentages of recall and precision at which the other is measured."""
METRICS: Final[dict[str, Metric]] = {
    "error": Metric(False, _CLASSES),
    "loss": Metric(False, (*_CLASSES, "numbers")),
    "log_loss": Metric(False, _CLASSES),
    "roc_auc": Metric(True, _CLASSES, True),
    "average_precision": Metric(True, _CLASSES, True),
    "f1": Metric(True, _TWO),
    "precision": Metric(True, _TWO),
    "recall": Metric(True, _TWO),
    "f1_macro": Metric(True, _CLASSES),
    "f1_micro": Metric(True, _CLASSES),
    "f1_weighted": Metric(True, _CLASSES),
    "balanced_accuracy": Metric(True, _SINGLE),
    **{f"precision_at_recall_{level}": Metric(True, _TWO, True) for level in LEVELS},
    **{f"recall_at_precision_{level}": Metric(True, _TWO, True) for level in LEVELS},
    "rmse": Metric(False, _NUMBERS),
    "mae": Metric(False, _NUMBERS),
    "r2": Metric(True, _NUMBERS),
}
PROGRESSIVE: Final = ("error", "loss")
"""The metrics that progressive predictions have, too: means over rows, each predicted before it is learned."""
COMPUTED: Final = tuple(name for name in METRICS if name not in PROGRESSIVE)
"""The metrics that `Scores` computes; error and loss come from the learner itself."""


# ----------------------------------------------------------------------------------------------------------------------
# Names of losses, penalties and metrics, for checks and shell completion that must not load numba.


LOSS_NAMES: Final = ("logistic", "hinge", "squared_hinge", "squared", "huber", "softmax", "multiclass_hinge")
PENALTY_NAMES: Final = ("l1", "l2", "elastic_net", "group", "box")


def check_name(value: str | None, option: str) -> str | None:
    """The value of the option loss, penalty or metric, if it is known. Raises `ValueError`."""
    error, names = {
        "loss": (InputError("unknown", code="unknown-loss"), (AUTO, *LOSS_NAMES)),
        "penalty": (InputError("unknown", code="unknown-penalty"), PENALTY_NAMES),
        "metric": (None, tuple(METRICS)),
    }[option]
    if value is None or value in names:
        return value
    instead = not_one_of(value, names)
    if (option, value) == ("metric", "accuracy"):
        instead = instead.replace("did you mean ", "did you mean error, which is 1 − accuracy, or ")
    raise ValueError(f"{option}={value!r} is not known; {instead}") from error


# ----------------------------------------------------------------------------------------------------------------------
# Which configurations of a search are dropped early, and which one is chosen.


class Halving(OptionModel):
    """`halving = { factor = 3 }` or `halving = 3`: drop the worst within the first pass, at rungs."""

    factor: float = Field(
        2.0, gt=1, le=1e6, description="One configuration in this many survives a rung.", examples=[3]
    )
    rungs: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | None = Field(
        None,
        min_length=1,
        description="Fractions of the first pass; by default as many as reduce the search to one configuration.",
        examples=[[0.25, 0.5]],
    )


class AtMost(OptionModel):
    """`select = { at_most = 10_000 }`: the best model with at most so many features that have a nonzero weight."""

    at_most: int = Field(ge=1, description="Features with a nonzero weight for any class.", examples=[10000])


Select = Literal["best", "one-standard-error"] | AtMost


# ----------------------------------------------------------------------------------------------------------------------
# Options of a search: which configurations are tried, and how they are compared.


FIELD: Final = "field"
"""The value of `feature_groups` for which a group is a field of the records."""
Order = Literal["auto", "rows", "blocks", "none"]
ClassWeight = Literal["balanced"] | dict[str, NotNegative]


def default_loss(algorithms: Iterable[str], *, numbers: bool) -> str:
    """The loss of a search or an estimator that names none: squared for numbers, else the first that all of them take.

    Raises `InputError` if there is none.
    """
    if numbers:
        return "squared"
    for loss in DEFAULT_LOSSES:
        if all(loss in find_algorithm(name).loss_names for name in algorithms):
            return loss
    raise unsupported(f"No default loss is defined for all of {', '.join(algorithms)}: set one with --loss.")


class SearchOptions(OptionModel):
    """`[search]`: which configurations are tried and how they are compared."""

    algorithms: dict[str, dict[str, Values]] = Field(
        default_factory=default_grid,
        min_length=1,
        description=f"A table for each algorithm: parameter = values; by default the grid of {DEFAULT_ALGORITHM}. "
        "With parts = K every epoch is learned in K parts by as many tasks, whose weights are averaged after it.",
        examples=[{"adagrad": {"eta": [0.1, 1.0]}}],
    )
    lambda_max: dict[str, dict[str, float]] | None = Field(
        None,
        description="What relative values are multiplied by, for each weighting and algorithm; by default λ_max.",
        examples=[{"log tf, idf, l2": {"adagrad": 0.02}}],
    )
    features: FeatureOptions = Field(FeatureOptions(), description="How counts are weighted.")
    loss: str = Field(
        AUTO,
        description="Loss function: logistic, hinge, squared_hinge, softmax or multiclass_hinge; auto is "
        "squared_hinge; for numbers squared, which is auto, or huber.",
    )
    penalty: str = Field("l1", description="Penalty on the weights: l1, l2, elastic_net, group or box.")
    feature_groups: str | None = Field(
        None,
        description="Groups of features that penalty group keeps or drops together, for fobos, l-fobos and cl-fobos: "
        "field, the fields of the records, or a table with the columns term and group, CSV or Parquet; terms that it "
        "does not have are groups of their own. By default a group is the weights of one feature for all classes.",
        examples=["topics.csv"],
    )
    folds: int = Field(
        5,
        ge=1,
        le=1000,
        description="Folds of cross-validation, by default 3 from 10,000 documents on; with 1, "
        "configurations are compared by progressive error (epoch methods: by training error).",
        examples=[10],
    )
    folds_by: Literal["group", "time"] | None = Field(
        None,
        description="Keep the documents of a group (group_field of ingest) in one fold; or hold out later documents "
        "only, by time (time_field): fold k learns from the documents before it. By default folds are drawn at random.",
    )
    epochs: int = Field(5, ge=1, le=1_000_000, description="Passes over the data.", examples=[10])
    metric: str | None = Field(
        None,
        description="Metric of the held-out documents to choose by, such as log_loss, roc_auc, average_precision, f1, "
        "f1_macro, or of numbers rmse, mae, r2; by default error, of a class with less than an eighth of the documents "
        "average_precision, of numbers rmse. With one fold, error or loss.",
        examples=["average_precision"],
    )
    select: Select = Field(
        "best",
        description="Choose the best configuration; the sparsest within one standard error of it (one-standard-error); "
        "or the best with at most N features that have a nonzero weight: at_most=N, in a file { at_most = N }.",
        examples=[{"at_most": 10000}],
    )
    positive_class: str | None = Field(
        None,
        description="The positive one of two classes, to which F1 and rankings refer; by default the rarer.",
        examples=["spam"],
    )
    threshold: ThresholdRule | None = Field(
        None,
        description="Rule of the threshold above which a document belongs to a class, chosen on the held-out folds: "
        '"f1", { precision = 0.9 }, { recall = 0.8 }, { top = 0.01 } or "none", a margin of 0. By default f1 if '
        "metric ranks documents, such as average_precision, or a class has less than an eighth of them and metric is "
        "not error; otherwise none. Of more than two classes the one with the largest margin is predicted.",
        examples=[{"precision": 0.95}],
    )
    intercept: bool | None = Field(
        None,
        description="Learn an intercept, which no penalty shrinks; by default with all learners that have room for "
        "one, not in a ball, a simplex or a box.",
    )
    class_weight: ClassWeight | None = Field(
        None,
        description="Weights of the classes in what is learned, not in metrics: balanced, inversely to their "
        "frequencies, or CLASS=WEIGHT,…, in a file { CLASS = WEIGHT }; 1 for other classes.",
        examples=["balanced"],
    )
    shuffle: Order = Field(
        "auto",
        description="Order of the stream, drawn by the seed in each epoch: all rows permuted (rows); or ranges of "
        "rows permuted, and rows within windows of 32 ranges, which reads sequentially (blocks); or document order "
        "(none). By default, auto or true, rows, from 1,000,000 documents on blocks; false is none.",
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="Type of the weights.")
    samples: int | None = Field(
        None,
        ge=1,
        le=MAX_CONFIGURATIONS,
        description="Draw this many configurations per algorithm and weighting; by default the whole grid.",
        examples=[50],
    )
    seed: int = Field(
        0, ge=0, lt=2**63, description="Seed of the shuffle, of the folds and of random draws.", examples=[7]
    )
    warm_start: str | None = Field(
        None,
        description="Folder of a model whose weights, or state if it fits, all configurations start from; none by "
        "default.",
        examples=["runs/earlier/model"],
    )
    features_from: str | None = Field(
        None,
        description="Folder of a model: train on the features with nonzero weights in it only; by default on all.",
        examples=["runs/sparse/model"],
    )
    halving: Halving | None = Field(
        None,
        description="Successive halving; by default, with several classes and no grid of your own, two thirds of the "
        "configurations are dropped in the middle of the first pass.",
        examples=[3],
    )
    time_limit: Annotated[
        float | None, BeforeValidator(parse_duration, json_schema_input_type=pydantic.PositiveFloat | str)
    ] = Field(
        None,
        gt=0,
        le=1e8,
        description="Seconds, or a duration such as 2h, after which no more work is started; running the same command "
        "again resumes.",
        examples=["2h"],
    )
    max_memory: Annotated[
        int | None, BeforeValidator(parse_bytes, json_schema_input_type=pydantic.PositiveInt | str)
    ] = Field(
        None,
        gt=0,
        description="Bytes a worker may use in total, such as 2GB; determines how many columns are trained together.",
        examples=["2GB"],
    )

    @field_validator("algorithms", mode="before")
    @classmethod
    def _named(cls, value: Any, info: ValidationInfo) -> Any:
        """A run file, which has a folder, names the files of learners. The record of a run does not."""
        if info.context is None or not isinstance(value, dict):
            return value
        try:
            named = {name_learner(name, info.context): grid for name, grid in value.items()}
        except InputError as error:
            raise ValueError(str(error)) from error
        if len(named) < len(value):
            raise ValueError("two tables are of one learner")
        return named

    @field_validator("shuffle", mode="before", json_schema_input_type=Order | bool)
    @classmethod
    def _order(cls, value: Any) -> Any:
        return {True: "auto", False: "none"}[value] if isinstance(value, bool) else value

    @field_validator("halving", mode="before", json_schema_input_type=Halving | Annotated[float, Field(gt=1)])
    @classmethod
    def _factor(cls, value: Any) -> Any:
        return {"factor": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("select", mode="before", json_schema_input_type=Select)
    @classmethod
    def _rule(cls, value: Any) -> Any:
        if isinstance(value, str) and (match := re.fullmatch(r"at[_-]most=([\d_]+)", value)):
            value = {"at_most": int(match[1])}
        if isinstance(value, dict | AtMost) or value in ("best", "one-standard-error"):
            return value
        raise ValueError('must be "best", "one-standard-error" or { at_most = N }')

    @field_validator("loss", "penalty", "metric")
    @classmethod
    def _known(cls, value: str | None, info: ValidationInfo) -> str | None:
        return check_name(value, str(info.field_name))

    @field_validator("class_weight", mode="before", json_schema_input_type=ClassWeight)
    @classmethod
    def _by_class(cls, value: Any) -> Any:
        if isinstance(value, str) and "=" in value:
            weights = [part.rpartition("=")[::2] for part in value.split(",")]
            value = {name: number_or_text(weight) for name, weight in weights}
            if len(value) < len(weights):
                raise ValueError("a class has two weights")
        if isinstance(value, str) and value != "balanced":
            raise ValueError('must be "balanced" or a weight for each class')
        return value

    @model_validator(mode="after")
    def _meaningful(self) -> "SearchOptions":
        try:
            for name in self.algorithms if self.loss != AUTO else ():
                find_algorithm(name).loss(self.loss)
            configurations = self.configurations()
        except SparseocoError as error:
            raise ValueError(str(error)) from error
        for name in self.algorithms if self.feature_groups is not None else ():
            if self.penalty != "group" or find_algorithm(name).group_rules is None:
                raise ValueError(
                    f"feature_groups is for penalty group of fobos, l-fobos and cl-fobos, not for {name} with penalty "
                    f"{self.penalty}"
                )
        for name in self.algorithms if self.intercept else ():
            if not takes_intercept(name, self.penalty):
                raise ValueError(f"{name} with penalty {self.penalty} has no room for an intercept")
        for name in self.algorithms if self.warm_start is not None else ():
            if not find_algorithm(name).online:
                raise ValueError(
                    f"{name} starts with a pass over all data, not from a model: it does not take warm_start"
                )
        if self.threshold_rule is not None and self.folds == 1:
            raise ValueError("threshold is chosen on the held-out folds: set folds to 2 or more")
        if self.folds == 1 and self.metric is not None and self.metric not in PROGRESSIVE:
            raise ValueError(
                f"metric {self.metric} is of held-out documents: set folds to 2 or more, or choose error or loss"
            )
        if self.folds_by is not None:
            if self.folds == 1:
                raise ValueError("folds_by is of held-out folds: set folds to 2 or more")
            for name in self.algorithms:
                if not find_algorithm(name).online:
                    raise ValueError(f"{name} makes many passes over random folds: it does not take folds_by")
        streams = [each for each in configurations if find_algorithm(each.algorithm).online]
        if self.shuffle != "auto" and not streams:
            raise ValueError("shuffle is the order of a stream, and no learner here learns from one")
        if self.halving is not None and all(each.parts > 1 for each in streams):
            raise ValueError("halving stops learners of a stream early, in one part, and there is none here")
        return self

    @property
    def selection_metric(self) -> str:
        """The metric by which configurations are compared."""
        if self.metric is not None:
            return self.metric
        from sparseoco.learners.losses import find_loss  # loads numba

        if not find_loss(self.loss).regression:
            return "error"
        return "rmse" if self.folds > 1 else "loss"

    def check_metric(self, kind: Kind) -> None:
        """Raises `InputError` if the metric is not defined for labels of this kind."""
        metric = self.selection_metric
        if kind not in METRICS[metric].kinds:
            names = ", ".join(name for name, each in METRICS.items() if kind in each.kinds)
            raise InputError(
                f"metric {metric} is not defined for {kind}: choose one of {names}.", code="invalid-metric"
            )

    @property
    def threshold_rule(self) -> ThresholdRule | None:
        """The rule by which a threshold is chosen; None for a margin of 0."""
        return None if self.threshold is None or self.threshold.rule == "none" else self.threshold

    @property
    def models(self) -> dict[str, str]:
        """The paths of the models it reads, by the name of the option."""
        paths = {"warm_start": self.warm_start, "features_from": self.features_from}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def paths(self) -> dict[str, str]:
        """The paths of all files and folders it reads, by the name of the option."""
        table = self.feature_groups
        return self.models | ({} if table in (None, FIELD) else {"feature_groups": str(table)})

    def configurations(self) -> list[Configuration]:
        """Every configuration, numbered from 0: weightings, algorithms as listed, the grid's product or random draw.

        Raises `InputError` for an unknown algorithm or parameter, or a value out of its range.
        """
        for name in self.algorithms:
            check_algorithm_name(name)
        from sparseoco.learners.penalties import find_penalty  # loads numba

        found = []
        for weighting, (name, grid) in product(self.features.weightings, self.algorithms.items()):
            algorithm = with_parts(find_algorithm(name).under(find_penalty(self.penalty)))
            scale = (self.lambda_max or {}).get(weighting.label, {}).get(name, 1.0)
            numbers = numeric_grid(name, grid, self.penalty, scale)
            drawn = None if self.samples is None else draw(numbers, self.samples, self.seed)
            for parameters in algorithm.expand(check_grid(name, numbers) if drawn is None else drawn):
                if parameters.get("predict_gradient") == "given":
                    raise unsupported(
                        f"{name}: predict_gradient='given' is for Learner.partial_fit: here nothing predicts slopes."
                    )
                whole = algorithm.online and parameters.get(PARTS) == 1
                found.append((name, learner_parameters(parameters) if whole else parameters, weighting))
        return [
            Configuration(number=number, algorithm=name, parameters=parameters, weighting=weighting)
            for number, (name, parameters, weighting) in enumerate(found)
        ]

    @property
    def relative_parameters(self) -> dict[str, str]:
        """The parameter of each algorithm whose values are relative to λ_max, while that is not known."""
        if self.lambda_max is not None:
            return {}
        every = [(name, key, each) for name, grid in self.algorithms.items() for key, each in grid.items()]
        return {name: key for name, key, each in every if isinstance(each, Relative)}


# ----------------------------------------------------------------------------------------------------------------------
# Defaults that depend on a store.


def resolve(options: SearchOptions, store: "Store", *, search: bool = False) -> SearchOptions:
    """The options with the defaults for a store in place of those that are not set.

    The weighting and the loss are those for its values and labels: the first of `DEFAULT_LOSSES` that every algorithm
    is defined for. Those of a `search` are the metric and the threshold for a rare class, and what depends on the size:
    with many documents there are three folds; the default grid is `SIZED_GRID` if only so many features are wanted
    (`at_most`), otherwise, with several classes, two thirds of it are dropped in the middle of the first pass.

    Raises `InputError` if no default loss is defined.
    """
    features = options.features.for_values(real=store.counts_dtype.kind == "f" and not store.manifest.fields)
    changed: dict[str, Any] = {"features": features}
    if options.loss == AUTO:
        changed["loss"] = default_loss(options.algorithms, numbers=store.manifest.labels.kind == "numbers")
    if search:
        chosen = options.model_fields_set
        changed |= _for_rare_class(options, store)
        if "folds" not in chosen and store.n_rows >= MANY_DOCUMENTS:
            changed["folds"] = 3
        small = store.n_outputs * store.n_features <= HALVED_WEIGHTS
        if "algorithms" in chosen:
            pass
        elif isinstance(options.select, AtMost):
            changed["algorithms"] = SIZED_GRID
        elif store.n_outputs > 1 and small and "halving" not in chosen:
            changed["halving"] = Halving(factor=3, rungs=(0.5,))
    return options.model_copy(update=changed)


def _for_rare_class(options: SearchOptions, store: "Store") -> dict[str, Any]:
    """The defaults for a rare class, with held-out folds: average precision and the threshold of the greatest F1.

    The error of a model that never predicts it is small. A class is rare if it has less than `RARE_CLASS` of the
    documents. The metric is of two classes. The threshold is of label sets, too, and also that of a metric that ranks
    documents; not of the error, for which a margin of 0 is right.
    """
    entries = [entry for entry in store.manifest.labels.classes if entry.rows]
    rare = [entry for entry in entries if entry.rows < RARE_CLASS * store.n_rows]
    if options.folds == 1 or not entries or not (store.is_multilabel or len(entries) == 2):
        return {}
    metric = options.metric
    if rare and metric is None and not store.is_multilabel:
        metric = "average_precision"
    since = ""
    if rare and metric not in PROGRESSIVE:
        since = f"{len(rare):,} of {len(entries):,} classes have less than an eighth of the documents"
        if not store.is_multilabel:
            since = f"{rare[0].name} has {rare[0].rows / store.n_rows:.1%} of the documents"
    elif metric is not None and METRICS[metric].from_ranking:
        since = f"{metric} ranks documents"
    threshold = ThresholdRule(rule="f1", since=since) if since and options.threshold is None else options.threshold
    return {"metric": metric, "threshold": threshold}


# ----------------------------------------------------------------------------------------------------------------------
# Options of the offline optimum.


TOLERANCE, MAX_PASSES = 1e-6, 2000


class OptimumOptions(OptionModel):
    """The problems to minimise and the stopping criteria; see `sparseoco.offline_optimum`."""

    alphas: tuple[float, ...] = Field(
        (1.0,), min_length=1, description="Weights of the penalty, relative to the sum of losses over all documents."
    )
    weighting: Weighting = Field(COUNTS, description="How counts are weighted.")
    loss: str = Field("logistic", description="Loss: logistic, squared_hinge or hinge; squared for numbers.")
    penalty: Literal["l1", "l2", "elastic_net"] = Field("l1", description="Penalty.")
    l1_ratio: float = Field(0.5, ge=0.0, le=1.0, description="Fraction of l1 in the elastic net.")
    box: float | None = Field(
        None, gt=0.0, allow_inf_nan=False, description="Bound on the absolute value of every weight; by default none."
    )
    intercept: bool = Field(False, description="Minimise over an intercept too, which no penalty shrinks.")
    tol: float = Field(TOLERANCE, gt=0.0, lt=1.0, description="Duality gap to reach, relative to the objective at 0.")
    max_passes: int = Field(MAX_PASSES, ge=1, description="Passes over the data after which to stop.")

    @model_validator(mode="after")
    def _used(self) -> "OptimumOptions":
        if self.penalty != "elastic_net" and self.l1_ratio != type(self).model_fields["l1_ratio"].default:
            raise ValueError(f"l1_ratio is of the elastic net, and the penalty is {self.penalty}")
        if not all(0.0 < alpha < math.inf or alpha == 0.0 < (self.box or 0.0) for alpha in self.alphas):
            raise ValueError("every alpha must be a number above 0, or 0 within a box")
        return self
