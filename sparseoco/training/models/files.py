"""The files of a saved model: written, found, amended.

A model is a folder of Parquet and JSON files that can be read without this package:

model.json        algorithm, parameters, classes, intercepts, calibration, threshold, text options, digests, …
weights.parquet   feature_id, feature, class, weight, count, documents, idf: the nonzero weights, with their names
vocabulary.parquet  see `training.models.features`
learner.npz       for stream learners, the complete state: training can be resumed from it bit for bit
curve.parquet     epoch, rows, progressive loss and error along the stream, nonzeros at the ends of epochs
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

from sparseoco import __version__
from sparseoco.core.errors import InputError, StorageError
from sparseoco.storage.commit import commit_json, digest_file, digest_value, read_json, remove_file
from sparseoco.storage.locations import Location, is_inside, location
from sparseoco.storage.metrics import WEIGHTS, Row, write_result_table
from sparseoco.storage.outputs import FolderKind
from sparseoco.storage.parquet import write_parquet
from sparseoco.storage.validated import read_validated
from sparseoco.store.feature_subset import read_feature_subset
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import TermWeights, term_weights
from sparseoco.store.weighting import Weighting
from sparseoco.training.learner import Learner
from sparseoco.training.models.features import write_vocabulary

STATE = "learner.npz"
PROMOTED = "promoted.json"
"""The file in the folder of nightly runs that names the promoted model."""
MODEL_FOLDER = FolderKind(
    "a model",
    ("model.json",),
    (
        *("weights.parquet", "vocabulary.parquet", "curve.parquet", STATE),
        *("regret.parquet", "columns.parquet", "timings.parquet", "mixture.html"),  # of mixtures
    ),
)
SOURCES = 1000
"""Raw files whose digests a model has, at most."""
CURVE = pa.schema(
    [
        ("epoch", pa.int32()),
        ("rows", pa.int64()),
        ("progressive_loss", pa.float64()),  # mean since the first row
        ("progressive_error", pa.float64()),
        ("nonzeros", pa.int64()),  # at the ends of epochs, elsewhere null
    ]
)


def write_model(
    folder: Location,
    weights: NDArray[Any],
    store: Store,
    description: dict[str, Any],
    curve: Sequence[Row],
    learner: Learner | None = None,
    term_values: TermWeights | None = None,
    intercepts: NDArray[Any] | None = None,
) -> None:
    """Commit a model; `model.json` comes last and has digests of the rest.

    A model of a feature subset (`sparseoco.store.feature_subset`) is written as one of the whole store, with all other
    weights 0; ``features_from`` in its description identifies the subset.

    Parameters
    ----------
    weights : (n_features, outputs).
    description : how it was trained: algorithm, parameters, loss, …
    curve : rows of `CURVE`.
    term_values : how the counts of the store were weighted, by default as the description says.
    intercepts : (outputs,), None without an intercept.
    learner : saved with the model if given. Its state is every slot of every feature, uncompressed: for one float32
        output 4 to 16 bytes per feature, and 8 more for learners with a time stamp per feature.
    """
    features, outputs = np.nonzero(weights)
    values = weights[features, outputs].astype(np.float64)
    weighting = Weighting.model_validate(description.get("weighting", {}))
    term_values = term_values or term_weights(store, weighting)
    idf = pa.array(term_values.idf[features]) if weighting.idf else pa.nulls(features.size, pa.float64())
    subset = read_feature_subset(store.folder)
    if store.manifest.fields:
        description = {**description, "fields": [entry.model_dump(mode="json") for entry in store.manifest.fields]}
    vocabulary = write_vocabulary(folder, store, subset, term_values, features)
    if subset is not None:
        store, features = subset.source, subset.features[features]
        description = {**description, "features_from": subset.description}
    classes = store.classes or ["value"]
    # Two classes share one column of weights: positive margins mean the second.
    names = np.array(classes[-1:] if weights.shape[1] == 1 else classes, dtype=object)
    used, position = np.unique(features, return_inverse=True)
    described = store.describe(used.astype(np.int64)).take(pa.array(position))
    table = pa.Table.from_arrays(
        [
            described["feature"],
            described["term"].cast(pa.string()),
            pa.array(names[outputs], pa.string()),
            pa.array(values),
            described["count"],
            described["documents"],
            idf,
        ],
        schema=WEIGHTS,
    )
    write_parquet(folder / "weights.parquet", table)
    write_result_table(folder / "curve.parquet", curve, CURVE)
    state: dict[str, Any] = {}
    if learner is not None:
        learner.save(folder / STATE)
        state = {"rounds": learner.rounds, "learner_sha256": digest_file(folder / STATE)}
    else:
        remove_file(folder / STATE)  # of a model that is replaced
    provenance = {
        "sparseoco": __version__,
        "store": store.manifest.digest,
        "rows": store.n_rows,
        "sources": store.manifest.n_sources,
        "sources_sha256": digest_value(store.sources.table["sha256"].to_pylist()),
        "source_digests": source_digests(store),
    }
    commit_json(
        folder / "model.json",
        {
            **description,
            **vocabulary,
            **state,
            "weighting": weighting.model_dump(mode="json"),
            "intercept": None if intercepts is None else intercepts.astype(np.float64).tolist(),
            "classes": store.classes,
            "labels": store.manifest.labels.kind,
            "positive_class": store.classes[description.get("positive", 1)] if len(store.classes) == 2 else None,
            "features": {
                key: value for key, value in store.manifest.features.model_dump(mode="json").items() if key != "files"
            },
            "features_sha256": store.features_digest(),
            "nonzeros": len(table),
            "text": store.manifest.options,
            "provenance": provenance,
            "weights_sha256": digest_file(folder / "weights.parquet"),
        },
    )


def source_digests(store: Store) -> list[str]:
    """The `source_digest` of each raw file of a store that is not empty, or of its newest `SOURCES`."""
    return [source_digest(source.bytes, source.sha256) for source in store.sources[-SOURCES:] if source.bytes]


def source_digest(size: int, sha256: str) -> str:
    """Identifies the content of a raw file: its size and the first 16 digits of its SHA-256."""
    return f"{size}-{sha256[:16]}"


class PromotedModel(TypedDict):
    """What promoted.json says of the deployed model, one of the folder models/."""

    model: Annotated[str, Field(pattern=r"^models/[0-9]{8,}$")]


def find_model(folder: str | Location) -> Location:
    """The model's folder: `folder` itself, the model of a run in it, or the promoted model of nightly runs.

    Raises `InputError` if there is none, `StorageError` if promoted.json is corrupt or names one outside the folder.
    """
    folder = location(folder)
    found = folder
    if not (folder / "model.json").exists():
        if (folder / PROMOTED).exists():
            found = folder / read_validated(folder / PROMOTED, PromotedModel)["model"]
            if not is_inside(found, folder):
                raise StorageError(
                    f"{folder / PROMOTED} names a model outside its folder, through a link: run `sparseoco nightly` "
                    "again.",
                    code="outside-folder",
                )
        else:
            found = folder / "model"
    if not (found / "model.json").exists():
        raise _no_model(folder)
    return found


def _no_model(folder: Location) -> InputError:
    """The error of a folder without a model, which names a model nearby or the reason, if it can."""
    message = f"{folder} is not a model: it has no model.json."
    if (folder / "run.json").exists():
        message = f"{folder} has no model yet, because its run is not complete: run the same command again."
    elif isinstance(folder, Path):
        near = [path for parent in (folder.parent, folder.parent.parent) for path in (parent, parent / "model")]
        found = next((path for path in near if (path / "model.json").exists()), None)
        if found is not None:
            message = f"{folder} is not a model; did you mean {found}?"
        elif not folder.exists():
            message = f"{folder} does not exist: name the folder of a model or of a run."
    return InputError(message, code="missing-model")


def amend_model(folder: Location, entries: dict[str, Any]) -> None:
    """Set entries of the description of a model."""
    described = read_json(folder / "model.json")
    if described != described | entries:
        commit_json(folder / "model.json", described | entries)
