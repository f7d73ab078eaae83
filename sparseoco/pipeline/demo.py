"""The demonstration: a corpus of the docstrings of the installed scientific packages.

The task is "which library does this docstring belong to?". Source files are parsed, never imported. The names of all
libraries are removed from every document: that of another one would exclude the own.
"""

import ast
import hashlib
import importlib.util
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from sparseoco.core.errors import InputError
from sparseoco.core.logs import report_progress
from sparseoco.datasets.corpora import data_folder
from sparseoco.pipeline.ahead import compiled_ahead
from sparseoco.pipeline.run_file import RunFile, parse_run_file
from sparseoco.pipeline.steps import RUN_FOLDER, run_all
from sparseoco.storage.commit import commit_bytes, exclusive_lock
from sparseoco.storage.locations import Location

LIBRARIES: Final = ("dask", "numba", "numpy", "prefect", "pydantic", "scipy", "sklearn", "sqlalchemy")
"""The classes of the corpus, by import name."""
MIN_WORDS: Final = 10
MAX_DOCUMENTS: Final = 1500  # of a library
_ALIASES: Final = ("da", "dd", "nb", "np", "sp", "scikit-learn", "scikit", "sa")
# To \b an underscore is part of a word, but `numpy_array` names the library too.
_NAMES: Final = re.compile(rf"(?<![^\W_])(?:{'|'.join((*LIBRARIES, *_ALIASES))})(?![^\W_])", re.IGNORECASE)


def run_demo(out: Path) -> tuple[RunFile, Location]:
    """Write the corpus into `out` and run `data/demo.toml` on it; returns the run and the path of its report."""
    report_progress("corpus", 0, 1)
    with exclusive_lock(out, RUN_FOLDER):
        write_corpus(out / "docstrings.jsonl")
    report_progress("corpus", 1, 1)
    source = data_folder() / "demo.toml"
    values = tomllib.loads(source.read_text(encoding="utf-8"))
    values["out"] = str(out)
    values["ingest"]["inputs"] = [str(out / "docstrings.jsonl")]
    run = parse_run_file(values, source=str(source), folder=Path())
    with compiled_ahead(run):
        return run, run_all(run)


def write_corpus(path: Path) -> dict[str, int]:
    """Write JSON lines with the fields `id`, `label` and `text`, and return the number of documents of each class.

    The same packages give the same bytes, in mixed classes. Raises `InputError` if fewer than two of the libraries are
    installed.
    """
    found: dict[str, tuple[str, str]] = {}  # without duplicates
    for library in LIBRARIES:
        for name, docstring in _docstrings(library):
            text = _NAMES.sub("", docstring).strip()
            if len(re.findall(r"\w\w+", text)) >= MIN_WORDS:
                found.setdefault(text, (name, library))
    classes, lines = Counter[str](), []
    for text, (name, label) in sorted(found.items(), key=lambda item: hashlib.sha256(item[1][0].encode()).digest()):
        classes[label] += 1
        if classes[label] <= MAX_DOCUMENTS:
            row = {"id": name, "label": label, "text": text}
            lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    if len(classes) < 2:
        raise InputError(f"The demo corpus needs at least two of {', '.join(LIBRARIES)}.", code="no-documents")
    content = b"".join(lines)
    if not path.is_file() or path.read_bytes() != content:  # an unchanged file is not ingested again
        commit_bytes(path, content)
    return {label: min(rows, MAX_DOCUMENTS) for label, rows in classes.items()}


def _docstrings(library: str) -> Iterator[tuple[str, str]]:
    """Place, such as ``numpy/ma/core.py:120``, and docstring of everything in a library that has one, but for tests."""
    spec = importlib.util.find_spec(library)  # imports nothing
    for root in map(Path, (spec.submodule_search_locations if spec else None) or ()):
        for source in sorted(root.rglob("*.py")):
            place = source.relative_to(root.parent)
            if {"test", "tests", "_testing", "_vendor", "externals"} & set(place.parts):
                continue
            try:
                with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # of the parsed source
                    tree = ast.parse(source.read_bytes())
            except (OSError, SyntaxError, ValueError):  # a template, or of another version of Python
                continue
            for node in ast.walk(tree):
                if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if text := ast.get_docstring(node):
                    # A literal may hold lone surrogates.
                    yield f"{place}:{getattr(node, 'lineno', 0)}", text.encode(errors="replace").decode()
