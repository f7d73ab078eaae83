"""The tables the experiments leave. All but `timings.parquet` are equal bytes between equal runs."""

from typing import Final

import pyarrow as pa

from sparseoco.papers.records import CLAIMS

SEARCH: Final = pa.schema(
    [
        ("lam", pa.float64()),
        ("method", pa.string()),
        ("eta0", pa.float64()),
        ("objective", pa.float64()),  # R̄(T), mean of the repetitions, float32 columns; null where one diverged
        ("chosen", pa.bool_()),  # the smallest of the method and λ
    ]
)
RUNS: Final = pa.schema(
    [
        ("lam", pa.float64()),
        ("method", pa.string()),
        ("eta0", pa.float64()),
        ("eta0_of", pa.string()),  # here, or paper
        ("words", pa.string()),  # of the examples: most_frequent, or a name of published.OTHERS
        ("repetition", pa.int32()),
        ("objective", pa.float64()),  # R̄(T), float64 columns
        ("loss", pa.float64()),  # its part Σ f_t(x_t)/T
        ("right", pa.float64()),  # share of rounds with b_t⟨a_t, x_t⟩ > 0
        ("undecided", pa.float64()),  # share with ⟨a_t, x_t⟩ = 0, which are not right
        ("nonzeros", pa.int64()),  # of x after T rounds
    ]
)
RESULTS: Final = pa.schema(
    [
        ("lam", pa.float64()),
        ("method", pa.string()),
        ("eta0", pa.float64()),
        ("objective", pa.float64()),  # mean of the repetitions
        ("objective_error", pa.float64()),  # standard error of that mean
        ("loss", pa.float64()),
        ("right", pa.float64()),
        ("right_error", pa.float64()),
        ("undecided", pa.float64()),
        ("nonzeros", pa.float64()),
        ("objective_at_paper_eta0", pa.float64()),
        ("right_at_paper_eta0", pa.float64()),
        ("objective_all_counts", pa.float64()),  # at the paper's α₀; null where the text is not there
        ("right_all_counts", pa.float64()),
        ("objective_all_presence", pa.float64()),
        ("right_all_presence", pa.float64()),
        ("paper_eta0", pa.float64()),
        ("paper_seconds", pa.float64()),
        ("paper_objective", pa.float64()),
        ("paper_right", pa.float64()),
        ("float32_difference", pa.float64()),  # of R̄(T) in the search from that in float64
    ]
)
NONZEROS: Final = pa.schema(
    [
        ("lam", pa.float64()),
        ("method", pa.string()),
        ("K", pa.int64()),  # of the L-FOBOS of the figure
        ("eta0", pa.float64()),
        ("rounds", pa.int64()),  # done
        ("nonzeros", pa.int64()),
        ("share", pa.float64()),
    ]
)
SNAPSHOTS: Final = pa.schema(
    [
        ("method", pa.string()),
        ("repetition", pa.int32()),
        ("rounds", pa.int64()),  # k of x_k: rounds done, the lazy evaluation of round k included
        ("right", pa.int64()),  # of all examples
        ("rate", pa.float64()),
        ("nonzeros", pa.int64()),
        ("paper_rate", pa.float64()),
        ("paper_right", pa.int64()),  # of 4,465
    ]
)
TIMINGS: Final = pa.schema(
    [
        ("lam", pa.float64()),  # null: all six
        ("method", pa.string()),
        # search: 200 columns at once, all repetitions; alone: one run in float64, mean of the repetitions
        ("what", pa.string()),
        ("seconds", pa.float64()),  # of processor
        ("seconds_with_objective", pa.float64()),  # R̄(T) added up as well
    ]
)
TABLES: Final = {
    "search": SEARCH,
    "runs": RUNS,
    "results": RESULTS,
    "nonzeros": NONZEROS,
    "snapshots": SNAPSHOTS,
    "claims": CLAIMS,
    "timings": TIMINGS,
}
