"""Searches: halved and stopped early, or of learners with parts; and the files that do not depend on time."""

from pathlib import Path

from sparseoco.training.options import Halving
from tests.support.searches import plain_search

OPTIONS = plain_search(
    algorithms={"cl-fobos": {"lam": [1e-4, 1e-3, 1e-2, 1e-1], "eta0": [0.01, 0.1, 1.0]}},
    folds=3,
    epochs=5,
    patience=1,
    halving=Halving(factor=2),
)
DIVIDED = plain_search(algorithms={"fobos": {"lam": [1e-3], "eta0": [0.1, 0.3], "parts": [1, 2]}}, folds=2, epochs=2)
DETERMINED = ("metrics.parquet", "curves.parquet", "feature_survival.parquet", "best.json")


def tables(run: Path) -> dict[str, bytes]:
    return {name: (run / "search" / name).read_bytes() for name in DETERMINED}
