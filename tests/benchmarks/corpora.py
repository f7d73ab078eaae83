"""Real corpora for benchmarks and tests, if they are in the parent folder of the project."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("SPARSEOCO_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def corpus(name: str) -> Path:
    """A file of a corpus, or a skip that says where it would be looked for."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there (set SPARSEOCO_DATA to where the corpora are)")
    return path
