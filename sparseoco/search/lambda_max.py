"""Grids relative to λ_max: the numbers by which they are multiplied, one for each weighting."""

from distributed import Client

from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.cluster.lambda_max import lambda_max
from sparseoco.store.shards import Store
from sparseoco.training.options import SearchOptions


def resolve_relative(client: Client, store: Store, options: SearchOptions) -> SearchOptions:
    """The options with λ_max of a store, for each of their weightings.

    α, which weights the penalty of the sum of all losses, is relative to n·λ_max for n rows. Raises `SparseocoError` if
    a task fails.
    """
    grouped = find_penalty(options.penalty).grouped
    found = {}
    for weighting in options.features.weightings:
        largest = lambda_max(client, store, weighting, options.loss, grouped=grouped)
        found[weighting.label] = {"lam": largest, "alpha": store.n_rows * largest}
    return options.model_copy(update={"lambda_max": found})
