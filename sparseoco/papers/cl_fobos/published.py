"""What Togari and Yamashita (2016), §5, print: their parameters and the numbers of Tables 1 to 7."""

from typing import Final, NamedTuple

STEPS: Final = tuple(round(0.005 * k, 3) for k in range(1, 201))
"""α₀ from 0.005 to 1.0; the one with the smallest R̄(T) is chosen."""
ROUNDS: Final = 100_000
REPETITIONS: Final = 10
EXAMPLES: Final = 4465
FEATURES: Final = 332_440

OWN: Final = "most_frequent"
"""The words of the examples that all is run on."""
OTHERS: Final = {"all_counts": "all words", "all_presence": "all words, presence alone"}
"""Those that the paper's steps are tried on too, to see what R̄(T) comes from."""


class Method(NamedTuple):
    """A row of Tables 1 to 6."""

    name: str
    algorithm: str
    K: int | None

    def parameters(self, lam: float, eta0: float) -> dict[str, float | int]:
        """Of the learner."""
        return {"lam": lam, "eta0": eta0} | ({} if self.K is None else {"K": self.K})


def lazy(K: int) -> Method:
    """L-FOBOS, Algorithm 3."""
    return Method(f"L-FOBOS, K = {K}", "l-fobos", K)


CL_FOBOS: Final = Method("CL-FOBOS", "cl-fobos", None)
METHODS: Final = (lazy(100), lazy(500), lazy(1000), CL_FOBOS)


class Printed(NamedTuple):
    """α₀, run time in seconds, R̄(T), rate of right estimations."""

    eta0: float
    seconds: float
    objective: float
    right: float


TABLES: Final = {
    1e-1: (
        Printed(0.005, 2.00, 0.708, 0.533),
        Printed(0.005, 1.0, 0.759, 0.548),
        Printed(0.005, 0.9, 0.818, 0.560),
        Printed(0.005, 0.95, 0.694, 0.526),
    ),
    1e-2: (
        Printed(0.03, 2.15, 0.646, 0.737),
        Printed(0.015, 1.05, 0.662, 0.726),
        Printed(0.01, 0.95, 0.673, 0.719),
        Printed(0.03, 1.2, 0.645, 0.738),
    ),
    5e-3: (
        Printed(0.06, 2.15, 0.599, 0.788),
        Printed(0.035, 0.9, 0.612, 0.780),
        Printed(0.025, 0.8, 0.625, 0.774),
        Printed(0.055, 1.05, 0.601, 0.787),
    ),
    5e-4: (
        Printed(0.155, 3.15, 0.4199, 0.906),
        Printed(0.155, 1.3, 0.4199, 0.906),
        Printed(0.155, 1.0, 0.421, 0.905),
        Printed(0.155, 1.25, 0.421, 0.905),
    ),
    1e-5: (
        Printed(0.595, 5.00, 0.1514, 0.981),
        Printed(0.595, 1.45, 0.1514, 0.981),
        Printed(0.595, 1.00, 0.1514, 0.9809),
        Printed(0.595, 1.00, 0.152, 0.9808),
    ),
    1e-7: (
        Printed(0.87, 4.9, 0.1061, 0.979),
        Printed(0.87, 1.5, 0.1061, 0.979),
        Printed(0.87, 1.10, 0.1061, 0.979),
        Printed(0.87, 1.20, 0.1061, 0.979),
    ),
}
"""Tables 1 to 6 by λ, rows as `METHODS`."""


class Watched(NamedTuple):
    """A run of Figure 2."""

    method: Method
    lam: float
    eta0: float
    K: int
    """Of the L-FOBOS that it is drawn with: both are looked at around every K-th round."""


WATCHED: Final = (
    Watched(lazy(400), 5e-3, 0.04, 400),
    Watched(CL_FOBOS, 5e-3, 0.055, 400),
    Watched(lazy(750), 1e-5, 0.595, 750),
    Watched(CL_FOBOS, 1e-5, 0.595, 750),
)
SNAPSHOT_ROUNDS: Final = (399, 400, 9_999, 10_000, 99_999, 100_000)
SNAPSHOTS: Final = {
    WATCHED[0].method.name: ((0.687, 3066), (0.573, 2953), (0.784, 3501), (0.779, 3476), (0.792, 3537), (0.790, 3529)),
    WATCHED[1].method.name: ((0.675, 3015), (0.674, 3020), (0.785, 3504), (0.785, 3506), (0.791, 3533), (0.790, 3530)),
}
"""Table 7: rate and number of right estimations of x_399 … x_100000 on the 4,465 examples."""
