"""The metrics of an evaluation are scikit-learn's."""

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from sparseoco.training.metrics import classification_metrics


def test_metrics_equal_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    for n_classes in (2, 3, 7):
        truth, predicted = random.integers(0, n_classes, (2, 200))
        predicted[predicted == n_classes - 1] = 0  # a class that is never predicted
        truth[truth == 1] = 0  # and one without documents
        labels = list(range(n_classes))
        confusion = confusion_matrix(truth, predicted, labels=labels)
        found = classification_metrics([f"c{k}" for k in labels], confusion)
        expected = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0.0)
        for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
            assert [row[name] for row in found["classes"]] == values.tolist()
        assert found["error"] == np.mean(truth != predicted)
        assert found["majority_error"] == 1 - np.bincount(truth).max() / 200
        assert found["confusion"] == confusion.tolist()
