"""The step of a proximal quasi-Newton method: the minimum of a quadratic model with the penalty.

Coordinate descent over a working set finds which coordinates are zero or at the box, Newton's method finds the others'
values (the model's matrix is a diagonal and a few columns, so that its inverse is cheap), and features outside the
working set whose slope in the model passes l1 join it (Zhong, Yen, Dhillon & Ravikumar 2014, Proximal quasi-Newton for
computationally intensive l1-regularized M-estimators; Scheinberg & Tang 2016, Practical inexact proximal quasi-Newton
method with global complexity analysis).
"""

import numpy as np

from sparseoco.kernels.quadratic import GRAM, MODEL_CHANGE, NEWTON_DIRECTION, STEEPEST, SWEEP
from sparseoco.offline.optimum.metric import Metric, Model
from sparseoco.offline.optimum.regulariser import Regulariser
from sparseoco.offline.passes import Floats

EXACTNESS = 1e-3  # what is left of the least subgradient at w when the model is solved
TURNS = 40  # of coordinate descent and Newton steps
ROUNDS = 8  # of the working set's growing
HALVINGS = 12
NEAR = 0.5  # of l1: features whose slope is less are not thought to pass it in one step; if they do, the next step sees


def minimise_model(w: Floats, g: Floats, metric: Metric, h: Regulariser, steepness: float) -> Floats:
    """argmin_x ⟨g, x − w⟩ + ½(x − w)ᵀB(x − w) + h(x), nearly; `steepness` is σ where there are no pairs yet."""
    inside = (w != 0.0) | (np.abs(g) > h.l1)
    sigma = metric.sigma(np.flatnonzero(inside), steepness)
    weight = 1.0 / np.sqrt(sigma * metric.q)
    x, goal = w.copy(), -1.0
    for _ in range(ROUNDS):
        members = np.flatnonzero(inside)
        model = metric.model(members, sigma)
        part = x[members]
        v = np.zeros(model.J.size)
        if goal < 0.0:
            goal = EXACTNESS * _left(part, w[members], g[members], model, h, v, weight[members])
        _solve(part, w[members], g[members], model, h, v, weight[members], goal)
        x[members] = part
        near = np.flatnonzero(~inside & (np.abs(g) > NEAR * h.l1))
        far = metric.far_slopes(model, sigma, g, v, near)
        joining = near[(np.abs(far) - h.l1) * weight[near] > goal]
        if not joining.size:
            break
        inside[joining] = True
    return x


def _left(x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats, weight: Floats) -> float:
    """The largest least subgradient of the model, each in units of √D_i."""
    out = np.empty_like(x)
    STEEPEST(x, w, g, model.D, model.Q, h.l1, h.l2, h.box, v, out)
    return float(np.abs(out * weight).max(initial=0.0))


def _solve(
    x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats, weight: Floats, goal: float
) -> None:
    """Minimise the model over its members, from x, in place; `v` is set to what belongs to x."""
    MODEL_CHANGE(x, w, w, g, model.D, model.Q, model.J, h.l1, h.l2, np.zeros_like(v), v)
    for _ in range(TURNS):
        SWEEP(x, w, g, model.D, model.Q, model.J, h.l1, h.l2, h.box, v)
        slopes = np.empty_like(x)
        STEEPEST(x, w, g, model.D, model.Q, h.l1, h.l2, h.box, v, slopes)
        if np.abs(slopes * weight).max(initial=0.0) <= goal:
            return
        _newton(x, w, g, model, h, v, slopes)


def _newton(x: Floats, w: Floats, g: Floats, model: Model, h: Regulariser, v: Floats, slopes: Floats) -> None:
    """A Newton step among coordinates that are neither zero nor at the box, kept on their side of zero."""
    free = (x != 0.0) & (np.abs(x) < h.box) if h.l1 > 0.0 else np.abs(x) < h.box
    scale = 1.0 / (model.D + h.l2)
    r = model.J.size
    matrix, vector = np.zeros((r, r)), np.zeros(r)
    GRAM(model.Q, free, scale, -slopes, matrix, vector)
    try:
        solved = np.linalg.solve(np.diag(model.J) - matrix, vector)
    except np.linalg.LinAlgError:
        return
    direction = np.empty_like(x)
    NEWTON_DIRECTION(model.Q, free, scale, -slopes, solved, direction)
    step, moved = 1.0, np.empty(r)
    for _ in range(HALVINGS):
        new = np.clip(x + step * direction, -h.box, h.box)
        if h.l1 > 0.0:
            new[new * x < 0.0] = 0.0
        if MODEL_CHANGE(new, x, w, g, model.D, model.Q, model.J, h.l1, h.l2, v, moved) < 0.0:
            x[:] = new
            v += moved
            return
        step *= 0.5
