"""A configuration of a search."""

import json
from typing import Any

from sparseoco.core.option_models import OptionModel
from sparseoco.store.weighting import COUNTS, Weighting


class Configuration(OptionModel):
    """An algorithm with all its parameters, on weighted counts, numbered within a search."""

    number: int
    algorithm: str
    parameters: dict[str, Any]
    weighting: Weighting = COUNTS

    @property
    def parameters_json(self) -> str:
        """The parameters as canonical JSON."""
        return json.dumps(self.parameters, sort_keys=True)
