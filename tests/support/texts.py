"""Small corpora of raw text with something to learn in them."""

import json
from pathlib import Path

import numpy as np

WORDS = {
    "sea": ["wave", "boat", "tide", "Salt", "anchor"],
    "wood": ["tree", "leaf", "moss", "Bark", "fox"],
    "town": ["street", "Tram", "roof", "market", "lamp"],
}
COMMON = ["the", "and", "of", "grey", "old", "morning", "Über", "naïve"]


def write_reviews(path: Path, *, rows: int = 200, classes: int = 2, first: int = 0) -> Path:
    """JSON lines of id, label, split and text, sorted by label; row i depends on i and the number of classes only."""
    names = list(WORDS)[:classes]
    lines = []
    for i in range(first, first + rows):
        random = np.random.default_rng(i)
        label = names[(i - first) * classes // rows]
        words = random.choice(COMMON + WORDS[label], 12).tolist() + random.choice(WORDS[names[-1]], 1).tolist()
        split = "test" if i % 4 == 3 else "train"
        lines.append(json.dumps({"id": f"r{i}", "label": label, "split": split, "text": " ".join(words) + "."}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


COUNTS = """
[features]
tf = "count"
idf = false
norm = "none"
"""
RUN_FILE = f"""
name = "places"
out = "run"

[ingest]
inputs = ["places.jsonl"]
where = {{ split = "train" }}
ngram_range = [1, 2]
min_df = 1
shard_bytes = 65536
{COUNTS}
[search]
folds = 3
epochs = 1
loss = "logistic"
algorithms.cl-fobos = {{ lam = [1e-4, 1e-2], eta0 = [0.3] }}
algorithms.rda = {{ lam = [1e-3], gamma = [1, 3] }}

[evaluate]
where = {{ split = "test" }}

[cluster]
threads = 2
"""


def write_run_file(folder: Path, **changes: str) -> Path:
    """A run file, in which `changes` replace text, and its corpus in `folder`; gives the run file."""
    write_reviews(folder / "places.jsonl", classes=3)
    path = folder / "places.toml"
    path.write_text(replaced(RUN_FILE, changes))
    return path


def replaced(text: str, changes: dict[str, str]) -> str:
    """The text with the changes, old to new."""
    for old, new in changes.items():
        text = text.replace(old, new)
    return text
