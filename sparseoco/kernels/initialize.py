"""Putting weights into a learner's slots: rounds in which nothing is seen, then the slots that hold the weights."""

from sparseoco.kernels.stream import begin_round
from sparseoco.learners.contract import advance, clock_of, keep_clock
from sparseoco.learners.penalties import amount_alone, group_growth


def build_rest(run, running, tuples):
    """``rest``: let rounds pass in which no row is seen; `clock` and the running numbers of `hyper` move on."""
    _, _, load_hyper, store_hyper, _, _ = tuples

    def rest(rounds, hyper, clock):
        moment = clock_of(clock)
        for _ in range(rounds):
            if running:
                for c in range(hyper.shape[1]):
                    store_hyper(hyper, c, run(moment, load_hyper(hyper, c)))
            moment = advance(moment)
        keep_clock(clock, moment)

    return rest


def build_settle(tick, paid_at, weight, from_weight, preimage, parts, stamped, grouped, tuples):
    """``settle``: slots of a run of features, none of which was seen, such that their weights at this moment are
    `weights` (features, columns), which may be changed."""
    load, store, load_hyper, _, load_now, store_now = tuples
    part_1, part_2 = parts

    def settle(first, outputs, weights, state, stamp, hyper, clock, now):
        parts = (part_1, part_2)
        width = now.shape[1]
        moment = clock_of(clock)
        begin_round(moment, tick, load_hyper, store_now, hyper, now)
        stamp_now = paid_at(moment)
        for i in range(weights.shape[0]):
            j = first + i
            slots = state[j]
            if grouped:
                for start in range(0, width - outputs + 1, outputs):
                    square = 0.0
                    for c in range(start, start + outputs):
                        square += float(weights[i, c]) * float(weights[i, c])
                    slept = now.dtype.type(0)
                    a = weight(load(slots, start), slept, load_now(now, start), amount_alone, parts)
                    growth = group_growth(square, float(a))
                    for c in range(start, start + outputs):
                        weights[i, c] = weights[i, c] * growth
            for c in range(width):
                store(slots, c, from_weight(weights[i, c], load_now(now, c), preimage, parts))
            if stamped:
                stamp[j] = stamp_now

    return settle
