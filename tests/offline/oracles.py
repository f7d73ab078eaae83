"""CAO-RCD as the paper writes it: dense, every weight of every round by the argmin, gradients of F in full."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.ftrl import share_of_l1, split_mix_64
from tests.oracles.losses import weight_of

Slope = Callable[[Any, Any], Any]
PART = 2**32
"""That of cao-rcd, see `uniform`."""
ROUNDING = 2.0**-34
"""What differs by less is a tie: gradients relative to their bounds, and sums of gradients."""


def uniform(seed: int, epoch: int, part: int, t: int) -> float:
    """The number that round t (from 0) of a part of an epoch is drawn by."""
    key = split_mix_64(split_mix_64(split_mix_64(seed) ^ 4) ^ epoch)
    return (split_mix_64(split_mix_64(key ^ part) ^ t) >> 11) / 2**53


def ranges_of(A: np.ndarray, y: np.ndarray, R: float, scale: str) -> np.ndarray:
    """R_i: R, or R/max_j |a_{j,i}| over the examples of weight > 0, and R for a feature in none of them."""
    own = A[np.array([weight_of(b) > 0 for b in y])]
    largest = np.abs(own).max(axis=0, initial=0.0)
    return R / np.where(largest > 0, largest, 1.0) if scale == "max_abs" else np.full(A.shape[1], R)


def bounds_of(A: np.ndarray, y: np.ndarray, loss: str, R: np.ndarray) -> np.ndarray:
    """L_i ≥ |∇_iF| in the box |x_i| ≤ R_i."""
    largest = np.abs(A) @ R
    slopes = {
        "logistic": np.ones(len(A)),
        "hinge": np.ones(len(A)),
        "squared_hinge": 2 * (1 + largest),
        "squared": np.abs(y.astype(float)) + largest,
    }[loss]
    return np.abs(A).T @ (slopes * [weight_of(b) for b in y])


def permutation_of(n: int, seed: int) -> np.ndarray:
    """The random order of n features: six Feistel rounds, repeated until the image is below n."""
    bits = 1
    while 4**bits < n:
        bits += 1
    key, low = split_mix_64(split_mix_64(split_mix_64(seed) ^ 1)), 2**bits - 1

    def image(i: int) -> int:
        left, right = i >> bits, i & low
        for r in range(6):
            left, right = right, left ^ (split_mix_64(key ^ (right << 8) ^ r) & low)
        i = (left << bits) | right
        return i if i < n else image(i)

    return np.array([image(i) for i in range(n)])


def chances_of(
    L: np.ndarray, R: np.ndarray, batch: int, sample: str, order: np.ndarray | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """The blocks Π and p of Corollary 5 (of Corollary 4 for a batch of one)."""
    order = np.arange(len(L)) if order is None else order
    blocks = [order[first : first + batch] for first in range(0, len(L), batch)]
    p = np.array([(R[block].sum() * np.linalg.norm(L[block])) ** (2 / 3) for block in blocks])
    if sample == "uniform":
        p = (p > 0).astype(float)
    return blocks, p / p.sum()


def mixed(fixed: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """p of an epoch with sample = adaptive: half fixed, half by what was seen, if that is anything."""
    return fixed / 2 + seen / seen.sum() / 2 if seen.any() else fixed


def margin(z: np.ndarray, y: np.ndarray, loss: str) -> np.ndarray:
    """z, or the kinks yz = 1 of a hinge where only rounding separates them.

    Exact arithmetic has many margins there (weights at ±R, or moved by gradients in the ratio of two counts), and the
    subgradient is 0 only there.
    """
    return np.where(np.abs(1 - y * z) < 1e-12, y, z) if loss in ("hinge", "squared_hinge") else z


def cao_rcd(
    A: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    loss: str,
    R: float,
    alpha: float | np.ndarray,
    rounds: int,
    batch: int,
    predict_gradient: str,
    sample: str,
    scale: str,
    seed: int,
    partition: str = "consecutive",
    l1_ratio: float = 1.0,
    epochs: int,
    played: list[np.ndarray] | None = None,
    chances: list[np.ndarray] | None = None,
    perturbation: float = 0.0,
) -> Iterator[np.ndarray]:
    """The weights without a prediction after each epoch (Theorem 7, with Σ_s σ_s(x − x_s)²/2 kept term by term).

    `played` receives every x_t, `chances` the p of every epoch; the gradient of row j is multiplied by
    1 + `perturbation`·cos j, so that sums that are 0 but for rounding are not 0.
    """
    n, labels, weights = A.shape[1], y.astype(float), np.array([weight_of(b) for b in y])
    weights = weights * (1.0 + perturbation * np.cos(np.arange(len(y))))
    box = ranges_of(A, y, R, scale)
    L = bounds_of(A, y, loss, box)
    order = permutation_of(n, seed) if partition == "random" else np.arange(n)
    blocks, p = chances_of(L, box, batch, sample, order)
    g_sum, squares, Delta, g_last = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    sigma_sum, sigma_x = np.zeros(n), np.zeros(n)

    def argmin(t: int, g_tilde: np.ndarray) -> np.ndarray:
        """argmin v·x + (Σσ)x²/2 + tα(ρ|x| + (1 − ρ)x²/2) over |x_i| ≤ R_i: 0 or a corner where nothing is square."""
        v = g_sum + g_tilde - sigma_x
        pull = -np.sign(v) * np.maximum(np.abs(v) - t * alpha * l1_ratio, 0)
        square = sigma_sum + t * alpha * (1 - l1_ratio)
        pull[(square == 0) & (np.abs(pull) <= ROUNDING * np.abs(v))] = 0  # a tie: |v| is tαρ
        x = np.divide(pull, square, out=np.where(pull == 0, 0, np.copysign(np.inf, pull)), where=square > 0)
        return np.clip(x, -box, box)

    t = 0
    for epoch in range(1, epochs + 1):
        if chances is not None:
            chances.append(p)
        for k in range(rounds):
            t += 1
            which = int(np.searchsorted(np.cumsum(p), uniform(seed, epoch, PART, k) * p.sum(), side="right"))
            block = blocks[which]
            prediction = {"none": np.zeros(n), "half": L / 2, "last": g_last}[predict_gradient]
            g_tilde = np.zeros(n)
            g_tilde[block] = prediction[block] / p[which]
            x_t = argmin(t, g_tilde)
            if played is not None:
                played.append(x_t)
            gradient = A.T @ (weights * slope(margin(A @ x_t, labels, loss), labels))
            tied = (Delta == 0) & (np.abs(gradient - prediction) <= ROUNDING * L)
            gradient = np.where(tied, prediction, gradient)
            g = np.zeros(n)
            g[block] = gradient[block] / p[which]
            squares = squares + (g - g_tilde) ** 2
            sigma = (np.sqrt(squares) - Delta) / box
            Delta = np.sqrt(squares)
            sigma_sum, sigma_x = sigma_sum + sigma, sigma_x + sigma * x_t
            g_sum = g_sum + g
            g_last[block] = gradient[block]
        yield argmin(t + 1, np.zeros(n))


def stable_weights(*arguments: Any, **options: Any) -> list[np.ndarray] | None:
    """The weights after each epoch, or None where the dense recursion itself depends on rounding.

    At large R a round can overshoot its minimum by more than the step before, so that errors grow with every round.
    """
    epochs = list(cao_rcd(*arguments, **options))
    for perturbation in (2.0**-50, -(2.0**-49)):
        perturbed = cao_rcd(*arguments, **options, perturbation=perturbation)
        if not all(np.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(epochs, perturbed, strict=True)):
            return None
    return epochs


# ----------------------------------------------------------------------------------------------------------------------
# Algorithms 4 and 5 of Mohri and Yang (2015) in dense NumPy: every coordinate, every round, nothing of the package.


def argmin(
    v: np.ndarray, Delta: np.ndarray, t: int, R: float, alpha: np.ndarray, ratio: float, inside: list[float]
) -> np.ndarray:
    """argmin over |x| ≤ R of v·x + Δx²/(2R) + tα(ρ|x| + (1 − ρ)x²/2), by the subgradient at 0 and at the wall.

    `inside` is given the second derivative times R where the minimum is between these.
    """
    x = np.zeros(len(v))
    for i, b in enumerate(v):
        pull = abs(b) - t * alpha[i] * ratio  # how steeply the sum falls away from 0, against the sign of b
        stiffness = Delta[i] / R + t * alpha[i] * (1 - ratio)
        if pull > 0:
            x[i] = -np.sign(b) * (R if pull >= stiffness * R else pull / stiffness)
            if pull < stiffness * R:
                inside.append(stiffness * R)
    return x


def caos_erm(
    X: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    R: float,
    alpha: float | np.ndarray,
    epochs: int,
    seed: int,
    rounds: int | str = "pass",
    batch: int = 1,
    estimate: str = "corrected",
    partition: str = "consecutive",
    placement: str = "serial",
    parts: int = 1,
    predict_gradient: str = "next",
    sample: str = "lipschitz",
    penalty: str = "l1",
    l1_ratio: float = 0.0,
    played: list[np.ndarray] | None = None,
    p_of_epochs: list[np.ndarray] | None = None,
    inside: list[float] | None = None,
) -> list[np.ndarray]:
    """x̄ after each epoch.

    `played` is given every x_t, `p_of_epochs` the p of every part of every epoch, `inside` what `argmin` gives it. `y`
    is ±1, or numbers; `Label`s have weights. α may be of each coordinate.
    """
    m, n = X.shape
    alpha, inside = np.broadcast_to(alpha, n), [] if inside is None else inside
    ratio = share_of_l1(penalty, l1_ratio)
    order = permutation_of(m, seed).tolist() if partition == "random" else list(range(m))
    blocks_of_examples = [order[first : first + batch] for first in range(0, m, batch)]
    sizes = [weight_of(y[j]) * np.abs(X[j]).max(initial=0.0) for j in range(m)]
    bound = np.array([sum(sizes[j] for j in block) for block in blocks_of_examples])
    if sample == "uniform":
        bound = np.sign(bound)
    rounds = len(blocks_of_examples) if rounds == "pass" else int(rounds)
    parts = parts if placement != "serial" else 1
    dealt = [range(p, len(blocks_of_examples), parts) for p in range(parts)]
    dealt = [blocks for blocks in dealt if bound[blocks].sum() > 0]

    def gradients(block: list[int], x: np.ndarray) -> np.ndarray:
        return np.sum([slope(X[j] @ x, y[j]) * X[j] for j in block], axis=0)

    g_sum, sigma_x, squares, t = np.zeros(n), np.zeros(n), np.zeros(n), 0  # ĝ_{1:t}, Σ σ_s x_s, Δ_t²
    ahead = np.zeros(n)  # g̃_{t+1} if it is the previous draw's
    x = np.zeros(n)
    iterates = []
    for epoch in range(1, epochs + 1):
        of_pass = [gradients(block, x) for block in blocks_of_examples]
        largest = np.array([abs(slope(X[j] @ x, y[j])) * np.abs(X[j]).max(initial=0.0) for j in range(m)])
        seen = np.array([largest[block].sum() for block in blocks_of_examples])
        ends = []
        for p, blocks in enumerate(dealt):
            anchor_gradients, whole = list(of_pass), np.sum(of_pass, axis=0)
            g, sx, q, at, g_next = g_sum.copy(), sigma_x.copy(), squares.copy(), t, ahead
            chances = bound[blocks] / bound[blocks].sum()
            if sample == "adaptive":
                chances = mixed(chances, seen[blocks])
            if p_of_epochs is not None:
                p_of_epochs.append(chances)
            for a in range(-(-rounds // len(dealt))):
                at += 1
                drawn = int(np.searchsorted(np.cumsum(chances), uniform(seed, epoch, p, a), side="right"))
                j, probability = blocks[drawn], chances[drawn] / len(dealt)
                g_tilde = anchor_gradients[j] / probability if estimate == "sampled" else whole
                if predict_gradient == "previous":
                    g_tilde, g_next = g_next, g_tilde
                x_t = argmin(g + g_tilde - sx, np.sqrt(q), at, R, alpha, ratio, inside)
                if played is not None:
                    played.append(x_t)
                gradient = gradients(blocks_of_examples[j], x_t)
                g_hat = gradient / probability
                if estimate == "corrected":
                    g_hat = whole + g_hat - anchor_gradients[j] / probability
                if predict_gradient == "last":  # in the means over the parts, `whole` is the sum of the last gradients
                    whole = whole + len(dealt) * (gradient - anchor_gradients[j])
                    anchor_gradients[j] = gradient
                sigma = (np.sqrt(q + (g_hat - g_tilde) ** 2) - np.sqrt(q)) / R
                g, sx, q = g + g_hat, sx + sigma * x_t, q + (g_hat - g_tilde) ** 2
            ends.append((g, sx, np.sqrt(q), g_next))
        if ends:
            g_sum, sigma_x, Delta, ahead = (np.mean(figure, axis=0) for figure in zip(*ends, strict=True))
            squares, t = Delta**2, at
        x = argmin(g_sum + ahead - sigma_x, np.sqrt(squares), t + 1, R, alpha, ratio, inside)
        iterates.append(x)
    return iterates


# ----------------------------------------------------------------------------------------------------------------------
# Optimism with averaging (Joulani et al. 2020) with CAO-FTRL as the learner, every sum over the rounds anew.


class Averaging(NamedTuple):
    """x̄_1 … x̄_T, and the gradients at them, both (T, n)."""

    means: np.ndarray
    gradients: np.ndarray

    @property
    def missed(self) -> np.ndarray:
        """(T, n): t(g_t − g_{t−1}), g_0 = 0."""
        steps = np.diff(self.gradients, axis=0, prepend=np.zeros((1, self.gradients.shape[1])))
        return np.arange(1, len(steps) + 1)[:, None] * steps


def optimistic_averaging(
    A: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    R: float,
    alpha: float | np.ndarray,
    T: int,
    penalty: str = "l1",
    l1_ratio: float = 0.0,
) -> Averaging:
    """T rounds of the losses t·g_t·x with the penalties t·αψ and the regularizer Δx²/(2R)."""
    n, ratio = A.shape[1], share_of_l1(penalty, l1_ratio)
    alpha = np.broadcast_to(alpha, n)
    x, found = np.zeros((0, n)), Averaging(np.zeros((0, n)), np.zeros((0, n)))
    for t in range(1, T + 1):
        a = np.arange(1.0, t + 1)  # α_1 … α_t
        losses = a[:-1] @ found.gradients
        hint = t * found.gradients[-1] if t > 1 else np.zeros(n)
        Delta = 8 * np.sqrt((found.missed**2).sum(axis=0))
        x = np.vstack([x, argmin(losses + hint, Delta, a.sum(), R, alpha, ratio, [])])
        mean = a @ x / a.sum()
        gradient = np.sum([slope(row @ mean, b) * row for row, b in zip(A, y, strict=True)], axis=0)
        found = Averaging(np.vstack([found.means, mean]), np.vstack([found.gradients, gradient]))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Algorithms 4 and 5 of Mohri and Yang (2015) from their printed lines, in dense NumPy; Algorithm 4 is `batch` = 1.
#
# What the lines leave open: x_1 = 0, g̃_1 = 0, x_1 of line 5 is x_t, as in line 7, and T/k is the number of
# mini-batches.


def algorithm_4(
    A: np.ndarray,
    y: np.ndarray,
    slope: Slope,
    *,
    R: float,
    alpha: float,
    k: int,
    seed: int,
    batch: int = 1,
    sample: str = "lipschitz",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x_1 … x_{T+1}; ĝ_t, t ≤ T; g̃_t, t ≤ T) for ψ = ‖·‖₁ in the box, with r_{0:t} of Corollary 6."""
    m, n = A.shape
    Pi = [range(j, min(j + batch, m)) for j in range(0, m, batch)]
    L = np.array([np.abs(A[list(block)]).max(axis=1).sum() for block in Pi])
    if sample == "uniform":
        L = (L > 0).astype(float)
    p = L / L.sum()
    per_epoch = len(Pi)
    T = k * per_epoch

    def grad(block: range, x: np.ndarray) -> np.ndarray:
        return np.sum([slope(A[j] @ x, y[j]) * A[j] for j in block], axis=0)

    def draw(t: int) -> int:
        s, a = divmod(t - 1, per_epoch)
        return int(np.searchsorted(np.cumsum(p), uniform(seed, s + 1, 0, a), side="right"))

    xs, g_hats, g_tildes, Deltas = [np.zeros(n)], [], [np.zeros(n)], [np.zeros(n)]
    j = draw(1)  # line 3
    t = 1
    for _ in range(k):  # line 4
        g_bar = [grad(block, xs[-1]) for block in Pi]  # line 5
        for _ in range(per_epoch):  # line 6
            g_hats.append(grad(Pi[j], xs[-1]) / p[j])  # line 8
            Deltas.append(np.sqrt(np.sum((np.array(g_hats) - np.array(g_tildes)) ** 2, axis=0)))
            following = draw(t + 1) if t < T else 0  # line 9
            g_tildes.append(g_bar[j] / p[j])  # lines 9 and 10 of Algorithm 5
            sigma = np.diff(Deltas, axis=0) / R
            slopes = np.sum(g_hats, axis=0) + g_tildes[-1] - (sigma * xs).sum(axis=0)  # and Σ_s σ_s = Δ/R
            xs.append(argmin(slopes, Deltas[-1], t + 1, R, np.full(n, alpha), 1.0, []))
            j, t = following, t + 1
    return np.array(xs), np.array(g_hats), np.array(g_tildes[:-1])
