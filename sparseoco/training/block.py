"""Settings with their starts and folds, blocks of configurations, and the cells with their results.

A block is a group of configurations of one algorithm that share a stream. It belongs to a fold, which is held out: its
rows are only predicted, all others are predicted and learned. The results at a milestone of the stream are a cell: a
JSON file named by the setting, the block and the position. They are looked up by setting, configuration and position,
so they do not depend on how configurations were grouped.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal, NotRequired, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, StorageError, unsupported
from sparseoco.core.logs import log_event
from sparseoco.core.option_models import OptionModel
from sparseoco.learners import add_source, find_algorithm, learner_source, takes_intercept
from sparseoco.learners.numerics import mix
from sparseoco.storage import commit
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import Row
from sparseoco.store.corpus import Corpus
from sparseoco.store.manifest import ClassEntry, Record
from sparseoco.store.shards import Store
from sparseoco.store.terms import grouped_features, read_feature_subset, read_group_table
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training import stream
from sparseoco.training.learner import Learner
from sparseoco.training.models import STATE, Model, find_model
from sparseoco.training.options import FIELD, PROGRESSIVE, Configuration, SearchOptions, configuration_id, parts_of
from sparseoco.training.search_tables import CURVES, FEATURE_SURVIVAL, METRICS_SCHEMA
from sparseoco.training.stream import NO_FOLD, Order, Passes, StreamPosition
from sparseoco.training.validation import chunk_rows

Tables = dict[str, list[Row]]
"""Rows of the tables of a search (see `training.search_tables`) for a configuration in a fold, without their keys."""

Key = tuple[int, str]
"""A configuration in a fold: the number of the fold and the identity of the configuration."""


class Origin(Record):
    """The model that a run starts from: its path, and the SHA-256 of its model.json, which has digests of the rest."""

    model: str
    sha256: str

    @classmethod
    def of(cls, folder: str | Location) -> "Origin":
        """The model that `find_model` finds in a folder. Raises `InputError` if there is none."""
        path = find_model(folder).resolve()
        return cls(model=str(path), sha256=commit.digest_file(path / "model.json"))

    def open(self) -> Model:
        """Open the model. Raises `StorageError` if it has been replaced."""
        path = location(self.model)
        _check_digest(path / "model.json", self.sha256)
        return Model(path)


def _check_digest(path: Location, sha256: str) -> None:
    """Raises `StorageError` if a file is no longer the one that was pinned by its digest."""
    if commit.digest_file(path) != sha256:
        raise StorageError(f"{path} was replaced while a run was using it: run again.", code="model-replaced")


class FeatureGroups(Record):
    """The groups of features of a penalty: `FIELD`, or the path of a table and the SHA-256 of its bytes."""

    source: str
    sha256: str

    @classmethod
    def of(cls, option: str | None) -> "FeatureGroups | None":
        """Those of an option. Raises `StorageError` for a table that cannot be read."""
        if option is None or option == FIELD:
            return None if option is None else cls(source=FIELD, sha256=FIELD)
        path = location(option).resolve()
        return cls(source=str(path), sha256=commit.digest_file(path))

    def check(self, store: Store) -> None:
        """Raises `InputError` if the store has no terms or, for `FIELD`, one field, or the table has other columns."""
        if store.manifest.features.kind == "hashed":
            message = f"{store.folder} has hashed features: the terms in groups are not known."
            raise InputError(message, code="hashed-features")
        if self.source == FIELD and len(store.manifest.fields) < 2:
            raise unsupported(f"The features of {store.folder} are of one field: there are no groups of them.")
        if self.source != FIELD:
            read_group_table(location(self.source))

    def read(self, store: Store) -> NDArray[np.int64]:
        """(n_features,): the group of each feature. Raises `StorageError` if the table was replaced."""
        if self.source == FIELD:
            return grouped_features(store, None)
        path = location(self.source)
        _check_digest(path, self.sha256)
        return grouped_features(store, read_group_table(path))

    def described(self, store: Store, weights: NDArray[Any]) -> dict[str, Any]:
        """For the description of a model: how many groups there are, have one feature, and have a nonzero weight."""
        groups = np.unique(self.read(store), return_inverse=True)[1]  # of chosen features there may be none
        sizes, nonzero = np.bincount(groups), np.bincount(groups, weights.any(axis=1))
        counts = {"groups": sizes.size, "single": np.sum(sizes == 1), "kept": np.count_nonzero(nonzero)}
        return {"sha256": self.sha256} | {name: int(count) for name, count in counts.items()}


class Increment(OptionModel):
    """The rows that a version of a store added, learned after those of the version before."""

    version: int
    previous: str | None
    """Digest of the setting of the previous increment, whose final state is the start of this one."""


class Setting(OptionModel):
    """Everything that determines a result at a position, except the configuration.

    Its digest excludes the number of epochs, since an epoch does not depend on later ones, and the path of the model
    that configurations start from, which is identified by its contents.
    """

    manifest: str
    """Digest of the store's manifest."""
    loss: str
    penalty: str
    dtype: str
    fold: int
    """The held-out fold; −1 for none."""
    folds: int
    folds_by: Literal["group", "time"] | None = None
    epochs: int
    seed: int
    range_rows: int
    """The order of the stream, see `sparseoco.training.stream`."""
    positive: int = 1
    """Index of the positive one of two classes, to which metrics refer."""
    evaluate_rungs: bool = False
    """Whether held-out rows are evaluated at rungs of successive halving, too."""
    progressive_metrics: bool = False
    """Whether an increment's metrics are computed from its progressive predictions, beside error and loss."""
    intercept: bool | None = False
    """Whether learners have an intercept; None: those that have room for one."""
    class_weights: tuple[float, ...] | None = None
    """By class, factors of the weights of its rows."""
    origin: Origin | None = None
    increment: Increment | None = None
    feature_groups: FeatureGroups | None = None
    sparseoco: str = __version__

    @property
    def order(self) -> Order:
        """The order of its stream."""
        return Order(self.seed, self.range_rows, self.fold, self.folds)

    @property
    def described(self) -> dict[str, Any]:
        """The values that its digest is computed from."""
        left_out: Any = {"epochs": True, "origin": {"model"}, "feature_groups": {"source"}}
        described = self.model_dump(mode="json", exclude=left_out)
        later = ("increment", "feature_groups")  # without them, digests are those of earlier versions
        return {name: value for name, value in described.items() if name not in later or value is not None}

    @cached_property
    def digest(self) -> str:
        """Equal settings have equal digests."""
        return commit.digest_value(self.described)[:32]


def search_setting(options: SearchOptions, store: Store, fold: int) -> Setting:
    """The setting of all configurations of a search in a fold."""
    return Setting(
        **options.model_dump(include={"loss", "penalty", "dtype", "epochs", "seed", "intercept"}),
        manifest=store.manifest.digest,
        fold=fold,
        folds=options.folds if fold != NO_FOLD else 1,
        folds_by=options.folds_by if fold != NO_FOLD else None,
        range_rows=stream.range_rows_of(options.shuffle, store.n_rows, store.manifest.nonzeros),
        class_weights=resolve_class_weights(options.class_weight, store),
        positive=positive_class(store.manifest.labels.classes, options.positive_class),
        evaluate_rungs=options.halving is not None and options.selection_metric not in PROGRESSIVE,
        origin=None if options.warm_start is None else Origin.of(options.warm_start),
        feature_groups=FeatureGroups.of(options.feature_groups),
    )


def search_settings(options: SearchOptions, store: Store) -> list[Setting]:
    """The settings of a search, one for each fold that is held out in turn, or one without a fold."""
    folds = range(options.folds) if options.folds > 1 else [NO_FOLD]
    return [search_setting(options, store, fold) for fold in folds]


def resolve_class_weights(given: str | Mapping[str, float] | None, store: Store) -> tuple[float, ...] | None:
    """A weight for each class of a store; "balanced": n/(K·n_k) for class k, which has n_k of the n documents.

    Raises `InputError` for a class that does not exist, and where a document does not have exactly one class.
    """
    if given is None:
        return None
    labels = store.manifest.labels
    if labels.kind != "classes":
        raise unsupported("class_weight is for documents that have one class each, not for numbers or several labels.")
    if not isinstance(given, str):
        return stream.named_class_weights(given, [entry.name for entry in labels.classes])
    return stream.balanced_weights([entry.rows for entry in labels.classes])


def positive_class(classes: Sequence[ClassEntry], name: str | None) -> int:
    """The index of the positive one of two classes: the one of this name or, by default, the rarer; on ties the second.

    Raises `InputError` if there is no class of this name, or there are not two.
    """
    if name is None:
        return 0 if len(classes) == 2 and classes[0].rows < classes[1].rows else 1
    names = [entry.name for entry in classes]
    if len(names) != 2 or name not in names:
        raise InputError(
            f"positive_class={name!r} must be one of two classes; the classes are {', '.join(names) or 'numbers'}.",
            code="invalid-positive-class",
        )
    return names.index(name)


# ----------------------------------------------------------------------------------------------------------------------
# Warm starts: training that starts from the state or the weights of a saved model.
#
# The same learner on the same features resumes from the state, bit for bit as one long run. Any other starts from the
# weights (`Learner.start_from`), at the model's number of rounds. Weights are matched by the names of classes and of
# features, or by ids if both use the same hash.


def check_origin(origin: Origin, store: Store, weightings: Sequence[Weighting] = (COUNTS,)) -> None:
    """Raises `InputError` if the model's classes or features do not fit the store, or its weighting is another one."""
    model = origin.open()
    for weighting in weightings:
        if weighting != model.weighting:
            raise InputError(
                f"{model.folder} was trained on other values ({model.weighting.label}) than those of this run "
                f"({weighting.label}): its weights mean something else. Use the same tf, idf and norm.",
                code="weighting-differs",
            )
    _columns_of_classes(model, store)
    _check_features(model, store)


def resume_learner(origin: Origin, learner: Learner, store: Store) -> tuple[Learner, dict[str, Any]]:
    """The model's learner in its saved state if it is equal to `learner`, else `learner` with the model's weights.

    `learner` is new and has one configuration. The second value records whether the ``state`` was used, how many
    ``weights`` the model has and how many were ``found``. Raises `InputError` if the model does not fit, `StorageError`
    for corrupt files.
    """
    model = origin.open()
    taken = {"model_sha256": origin.sha256, "weights": len(model.table), "found": len(model.table), "state": True}
    same = model.description["algorithm"] == learner.algorithm and model.classes == store.classes  # loads no other
    if same and "learner_sha256" in model.description and _same_features(model, store):
        path = model.folder / STATE
        if not path.exists() or commit.digest_file(path) != model.description["learner_sha256"]:
            raise StorageError(
                f"{path} is missing or corrupt: it is not the file that the model was saved with.", code="corrupt-model"
            )
        saved = Learner.load(path, n_features=store.n_features)
        if saved.description == learner.description:
            return saved, taken
    return learner, taken | {"state": False, "found": take_weights(origin, learner, store)}


def take_weights(origin: Origin, learner: Learner, store: Store) -> int:
    """Start every configuration of `learner`, which is new, from the model's weights; returns how many were found.

    Raises `InputError` if the model does not fit the store, or none of its features is known.
    """
    model = origin.open()
    columns = _columns_of_classes(model, store)
    features = _features_in(model, store)
    found = features >= 0
    if len(found) and not found.any():
        raise InputError(
            f"None of the features of {model.folder} is among those of the store: there are no weights to start from.",
            code="no-common-features",
        )
    names = model.table["class"].combine_chunks().dictionary_encode()
    values = model.table["weight"].to_numpy()
    weights = np.zeros((store.n_features, learner.n_outputs), learner.dtype)
    for code, name in enumerate(names.dictionary.to_pylist()):
        own = found & (names.indices.to_numpy() == code)
        for column, sign in columns[name]:
            weights[features[own], column] = sign * values[own]
    intercepts = np.zeros(learner.n_outputs)
    for name, value in zip(model.classes[-model.outputs :] or ["value"], model.intercepts, strict=True):
        for column, sign in columns[name]:
            intercepts[column] = sign * value
    described = model.description
    # A model without a saved state was trained from zero.
    rounds: int = described.get("rounds", described["provenance"]["rows"] * described.get("epochs", 1))
    learner.start_from(weights, max(1, rounds), intercepts if learner.intercept else None)
    return int(found.sum())


def _columns_of_classes(model: Model, store: Store) -> dict[str, list[tuple[int, float]]]:
    """By class of the model: the columns of the store's classes that take its weights, with their signs.

    The one column of two classes is that of the second and, with the opposite sign, of the first.
    """
    if model.label_kind != store.manifest.labels.kind:
        raise unsupported(
            f"{model.folder} is of labels of the kind {model.label_kind}, and {store.folder} has "
            f"{store.manifest.labels.kind}: one cannot start from the other."
        )
    if not model.classes:
        return {"value": [(0, 1.0)]}
    columns = {name: column for column, name in enumerate(store.classes)}
    for name in model.classes:
        if name not in columns:
            raise InputError(
                f"{model.folder} has a class {name!r} that {store.folder} does not have: "
                f"it has {', '.join(store.classes)}.",
                code="unknown-class",
            )
    if model.outputs > 1:
        return {name: [(columns[name], 1.0)] for name in model.classes}
    first, second = model.classes
    if len(store.classes) > 2:
        return {second: [(columns[second], 1.0), (columns[first], -1.0)]}
    return {second: [(0, 1.0 if columns[second] == 1 else -1.0)]}


def _check_features(model: Model, store: Store) -> None:
    theirs, own = model.description["features"], store.manifest.features.model_dump(mode="json")
    if theirs["kind"] != own["kind"]:
        kinds = {"hashed": "hashed features", "vocabulary": "a vocabulary"}
        raise InputError(
            f"{model.folder} has {kinds[theirs['kind']]} and {store.folder} {kinds[own['kind']]}: its weights cannot "
            "be matched. Ingest with the same choice of --hash-bits.",
            code="features-differ",
        )
    if theirs["kind"] == "hashed" and theirs["hash_bits"] != own["hash_bits"]:
        raise InputError(
            f"{model.folder} was hashed with hash_bits={theirs['hash_bits']} and {store.folder} with "
            f"hash_bits={own['hash_bits']}: their features are not the same.",
            code="features-differ",
        )


def _same_features(model: Model, store: Store) -> bool:
    """Whether feature i is the same in the model's learner and in the store.

    A store whose vocabulary has grown may have more features, unless the learner updates all of them in every round.
    """
    subset, described = read_feature_subset(store.folder), model.description
    if subset is None:
        count = int(described["features"]["count"])
        if count != store.n_features and find_algorithm(described["algorithm"]).touches_all_features:
            return False
        digests = store.features_digest(count), None
    else:
        digests = subset.source.features_digest(), subset.description["features_sha256"]
    return digests == (described.get("features_sha256"), described.get("features_from", {}).get("features_sha256"))


def _features_in(model: Model, store: Store) -> NDArray[np.int64]:
    """The store's id of each weight's feature, −1 where it has none."""
    subset = read_feature_subset(store.folder)
    if subset is not None:
        return subset.subset_ids(_features_in(model, subset.source))
    _check_features(model, store)
    if store.manifest.features.kind == "hashed":
        return np.asarray(model.table["feature_id"].to_numpy(), np.int64)
    terms = store.vocabulary()["term"].cast(pa.large_string())
    found = pc.index_in(model.table["feature"].cast(pa.large_string()), value_set=terms.combine_chunks())
    return np.asarray(found.fill_null(-1).to_numpy(), np.int64)


# ----------------------------------------------------------------------------------------------------------------------
# Folds by the group or the time of documents: pure functions of a column of the store, the seed and the fold.
#
# By group, all documents of a group are in one fold. By time, the documents are cut into folds + 1 slices of about
# equal size, equal times together: fold k holds out slice k + 1 and learns from the slices before it, never from later
# ones.


def check_folds(store: Store, by: str | None) -> None:
    """Raises `InputError` if the store does not have the column that folds are assigned by."""
    if by is not None and by not in store.manifest.columns:
        raise InputError(
            f"{store.folder} has no column {by}, by which folds are assigned: ingest the text with {by}_field.",
            code="missing-column",
        )


_bounds: dict[tuple[str, int], NDArray[np.float64]] = {}
"""The last times of slices, by the digest of the store and the number of folds."""


def fold_order(setting: Setting, corpus: Corpus) -> Order:
    """The order of a setting's stream, over the rows of its corpus."""
    if setting.fold == NO_FOLD or setting.folds_by is None:
        return setting.order
    column = corpus.column(setting.folds_by)
    assert column is not None
    if setting.folds_by == "group":
        return setting.order._replace(fold_of=lambda rows: group_folds(column[rows], setting.seed, setting.folds))
    key = setting.manifest, setting.folds
    if key not in _bounds:
        _bounds[key] = slice_bounds(column, setting.folds + 1)
    return setting.order._replace(fold_of=lambda rows: np.searchsorted(_bounds[key], column[rows]) - 1, by_time=True)


def passes_of(setting: Setting, corpus: Corpus, goal: StreamPosition, learner: Learner | None = None) -> Passes:
    """The passes of a setting over its corpus from the start, in chunks that suit the learner if it is given."""
    size = None if learner is None else chunk_rows(learner.algorithm, learner.n_features, learner.n_columns)
    return Passes(fold_order(setting, corpus), goal, class_weights=setting.class_weights, chunk_rows=size)


def group_folds(groups: NDArray[np.int64], seed: int, folds: int) -> NDArray[np.int64]:
    """The fold of each group, 0 … folds − 1: a hash of the group and the seed."""
    with np.errstate(over="ignore"):  # of hashes
        hashes = mix(mix(mix(np.uint64(seed)) ^ np.uint64(3)) ^ groups.astype(np.uint64))
    return np.asarray(hashes % np.uint64(folds)).astype(np.int64)


def slice_bounds(times: NDArray[np.float64], slices: int) -> NDArray[np.float64]:
    """(slices − 1,): the last time of each slice but the last one: the ⌈kn/slices⌉-th smallest for k = 1, 2, …."""
    ranks = np.array([-(-k * len(times) // slices) for k in range(1, slices)])
    return np.asarray(np.partition(times, ranks - 1)[ranks - 1])


# ----------------------------------------------------------------------------------------------------------------------
# Blocks and cells.


class Block(OptionModel):
    """Configurations of one algorithm under one setting. The grouping does not change their results."""

    setting: Setting
    weighting: Weighting = COUNTS
    algorithm: str
    configurations: tuple[dict[str, Any], ...]

    def __getstate__(self) -> dict[Any, Any]:
        """To a worker it takes the place of a learner outside the package with it, which the worker loads."""
        return {**super().__getstate__(), "source": learner_source(self.algorithm)}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        add_source(state.pop("source"))
        super().__setstate__(state)

    @cached_property
    def digest(self) -> str:
        """Equal blocks have equal digests."""
        weighting = self.weighting.model_dump(mode="json")
        return commit.digest_value([self.setting.digest, weighting, self.algorithm, self.configurations])[:32]

    @cached_property
    def identities(self) -> list[str]:
        """The identity of each configuration."""
        return [configuration_id(self.algorithm, parameters, self.weighting) for parameters in self.configurations]

    @property
    def parts(self) -> int:
        """See `parts_of`; all its configurations have as many."""
        return parts_of(self.algorithm, self.configurations[0])

    @property
    def intercept(self) -> bool:
        """Whether its configurations have an intercept."""
        if self.setting.intercept is not None:
            return self.setting.intercept
        return takes_intercept(self.algorithm, self.setting.penalty)

    @property
    def keys(self) -> list[Key]:
        """Its configurations, in its fold."""
        return [(self.setting.fold, name) for name in self.identities]

    def select(self, configurations: Sequence[dict[str, Any]]) -> "Block":
        """The same block with these configurations only."""
        values = {"setting": self.setting, "weighting": self.weighting, "algorithm": self.algorithm}
        return Block(**values, configurations=tuple(configurations))

    @classmethod
    def of(cls, setting: Setting, configurations: Sequence[Configuration]) -> "Block":
        """A block of configurations that have the algorithm and the weighting in common."""
        first = configurations[0]
        parameters = tuple(configuration.parameters for configuration in configurations)
        return cls(setting=setting, weighting=first.weighting, algorithm=first.algorithm, configurations=parameters)


def cell_path(folder: Location, block: Block, position: StreamPosition) -> Location:
    """The path of a block's results at a position."""
    return folder / f"{block.setting.digest}-{block.digest}-{position.epoch}-{position.position}.json"


def write_cell(path: Location, block: Block, position: StreamPosition, tables: Sequence[Tables]) -> None:
    """Commit the tables of each configuration of a block at a position."""
    key = {"algorithm": block.algorithm, "weighting": block.weighting.model_dump(mode="json")}
    results = [
        key | {"parameters": parameters, "tables": rows}
        for parameters, rows in zip(block.configurations, tables, strict=True)
    ]
    commit.commit_json(path, {"setting": block.setting.described, "position": list(position), "results": results})


@commit.with_other_keys
class TimingRow(TypedDict):
    """The time that a column took of an epoch."""

    epoch: commit.Count
    seconds: Annotated[float, Field(ge=0, lt=1e12)]


@commit.with_other_keys
class CellTables(TypedDict):
    """The rows that a cell adds to the tables of a search."""

    metrics: Annotated[list[commit.row_shape(METRICS_SCHEMA)], Field(min_length=1)]  # type: ignore[valid-type]
    curves: NotRequired[list[commit.row_shape(CURVES)]]  # type: ignore[valid-type]
    feature_survival: NotRequired[list[commit.row_shape(FEATURE_SURVIVAL)]]  # type: ignore[valid-type]
    timings: NotRequired[list[TimingRow]]


@commit.with_other_keys
class CellResult(TypedDict):
    """What a cell has of one configuration: rows of tables."""

    algorithm: str
    parameters: dict[str, Any]
    weighting: Weighting
    tables: CellTables


@commit.with_other_keys
class Cell(TypedDict):
    """The content of a cell: the setting of a block, the (epoch, position) of a milestone, and results there."""

    setting: dict[str, Any]
    position: tuple[commit.Count, commit.Count]
    results: list[CellResult]


def read_cells(paths: Sequence[Location]) -> Iterator[tuple[Location, Cell | None]]:
    """(path, content) of cells, None for corrupt ones and those of another version. Raises `StorageError`."""
    for path, data in zip(paths, commit.read_files(paths), strict=True):
        cell = None
        with suppress(DamagedError):
            cell = commit.validated(path, commit.parse_json(path, data), Cell)
        yield path, cell


class Cells:
    """The results in a folder under some settings, by digest of the setting, configuration and position."""

    def __init__(self, folder: Location, settings: Iterable[str]) -> None:
        self._folder = folder
        self._settings = set(settings)
        self._read: set[str] = set()
        self._found: dict[tuple[str, str], dict[StreamPosition, Tables]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read new cells, and remove corrupt ones, which are computed again. Raises `StorageError`."""
        paths = [path for path in sorted(self._folder.glob("*.json")) if path.name not in self._read]
        for path, cell in read_cells([path for path in paths if path.name.partition("-")[0] in self._settings]):
            setting, _, *numbers = path.stem.split("-")
            position = StreamPosition(*map(int, numbers))
            if cell is None or tuple(cell["position"]) != position:  # or it is that of another position
                log_event("search", "corrupt result removed", level=logging.WARNING, file=path.name)
                commit.remove_file(path)
                continue
            self._read.add(path.name)
            for result in cell["results"]:
                name = configuration_id(result["algorithm"], result["parameters"], result["weighting"])
                self._found.setdefault((setting, name), {})[position] = cast(Tables, result["tables"])

    def __len__(self) -> int:
        """Number of (fold, configuration) pairs with a result."""
        return len(self._found)

    def at(self, setting: str, configuration: str, position: StreamPosition) -> Tables | None:
        """The tables of a configuration at a position; None if there are none."""
        return self._found.get((setting, configuration), {}).get(position)

    def last(self, setting: str, configuration: str, epoch: int) -> Tables | None:
        """The tables of a configuration at its last position in an epoch; None if there are none."""
        found = self._found.get((setting, configuration), {})
        position = max((position for position in found if position.epoch == epoch), default=None)
        return None if position is None else found[position]
