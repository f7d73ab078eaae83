"""Predictions g̃ of the next gradient, coordinate by coordinate, for learners whose weight depends on g_{1:t} + g̃_{t+1}.

The prediction of a coordinate is 0 (none) or

- last: g_t, which is 0 for a feature that is not in row t;
- mean: the mean gradient over the rows with the feature if the next row has it, else 0. The row is known before it is
  predicted, and a feature not in it has gradient 0; the theorems hold for any prediction made before x_{t+1} is played.
  (Predicting the mean in the rounds between would cost a Σ 1/√(Δ² + k·g̃²) without a closed form, for gradients known
  to be 0.) Weights that are read are those for a row that has the feature.

Symbols: `g_last`, the gradient in the feature's last round; `g_mean`, over `seen` rounds; `missed` = g − g̃; `elapsed`,
rounds since the feature's last round (1 if that was the previous one).

Why lazy is exact: with last, one pending round must be applied if the feature is not in the next row: there g = 0 and
g̃ = g_last. It is applied on reading and at the feature's next update. With mean, g = g̃ = 0 in rows without the feature.

With last one number more per coordinate, and one time stamp per feature; with mean two numbers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Rule, derived, extended, round_clock, with_zeros
from sparseoco.learners.parameters import categorical

ONE: Any = np.float32(1)  # float32, so that arithmetic with float32 columns stays float32

PREDICT_GRADIENT = categorical(
    "predict_gradient",
    ("none", "last", "mean"),
    "prediction of the next gradient: 0, the last one, or the mean over the rows that had the feature",
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
    return {"none": none, "last": last, "mean": mean}
