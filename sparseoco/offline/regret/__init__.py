"""Regret of an online learner: what it suffered round by round, less what the best fixed weights would have.

    Reg_T = Σ_{t≤T} (f_t(w_t) + ψ_t(w_t)) − min_w Σ_{t≤T} (f_t(w) + ψ_t(w))

`rounds` says where it is looked at, `curve` measures the first sum, `comparator` says which minimum the second is,
`slope` fits how fast it grows, `tables` are the columns that are written. The minimum itself is
`sparseoco.offline.optimum`'s.
"""
