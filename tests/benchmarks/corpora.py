"""Real corpora for benchmarks, if they are in the parent folder of the project."""

import gzip
import json
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


def with_one_topic(source: Path, target: Path) -> Path:
    """The stories of Reuters with exactly one topic, which is their label."""
    with gzip.open(source, "rt", encoding="utf-8") as stories, gzip.open(target, "wt", encoding="utf-8") as kept:
        for line in stories:
            story = json.loads(line)
            if len(story["topics"]) == 1:
                kept.write(json.dumps(story | {"label": story["topics"][0]}) + "\n")
    return target
