"""Settings of the whole suite."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from numba.core import config

from tests.support.commands import Cli

# Prefect would take the log records of all tests once the flows have been imported.
os.environ["PREFECT_LOGGING_EXTRA_LOGGERS"] = ""

# First calls compile; a deadline would measure the compiler and the other people on the machine. The gate has the same
# examples in every run, half as many as by default; `pytest --hypothesis-profile=random` draws others.
settings.register_profile("sparseoco", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile("random", deadline=None)
settings.load_profile("sparseoco")

if config.DISABLE_JIT:  # columns are not padded, which would be most of the time
    from sparseoco.training import learner

    learner.NARROW = range(1, 100)  # type: ignore[assignment]


def pytest_collection_finish() -> None:
    """The garbage collector visits what was imported and collected no more: a tenth of the processor's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_unconfigure() -> None:
    """Libraries report at the end what nobody freed."""
    gc.unfreeze()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line; gives what a command prints."""
    return Cli(monkeypatch, capsys)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two threads for the tests of a file."""
    from sparseoco.execution.clusters import ClusterOptions, connect

    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


@pytest.fixture
def early_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Successive halving of small stores."""
    monkeypatch.setattr("sparseoco.search.selection.MIN_RUNG_ROWS", 40)
