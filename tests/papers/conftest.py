"""Small experiments, each run once for all tests."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sparseoco.papers import PAPERS
from tests.papers.small import SMALL


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a paper's small files, by its name."""

    @cache
    def write(paper: str) -> Path:
        return SMALL[paper].write(tmp_path_factory.mktemp(f"{paper}-data"))

    return write


@pytest.fixture(scope="session")
def reproduced(small_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the results of a paper's experiments on its small files, by its name."""

    @cache
    def run(paper: str) -> Path:
        out = tmp_path_factory.mktemp(paper)
        page = PAPERS[paper].load()(small_data(paper), out, **SMALL[paper].options)
        assert page == out / f"{paper}.html"
        return out

    return run


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest, small_data: Callable[[str], Path]) -> Path:
    """The small files of the paper that a test file is of."""
    return small_data(request.module.PAPER)


@pytest.fixture(scope="module")
def out(request: pytest.FixtureRequest, reproduced: Callable[[str], Path]) -> Path:
    """The results of its experiments on them."""
    return reproduced(request.module.PAPER)
