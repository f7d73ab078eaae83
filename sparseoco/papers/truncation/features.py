"""Table V and Figure 2 of 2012: the features that STDA p = ∞ and RDA select, with counts.

In every fold, STDA has the λ that was chosen for it, and RDA the λ that selects the most similar number of features:
which features are selected depends mostly on their number.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from sparseoco.papers.cells import Cell
from sparseoco.papers.tables import Row
from sparseoco.papers.truncation.published import RDA, STDA_INF
from sparseoco.papers.truncation.trials import SHARES, Trial, learn

PAIR: Final = (STDA_INF, RDA)
HELD_OUT: Final = 0
"""The fold whose training set Table V is of."""
SAMPLES: Final = 10


def matched(parts: Sequence[Mapping[str, Any]], chosen: int) -> tuple[int, int]:
    """The number of the λ of both methods, by their results in a fold and the number of STDA's λ."""
    ours, theirs = (np.array(part["nonzeros"]) for part in parts)
    return chosen, int(np.argmin(np.abs(np.log((theirs + 1) / (ours[chosen] + 1)))))


def frequency_rows(fold: int, parts: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> Iterator[Row]:
    """A row per method and share: occurrences of the selected feature at this share, from the rarest."""
    for method, part, k in zip(PAIR, parts, numbers, strict=True):
        for share, count in zip(SHARES.tolist(), part["occurrences"][k], strict=False):
            selected = part["nonzeros"][k]
            yield {"method": method, "fold": fold, "selected": selected, "share": share, "count": count}


def features_cell(trials: tuple[Trial, Trial], numbers: tuple[int, int]) -> Cell:
    """The features of the largest weights that only one method selects, with the λ of these numbers; two classes."""
    pair = [{"set": trial.name, "method": trial.method.name} | trial.key((HELD_OUT,)) for trial in trials]
    return Cell({"features": list(numbers), "pair": pair}, partial(_compare, trials, numbers))


def _compare(trials: tuple[Trial, Trial], numbers: tuple[int, int]) -> list[Row]:
    documents, counts = trials[0].documents, trials[0].occurrences((HELD_OUT,))
    weights = [
        learn(trial, [trial.method.configurations[k]], (HELD_OUT,)).weights()[:, 0]
        for trial, k in zip(trials, numbers, strict=True)
    ]
    rows = []
    for own, other, trial in zip(weights, reversed(weights), trials, strict=True):
        alone = np.flatnonzero((own != 0) & (other == 0))
        largest = alone[np.lexsort((alone, -np.abs(own[alone])))][:SAMPLES]
        rows += [
            {
                "set": trial.name,
                "method": trial.method.name,
                "rank": rank,
                "feature": documents.terms[feature].replace("_", " "),
                "count": int(counts[feature]),
                "weight": float(own[feature]),
            }
            for rank, feature in enumerate(largest.tolist(), start=1)
        ]
    return rows
