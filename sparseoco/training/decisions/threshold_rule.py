"""The rule of a threshold, as an option."""

from typing import Any, Literal

from pydantic import ConfigDict, model_validator

from sparseoco.core.option_models import OptionModel


def _short_forms(schema: dict[str, Any]) -> None:
    """The JSON Schema of what `ThresholdRule` takes, in place of that of its two fields."""
    share = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    meanings = {
        "precision": "The greatest recall with at least this precision.",
        "recall": "The greatest precision with at least this recall.",
        "top": "At most this share of the documents.",
    }
    described = schema["description"].partition("\n")[0]
    schema.clear()
    schema["description"] = described
    schema["anyOf"] = [
        {"const": "f1", "description": "The greatest F1."},
        {"const": "none", "description": "A margin of 0."},
        {
            "type": "object",
            "properties": {
                name: share | {"description": meaning, "examples": [0.9 if name != "top" else 0.01]}
                for name, meaning in meanings.items()
            },
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
    ]


class ThresholdRule(OptionModel):
    """How a threshold is chosen: `"f1"`, `{ precision = 0.9 }`, `{ recall = 0.8 }`, `{ top = 0.01 }` or `"none"`.

    In place of a table it may be given as text, such as `precision=0.9`. If it was chosen by default, `since` says why.
    """

    model_config = ConfigDict(json_schema_extra=_short_forms)

    rule: Literal["f1", "precision", "recall", "top", "none"]
    value: float | None = None
    since: str = ""

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
        if self.rule in ("f1", "none"):
            if self.value is not None:
                raise ValueError(f"{self.rule} takes no value")
        elif not (self.value is not None and 0 < self.value <= 1):
            raise ValueError(f"{self.rule} takes a number above 0 and at most 1, such as {{ {self.rule} = 0.5 }}")
        return self

    def __str__(self) -> str:
        return self.rule if self.value is None else f"{self.rule}={self.value:g}"
