"""Imports run one way, and what is exported exists."""

import ast
import importlib
from pathlib import Path

import sparseoco

ROOT = Path(sparseoco.__file__).parent
# A module may import those of its own row and of the rows above it.
LAYERS = [
    {"durations", "errors", "compiling", "stopping", "logs", "invalid"},
    {"storage", "functions"},
    {"workers", "checkpoints", "plain"},
    {"manifest"},
    {"losses", "penalties"},
    {"learners"},
    {"grid", "sizes", "drivers", "shards", "text", "examples", "portfolios", "history", "tables", "constants"},
    {"learner", "bounds", "coordinates", "ingest", "generate", "passes", "optimum", "mixture"},
    {"metrics", "epochs", "regret", "selection", "kept", "archives", "conversions", "estimators"},
    {"model", "corpora", "tabular"},
    {"prediction", "evaluation", "warm"},
    {"config"},
    {"cluster", "report", "runs"},
    {"steps", "nightly", "reproduce", "status", "doctor"},
    {"demo", "console", "arguments"},
    {"cli"},
    {"__main__"},
]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sparseoco."):
            found.add(node.module.removeprefix("sparseoco."))
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("sparseoco.") for alias in node.names if alias.name.startswith("sparseoco.")
            }
    return found


def test_imports_run_one_way() -> None:
    height = {name: i for i, row in enumerate(LAYERS) for name in row}
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).with_suffix("").parts[0]
        if room == "__init__":
            continue
        assert room in height, f"{room} has no place in LAYERS"
        for module in imports(path):
            assert height[module.split(".")[0]] <= height[room], f"{path.name} imports {module}"


def test_flows_hold_no_arithmetic_and_import_only_steps() -> None:
    allowed = {"steps", "nightly", "config", "errors", "report", "console", "storage", "stopping", "durations"}
    for path in (ROOT.parent / "flows").glob("*.py"):
        assert {module.split(".")[0] for module in imports(path)} <= allowed, path.name


def test_all_that_is_exported_exists() -> None:
    for name in sparseoco.__all__:
        assert getattr(sparseoco, name)
    for path in ROOT.rglob("__init__.py"):
        package = importlib.import_module(".".join(("sparseoco", *path.parent.relative_to(ROOT).parts)))
        for name in getattr(package, "__all__", ()):
            assert hasattr(package, name), f"{package.__name__}.{name}"
