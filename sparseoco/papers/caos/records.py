"""The tables the experiments leave. All but `timings.parquet` are equal bytes between equal runs."""

from typing import Final

import pyarrow as pa

from sparseoco.papers.records import CLAIMS

SETS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("title", pa.string()),
        ("documents", pa.int64()),
        ("features", pa.int64()),
        ("nonzeros", pa.int64()),
    ]
)
REGRET: Final = pa.schema(
    [
        ("set", pa.string()),
        ("arrangement", pa.string()),  # shuffled, or every document so many times in a row
        ("R", pa.float64()),
        ("method", pa.string()),
        ("step", pa.float64()),  # eta or eta0; null where there is none
        ("order", pa.int32()),
        ("T", pa.int64()),
        ("loss", pa.float64()),  # Σ f_t(x_t)
        ("optimum", pa.float64()),  # min over |x_i| ≤ R of Σ f_t(x)
        ("gap", pa.float64()),  # how far below it the minimum can be
        ("regret", pa.float64()),
        ("bound", pa.float64()),  # of the method's theorem; null where none is used
    ]
)
STEPS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("arrangement", pa.string()),
        ("R", pa.float64()),
        ("algorithm", pa.string()),
        ("factor", pa.float64()),  # of the step that the theorem names
        ("step", pa.float64()),
        ("loss", pa.float64()),  # Σ f_t(x_t) after the last document, mean of the orders
        ("chosen", pa.bool_()),
    ]
)
OPTIMA: Final = pa.schema(
    [
        ("set", pa.string()),
        ("lengths", pa.string()),  # of documents: their own, or all equal
        ("alpha", pa.float64()),
        ("objective", pa.float64()),  # H* = min Σ_j f_j(x) + α‖x‖₁
        ("gap", pa.float64()),
        ("nonzeros", pa.int64()),
        ("largest", pa.float64()),  # |x_i|
    ]
)
OBJECTIVES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("lengths", pa.string()),
        ("alpha", pa.float64()),
        ("family", pa.string()),  # examples, or coordinates
        ("method", pa.string()),
        ("tuned", pa.string()),  # what `value` is of: R, eta0, or nothing
        ("value", pa.float64()),  # null where nothing is tuned
        ("passes", pa.float64()),  # over the data
        ("rounds", pa.int64()),  # of coordinates drawn; null of others
        ("objective", pa.float64()),  # H, mean of the repetitions
        ("excess", pa.float64()),  # H/H* − 1
        ("excess_error", pa.float64()),  # standard error of that mean
        ("chosen", pa.bool_()),  # the value of the least H at the end
    ]
)
CHANCES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("R", pa.float64()),
        ("lipschitz", pa.float64()),  # bound of Theorem 7 a √T without predictions, p ∝ (R L)^{2/3}
        ("uniform", pa.float64()),  # with equal chances
    ]
)
TIMINGS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),
        ("columns", pa.int32()),  # that ran side by side
        ("passes", pa.float64()),
        ("seconds", pa.float64()),  # of the processor for one run, mean of orders or repetitions
        ("spent", pa.float64()),  # for all runs: orders or repetitions, and what is tried one after the other
    ]
)
TABLES: Final = {
    "sets": SETS,
    "regret": REGRET,
    "steps": STEPS,
    "optima": OPTIMA,
    "objectives": OBJECTIVES,
    "chances": CHANCES,
    "claims": CLAIMS,
    "timings": TIMINGS,
}
