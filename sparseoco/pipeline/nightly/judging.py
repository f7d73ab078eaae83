"""Looking at a night's documents before they are learned: what the model that serves makes of them, how many words are
new. And leaving the model of a candidate. Both are Dask tasks that leave files named by what they depend on.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, get_worker

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.execution.pool import TaskPool
from sparseoco.search.increments import learner_after, night_store
from sparseoco.search.training import describe_block, is_there
from sparseoco.storage.commit import commit_checksummed, digest_value, read_checksummed
from sparseoco.storage.locations import Location, location
from sparseoco.store.cache import end_with_worker
from sparseoco.store.corpus import open_corpus
from sparseoco.store.manifest import read_manifest
from sparseoco.store.shards import Store
from sparseoco.training.block import Block
from sparseoco.training.learner import Learner
from sparseoco.training.model import STATE, Model, write_model
from sparseoco.training.warm_start import Origin, take_weights

CHUNK_ROWS = 4096


class Look(NamedTuple):
    """A night before it is learned: words counted, and what the model that served then lost and got wrong.

    `words` is a number of occurrences, or the sum of the values where features have values; the rest is None where no
    model served.
    """

    words: float
    error: float | None
    loss: float | None


def look(client: Client, store: Location, version: int, champion: Location | None, folder: Location) -> Look:
    """Look at a night; what is found is kept in `folder`. Raises `SparseocoError` if it cannot be done."""
    served = None if champion is None else _opened(champion).description["learner_sha256"]
    name = digest_value([night_store(store, version).manifest.digest, served])[:32]
    target = folder / f"{name}.json"
    found = _found(target)
    if found is None:
        model = None if champion is None else str(champion.resolve())
        arguments = version, model, str(store.resolve()), str(target.resolve())
        TaskPool(client, "The new documents could not be evaluated").call(_look_on_worker, *arguments)
        found = Look(**read_checksummed(target))
    return found


def _found(target: Location) -> Look | None:
    """What was found by an earlier run, unless it is damaged."""
    with suppress(DamagedError):
        return Look(**read_checksummed(target))
    return None


def _opened(champion: Location) -> Model:
    """The model that serves. Raises `SparseocoError`, saying how another comes to serve."""
    try:
        return Model(champion)
    except (InputError, DamagedError) as error:
        raise SparseocoError(
            f"{error} Let another night's model serve: sparseoco nightly RUN_FILE --serve NIGHT."
        ) from error


def leave_model(
    client: Client,
    block: Block,
    store: Location,
    states: Location,
    model: Location,
    seed: int,
    curve: Sequence[dict[str, Any]],
) -> None:
    """Leave the model that a block of one configuration came to at the end of its night in the folder `model`.

    Raises `SparseocoError` if it cannot be done.
    """
    if is_there(model, block.digest, block.setting.epochs):
        return
    places = [str(place.resolve()) for place in (store, states, model)]
    arguments = block.model_dump(mode="json"), seed, list(curve), *places
    TaskPool(client, "The model could not be written").call(_model_on_worker, *arguments)


def _look_on_worker(version: int, champion: str | None, store: str, target: str) -> None:
    night = night_store(location(store), version)
    corpus = open_corpus(night, Path(get_worker().local_directory))
    learner = None
    if champion is not None:
        learner = _served(location(champion), night)
    words = 0.0
    losses, errors = np.zeros(1), np.zeros(1, np.int64)
    for start in range(0, night.n_rows, CHUNK_ROWS):
        end_with_worker()
        indptr, indices, counts, labels = corpus.rows(start, min(start + CHUNK_ROWS, night.n_rows))
        words += float(counts.sum(dtype=np.float64))
        if learner is not None:
            learner.evaluate(indptr, indices, counts, labels, losses, errors)
    rows = max(night.n_rows, 1)
    judged = {} if learner is None else {"error": int(errors[0]) / rows, "loss": float(losses[0]) / rows}
    commit_checksummed(location(target), {"words": words, "error": None, "loss": None} | judged)


def _served(champion: Location, night: Store) -> Learner:
    """The learner of the model that serves; from its weights, where its state is damaged or of another version."""
    try:
        return Learner.load(champion / STATE, n_features=night.n_features)
    except DamagedError:
        described = Model(champion).description
        learner = Learner(
            described["algorithm"],
            loss=described["loss"],
            penalty=described["penalty"],
            grid=[described["parameters"]],
            n_features=night.n_features,
            n_classes=max(2, len(night.classes)),
            dtype=described["dtype"],
        )
        take_weights(Origin.of(champion), learner, night)
        return learner


def _model_on_worker(
    description: dict[str, Any], seed: int, curve: list[dict[str, Any]], store: str, states: str, model: str
) -> None:
    block = Block.model_validate(description)
    night = block.setting.night
    assert night is not None
    whole = Store(location(store), read_manifest(location(store), night.version))
    learner = learner_after(location(states), block.setting.digest, night.version, block.identities, whole)
    described = describe_block(block) | {"seed": seed, "night": night.version}
    write_model(location(model), learner.weights_of(0), whole, described, curve, learner)
