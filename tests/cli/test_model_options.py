"""Flags are generated from the fields of option models."""

import inspect
import re
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from sparseoco.cli import analysis, steps
from sparseoco.cli.options import ModelOptions, search_tables, with_model_options
from sparseoco.core.formatting import number_or_text
from sparseoco.core.option_models import OptionModel, validate
from sparseoco.execution.options import ClusterOptions
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.offline.options import OptimumOptions
from sparseoco.pipeline.run_file import EvaluateOptions, NightlyOptions
from sparseoco.text.options import IngestOptions
from sparseoco.training.options import AtMost, MixtureOptions, SearchOptions, ThresholdRule
from tests.support.errors import raises_code


class Nested(OptionModel):
    x: int = 1


class Options(OptionModel):
    name: str = Field("a", description="A text.")
    count: int = Field(2, ge=1, description="An integer.")
    rate: float | None = Field(None, description="A number.")
    kind: Literal["auto", 0, 1] = Field("auto", description="A choice.")
    on: bool = Field(True, description="Off is unusual.")
    off: bool = Field(False, description="On is unusual.")
    words: tuple[str, ...] | None = Field(None, description="Several texts.")
    pair: tuple[int, int] = Field((1, 1), description="Two integers.")
    flags: tuple[bool, ...] = Field((True,), description="Several truth values.")
    rates: tuple[float, ...] = Field((1.0,), description="Several numbers.")
    where: dict[str, str] = Field({}, description="Pairs.")
    limit: int | float = Field(1, union_mode="smart", description="A count or a fraction.")
    nested: Nested = Field(Nested(), description="Not a flag.")


def run(*arguments: str, **changes: Any) -> tuple[dict[str, Any] | None, str]:
    """The values that a command receives, and what it prints."""
    received: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @with_model_options
    def command(given: Annotated[dict[str, Any], ModelOptions(Options, **changes)]) -> None:
        received.append(given)

    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return received[0] if received else None, result.output


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        ("--name b --count 3 --rate 1e-3", {"name": "b", "count": 3, "rate": 1e-3}),
        ("--kind 0", {"kind": 0}),
        ("--no-on --off", {"on": False, "off": True}),
        ("--on", {"on": True}),
        ("--words x,y --words z", {"words": ("x,y", "z")}),
        ("--pair 1,3", {"pair": (1, 3)}),
        ("--flags true,false", {"flags": (True, False)}),
        ("--rates 1,0.5", {"rates": (1.0, 0.5)}),
        ("--where a=b --where c=d=e", {"where": {"a": "b", "c": "d=e"}}),
        ("--limit 1", {"limit": 1}),
        ("--limit 1.0", {"limit": 1.0}),
    ],
)
def test_values_given_on_the_command_line(arguments: str, given: dict[str, Any]) -> None:
    values, output = run(*arguments.split())
    assert values is not None, output
    assert values.keys() == given.keys()  # defaults are left to the model
    checked = validate(Options, values)
    for name, value in given.items():
        found = getattr(checked, name)
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "arguments", ["--count 1.5", "--count x", "--rate x", "--pair 1,x", "--flags yes", "--count 0"]
)
def test_text_that_is_no_such_value(arguments: str) -> None:
    values, output = run(*arguments.split())
    assert values is not None, output
    with raises_code("invalid-option", arguments.split()[0].removeprefix("--")):
        validate(Options, values)


def test_short_forms_of_options() -> None:
    values = {"class_weight": "a=2,b=0.5", "threshold": "precision=0.9", "select": "at_most=5", "time_limit": "90"}
    options = validate(SearchOptions, values | {"time_limit": number_or_text("90")})
    assert options.class_weight == {"a": 2.0, "b": 0.5}
    assert options.threshold == ThresholdRule(rule="precision", value=0.9)
    assert (options.select, options.time_limit) == (AtMost(at_most=5), 90.0)


def test_fields_can_be_chosen_and_renamed() -> None:
    assert run("--class", "a", only=("words",), flags={"words": "--class"})[0] == {"words": ["a"]}
    assert run("--name", "a", only=("words",))[0] is None
    assert run("--name", "a", without=("name",))[0] is None
    assert "[default: 1,1]" in run("--help")[1]
    assert "[default: 1,1]" not in run("--help", defaults=False)[1]


def test_booleans_whose_default_is_not_known_have_both_forms() -> None:
    for flags, given in (("--on --off", True), ("--no-on --no-off", False)):
        assert run(*flags.split(), defaults=False)[0] == {"on": given, "off": given}
    assert run(defaults=False)[0] == {}
    assert "no-on]" not in run("--help", defaults=False)[1]  # no default is shown


@pytest.mark.parametrize(
    "model",
    [ClusterOptions, EvaluateOptions, IngestOptions, MixtureOptions, NightlyOptions, OptimumOptions, SearchOptions],
)
def test_every_field_describes_itself(model: type[OptionModel]) -> None:
    assert not [name for name, field in model.model_fields.items() if not field.description]


def test_descriptions_list_all_losses_and_penalties() -> None:
    fields = SearchOptions.model_fields
    for name in [*PENALTIES, *(loss.name for loss in LOSSES.values() if not loss.regression)]:
        assert re.search(rf"\b{name}\b", f"{fields['loss'].description} {fields['penalty'].description}"), name


def test_commands_take_every_field_of_their_models() -> None:
    for command, model in (
        (steps.ingest, IngestOptions),
        (steps.search, SearchOptions),
        (analysis.optimum, OptimumOptions),
    ):
        (options,) = inspect.signature(command).parameters["given"].annotation.__metadata__
        missing = model.model_fields.keys() - options.fields.keys()
        elsewhere = {
            "inputs",
            "store",
            "holdout",
            "fields",
            "algorithms",
            "halving",
            "threshold",
            "features",
            "weighting",
        }
        assert missing <= elsewhere | {"lambda_max"}, command


def test_values_of_one_learner_override_those_of_all() -> None:
    grids = ["rda.lam=1,2", "lam=3"]
    for given in (grids, grids[::-1]):  # whatever comes first
        tables = search_tables(["rda", "fobos", "rda"], given, "l1")
        assert [tables[name]["lam"] for name in tables] == [[1.0, 2.0], [3.0]]
    with raises_code("unsupported-combination", "--grid lam"):  # of nobody
        search_tables(["rda"], grids, "l1")
