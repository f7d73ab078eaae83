"""Panels of prices → returns of stocks, and the portfolios of the bandits.

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
from sparseoco.core.errors import InputError
from sparseoco.datasets.tables import read_table
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.papers.cells import Cell
from sparseoco.papers.onseg.datasets import even_marks, theorem_as_printed
from sparseoco.papers.onseg.play import Game, OnlineMethod, play
from sparseoco.papers.statistics import spread
from sparseoco.papers.tables import Records, Row

STOCKS: Final = 94
"""Stocks of a draw, in the paper of 180."""
BETA: Final = 8.7142e-5
"""ONSEG's, from the paper."""


class Panel(NamedTuple):
    """Returns (rounds, stocks) with the stocks' names, and the stocks left out because a price is missing."""

    name: str
    title: str
    period: str
    returns: NDArray[np.float64]
    stocks: tuple[str, ...]
    incomplete: tuple[str, ...]


class PanelSource(NamedTuple):
    """A file of prices, a column a stock, a row a day or week; `dates` is its column of dates.

    `from_one`: prices are relative to those of the day before the first row.
    """

    name: str
    title: str
    period: str
    file: str
    dates: str | None
    from_one: bool


PANELS: Final = (
    PanelSource("nyse_o", "NYSE(O) 1962–1984", "day", "nyse_o.csv.gz", None, True),
    PanelSource("shanghai", "Shanghai 2017–2019", "week", "shanghai_weekly.csv", "date", False),
)


def read_panel(source: PanelSource, path: Path) -> Panel:
    """Returns of the stocks that have a price in every row.

    Raises `InputError` for a price that is not positive, or if fewer than two stocks or rounds are left.
    """
    leave_out = [] if source.dates is None else [source.dates]
    table = read_table(path, header=True, leave_out=leave_out, missing="nan")
    prices = table.features
    if (prices <= 0).any():
        row, column = (int(index[0]) for index in np.nonzero(prices <= 0))
        raise InputError(
            f"{path}, row {row + 1}, column {table.names[column]!r}: a price must be greater than 0.",
            code="invalid-price",
        )
    complete = np.isfinite(prices).all(axis=0)
    if source.from_one:
        prices = np.vstack([np.ones(prices.shape[1]), prices])
    prices = prices[:, complete]
    if min(prices.shape[1], len(prices) - 1) < 2:
        raise InputError(
            f"{path} has fewer than two stocks with a price in every row, or fewer than two rounds.", code="too-small"
        )
    names = np.array(table.names, dtype=object)
    stocks, incomplete = tuple(names[complete]), tuple(names[~complete])
    return Panel(source.name, source.title, source.period, prices[1:] / prices[:-1] - 1, stocks, incomplete)


def draw_stocks(panel: Panel, draw: int) -> NDArray[np.int64]:
    """The columns of one draw, in order: `STOCKS` of them, or all if there are no more. Draws are independent."""
    count = len(panel.stocks)
    if count <= STOCKS:
        return np.arange(count)
    return np.sort(np.random.Generator(np.random.PCG64([draw, count])).permutation(count)[:STOCKS])


def panel_cell(panel: Panel, draws: int) -> Cell:
    """A cell of all draws of a panel."""
    rows = hashlib.sha256(panel.returns.tobytes()).hexdigest()
    key = {"sparseoco": __version__, "what": "onseg", "panel": panel.name, "rows": rows, "draws": draws}
    return Cell(key, partial(run_panel, panel, draws))


def run_panel(panel: Panel, draws: int) -> Records:
    """OGDEG and ONSEG on every draw of stocks."""
    T = len(panel.returns)
    marks = even_marks(T, 40)
    chosen = [draw_stocks(panel, draw) for draw in range(draws)]
    F = float(np.abs(panel.returns).max())
    n = len(chosen[0])
    shared = {"domain": "simplex", "F": F, "T": T}
    methods = (
        OnlineMethod("OGDEG", "ogdeg", shared),
        OnlineMethod("ONSEG", "onseg", shared | {"beta": BETA}),
        OnlineMethod("ONSEG, β by its theorem", "onseg", shared),
    )
    means: dict[str, list[NDArray[np.float64]]] = {method.name: [] for method in methods}
    for draw, columns in enumerate(chosen):
        game = Game(panel.returns[:, columns], np.zeros(T), "return", None, T)
        for method in methods:
            means[method.name].append(-play(game, method, marks, [draw]).loss[:, 0])
    records: Records = {"panels": [_describe(panel, chosen, F)], "draws": [], "returns": []}
    for method in methods:
        keys = {"panel": panel.name, "method": method.name}
        terms = bandit_terms(find_algorithm(method.algorithm).configuration(method.parameters), n)
        own = {"delta": terms.delta, "gamma": terms.gamma, "beta": terms.beta or None}
        curves = np.array(means[method.name]).T
        records["draws"] += [
            keys | {"draw": draw, "mean_return": float(value)} | own for draw, value in enumerate(curves[-1])
        ]
        names = ("t", "mean_return", "low", "high")
        rows = zip(marks, *spread(curves), strict=True)
        records["returns"] += [keys | dict(zip(names, row, strict=True)) for row in rows]
    return records


def _describe(panel: Panel, chosen: list[NDArray[np.int64]], F: float) -> Row:
    means = panel.returns.mean(axis=0)
    n, T = len(chosen[0]), len(panel.returns)
    gamma, _ = theorem_as_printed(n - 1, T, F, math.sqrt(2), 1 / math.sqrt(n * (n - 1)))
    return {
        "panel": panel.name,
        "period": panel.period,
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
