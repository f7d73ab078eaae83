"""From a grid of parameters to a list of configurations."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from sparseoco.core.errors import InputError
from sparseoco.learners.contract import Algorithm

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def expand(algorithm: Algorithm, grid: Grid | None) -> list[dict[str, Any]]:
    """The configurations of a grid, each with every parameter checked and its defaults filled in.

    A mapping of parameters to values gives the product of the values: the first parameter in the learner's definition
    varies slowest, whatever the order of the mapping, and a single value is a list of one. A sequence of mappings is
    a list of configurations. Raises `InputError` naming the parameter that is unknown, empty or out of range.
    """
    if grid is None:
        grid = {}
    if not isinstance(grid, Mapping):
        if isinstance(grid, (str, bytes)) or not all(isinstance(entry, Mapping) for entry in grid):
            raise InputError("grid must map parameters to values, or be a list of such mappings.", code="invalid-grid")
        if not grid:
            raise InputError("grid is an empty list: there is no configuration to train.", code="invalid-grid")
        return [algorithm.configuration(entry) for entry in grid]
    algorithm.configuration({})  # raises for a required parameter
    names = [parameter.name for parameter in algorithm.parameters]
    for name in grid:
        if name not in names:
            algorithm.configuration({name: None})  # raises, naming those there are
    axes = [(name, _values(algorithm, name, grid[name])) for name in names if name in grid]
    return [
        algorithm.configuration(dict(zip((name for name, _ in axes), values, strict=True)))
        for values in product(*(values for _, values in axes))
    ]


def group_by_static(algorithm: Algorithm, configurations: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Indices of the configurations that can share a compiled loop, grouped in order of first appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, configuration in enumerate(configurations):
        groups.setdefault(algorithm.static_values(configuration), []).append(i)
    return list(groups.values())


def _values(algorithm: Algorithm, name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return [values]
    listed = list(values)
    if not listed:
        raise InputError(f"{algorithm.name}: {name} has no values in the grid.", code="invalid-grid")
    return listed
