"""The JSON Schema of run files, for editors and for the reference page.

It is generated from the option models and from the registry of learners. Where a model takes a value in several forms,
its validators name them (`json_schema_input_type`). What only holds of several keys together is checked by the models
alone.
"""

from collections.abc import Callable
from typing import Any

from sparseoco.learners import ALGORITHMS
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.parameters import Parameter, fraction, nonnegative, positive, positive_int
from sparseoco.learners.penalties import PENALTIES, find_penalty
from sparseoco.pipeline.run_file import RunFile
from sparseoco.training.metric_names import METRICS
from sparseoco.training.options import AUTO, MAX_PARTS, PARTS, SCALED, SPARSE

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ELSEWHERE = {"SearchOptions": "features", "IngestOptions": "holdout"}
"""Options that a run file sets in a table of its own: [features], and holdout in [evaluate]."""
CHECKS: dict[Callable[..., Any], Schema] = {
    positive: {"type": "number", "exclusiveMinimum": 0},
    nonnegative: {"type": "number", "minimum": 0},
    positive_int: {"type": "integer", "minimum": 1},
    fraction: {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
}
"""What the checks of parameters allow; of others, any number or text."""
PARTS_PARAMETER = Parameter(
    PARTS, 1, f"parts of an epoch that are learned in parallel and averaged, at most {MAX_PARTS:,}", positive_int
)


def run_file_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a run file."""
    schema: Schema = _plain(RunFile.model_json_schema())
    tables = schema["$defs"]
    for table, key in ELSEWHERE.items():
        del tables[table]["properties"][key]
    for each in tables["TextField"]["properties"].values():
        each.pop("default", None)  # that of [ingest]
    search = tables["SearchOptions"]["properties"]
    search["loss"]["enum"] = [AUTO, *LOSSES]
    search["penalty"]["enum"] = list(PENALTIES)
    search["metric"]["enum"] = list(METRICS)
    search["algorithms"] |= {"properties": algorithm_tables(), "additionalProperties": False}
    schema["required"].remove("out")
    del schema["properties"]["name"]["default"]  # the name of the file
    cluster = schema["properties"]["cluster"]
    cluster["anyOf"] = [{"type": "string"}, {"$ref": cluster.pop("$ref")}]
    return {"$schema": DIALECT, "title": "Run file of sparseoco"} | schema


def algorithm_tables() -> dict[str, Schema]:
    """The table of each learner in ``[search.algorithms]``."""
    return {
        name: {
            "type": "object",
            "description": f"{algorithm.formula} ({algorithm.source}).",
            "properties": {each.name: _parameter(algorithm, each) for each in table_parameters(algorithm)},
            "additionalProperties": False,
        }
        for name, algorithm in ALGORITHMS.items()
    }


def table_parameters(algorithm: Algorithm) -> list[Parameter]:
    """The parameters of a learner under any of its penalties, and `PARTS` if it can be learned in parts."""
    penalties = [algorithm.under(find_penalty(name)) for name in algorithm.penalties]
    found = {each.name: each for each in algorithm.parameters}
    found |= {each.name: each for under in penalties for each in under.parameters if each.name not in found}
    divisible = algorithm.online and not algorithm.touches_all_features
    return [*found.values(), *([PARTS_PARAMETER] if divisible else [])]


def _parameter(algorithm: Algorithm, parameter: Parameter) -> Schema:
    value = parameter_value(parameter)
    forms = [value, {"type": "array", "items": value}]
    if not parameter.choices:
        forms.append({"$ref": "#/$defs/Range"})
    if parameter.name in SCALED and not set(SPARSE).isdisjoint(algorithm.penalties):
        forms.append({"$ref": "#/$defs/Relative"})
    described = {"description": f"{parameter.meaning}.", "default": parameter.default}
    return described | ({"examples": [list(parameter.grid)]} if parameter.grid else {}) | {"anyOf": forms}


def parameter_value(parameter: Parameter) -> Schema:
    """The JSON Schema of one value of a parameter."""
    if parameter.choices:
        return {"enum": list(parameter.choices)}
    return CHECKS.get(parameter.check, {"type": ["number", "string"]})


def _plain(schema: Any) -> Any:
    """A schema of pydantic without the titles of keys, and without null, which TOML does not have."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("properties"), dict):
        schema = schema | {"properties": {name: _plain(item) for name, item in schema["properties"].items()}}
    names = ("title", "discriminator", *(["default"] if _is_table_default(schema) else []))
    found = {
        key: value if key in ("properties", "default", "examples") else _plain(value)
        for key, value in schema.items()
        if key not in names
    }
    forms = [form for form in found.get("anyOf", ()) if form != {"type": "null"}]
    if len(forms) == 1:
        del found["anyOf"]
        return forms[0] | found
    return found | ({"anyOf": forms} if forms else {})


def _is_table_default(schema: Schema) -> bool:
    """Whether the default says nothing: null, or the defaults of the keys of a table."""
    return "default" in schema and (schema["default"] is None or "$ref" in schema)
