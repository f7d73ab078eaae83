"""Table V and Figure 2 of 2012: the features that STDA p = ∞ selects and RDA does not, and the reverse, with counts."""

from functools import partial
from typing import Final

import numpy as np

from sparseoco.papers.cells import Cell
from sparseoco.papers.tables import Records
from sparseoco.papers.truncation.published import RDA, STDA_INF
from sparseoco.papers.truncation.validation import Trial, learn

PAIR: Final = (STDA_INF, RDA)
HELD_OUT: Final = (0,)
"""The fold whose training set is used."""
SAMPLES: Final = 10
SHARES: Final = tuple(k / 100 for k in range(101))


def features_cell(trials: tuple[Trial, Trial], chosen: tuple[int, int]) -> Cell:
    """Both methods with the λ of these numbers on all folds but the one held out, for two classes."""
    pair = [{"set": trial.name, "method": trial.method.name} | trial.key(HELD_OUT) for trial in trials]
    return Cell({"features": list(chosen), "pair": pair}, partial(_compare, trials, chosen))


def _compare(trials: tuple[Trial, Trial], chosen: tuple[int, int]) -> Records:
    documents = trials[0].documents
    counts = np.asarray(documents.rows[trials[0].learned(HELD_OUT)].sum(axis=0)).ravel()
    weights = [
        learn(trial, [trial.method.configurations[k]], HELD_OUT).weights()[:, 0]
        for trial, k in zip(trials, chosen, strict=True)
    ]
    records: Records = {"features": [], "frequencies": []}
    for own, other, trial in zip(weights, reversed(weights), trials, strict=True):
        key = {"set": trial.name, "method": trial.method.name}
        alone = np.flatnonzero((own != 0) & (other == 0))
        largest = alone[np.lexsort((alone, -np.abs(own[alone])))][:SAMPLES]
        records["features"] += [
            key
            | {
                "rank": rank,
                "feature": documents.terms[feature].replace("_", " "),
                "count": int(counts[feature]),
                "weight": float(own[feature]),
            }
            for rank, feature in enumerate(largest.tolist(), start=1)
        ]
        selected = np.sort(counts[own != 0])
        if selected.size:
            at = np.round(np.array(SHARES) * (selected.size - 1)).astype(np.int64)
            records["frequencies"] += [
                key | {"selected": int(selected.size), "share": share, "count": int(count)}
                for share, count in zip(SHARES, selected[at].tolist(), strict=True)
            ]
    return records
