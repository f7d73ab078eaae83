"""Portfolios of the bandits on panels of stocks.

A round's loss is f_t(x) = −⟨x, z_t⟩, z_t the returns (price over the price before, less 1) and x the weights of the
portfolio, on the simplex: the part of the paper's ‖x‖₁ = 1 without short selling.
"""

import hashlib
import math
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.datasets.panels import Panel
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.papers.cells import Cell
from sparseoco.papers.onseg.datasets import even_marks, theorem_as_printed
from sparseoco.papers.onseg.play import Game, OnlineMethod, play
from sparseoco.papers.onseg.tuning import TRIALS, Candidates, choose, only, tuned_pairs
from sparseoco.papers.statistics import spread
from sparseoco.papers.tables import Records, Row

STOCKS: Final = 94
"""Stocks of a draw, in the paper of 180."""
BETA: Final = 8.7142e-5
"""ONSEG's, from the paper."""


class PanelSource(NamedTuple):
    """A file of a panel; `from_one` as in `read_panel`."""

    name: str
    title: str
    period: str
    file: str
    from_one: bool = False


class PanelData(NamedTuple):
    """A panel and its source."""

    source: PanelSource
    panel: Panel


PANELS: Final = (
    PanelSource("nyse_o", "NYSE(O) 1962–1984", "day", "nyse_o.csv.gz", from_one=True),
    PanelSource("shanghai", "Shanghai 2017–2019", "week", "shanghai_weekly.csv"),
)


def given_panel(path: Path) -> PanelSource:
    """The source of a file that is not among `PANELS`."""
    return PanelSource(path.name, path.name, "round", path.name)


def draw_stocks(panel: Panel, draw: int) -> NDArray[np.int64]:
    """The columns of one draw, in order: `STOCKS` of them, or all if there are no more. Draws are independent."""
    count = len(panel.stocks)
    if count <= STOCKS:
        return np.arange(count)
    return np.sort(np.random.Generator(np.random.PCG64([draw, count])).permutation(count)[:STOCKS])


def panel_cell(data: PanelData, draws: int) -> Cell:
    """A cell of all draws of a panel."""
    rows = hashlib.sha256(data.panel.returns.tobytes()).hexdigest()
    methods = [candidates.name for candidates in _methods(data.panel)]
    key = {"sparseoco": __version__, "what": "onseg", "panel": data.source.name, "rows": rows, "draws": draws}
    return Cell(key | {"trials": TRIALS, "methods": methods}, partial(run_panel, data, draws))


def _methods(panel: Panel) -> list[Candidates]:
    """OGDEG and ONSEG, with the printed β, with their theorem's, and tuned."""
    shared = {"domain": "simplex", "F": float(np.abs(panel.returns).max()), "T": len(panel.returns)}
    return [
        only("OGDEG", "ogdeg", shared),
        only("ONSEG", "onseg", shared | {"beta": BETA}),
        *tuned_pairs(shared, len(draw_stocks(panel, 0))),
        only("ONSEG, β by its theorem", "onseg", shared),
    ]


def run_panel(data: PanelData, draws: int) -> Records:
    """The methods on every draw of stocks."""
    panel, name = data.panel, data.source.name
    T = len(panel.returns)
    marks = even_marks(T, 40)
    chosen = [draw_stocks(panel, draw) for draw in range(draws)]
    n = len(chosen[0])

    def mean_returns(method: OnlineMethod, draw: int, marks: list[int]) -> NDArray[np.float64]:
        game = Game(panel.returns[:, draw_stocks(panel, draw)], np.zeros(T), "return", None, T)
        return -play(game, method, marks, [draw]).loss[:, 0]

    def trial_loss(method: OnlineMethod) -> float:
        return -sum(float(mean_returns(method, draw, [T])[-1]) for draw in range(draws, draws + TRIALS))

    records: Records = {"panels": [_describe(data, chosen)], "panel_methods": [], "draws": [], "returns": []}
    for candidates in _methods(panel):
        method, at_edge = choose(candidates, trial_loss)
        keys = {"panel": name, "method": method.name}
        terms = bandit_terms(find_algorithm(method.algorithm).configuration(method.parameters), n)
        own = {"delta": terms.delta, "gamma": terms.gamma, "beta": terms.beta or None, "at_edge": at_edge}
        curves = np.column_stack([mean_returns(method, draw, marks) for draw in range(draws)])
        records["panel_methods"].append(keys | own)
        records["draws"] += [
            keys | {"draw": draw, "mean_return": value} for draw, value in enumerate(curves[-1].tolist())
        ]
        names = ("t", "mean_return", "low", "high")
        records["returns"] += [
            keys | dict(zip(names, row, strict=True)) for row in zip(marks, *spread(curves), strict=True)
        ]
    return records


def _describe(data: PanelData, chosen: list[NDArray[np.int64]]) -> Row:
    source, panel = data
    F = float(np.abs(panel.returns).max())
    means = panel.returns.mean(axis=0)
    n, T = len(chosen[0]), len(panel.returns)
    gamma, _ = theorem_as_printed(n - 1, T, F, math.sqrt(2), 1 / math.sqrt(n * (n - 1)))
    return {
        "panel": source.name,
        "title": source.title,
        "period": source.period,
        "values": panel.values,
        "stocks": len(panel.stocks),
        "incomplete": len(panel.incomplete),
        "drawn": n,
        "T": T,
        "F": F,
        "theorem_gamma": gamma,
        "equal_shares": float(np.mean([means[columns].mean() for columns in chosen])),
        "best_stock": float(np.mean([means[columns].max() for columns in chosen])),
        "best_stock_of_all": float(means.max()),
    }
