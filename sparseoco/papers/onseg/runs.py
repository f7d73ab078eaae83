"""Runs of the experiment of Liu 2019: data, portfolios, classification."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.domains import Constants, ball_constants, largest_loss
from sparseoco.learners.ons import bandit_terms, ons_numbers
from sparseoco.papers.experiment import Cell
from sparseoco.papers.rows import Records, Row, as_rows, select
from sparseoco.storage.locations import read_toml, storage_errors
from sparseoco.training.learner import Learner

# ----------------------------------------------------------------------------------------------------------------------
# The data of Liu et al. (2019), §4, and the constants that the paper leaves open.
#
# Features are those of the files, without an intercept, which gives the paper's numbers of features; P is the ball of
# diameter D around 0, D = 2 or the one that the paper's β implies. `sparseoco.learners.domains` has F, G and
# α.


D: Final = 2.0
PLAIN: Final = "D = 2"
STANDARDISED: Final = "D = 2, standardised"
IMPLIED: Final = "D by the printed β"
SETTINGS: Final = (PLAIN, STANDARDISED, IMPLIED)
"""Features as in the file or standardised, and the diameter of P."""
PASSES: Final = 150
"""T = 150·n: the rows repeat in order."""


_FILE: Final = read_toml(Path(__file__).with_name("sources.toml"))


class TableSource(NamedTuple):
    """A data set of §4: the file, which of its columns and rows are used, and the β that the paper estimated."""

    name: str
    title: str
    file: str
    target: int
    """The column of the labels, from 1."""
    labels: Literal["classes", "numbers"]
    beta_ons: float
    beta_onseg: float
    header: bool = False
    leave_out: Sequence[int] = ()
    rows: int | None = None


SOURCES: Final = tuple(TableSource(**row) for row in _FILE["tables"])


class Dataset(NamedTuple):
    """Rows, labels (numbers, or 0 and 1 for y = −1 and +1) and constants of one experiment."""

    source: TableSource
    setting: str
    D: float
    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    loss: str
    """squared or logistic."""
    constants: Constants

    @property
    def key(self) -> Row:
        """Its columns in the tables."""
        return {"experiment": self.source.name, "setting": self.setting}

    @property
    def rounds(self) -> int:
        """T."""
        return PASSES * len(self.features)


def read_dataset(source: TableSource, path: Path, setting: str = PLAIN) -> Dataset:
    """A data set in one of `SETTINGS`. Raises `InputError` if the file is invalid."""
    cells = _numbers(path, header=source.header)[: source.rows]
    kept = [k for k in range(cells.shape[1]) if k + 1 not in (source.target, *source.leave_out)]
    if cells.shape[1] < source.target or not np.isfinite(cells[:, [*kept, source.target - 1]]).all():
        raise InputError(f"{path} is not that of {source.title}: a cell is missing or no number.", code="invalid-table")
    features, labels = np.ascontiguousarray(cells[:, kept]), cells[:, source.target - 1].copy()
    if source.labels == "classes":
        classes, indices = np.unique(labels, return_inverse=True)
        if len(classes) != 2:
            raise InputError(
                f"{path} has {len(classes)} classes; {source.title} has 2.", code="wrong-number-of-classes"
            )
        labels = indices.astype(np.float64)
    if setting == STANDARDISED:
        features = standardised(features)
    rows = features, labels, "squared" if source.labels == "numbers" else "logistic"
    diameter = implied_diameter(*rows, source.beta_ons) if setting == IMPLIED else D
    return Dataset(source, setting, diameter, *rows, ball_constants(*rows, diameter))


def _numbers(path: Path, *, header: bool) -> NDArray[np.float64]:
    """The cells of a CSV file, which may be compressed; NaN where one is missing or no number."""
    try:
        with storage_errors(path):
            cells = np.genfromtxt(path, delimiter=",", skip_header=int(header), encoding="utf-8", ndmin=2)
    except (ValueError, EOFError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read as a table of numbers: {problem}", code="invalid-table") from error
    return np.asarray(cells, np.float64)


def standardised(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Features scaled to mean 0 and population standard deviation 1; a constant column becomes 0."""
    # Not by the deviation: the mean of equal numbers may differ from them by rounding.
    constant = (features == features[0]).all(axis=0)
    mean = np.where(constant, features[0], features.mean(axis=0))
    return np.asarray((features - mean) / np.where(constant, 1.0, features.std(axis=0)))


def implied_diameter(features: NDArray[np.float64], labels: NDArray[np.float64], loss: str, beta: float) -> float:
    """The D at which β of ONS is ½·1/(4GD), with the least G that is valid on these rows and D.

    GD increases with D, so there is one. ½·α, the other half of the minimum, is left out: α of the paper is unknown.
    """

    def excess(D: float) -> float:
        return 8.0 * beta * ball_constants(features, labels, loss, D).G * D - 1.0

    high = 1.0
    while excess(high) < 0:
        high *= 2.0
    return float(brentq(excess, 0.0, high, xtol=1e-12))


def printed_steps(dataset: Dataset) -> Row:
    """What the printed β of ONS and of ONSEG say of D, by the formulas of their theorems: of a data set with the D that
    β of ONS implies.

    δ of Theorem 3.1 is proportional to D, so that ½·δ/(4dFD) decreases with D as F increases, from a largest value as D
    goes to 0. ½·α of ONS is the other half of its minimum.
    """
    rows = dataset.features, dataset.labels, dataset.loss
    d, T, printed = dataset.features.shape[1], dataset.rounds, dataset.source.beta_onseg

    def step(D: float) -> float:
        """½·δ/(4dFD) of ONSEG, δ with r = D/2."""
        F = largest_loss(*rows, D)
        _, delta, _ = theorem_as_printed(d, T, F, D, D / 2)
        return float(delta / (8 * d * F * D))

    largest, high = step(SMALLEST), 1.0
    while step(high) > printed:
        high *= 2.0
    implied = float(brentq(lambda D: step(D) - printed, SMALLEST, high)) if largest > printed else None
    return {
        "experiment": dataset.source.name,
        "D_ons": dataset.D,
        "beta_ons": dataset.source.beta_ons,
        "half_alpha": dataset.constants.alpha / 2,
        "D_onseg": implied,
        "beta_onseg": printed,
        "beta_onseg_at_D_ons": step(dataset.D),
        "beta_onseg_largest": largest,
    }


SMALLEST: Final = 1e-6
"""D that stands for those near 0."""


def best_fixed(dataset: Dataset) -> tuple[NDArray[np.float64], float]:
    """The point of P with the least mean loss over all rows, and that loss, to about six digits."""
    Z, y = dataset.features, dataset.labels
    signs, radius = np.where(y > 0, 1.0, -1.0), dataset.D / 2

    def mean_loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = Z @ x
        if dataset.loss == "squared":
            return float(np.mean(0.5 * (z - y) ** 2)), (z - y) @ Z / len(Z)
        slopes = -signs / (1 + np.exp(np.minimum(signs * z, 700.0)))
        return float(np.mean(np.logaddexp(0.0, -signs * z))), slopes @ Z / len(Z)

    inside = {"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x}
    found = minimize(
        mean_loss,
        np.zeros(Z.shape[1]),
        jac=True,
        method="SLSQP",
        constraints=inside,
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    x = found.x / max(1.0, np.linalg.norm(found.x) / radius)
    return x, mean_loss(x)[0]


def theorem_as_printed(d: int, T: int, F: float, D: float, r: float) -> tuple[float, float, float]:
    """γ of Theorem 3.1, which must be below 1, its δ, and its bound on the regret, as printed; tests/bounds
    has the corrected bound."""
    log = math.log(T)
    gamma = (15 * d**2 * D * log / (r * T)) ** (1 / 3)
    delta = (25 * d**4 * D**2 * log**2 * r / (3 * T**2)) ** (1 / 3)
    alpha = delta**2 / (d * F) ** 2
    return gamma, delta, 6 * F * T ** (2 / 3) * (15 * d**2 * D * log / r) ** (1 / 3) + 5 * d / alpha * log


def even_marks(T: int, count: int = 60) -> list[int]:
    """Rounds evenly spaced in the logarithm, up to T."""
    return sorted({max(1, round(T ** (k / count))) for k in range(1, count + 1)})


# ----------------------------------------------------------------------------------------------------------------------
# One learner on rows that repeat: its mean loss at each mark, and its run time.


BANDITS: Final = ("ogdeg", "onseg", "two-point")
"""Learners that see losses alone; they draw directions, so their runs are repeated."""
CHUNK: Final = 1024
"""Rows that are learned together, at least: fewer are repeated."""


class OnlineMethod(NamedTuple):
    """A learner with its parameters; `name` is its label in figures and tables."""

    name: str
    algorithm: str
    parameters: Mapping[str, Any]
    tuned_by: str = ""
    """If its step or β is chosen in hindsight: what has the least mean, an attribute of `PlayResult`."""

    @property
    def is_bandit(self) -> bool:
        """Whether it draws directions."""
        return self.algorithm in BANDITS

    def with_value(self, value: float) -> "OnlineMethod":
        """ONSEG with this β; OGDEG, of given δ and γ, with this factor of the step D/(F√t), through F."""
        changed = {"beta": value} if self.algorithm == "onseg" else {"F": self.parameters["F"] / value}
        return self._replace(parameters={**self.parameters, **changed})


class Game(NamedTuple):
    """Rows (n, d), which repeat in order, their labels and the loss."""

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    loss: str


class PlayResult(NamedTuple):
    """Means over the rounds so far, each (marks, repetitions), and seconds of processor time."""

    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    seconds: float


def play(game: Game | Dataset, method: OnlineMethod, marks: Sequence[int], numbers: Sequence[int] = (0,)) -> PlayResult:
    """Run the repetitions of these numbers together; the last mark is the number of rounds.

    Without classes, errors are 0.
    """
    seeds = [{"repetition": r} for r in numbers] if method.is_bandit else [{}]
    learner = Learner(
        method.algorithm,
        loss=game.loss,
        grid=[dict(method.parameters) | seed for seed in seeds],
        n_features=game.features.shape[1],
        n_classes=2 if game.loss == "logistic" else None,
    )
    copies = -(-CHUNK // len(game.labels))
    rows, labels = csr_matrix(np.tile(game.features, (copies, 1))), np.tile(game.labels, copies)
    loss, error = np.empty((2, len(marks), len(numbers)))
    played, begun = 0, thread_time()
    for k, mark in enumerate(marks):
        while played < mark:
            first = played % len(labels)
            stop = min(len(labels), first + mark - played)
            part = rows if stop - first == len(labels) else rows[first:stop]
            learner.learn_rows(part.indptr, part.indices, part.data, labels[first:stop])
            played += stop - first
        loss[k] = learner.progress.loss_sum / mark
        error[k] = learner.progress.error_count / mark
    return PlayResult(loss, error, thread_time() - begun)


# ----------------------------------------------------------------------------------------------------------------------
# Methods whose step or β is chosen in hindsight, OGDEG and ONSEG at the same δ and γ.


BETAS: Final = tuple(10.0**k for k in range(-7, 1))
"""β of ONSEG that are tried."""
STEP_FACTORS: Final = tuple(10.0**k for k in range(-2, 4))
"""Factors of OGDEG's step that are tried."""
VALUES: Final = {"ogdeg": STEP_FACTORS, "onseg": BETAS}
FINER: Final = 10.0**0.5
"""Values this factor below and above the best are tried next."""
TRIALS: Final = 5
"""Runs of each value tried, other than those that are reported."""
LARGEST: Final = ", δ = r/2"
"""In names: with γ = ½ and the largest δ that it allows; otherwise with those of Theorem 3.1."""
PAIRS: Final = {"δ and γ of Theorem 3.1": "", "δ = r/2, γ = ½": LARGEST}
"""Where OGDEG and ONSEG are compared, and what that adds to their names."""
LOSS: Final = "loss"
ERROR: Final = "error"
"""Of which the best value has the least mean: the attributes of `PlayResult`."""


def choose(method: OnlineMethod, loss: Callable[[OnlineMethod], float]) -> tuple[OnlineMethod, bool | None]:
    """The method with the value of the least loss among those tried and, next, two finer ones about the best; and
    whether that is at an end of those tried, None if there is nothing to choose."""
    if not method.tuned_by:
        return method, None
    values = VALUES[method.algorithm]
    losses = {value: loss(method.with_value(value)) for value in values}
    best = min(losses, key=losses.__getitem__)
    losses |= {value: loss(method.with_value(value)) for value in (best / FINER, best * FINER)}
    best = min(losses, key=losses.__getitem__)
    return method.with_value(best), not values[0] < best < values[-1]


def tuned_names(measure: str, suffix: str) -> tuple[str, str]:
    """The names of OGDEG and ONSEG, tuned by this measure, with what `PAIRS` adds.

    >>> tuned_names(LOSS, ""), tuned_names(ERROR, LARGEST)
    (('OGDEG, best step', 'ONSEG, best β'), ('OGDEG, best step by errors, δ = r/2', 'ONSEG, best β by errors, δ = r/2'))
    """
    added = (" by errors" if measure == ERROR else "") + suffix
    return f"OGDEG, best step{added}", f"ONSEG, best β{added}"


def tuned_pairs(parameters: Mapping[str, Any], n: int, measure: str = LOSS) -> Iterator[OnlineMethod]:
    """OGDEG and ONSEG at every δ and γ of `PAIRS`, for the parameters that both have and n features.

    Where Theorem 3.1 has no γ below 1, its place is taken by ½: if δ is r/2 too, there is one pair.
    """
    terms = bandit_terms(find_algorithm("onseg").configuration(parameters), n)
    places = {(terms.delta, terms.gamma): "", (terms.r / 2, 0.5): LARGEST}
    for (delta, gamma), suffix in places.items():
        same = {**parameters, "delta": delta, "gamma": gamma}
        for name, algorithm in zip(tuned_names(measure, suffix), ("ogdeg", "onseg"), strict=True):
            yield OnlineMethod(name, algorithm, same, measure)


# ----------------------------------------------------------------------------------------------------------------------
# What methods play: a data set, or the stocks of a panel. A cell per method chooses its value and plays.


class Contest(NamedTuple):
    """Data that methods play on: their tables of methods, of repetitions and of curves, and what is in them."""

    tables: tuple[str, str, str]
    key: Row
    """Its columns in the tables."""
    repetition: str
    """The column of the number of a repetition."""
    digest: str
    features: int
    marks: list[int]
    methods: list[OnlineMethod]
    play: Callable[[OnlineMethod, Sequence[int], Sequence[int]], PlayResult]
    """Of a method, marks and repetitions."""
    measures: Callable[[PlayResult], dict[tuple[str, str, str], NDArray[np.float64]]]
    """Means so far, (marks, repetitions), by the columns of their mean, first and ninth decile."""


def contest_cells(contest: Contest, repetitions: int) -> list[Cell]:
    """A cell per method."""
    key = {"sparseoco": __version__, "what": "onseg", "rows": contest.digest, "repetitions": repetitions}
    return [
        Cell(key | contest.key | {"trials": TRIALS, "method": each.name}, partial(_run, contest, each, repetitions))
        for each in contest.methods
    ]


def _run(contest: Contest, method: OnlineMethod, repetitions: int) -> Records:
    trials = range(repetitions, repetitions + TRIALS)

    def cost(tried: OnlineMethod) -> float:
        return float(getattr(contest.play(tried, contest.marks[-1:], trials), method.tuned_by).mean())

    method, at_edge = choose(method, cost)
    numbers = range(repetitions if method.is_bandit else 1)
    measures = contest.measures(contest.play(method, contest.marks, numbers))
    key = contest.key | {"method": method.name}
    last = {mean: values[-1] for (mean, _, _), values in measures.items()}
    curve: dict[str, Any] = {}
    for (average, low, high), values in measures.items():
        first, ninth = np.quantile(values, (0.1, 0.9), axis=1)  # deciles
        curve |= {average: values.mean(axis=1), low: first, high: ninth}
    rows = (
        [_parameters(method, contest.features) | {"at_edge": at_edge}],
        as_rows({contest.repetition: numbers, **last}),
        as_rows({"t": contest.marks, **curve}),
    )
    return {table: [key | row for row in own] for table, own in zip(contest.tables, rows, strict=True)}


def _parameters(method: OnlineMethod, features: int) -> Row:
    configuration = find_algorithm(method.algorithm).configuration(method.parameters)
    terms = bandit_terms(configuration, features) if method.is_bandit else None
    beta = None
    if terms:
        beta = terms.beta or None
    elif method.algorithm == "ons":
        beta = 1 / ons_numbers(configuration, 1).rate
    return {
        "algorithm": method.algorithm,
        "parameters": json.dumps(dict(method.parameters), sort_keys=True),
        "delta": terms.delta if terms else None,
        "gamma": terms.gamma if terms else None,
        "beta": beta,
    }


# ----------------------------------------------------------------------------------------------------------------------
# Portfolios of the bandits on panels of stocks.
#
# A round's loss is f_t(x) = −⟨x, z_t⟩, z_t the returns (price over the price before, less 1) and x the weights of the
# portfolio. The paper's set, ‖x‖₁ = 1, is not convex, and its y_1 = 0 is not in it. It is read in two ways: the
# simplex, its part without short selling, with y_1 = the centre; and ‖x‖₁ ≤ 1, with short selling and y_1 = 0.


STOCKS: Final = 94
"""Stocks of a draw, in the paper of 180."""
BETA: Final = 8.7142e-5
"""ONSEG's, from the paper."""


class PanelSource(NamedTuple):
    """A file of prices: see sources.toml."""

    name: str
    title: str
    period: str
    file: str
    from_one: bool = False
    dates: bool = False


SIMPLEX: Final = "the simplex"
BALL: Final = "‖x‖₁ ≤ 1"
SETS: Final[dict[str, Row]] = {SIMPLEX: {"domain": "simplex"}, BALL: {"domain": "l1", "D": 2.0}}
"""Readings of the set of portfolios."""


MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null")
"""Cells without a price."""
PANELS: Final = tuple(PanelSource(**row) for row in _FILE["panels"])


class Panel(NamedTuple):
    """Returns of stocks.

    Parameters
    ----------
    returns : (rounds, stocks) float64
        Price over the price of the row before, less 1.
    incomplete : int
        Stocks that are left out because a price is missing.
    """

    returns: NDArray[np.float64]
    incomplete: int


def read_panel(source: PanelSource, path: Path) -> Panel:
    """The returns of the stocks with a price in every row. Raises `InputError` if the file is invalid."""
    cells = _numbers(path, header=True)[:, int(source.dates) :]
    missing = np.isnan(cells)
    if missing.any():  # or a word
        texts = np.genfromtxt(path, str, delimiter=",", skip_header=1, encoding="utf-8", ndmin=2, autostrip=True)
        missing &= np.isin(texts[:, int(source.dates) :], MISSING)
    invalid = ~(missing | ((cells > 0) & np.isfinite(cells)))
    if invalid.any():
        row, column = np.argwhere(invalid)[0] + 1
        raise InputError(
            f"{path}, row {row}, stock {column}: a price must be a number greater than 0.", code="invalid-table"
        )
    complete = ~missing.any(axis=0)
    prices = cells[:, complete]
    if source.from_one:
        prices = np.vstack([np.ones(prices.shape[1]), prices])
    returns = np.ascontiguousarray(prices[1:] / prices[:-1] - 1)
    if min(returns.shape) < 2:
        raise InputError(
            f"{path} has fewer than two stocks with a price in every row, or fewer than two rounds.", code="too-small"
        )
    return Panel(returns, int((~complete).sum()))


def draw_stocks(panel: Panel, draw: int) -> NDArray[np.int64]:
    """The columns of one draw, in order: `STOCKS` of them, or all if there are no more. Draws are independent."""
    count = panel.returns.shape[1]
    if count <= STOCKS:
        return np.arange(count)
    return np.sort(np.random.Generator(np.random.PCG64([draw, count])).permutation(count)[:STOCKS])


def panel_contest(source: PanelSource, panel: Panel, within: str) -> Contest:
    """Draws of stocks of a panel, in one of `SETS`: OGDEG and ONSEG, with the printed β, with their theorem's, and
    tuned; and two-point."""
    T, n = len(panel.returns), len(draw_stocks(panel, 0))
    shared = {**SETS[within], "F": float(np.abs(panel.returns).max()), "T": T}
    largest = np.sort(np.abs(panel.returns), axis=1)[:, -n:]  # of any n stocks
    steepest = float(np.linalg.norm(largest, axis=1).max())
    methods = [
        OnlineMethod("OGDEG", "ogdeg", shared),
        OnlineMethod("ONSEG", "onseg", shared | {"beta": BETA}),
        *tuned_pairs(shared, n),
        OnlineMethod("ONSEG, β by its theorem", "onseg", shared),
        OnlineMethod("two-point", "two-point", {**SETS[within], "L": steepest, "T": T}),
    ]

    def play_draws(method: OnlineMethod, marks: Sequence[int], draws: Sequence[int]) -> PlayResult:
        games = [Game(panel.returns[:, draw_stocks(panel, draw)], np.zeros(T), "return") for draw in draws]
        played = [play(game, method, marks, [draw]) for game, draw in zip(games, draws, strict=True)]
        losses, errors, seconds = zip(*played, strict=True)
        return PlayResult(np.hstack(losses), np.hstack(errors), sum(seconds))

    return Contest(
        ("panel_methods", "draws", "returns"),
        {"panel": source.name, "within": within},
        "draw",
        hashlib.sha256(panel.returns.tobytes()).hexdigest(),
        n,
        even_marks(T, 40),
        methods,
        play_draws,
        lambda played: {("mean_return", "low", "high"): -played.loss},
    )


def describe_panel(source: PanelSource, panel: Panel, draws: int) -> Row:
    """The row of a panel, of which so many draws play."""
    F = float(np.abs(panel.returns).max())
    means = panel.returns.mean(axis=0)
    drawn = [means[draw_stocks(panel, draw)] for draw in range(draws)]
    n, T = len(drawn[0]), len(panel.returns)
    gamma, _, _ = theorem_as_printed(n - 1, T, F, math.sqrt(2), 1 / math.sqrt(n * (n - 1)))
    return {
        "panel": source.name,
        "title": source.title,
        "period": source.period,
        "stocks": panel.returns.shape[1],
        "incomplete": panel.incomplete,
        "drawn": n,
        "T": T,
        "F": F,
        "theorem_gamma": gamma,
        "equal_shares": float(np.mean([own.mean() for own in drawn])),
        "best_stock": float(np.mean([own.max() for own in drawn])),
        "best_stock_of_all": float(means.max()),
    }


# ----------------------------------------------------------------------------------------------------------------------
# Regression and classification of §4: OGD and ONS, which see gradients, and OGDEG and ONSEG, which see losses.


TIMED: Final = 50_000
"""Rounds that are timed, at most."""
TIMED_METHODS: Final = ("OGD", "ONS", "OGDEG", "ONSEG")
TURNS: Final = 7
"""Runs of each method that are timed, in turn."""


def dataset_contest(dataset: Dataset) -> Contest:
    """The methods compared; those of classifications are tuned by the loss and by errors."""
    D, constants, source, features = dataset.D, dataset.constants, dataset.source, dataset.features.shape[1]
    gradients = {"D": D, "G": constants.G}
    losses = {"D": D, "F": constants.F, "T": dataset.rounds}
    classes = dataset.loss == "logistic"
    methods = [
        OnlineMethod("OGD", "ogd", gradients),
        OnlineMethod("ONS", "ons", gradients | {"beta": source.beta_ons}),
        OnlineMethod("OGDEG", "ogdeg", losses),
        OnlineMethod("ONSEG", "onseg", losses | {"beta": source.beta_onseg}),
        *tuned_pairs(losses, features),
        *(tuned_pairs(losses, features, ERROR) if classes else ()),
        OnlineMethod("ONS, β by its theorem", "ons", gradients | {"alpha": constants.alpha}),
        OnlineMethod("ONSEG, β by its theorem", "onseg", losses),
        OnlineMethod("two-point", "two-point", {"D": D, "L": constants.G, "T": dataset.rounds}),
    ]

    def measures(played: PlayResult) -> dict[tuple[str, str, str], NDArray[np.float64]]:
        errors = {("error_rate", "error_low", "error_high"): played.error} if classes else {}
        return {("mean_loss", "loss_low", "loss_high"): played.loss} | errors

    return Contest(
        ("methods", "runs", "curves"),
        dataset.key,
        "repetition",
        hashlib.sha256(dataset.features.tobytes() + dataset.labels.tobytes()).hexdigest(),
        features,
        even_marks(dataset.rounds),
        methods,
        partial(play, dataset),
        measures,
    )


def describe(dataset: Dataset) -> Row:
    """The row of the data set in the table of experiments."""
    n, d = dataset.features.shape
    T, constants = dataset.rounds, dataset.constants
    classes = dataset.loss == "logistic"
    x, loss = best_fixed(dataset)
    gamma, _, regret = theorem_as_printed(d, T, constants.F, dataset.D, dataset.D / 2)
    return dataset.key | {
        "loss": dataset.loss,
        "n": n,
        "d": d,
        "T": T,
        "D": dataset.D,
        "F": constants.F,
        "G": constants.G,
        "alpha": constants.alpha,
        "zero_loss": math.log(2) if classes else float(np.mean(0.5 * dataset.labels**2)),
        "best_loss": loss,
        "best_error": float(np.mean((dataset.features @ x > 0) != (dataset.labels > 0))) if classes else None,
        "theorem_gamma": gamma,
        "theorem_regret": regret / T,
    }


def time_methods(dataset: Dataset, methods: Sequence[Row]) -> list[Row]:
    """The rows of timings of `TIMED_METHODS`, from a data set's rows of methods: one run of each in every turn."""
    rounds = min(dataset.rounds, TIMED)
    chosen = [
        OnlineMethod(row["method"], row["algorithm"], json.loads(row["parameters"]))
        for name in TIMED_METHODS
        for row in select(methods, method=name)
    ]
    for method in chosen:
        play(dataset, method, [1])  # compiles
    return [
        {"experiment": dataset.source.name, "method": method.name, "turn": turn, "rounds": rounds}
        | {"seconds": play(dataset, method, [rounds]).seconds}
        for turn in range(TURNS)
        for method in chosen
    ]
