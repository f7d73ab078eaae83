"""Fixtures of the tests that run on a cluster."""

from typing import Any

import pytest
from distributed import Client


@pytest.fixture
def here(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps run on the one client of the file: to start a cluster for each of them takes longer than they do."""

    class Same:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> Client:
            return client

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("sparseoco.pipeline.steps.connect", Same)
