"""Whether the labels of a store fit what is to be learned from them."""

from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.store.shards import Store
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.validation import output_shape


def check_labels(store: Store) -> None:
    """Raises `InputError` for a store without documents, or whose documents have no labels or all the same."""
    if store.n_rows == 0:
        raise InputError(f"{store.folder} contains no documents: there is nothing to learn from.", code="no-documents")
    if store.n_classes is None:
        return
    if not store.classes:
        raise InputError(f"{store.folder} has no labels: there is nothing to learn.", code="no-labels")
    if len(store.classes) < 2:
        raise InputError(
            f"{store.folder} has one class only ({store.classes[0]}): a classifier needs two.", code="one-class"
        )


def check_loss(options: SearchOptions, store: Store) -> None:
    """Raises `InputError` for a loss or a learner that is not defined for the labels."""
    output_shape(find_loss(options.loss), store.n_classes, multilabel=store.is_multilabel)
    for name in options.algorithms:
        if not find_algorithm(name).online:
            check_single_label(store, f"{name}, which makes many passes over the same rows,")


def check_single_label(store: Store, what: str) -> None:
    """Raises `InputError` for documents with any number of labels, which `what` does not take."""
    if store.is_multilabel:
        raise InputError(
            f"{what} takes one label per document, and those of {store.folder} have any number.",
            code="unsupported-combination",
        )
