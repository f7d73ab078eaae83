"""Regret of an online learner: the loss incurred round by round, minus that of the best fixed weights.

    Reg_T = Σ_{t≤T} (f_t(w_t) + ψ_t(w_t)) − min_w Σ_{t≤T} (f_t(w) + ψ_t(w))

`rounds` chooses the rounds at which it is measured, `curve` measures the first sum (`epochs` that of epoch methods),
`comparator` defines the second and `optima` solves for it, `bound_quantities` measures the inputs of the papers' bounds
and `tables` fits the growth of regret. `run` does all of this on a cluster, with the tasks in `tasks`.
"""
