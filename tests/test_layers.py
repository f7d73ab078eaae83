"""Imports run one way, and what is exported exists."""

import ast
import importlib
from pathlib import Path

import sparseoco
from tests.core.test_errors import trees

ROOT = Path(sparseoco.__file__).parent
# A package may import from itself and from those before it.
LAYERS = (
    "core",
    "storage",
    "execution",
    "learners",
    "kernels",
    "store",
    "text",
    "training",
    "scoring",
    "offline",
    "search",
    "estimators",
    "datasets",
    "report",
    "pipeline",
    "ops",
    "papers",
    "cli",
    "interface",
    "__main__",
)


def imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sparseoco."):
            found.add(node.module.removeprefix("sparseoco."))
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("sparseoco.") for alias in node.names if alias.name.startswith("sparseoco.")
            }
    return found


def test_imports_run_one_way() -> None:
    for path, tree in trees().items():
        package = Path(path).with_suffix("").parts[0]
        if package not in ("__init__", "flows"):
            allowed = LAYERS[: LAYERS.index(package) + 1]
            for module in imports(tree):
                assert module.split(".")[0] in allowed, f"{path} imports {module}"


def test_flows_hold_no_arithmetic_and_import_only_steps() -> None:
    allowed = {"cli", "core", "pipeline", "report", "storage"}
    for path, tree in trees().items():
        assert not path.startswith("flows/") or {module.split(".")[0] for module in imports(tree)} <= allowed, path


def test_all_that_is_exported_exists() -> None:
    for name in sparseoco.__all__:
        assert getattr(sparseoco, name)
    for path in ROOT.rglob("__init__.py"):
        package = importlib.import_module(".".join(("sparseoco", *path.parent.relative_to(ROOT).parts)))
        for name in getattr(package, "__all__", ()):
            assert hasattr(package, name), f"{package.__name__}.{name}"
