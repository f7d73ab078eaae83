"""The tables that both reproductions leave. All but `timings.parquet` are equal bytes between equal runs."""

from typing import Final

import pyarrow as pa

from sparseoco.papers.records import CLAIMS

SETS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("title", pa.string()),
        ("paper_set", pa.string()),  # whose printed figures stand beside it
        ("documents", pa.int64()),
        ("features", pa.int64()),
        ("classes", pa.int32()),
        ("nonzeros", pa.int64()),
        ("paper_documents", pa.int64()),
        ("paper_features", pa.int64()),
        ("differs", pa.string()),
    ]
)
FOLDS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),
        ("rule", pa.string()),  # by which λ was chosen within the other nine folds
        ("fold", pa.int32()),
        ("lam", pa.float64()),
        ("rows", pa.int64()),
        ("errors", pa.int64()),
        ("error", pa.float64()),
        ("sparseness", pa.float64()),  # weights that are 0, of all
    ]
)
RESULTS: Final = pa.schema(
    [
        ("table", pa.string()),  # of the paper; empty where it prints none
        ("set", pa.string()),
        ("method", pa.string()),
        ("rule", pa.string()),
        ("error", pa.float64()),  # mean of the folds
        ("deviation", pa.float64()),  # of the folds
        ("sparseness", pa.float64()),
        ("paper_error", pa.float64()),  # shares, null where not printed
        ("paper_deviation", pa.float64()),
        ("paper_sparseness", pa.float64()),
        # ours at the paper's sparseness, whatever the rule; null where λ do not reach it
        ("error_there", pa.float64()),
    ]
)
PATHS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),
        ("lam", pa.float64()),
        ("error", pa.float64()),
        ("deviation", pa.float64()),
        ("sparseness", pa.float64()),
    ]
)
FEATURES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),  # which keeps it; the other of Table V does not
        ("rank", pa.int32()),  # by the size of its weight
        ("feature", pa.string()),
        ("count", pa.int64()),  # in the rows that were learned
        ("weight", pa.float64()),
    ]
)
FREQUENCIES: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),
        ("kept", pa.int64()),  # features
        ("share", pa.float64()),  # of the kept, ordered by their counts
        ("count", pa.int64()),  # of the one at that place
    ]
)
TIMINGS: Final = pa.schema(
    [
        ("set", pa.string()),
        ("method", pa.string()),
        ("trainings", pa.int32()),
        ("columns", pa.int32()),  # of each
        ("seconds", pa.float64()),  # of the processor, all trainings
    ]
)
TABLES: Final = {
    "sets": SETS,
    "folds": FOLDS,
    "results": RESULTS,
    "paths": PATHS,
    "claims": CLAIMS,
    "timings": TIMINGS,
}
STDA_TABLES: Final = TABLES | {"features": FEATURES, "frequencies": FREQUENCIES}
