"""Regret of rounds that are played again: comparators, curves, quantities of bounds, their tasks, and the tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.kernels.columns import RowBatch
from sparseoco.learners import check_algorithm_name, find_algorithm
from sparseoco.learners.cao_rcd import lipschitz
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import TOTALS, find_penalty
from sparseoco.offline.bounds import Bound, NoBound, regret_bound, state_quantities
from sparseoco.offline.optimum import SMOOTH_LOSSES
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_checkpoint, write_checkpoint
from sparseoco.store.corpus import worker_corpus
from sparseoco.store.shards import Store, StoreReference, open_store
from sparseoco.training.block import Block
from sparseoco.training.learner import Learner
from sparseoco.training.stream import Order, Passes, RowSource, StreamPosition, class_weighted, stream
from sparseoco.training.validation import chunk_rows

# ----------------------------------------------------------------------------------------------------------------------
# The rounds at which regret is measured.


MARKS = 12
MIN_SAMPLES, MAX_SAMPLES = 64, 2048
SAMPLE_SHARE = 16  # cost of reading all weights at the samples, relative to learning the rows


def sample_size(n_rows: int, nonzeros: int, n_features: int) -> int:
    """Number of rounds to sample: all if they are few, else as many as cost a fixed multiple of the pass."""
    affordable = SAMPLE_SHARE * nonzeros // max(n_features, 1)
    return min(n_rows, max(MIN_SAMPLES, min(affordable, MAX_SAMPLES)))


def sampled_rounds(marks: Sequence[int], number: int) -> list[int]:
    """About `number` rounds from 1 to the last mark, including all marks; at most every round.

    They are spaced quadratically, denser at the start, because iterates change by 1/√t.
    """
    last = marks[-1]
    if number >= last:
        return list(range(1, last + 1))
    return sorted({1, *marks} | {max(1, round(last * (k / number) ** 2)) for k in range(1, number + 1)})


# ----------------------------------------------------------------------------------------------------------------------
# The best fixed weights that a learner is compared with: the minimum of its theorem's objective.
#
#     min_w Σ_{t≤T} f_t(w) + T·λ·(ρ‖w‖₁ + (1 − ρ)‖w‖²/2),  |w_i| ≤ R
#
# For epoch methods, whose loss in every round is the sum over all examples, it is T times
#
#     min_w Σ_j f_j(w) + α·(ρ‖w‖₁ + (1 − ρ)‖w‖²/2),  |w_i| ≤ R
#
# With a `schedule` of penalties α_tψ, Tλ is λ·Σ_{t≤T} α_t.
#
# For learners that weight the penalty by each coordinate's history (sgft, stda) ‖w‖₁ is Σ_i (Σ_{t≤T} h_{t,i}/T)·|w_i|,
# with the h of the learner itself: Oiwa et al. (2011), Theorem 1; (2012), (19). f_t has the sample weight of its row. A
# learner with an intercept is compared with the minimum over b, too, of the losses of ⟨w, x⟩ + b.
#
# With a `scale`, |w_i| ≤ R_i, the learner's own. With first, R divided by the feature's value in the first row that the
# learner updated it by: before that row the coordinate is 0 for any R_i, with a penalty too, and w_i = 0 if there is
# none. Theorems 1 to 6 are of each coordinate alone, so the bounds have R_i for R.


class Comparator(NamedTuple):
    """The terms of the objective besides the losses."""

    lam: float
    l1_ratio: float
    """ρ: 1 for l1, 0 for l2."""
    R: float | None
    """Bound of every weight, or None."""
    own_history: bool
    """Whether the penalty has the learner's weights h."""
    intercept: bool = False
    """Whether it has an intercept, which neither the penalty nor R bounds."""
    epochs: bool = False
    """Whether every round has all examples; then λ is the α of their sum."""
    schedule: str = "constant"
    """Of the penalties α_tψ."""
    scaled: bool = False
    """Whether every weight has the learner's own range R_i instead of R."""
    grouped: bool = False
    """Whether ‖w‖₁ is Σ_G ‖w_G‖₂, over the groups of the setting and all classes."""

    @property
    def own(self) -> bool:
        """Whether it depends on the state of the learner."""
        return self.own_history or self.scaled

    def alpha(self, T: int) -> float:
        """The weight of the penalty relative to a sum of T losses."""
        return self.lam if self.epochs else self.lam * float(TOTALS[self.schedule](T))

    def penalty(self, T: int, x: NDArray[np.float64]) -> float:
        """ψ_{1:T}(x) of weights, without a history."""
        size = self.l1_ratio * np.abs(x).sum() + (1.0 - self.l1_ratio) * (x**2).sum() / 2.0
        return float(self.alpha(T) * size)

    @property
    def formula(self) -> str:
        """The objective."""
        weight = "α" if self.epochs else {"constant": "Tλ", "sqrt": "√T·λ", "first": "λ"}[self.schedule]
        if self.own_history:
            penalty = " + λ·Σ_t‖h_t∘w‖₁"
        elif self.grouped:
            penalty = f" + {weight}·Σ_G‖w_G‖₂"
        elif self.lam == 0:
            penalty = ""
        elif self.l1_ratio == 1:
            penalty = f" + {weight}‖w‖₁"
        elif self.l1_ratio == 0:
            penalty = f" + {weight}‖w‖²/2"
        else:
            penalty = f" + {weight}(ρ‖w‖₁ + (1 − ρ)‖w‖²/2), ρ = {self.l1_ratio:g}"
        losses = ("Σ_j f_j(" if self.epochs else "Σ_t f_t(") + ("w, b)" if self.intercept else "w)")
        own = "/max_j |a_{j,i}|" if self.epochs else "/|x_i| of its first row"
        box = f", |w_i| ≤ {self.R:g}{own if self.scaled else ''}" if self.R is not None else ""
        return losses + penalty + box


def find_comparator(
    algorithm: str, parameters: Mapping[str, Any], loss: str, penalty: str, *, intercept: bool = False
) -> Comparator:
    """The comparator of a configuration, which may have an intercept. Raises `InputError` if there is none."""
    definition, kind, joint = find_algorithm(algorithm), find_penalty(penalty), find_loss(loss).joint
    R, lam, scaled = parameters.get("R"), parameters.get("lam", 0.0), parameters.get("scale", "none") != "none"
    reasons = (
        (joint, f"loss={loss!r} is joint over the classes: search with loss={joint!r}, one loss per class"),
        (
            kind.grouped and loss not in SMOOTH_LOSSES,
            f"optima with groups are found for smooth losses ({', '.join(SMOOTH_LOSSES)}), not for {loss}",
        ),
        (definition.touches_all_features, f"{algorithm} has a convex set instead of a penalty or a box"),
    )
    for applies, reason in reasons:
        if applies:
            raise unsupported(f"Regret has no optimum to compare with: {reason}.")
    ratio = {"l2": 0.0, "elastic_net": parameters.get("l1_ratio", 1.0)}.get(penalty, 1.0)
    if not definition.online:
        alpha = parameters.get("alpha", 0.0)
        return Comparator(alpha, ratio, R, own_history=False, intercept=intercept, epochs=True, scaled=scaled)
    if R is None and lam == 0:
        raise InputError(
            f"{algorithm} with lam=0 has no comparator: without a penalty or a box the best fixed weights may be "
            "infinite.",
            code="no-comparator",
        )
    if kind.grouped:
        return Comparator(lam, 1.0, R, own_history=False, intercept=intercept, grouped=True)
    rule = definition.under(kind).rule(find_loss(loss), kind, parameters)
    schedule = parameters.get("schedule", "constant")
    return Comparator(lam, ratio, R, rule.threshold is not None, intercept, schedule=schedule, scaled=scaled)


# ----------------------------------------------------------------------------------------------------------------------
# The loss and penalty that a learner incurs on a stream: Σ_{t≤T} f_t(w_t) and Σ_{t≤T} ψ_t(w_t) at marks.
#
# The learner itself sums the losses, times the sample weights of their rows; every row is predicted before it is
# learned. ψ_t(w_t), without the intercept, is
#
# - λ·ψ(w_t), of the iterate that predicts round t, times α_t of the learner's `schedule`; or
# - λ·Σ_i h_{t,i}|w_{t,i}| for learners that weight the penalty by each coordinate's history (`Learner.thresholds_of`):
#   Oiwa et al. (2011), Theorem 1, and (2012), (10), (19). h_t includes round t's gradient.
#
# The sum is exact if the learner sums ‖w_t‖₁ in every round (`Learner(objective=True)`) and all α_t = 1, or if every
# round is sampled.
# Otherwise ψ_t is computed at sampled rounds and interpolated linearly between them.


FIRST_EPOCH = 1


class FirstEpoch(NamedTuple):
    """The first epoch of a stream, whose rows are the rounds."""

    source: RowSource
    order: Order

    def learn(self, learner: Learner, T: int, observe: Callable[[RowBatch], None] = lambda rows: None) -> None:
        """Continue a learner up to round T; `observe` gets the rows of each chunk before they are learned."""
        start = StreamPosition(FIRST_EPOCH, learner.progress.rows)
        size = chunk_rows(learner.algorithm, learner.n_features, learner.n_columns)
        passes = Passes(self.order, StreamPosition(FIRST_EPOCH, T), start, chunk_rows=size)
        for _, rows in stream(self.source, passes):
            observe(rows)
            learner.learn_rows(*rows)


class Mark(NamedTuple):
    """The sums of a learner after T rounds."""

    T: int
    loss: float
    """Σ_{t≤T} f_t(w_t)."""
    penalty: float
    """Σ_{t≤T} ψ_t(w_t), λ included."""
    penalty_error: float
    """The difference from the sum over every second sample; 0 if exact."""
    exact: bool
    thresholds: NDArray[np.float64] | None
    """(features, outputs) Σ_{t≤T} h_t, for learners that have them."""


class LinearSum:
    """Σ_{t≤T} a_t of numbers or arrays known in some rounds, from round 1, interpolated linearly between them.

    With a known in rounds s < t, the rounds s + 1 … t sum to (t − s)(a_s + a_t)/2 + (a_t − a_s)/2: a_t where t = s + 1.
    """

    def __init__(self) -> None:
        self.t = 0
        self.last: Any = 0.0
        self.total: Any = 0.0

    def add(self, t: int, value: Any) -> None:
        """Add a_t."""
        last = value if self.t == 0 else self.last
        self.total = self.total + (t - self.t) * (last + value) / 2 + (value - last) / 2
        self.t, self.last = t, value


def measure(learner: Learner, rounds: FirstEpoch, marks: Sequence[int], samples: Sequence[int]) -> Iterator[Mark]:
    """Learn a stream with a new learner of one configuration; yields its sums at each mark.

    `samples` are increasing rounds, from 1, that include all marks (`rounds.sampled_rounds`). Stops when the
    learner diverges.
    """
    constant = learner.configurations[0].get("schedule", "constant") == "constant"
    if constant and not np.isnan(learner.measure().objective[0]) and learner.thresholds_of(0) is None:
        for T in marks:
            rounds.learn(learner, T)
            if learner.diverged[0]:
                return
            measured = learner.measure()
            penalty = float(measured.objective[0] - measured.progressive_loss[0]) * T
            yield Mark(T, float(learner.weighted_loss_sum[0]), penalty, 0.0, True, None)
    else:
        yield from _measure_sampled(learner, rounds, set(marks), samples)


def _measure_sampled(learner: Learner, rounds: FirstEpoch, marks: set[int], samples: Sequence[int]) -> Iterator[Mark]:
    parameters = learner.configurations[0]
    lam, total = parameters.get("lam", 0.0), TOTALS[parameters.get("schedule", "constant")]
    exact = len(samples) == samples[-1]
    penalty, coarse, thresholds = LinearSum(), LinearSum(), LinearSum()
    for k, t in enumerate(samples):
        rounds.learn(learner, t - 1)
        weighted = learner.thresholds_of(0) is not None
        if weighted:
            weights = np.abs(learner.weights_of(0), dtype=np.float64)
            rounds.learn(learner, t)
            h = np.asarray(learner.thresholds_of(0), np.float64)
            value = lam * float(np.einsum("jc,jc->", h, weights))
            thresholds.add(t, h)
        else:
            value = float(total(t) - total(t - 1)) * float(learner.measure().penalty[0])
        penalty.add(t, value)
        if k % 2 == 0 or t in marks:
            coarse.add(t, value)
        if t in marks:
            rounds.learn(learner, t)
            if learner.diverged[0]:
                return
            loss, error = float(learner.weighted_loss_sum[0]), 0.0 if exact else abs(penalty.total - coarse.total)
            yield Mark(t, loss, penalty.total, error, exact, np.array(thresholds.total) if weighted else None)


# ----------------------------------------------------------------------------------------------------------------------
# The inputs of the papers' bounds (`sparseoco.offline.bounds.QUANTITIES`), measured along a stream.
#
# From the rows: the largest ‖x_t‖₂ and max |x_{t,i}|, which bound the gradients of losses whose slope is at most 1; the
# features seen; the longest gaps between the rounds of a feature. From the iterates, in the sampled rounds: their
# distance from each mark's comparator. From the learner's state, at the marks: `bounds.state_quantities`.


Floats = NDArray[np.float64]
FROM_GRADIENTS = {"G", "G_inf"}
FROM_GAPS = {"K", "spread", "S"}


class SparseComparator:
    """A comparator x (features, outputs), stored as its nonzero entries, and its intercepts b (outputs,)."""

    def __init__(self, x: Floats, b: Floats) -> None:
        self.x, self.b = x, b
        self.rows, self.columns = np.nonzero(x)
        self.values = x[self.rows, self.columns]
        self.square = (x**2).sum(axis=0)

    def distance(self, w: Floats, square: Floats, b: Floats) -> Floats:
        """(outputs,) ‖(w, b) − (x, own b)‖₂, given ‖w‖₂²."""
        cross = np.bincount(self.columns, w[self.rows, self.columns] * self.values, self.x.shape[1])
        return np.asarray(np.hypot(np.sqrt(np.maximum(square - 2 * cross + self.square, 0.0)), b - self.b))

    def spread(self, w: Floats, total: Floats) -> Floats:
        """(outputs,) Σ_i ||w_i| − |x_i||, given ‖w‖₁."""
        here, there = np.abs(w[self.rows, self.columns]), np.abs(self.values)
        return total + np.bincount(self.columns, np.abs(here - there) - here, self.x.shape[1])


class _RowQuantities:
    """Quantities of the rows seen so far, times their sample weights, and with the 1 of an intercept."""

    def __init__(self, n_features: int, gaps: bool, intercept: bool) -> None:
        self.gaps, self.one = gaps, float(intercept)
        self.t = 0
        self.norm = self.largest = 0.0
        self.seen = np.zeros(n_features, bool)
        self.last = np.zeros(n_features, np.int64)  # the last round of each feature
        self.longest = 0
        self.charge = 0.0  # largest ‖c_t‖₂ of cl-fobos: c_{t,i} = (Σ η since i's last round)/η_t
        self.steps = np.zeros(1)  # Σ_{τ≤t} 1/√τ

    def observe(self, rows: RowBatch) -> None:
        indptr, indices, counts, _, weights = rows
        size = len(indptr) - 1
        if size == 0:
            return
        values, one = np.asarray(counts, np.float64), np.full(size, self.one)
        bounds = np.asarray(indptr, np.int64) - indptr[0]
        if weights is not None:  # a row of weight 0 is a round without features
            one *= weights
            values = values * np.repeat(weights, np.diff(bounds))
            learned = values != 0.0
            values, indices = values[learned], indices[learned]
            bounds = np.concatenate([[0], np.cumsum(learned)])[bounds]
        sums = np.concatenate([[0.0], np.cumsum(values**2)])
        self.norm = max(self.norm, float(np.sqrt((np.diff(sums[bounds]) + one**2).max())))
        self.largest = max(self.largest, float(np.abs(values).max(initial=0.0)), float(one.max()))
        self.seen[indices] = True
        if self.gaps:
            more = 1 / np.sqrt(np.arange(self.t + 1, self.t + size + 1))
            self.steps = np.concatenate([self.steps, self.steps[-1] + np.cumsum(more)])
            for i in range(size):
                t, row = self.t + i + 1, indices[bounds[i] : bounds[i + 1]]
                self.longest = max(self.longest, int((t - self.last[row]).max(initial=0)))
                charged = (self.steps[t] - self.steps[self.last[row]]) * np.sqrt(t)
                self.charge = max(self.charge, float(np.linalg.norm(charged)))
                self.last[row] = t
        self.t += size


def measurable(bound: Bound | NoBound, loss: str) -> Bound | NoBound:
    """The bound if its quantities can be measured, else the reason why not."""
    if isinstance(bound, NoBound):
        return bound
    if FROM_GRADIENTS & set(bound.needs) and not lipschitz(find_loss(loss)):
        return NoBound(f"The theorem needs a bound on the gradients, and those of {loss} grow with the margin.")
    if FROM_GAPS & set(bound.needs) and find_loss(loss).slope_vanishes:
        return NoBound(
            "K is not measured for losses whose slope can be 0, because rounds may then update no coordinates."
        )
    return bound


def measure_bounds(
    learner: Learner,
    rounds: FirstEpoch,
    samples: Sequence[int],
    optima: Mapping[int, Floats],
    intercepts: Mapping[int, Floats] | None = None,
) -> Iterator[tuple[int, float]]:
    """(T, bound on the regret after T rounds, all outputs together) at each mark, a key of `optima`.

    Learns the stream with a new learner of one configuration, as `curve.measure`; `optima` are the comparators
    (features, outputs) and `intercepts` theirs (outputs,), 0 by default. The intercept is a coordinate without a
    penalty. Yields nothing if there is no theorem or the intercept is outside its box, and stops when the learner
    diverges.
    """
    parameters = learner.configurations[0]
    bound = measurable(regret_bound(learner.algorithm, parameters, learner.penalty), learner.loss)
    if isinstance(bound, NoBound):
        return
    outputs = learner.n_outputs
    comparators = {
        T: SparseComparator(np.asarray(x, np.float64), np.zeros(outputs) if intercepts is None else intercepts[T])
        for T, x in sorted(optima.items())
    }
    rows = _RowQuantities(learner.n_features, gaps="K" in bound.needs, intercept=learner.intercept)
    peaks = np.zeros((learner.n_features, outputs))
    norm = np.zeros(outputs)
    D, D_b, spread = ({T: np.zeros(outputs) for T in comparators} for _ in range(3))
    for t in samples:
        rounds.learn(learner, t - 1, rows.observe)
        w, b = np.asarray(learner.weights_of(0), np.float64), np.asarray(learner.intercepts()[0], np.float64)
        size = np.abs(w)
        np.maximum(peaks, size, out=peaks)
        square, total = np.einsum("jc,jc->c", w, w), size.sum(axis=0)
        norm = np.maximum(norm, np.sqrt(square))
        for T, x in comparators.items():
            if t <= T:
                D[T] = np.maximum(D[T], x.distance(w, square, b))
                D_b[T] = np.maximum(D_b[T], np.abs(b - x.b))
                if rows.gaps:
                    spread[T] = np.maximum(spread[T], x.spread(w, total))
        if t in comparators:
            rounds.learn(learner, t, rows.observe)
            if learner.diverged[0]:
                return
            lam = parameters.get("lam", 0.0)
            quantities = {
                "D": D[t],
                "D_b": D_b[t],
                "G": rows.norm,
                "G_inf": rows.largest,
                "U": _subgradients(learner, rows, norm),
                "K": max(rows.longest, int((rows.t - rows.last[rows.seen]).max(initial=0))),  # with the current gaps
                "spread": lam * spread[t],
                "S": lam * peaks.max(axis=0),
                **state_quantities(learner, 0, comparators[t].x, peaks, comparators[t].b),
            }
            if bound.radius is not None and np.abs(comparators[t].b).max() > bound.radius:
                continue
            if find_penalty(learner.penalty).grouped:  # one problem for all outputs together
                joined = {"D": np.linalg.norm(D[t]), "G": np.sqrt(outputs) * rows.norm, "U": quantities["U"][0]}
                yield t, float(bound.value(t, joined))
                continue
            yield t, float(np.sum(np.broadcast_to(bound.value(t, quantities), outputs)))


def _subgradients(learner: Learner, rows: _RowQuantities, norm: Floats) -> Floats:
    """(outputs,) U: the largest norm of a subgradient of the penalty; not for learners with thresholds."""
    parameters = learner.configurations[0]
    lam = parameters.get("lam", 0.0)
    if rows.gaps and not find_penalty(learner.penalty).decaying:
        return np.full(norm.shape, lam * rows.charge)
    ratio = {"l2": 0.0, "elastic_net": parameters.get("l1_ratio", 1.0)}.get(learner.penalty, 1.0)
    groups = learner.feature_groups
    terms = rows.seen.sum() if groups is None else np.unique(groups[rows.seen[: learner.n_features]]).size
    return np.asarray(lam * (ratio * np.sqrt(terms) + (1 - ratio) * norm))


# ----------------------------------------------------------------------------------------------------------------------
# The tasks that measure a learner's curve and its bounds: pure functions of their descriptions that write a file.


class Measurement(NamedTuple):
    """Everything that determines a curve: a block of one configuration, and the rounds at which it is measured.

    Online learners have one epoch, whose regret it is.
    """

    block: Block
    marks: tuple[int, ...]
    samples: int

    @property
    def described(self) -> dict[str, Any]:
        """As JSON."""
        return {"block": self.block.model_dump(mode="json"), "marks": self.marks, "samples": self.samples}

    @property
    def digest(self) -> str:
        """Identifies the measurement."""
        return digest_value(self.described)[:32]


def curve_task(measurement: Measurement, store: StoreReference, path: Location) -> None:
    """Measure a curve; the file has the sums of thresholds at its marks or the factors R_i/R, if any, and describes the
    rest."""
    if path.exists():
        return
    learner, rounds = _new_learner(measurement, open_store(store), objective=True)
    found = list(measure(learner, rounds, measurement.marks, sampled_rounds(measurement.marks, measurement.samples)))
    thresholds = [mark.thresholds for mark in found if mark.thresholds is not None]
    arrays = {"thresholds": np.stack(thresholds)} if thresholds else {}
    arrays |= {name: slot.astype(np.float64) for name, slot in learner.slots_of(0).items() if name == "scale"}
    marks = [{name: value for name, value in mark._asdict().items() if name != "thresholds"} for mark in found]
    diverged = int(learner.diverged[0])
    status, reason = ("diverged", f"diverged at row {diverged:,}") if diverged else ("ok", "")
    content = {"measurement": measurement.described, "marks": marks, "status": status, "reason": reason}
    write_checkpoint(path, content, arrays.items())


class Solution(NamedTuple):
    """An optimum: weights (features, outputs), the objective there, summed over outputs, its duality gap, and the
    intercepts (outputs,), 0 without them."""

    weights: Floats
    objective: float
    gap: float
    intercepts: Floats

    def write(self, path: Location) -> None:
        """Commit it, the nonzero weights only."""
        places = np.flatnonzero(self.weights)
        arrays = {
            "places": places,
            "values": self.weights.ravel()[places],
            "shape": np.array(self.weights.shape, np.int64),
            "sums": np.array([self.objective, self.gap]),
            "intercepts": self.intercepts,
        }
        write_checkpoint(path, {}, arrays.items())

    @classmethod
    def read(cls, path: Location) -> "Solution":
        """Read what `write` wrote. Raises `StorageError` for a corrupt file."""
        with read_checkpoint(path) as (_, read):
            weights = np.zeros(read("shape"))
            weights.ravel()[read("places")] = read("values")
            objective, gap = read("sums")
            return cls(weights, float(objective), float(gap), read("intercepts"))


def bound_task(measurement: Measurement, store: StoreReference, path: Location, optima: dict[int, Location]) -> None:
    """Measure the bounds at the marks that have optima."""
    if path.exists():
        return
    learner, rounds = _new_learner(measurement, open_store(store), objective=False)
    solutions = {T: Solution.read(file) for T, file in optima.items()}
    comparators = {T: solution.weights for T, solution in solutions.items()}
    intercepts = {T: solution.intercepts for T, solution in solutions.items()}
    samples = sampled_rounds(measurement.marks, measurement.samples)
    bounds = measure_bounds(learner, rounds, samples, comparators, intercepts)
    commit_json(path, {"measurement": measurement.described, "bounds": list(bounds)})


def _new_learner(measurement: Measurement, store: Store, *, objective: bool) -> tuple[Learner, FirstEpoch]:
    """A new learner of a measurement's configuration, and its stream."""
    block, setting = measurement.block, measurement.block.setting
    learner = Learner(
        check_algorithm_name(block.algorithm),
        loss=setting.loss,
        penalty=setting.penalty,
        grid=block.configurations,
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype=setting.dtype,
        objective=objective,
        intercept=block.intercept,
        feature_groups=None if setting.feature_groups is None else setting.feature_groups.read(store),
    )
    source = class_weighted(worker_corpus(store, block.weighting), setting.class_weights)
    return learner, FirstEpoch(source, setting.order)


# ----------------------------------------------------------------------------------------------------------------------
# The tables of regret: one row per configuration and mark, and one row per configuration.
#
# The growth of regret is the slope of log regret against log T.


REGRET = pa.schema(
    [
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("objective", pa.string()),  # its minimum over the first T rounds is `optimum`
        ("T", pa.int64()),
        ("epoch", pa.int32()),  # for epoch methods, whose loss in a round is H, the sum over all examples
        ("passes", pa.float64()),  # passes over the examples, including those read in rounds
        ("epoch_objective", pa.float64()),  # H at the end of the epoch
        ("suboptimality", pa.float64()),  # epoch_objective − min H
        ("learner_loss", pa.float64()),  # Σ_{t≤T} f_t(w_t) + ψ_t(w_t)
        ("exact", pa.bool_()),  # whether ψ_t(w_t) was summed in every round
        ("penalty_error", pa.float64()),  # estimated error of the sampled sum of ψ_t(w_t); 0 if exact
        ("optimum", pa.float64()),
        ("gap", pa.float64()),  # the true minimum is at most this much lower
        ("regret", pa.float64()),  # learner_loss − optimum
        ("bound", pa.float64()),
        ("bound_name", pa.string()),
        ("loss_regret", pa.float64()),  # Σ_{t≤T} f_t(w_t) − f_t(x), without penalties, against the x of `optimum`
        ("loss_bound", pa.float64()),  # bound + ψ_{1:T}(x), on loss_regret; null where ψ_t depends on the learner
        ("data_bound", pa.float64()),  # 4 Σ_i R_iΔ_{T,i} of this run of an epoch method; its mean bounds mean regret
    ]
)
SLOPES = pa.schema(
    [
        ("configuration", pa.int32()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),
        ("objective", pa.string()),
        ("status", pa.string()),  # ok, diverged, failed
        ("reason", pa.string()),
        ("T", pa.int64()),  # at the last mark
        ("regret", pa.float64()),
        ("per_round", pa.float64()),
        ("epoch", pa.int32()),  # this and the next four: for epoch methods, at the end of the last epoch
        ("passes", pa.float64()),
        ("epoch_objective", pa.float64()),
        ("suboptimality", pa.float64()),
        ("suboptimality_open", pa.float64()),  # the true minimum of H is at most this much lower
        ("open", pa.float64()),  # gap + penalty_error at the last mark
        ("exact", pa.bool_()),
        ("slope", pa.float64()),  # of log regret against log T, least squares over the later half of the marks
        ("slope_error", pa.float64()),
        ("intercept", pa.float64()),
        ("fitted_from", pa.int64()),
        ("fitted_marks", pa.int32()),
        ("bound", pa.float64()),
        ("bound_share", pa.float64()),  # regret / bound
        ("bound_name", pa.string()),
        ("bound_formula", pa.string()),
        ("bound_expected", pa.bool_()),  # whether the bound is on the mean over the learner's draws
        ("bound_note", pa.string()),  # why there is no bound, or differences from the paper
    ]
)

MIN_POINTS = 3


class Slope(NamedTuple):
    """log Reg_T ≈ intercept + slope·log T over `points` marks from round `first` on."""

    slope: float
    error: float
    """Standard error of the least-squares slope; optimistic, because sums along one stream are not independent."""
    intercept: float
    first: int
    points: int

    def at(self, T: float) -> float:
        """The fitted regret after T rounds."""
        return float(np.exp(self.intercept + self.slope * np.log(T)))


def fit_slope(rounds: Sequence[int], regret: Sequence[float], uncertainty: Sequence[float]) -> Slope | None:
    """Least squares over the later half of the marks, or None with fewer than three usable marks.

    While T is far below the number of features, the best fixed weights fit any stream and regret grows like T for every
    learner; so the early half is left out. A mark is usable if its regret exceeds its `uncertainty` (from the optimum's
    gap and the sampled penalty).
    """
    T, values, doubt = (np.asarray(array, np.float64) for array in (rounds, regret, uncertainty))
    late = np.arange(T.size) >= T.size // 2
    if late.sum() < MIN_POINTS:
        late[:] = True
    good = late & (values > doubt) & (values > 0)
    if good.sum() < MIN_POINTS:
        return None
    x, y = np.log(T[good]), np.log(values[good])
    centred = x - x.mean()
    square = float(centred @ centred)
    slope = float(centred @ y) / square
    intercept = float(y.mean() - slope * x.mean())
    rest = y - intercept - slope * x
    error = float(np.sqrt(rest @ rest / (x.size - 2) / square))
    return Slope(slope, error, intercept, int(T[good][0]), int(good.sum()))


def slope_row(marks: Sequence[Row], bound: Bound | NoBound, status: str, reason: str) -> Row:
    """The row of a configuration in `SLOPES`, without its name, from its rows in `REGRET`."""
    row: Row = {
        "status": status,
        "reason": reason,
        "bound_note": bound.why if isinstance(bound, NoBound) else bound.note,
    }
    if isinstance(bound, Bound):
        row |= {"bound_name": bound.name, "bound_formula": bound.formula, "bound_expected": bound.expected}
    if not marks:
        return row
    last = marks[-1]
    row |= {name: last[name] for name in ("T", "regret", "exact", "bound")}
    if last.get("epoch"):
        row |= {name: last[name] for name in ("epoch", "passes", "epoch_objective", "suboptimality")}
        row["suboptimality_open"] = last["gap"] / last["T"]
    row |= {"per_round": last["regret"] / last["T"], "open": last["gap"] + last["penalty_error"]}
    if last["bound"]:
        row["bound_share"] = last["regret"] / last["bound"]
    fit = fit_slope(
        [mark["T"] for mark in marks],
        [mark["regret"] for mark in marks],
        [mark["gap"] + mark["penalty_error"] for mark in marks],
    )
    if fit is not None:
        row |= {"slope": fit.slope, "slope_error": fit.error, "intercept": fit.intercept}
        row |= {"fitted_from": fit.first, "fitted_marks": fit.points}
    return row
