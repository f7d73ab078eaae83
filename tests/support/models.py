"""Models of given weights, and of random ones on the words of small texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.models import Model, write_model
from tests.support.ingests import jsonl, random_texts

SUBLINEAR = {"tf": "log", "idf": True, "norm": "l2"}


def dense_weights(model: Model, n_features: int) -> np.ndarray:
    """(n_features, outputs), 0 where a model has no weight."""
    weights = np.zeros((n_features, model.outputs))
    weights[model.feature_ids] = model.weights
    return weights


def model_with(folder: Path, store: Store, weights: Mapping[int, float], **description: Any) -> Model:
    """A model of one output with these weights, by feature."""
    column = np.zeros((store.n_features, 1))
    column[list(weights), 0] = list(weights.values())
    write_model(folder, column, store, {"algorithm": "none", "parameters": {}} | description, [])
    return Model(folder)


def random_model(
    folder: Path, *, classes: int = 2, seed: int = 0, weighting: dict[str, Any] | None = None, **description: Any
) -> Model:
    """A model at `folder` of the n-grams of random texts, with the classes a, b, …; none with labels="numbers"."""
    text = {name: description.pop(name) for name in list(description) if name in TextOptions.model_fields}
    folder.mkdir(parents=True)
    kind = text.get("labels", "classes")
    names = "abcdefgh"[:classes]
    labels = {
        "classes": lambda k: names[k % classes],
        "multi": lambda k: list(names[: k % (classes + 1)]),
        "numbers": lambda k: 0.5 * k,
    }
    (folder / "train.jsonl").write_bytes(jsonl(random_texts(60, seed), label=labels[kind]))
    options = TextOptions.of({"ngram_range": (1, 2), "min_df": 2} | text)
    ingest([str(folder / "train.jsonl")], folder / "shards", options)
    store = Store.open(folder / "shards")
    random = np.random.default_rng(seed)
    outputs = classes if kind == "multi" or classes > 2 else 1
    weights = random.normal(0, 1, (store.n_features, 1 if kind == "numbers" else outputs))
    weights[random.random(weights.shape) < 0.3] = 0.0
    described = {"algorithm": "none", "parameters": {}, "loss": "squared" if kind == "numbers" else "logistic"}
    described |= {"weighting": SUBLINEAR if weighting is None else weighting} | description
    write_model(folder / "model", weights, store, described, [], intercepts=random.normal(0, 1, weights.shape[1]))
    return Model(folder / "model")
