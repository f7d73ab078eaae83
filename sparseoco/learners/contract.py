"""The learner contract: a few pure scalar functions over named tuples, parameters, and a source.

The kernel holds the only loop. For every column (one configuration × class) it calls

- ``round_scalars(clock, params, maps) -> Scalars`` — once per round: step size, weight of the penalty, …;
- ``weight(state, elapsed, scalars, maps) -> w`` — the current weight of a coordinate, lazily updated; never writes;
- ``update(state, elapsed, scalars, gradient, row, maps) -> State`` — after observing gradient = slope·x in `row`.

A learner declares `Params`, `Scalars` and `State` as NamedTuples with its paper's symbols as fields; numba flattens
them. `Params` are its parameters (0 if the penalty has no parameter of that name) and a column's sums over rounds. The
fields of `State` are stored for every coordinate, in this order, and start at 0. For learners that declare a
`clock_time`, `elapsed` is ``clock_time(now) − clock_time(at the feature's last update)``; all columns share one time
stamp per feature. `maps` are the functions of the penalty (`penalties.PenaltyFunctions`). State and scalars have the
columns' dtype; params and clocks are float64.

Everything else is an option of `Rule` with a default, which costs nothing in the compiled loop unless it is used.
"""

import math
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.formatting import did_you_mean
from sparseoco.learners.domains import Numbers, growth
from sparseoco.learners.losses import LOSSES, PORTFOLIO_LOSSES, Loss, find_loss
from sparseoco.learners.parameters import L1_RATIO, ONLINE_DRIVERS, RADIUS, STEP, Parameter, categorical
from sparseoco.learners.penalties import ADDITIVE, ONE, TOTALS, Penalty, PenaltyFunctions, no_growth


class Clock(NamedTuple):
    """The clock that all columns of a block share, float64 scalars, during round t = rounds + 1."""

    rounds: float = 0.0
    """Rounds done."""
    step: float = 1.0
    """Step size of this round without the factor eta0, see `step_size`."""
    step_sum: float = 0.0
    """Sum of `step` over the rounds done."""
    truncation_step: float = 1.0
    """As `step`, for the truncation in the second half of the round."""
    truncation_sum: float = 0.0
    """Sum of `truncation_step` over the rounds done."""
    truncated_sum: float = 0.0
    """`truncation_sum` after the last round that is a multiple of `period`."""
    period: float = 1.0
    """Rounds between two truncations."""
    shape: float = 0.0
    """Shape of the steps, an index in `STEP.choices`: 0 for 1/√t, 1 for constant steps, 2 for 1/t."""
    ahead: float = 0.0
    """1 if the truncation uses the step of the next round."""
    max_abs: float = 0.0
    """max |x_j| of the current row, for rules that need its norm; else 0."""
    max_abs_sum: float = 0.0
    """Sum of `max_abs` over the rows so far, including the current one."""
    rows_seen: float = 0.0
    """Number of rows in `max_abs_sum`."""


CLOCK_START = Clock()


@register_jitable
def step_size(shape, t):
    """The step of round t without the factor eta0: 1/√t, 1 or 1/t."""
    if shape == 0.0:
        return 1.0 / math.sqrt(t)
    return 1.0 if shape == 1.0 else 1.0 / t


@register_jitable
def advance_clock(clock):
    """The clock one round later."""
    rounds = clock.rounds + 1.0
    step = step_size(clock.shape, rounds + 1.0)
    next_step = step_size(clock.shape, rounds + 2.0)
    truncation_step = next_step if clock.ahead > 0.0 else step
    truncation_sum = clock.truncation_sum + clock.truncation_step
    truncated_sum = truncation_sum if rounds % clock.period == 0.0 else clock.truncated_sum
    step_sum = clock.step_sum + clock.step
    return Clock(rounds, step, step_sum, truncation_step, truncation_sum, truncated_sum, *clock[6:])


@register_jitable
def see_row(clock, max_abs):
    """The clock with the current row's largest |x_j|, 0 for an empty row."""
    return Clock(*clock[:9], max_abs, clock.max_abs_sum + max_abs, clock.rows_seen + 1.0)  # type: ignore[call-arg]


def start_clock(parameters: Mapping[str, Any]) -> Clock:
    """The clock of the first round, from the static parameters `step`, `second` and `K`, if any."""
    shape = float(STEP.choices.index(parameters.get("step", STEP.default)))
    ahead = parameters.get("second") == "next"
    return Clock(
        truncation_step=step_size(shape, 2.0) if ahead else 1.0,
        period=float(parameters.get("K", 1)),
        shape=shape,
        ahead=float(ahead),
    )


class RowInfo(NamedTuple):
    """Information about the current row for `update`, in the columns' dtype.

    Fields that a rule does not request (see `Rule`) are 0.
    """

    x: Any
    """x_j, the value of this coordinate."""
    margin: Any
    """z = ⟨w, x⟩ of this column before the update."""
    max_abs: Any = 0.0
    """max_j |x_j|."""
    sq_norm: Any = 0.0
    """‖x‖²."""
    loss: Any = 0.0
    """The loss ℓ without the sample weight: of this column's margin (one-vs-rest), or of all classes (joint loss); 0
    once diverged."""
    gradient_sq_norm: Any = 0.0
    """‖∇ℓ‖² with respect to all weights that ℓ depends on: Σ_k (dℓ/dz_k)²·‖x‖². With a group penalty, of the losses of
    all classes."""
    state_sum: Any = 0.0
    """Σ_j `Rule.row_term` over the row before the update, and over the classes of a joint loss."""
    weight: Any = 1.0
    """The sample weight of the row, > 0; the gradient already has it as a factor unless `Rule.weighs_rows`."""


@register_jitable
def round_clock(clock):
    """`clock_time` in rounds."""
    return clock.rounds


@register_jitable
def unchanged(clock, params):
    """`advance` for learners without per-column sums."""
    return params


@register_jitable
def stored_weight(state, elapsed, scalars, maps):
    """`weight` of learners whose first stored number is the iterate."""
    return state[0]


@register_jitable
def weight_as_state(w, scalars, maps):
    """`state_from_weight` of learners that store one number, the weight."""
    return (w,)


@register_jitable
def nonzero(w):
    """1 where w is not 0, else 0."""
    return 1.0 if w != 0.0 else 0.0


@dataclass(frozen=True)
class Rule:
    """The functions a kernel is compiled from, and the named tuples they take."""

    params: Any
    scalars: Any
    state: Any
    round_scalars: Callable[..., Any]
    update: Callable[..., Any]
    _: KW_ONLY
    maps: PenaltyFunctions = ADDITIVE
    """Those of a configuration, which `Algorithm.rule` sets, as it does `start`."""
    see: Callable[..., Any] | None = None
    """``see(state, x) -> State``: the state of a feature of a row before the row is predicted; x is multiplied by the
    row's sample weight and, with `sees_predictions`, by the slope that the user predicts."""
    sees_predictions: bool = False
    weight: Callable[..., Any] = stored_weight
    state_from_weight: Callable[..., Any] = weight_as_state
    """``state_from_weight(w, scalars, maps)``: a state whose current weight is w, for `Learner.start_from`. For w = 0
    it is the initial state (except time stamps); otherwise its weight is as close to w as the learner allows: a w
    outside a box becomes the nearest point of the box."""
    clock_time: Callable[..., Any] | None = None
    """``clock_time(clock)``: the time that `elapsed` measures, for lazily updated learners."""
    time_after_update: Callable[..., Any] | None = None
    """``time_after_update(clock)``: the time stamp of a feature whose state is up to date; by default `clock_time`."""
    per_column_sums: tuple[str, ...] = ()
    """Fields of `params` that start at 0 and that `advance` updates."""
    advance: Callable[..., Any] = unchanged
    """``advance(clock, params) -> params``, called after each round."""
    needs_row_norm: bool = False
    """Whether `Clock.max_abs`, `RowInfo.max_abs` and `RowInfo.sq_norm` are computed."""
    needs_loss: bool = False
    """Whether `RowInfo.loss` and, if `needs_row_norm`, `RowInfo.gradient_sq_norm` are computed."""
    weighs_rows: bool = False
    """Whether `update` itself uses `RowInfo.weight`, for rules that solve a problem per row; for all others the
    gradient is that of the weighted loss."""
    weight_is_float64: bool = False
    """Whether the weight that is read is float64 for columns of any dtype: margins are of its value before rounding."""
    row_term: Callable[..., Any] | None = None
    """``row_term(state, x, gradient, scalars)``: its sum over the row is `RowInfo.state_sum`."""
    initial_state: tuple[float, ...] = ()
    """The state of a coordinate before its first update; empty for zeros."""
    start: Clock = CLOCK_START
    """The clock of the first round."""
    stored_weight_valid_for: float = 0.0
    """Number of rounds for which the first stored number is the iterate w_t itself: inf; K if all coordinates change
    every K rounds; 0 if the weight is computed on reading."""
    reported: Callable[..., Any] | None = None
    """The weight that is read, with the arguments of `weight`, for learners that report a mean of their iterates; None
    if it is `weight`, with which rows are predicted while they are learned."""
    threshold: Callable[..., Any] | None = None
    """h_t of a coordinate after round t, with the arguments of `weight`, for learners whose penalty in round t is
    λ·h_t·|w|; None if h is 1."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the numbers stored per coordinate."""
        return tuple(self.state._fields)

    @property
    def param_names(self) -> tuple[str, ...]:
        """Names of a column's params, including the per-column sums."""
        return tuple(self.params._fields)


Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Parameters to values, or a list of configurations: see `Algorithm.expand`."""


@dataclass(frozen=True)
class Algorithm:
    """A learner as users see it: name, formula, source and parameters; `rule` returns its functions."""

    name: str
    formula: str
    source: str
    parameters: tuple[Parameter, ...]
    rules: Rule | Callable[[Loss, Penalty, Mapping[str, Any]], Any]
    """Its only rule, or ``rules(loss, penalty, configuration)``, which chooses one: a `Rule` for the stream driver, a
    `DenseRule` for the dense one, None for others. Raises `InputError` for unsupported combinations."""
    penalties: tuple[str, ...] = ("l1",)
    why: str = "its update is a closed form that only l1 has"
    """Why it supports no other penalties."""
    driver: str = "stream"
    """The loop that runs it: stream (one pass over rows) or dense (also, updating all features in every round), both in
    `Learner`; epoch (full passes and sampled rows), pass (full passes alone) or coordinate (sampled features), all in
    `sparseoco.fit_epochs`, which needs repeated access to the data."""
    losses: tuple[str, ...] = ()
    """The losses it is defined for, the default first; empty for all."""
    group_rules: "Callable[[Loss, Mapping[str, Any]], GroupRule] | None" = None
    """Its `GroupRule` for a loss and a configuration, if its penalty may be of groups of features. Raises
    `InputError`."""

    @property
    def online(self) -> bool:
        """Whether it learns from a stream of rows, in `Learner`. Only such learners can start from given weights."""
        return self.driver in ONLINE_DRIVERS

    def takes_intercept(self, penalty: Penalty) -> bool:
        """Whether it can learn an intercept, for which a convex set, or a box as penalty, leaves no room.

        If a parameter R bounds its weights, it bounds the intercept too.
        """
        return not self.touches_all_features and not penalty.bounded

    @property
    def touches_all_features(self) -> bool:
        """Whether every round updates all features, so that their number must be small and known from the start."""
        return self.driver == "dense"

    @property
    def samples_features(self) -> bool:
        """Whether it samples features instead of rows and so reads a store by columns."""
        return self.driver == "coordinate"

    @property
    def default_loss(self) -> str:
        """The loss if none is chosen."""
        return self.losses[0] if self.losses else "logistic"

    def loss(self, name: str | None = None) -> Loss:
        """The loss with this name, by default its own. Raises `InputError` if it is unknown or unsupported."""
        loss = find_loss(name or self.default_loss, portfolio=self.touches_all_features)
        if self.losses and loss.name not in self.losses:
            raise unsupported(f"{self.name} is not defined for loss={loss.name!r}; it takes {', '.join(self.losses)}.")
        return loss

    @property
    def loss_names(self) -> tuple[str, ...]:
        """The losses it supports, the default first."""
        return self.losses or tuple(LOSSES | PORTFOLIO_LOSSES if self.touches_all_features else LOSSES)

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The default grid of a search."""
        return {parameter.name: list(parameter.grid) for parameter in self.parameters if parameter.grid}

    def static_values(self, configuration: Mapping[str, Any]) -> tuple[Any, ...]:
        """The static parameters of a configuration; configurations with equal ones can share a compiled loop."""
        return tuple(configuration[parameter.name] for parameter in self.parameters if parameter.static)

    def rule(self, loss: Loss, penalty: Penalty, configuration: Mapping[str, Any]) -> Any:
        """The functions of a configuration, as `rules` describes them. Raises `InputError`."""
        chosen = self.rules if isinstance(self.rules, Rule) else self.rules(loss, penalty, configuration)
        if not isinstance(chosen, Rule):
            return chosen
        grow = growth(configuration["p"]) if "p" in configuration else no_growth
        maps = penalty.maps._replace(grow=grow, total=TOTALS[configuration.get("schedule", "constant")])
        return replace(chosen, maps=maps, start=start_clock(configuration))

    def under(self, penalty: Penalty) -> "Algorithm":
        """The learner with the parameters of this penalty. Raises `InputError` if it does not support the penalty."""
        if penalty.name not in self.penalties:
            raise unsupported(
                f"{self.name} is not defined for penalty={penalty.name!r}: {self.why}; "
                f"it takes {', '.join(self.penalties)}."
            )
        own = {"elastic_net": (L1_RATIO,), "box": (RADIUS,)}.get(penalty.name, ())
        others = tuple(p for p in self.parameters if p.name not in ("lam", "alpha") or not penalty.bounded)
        names = {p.name for p in others}
        return replace(self, parameters=(*others, *(p for p in own if p.name not in names)))

    def configuration(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters, checked, with defaults filled in, in the order of the definition.

        Raises `InputError` for a parameter that is unknown or out of range.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in values:
            if name not in known:
                question = did_you_mean(name, known)
                has = f"{question} It has" if question else "it has"
                message = f"{self.name} has no parameter {name!r}; {has} {', '.join(known) or 'none'}."
                raise InputError(message, code="unknown-parameter")
        checked = {}
        for name, parameter in known.items():
            value = values.get(name, parameter.default)
            try:
                checked[name] = parameter.check(value)
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(f"{self.name}: {name}={value!r} {error}.", code="invalid-parameter") from None
        return checked

    def expand(self, grid: Grid | None) -> list[dict[str, Any]]:
        """The configurations of a grid, each with every parameter checked and its defaults filled in.

        A mapping of parameters to values gives the product of the values: the first parameter in the learner's
        definition varies slowest, whatever the order of the mapping, and a single value is a list of one. A sequence of
        mappings is a list of configurations. Raises `InputError` naming the parameter that is unknown, empty or out of
        range.
        """
        if grid is None:
            grid = {}
        if not isinstance(grid, Mapping):
            if isinstance(grid, (str, bytes)) or not all(isinstance(entry, Mapping) for entry in grid):
                message = "grid must map parameters to values, or be a list of such mappings."
                raise InputError(message, code="invalid-grid")
            if not grid:
                raise InputError("grid is an empty list: there is no configuration to train.", code="invalid-grid")
            return [self.configuration(entry) for entry in grid]
        self.configuration({})  # raises for a required parameter
        names = [parameter.name for parameter in self.parameters]
        for name in grid:
            if name not in names:
                self.configuration({name: None})  # raises, naming those there are
        axes: dict[str, list[Any]] = {}
        for name in (name for name in names if name in grid):
            values = grid[name]
            single = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
            axes[name] = [values] if single else list(values)
            if not axes[name]:
                raise InputError(f"{self.name}: {name} has no values in the grid.", code="invalid-grid")
        return [self.configuration(dict(zip(axes, values, strict=True))) for values in product(*axes.values())]

    def numbers(self, configuration: Mapping[str, Any], names: tuple[str, ...]) -> list[float]:
        """Parameters as numbers for compiled code; 0 for those that the configuration does not have."""
        choices = {parameter.name: parameter.choices for parameter in self.parameters}
        values = ((configuration.get(name, 0.0), choices.get(name, ())) for name in names)
        return [float(named.index(value)) if named else float(value) for value, named in values]


# ----------------------------------------------------------------------------------------------------------------------
# What a rule derived from another consists of: states with a number more, and functions around the other's.


def extended(kind: Any, *fields: str) -> Any:
    """A named tuple with more fields."""
    name = f"{kind.__name__}With{''.join(map(str.title, fields))}"
    return namedtuple(name, (*kind._fields, *fields), module=kind.__module__)


def derived(function: Callable[..., Any], base: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    """A closure over `base` for compiled code, with a name of its own: kernels are cached by the names of functions.

    In it ``[:]`` makes of a named tuple one without names, which compiled code can extend.
    """
    function.__module__ = base.__module__
    function.__name__ = function.__qualname__ = f"{base.__qualname__}_{suffix}"
    return register_jitable(function)


def with_zeros(state_from_weight: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function with `count` zeros after its numbers, which become those of the rule's own state in the kernel."""
    zeros = (np.float32(0),) * count

    def padded(w, scalars, maps):
        return (*state_from_weight(w, scalars, maps)[:], *zeros)

    return derived(padded, state_from_weight, f"with_{count}_zeros")


# ----------------------------------------------------------------------------------------------------------------------
# Predictions g̃ of the next gradient, coordinate by coordinate, for learners whose weight depends on g_{1:t} +
# g̃_{t+1}.
#
# The prediction of a coordinate is 0 (none) or
#
# - last: g_t, which is 0 for a feature that is not in row t;
# - mean: the mean gradient over the rows with the feature if the next row has it, else 0. The row is known before it is
#   predicted, and a feature not in it has gradient 0; the theorems hold for any prediction made before x_{t+1} is
#   played. (Predicting the mean in the rounds between would cost a Σ 1/√(Δ² + k·g̃²) without a closed form, for
#   gradients known to be 0.) Weights that are read are those for a row that has the feature;
# - given: s̃_t·x_{t,j} for a slope s̃_t of the loss in the margin that the user predicts for every row and output: "any
#   estimate" of the next gradient (Mohri and Yang 2015, §2). Weights that are read are those without a prediction.
#
# Symbols: `g_last`, the gradient in the feature's last round; `g_mean`, over `seen` rounds; `g_given`, g̃ of the row
# that comes, 0 between rounds; `missed` = g − g̃;
# `elapsed`, rounds since the feature's last round (1 if that was the previous one).
#
# Why lazy is exact: with last, one pending round must be applied if the feature is not in the next row: there g = 0 and
# g̃ = g_last. It is applied on reading and at the feature's next update. With mean and given, g = g̃ = 0 in rows
# without the feature.
#
# With last one number more per coordinate, and one time stamp per feature; with mean two numbers; with given one.


PREDICT_GRADIENT = categorical(
    "predict_gradient",
    ("none", "last", "mean", "given"),
    "prediction of the next gradient: 0, the last one, the mean over the rows that had the feature, or what "
    "Learner.partial_fit is given",
    default="last",
)._replace(grid=("none", "last", "mean"))


def with_predictions(none: Rule, played: Callable[..., Any], unseen: Callable[..., Any]) -> dict[str, Rule]:
    """The rules for the values of `PREDICT_GRADIENT`, from that without a prediction.

    Its `weight` must be a function of g_{1:t}, the first number of its state, or what the paper has for it, plus g̃.

    ``played(state, x, gradient, missed, scalars)``: its state after a round at x, missed = g − g̃;
    ``unseen(state, g_tilde, elapsed, scalars, maps)``: its state after the round that followed its last one, without
    the feature.
    """
    State, weight, size = none.state, none.weight, len(none.state._fields)
    LastState, MeanState = extended(State, "g_last"), extended(State, "g_mean", "seen")
    GivenState, zero = extended(State, "g_given"), np.float32(0)

    @register_jitable
    def predicted(state, g_tilde, elapsed, scalars, maps):
        """The weight for the prediction g̃."""
        return weight(State(state[0] + g_tilde, *state[1:size]), elapsed, scalars, maps)

    @register_jitable
    def settled(state, elapsed, scalars, maps):
        """The learner's own state and g̃ of the next round, with the pending round applied if it is over."""
        own, g_tilde = State(*state[:size]), state.g_last
        if elapsed > 1:
            own, g_tilde = unseen(own, g_tilde, elapsed, scalars, maps), g_tilde - g_tilde
        return own, g_tilde

    def weight_last(state, elapsed, scalars, maps):
        own, g_tilde = settled(state, elapsed, scalars, maps)
        return predicted(own, g_tilde, elapsed, scalars, maps)

    def update_last(state, elapsed, scalars, gradient, row, maps):
        own, g_tilde = settled(state, elapsed, scalars, maps)
        x = predicted(own, g_tilde, elapsed, scalars, maps)
        return LastState(*played(own, x, gradient, gradient - g_tilde, scalars)[:], gradient)

    def weight_mean(state, elapsed, scalars, maps):
        return predicted(state, state.g_mean, elapsed, scalars, maps)

    def update_mean(state, elapsed, scalars, gradient, row, maps):
        x = predicted(state, state.g_mean, elapsed, scalars, maps)
        missed, seen = gradient - state.g_mean, state.seen + ONE
        own = played(State(*state[:size]), x, gradient, missed, scalars)
        return MeanState(*own[:], state.g_mean + missed / seen, seen)

    @register_jitable
    def see_given(state, g_tilde):
        return GivenState(*state[:size], g_tilde)

    def weight_given(state, elapsed, scalars, maps):
        return predicted(state, state.g_given, elapsed, scalars, maps)

    def update_given(state, elapsed, scalars, gradient, row, maps):
        x = predicted(state, state.g_given, elapsed, scalars, maps)
        return GivenState(*played(State(*state[:size]), x, gradient, gradient - state.g_given, scalars)[:], zero)

    last = replace(
        none,
        state=LastState,
        weight=derived(weight_last, weight, "last"),
        update=derived(update_last, none.update, "last"),
        state_from_weight=with_zeros(none.state_from_weight, 1),
        clock_time=round_clock,
    )
    mean = replace(
        none,
        state=MeanState,
        weight=derived(weight_mean, weight, "mean"),
        update=derived(update_mean, none.update, "mean"),
        state_from_weight=with_zeros(none.state_from_weight, 2),
    )
    given = replace(
        none,
        state=GivenState,
        weight=derived(weight_given, weight, "given"),
        update=derived(update_given, none.update, "given"),
        see=derived(see_given, weight, "given"),
        sees_predictions=True,
        state_from_weight=with_zeros(none.state_from_weight, 1),
    )
    return {"none": none, "last": last, "mean": mean, "given": given}


# ----------------------------------------------------------------------------------------------------------------------
# Models of the loss: what a gradient step minimises, together with the distance from w_t in the learner's metric H.
#
#     w_{t+½} = argmin_w m_t(w) + ‖w − w_t‖²_H/(2η),    m_t(w) = ℓ_t + ⟨g_t, w − w_t⟩              (linear)
#                                                       m_t(w) = max(ℓ_t + ⟨g_t, w − w_t⟩, 0)      (truncated)
#             = w_t − min(η, ℓ_t/‖g_t‖²_{H⁻¹})·H⁻¹g_t for the truncated model
#
# Source: Asi and Duchi (2019), Stochastic (approximate) proximal point methods, SIAM J. Optim. 29, the truncated model;
# with the metric of AdaGrad: The importance of better models in stochastic optimization, PNAS 116, and the code that
# the authors published with it, which has g_t in H. No step goes beyond the point where the linear model is 0, the
# least value that a loss has, so that a step size far too long does little harm.
#
# A penalty is applied after it: w_{t+1} = prox_{ηψ}(w_{t+½}) in the same metric. That is what the papers have for ψ = 0
# only. The minimiser of m_t + ψ together is prox_{ηψ}(w_t − s·ηH⁻¹g_t) with an s in [0, 1] that depends on the prox;
# for l1 it is the root of a piecewise linear function of s, which no sum over the row gives (Schaipp, Gower and Ulbrich
# 2023 have a closed form for ½‖w‖²). Where the joint problem has s = 1, both are the same. As m_t ≤ ℓ_t, m_t(w_t) = ℓ_t
# and m_t is at least the linear model, a step has the inequality of which the bounds of linear models are a sum; they
# hold without a change.


MODEL = categorical(
    "model",
    ("linear", "truncated"),
    "model of a row's loss that a step minimises: its tangent, or the tangent where it is above 0, else 0, with which "
    "no step is too long",
)


@register_jitable
def truncated_step(step, loss, square):
    """min(η, ℓ/‖g‖²)."""
    return loss / square if loss < step * square else step


def is_truncated(name: str, loss: Loss, configuration: Mapping[str, Any], obstacle: str = "") -> bool:
    """Whether the model is the truncated one.

    Raises `InputError` if the loss has values below 0, or for an `obstacle`, a reason why it is not offered.
    """
    if configuration.get("model", "linear") == "linear":
        return False
    if not loss.nonnegative:
        obstacle = f"loss={loss.name!r} has values below 0, where the model is truncated"
    if obstacle:
        raise unsupported(f"{name} has no model='truncated' here: {obstacle}.")
    return True


# ----------------------------------------------------------------------------------------------------------------------
# Groups of features: what the loop in `kernels.groups` needs to know of a learner whose prox acts on them.


class GroupRule(NamedTuple):
    """FOBOS with groups of features, for one choice of its static parameters."""

    lazy: bool
    """Whether a group gets the prox in the rounds with one of its features only, after the step: cl-fobos."""
    postpones: bool
    """Whether a lazy prox waits while all slopes are exactly 0."""
    averaged: bool
    """Whether weights that are read are the mean of the iterates."""
    start: Clock
    """The clock of the first round."""


# ----------------------------------------------------------------------------------------------------------------------
# The contract of dense learners: a point of a convex set that moves in every round, and a memory.
#
# With n features, a column has a point y (n,) and a memory (m, n), both float64, and its `Numbers`. The kernel plays
#     y,
# or for a bandit x = y + δv with a random direction v, and calls
#
# - ``move(y, memory, g, t, numbers)`` — update y and memory in place, given the gradient g of round t or a bandit's
#   estimate of it;
# - ``project(y, memory, numbers)`` — then project y onto the set in place, see `sparseoco.learners.domains`;
# - ``begin(memory, numbers)`` — in plain NumPy: initialise the memory, given as zeros. The point starts at the centre.


def no_memory(n: int) -> int:
    """`DenseRule.memory` of learners without a memory."""
    return 0


def begin_with_zeros(memory: Any, numbers: Numbers) -> None:
    """`DenseRule.begin` of learners whose memory starts at 0."""


class DenseRule(NamedTuple):
    """The functions that the dense kernel calls, and the shape of a column's memory."""

    move: Callable[..., None]
    project: Callable[..., None]
    """Also applied to initial weights."""
    numbers: Callable[[Mapping[str, Any], int], Numbers]
    """``numbers(configuration, n)`` for n features. Raises `InputError` for parameters that cannot be combined."""
    memory: Callable[[int], int] = no_memory
    """``memory(n)``: rows of n numbers stored with the point."""
    begin: Callable[..., None] = begin_with_zeros
    played: int = 0
    """Of a bandit: in how many points a round reveals the loss, 1 or 2. 0 if a round reveals the gradient."""
    stays: bool = False
    """Whether `move` never leaves the set, so that only initial weights are projected."""
    flat: bool = False
    """Whether the set lies in a hyperplane Σ x_i = constant and so has dimension n − 1."""


WHY = "it has no penalty, only its convex set; penalty='l1' means no penalty"
