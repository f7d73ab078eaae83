"""Write the generated pages of the reference: the run file, its JSON Schema, the commands and the errors.

The pages are committed, so that they can be read and searched in the repository as they are on the site, and so that
a change of an option shows in its diff; a test says when one is out of date. `make docs` runs this.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from sparseoco.core.errors import GROUPS, error_entries
from sparseoco.learners import ALGORITHMS
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.parameters import Parameter, fraction, nonnegative, positive, positive_int
from sparseoco.learners.penalties import find_penalty
from sparseoco.pipeline.run_file import run_file_schema
from sparseoco.training.options import MAX_PARTS, PARTS

REFERENCE = Path(__file__).parent / "reference"
Schema = dict[str, Any]
SECTIONS = {
    "IngestOptions": "ingest",
    "TextField": "ingest.fields.NAME",
    "CategoryField": "ingest.fields.NAME",
    "NumberField": "ingest.fields.NAME",
    "VectorField": "ingest.fields.NAME",
    "FeatureOptions": "features",
    "SearchOptions": "search",
    "Halving": "search.halving",
    "EvaluateOptions": "evaluate",
    "ReportOptions": "report",
    "ScoreTable": "score",
    "NightlyOptions": "nightly",
    "LogOptions": "log",
    "ClusterOptions": "cluster",
}
"""The tables of a run file by their definition in the schema, in the order of the page."""
INLINE = ("AtMost", "ThresholdRule", "Range", "Relative")
"""Definitions that are explained where they are used."""
ELSEWHERE = {"search": ("features",), "ingest": ("holdout",)}
"""Options that a run file sets in a table of its own: [features], and holdout in [evaluate]."""
VALUES: dict[Callable[..., Any], str] = {
    positive: "number, above 0",
    nonnegative: "number, at least 0",
    positive_int: "whole number, at least 1",
    fraction: "number, at least 0 and below 1",
}
"""What the checks of parameters allow; of others, any number or text."""
PARTS_PARAMETER = Parameter(
    PARTS, 1, f"parts of an epoch that are learned in parallel and averaged, at most {MAX_PARTS:,}", positive_int
)
RUN_FILE = """\
# Run file

A run file is a TOML file that describes a run. Only `[ingest]` with `inputs` is required. Paths are relative to the
run file. A key that is not listed here is an error.

```toml
[ingest]
inputs = ["reviews.jsonl.gz"]
```

[run-file.schema.json](run-file.schema.json) is a JSON Schema (draft 2020-12) of run files, and `sparseoco schema`
prints that of the installed version. Editors that read it complete keys, show their descriptions and mark mistakes:
for example Taplo, and the extension *Even Better TOML* of VS Code, which is built on it.

1. Write the schema next to the run files: `sparseoco schema > run-file.schema.json`.
2. Name it in the first line of a run file:

```toml
#:schema ./run-file.schema.json

[ingest]
inputs = ["reviews.jsonl.gz"]
```

`taplo lint reviews.toml` checks it on the command line. What holds only of several keys together (`keep_top` and
`keep_above`, say), and the parameters of learners, are checked by `sparseoco doctor reviews.toml` and by every command
that reads the file.

In the types below, *text* is a string in quotes, *not set* means that the description states what applies, and a
number of bytes may be written as text with a unit (`"2GB"`, `"256MiB"`) where the type is *whole number or text*.

## Keys outside tables
"""
ALGORITHM_VALUES = """\
`[search.algorithms]` has a table for each learner to try, in which each parameter of the learner has the values of its
grid. A parameter that is not named has its default. Without `algorithms`, the default grid of `adagrad` is searched.

```toml
[search.algorithms]
arow = { r = [0.1, 1, 10] }                                    # a list of values
adagrad = { eta = 0.3, lam = { relative = [0.001, 0.01] } }    # one value; factors of λ_max
```

With `samples`, values are drawn: from a list, or from a range such as `{ low = 1e-7, high = 1e-3 }`. The tables below
have the parameters of each learner; *searched* are the values of its default grid, if several.
"""
COMMANDS = """\
# Commands

`sparseoco COMMAND --help` prints what this page has. `sparseoco --version` prints the version.

| option of every command, before its name | meaning |
|---|---|
| `--log FILE` | Append log events to a local file, one JSON object per line; `-` is standard error. |

| exit code | meaning |
|---|---|
| 0 | Done. |
| 1 | The run failed: a worker, the cluster or memory; the output cannot be written; or `doctor` found a problem. |
| 2 | An input, an option or a run file is not valid. |
| 3 | A file or folder cannot be read or written, or is corrupt. |
| 4 | `nightly`: an increment is held, and waits for `--accept` or `--discard`. |
| 130, 143 | Stopped by Ctrl-C (SIGINT), or by SIGTERM. The same command resumes. |
| 141 | The reader of the output has gone: it was piped to `head`, say. |

An error is one line on standard error, `sparseoco: MESSAGE [CODE]`; [Errors](errors.md) explains the codes.

| environment variable | meaning |
|---|---|
| `SPARSEOCO_LOG` | The default of `--log`. |
| `SPARSEOCO_SCRATCH` | Local folder for temporary files of runs in an object store; by default in the cache folder. |
| `AWS_…`, `GOOGLE_…`, `AZURE_…` | Credentials, region and endpoint of object stores. |
"""
ERRORS = """\
# Errors

Every error has a code, printed in brackets at the end of its line. The message may change between versions; the code
does not. `sparseoco errors CODE` prints the entry of a code. In Python the errors are `SparseocoError`, with the
attribute `code`; those of exit code 2 are `ValueError` too. A mistake in the command line itself, such as an option
that does not exist, has no code: its message comes with the usage of the command, and the exit code is 2.
"""


def run_file_page() -> str:
    """The keys of a run file."""
    schema, tables = plain(run_file_schema()), definitions()
    top = {key: schema["properties"][key] for key in ("name", "out", "cluster")}
    del top["name"]["default"], top["cluster"]["default"]  # the name of the file; that of every key of the table
    blocks, heading = [RUN_FILE, *_keys("", {"properties": top})], ""
    for name, section in SECTIONS.items():
        table = tables[name]
        if heading != section:
            blocks.append(f"## [{section}] {{ #table.{section} }}\n")
        heading, prefix = section, section
        blocks.append(f"{_sentence(table['description'])}\n")
        if section == "ingest.fields.NAME":
            prefix = f"{section}.{table['properties']['type']['const']}"
        if name == "TextField":
            shared = ", ".join(
                f"[`{key}`](#ingest.{key})" for key in table["properties"] if key not in ("type", "field")
            )
            blocks.append(f"It takes {shared}.\n")
            own = {key: table["properties"][key] for key in ("type", "field")}
            table = {"properties": own, "required": ["type"]}
        blocks += _keys(prefix, table)
        if name == "SearchOptions":
            blocks += _algorithm_tables()
    return "\n".join(blocks)


@cache
def definitions() -> Schema:
    """The definitions of the schema, by name."""
    tables: Schema = plain(run_file_schema())["$defs"]
    return tables


def plain(schema: Any) -> Any:
    """A schema without null, which TOML does not have, and without defaults that say nothing."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    silent = "default" in schema and (schema["default"] is None or "$ref" in schema)
    found = {key: plain(value) for key, value in schema.items() if not (key == "default" and silent)}
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    forms = [form for form in found.pop("anyOf", ()) if form != {"type": "null"}]
    if len(forms) == 1:
        return forms[0] | found
    return found | ({"anyOf": forms} if forms else {})


def _keys(section: str, table: Schema) -> Iterator[str]:
    required = table.get("required", ())
    for key, each in sorted(table["properties"].items(), key=lambda item: item[0] not in required):
        if key in ELSEWHERE.get(section, ()):
            continue
        path = f"{section}.{key}".removeprefix(".")
        yield f"### `{path}` {{ #{path} }}\n"
        yield f"{_sentence(each['description'])}\n"
        yield from _inline_keys(each)
        default = _code(toml(each["default"])) if "default" in each else "not set"
        facts = [f"**Type:** {kind(each)}"]
        facts += ["**Required**"] if key in required else [f"**Default:** {default}"]
        shown = example(each)
        facts += [f"**Example:** {_code(f'{key} = {toml(shown)}')}"] if shown is not None else []
        yield " · ".join(facts) + "\n"


def _inline_keys(schema: Schema) -> Iterator[str]:
    """What the keys of inline tables mean."""
    for form in (schema, *schema.get("anyOf", ())):
        name = form.get("$ref", "").rpartition("/")[2]
        if name in INLINE:
            for own in (definitions()[name], *definitions()[name].get("anyOf", ())):
                for key, each in own.get("properties", {}).items():
                    yield f"- `{key}`: {_sentence(each['description'])}"
            yield ""


def _algorithm_tables() -> Iterator[str]:
    yield "## [search.algorithms] { #table.search.algorithms }\n"
    yield ALGORITHM_VALUES
    for name in ("Range", "Relative"):
        yield f"{_sentence(definitions()[name]['description'])}\n"
        yield from _inline_keys({"$ref": name})
    for name, algorithm in ALGORITHMS.items():
        yield f"### [search.algorithms.{name}] {{ #search.algorithms.{name} }}\n"
        yield f"`{algorithm.formula}` ({algorithm.source}).\n"
        yield f"Losses: {_codes(algorithm.loss_names)}. Penalties: {_codes(algorithm.penalties)}.\n"
        yield "| parameter | type | default | searched | meaning |\n|---|---|---|---|---|"
        for each in table_parameters(algorithm):
            values = ", ".join(_code(toml(value)) for value in each.grid)
            meaning = each.meaning.replace("|", "\\|")
            choices = " or ".join(_code(toml(value)) for value in each.choices)
            value = choices or VALUES.get(each.check, "number or text")
            yield f"| `{each.name}` | {value} | {_code(toml(each.default))} | {values} | {meaning} |"
        yield ""


def table_parameters(algorithm: Algorithm) -> list[Parameter]:
    """The parameters of a learner under any of its penalties, and `PARTS` if it can be learned in parts."""
    penalties = [algorithm.under(find_penalty(name)) for name in algorithm.penalties]
    found = {each.name: each for each in algorithm.parameters}
    found |= {each.name: each for under in penalties for each in under.parameters if each.name not in found}
    divisible = algorithm.online and not algorithm.touches_all_features
    return [*found.values(), *([PARTS_PARAMETER] if divisible else [])]


def kind(schema: Schema) -> str:
    """The type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return kind(definitions()[name]) if name in INLINE else f"table [`[{SECTIONS[name]}]`](#table.{SECTIONS[name]})"
    if "const" in schema:
        return _code(toml(schema["const"]))
    if "enum" in schema:
        return " or ".join(_code(toml(value)) for value in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        words = [kind(form) for form in schema.get("anyOf") or schema["oneOf"]]
        words = [word for word in dict.fromkeys(words) if not (word == "whole number" and "number" in words)]
        return " or ".join(words)
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])} {kind(schema['prefixItems'][0])}s"
    if isinstance(schema["type"], list):
        return " or ".join(kind({"type": name}) for name in schema["type"])
    if schema["type"] == "array":
        item = kind(schema["items"])
        return f"list of {item}{'s' * item.endswith('number')}"
    if schema["type"] == "object":
        if "properties" in schema:
            return f"table with {' or '.join(map(_code, schema['properties']))}"
        if "additionalProperties" not in schema:
            return "table"
        return f"table of {kind(schema['additionalProperties'])} by name"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    return words[schema["type"]] + _bounds(schema)


def _bounds(schema: Schema) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    found = [f"{word} {_number(schema[key])}" for key, word in words.items() if key in schema]
    return f", {' and '.join(found)}" if found else ""


def _number(value: float) -> str:
    power = int(value).bit_length() - 1
    return (
        f"2^{power}" if power > 32 and value == 2**power else f"{value:,}" if isinstance(value, int) else f"{value:g}"
    )


def example(schema: Schema) -> Any:
    """An example of a value; of truth values and names, one that is not the default."""
    if "examples" in schema:
        return schema["examples"][0]
    values = [True, False] if schema.get("type") == "boolean" else schema.get("enum", [])
    values = schema["anyOf"][0].get("enum", values) if "anyOf" in schema else values
    values = [schema["const"]] if "const" in schema else values
    return next((value for value in values if value != schema.get("default")), None)


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key if key.replace('_', '').isalnum() else toml(key)} = {toml(item)}" for key, item in value.items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def commands_page() -> str:
    """The commands, their arguments and options."""
    from typer.main import get_command

    from sparseoco.cli import app

    blocks = [COMMANDS]
    group: Any = get_command(app)
    commands = {name: group.commands[name] for name in group.list_commands(None)}  # in the order of the help
    for panel in dict.fromkeys(command.rich_help_panel for command in commands.values()):
        blocks.append(f"## {panel}\n")
        for name, command in commands.items():
            if command.rich_help_panel == panel and not command.hidden:
                blocks += _command(name, command)
    return "\n".join(blocks)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"### sparseoco {name} {{ #{name} }}\n"
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = [each.metavar or each.name.upper() for each in arguments]
    shown = [
        f"{word}…" if each.nargs == -1 or each.multiple else word for word, each in zip(words, arguments, strict=True)
    ]
    usage = " ".join(word if each.required else f"[{word}]" for word, each in zip(shown, arguments, strict=True))
    yield f"```text\nsparseoco {name} [OPTIONS] {usage}".rstrip() + "\n```\n"
    yield _help(command.help) + "\n"
    if arguments:
        yield "| argument | meaning |\n|---|---|"
        yield from (f"| `{word}` | {_cell(each.help)} |" for word, each in zip(words, arguments, strict=True))
        yield ""
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    if options:
        yield "| option | value | default | meaning |\n|---|---|---|---|"
        yield from (_option(each) for each in options if not each.hidden)
        yield ""


def _option(option: Any) -> str:
    choices = getattr(option.type_descriptor, "choices", None)
    metavar = option.metavar or "TEXT"
    values = [] if option.is_flag else map(str, choices) if choices else metavar.removesuffix(",…").split("|")
    several = ", separated by commas" if metavar.endswith(",…") else ""
    set_by_default = option.default not in (None, False, (), []) and not callable(option.default)
    default = _code("true" if option.default is True else str(option.default)) if set_by_default else ""
    cells = (
        _codes([*option.opts, *option.secondary_opts]),
        " or ".join(_code(value) for value in values) + several,
        "required" if option.required else default,
        _cell(option.help),
    )
    return f"| {' | '.join(cells)} |"


def _help(text: str) -> str:
    """The help of a command, its examples as code."""
    blocks = []
    for paragraph in (text or "").split("\n\n"):
        label, colon, line = paragraph.partition(": ")
        if colon and label in ("Example", "Examples"):
            blocks.append("```text\n$ " + line.strip() + "\n```")
        else:
            blocks.append(paragraph)
    return "\n\n".join(blocks)


def errors_page() -> str:
    """The codes of errors, by group."""
    blocks = [ERRORS]
    for group, title in GROUPS.items():
        blocks.append(f"## {title}\n")
        for code, entry in error_entries().items():
            if entry.group == group:
                blocks.append(f"### {code} {{ #{code} }}\n")
                blocks.append(f"{entry.meaning} {entry.remedy}\n")
                blocks.append(f"Exit code {' or '.join(map(str, entry.exit))}.\n")
    return "\n".join(blocks)


def schema_text() -> str:
    """The JSON Schema of run files."""
    return json.dumps(run_file_schema(), indent=1, ensure_ascii=False) + "\n"


def _sentence(text: str) -> str:
    """The first paragraph of a description."""
    first = text.partition("\n\n")[0].replace("\n", " ").replace("``", "`").replace("*", "\\*")
    return first if first.endswith(".") else f"{first}."


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`"


def _codes(names: Any) -> str:
    return ", ".join(_code(name) for name in names)


PAGES: dict[str, Callable[[], str]] = {
    "run-file.md": run_file_page,
    "run-file.schema.json": schema_text,
    "commands.md": commands_page,
    "errors.md": errors_page,
}


def page_text(name: str) -> str:
    """The content of a generated file."""
    return PAGES[name]().rstrip("\n") + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        (REFERENCE / name).write_text(page_text(name))
