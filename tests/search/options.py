"""Options of a small search."""

from tests.support.searches import plain_search

OPTIONS = plain_search(
    algorithms={
        "cl-fobos": {"lam": [1e-4, 1e-3, 1e-2], "eta0": [0.1, 1.0]},
        "stda": {"lam": [1e-3], "p": [1, 2, "inf"]},
    },
    folds=3,
    epochs=2,
)
