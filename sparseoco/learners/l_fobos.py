"""L-FOBOS: gradient steps, and every K rounds one proximal step of all coordinates for these K rounds.

    w_{t+1} = w_t − η_t g_t,    then, if K divides t, w_{t+1} ← prox_{a ψ}(w_{t+1}), a = η_{t−K+1} + … + η_t

Source: Togari and Yamashita (2016), Algorithm 3 and the aggregated form of (7); lazy evaluation after Langford et al.
(2009).

Symbols and lazy updates are those of `fobos`, with a clock that advances every K rounds: the sum of the steps up to the
last multiple of K is applied. K = 1 is FOBOS, bit for bit.

One number per coordinate, one time stamp per feature.
"""

from sparseoco.learners.contract import Algorithm
from sparseoco.learners.fobos import FOBOS, rule
from sparseoco.learners.parameters import ETA0, LAM, STEP, Parameter, positive_int

L_FOBOS = Algorithm(
    name="l-fobos",
    formula="w_{t+1} = w_t − η_t g_t; if K divides t then prox_{a ψ}, a the sum of the last K steps",
    source="Togari and Yamashita 2016, Algorithm 3, (7)",
    parameters=(
        ETA0,
        LAM,
        Parameter("K", 100, "rounds between two proximal steps", positive_int, static=True, grid=(10, 100, 1000)),
        STEP,
    ),
    penalties=FOBOS.penalties,
    rule=rule,
)
