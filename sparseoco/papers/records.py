"""The tables a reproduction leaves, and their rows.

All but `timings.parquet` are equal bytes between equal runs.
"""

from typing import Any, Final

import pyarrow as pa

EXPERIMENTS: Final = pa.schema(
    [
        ("experiment", pa.string()),
        ("standardised", pa.bool_()),
        ("loss", pa.string()),
        ("n", pa.int64()),
        ("d", pa.int64()),
        ("T", pa.int64()),
        ("D", pa.float64()),
        ("F", pa.float64()),
        ("G", pa.float64()),
        ("alpha", pa.float64()),
        ("zero_loss", pa.float64()),  # mean loss of x = 0, which answers nothing
        ("best_loss", pa.float64()),  # of the best fixed point of the ball
        ("best_error", pa.float64()),  # its share of wrong answers; null where labels are numbers
        ("theorem_gamma", pa.float64()),  # γ as Theorem 3.1 has it, which must be below 1
        ("theorem_regret", pa.float64()),  # its bound on the regret, a round, for σ = 1
    ]
)
METHODS: Final = pa.schema(
    [
        ("experiment", pa.string()),
        ("standardised", pa.bool_()),
        ("method", pa.string()),
        ("algorithm", pa.string()),
        ("parameters", pa.string()),  # canonical JSON
        ("delta", pa.float64()),
        ("gamma", pa.float64()),
        ("beta", pa.float64()),
        ("repetitions", pa.int32()),
        ("mean_loss", pa.float64()),  # over T rounds as played, mean of the repetitions
        ("mean_loss_error", pa.float64()),  # standard error of that mean
        ("error_rate", pa.float64()),
        ("error_rate_error", pa.float64()),
    ]
)
CURVES: Final = pa.schema(
    [
        ("experiment", pa.string()),
        ("standardised", pa.bool_()),
        ("method", pa.string()),
        ("t", pa.int64()),
        ("mean_loss", pa.float64()),  # over the first t rounds, mean of the repetitions
        ("loss_low", pa.float64()),  # a tenth of the repetitions are below
        ("loss_high", pa.float64()),  # a tenth are above
        ("error_rate", pa.float64()),
        ("error_low", pa.float64()),
        ("error_high", pa.float64()),
    ]
)
PANELS: Final = pa.schema(
    [
        ("panel", pa.string()),
        ("period", pa.string()),
        ("stocks", pa.int64()),
        ("incomplete", pa.int64()),  # left out, a price missing
        ("drawn", pa.int64()),  # stocks of a draw
        ("T", pa.int64()),
        ("F", pa.float64()),
        ("theorem_gamma", pa.float64()),  # in the plane of the simplex
        ("equal_shares", pa.float64()),  # mean return of equal shares, bought anew each round; mean of the draws
        ("best_stock", pa.float64()),  # of the best of the drawn stocks in hindsight; mean of the draws
        ("best_stock_of_all", pa.float64()),
    ]
)
DRAWS: Final = pa.schema(
    [
        ("panel", pa.string()),
        ("method", pa.string()),
        ("draw", pa.int32()),
        ("mean_return", pa.float64()),  # over T rounds, as played
        ("delta", pa.float64()),
        ("gamma", pa.float64()),
        ("beta", pa.float64()),
    ]
)
RETURNS: Final = pa.schema(
    [
        ("panel", pa.string()),
        ("method", pa.string()),
        ("t", pa.int64()),
        ("mean_return", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
CLAIMS: Final = pa.schema(
    [
        ("claim", pa.string()),
        ("paper", pa.string()),
        ("where", pa.string()),
        ("here", pa.string()),
        ("holds", pa.string()),  # yes, in part, no, cannot be told
    ]
)
TIMINGS: Final = pa.schema(
    [
        ("experiment", pa.string()),
        ("standardised", pa.bool_()),
        ("method", pa.string()),
        ("rounds", pa.int64()),
        ("seconds", pa.float64()),  # the processor's, for one run of so many: the least of three
    ]
)
TABLES: Final = {
    "experiments": EXPERIMENTS,
    "methods": METHODS,
    "curves": CURVES,
    "panels": PANELS,
    "draws": DRAWS,
    "returns": RETURNS,
    "claims": CLAIMS,
    "timings": TIMINGS,
}

Row = dict[str, Any]
Records = dict[str, list[Row]]
"""Rows by the name of their table."""
