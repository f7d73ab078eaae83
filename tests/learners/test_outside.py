"""Learners outside the package: the page's example, who may load them, their versions, and the checks."""

import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

from sparseoco import learners
from sparseoco.estimators import SparseOnlineClassifier
from sparseoco.kernels.stream import rule_key
from sparseoco.learners import ALGORITHMS, find_algorithm, name_learner
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.pipeline.run_file import parse_run_file
from sparseoco.report.results import RunRecord
from sparseoco.store.shards import Store
from sparseoco.training.block import Block
from sparseoco.training.check import check_learner
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import SearchOptions
from tests.learners.cases import labels, rows
from tests.support.blocks import ROOT, blocks, run_page
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.searches import block_of, plain_search
from tests.support.stores import make_store

pytestmark = pytest.mark.formulas
PAGE = ROOT / "docs/learners.md"
(CODE,) = (block.text for block in blocks(PAGE) if block.file == "mine.py")
GIVEN = "./mine.py:SGD"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with the page's file; what is named is forgotten."""
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    known = dict(ALGORITHMS.data)
    yield tmp_path
    forget(known)


def forget(known: dict[str, Any]) -> None:
    """As in another process."""
    for name in set(ALGORITHMS.data) - set(known):
        del ALGORITHMS.data[name]
    learners._SOURCES.clear()


def trained(name: str) -> Learner:
    learner = Learner(name, grid={"lam": [0.0, 0.03]}, n_features=rows().shape[1])
    return learner.partial_fit(rows(), labels("two classes"))


def write(old: str, new: str) -> str:
    """The page's file with a change."""
    assert old in CODE
    Path("mine.py").write_text(CODE.replace(old, new))
    return GIVEN


def test_the_page_runs_and_a_model_needs_no_code(folder: Path, cli: Cli) -> None:
    """The worker loads the file. Later it is gone, and the model is read, reported and started from."""
    make_store(folder / "shards", rows=60, features=20)
    assert run_page(PAGE, folder) >= 4
    Path("mine.py").unlink()  # this process has never read it
    model = Model("run/model")
    assert model.description["algorithm"].startswith("mine.py:SGD@")
    assert len(model.table)
    cli("report", "run")
    cli("train", "shards", "--out", "other", "--warm-start", "run", "--epochs", "1")


def test_the_file_has_the_bits_of_fobos_which_it_is() -> None:
    margins = []
    assert trained(GIVEN).weights().tobytes() == trained("fobos").weights().tobytes()
    for name in (GIVEN, "fobos"):
        model = clone(SparseOnlineClassifier(name, epochs=2, random_state=0)).set_params(lam=0.03, eta0=0.05)
        margins.append(model.fit(rows(), labels("two classes")).decision_function(rows()).tobytes())
    assert margins[0] == margins[1]


@pytest.mark.parametrize(
    ("given", "old", "code", "words"),
    [
        ("./theirs.py:SGD", "", "missing-file", "theirs.py"),
        ("./mine.py:ADAM", "", "unknown-algorithm", "ADAM"),
        ("./mine.py", "", "unknown-algorithm", "./mine.py:NAME"),
        ("./mine.py:Rule", "", "not-a-learner", "Rule"),
        (GIVEN, "SGD = ", "not-a-learner", "NameError"),
        (GIVEN, 'name="sgd"', "learner-name-taken", "fobos"),
        ("s3://bucket/mine.py:SGD", "", "not-local", "bucket"),
    ],
)
def test_what_is_no_learner(given: str, old: str, code: str, words: str) -> None:
    if old:
        write(old, 'name="fobos"' if "name" in old else "SGD = nothing\nSGD = ")
    for _ in range(2):  # what fails leaves nothing behind
        with raises_code(code, words):
            Learner(given, n_features=3)


def options() -> SearchOptions:
    return plain_search(algorithms={name_learner(GIVEN): {"lam": [0.1]}}, folds=1)


def test_results_and_kernels_are_those_of_a_version(folder: Path) -> None:
    store, known = make_store(folder / "shards", rows=20, features=5), []
    for change in ("eta0 * clock.step,", "eta0 * clock.step * 1.0,"):
        write("eta0 * clock.step,", change)
        (own,) = options().configurations()
        rule = find_algorithm(own.algorithm).rule(LOSSES["hinge"], PENALTIES["l1"], own.parameters)
        block = block_of(options(), Store.open(store))
        known.append({own.algorithm, own.identity, block.digest, *block.identities, str(rule_key(rule))})
    assert not known[0] & known[1]


def test_a_task_brings_the_place_and_the_version(folder: Path) -> None:
    known = dict(ALGORITHMS.data)
    sent = pickle.dumps(block_of(options(), Store.open(make_store(folder / "shards", rows=20, features=5))))
    assert b"soft" not in sent  # no code
    for code in ("", "learner-changed", "missing-file"):
        forget(known)
        block: Block = pickle.loads(sent)
        if code:
            with raises_code(code, "mine.py"):
                find_algorithm(block.algorithm)
        else:
            assert find_algorithm(block.algorithm).name == block.algorithm
        write("SGD = ", "OTHER = SGD = ") if not code else Path("mine.py").unlink(missing_ok=True)


def test_nothing_on_disk_makes_a_file_run(folder: Path) -> None:
    """A run file is what the user wrote. The record of a run and a saved learner are not."""
    values = {"name": "a", "out": "a", "ingest": {"inputs": ["a"]}, "search": {"algorithms": {GIVEN: {"lam": 0.1}}}}
    known = dict(ALGORITHMS.data)
    run = parse_run_file(values, source="a.toml", folder=folder)
    (name,) = run.search.algorithms
    assert re.fullmatch(r"mine\.py:SGD@[0-9a-f]{16}", name)
    learner = trained(GIVEN)
    learner.save("saved")
    assert Learner.load("saved").weights().tobytes() == learner.weights().tobytes()
    record = RunRecord.model_construct(search=run.search.model_dump(mode="json"))
    assert record.options(folder).configurations() == run.search.configurations()
    forget(known)
    for read in (lambda: Learner.load("saved"), lambda: record.options(folder)):
        with raises_code("learner-not-named", "--learner FOLDER/mine.py:SGD"):
            read()
    name_learner(write("SGD = ", "OTHER = SGD = "))
    with raises_code("learner-changed", name):
        Learner.load("saved")
    forget(known)
    for model in (SearchOptions, Block):  # a record that names a file
        with pytest.raises(ValueError, match="not known" if model is SearchOptions else "setting"):
            model.model_validate({"algorithms": {GIVEN: {}}} if model is SearchOptions else {"algorithm": GIVEN})
    assert known.keys() == ALGORITHMS.data.keys()


def test_installed_learners(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = folder / "site"
    (installed / "theirs-1.dist-info").mkdir(parents=True)
    (installed / "theirs.py").write_text(CODE)
    points = installed / "theirs-1.dist-info/entry_points.txt"
    (installed / "theirs-1.dist-info/METADATA").write_text("Name: theirs\nVersion: 1\n")
    points.write_text("[sparseoco.learners]\nsgd = theirs:SGD\n")
    known = dict(ALGORITHMS.data)
    monkeypatch.syspath_prepend(str(installed))
    learner = trained("sgd")
    assert learner.weights().tobytes() == trained(GIVEN).weights().tobytes()
    learner.save("saved")
    forget(known)
    assert Learner.load("saved").algorithm == learner.algorithm  # what is installed needs no naming
    forget(known)
    (installed / "theirs.py").write_text(CODE + "\n")
    with raises_code("learner-changed", "sgd@"):
        Learner.load("saved")
    with raises_code("learner-changed", "theirs has changed"):  # the code in memory is the old one
        Learner("sgd", n_features=3)
    points.write_text("[sparseoco.learners]\nfobos = theirs:SGD\n")
    with raises_code("learner-name-taken", "fobos = theirs:SGD"):
        Learner("sgd", n_features=3)
    sys.modules.pop("theirs", None)


@pytest.mark.parametrize("name", [GIVEN, "rda", "scinol", "ogd"])
def test_right_learners_pass(name: str) -> None:
    assert [finding for finding in check_learner(name_learner(name)) if finding.problem] == []


@pytest.mark.parametrize(
    ("old", "new", "check", "words"),
    [
        ("scalars.rate * elapsed)", "scalars.rate)", "exact laziness", r"weight\(\) of coordinate \d in round \d"),
        ("weight(state, elapsed, scalars, maps) -", "state.w -", "exact laziness", r"coordinate 1 in round 3:"),
        ("* gradient)", "* gradient / (row.x - row.x))", "finite weights", r"update\(\) of coordinate 0 in round 1"),
        ("* gradient)", "* gradient, 0.0)", "finite weights", r"update\(\) of coordinate 0 in round 1 raises TypeE"),
        ("_time=steps", "_time=steps, time_after_update=round_clock", "weights that are given", "from_weight"),
        ("* gradient)", "* gradient * next(draws))", "finite weights", "when repeated"),
        ("* gradient)", "* gradient * (1.0 if type(gradient) is float64 else 0.5))", "float32", "in float64"),
    ],
)
def test_wrong_learners_are_told_the_step(old: str, new: str, check: str, words: str) -> None:
    before = "import random\nfrom numpy import float64\nfrom sparseoco.learners.contract import round_clock\n"
    write(old, new)
    Path("mine.py").write_text(f"{before}draws = iter(random.random, 2)\n{Path('mine.py').read_text()}")
    found = next(finding for finding in check_learner(name_learner(GIVEN)) if finding.problem)
    assert found.check == check
    assert re.search(words, found.problem), found.problem


def test_methods_that_differ_by_definition_are_checked_without_dense_rounds() -> None:
    assert next(finding.check for finding in check_learner("cl-fobos") if finding.problem) == "exact laziness"
    assert not any(finding.problem for finding in check_learner("cumulative-l1", dense=False))
