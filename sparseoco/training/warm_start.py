"""Warm starts: training that starts from the state or the weights of a saved model.

The same learner on the same features resumes from the state, bit for bit as one long run. Any other starts from the
weights (`Learner.start_from`), at the model's number of rounds. Weights are matched by the names of classes and of
features, or by ids if both use the same hash.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sparseoco.core.errors import InputError, StorageError
from sparseoco.learners import find_algorithm
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.shards import Store
from sparseoco.store.terms import read_feature_subset
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.learner import Learner
from sparseoco.training.models import STATE, Model, find_model


class Origin(BaseModel):
    """The model that a run starts from: its path, and the SHA-256 of its model.json, which has digests of the rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    sha256: str

    @classmethod
    def of(cls, folder: str | Location) -> "Origin":
        """The model that `find_model` finds in a folder. Raises `InputError` if there is none."""
        path = find_model(folder).resolve()
        return cls(model=str(path), sha256=digest_file(path / "model.json"))

    def open(self) -> Model:
        """Open the model. Raises `StorageError` if it has been replaced."""
        path = location(self.model)
        if digest_file(path / "model.json") != self.sha256:
            raise StorageError(
                f"{path} was replaced while a run was starting from it: run again.", code="model-replaced"
            )
        return Model(path)


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
    if "learner_sha256" in model.description and model.classes == store.classes and _same_features(model, store):
        path = model.folder / STATE
        if not path.exists() or digest_file(path) != model.description["learner_sha256"]:
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
        raise InputError(
            f"{model.folder} is of labels of the kind {model.label_kind}, and {store.folder} has "
            f"{store.manifest.labels.kind}: one cannot start from the other.",
            code="unsupported-combination",
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
