"""The parameters and printed results of Togari and Yamashita (2016), §5."""

from pathlib import Path
from typing import Final, NamedTuple

from sparseoco.storage.toml_files import read_toml

STEPS: Final = tuple(round(0.005 * k, 3) for k in range(1, 201))
"""α₀ from 0.005 to 1.0; the one with the smallest R̄(T) is chosen."""
ROUNDS: Final = 100_000
REPETITIONS: Final = 10
SEARCHED: Final = 5
"""Data sets, the first, by whose R̄(T) α₀ is chosen, and on which other features are tried; results are of all."""
DOMAIN: Final = "books"
EXAMPLES: Final = 4465
FEATURES: Final = 332_440

OWN: Final = "most_frequent"
"""The features of the examples that all experiments use."""
OTHERS: Final = {"all_counts": "all words", "all_presence": "all words, presence only"}
"""Other features, on which the paper's steps are tried to explain differences in R̄(T)."""


class FobosMethod(NamedTuple):
    """A row of Tables 1 to 6."""

    name: str
    algorithm: str
    K: int | None

    def parameters(self, lam: float, eta0: float) -> dict[str, float | int]:
        """The learner's parameters."""
        return {"lam": lam, "eta0": eta0} | ({} if self.K is None else {"K": self.K})


def lazy(K: int) -> FobosMethod:
    """L-FOBOS, Algorithm 3."""
    return FobosMethod(f"L-FOBOS, K = {K}", "l-fobos", K)


CL_FOBOS: Final = FobosMethod("CL-FOBOS", "cl-fobos", None)
METHODS: Final = (lazy(100), lazy(500), lazy(1000), CL_FOBOS)


class Printed(NamedTuple):
    """α₀, run time in seconds, R̄(T), rate of right predictions."""

    eta0: float
    seconds: float
    objective: float
    right: float


class TrackedRun(NamedTuple):
    """A run of Figure 2, recorded before and after every K-th round; K is that of the L-FOBOS of its figure."""

    method: FobosMethod
    lam: float
    eta0: float
    K: int


TRACKED: Final = (
    TrackedRun(lazy(400), 5e-3, 0.04, 400),
    TrackedRun(CL_FOBOS, 5e-3, 0.055, 400),
    TrackedRun(lazy(750), 1e-5, 0.595, 750),
    TrackedRun(CL_FOBOS, 1e-5, 0.595, 750),
)
_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
PRINTED: Final = {table["lam"]: tuple(Printed(*row) for row in table["rows"]) for table in _PRINTED["tables"]}
"""Tables 1 to 6 by λ, rows in the order of `METHODS`."""
SNAPSHOT_ROUNDS: Final[list[int]] = _PRINTED["snapshots"].pop("rounds")
SNAPSHOTS: Final[dict[str, list[tuple[float, int]]]] = _PRINTED["snapshots"]
"""Table 7 by method: rate and number of right predictions after each of `SNAPSHOT_ROUNDS`."""
