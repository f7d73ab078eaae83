"""Fixtures of the tests that run on a cluster."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from distributed import Client

from tests.support.searches import TablesOf, search_tables
from tests.support.stores import make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that tests only read: 300 rows, 200 features, two classes."""
    return make_store(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture
def tables_of(client: Client, tmp_path: Path) -> TablesOf:
    """Searches on the one client of the file."""
    return lambda store, name, options: search_tables(client, store, tmp_path / name, options)


@pytest.fixture
def here(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps run on the one client of the file: to start a cluster for each of them takes longer than they do."""
    monkeypatch.setattr("sparseoco.pipeline.steps.connect", lambda *_: nullcontext(client))
