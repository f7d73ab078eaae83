"""Whether the labels of a store fit what is to be learned from them."""

from collections.abc import Collection

from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.store.shards import Store
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.validation import output_shape

ID_CLASSES, ID_SHARE = 50, 0.9  # classes, per document


def check_labels(store: Store) -> None:
    """Raises `InputError` for a store without documents, or whose labels are none, all the same, or all different."""
    if store.n_rows == 0:
        raise InputError("There are no documents: there is nothing to learn from.", code="no-documents")
    if store.n_classes is None:
        return
    if not store.classes:
        raise InputError("The documents have no labels: there is nothing to learn.", code="no-labels")
    if len(store.classes) < 2:
        raise InputError(
            f"There is one class only ({store.classes[0]}): a classifier needs two; check --label-field and --where.",
            code="one-class",
        )
    counts, options = [entry.rows for entry in store.manifest.labels.classes], store.manifest.options
    if not store.is_multilabel and options.get("classes") is None and are_ids(counts):
        field = options.get("label_field", "label")
        each = "one document each" if max(counts) == 1 else f"{sum(counts):,} documents"
        raise InputError(
            f"Label field {field!r} has {len(counts):,} classes of {each}: it looks like an id; choose another "
            "--label-field (of folders, --label-depth).",
            code="invalid-labels",
        )


def are_ids(counts: Collection[int]) -> bool:
    """Whether classes with these numbers of documents are rather ids of documents."""
    return len(counts) >= ID_CLASSES and len(counts) > ID_SHARE * sum(counts)


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
