"""What a learner is: a few scalar functions, its parameters, and where it comes from.

A learner is written as pure scalar functions registered for compiled code; `drivers` holds the only loops. With n the
rounds done so far (round t = n + 1 is being played), a driver calls

- ``time(clock) -> float64`` — the clock a sleeping feature is charged by; the driver stamps it on every feature of a
  row, one stamp a feature for all columns, and hands back ``slept`` = time now − time stamped;
- ``tick(clock, hyper) -> now`` — a column's scalars of this round: step size, rate of charge;
- ``weight(slots, slept, now, prox, parts) -> w`` — the weight now, brought up to date, nothing written;
- ``observe(slots, slept, now, g, x, prox, parts) -> slots`` — a gradient g = slope·x was seen;
- ``from_weight(w, now, preimage, parts) -> slots`` — slots of a coordinate whose weight now is w, of which no more is
  known: for learners that begin from weights (see `Learner.start_from`).

`clock` is a `Clock`; `hyper`, `now` and `slots` are tuples, unpacked by each function under the paper's symbols.
Slots and `now` have the columns' dtype, clocks are float64.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from numba.extending import register_jitable

from sparseoco.core.errors import InputError
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty


class Clock(NamedTuple):
    """The time shared by all columns of a block, as float64 scalars."""

    n: float
    """Rounds done."""
    s: float
    """Shape of the coming round's step, 1/√(n + 1)."""
    S: float
    """Sum of the shapes of the rounds done."""
    L: float
    """max |x_j| over the row being played, for rules that are `sized`; else 0."""
    L_sum: float
    """Sum of `L` over the rows that were seen, the one being played included."""
    s_half: float
    """Shape of the step of the coming round's second half, the truncation."""
    S_half: float
    """Sum of `s_half` over the rounds done."""
    Q: float
    """`S_half` as it was after the last round that K divides."""
    K: float
    """Rounds between two truncations."""
    constant: float
    """1 where steps have the shape 1 instead of 1/√t."""
    ahead: float
    """1 where the truncation takes the step of the next round."""
    L_rows: float
    """Rows that `L_sum` is of."""


@register_jitable
def advance(clock):
    """The clock one round later."""
    n = clock.n + 1.0
    s = 1.0 if clock.constant > 0.0 else 1.0 / math.sqrt(n + 1.0)
    after = 1.0 if clock.constant > 0.0 else 1.0 / math.sqrt(n + 2.0)
    S_half = clock.S_half + clock.s_half
    return Clock(
        n,
        s,
        clock.S + clock.s,
        clock.L,
        clock.L_sum,
        after if clock.ahead > 0.0 else s,
        S_half,
        S_half if n % clock.K == 0.0 else clock.Q,
        clock.K,
        clock.constant,
        clock.ahead,
        clock.L_rows,
    )


START = Clock(0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def begin(parameters: Mapping[str, Any]) -> Clock:
    """The clock of the first round, as the static parameters `step`, `second` and `K` have it, where there are any."""
    constant = parameters.get("step") == "constant"
    ahead = parameters.get("second") == "next"
    return START._replace(
        s_half=math.sqrt(0.5) if ahead and not constant else 1.0,
        K=float(parameters.get("K", 1)),
        constant=float(constant),
        ahead=float(ahead),
    )


@register_jitable
def clock_of(a):
    """The clock that was kept in an array of float64."""
    return Clock(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11])


@register_jitable
def keep_clock(a, clock):
    """Keep a clock in an array of float64."""
    a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11] = clock


@register_jitable
def no_time(clock):
    """For learners whose sleeping coordinates need no clock of their own."""
    return 0.0


@register_jitable
def same(clock, hyper):
    """For learners without running numbers."""
    return hyper


@register_jitable
def weight_itself(w, now, preimage, parts):
    """`from_weight` of learners whose one slot is the weight."""
    return (w,)


@register_jitable
def nonzero(w):
    """1 where w is not 0, else 0."""
    return 1.0 if w != 0.0 else 0.0


class Rule(NamedTuple):
    """The functions a driver compiles, and the shapes of what they work on."""

    time: Callable[..., Any]
    tick: Callable[..., Any]
    weight: Callable[..., Any]
    observe: Callable[..., Any]
    slots: tuple[str, ...]
    """Names of the numbers kept a coordinate."""
    hyper: tuple[str, ...]
    """Parameters that `tick` reads, in its order."""
    ticks: int
    """Length of `now`."""
    stamped: bool
    """Whether sleeping features are charged, so that a stamp a feature is kept."""
    parts: tuple[Callable[..., Any], Callable[..., Any]] = (no_time, no_time)
    """Two functions that `weight` and `observe` are put together from, chosen by static parameters."""
    sized: bool = False
    """Whether `tick` reads the size of the row, `Clock.L`."""
    start: Clock = START
    """The clock of the first round."""
    running: tuple[str, ...] = ()
    """Numbers a column keeps as float64, from 0; `tick` sees them after `hyper`."""
    kept_for: float = 0.0
    """Rounds for which slot 0 is the iterate w_t itself: inf, or K where all coordinates move every K rounds; 0 where
    what is stored is brought up to date on reading."""
    run: Callable[..., Any] = same
    """``run(clock, hyper) -> hyper``: all `tick` sees, the running numbers as they are after the round."""
    threshold: Callable[..., Any] | None = None
    """h_t of a coordinate after round t, from what `weight` is given, where its own history weighs its penalty:
    λ·h_t·|w| in round t; None where h is 1."""
    from_weight: Callable[..., Any] = weight_itself
    """Zeros for w = 0, as of a feature that was never seen (but for what is a clock), and w as near as the form has it;
    of a w beyond a box, the slots of the box's wall."""
    paid_at: Callable[..., Any] | None = None
    """``paid_at(clock)``: the stamp of a feature that owes nothing for the rounds done; None where `time` is that."""


class Parameter(NamedTuple):
    """A parameter of a learner: `check` gives the value in its canonical (JSON) form or raises `ValueError`."""

    name: str
    default: Any
    meaning: str
    check: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    """The values there are, if they are names; `tick` sees the place in this list."""
    static: bool = False
    """Chooses functions: configurations that differ in it are compiled apart, in blocks of their own."""
    grid: tuple[Any, ...] = ()
    """Values a search tries where it is told none; empty for the default alone."""


@dataclass(frozen=True)
class Algorithm:
    """A learner as users see it: name, formula, source, parameters; `rule` gives the functions."""

    name: str
    formula: str
    source: str
    parameters: tuple[Parameter, ...]
    penalties: tuple[str, ...]
    rule: Callable[[Loss, Penalty, Mapping[str, Any]], Any]
    """A configuration's functions: a `Rule`, or a `DenseRule` where the driver is dense."""
    module: str
    why: str = "its update is a closed form that only l1 has"
    """Why it takes no other penalties."""
    driver: str = "stream"
    """The loop that runs it: stream (rows in turn) or dense (rows in turn, all features in every round), both by
    `Learner`; epoch (full passes and sampled rows) or coordinate (sampled features), both by
    `sparseoco.offline.epochs` over
    data that can be gone through again."""

    @property
    def online(self) -> bool:
        """Whether it takes rows in turn, once each: whatever `Learner` runs."""
        return self.driver in ("stream", "dense")

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The grid a search tries where it is told none."""
        return {parameter.name: list(parameter.grid) for parameter in self.parameters if parameter.grid}

    def static_values(self, configuration: Mapping[str, Any]) -> tuple[Any, ...]:
        """The static parameters of a configuration: those with equal ones can share a compiled loop."""
        return tuple(configuration[parameter.name] for parameter in self.parameters if parameter.static)

    def under(self, penalty: Penalty) -> "Algorithm":
        """The learner with this penalty's own parameters; `InputError` says why where the two have no meaning."""
        if penalty.name not in self.penalties:
            taken = ", ".join(self.penalties)
            raise InputError(f"{self.name} is not defined for penalty={penalty.name!r}: {self.why}; it takes {taken}.")
        own = {"elastic_net": (L1_RATIO,), "box": (RADIUS,)}.get(penalty.name, ())
        kept = tuple(p for p in self.parameters if p.name != "lam" or penalty.kind != "bounded")
        return replace(self, parameters=(*kept, *own))

    def configuration(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters, checked, defaults filled in, in the order of the definition.

        Raises `InputError` naming the parameter that is unknown or out of range, and why.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in values:
            if name not in known:
                raise InputError(f"{self.name} has no parameter {name!r}; it has {', '.join(known)}.")
        checked = {}
        for name, parameter in known.items():
            value = values.get(name, parameter.default)
            try:
                checked[name] = parameter.check(value)
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(f"{self.name}: {name}={value!r} {error}.") from None
        return checked

    def numbers(self, configuration: Mapping[str, Any], names: tuple[str, ...]) -> list[float]:
        """Parameters as `tick` sees them; one that the penalty does without is 0."""
        choices = {parameter.name: parameter.choices for parameter in self.parameters}
        values = ((configuration.get(name, 0.0), choices.get(name, ())) for name in names)
        return [float(named.index(value)) if named else float(value) for value, named in values]


def one_of(*choices: str) -> Callable[[Any], str]:
    """A check: one of these names."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return value

    return check


def number(value: Any) -> float:
    """A finite float."""
    if isinstance(value, (bool, str, bytes)):
        raise ValueError("is not a number")
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ValueError("is not a number") from None
    if not math.isfinite(result):
        raise ValueError("is not finite")
    return result


def positive(value: Any) -> float:
    """A finite float > 0."""
    result = number(value)
    if result <= 0.0:
        raise ValueError("must be greater than 0")
    return result


def nonnegative(value: Any) -> float:
    """A finite float ≥ 0."""
    result = number(value)
    if result < 0.0:
        raise ValueError("must not be negative")
    return result + 0.0  # −0 is 0


def whole(value: Any) -> int:
    """A whole number ≥ 1."""
    result = number(value)
    if result < 1.0 or not result.is_integer():
        raise ValueError("must be a whole number of at least 1")
    return int(result)


def share(value: Any) -> float:
    """A number from 0 up to, and not including, 1."""
    result = nonnegative(value)
    if result >= 1.0:
        raise ValueError("must be less than 1 (at 1 it is penalty='l1')")
    return result


ETA0 = Parameter(
    "eta0", 0.5, "step size of the first round; round t steps eta0/√t", positive, grid=(0.03, 0.1, 0.3, 1.0)
)
GAMMA = Parameter(
    "gamma",
    1.0,
    "weight of the proximal term, β_t = gamma·√t; steps are 1/(gamma·√t)",
    positive,
    grid=(0.3, 1.0, 3.0, 10.0),
)
LAM = Parameter("lam", 1e-5, "weight λ of the penalty", nonnegative, grid=(1e-7, 1e-6, 1e-5, 1e-4))
STEP = Parameter(
    "step",
    "sqrt",
    "shape of the steps: eta0/√t, or eta0 in every round",
    one_of("sqrt", "constant"),
    ("sqrt", "constant"),
    static=True,
)
SECOND = Parameter(
    "second",
    "same",
    "step η_{t+1/2} of the truncation: the same as the round's, or the next round's",
    one_of("same", "next"),
    ("same", "next"),
    static=True,
)
L1_RATIO = Parameter("l1_ratio", 0.5, "ρ, the share of l1 in the elastic net", share, grid=(0.1, 0.5, 0.9))
RADIUS = Parameter("R", 1.0, "bound of every weight", positive, grid=(0.1, 1.0, 10.0))
