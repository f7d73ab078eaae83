"""Options of a small search."""

from sparseoco.training.options import SearchOptions

OPTIONS = SearchOptions(
    algorithms={
        "cl-fobos": {"lam": [1e-4, 1e-3, 1e-2], "eta0": [0.1, 1.0]},
        "stda": {"lam": [1e-3], "p": [1, 2, "inf"]},
    },
    folds=3,
    epochs=2,
)
