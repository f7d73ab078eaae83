"""Table V and Figure 2 of 2012: what STDA p = ∞ keeps and RDA does not, and the reverse; how often it occurs."""

from functools import partial
from typing import Final

import numpy as np

from sparseoco.papers.cells import Cell
from sparseoco.papers.records import Row
from sparseoco.papers.truncation.published import RDA, STDA_INF
from sparseoco.papers.truncation.validation import Trial, learn

PAIR: Final = (STDA_INF, RDA)
LEFT_OUT: Final = (0,)
"""The fold whose training set is looked at."""
SAMPLES: Final = 10
SHARES: Final = tuple(k / 100 for k in range(101))


def cell_of(trials: tuple[Trial, Trial], chosen: tuple[int, int]) -> Cell:
    """Both methods with the λ at these places on all folds but the one that is left out, for two classes."""
    pair = [{"set": trial.name, "method": trial.method.name} | trial.key(LEFT_OUT) for trial in trials]
    return Cell({"features": list(chosen), "pair": pair}, partial(_compare, trials, chosen))


def _compare(trials: tuple[Trial, Trial], chosen: tuple[int, int]) -> dict[str, list[Row]]:
    """Rows of `records.FEATURES` and `records.FREQUENCIES`."""
    documents = trials[0].documents
    counts = np.asarray(documents.rows[trials[0].learned(LEFT_OUT)].sum(axis=0)).ravel()
    weights = [
        learn(trial, [trial.method.configurations[k]], LEFT_OUT).weights()[:, 0]
        for trial, k in zip(trials, chosen, strict=True)
    ]
    features: list[Row] = []
    frequencies: list[Row] = []
    for own, other, trial in zip(weights, reversed(weights), trials, strict=True):
        keys = {"set": trial.name, "method": trial.method.name}
        alone = np.flatnonzero((own != 0) & (other == 0))
        largest = alone[np.lexsort((alone, -np.abs(own[alone])))][:SAMPLES]
        features += [
            keys
            | {
                "rank": rank,
                "feature": documents.terms[feature].replace("_", " "),
                "count": int(counts[feature]),
                "weight": float(own[feature]),
            }
            for rank, feature in enumerate(largest.tolist(), start=1)
        ]
        kept = np.sort(counts[own != 0])
        if kept.size:
            places = np.round(np.array(SHARES) * (kept.size - 1)).astype(np.int64)
            frequencies += [
                keys | {"kept": int(kept.size), "share": share, "count": int(count)}
                for share, count in zip(SHARES, kept[places].tolist(), strict=True)
            ]
    return {"features": features, "frequencies": frequencies}
