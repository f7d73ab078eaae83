"""Grids relative to λ_max: the numbers by which they are multiplied, for each weighting and algorithm."""

from distributed import Client

from sparseoco.learners import takes_intercept
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.cluster.lambda_max import lambda_max
from sparseoco.store.shards import Store
from sparseoco.training.block import resolve_class_weights
from sparseoco.training.options.search import SearchOptions


def resolve_relative(client: Client, store: Store, options: SearchOptions) -> SearchOptions:
    """The options with λ_max of a store for each of their weightings, with an intercept where the learner has one.

    α, which weights the penalty of the sum of all losses, is relative to n·λ_max for n rows. Raises `SparseocoError` if
    a task fails.
    """
    grouped = find_penalty(options.penalty).grouped
    weights = resolve_class_weights(options.class_weight, store)
    found: dict[str, dict[str, float]] = {}
    for weighting in options.features.weightings:
        by_intercept: dict[bool, float] = {}
        own = found[weighting.label] = {}
        for name, parameter in options.relative_parameters.items():
            intercept = takes_intercept(name, options.penalty) if options.intercept is None else options.intercept
            if intercept not in by_intercept:
                flags = {"grouped": grouped, "intercept": intercept}
                by_intercept[intercept] = lambda_max(client, store, weighting, options.loss, weights, **flags)
            own[name] = by_intercept[intercept] * (store.n_rows if parameter == "alpha" else 1)
    return options.model_copy(update={"lambda_max": found})
