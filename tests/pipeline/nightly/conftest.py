"""A run that all tests of nightly runs continue or compare with."""

from pathlib import Path

import pytest

from tests.support.nightly_runs import nights


@pytest.fixture(scope="session")
def four_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose four files came one by one."""
    folder = tmp_path_factory.mktemp("increments")
    nights(folder, 4)
    return folder
