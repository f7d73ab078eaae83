"""Checks of a learner against its contract, which `sparseoco check-learner` prints.

A learner of a stream touches only the features of a row; what the other features would have gone through is applied
when they are read or come again. Here its functions are also played densely: every round updates every coordinate, with
x = 0 and gradient 0 where the row does not have it. Both are plain Python, one number at a time, so that a failure has
a function, a round and a coordinate. Then the compiled loops learn the same rows.

Some methods treat the features of a row differently by definition, and are not what dense rounds would give: cumulative
penalties, which a feature pays when it comes (cl-fobos), and means over the rows that have it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Algorithm, RowInfo, Rule, advance_clock, see_row
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.storage.temporary import temporary_folder
from sparseoco.training.learner import Learner

ROUNDS = 48
RATES = (1.0, 0.6, 0.3, 0.15, 0.06, 0.0)
"""How often a feature is in a row, a feature each."""
ACTIVE = {"lam": 0.02, "K": 3}
"""Values of parameters that are often off by default, or show only after many rounds."""
WEIGHTS = (0.0, 0.031, -0.017)
CLOSE = {"float64": 1e-9, "float32": 2e-2}
"""How far weights may be from what they are compared with, relative to 1 + |w|."""


class Finding(NamedTuple):
    """What a check found: nothing, or the first step that fails."""

    check: str
    problem: str = ""


class _StepError(Exception):
    """A step of a learner that fails."""


class Case(NamedTuple):
    """The rule of a configuration, and what it is called in messages."""

    rule: Rule
    loss: Loss
    numbers: list[float]
    label: str


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Dense rows of frequent and rare features, one of them empty, and labels −1 and 1."""
    random = np.random.default_rng(5)
    X = random.normal(0, 1, (ROUNDS, len(RATES))).round(3) * (random.random((ROUNDS, len(RATES))) < RATES)
    X[ROUNDS // 3] = 0.0
    return X, np.where(X @ random.normal(0, 1, len(RATES)) + random.normal(0, 0.5, ROUNDS) > 0, 1.0, -1.0)


def check_learner(name: str, *, dense: bool = True) -> Iterator[Finding]:
    """The findings of all checks of a learner of this name, those that need no compilation first.

    Without `dense` it is not compared with dense rounds.
    """
    algorithm = find_algorithm(name, online=True)
    cases = [] if algorithm.touches_all_features else list(_cases(algorithm))
    if cases:
        yield _found("finite weights", lambda case: _finite(case, "float64"), cases)
        if dense:
            yield _found("exact laziness", _lazy, cases)
        yield _found("float32", lambda case: _finite(case, "float32"), cases)
        yield _found("weights that are given", _restored, cases)
    yield from _compiled(name, algorithm, cases[0] if cases else None)


def _cases(algorithm: Algorithm) -> Iterator[Case]:
    """The default of every penalty, and every choice of every parameter, one at a time."""
    loss = next((loss for loss in map(algorithm.loss, algorithm.loss_names) if not loss.joint), None)
    for penalty in map(find_penalty, algorithm.penalties):
        if loss is None or penalty.grouped:
            continue
        under = algorithm.under(penalty)
        active = {p.name: ACTIVE[p.name] for p in under.parameters if p.name in ACTIVE}
        choices = [{p.name: value} for p in under.parameters for value in p.choices if value != p.default]
        for chosen in ({}, *choices):
            configuration = under.configuration(active | chosen)
            try:
                rule = under.rule(loss, penalty, configuration)
            except InputError:
                if not chosen:
                    raise
                continue  # a choice that does not go with this penalty
            named = ", ".join(f"{key}={value}" for key, value in (active | chosen).items())
            numbers = under.numbers(configuration, rule.param_names)
            yield Case(rule, loss, numbers, f"penalty {penalty.name}" + f", {named}" * bool(named))


def _found(check: str, run: Callable[[Case], None], cases: Sequence[Case]) -> Finding:
    """The finding of one check of all cases."""
    for case in cases:
        try:
            run(case)
        except _StepError as failure:
            return Finding(check, f"{failure} ({case.label})")
    return Finding(check)


# ----------------------------------------------------------------------------------------------------------------------
# A learner's functions, played by the definition of the loop (`kernels.stream.build_learn`), on one column.


class Column:
    """The state of one column in Python numbers of a dtype; `dense` updates every coordinate in every round."""

    def __init__(self, case: Case, dtype: str, *, dense: bool = False) -> None:
        self.rule, self.dense, self.kind = case.rule, dense, np.dtype(dtype).type
        self.value, self.slope = case.loss.value, cast(Callable[..., Any], case.loss.slope)  # of one margin
        self.clock, self.params = case.rule.start, case.rule.params(*map(np.float64, case.numbers))
        start = self.rule.initial_state or (0.0,) * len(self.rule.slots)
        self.states = [self.rule.state(*map(self.kind, start)) for _ in RATES]
        self.stamps = [0.0] * len(RATES)
        self.round = 0

    def call(self, name: str, j: int | None, *arguments: Any) -> Any:
        """A function of the rule. Raises `_StepError`, with the round and the coordinate, if it fails."""
        where = f"{name}()" + ("" if j is None else f" of coordinate {j}") + f" in round {self.round}"
        try:
            found = getattr(self.rule, name)(*arguments)
        except Exception as error:
            raise _StepError(f"{where} raises {type(error).__name__}: {error}") from error
        values = found if isinstance(found, tuple) else (found,)
        kinds = {"round_scalars": self.rule.scalars, "advance": self.rule.params}
        kinds |= dict.fromkeys(("update", "see", "state_from_weight"), self.rule.state)
        if name in kinds and len(values) != len(kinds[name]._fields):
            raise _StepError(
                f"{where} gives {len(values)} numbers, and {kinds[name].__name__} has {kinds[name]._fields}"
            )
        if name != "round_scalars" and not np.isfinite(values).all():  # a cap may be infinite
            raise _StepError(f"{where} gives {found}")
        return kinds[name](*map(self.kind, values)) if name in kinds and name != "advance" else found

    def now(self) -> float:
        """The time that time stamps are of."""
        return 0.0 if self.rule.clock_time is None else float(self.call("clock_time", None, self.clock))

    def scalars(self) -> Any:
        """Those of the round."""
        return self.call("round_scalars", None, self.clock, self.params, self.rule.maps)

    def weights(self, scalars: Any) -> list[Any]:
        """The current weight of every coordinate."""
        now = self.now()
        return [
            self.call("weight", j, state, self.kind(now - stamp), scalars, self.rule.maps)
            for j, (state, stamp) in enumerate(zip(self.states, self.stamps, strict=True))
        ]

    def learn(self, x: np.ndarray, y: float) -> None:
        """One round."""
        rule, kind, own = self.rule, self.kind, np.flatnonzero(x).tolist()
        self.round += 1
        if rule.needs_row_norm:
            self.clock = see_row(self.clock, float(np.abs(x).max()))
        scalars, now = self.scalars(), self.now()
        if rule.see is not None:
            for j in own:
                self.states[j] = self.call("see", j, self.states[j], kind(x[j]))
        weights = self.weights(scalars)
        z = kind(sum(kind(x[j]) * kind(weights[j]) for j in own))
        slope, loss = kind(self.slope(z, y)), kind(self.value(z, y))
        square = kind((x * x).sum()) if rule.needs_row_norm else kind(0)
        total = kind(sum(self.call("row_term", j, self.states[j], kind(x[j])) for j in own) if rule.row_term else 0)
        for j in range(len(x)) if self.dense else own:
            row = RowInfo(kind(x[j]), z, kind(self.clock.max_abs), square, kind(0), kind(0), total, kind(1))
            if rule.needs_loss:
                row = row._replace(loss=loss, gradient_sq_norm=square * slope * slope)
            elapsed = kind(now - self.stamps[j])
            self.states[j] = self.call(
                "update", j, self.states[j], elapsed, scalars, slope * kind(x[j]), row, rule.maps
            )
            self.stamps[j] = now
        if rule.per_column_sums:
            self.params = rule.params(*self.call("advance", None, self.clock, self.params))
        self.clock = advance_clock(self.clock)

    def play(self) -> Iterator[list[Any]]:
        """Learn all rows; gives the weights after each."""
        with np.errstate(all="ignore"):
            for x, y in zip(*rows(), strict=True):
                self.learn(x, y)
                yield self.weights(self.scalars())


def _differ(own: Any, other: Any, dtype: str) -> bool:
    return not abs(float(own) - float(other)) <= CLOSE[dtype] * (1.0 + abs(float(other)))


def _lazy(case: Case) -> None:
    """Weights after every round are those of dense rounds."""
    X, _ = rows()
    for t, (own, dense) in enumerate(
        zip(Column(case, "float64").play(), Column(case, "float64", dense=True).play(), strict=True)
    ):
        for j, (lazy, wanted) in enumerate(zip(own, dense, strict=True)):
            if _differ(lazy, wanted, "float64"):
                function = "update()" if X[t, j] else "weight()"
                raise _StepError(
                    f"{function} of coordinate {j} in round {t + 1}: the weight is {lazy:.9g}, and {wanted:.9g} if "
                    "every round updates the coordinate, with gradient 0 where the row does not have it"
                )


def _finite(case: Case, dtype: str) -> None:
    """Nothing becomes infinite or NaN, twice the same; float32 is close to float64."""
    plays = Column(case, dtype).play(), Column(case, dtype).play(), Column(case, "float64").play()
    for t, (own, again, wanted) in enumerate(zip(*plays, strict=True)):
        for j, (w, repeated, double) in enumerate(zip(own, again, wanted, strict=True)):
            if w != repeated:
                raise _StepError(
                    f"the weight of coordinate {j} after round {t + 1} is {w}, and {repeated} when repeated"
                )
            if _differ(w, double, dtype):
                raise _StepError(f"the weight of coordinate {j} after round {t + 1} is {w}, and {double} in float64")


def _restored(case: Case) -> None:
    """The state made of a weight has this weight."""
    column = Column(case, "float64")
    for _ in column.play():
        pass
    scalars = column.scalars()
    stamp = column.call("time_after_update", None, column.clock) if column.rule.time_after_update else column.now()
    for j, w in enumerate(WEIGHTS):
        column.states[j] = column.call("state_from_weight", j, w, scalars, column.rule.maps)
        column.stamps[j] = float(stamp)
        found = column.weights(scalars)[j]
        if _differ(found, w, "float64"):
            raise _StepError(f"state_from_weight({w}) gives {column.states[j]}, whose weight() is {found:.9g}")


# ----------------------------------------------------------------------------------------------------------------------
# The compiled loops, on the default configuration and one more.


def _compiled(name: str, algorithm: Algorithm, case: Case | None) -> Iterator[Finding]:
    """The findings of `Learner`, compiled once for each dtype."""
    X, y = rows()
    penalty = next((each for each in algorithm.penalties if each != "group"), algorithm.penalties[0])
    known = algorithm.under(find_penalty(penalty)).parameters
    first = {p.name: ACTIVE[p.name] for p in known if p.name in ACTIVE}
    varied = next((p for p in known if p.grid and not p.static), None)
    second = first if varied is None else first | {varied.name: varied.grid[0]}
    regression, joint = algorithm.loss().regression, algorithm.loss().joint
    loss = case.loss.name if case is not None else algorithm.default_loss
    n_classes = None if regression or loss in ("log_return",) else 3 if joint and case is None else 2

    def new(grid: Sequence[Mapping[str, Any]], dtype: str) -> Learner:
        options: dict[str, Any] = {"loss": loss, "penalty": penalty, "n_classes": n_classes, "dtype": dtype}
        return Learner(name, grid=list(grid), n_features=len(RATES), **options)

    data, labels = (
        sp.csr_matrix(np.abs(X) + 0.5 if loss == "log_return" else X),
        y if n_classes is None else (y > 0) * 1,
    )
    for dtype in ("float64", "float32"):
        try:
            whole = new([first, second], dtype).partial_fit(data, labels)
            yield Finding(f"compiled, {dtype}")
            yield Finding(
                f"chunks of rows, save and load, {dtype}", _cut(new([first, second], dtype), data, labels, whole)
            )
            alone = [new([own], dtype).partial_fit(data, labels).weights() for own in (first, second)]
            problem = _unequal(np.hstack(alone), whole.weights(), "trained alone")
            yield Finding(f"columns together or alone, {dtype}", problem)
        except SparseocoError:
            raise
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            yield Finding(f"compiled, {dtype}", f"{type(error).__name__}: {' '.join(lines[:6])}")
            return
        if case is not None:
            *_, played = Column(case, dtype).play()
            pairs = enumerate(zip(whole.weights()[:, 0], played, strict=True))
            wrong = next(((j, own, w) for j, (own, w) in pairs if _differ(own, w, dtype)), None)
            text = "the weight of coordinate {} after the last round is {}, and {} in Python"
            yield Finding(f"compiled as in Python, {dtype}", "" if wrong is None else text.format(*wrong))


def _cut(learner: Learner, data: Any, labels: np.ndarray, whole: Learner) -> str:
    """What differs if rows come one by one, weights are read in between, and the state is saved and loaded."""
    for t in range(ROUNDS):
        learner.partial_fit(data[t], labels[t : t + 1])
        if t % 7 == 0:
            learner.weights()
        if t == ROUNDS // 2:
            with temporary_folder() as folder:
                learner.save(folder / "state")
                learner = Learner.load(folder / "state")
    return _unequal(learner.weights(), whole.weights(), "learned row by row")


def _unequal(own: np.ndarray, whole: np.ndarray, how: str) -> str:
    """The first weight whose bits differ."""
    different = np.argwhere(~((own == whole) | (np.isnan(own) & np.isnan(whole))))
    if len(different):
        j, column = different[0]
        return f"the weight of coordinate {j} is {own[j, column]!r} {how}, and {whole[j, column]!r} otherwise"
    return "" if np.isfinite(whole).all() else "a weight is not finite"
