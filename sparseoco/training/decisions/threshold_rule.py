"""The rule of a threshold, as an option."""

from typing import Any, Literal

from pydantic import model_validator

from sparseoco.core.option_models import OptionModel


class ThresholdRule(OptionModel):
    """How a threshold is chosen: `"f1"`, `{ precision = 0.9 }`, `{ recall = 0.8 }` or `{ top = 0.01 }`.

    In place of a table it may be given as text, such as `precision=0.9`.
    """

    rule: Literal["f1", "precision", "recall", "top"]
    value: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, str):
            rule, separator, value = given.partition("=")
            return {"rule": rule.strip()} | ({"value": value.strip()} if separator else {})
        if isinstance(given, dict) and len(given) == 1 and "rule" not in given:
            ((rule, value),) = given.items()
            return {"rule": rule, "value": value}
        return given

    @model_validator(mode="after")
    def _meaningful(self) -> "ThresholdRule":
        if self.rule == "f1" and self.value is not None:
            raise ValueError("f1 takes no value")
        if self.rule != "f1" and not (self.value is not None and 0 < self.value <= 1):
            raise ValueError(f"{self.rule} takes a number above 0 and at most 1, such as {{ {self.rule} = 0.5 }}")
        return self

    def __str__(self) -> str:
        return self.rule if self.value is None else f"{self.rule}={self.value:g}"
