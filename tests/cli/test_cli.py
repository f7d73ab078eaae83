"""The command line from text to predictions."""

import inspect
import io
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow.parquet as pq
import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from sparseoco.cli import app, steps
from sparseoco.cli.options import ModelOptions, search_tables, typer_command
from sparseoco.core.formatting import metric_name
from sparseoco.core.option_models import OptionModel, validate
from sparseoco.learners import ALGORITHMS
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.ops.status import read_status
from sparseoco.text.options import IngestOptions
from sparseoco.training.options import OptimumOptions, SearchOptions
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.processes import stop
from tests.support.texts import write_reviews, write_run_file

# ----------------------------------------------------------------------------------------------------------------------


def test_a_run_file_from_text_to_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli) -> None:
    monkeypatch.setattr("sparseoco.cli.console.FIRST_LINE", 3600.0)  # however long compilation takes
    said = cli("run", write_run_file(tmp_path))
    assert "report: " in said.out
    assert re.search(r"evaluation: error [\d.]+% \[[\d.]+, [\d.]+\] on 50 documents", said.out)
    assert said.err == ""  # quiet when piped
    run = tmp_path / "run"
    assert "<html" in (run / "report" / "report.html").read_text()
    assert json.loads((run / "evaluation.json").read_bytes())["error"] < 0.2
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    kept = [*(run / "shards").glob("*.parquet"), run / "model" / "model.json"]
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    assert read_status(run).ended
    assert "cells completed" in cli("status", run, "--watch", "1").out
    cli("run", tmp_path / "places.toml")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_the_metric_of_the_search_is_printed_for_the_test_set(tmp_path: Path, cli: Cli) -> None:
    write_reviews(tmp_path / "reviews.jsonl")
    file = tmp_path / "reviews.toml"
    for metric in ("precision_at_recall_99", "f1"):
        file.write_text(
            f'out = "run"\ningest = {{ inputs = ["reviews.jsonl"], where = {{ split = "train" }} }}\n'
            f'search = {{ folds = 2, algorithms.adagrad = {{ lam = [1e-3] }}, metric = "{metric}" }}\n'
            'evaluate = { where = { split = "test" } }\n'
        )
        printed = cli("run", file).out.splitlines()
        value = json.loads((tmp_path / "run" / "evaluation.json").read_bytes())[metric]
        (line,) = [line for line in printed if line.startswith("evaluation: ")]
        assert line.startswith(f"evaluation: {metric_name(metric)} {value:.4f} ")  # it leads
        assert f", {metric_name(metric)} " not in line


def test_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    reviews, store = write_reviews(tmp_path / "reviews.jsonl"), tmp_path / "store"
    assert "150 documents" in cli("ingest", reviews, "--out", store, "--where", "split=train", "--min-df", "2").out
    grid = ("--grid", "lam=1e-5,1e-3", "--grid", "rda.gamma=0.5..5", "--samples", 4)
    command = ("search", store, "--out", tmp_path / "run", "--algorithm", "rda", "--algorithm", "adagrad", *grid)
    cli(*command)
    metrics = pq.read_table(tmp_path / "run" / "search" / "metrics.parquet").to_pylist()
    assert {row["algorithm"] for row in metrics} == {"rda", "adagrad"}
    assert len({row["configuration"] for row in metrics}) == 8
    model = tmp_path / "model"
    command = ("train", store, "--out", model, "--algorithm", "stda", "--set", "lam=1e-3", "--set", "p=inf")
    cli(*command, "--epochs", 2, "--dtype", "float64")
    assert json.loads((model / "model.json").read_bytes())["parameters"]["p"] == "inf"
    lines = cli("predict", model, reviews, "--where", "split=test").out.splitlines()
    assert lines[0].split("\t")[0] == "r3"
    assert len(lines) == 50
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the tide, the boat\n\nmoss; Leaf")))
    answers = [line.split("\t") for line in cli("predict", model, "--margins").out.splitlines()]
    assert [answers[0][0], answers[2][0]] == ["sea", "wood"]  # an empty text has the intercept only
    assert float(answers[0][1]) < 0 < float(answers[2][1])
    result = json.loads(cli("evaluate", model, reviews, "--where", "split=test", "--json").out)
    assert (result["rows"], result["classes"][0]["rows"]) == (50, 25)
    wrong = sum(line.split("\t")[1] != ("sea" if int(line.split("\t")[0][1:]) < 100 else "wood") for line in lines)
    assert result["error"] == wrong / 50
    scores = tmp_path / "scores"
    command = ("score", model, reviews, "--out", scores, "--where", "split=test", "--keep-top", "10%", "--labelled")
    printed = cli(*command).out.splitlines()
    assert printed[0] == f"{scores}: 50 documents scored, 1 part"
    assert printed[-1] == f"report: {scores / 'scores.html'}"
    assert "outcome: scored documents with labels" in (scores / "scores.html").read_text()


def test_an_error_in_standard_input_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "a", "label": "x"}\n{bad\n')))
    assert "standard input, line 2" in cli("ingest", "-", "--out", tmp_path / "store", code=2).err


def test_standard_input_must_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "label": "x"}\n' * 2)
    with path.open() as file, path.open("ab") as writer:
        monkeypatch.setattr(sys, "stdin", file)
        copy = shutil.copyfileobj

        def growing(*files: Any) -> None:
            copy(*files)
            writer.write(b"more")
            writer.flush()

        monkeypatch.setattr("sparseoco.cli.summaries.shutil.copyfileobj", growing)
        assert "changed while it was read" in cli("ingest", "-", "--out", tmp_path / "store", code=2).err


def test_training_continues_from_a_model_with_new_text(tmp_path: Path, cli: Cli) -> None:
    """Or it learns on the features of the model."""
    reviews = write_reviews(tmp_path / "reviews.jsonl")
    old, new = tmp_path / "old", tmp_path / "new"
    for store, split in ((old, "train"), (new, "test")):
        cli("ingest", reviews, "--out", store, "--where", f"split={split}")
    assert "warm start" not in cli("train", old, "--out", tmp_path / "first").out
    first = ("--warm-start", tmp_path / "first")
    assert "warm start: learner state restored" in cli("train", old, "--out", tmp_path / "again", *first).out
    printed = cli("train", new, "--out", tmp_path / "second", *first).out
    said = re.search(r"warm start: (\d+) of (\d+) weights found", printed)
    assert 0 < int(said[1]) <= int(said[2])
    grid = ("--algorithm", "fobos", "--folds", 2, "--grid", "lam=1e-5,1e-3", "--grid", "eta0=0.3")
    assert said[0] in cli("search", new, "--out", tmp_path / "run", *grid, *first).out
    nonzeros = json.loads((tmp_path / "first" / "model.json").read_bytes())["nonzeros"]
    features = ("--features-from", tmp_path / "first")
    for name, command in (("train", ("train", old)), ("search", ("search", old, *grid))):
        printed = cli(*command, "--out", tmp_path / f"{name}-on-features", *features).out
        assert f"features: {nonzeros:,} with nonzero weights" in printed
    cli("evaluate", tmp_path / "train-on-features", reviews)
    run = json.loads((tmp_path / "run" / "run.json").read_bytes())  # as seen from its folder, like the store
    assert (run["search"]["warm_start"], run["corpus"]["folder"]) == ("../first", "../new")
    assert "[unsupported-combination]" in cli("regret", tmp_path / "run", code=2).err
    file = write_run_file(tmp_path, **{"folds = 3": "folds = 1"})
    text = file.read_text()
    before, _, after = text.partition("[features]")
    assert after
    file.write_text(text.replace("[search]", '[search]\nfeatures_from = "first"'))
    assert "[features-differ]" in cli("run", file, code=2).err
    weighted = re.sub("algorithms.rda.*", "", before + after[after.index("[search]") :])  # as the model was trained
    file.write_text(weighted.replace("[search]", '[search]\nwarm_start = "first"'))
    assert "warm start: " in cli("run", file).out


def test_lists_and_help_pages(cli: Cli) -> None:
    listed = cli("algorithms").out
    assert "Togari and Yamashita" in listed
    places = [listed.index(f"\n{name}  ") for name in ("stda", "onseg", "caos-erm", "optimistic-averaging", "cao-rcd")]
    assert places == sorted(places)  # under the loop that runs it each
    assert {line.split("  ")[0] for line in listed.splitlines()} >= set(ALGORITHMS)
    assert "imdb" in cli("fetch").out
    cli("--version")


ERROR_LINE = re.compile(r"sparseoco: .* \[(?P<code>[a-z-]+)\]\n")


@pytest.mark.parametrize(
    ("arguments", "code", "values"),
    [
        ("ingest {tmp}/none.jsonl --out {tmp}/x", "missing-file", ["none.jsonl"]),
        ("ingest {tmp}/reviews.jsonl --out {tmp}/x --min-df few", "invalid-option", ["--min-df", "few"]),
        ("ingest {tmp}/reviews.jsonl --out {tmp}/x --where split", "invalid-option", ["--where", "split"]),
        ("ingest {tmp}/reviews.jsonl --out {tmp}/x --text-field body", "missing-field", ["reviews.jsonl", "body"]),
        ("ingest {tmp}/reviews.jsonl --out {tmp}/reviews.jsonl", "io-error", ["reviews.jsonl"]),
        ("search {tmp} --out {tmp}/x", "not-a-store", ["{tmp}"]),
        ("search {tmp} --out {tmp}/x --algorithm cl-fobo", "unknown-algorithm", ["cl-fobo", "did you mean cl-fobos?"]),
        ("search {tmp} --out {tmp}/x --algorithm stda --grid p=q", "invalid-parameter", ["p="]),
        ("search {tmp} --out {tmp}/x --grid rho=1", "unknown-parameter", ["rho"]),
        ("search {tmp} --out {tmp}/x --grid ons.rho=1", "unknown-algorithm", ["ons"]),
        ("train {tmp} --out {tmp}/x --set lam=big", "invalid-parameter", ["lam", "big"]),
        ("train {tmp} --out {tmp}/x --algorithm auto", "unknown-algorithm", ["auto", "adagrad"]),
        ("train {tmp} --out {tmp}/x --set lam=", "invalid-parameter", ["lam"]),
        ("ingest {tmp} --out {tmp}/x --where a=b --where a=c", "invalid-option", ["--where", "a "]),
        ("ingest {tmp} --out {tmp}/x --no-header --header", "invalid-option", ["--header/--no-header"]),
        ("search {tmp} --out {tmp}/x --grid lam=1 --grid lam=2", "invalid-option", ["--grid", "lam"]),
        ("search {tmp} --out {tmp}/x --folds 3 --folds 5", "invalid-option", ["--folds"]),
        ("train {tmp} --out {tmp}/x --set lam=1 --set lam=2", "invalid-option", ["--set", "lam"]),
        ("train {tmp} --out {tmp}/x --class-weight a=2,a=3", "invalid-option", ["class_weight"]),
        ("predict {tmp} --margins --margins", "invalid-option", ["--margins"]),
        ("--log {tmp}/a --log {tmp}/b algorithms", "invalid-option", ["--log"]),
        ("predict {tmp}", "missing-model", ["{tmp}"]),
        ("evaluate {tmp} {tmp}/reviews.jsonl", "missing-model", ["{tmp}"]),
        ("report {tmp}", "no-results", ["{tmp}"]),
        ("run {tmp}/none.toml", "missing-file", ["none.toml"]),
        ("reproduce sgd --data {tmp} --out {tmp}/x", "unknown-paper", ["sgd", "stda"]),
        ("fetch imbd", "unknown-corpus", ["did you mean imdb?"]),
        ("reproduce cl-fobo --data . --out x", "unknown-paper", ["did you mean cl-fobos?"]),
        ("algorithms fobo", "unknown-algorithm", ["did you mean fobos?"]),
        ("errors missing-feild", "unknown-error-code", ["did you mean missing-field?"]),
    ],
)
def test_errors_are_lines_with_codes(tmp_path: Path, arguments: str, code: str, values: list[str], cli: Cli) -> None:
    write_reviews(tmp_path / "reviews.jsonl", rows=8)
    error = cli(*(word.replace("{tmp}", str(tmp_path)) for word in arguments.split()), code=None).err
    line = ERROR_LINE.fullmatch(error)
    assert line is not None, error
    assert line["code"] == code
    for value in values:
        assert value.replace("{tmp}", str(tmp_path)) in error


@pytest.mark.fault(6)
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_stopped_run_ends_within_ten_seconds_and_resumes(tmp_path: Path, number: signal.Signals, cli: Cli) -> None:
    path = write_run_file(tmp_path, **{"epochs = 1": "epochs = 20"})  # it must still search when it is stopped
    end = stop(["run", str(path)], number, lambda: (tmp_path / "run" / "search").exists())
    assert end.seconds < 10
    assert end.code == 128 + number
    assert "Traceback" not in end.said
    assert "run the same command again" in end.said
    cli("run", path)


def test_help_shows_no_python_types(cli: Cli) -> None:
    for name in [
        "",
        *(command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands),
    ]:
        printed = cli(*name.split(), "--help").out
        assert not re.search(r"<[A-Za-z]+( range)?>|Location|\blist\[|\bDIR\b", printed), name


@pytest.mark.parametrize(
    "command",
    [
        "fetch 20news --out s3://bucket/corpora",
        "demo --out s3://bucket/demo",
        "--log s3://bucket/run.jsonl algorithms",
        "reproduce stda --data data --out s3://bucket/out",
    ],
)
def test_local_commands_reject_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    assert "s3://bucket" in " ".join(cli(*command.split(), code=2).err.split())
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------------------------------------------------
# Flags are generated from the fields of option models.


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
    @typer_command
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


def test_descriptions_list_all_losses_and_penalties() -> None:
    fields = SearchOptions.model_fields
    for name in [*PENALTIES, *(loss.name for loss in LOSSES.values() if not loss.regression)]:
        assert re.search(rf"\b{name}\b", f"{fields['loss'].description} {fields['penalty'].description}"), name


ELSEWHERE = {"inputs", "store", "holdout", "fields", "algorithms", "halving", "threshold", "features", "weighting"}
ELSEWHERE |= {"lambda_max"}


def test_commands_take_every_field_of_their_models() -> None:
    for command, model in (
        (steps.ingest, IngestOptions),
        (steps.search, SearchOptions),
        (steps.optimum, OptimumOptions),
    ):
        (options,) = inspect.signature(command).parameters["given"].annotation.__metadata__
        missing = model.model_fields.keys() - options.fields.keys()
        assert missing <= ELSEWHERE, command


def test_values_of_one_learner_override_those_of_all() -> None:
    grids = ["rda.lam=1,2", "lam=3"]
    for given in (grids, grids[::-1]):  # whatever comes first
        tables = search_tables(["rda", "fobos", "rda"], given, "l1")
        assert [tables[name]["lam"] for name in tables] == [[1.0, 2.0], [3.0]]
    with raises_code("unsupported-combination", "--grid lam"):  # of nobody
        search_tables(["rda"], grids, "l1")
