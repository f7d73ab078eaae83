"""The generated reference: options, schema, and error codes."""

import ast
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from rich.console import Console

from sparseoco.cli import console
from sparseoco.cli.console import LIMITS
from sparseoco.core.errors import FolderInUseError, InputError, error_entries
from sparseoco.core.option_models import _CODES, validate
from sparseoco.execution.clusters import TaskError
from sparseoco.execution.options import ClusterOptions
from sparseoco.learners import ALGORITHMS
from sparseoco.pipeline.run_file import RunFile, parse_run_file, run_file_schema
from sparseoco.storage.inputs import CHANGED
from tests.core.test_errors import constructions, exit_statuses, literal_codes, trees
from tests.support.commands import Cli
from tests.support.errors import raises_code

# ----------------------------------------------------------------------------------------------------------------------
# The pages of the reference are current and have every key; the JSON Schema agrees with the models.


ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)

SCHEMA = run_file_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
RUN = "inputs = ['a.jsonl']"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]


def blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    """The TOML of the repository, but for blocks that include a file."""
    for path in [*(ROOT / "deploy").rglob("*.toml"), *(ROOT / "examples").rglob("*.toml")]:
        yield path.name, tomllib.loads(path.read_text())
    for path in PAGES:
        for number, text in enumerate(re.findall(r"^```toml[^\n]*\n(.*?)^```", path.read_text(), re.S | re.M)):
            if "--8<--" not in text:
                yield f"{path.relative_to(ROOT)}:{number}", tomllib.loads(text)


BLOCKS = dict(blocks())
RUN_FILES = {name: block for name, block in BLOCKS.items() if block.keys() <= RunFile.model_fields.keys()}
CLUSTER_FILES = {name: block for name, block in BLOCKS.items() if name not in RUN_FILES}


@pytest.mark.parametrize("name", generate.PAGES)
def test_generated_pages_are_current(name: str) -> None:
    stale = f"docs/reference/{name} is out of date: run python docs/generate.py"
    assert (ROOT / "docs/reference" / name).read_text() == generate.page_text(name), stale


def models(kind: Any) -> Iterator[type[BaseModel]]:
    """The option models in a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from models(inner)


def option_models() -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    new: set[type[BaseModel]] = {RunFile}
    while new:
        found |= new
        new = {each for model in new for info in model.model_fields.values() for each in models(info.annotation)}
        new -= found
    return found


def test_every_key_is_on_the_page() -> None:
    page = (ROOT / "docs/reference/run-file.md").read_text()
    found = option_models()
    assert len(found) > 15
    named = {key for keys in generate.ELSEWHERE.values() for key in keys}
    rule = {"rule", "value", "since"}  # in files { precision = 0.9 }; since is of a rule that no file names
    tables = {"ingest", "features", "search", "evaluate", "report", "score", "nightly", "log"}
    for model in found:
        for key in model.model_fields.keys() - named - rule - tables:
            assert re.search(rf"[.`]{key}`", page), f"{model.__name__}.{key}"
    assert all(f"## [{table}]" in page for table in tables)
    for key in ("ingest.text_field", "search.class_weight", "evaluate.holdout", "cluster.scheduler"):
        assert f"### `{key}` {{ #{key} }}" in page
    for name, algorithm in ALGORITHMS.items():
        section = page.partition(f"[search.algorithms.{name}]")[2].partition("\n### ")[0]
        assert all(f"| `{parameter.name}` |" in section for parameter in generate.table_parameters(algorithm))


def test_every_key_of_the_schema_has_a_description_and_a_valid_example() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    schema = generate.plain(SCHEMA)
    for table in (schema, *schema["$defs"].values()):
        for key, each in table.get("properties", {}).items():
            assert each["description"], key
            shown = generate.example(each)
            assert shown is not None or "$ref" in each or key in ("cluster", "holdout"), key
            if shown is not None:
                own = Draft202012Validator({"$defs": SCHEMA["$defs"]} | each)
                assert own.is_valid(tomllib.loads(f"key = {generate.toml(shown)}")["key"]), key


def test_there_are_run_files_to_check() -> None:
    assert len(RUN_FILES) >= 10
    assert {"local.toml", "address.toml"} <= CLUSTER_FILES.keys()


@pytest.mark.parametrize("name", RUN_FILES)
def test_run_files_of_the_repository_are_valid(name: str) -> None:
    """Also under the schema. A block that shows one table only is completed by an input."""
    values = RUN_FILES[name]
    values = values | {"ingest": {"inputs": ["a.jsonl"]} | values.get("ingest", {})}
    assert list(VALIDATOR.iter_errors(values)) == []
    run = parse_run_file({"name": "a", "out": "a"} | values, source="a.toml", folder=ROOT / "deploy")
    assert run.search.configurations()


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_cluster_files_are_valid(name: str) -> None:
    validate(ClusterOptions, CLUSTER_FILES[name])
    cluster = VALIDATOR.evolve(schema={"$ref": "#/$defs/ClusterOptions", "$defs": SCHEMA["$defs"]})
    assert [error.message for error in cluster.iter_errors(CLUSTER_FILES[name])] == []


def values_of(text: str) -> dict[str, Any]:
    """A run file of some lines: those of [ingest] come first."""
    return tomllib.loads(f"[ingest]\n{text}" if text.startswith("inputs") else f"[ingest]\n{RUN}\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ngram_range = [1, 3]\nmin_df = 0.01",
        "stop_words = ['a']\nclasses = ['a', 'b']",
        "[ingest.fields]\ntitle = { type = 'text' }\nprice = { type = 'number', transform = 'bins', cuts = [1, 2] }",
        "[features]\ntf = 'log'\nidf = [true, false]\nnorm = ['l2']",
        "[search]\nhalving = 3\nselect = { at_most = 10 }\nthreshold = 'f1'\nmax_memory = '2GB'\ntime_limit = '2h'",
        "[search]\nhalving = { factor = 3, rungs = [0.5] }\nthreshold = { top = 0.01 }\nclass_weight = 'balanced'",
        "[search]\nclass_weight = { a = 2, b = 1.5 }\nshuffle = false\nmax_memory = 2000000000\ntime_limit = 7200",
        "[search]\nsamples = 5\nalgorithms.adagrad = { eta = { low = 0.1, high = 1.0 }, lam = 1e-5, parts = [1, 4] }",
        "[search]\nalgorithms.adagrad = { lam = { relative = [0.1] }, schedule = ['constant', 'sqrt'] }",
        "[search]\npenalty = 'elastic_net'\nalgorithms.fobos = { l1_ratio = 0.5 }\nmetric = 'roc_auc'",
        "[search]\nfolds = 1\nalgorithms.l-fobos = { K = 10 }\nalgorithms.sgft = { p = 'inf' }",
        "[cluster]\nscheduler = 'tcp://10.0.0.1:8786'",
        "[score]\ninputs = ['crawl']\nkeep_top = '10%'",
    ],
)
def test_what_the_models_take_is_valid_under_the_schema(text: str, tmp_path: Path) -> None:
    values = values_of(text)
    parse_run_file({"name": "a", "out": "a"} | values, source="a.toml", folder=tmp_path)
    assert [error.message for error in VALIDATOR.iter_errors(values)] == []


@pytest.mark.parametrize(
    "text",
    [
        "inputs = []",
        "inputs = 'a.jsonl'",
        "inputs = ['a.jsonl']\ntext_feild = 'text'",
        "ngram_range = [1, 2, 3]",
        "holdout = 0.1",
        "format = 'xml'",
        "max_features = 0",
        "encoding = 8",
        "[ingest.fields.price]\ntype = 'numbers'",
        "[ingest.fields.price]\ntype = 'number'\nbins = 1",
        "[features]\ntf = 'idf'",
        "[feature]\ntf = 'log'",
        "[search]\nfold = 5",
        "[search]\nfolds = 0",
        "[search]\nmetric = 'auc'",
        "[search]\nloss = 'log'",
        "[search]\npenalty = 'l0'",
        "[search]\nselect = 'fewest'",
        "[search]\nthreshold = { precison = 0.9 }",
        "[search]\nthreshold = { precision = 0.9, recall = 0.9 }",
        "[search]\nthreshold = { top = 2 }",
        "[search]\nfeatures = { tf = ['binary'] }",
        "[search]\nhalving = 1",
        "[search]\ntime_limit = -1",
        "[search]\nalgorithms.adagrd = { eta = 0.1 }",
        "[search]\nalgorithms.adagrad = { eta = 0 }",
        "[search]\nalgorithms.adagrad = { eta = [0.1, -1] }",
        "[search]\nalgorithms.adagrad = { eta0 = 0.1 }",
        "[search]\nalgorithms.adagrad = { eta = { relative = [0.1] } }",
        "[search]\nalgorithms.adagrad = { schedule = 'cubic' }",
        "[search]\nalgorithms.l-fobos = { K = 1.5 }",
        "[search]\nalgorithms.fobos = { parts = 0 }",
        "[search]\nsamples = 2\nalgorithms.adagrad = { eta = { low = 1 } }",
        "[evaluate]\nholdout = 1",
        "[score]\nkeep_top = '10%'",
        "[nightly]\nif_running = 'kill'",
        "[cluster]\nworkers = 0",
        "[cluster]\nslurm = {}",
        "[log]\nfiles = 'a'",
    ],
)
def test_what_the_models_refuse_is_refused_by_the_schema(text: str, tmp_path: Path) -> None:
    """But for the parameters of learners, and what a run file sets in another table."""
    values = values_of(text)
    with pytest.raises(InputError):
        parse_run_file({"name": "a", "out": "a"} | values, source="a.toml", folder=tmp_path)
    assert VALIDATOR.is_valid(values) == any(key in text for key in ("algorithms.", "holdout = 0.1", "features = {"))


@pytest.mark.parametrize(
    "text",
    [
        "max_features = 2.0",
        "ngram_range = [1.0, 2]",
        "[search]\nseed = 1e3",
        "[search]\nepochs = 2.0",
        "[cluster]\nworkers = 2.0",
    ],
)
def test_a_float_is_no_whole_number(text: str, tmp_path: Path) -> None:
    """Under the schema 2.0 is one."""
    with raises_code("invalid-option"):
        parse_run_file({"name": "a", "out": "a"} | values_of(text), source="a.toml", folder=tmp_path)


# ----------------------------------------------------------------------------------------------------------------------
# Every code of an error is explained, and every explanation is of a code, with the exit codes it has.


PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
PASSED_ON = {"code", "error.code", "row.code", "failure.code", "found.code", "CHANGED", "_code(error)"}
"""Expressions of a code that was given elsewhere, or in tables and constants."""


def written_codes(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions of codes: arguments named code, their defaults, and what is assigned to the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "code")
            if isinstance(node.func, ast.Name) and node.func.id == "_exit":
                yield from node.args[1:2]
        elif isinstance(node, ast.FunctionDef):
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            yield from (value for argument, value in named if argument.arg == "code" and value is not None)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
                pairs = zip(names, values, strict=False)
                yield from (value for name, value in pairs if isinstance(name, ast.Name) and name.id == "code")


def compared(code: ast.expr) -> set[str]:
    """Text that something is compared with to choose the code."""
    return {text for node in ast.walk(code) if isinstance(node, ast.Compare) for text in literal_codes(node)}


def test_the_codes_are_those_with_an_entry() -> None:
    expressions = [code for path, tree in trees().items() if "kernels" not in path for code in written_codes(tree)]
    assert len(expressions) > 300
    codes = {text for code in expressions for text in set(literal_codes(code)) - compared(code)}
    codes |= {CHANGED, *_CODES.values(), *(code for _, code in LIMITS.values())}  # in tables and constants
    assert codes == error_entries().keys()


def test_no_code_is_computed_in_another_way() -> None:
    """Then it would not be among those that the test above compares."""
    computed = {ast.unparse(code) for _, _, code in constructions() if code is not None and not literal_codes(code)}
    assert computed <= PASSED_ON


def test_entries_name_the_exit_codes() -> None:
    statuses = exit_statuses()
    for code, kind in (("task-failed", TaskError), ("folder-in-use", FolderInUseError), (CHANGED, InputError)):
        statuses[code].add(kind.exit_code)
    for code in ("malformed-record", *_CODES.values()):  # passed to a check
        statuses[code].add(InputError.exit_code)
    for _, code in LIMITS.values():
        statuses[code].add(1)
    for code in ("disk-full", "permission-denied", "io-error", "missing-file"):
        statuses[code].add(1)  # of errors of the operating system that reach the command line, as of standard output
    assert {code: set(entry.exit) for code, entry in error_entries().items()} == statuses


def test_entries_are_sentences() -> None:
    for code, entry in error_entries().items():
        for text in (entry.meaning, entry.remedy):
            assert re.match(r"[A-Z`]", text), code
            assert text.endswith("."), code


def test_each_code_has_an_anchor_on_the_page() -> None:
    assert re.findall(r"^### .* \{ #(.*) \}$", PAGE.read_text(), re.M) == list(error_entries())


def test_the_command_explains_a_code(cli: Cli) -> None:
    entry = error_entries()["missing-field"]
    assert cli("errors", "[missing-field]").out == f"{entry.meaning}\n{entry.remedy}\nexit code 2\n"
    listed = cli("errors").out
    assert all(re.search(rf"\b{code}\b", listed) for code in error_entries())


def test_a_terminal_shows_how_to_read_on(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    shown = StringIO()
    terminal = Console(file=shown, force_terminal=True, highlight=False, soft_wrap=True)
    monkeypatch.setattr(console, "errors", terminal)
    cli("errors", "missing-feild", code=2)
    assert shown.getvalue().endswith("[unknown-error-code]\nWhat it means: sparseoco errors unknown-error-code\n")


def test_the_schema_is_printed(cli: Cli) -> None:
    assert json.loads(cli("schema").out) == run_file_schema()
