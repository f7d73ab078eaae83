"""Putting weights into a learner's state: rounds in which nothing is seen, then the state that holds the weights."""

from sparseoco.kernels.functions import bind
from sparseoco.kernels.stream import begin_round
from sparseoco.learners.contract import advance_clock
from sparseoco.learners.penalties import Maps, amount_alone, group_growth


def build_pass_rounds(rule):
    """``pass_rounds(rounds, state) -> clock``: rounds in which no row is seen; the running numbers move on in place."""
    functions, running = bind(rule), bool(rule.running)

    def pass_rounds(rounds, state):
        f = functions()
        clock = state.clock
        for _ in range(rounds):
            if running:
                for c in range(state.params.shape[1]):
                    f.store_params(state.params, c, f.advance(clock, f.Params(*f.load_params(state.params, c))))
            clock = advance_clock(clock)
        return clock

    return pass_rounds


def build_init_state(rule, *, grouped):
    """``init_state(first, outputs, weights, state, scalars)``: the state of a run of features, none of which was seen,
    such that their weights now are `weights` (features, columns), which may be changed."""
    functions, timed = bind(rule), rule.clock_time is not None

    def init_state(first, outputs, weights, state, scalars):
        f = functions()
        maps = f.maps
        amount = Maps(amount_alone, maps.preimage, maps.split, maps.scaled, maps.repeated, maps.grow)
        begin_round(f, state.clock, state.params, scalars)
        settled = f.settled_time(state.clock)
        zero = scalars.dtype.type(0)
        for i in range(weights.shape[0]):
            slots = state.slots[first + i]
            if grouped:
                for start in range(0, weights.shape[1] - outputs + 1, outputs):
                    square = 0.0
                    for c in range(start, start + outputs):
                        square += float(weights[i, c]) * float(weights[i, c])
                    own = f.State(*f.load_state(slots, start))
                    a = f.weight(own, zero, f.Scalars(*f.load_scalars(scalars, start)), amount)
                    growth = group_growth(square, float(a))
                    for c in range(start, start + outputs):
                        weights[i, c] = weights[i, c] * growth
            for c in range(weights.shape[1]):
                own_scalars = f.Scalars(*f.load_scalars(scalars, c))
                f.store_state(slots, c, f.state_from_weight(weights[i, c], own_scalars, maps))
            if timed:
                state.last_update[first + i] = settled

    return init_state
