"""Beginning where a saved model left off: from its learner's whole state, or from its weights.

A learner of the same kind on the same features goes on from the state, bit for bit as one long run. Any other begins
from the weights, found by the names of features (by their ids where both were hashed alike) and of classes, at the
round the model had come to: `Learner.start_from`.
"""

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
from sparseoco.store.feature_subset import kept_features
from sparseoco.store.shards import Store
from sparseoco.training.learner import Learner
from sparseoco.training.model import STATE, Model, promoted_in


class Origin(BaseModel):
    """The model that a run begins from: where it is, and the SHA-256 of its model.json, which vouches for the rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    sha256: str

    @classmethod
    def of(cls, folder: str | Location) -> "Origin":
        """The model in a folder, or that nightly runs there have promoted. Raises `InputError` if there is none."""
        path = promoted_in(location(folder)).resolve()
        if not (path / "model.json").exists():
            raise InputError(f"{folder} is not a model to begin from: it has no model.json.")
        return cls(model=str(path), sha256=digest_file(path / "model.json"))

    def open(self) -> Model:
        """The model. Raises `StorageError` if it is another one by now."""
        path = location(self.model)
        if digest_file(path / "model.json") != self.sha256:
            raise StorageError(f"{path} was replaced while a run was beginning from it; run again.")
        return Model(path)


def check_origin(origin: Origin, store: Store) -> None:
    """Raises `InputError` if what the model knows has no meaning in the store."""
    model = origin.open()
    _columns_of_classes(model, store)
    _check_features(model, store)


def go_on(origin: Origin, learner: Learner, store: Store) -> tuple[Learner, dict[str, Any]]:
    """`learner`, which is new and of one configuration, as the model's own learner left off, or from its weights.

    Gives what was taken over too: ``state``, and the numbers of weights that the model has and that were found. Raises
    as `check_origin`, `StorageError` for files that are damaged.
    """
    model = origin.open()
    taken = {"model_sha256": origin.sha256, "weights": len(model.table), "found": len(model.table), "state": True}
    if "learner_sha256" in model.description and model.classes == store.classes and _same_features(model, store):
        saved = _saved_learner(model, store.n_features)
        if saved.description == learner.description:
            return saved, taken
    return learner, taken | {"state": False, "found": take_weights(origin, learner, store)}


def take_weights(origin: Origin, learner: Learner, store: Store) -> int:
    """Let every configuration of `learner`, which is new, begin from the model's weights; gives how many were found.

    Raises as `check_origin`, and `InputError` if not one feature is known.
    """
    model = origin.open()
    columns = _columns_of_classes(model, store)
    features = _features_in(model, store)
    found = features >= 0
    if len(found) and not found.any():
        raise InputError(
            f"None of the features of {model.folder} is one of those to be learned: there is nothing to take."
        )
    names = model.table["class"].combine_chunks().dictionary_encode()
    values = model.table["weight"].to_numpy()
    weights = np.zeros((store.n_features, learner.n_outputs), learner.dtype)
    for code, name in enumerate(names.dictionary.to_pylist()):
        own = found & (names.indices.to_numpy() == code)
        for column, sign in columns[name]:
            weights[features[own], column] = sign * values[own]
    learner.start_from(weights, _rounds(model))
    return int(found.sum())


def _saved_learner(model: Model, n_features: int) -> Learner:
    path = model.folder / STATE
    if not path.exists() or digest_file(path) != model.description["learner_sha256"]:
        raise StorageError(f"{path} is missing or damaged: it is not the one the model was saved with.")
    return Learner.load(path, n_features=n_features)


def _rounds(model: Model) -> int:
    """Rounds the model had come to; one without a state was trained from nothing."""
    described = model.description
    rounds: int = described.get("rounds", described["provenance"]["rows"] * described.get("epochs", 1))
    return max(1, rounds)


def _columns_of_classes(model: Model, store: Store) -> dict[str, list[tuple[int, float]]]:
    """By class of the model's table: the columns of the store's classes that its weights go to, with their signs.

    One column for two classes speaks for the second of them and, with the other sign, for the first.
    """
    if not model.classes:
        raise InputError(f"{model.folder} predicts numbers: classes cannot begin from it.")
    places = {name: place for place, name in enumerate(store.classes)}
    for name in model.classes:
        if name not in places:
            raise InputError(
                f"{model.folder} knows a class {name!r} that {store.folder} has not: it has {', '.join(store.classes)}."
            )
    if model.outputs > 1:
        return {name: [(places[name], 1.0)] for name in model.classes}
    first, second = model.classes
    if len(store.classes) > 2:
        return {second: [(places[second], 1.0), (places[first], -1.0)]}
    return {second: [(0, 1.0 if places[second] == 1 else -1.0)]}


def _check_features(model: Model, store: Store) -> None:
    there, here = model.description["features"], store.manifest.features.model_dump(mode="json")
    if there["kind"] != here["kind"]:
        kinds = {"hashed": "hashed features", "vocabulary": "a vocabulary"}
        raise InputError(
            f"{model.folder} has {kinds[there['kind']]} and {store.folder} {kinds[here['kind']]}: its weights cannot "
            "be found there. Ingest with the same choice of --hash-bits."
        )
    if there["kind"] == "hashed":
        for option in ("hash_bits", "hash_seed"):
            if there[option] != here[option]:
                raise InputError(
                    f"{model.folder} was hashed with {option}={there[option]} and {store.folder} with "
                    f"{option}={here[option]}: a feature of one is not one of the other."
                )


def _same_features(model: Model, store: Store) -> bool:
    """Whether feature i was the same one for the model's learner as it is in the store.

    A store whose vocabulary has grown since may have more after them, unless the learner touches all in every round.
    """
    kept, described = kept_features(store.folder), model.description
    if kept is None:
        had = int(described["features"]["count"])
        if had != store.n_features and find_algorithm(described["algorithm"]).driver == "dense":
            return False
        there = store.features_digest(had), None
    else:
        there = kept.source.features_digest(), kept.description["features_sha256"]
    return there == (described.get("features_sha256"), described.get("features_from", {}).get("features_sha256"))


def _features_in(model: Model, store: Store) -> NDArray[np.int64]:
    """The store's id of the feature of each weight, −1 where it has none."""
    kept = kept_features(store.folder)
    if kept is not None:
        return kept.subset_ids(_features_in(model, kept.source))
    _check_features(model, store)
    if store.manifest.features.kind == "hashed":
        return np.asarray(model.table["feature_id"].to_numpy(), np.int64)
    terms = store.vocabulary()["term"].cast(pa.large_string())
    found = pc.index_in(model.table["feature"].cast(pa.large_string()), value_set=terms.combine_chunks())
    return np.asarray(found.fill_null(-1).to_numpy(), np.int64)
