"""A corpus that every installation already has: the docstrings of its own scientific packages.

The task is "which library does this docstring belong to?". Source files are parsed, never imported. What is done
to keep the question honest:

- the names that give the answer away (`LIBRARIES`: import name, usual alias) are cut out of *every* document, not only
  out of the library's own: otherwise the mere presence of a foreign name would tell what the library is not;
- documents of fewer than `MIN_WORDS` words and exact repetitions are dropped, and test folders are not read;
- a library gives at most `MAX_DOCUMENTS`, so that no class drowns the others;
- documents come in the order of a digest of their ids: a stream that shows one library after the other would teach
  an online learner nothing.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.datasets.corpora import data_folder
from sparseoco.storage.commit import commit_bytes

if TYPE_CHECKING:
    from sparseoco.pipeline.run_file import RunFile
    from sparseoco.storage.locations import Location

MIN_WORDS: Final = 10
MAX_DOCUMENTS: Final = 1500


class Library(NamedTuple):
    """A class of the corpus: the package as installed and the words that name it."""

    distribution: str
    names: tuple[str, ...]


LIBRARIES: Final[dict[str, Library]] = {
    "dask": Library("dask", ("dask", "da", "dd")),
    "numba": Library("numba", ("numba", "nb")),
    "numpy": Library("numpy", ("numpy", "np")),
    "prefect": Library("prefect", ("prefect",)),
    "pydantic": Library("pydantic", ("pydantic",)),
    "scipy": Library("scipy", ("scipy", "sp")),
    "sklearn": Library("scikit-learn", ("sklearn", "scikit", "scikit-learn")),
    "sqlalchemy": Library("SQLAlchemy", ("sqlalchemy", "sa")),
}

_WORD: Final = re.compile(r"\b\w\w+\b")
# An underscore is part of a word to \b, but `numpy_array` names the library as plainly as `numpy.array`.
_NAMES: Final = re.compile(
    r"(?<![^\W_])(?:"
    + "|".join(sorted((re.escape(n) for lib in LIBRARIES.values() for n in lib.names), key=len, reverse=True))
    + r")(?![^\W_])",
    re.IGNORECASE,
)


class DemoCorpus(NamedTuple):
    """What `write_corpus` wrote."""

    path: Path
    documents: int
    classes: dict[str, int]
    versions: dict[str, str]


class _Document(NamedTuple):
    id: str
    label: str
    text: str


def write_corpus(path: Path) -> DemoCorpus:
    """Write JSON lines with the fields `id`, `label` and `text`; the same packages give the same bytes.

    Ids are the dotted names of what is documented, such as ``scipy.optimize._minimize.minimize`` (with ``#2`` … when
    a name is defined again). Libraries that are not installed are left out; fewer than two is an `InputError`.
    """
    documents: list[_Document] = []
    seen: set[str] = set()
    for label in LIBRARIES:
        chosen = sorted(_documents(label, seen), key=_shuffled)[:MAX_DOCUMENTS]
        documents.extend(chosen)
    documents.sort(key=_shuffled)
    classes = {label: sum(d.label == label for d in documents) for label in LIBRARIES}
    classes = {label: count for label, count in classes.items() if count}
    if len(classes) < 2:
        raise InputError("The demo corpus needs the docstrings of at least two of: " + ", ".join(LIBRARIES) + ".")
    lines = b"".join(orjson.dumps(d._asdict(), option=orjson.OPT_APPEND_NEWLINE) for d in documents)
    if not path.is_file() or path.read_bytes() != lines:  # an untouched file is not ingested again
        commit_bytes(path, lines)
    versions = {label: importlib.metadata.version(LIBRARIES[label].distribution) for label in classes}
    return DemoCorpus(path, len(documents), classes, versions)


def run_demo(out: Path, progress: "ProgressCallback | None" = None) -> "tuple[RunFile, Location]":
    """Write the corpus into `out` and run `data/demo.toml` on it; gives the run and the page of its report."""
    # What is below loads compiled kernels and the cluster, which writing the corpus can do without.
    from sparseoco.pipeline.run_file import parse_run_file
    from sparseoco.pipeline.steps import run_all

    progress = progress or no_progress
    progress("corpus", 0, 1)
    corpus = write_corpus(out / "docstrings.jsonl")
    progress("corpus", 1, 1)
    source = data_folder() / "demo.toml"
    values = tomllib.loads(source.read_text(encoding="utf-8"))
    values["out"] = str(out)
    values["ingest"]["inputs"] = [str(corpus.path)]
    run = parse_run_file(values, source=str(source), folder=Path())
    return run, run_all(run, progress)


def without_names(text: str) -> str:
    """The text with every library's name and alias cut out.

    >>> without_names("import numpy as np; np.add(a, b) # see NumPy_docs, not numpydoc")
    'import  as ; .add(a, b) # see _docs, not numpydoc'
    """
    return _NAMES.sub("", text)


def _shuffled(document: _Document) -> bytes:
    return hashlib.sha256(document.id.encode()).digest()


def _documents(label: str, seen: set[str]) -> Iterator[_Document]:
    """The library's docstrings worth keeping; texts are added to `seen` and ids made unique."""
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
    """Folders of a top-level package; finding it runs none of its code."""
    spec = importlib.util.find_spec(label)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


def _docstrings(module: str, source: Path) -> Iterator[tuple[str, str]]:
    """Dotted name and docstring of a module, its classes, their methods and its functions, in order of appearance."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of the parsed source: not ours to mend
            tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):  # a template or a file of another Python: no docstrings in it for us
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
