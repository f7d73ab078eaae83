import json
import sys
from pathlib import Path

import pytest

from sparseoco.datasets.corpora import data_folder
from sparseoco.pipeline import demo
from sparseoco.pipeline.run_file import load_run_file
from tests.support.errors import raises_code


@pytest.mark.slow
def test_the_documents_of_the_installed_packages(tmp_path):
    """Thousands, in mixed classes of similar size; ids are unique dotted names, and no text names a library."""
    classes = demo.write_corpus(tmp_path / "docstrings.jsonl")
    documents = [json.loads(line) for line in (tmp_path / "docstrings.jsonl").read_bytes().splitlines()]
    assert len(documents) == sum(classes.values()) > 5000
    assert set(classes) == set(demo.LIBRARIES)
    assert max(classes.values()) <= 4 * min(classes.values())
    assert len({d["label"] for d in documents[:100]}) == len(demo.LIBRARIES)
    assert len({d["id"] for d in documents}) == len({d["text"] for d in documents}) == len(documents)
    for own in documents:
        assert own["id"].split(".")[0].split("#")[0] == own["label"]
        assert demo.without_names(own["text"]) == own["text"]
        assert "numpy." not in own["text"].lower()
        assert len(demo._WORD.findall(own["text"])) >= demo.MIN_WORDS


def _package(folder: Path, name: str, source: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(source)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two packages of our own, which blow up when imported."""
    words = "one two three four five six seven eight nine ten"
    body = f'"""Module {words}."""\nraise SystemExit\n'
    methods = f'class A:\n    """Class {words}."""\n    def m(self):\n        """Method {words}."""\n'
    again = f'if True:\n    def f():\n        """First {words}."""\ndef f():\n    """Second {words}."""\n'
    _package(tmp_path, "aleph", body + methods + again)
    _package(tmp_path, "beth", f'"""Another aleph.thing and a BETH_x {words}."""\ndef short():\n    """Too short."""\n')
    (tmp_path / "beth" / "broken.py").write_bytes(b"print 'python two'\n")
    (tmp_path / "beth" / "latin.py").write_bytes(b'"""caf\xe9 ' + words.encode() + b'"""\n')
    (tmp_path / "beth" / "copy.py").write_text(f'"""Module {words}."""\n')
    (tmp_path / "beth" / "tests").mkdir()
    (tmp_path / "beth" / "tests" / "test_x.py").write_text(f'"""In a test {words}."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    libraries = {"aleph": ("aleph",), "beth": ("beth",)}
    monkeypatch.setattr(demo, "LIBRARIES", libraries)
    monkeypatch.setattr(demo, "_NAMES", demo.re.compile(r"(?<![^\W_])(?:aleph|beth)(?![^\W_])", demo.re.I))
    return tmp_path


def test_names_scopes_and_rejects(tiny):
    demo.write_corpus(tiny / "out.jsonl")
    texts = {d["id"]: d["text"] for d in map(json.loads, (tiny / "out.jsonl").read_bytes().splitlines())}
    assert set(texts) == {"aleph", "aleph.A", "aleph.A.m", "aleph.f", "aleph.f#2", "beth"}
    assert texts["aleph.f"].startswith("First")
    assert texts["beth"].startswith("Another .thing and a _x one")
    assert "aleph" not in sys.modules


def test_equal_packages_give_equal_bytes(tiny):
    paths = tiny / "a.jsonl", tiny / "b.jsonl"
    assert demo.write_corpus(paths[0]) == demo.write_corpus(paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_documents_per_library_are_limited(tiny, monkeypatch):
    monkeypatch.setattr(demo, "MAX_DOCUMENTS", 2)
    assert demo.write_corpus(tiny / "out.jsonl") == {"aleph": 2, "beth": 1}


def test_at_least_two_libraries_must_be_installed(tiny, monkeypatch):
    monkeypatch.setitem(demo.LIBRARIES, "gimel", ("gimel",))
    assert set(demo.write_corpus(tiny / "out.jsonl")) == {"aleph", "beth"}
    monkeypatch.setattr(demo, "LIBRARIES", {"beth": demo.LIBRARIES["beth"]})
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
