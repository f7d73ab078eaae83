"""The demonstration: a corpus of the docstrings of the installed scientific packages.

The task is "which library does this docstring belong to?". Source files are parsed, never imported. To make the task
meaningful:

- the names of libraries (`LIBRARIES`: import name, usual alias) are removed from *every* document, not only from the
  library's own: the presence of another library's name would exclude the own one;
- documents of fewer than `MIN_WORDS` words and duplicates are dropped, and test folders are not read;
- each library has at most `MAX_DOCUMENTS`, for balance;
- documents are ordered by a digest of their ids: an online learner would not learn from one library after another.
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
from typing import Final, NamedTuple

import orjson

from sparseoco.core.errors import InputError
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.datasets.corpora import data_folder
from sparseoco.pipeline.ahead import compiled_ahead
from sparseoco.pipeline.run_file import RunFile, parse_run_file
from sparseoco.pipeline.steps import RUN_FOLDER, run_all
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import exclusive_lock

MIN_WORDS: Final = 10
MAX_DOCUMENTS: Final = 1500


LIBRARIES: Final[dict[str, tuple[str, ...]]] = {
    "dask": ("dask", "da", "dd"),
    "numba": ("numba", "nb"),
    "numpy": ("numpy", "np"),
    "prefect": ("prefect",),
    "pydantic": ("pydantic",),
    "scipy": ("scipy", "sp"),
    "sklearn": ("sklearn", "scikit", "scikit-learn"),
    "sqlalchemy": ("sqlalchemy", "sa"),
}
"""The classes of the corpus, by import name, and the names of each library."""

_WORD: Final = re.compile(r"\b\w\w+\b")
# To \b an underscore is part of a word, but `numpy_array` names the library too.
_NAMES: Final = re.compile(
    r"(?<![^\W_])(?:"
    + "|".join(sorted((re.escape(n) for names in LIBRARIES.values() for n in names), key=len, reverse=True))
    + r")(?![^\W_])",
    re.IGNORECASE,
)


class _Document(NamedTuple):
    id: str
    label: str
    text: str


def write_corpus(path: Path) -> dict[str, int]:
    """Write JSON lines with the fields `id`, `label` and `text`, and return the number of documents of each class.

    The same packages give the same bytes.

    Ids are dotted names, such as ``scipy.optimize._minimize.minimize`` (with ``#2`` … for further definitions). Raises
    `InputError` if fewer than two of the libraries are installed.
    """
    documents: list[_Document] = []
    seen: set[str] = set()
    for label in LIBRARIES:
        documents += sorted(_documents(label, seen), key=_shuffled)[:MAX_DOCUMENTS]
    documents.sort(key=_shuffled)
    classes = dict(Counter(document.label for document in documents))
    if len(classes) < 2:
        raise InputError(f"The demo corpus needs at least two of {', '.join(LIBRARIES)}.", code="no-documents")
    lines = b"".join(orjson.dumps(d._asdict(), option=orjson.OPT_APPEND_NEWLINE) for d in documents)
    if not path.is_file() or path.read_bytes() != lines:  # an unchanged file is not ingested again
        commit_bytes(path, lines)
    return classes


def run_demo(out: Path, progress: ProgressCallback = no_progress) -> tuple[RunFile, Location]:
    """Write the corpus into `out` and run `data/demo.toml` on it; returns the run and the path of its report."""
    progress("corpus", 0, 1)
    with exclusive_lock(out, RUN_FOLDER):
        write_corpus(out / "docstrings.jsonl")
    progress("corpus", 1, 1)
    source = data_folder() / "demo.toml"
    values = tomllib.loads(source.read_text(encoding="utf-8"))
    values["out"] = str(out)
    values["ingest"]["inputs"] = [str(out / "docstrings.jsonl")]
    run = parse_run_file(values, source=str(source), folder=Path())
    with compiled_ahead(run):
        return run, run_all(run, progress)


def without_names(text: str) -> str:
    """The text without the names and aliases of the libraries.

    >>> without_names("import numpy as np; np.add(a, b) # see NumPy_docs, not numpydoc")
    'import  as ; .add(a, b) # see _docs, not numpydoc'
    """
    return _NAMES.sub("", text)


def _shuffled(document: _Document) -> bytes:
    return hashlib.sha256(document.id.encode()).digest()


def _documents(label: str, seen: set[str]) -> Iterator[_Document]:
    """The selected docstrings of a library; texts are added to `seen` and ids made unique."""
    uses: dict[str, int] = {}
    for root in _roots(label):
        for source in sorted(root.rglob("*.py")):
            parts = source.relative_to(root).with_suffix("").parts
            if {"test", "tests", "_testing", "_vendor", "externals"} & set(parts):
                continue
            module = ".".join((label, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            for name, docstring in _docstrings(module, source):
                text = without_names(docstring).strip()
                if text in seen or len(_WORD.findall(text)) < MIN_WORDS:
                    continue
                seen.add(text)
                uses[name] = uses.get(name, 0) + 1
                yield _Document(name if uses[name] == 1 else f"{name}#{uses[name]}", label, text)


def _roots(label: str) -> list[Path]:
    """Folders of a top-level package, found without importing it."""
    spec = importlib.util.find_spec(label)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


def _docstrings(module: str, source: Path) -> Iterator[tuple[str, str]]:
    """Dotted name and docstring of a module, its classes, their methods and its functions, in order of appearance."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of the parsed source
            tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):  # a template, or of another version of Python
        return
    yield from _walk(module, tree)


def _walk(name: str, node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring:
            yield name, docstring.encode(errors="replace").decode()  # a literal may hold lone surrogates
    if isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
        for child in node.body:
            owner = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(f"{name}.{child.name}" if owner else name, child)  # type: ignore[attr-defined]
