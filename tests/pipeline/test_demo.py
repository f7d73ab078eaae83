import json
import sys
from pathlib import Path

import pytest

from sparseoco.datasets.corpora import data_folder
from sparseoco.pipeline import demo
from sparseoco.pipeline.run_file import load_run_file
from tests.support.errors import raises_code

WORDS = "one two three four five six seven eight nine ten"


@pytest.mark.slow
def test_the_documents_of_the_installed_packages(tmp_path):
    """Thousands, in mixed classes of similar size, with unique ids; no text names a library."""
    classes = demo.write_corpus(tmp_path / "docstrings.jsonl")
    documents = [json.loads(line) for line in (tmp_path / "docstrings.jsonl").read_bytes().splitlines()]
    assert len(documents) == sum(classes.values()) > 5000
    assert set(classes) == set(demo.LIBRARIES)
    assert max(classes.values()) <= 4 * min(classes.values())
    assert len({d["label"] for d in documents[:100]}) == len(demo.LIBRARIES)
    assert len({d["id"] for d in documents}) == len({d["text"] for d in documents}) == len(documents)
    for own in documents:
        assert own["id"].split("/")[0] == own["label"]
        assert not demo._NAMES.search(own["text"])


def _package(folder: Path, name: str, source: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(source)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two packages of our own, which blow up when imported."""
    methods = f'class A:\n    """Class {WORDS}."""\n    def m(self):\n        """Method {WORDS}."""\n'
    again = f'if True:\n    def f():\n        """First {WORDS}."""\ndef f():\n    """Second {WORDS}."""\n'
    _package(tmp_path, "aleph", f'"""Module {WORDS}."""\nraise SystemExit\n{methods}{again}')
    _package(tmp_path, "beth", f'"""A sa.thing and a NUMPY_x {WORDS}."""\ndef short():\n    """Too short."""\n')
    (tmp_path / "beth" / "broken.py").write_bytes(b"print 'python two'\n")
    (tmp_path / "beth" / "latin.py").write_bytes(b'"""caf\xe9 ' + WORDS.encode() + b'"""\n')
    (tmp_path / "beth" / "copy.py").write_text(f'"""Module {WORDS}."""\n')
    (tmp_path / "beth" / "tests").mkdir()
    (tmp_path / "beth" / "tests" / "test_x.py").write_text(f'"""In a test {WORDS}."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(demo, "LIBRARIES", ("aleph", "beth", "gimel"))
    return tmp_path


def test_names_places_and_rejects(tiny):
    assert demo.write_corpus(tiny / "out.jsonl") == {"aleph": 5, "beth": 1}
    first = (tiny / "out.jsonl").read_bytes()
    texts = {d["id"]: d["text"] for d in map(json.loads, first.splitlines())}
    assert set(texts) == {f"aleph/__init__.py:{line}" for line in (0, 3, 5, 8, 10)} | {"beth/__init__.py:0"}
    assert texts["aleph/__init__.py:8"].startswith("First")
    assert texts["beth/__init__.py:0"].startswith("A .thing and a _x one")
    assert "aleph" not in sys.modules
    demo.write_corpus(tiny / "again.jsonl")
    assert (tiny / "again.jsonl").read_bytes() == first


def test_documents_per_library_are_limited_and_two_libraries_needed(tiny, monkeypatch):
    monkeypatch.setattr(demo, "MAX_DOCUMENTS", 2)
    assert demo.write_corpus(tiny / "out.jsonl") == {"aleph": 2, "beth": 1}
    monkeypatch.setattr(demo, "LIBRARIES", ("beth",))
    with raises_code("no-documents", "beth"):
        demo.write_corpus(tiny / "one.jsonl")
    assert not (tiny / "one.jsonl").exists()


def test_an_unchanged_corpus_is_not_rewritten(tiny):
    demo.write_corpus(tiny / "out.jsonl")
    first = (tiny / "out.jsonl").stat()
    demo.write_corpus(tiny / "out.jsonl")
    again = (tiny / "out.jsonl").stat()
    assert (again.st_ino, again.st_mtime_ns, again.st_ctime_ns) == (first.st_ino, first.st_mtime_ns, first.st_ctime_ns)


def test_the_run_file_is_valid():
    run = load_run_file(data_folder() / "demo.toml")
    assert run.ingest.ngram_range == (1, 2)
    assert {c.algorithm for c in run.search.configurations()} == {"adagrad"}
