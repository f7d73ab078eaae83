"""Options of a search: which configurations are tried, and how they are compared."""

import math
import re
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.option_models import OptionModel
from sparseoco.core.quantities import parse_bytes, parse_duration
from sparseoco.learners import check_algorithm_name, find_algorithm, takes_intercept
from sparseoco.storage.metric_names import METRICS, PROGRESSIVE, Kind, defined_for
from sparseoco.store.weighting import FeatureOptions
from sparseoco.training.decisions.threshold_rule import ThresholdRule
from sparseoco.training.options import defaults
from sparseoco.training.options.configuration import PARTS, Configuration, learner_parameters
from sparseoco.training.options.defaults import AUTO, DEFAULT_ALGORITHM
from sparseoco.training.options.names import check_name
from sparseoco.training.options.selection import AtMost, Halving, Select
from sparseoco.training.options.values import (
    MAX_CONFIGURATIONS,
    Relative,
    Values,
    check_grid,
    check_parameter_names,
    draw,
    listed,
    numeric_grid,
    part_counts,
)

if TYPE_CHECKING:
    from sparseoco.store.shards import Store
    from sparseoco.training.grid import Grid

Order = Literal["auto", "rows", "blocks", "none"]
ClassWeight = Literal["balanced"] | dict[str, float]


class SearchOptions(OptionModel):
    """`[search]`: which configurations are tried and how they are compared."""

    algorithms: dict[str, dict[str, Values]] = Field(
        default_factory=defaults.default_grid,
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
    samples: int | None = Field(
        None,
        ge=1,
        le=MAX_CONFIGURATIONS,
        description="Draw this many configurations per algorithm and weighting; by default the whole grid.",
        examples=[50],
    )
    loss: str = Field(
        AUTO,
        description="Loss function: logistic, hinge, squared_hinge, softmax or multiclass_hinge; auto is "
        "squared_hinge; for numbers squared, which is auto, or huber.",
    )
    penalty: str = Field("l1", description="Penalty on the weights: l1, l2, elastic_net, group or box.")
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
    patience: int | None = Field(
        None,
        ge=1,
        description="Stop a configuration after this many epochs in a row without improvement.",
        examples=[2],
    )
    min_improvement: float = Field(
        0.0, ge=0, description="Smallest improvement of the metric in an epoch that counts as one.", examples=[0.001]
    )
    time_limit: float | None = Field(
        None,
        gt=0,
        le=1e8,
        description="Seconds, or a duration such as 2h, after which no more work is started; running the same command "
        "again resumes.",
        examples=["2h"],
    )
    max_memory: int | None = Field(
        None,
        gt=0,
        description="Bytes a worker may use in total, such as 2GB; determines how many columns are trained together.",
        examples=["2GB"],
    )

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
            value = dict(part.rpartition("=")[::2] for part in value.split(","))
        if isinstance(value, str) and value != "balanced":
            raise ValueError('must be "balanced" or a weight for each class')
        return value

    @field_validator("class_weight")
    @classmethod
    def _not_negative(cls, value: Any) -> Any:
        if isinstance(value, dict) and not all(0 <= weight < math.inf for weight in value.values()):
            raise ValueError("weights must be finite and at least 0")
        return value

    @field_validator("time_limit", mode="before", json_schema_input_type=PositiveFloat | str)
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return parse_duration(value)

    @field_validator("max_memory", mode="before", json_schema_input_type=PositiveInt | str)
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        return parse_bytes(value)

    @field_validator("algorithms", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: {key: listed(values) for key, values in grid.items()} if isinstance(grid, dict) else grid
            for name, grid in value.items()
        }

    @model_validator(mode="after")
    def _meaningful(self) -> "SearchOptions":
        try:
            for name, grid in self.algorithms.items():
                check_parameter_names(check_algorithm_name(name), grid, self.penalty)
            if self.loss != AUTO:
                for name in self.algorithms:
                    find_algorithm(name).loss(self.loss)
            self.configurations()
        except SparseocoError as error:
            raise ValueError(str(error)) from error
        self._check_intercept()
        for name in self.algorithms if self.warm_start is not None else ():
            if not find_algorithm(name).online:
                raise ValueError(
                    f"{name} starts with a pass over all data, not from a model: it does not take warm_start"
                )
        if self.threshold_rule is not None and self.folds == 1:
            raise ValueError("threshold is chosen on the held-out folds: set folds to 2 or more")
        self._check_metric()
        if self.folds_by is not None:
            if self.folds == 1:
                raise ValueError("folds_by is of held-out folds: set folds to 2 or more")
            for name in self.algorithms:
                if not find_algorithm(name).online:
                    raise ValueError(f"{name} makes many passes over random folds: it does not take folds_by")
        if self.min_improvement and self.patience is None:
            raise ValueError("min_improvement is used by patience: set patience too")
        return self

    def _check_intercept(self) -> None:
        for name in self.algorithms if self.intercept else ():
            if not takes_intercept(name, self.penalty):
                raise ValueError(f"{name} with penalty {self.penalty} has no room for an intercept")

    def _check_metric(self) -> None:
        if self.metric is None:
            return
        if self.loss != AUTO:
            from sparseoco.learners.losses import find_loss  # loads numba

            regression = find_loss(self.loss).regression
            if not any((kind == "numbers") == regression for kind in METRICS[self.metric].kinds):
                raise ValueError(f"metric {self.metric} is not defined for {'numbers' if regression else 'classes'}")
        if self.folds == 1 and self.metric not in PROGRESSIVE:
            raise ValueError(
                f"metric {self.metric} is of held-out documents: set folds to 2 or more, or choose error or loss"
            )

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
            names = ", ".join(defined_for(kind))
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

    def for_store(self, store: "Store") -> "SearchOptions":
        """The options with the defaults for the store's labels and values in place of those that are not set.

        The default loss is the first of `DEFAULT_LOSSES` that every algorithm is defined for. Raises `InputError` if
        there is none.
        """
        features = self.features.for_values(real=store.counts_dtype.kind == "f" and not store.manifest.fields)
        return self.model_copy(
            update={"features": features, "loss": self._default_loss(store) if self.loss == AUTO else self.loss}
        )

    def for_rare_class(self, store: "Store") -> "SearchOptions":
        """The options with the defaults for a rare class: average precision and the threshold of the greatest F1.

        The error of a model that never predicts it is small. A class is rare if it has less than `RARE_CLASS` of the
        documents. The metric is of two classes. The threshold is of label sets, too, and also that of a metric that
        ranks documents; not of the error, for which a margin of 0 is right. They need held-out folds.
        """
        entries = [entry for entry in store.manifest.labels.classes if entry.rows]
        rare = [entry for entry in entries if entry.rows < defaults.RARE_CLASS * store.n_rows]
        if self.folds == 1 or not entries or not (store.is_multilabel or len(entries) == 2):
            return self
        metric = self.metric
        if rare and metric is None and not store.is_multilabel:
            metric = "average_precision"
        since = ""
        if rare and metric not in PROGRESSIVE:
            since = f"{len(rare):,} of {len(entries):,} classes have less than an eighth of the documents"
            if not store.is_multilabel:
                since = f"{rare[0].name} has {rare[0].rows / store.n_rows:.1%} of the documents"
        elif metric is not None and METRICS[metric].from_ranking:
            since = f"{metric} ranks documents"
        threshold = ThresholdRule(rule="f1", since=since) if since and self.threshold is None else self.threshold
        return self.model_copy(update={"metric": metric, "threshold": threshold})

    def for_size(self, store: "Store") -> "SearchOptions":
        """The options with defaults for the size of the data and of the model that is wanted, where they are not set.

        With many documents there are three folds. The default grid is `SIZED_GRID` if only so many features are wanted
        (`at_most`); otherwise, with several classes, two thirds of it are dropped in the middle of the first pass.
        """
        changed: dict[str, Any] = {}
        if "folds" not in self.model_fields_set and store.n_rows >= defaults.MANY_DOCUMENTS:
            changed["folds"] = 3
        if "algorithms" in self.model_fields_set:
            return self.model_copy(update=changed)
        small = store.n_outputs * store.n_features <= defaults.HALVED_WEIGHTS
        if isinstance(self.select, AtMost):
            changed["algorithms"] = defaults.SIZED_GRID
        elif store.n_outputs > 1 and small and not self.model_fields_set & {"halving", "patience"}:
            changed["halving"] = Halving(factor=3, rungs=(0.5,))
        return self.model_copy(update=changed)

    def _default_loss(self, store: "Store") -> str:
        if store.manifest.labels.kind == "numbers":
            return "squared"
        for loss in defaults.DEFAULT_LOSSES:
            if all(loss in find_algorithm(name).loss_names for name in self.algorithms):
                return loss
        raise InputError(
            f"No default loss is defined for all of {', '.join(self.algorithms)}: set one with --loss.",
            code="unsupported-combination",
        )

    def configurations(self) -> list[Configuration]:
        """Every configuration, numbered from 0: weightings, algorithms as listed, the grid's product or random draw.

        Raises `InputError` for an unknown algorithm or parameter, or a value out of its range.
        """
        from sparseoco.learners.penalties import find_penalty  # loads numba
        from sparseoco.training.grid import expand

        found = []
        for weighting, (name, grid) in product(self.features.weightings, self.algorithms.items()):
            algorithm = find_algorithm(name).under(find_penalty(self.penalty))
            scale = (self.lambda_max or {}).get(weighting.label, {}).get(name, 1.0)
            parts, own_grid = [1], dict(grid)
            if algorithm.online:
                parts, own_grid = part_counts(algorithm, grid), learner_parameters(grid)
            numbers = numeric_grid(name, own_grid, self.penalty, scale)
            if self.samples is None:
                check_grid(name, numbers)
                chosen: Grid = numbers
            else:
                chosen = draw(numbers, self.samples, self.seed)
            divided: list[dict[str, int]] = [{PARTS: count} if count > 1 else {} for count in parts]
            found += [(name, own | more, weighting) for own in expand(algorithm, chosen) for more in divided]
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
