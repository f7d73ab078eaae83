"""Regret of an online learner: the loss incurred round by round, minus that of the best fixed weights.

    Reg_T = Σ_{t≤T} (f_t(w_t) + ψ_t(w_t)) − min_w Σ_{t≤T} (f_t(w) + ψ_t(w))

`bounds` chooses the rounds at which it is measured, measures the first sum and the inputs of the papers' bounds, and
defines the second sum; `tasks` solves for it, and `tables` fits the growth of regret. `run` does all of this on a
cluster.
"""
