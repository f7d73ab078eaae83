"""Fixtures of the tests that run on a cluster."""

from collections.abc import Iterator

import pytest
from distributed import Client

from sparseoco.execution.clusters import ClusterOptions, connect


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client
