"""How good a saved model is on text it has not learned from."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.text.readers import read_documents
from sparseoco.training.model import Model


def evaluate_model(
    model: Model, inputs: Sequence[str], where: dict[str, str], progress: ProgressCallback
) -> dict[str, Any]:
    """Predict labelled text and compare: error, what guessing the largest class would err, and figures a class.

    Raises `InputError` if nothing was read, and for bad rows, such as those whose label is not one of the model's
    classes, beyond those that may be.
    """
    if not model.classes:
        raise InputError(f"{model.folder} predicts numbers: evaluation compares classes.")
    options = model.text.model_copy(update={"where": where}).with_classes(model.classes)  # labels are class names
    number = {name: i for i, name in enumerate(model.classes)}
    truth: list[int] = []
    guesses: list[int] = []
    for batch in read_documents(inputs, options):
        labels: Any = batch.labels
        if labels is None:
            raise InputError("Plain lines of text have no labels to compare with: evaluate needs labelled documents.")
        truth += [number[label] for label in labels.to_pylist()]
        guesses += [number[guess] for guess in model.predict(batch)]
        progress("evaluate", len(truth), 0)
    if not truth:
        raise InputError("There is nothing to evaluate: no document was read (is --where right?).")
    return _compare(model.classes, np.array(truth), np.array(guesses)) | {"inputs": list(inputs), "where": where}


def _compare(classes: list[str], truth: Any, guesses: Any) -> dict[str, Any]:
    # Imported where it is used: it takes most of a second, and every worker imports this module.
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    labels = list(range(len(classes)))
    precision, recall, f1, support = precision_recall_fscore_support(truth, guesses, labels=labels, zero_division=0.0)
    return {
        "rows": int(truth.size),
        "error": float(np.mean(truth != guesses)),
        "majority_error": 1 - float(np.bincount(truth).max() / truth.size),
        "classes": [
            {
                "name": name,
                "rows": int(support[i]),
                "precision": float(precision[i]),
                "recall": float(recall[i]),
                "f1": float(f1[i]),
            }
            for i, name in enumerate(classes)
        ],
        "confusion": confusion_matrix(truth, guesses, labels=labels).tolist(),
    }
