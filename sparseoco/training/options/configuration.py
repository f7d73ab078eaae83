"""A configuration of a search."""

import json
from collections.abc import Mapping
from typing import Any

from sparseoco.core.option_models import OptionModel
from sparseoco.learners import find_algorithm
from sparseoco.store.weighting import COUNTS, Weighting

PARTS = "parts"
"""The parameter of learners of a stream: into how many parts an epoch is divided (`sparseoco.training.parts`)."""


def learner_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a configuration of a stream as its learner takes them: without `PARTS`."""
    return {name: value for name, value in parameters.items() if name != PARTS}


def parts_of(algorithm: str, parameters: Mapping[str, Any]) -> int:
    """Parts of an epoch that are learned in parallel: 1 for one learner, and for methods that make passes over all
    rows, which may have a parameter of this name themselves."""
    return int(parameters.get(PARTS, 1)) if find_algorithm(algorithm).online else 1


class Configuration(OptionModel):
    """An algorithm with all its parameters, on weighted counts, numbered within a search."""

    number: int
    algorithm: str
    parameters: dict[str, Any]
    """With `PARTS` where they are more than one."""
    weighting: Weighting = COUNTS

    @property
    def parts(self) -> int:
        """See `parts_of`."""
        return parts_of(self.algorithm, self.parameters)

    @property
    def parameters_json(self) -> str:
        """The parameters as canonical JSON."""
        return json.dumps(self.parameters, sort_keys=True)
