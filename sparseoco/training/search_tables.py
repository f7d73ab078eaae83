"""The tables of a search and of a model: their columns, and the metrics of a search.

Only `timings.parquet` has measured times, so all other files of two equal runs have the same bytes.
"""

import pyarrow as pa

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import read_parquet_file
from sparseoco.training.options import COMPUTED

OF_CONFIGURATION = (
    ("configuration", pa.int32()),
    ("algorithm", pa.string()),
    ("parameters", pa.string()),  # canonical JSON
    ("tf", pa.string()),  # how counts are weighted
    ("idf", pa.bool_()),
    ("norm", pa.string()),
)
METRICS_SCHEMA = pa.schema(
    [
        *OF_CONFIGURATION,
        ("loss", pa.string()),
        ("penalty", pa.string()),
        ("fold", pa.int32()),
        ("epoch", pa.int32()),
        ("rows", pa.int64()),  # learned from so far, all epochs
        ("progressive_loss", pa.float64()),  # mean over the epoch, each example predicted before it is learned
        ("progressive_error", pa.float64()),
        ("objective", pa.float64()),  # Σ f_j + αψ over all examples learned from, of epoch methods; else null
        ("data_bound", pa.float64()),  # 4 Σ_i R_iΔ_i after the rounds so far, of epoch methods; see regret
        ("held_out_rows", pa.int64()),
        ("held_out_loss", pa.float64()),  # of the weights at the end of the epoch
        ("held_out_error", pa.float64()),
        *((f"held_out_{name}", pa.float64()) for name in COMPUTED),  # null where a metric is not defined
        ("held_out_rank_bound", pa.float64()),  # largest error of ROC AUC and average precision; 0 if exact
        ("held_out_majority_error", pa.float64()),  # of always predicting the largest class, or no label
        ("nonzeros", pa.int64()),  # nonzero weights, all classes
        ("features", pa.int64()),  # features with a nonzero weight for any class
        # ok, dropped (by successive halving, or since another fold failed),
        # unfinished (at the time limit), diverged, failed
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
CURVES = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("rows", pa.int64()),
        ("progressive_loss", pa.float64()),  # mean since the first example
        ("progressive_error", pa.float64()),
    ]
)
FEATURE_SURVIVAL = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("documents_from", pa.int64()),  # features found in this many documents,
        ("documents_to", pa.int64()),  # up to and including this many
        ("features", pa.int64()),
        ("nonzeros", pa.int64()),  # nonzero weights of these features after the last epoch
    ]
)
TIMINGS = pa.schema(
    [
        ("configuration", pa.int32()),
        ("fold", pa.int32()),
        ("epoch", pa.int32()),
        ("seconds", pa.float64()),  # the block's, divided by its columns
    ]
)
WEIGHTS = pa.schema(
    [
        ("feature_id", pa.int64()),
        ("feature", pa.string()),
        ("class", pa.string()),
        ("weight", pa.float64()),
        ("count", pa.int64()),  # in the corpus it was trained on
        ("documents", pa.int64()),
        ("idf", pa.float64()),  # null where values are not multiplied by it
    ]
)
"""The nonzero weights of a model."""
SEARCH_TABLES = {"metrics": METRICS_SCHEMA, "curves": CURVES, "feature_survival": FEATURE_SURVIVAL, "timings": TIMINGS}


def read_metrics(run: str | Location) -> pa.Table:
    """Read the metrics of a search.

    Parameters
    ----------
    run : str or Location
        The folder of a run.

    Returns
    -------
    pyarrow.Table
        The columns of `METRICS_SCHEMA` and the seconds, one row per (configuration, fold, epoch).

    Raises
    ------
    InputError
        If the run has no search results.
    StorageError
        If a table cannot be read or is corrupt.
    """
    folder = location(run) / "search"
    if not (folder / "metrics.parquet").exists():
        raise InputError(
            f"{run} has no search results ({folder / 'metrics.parquet'} is missing).", code="no-search-results"
        )
    keys = ["configuration", "fold", "epoch"]
    metrics = read_parquet_file(folder / "metrics.parquet")
    joined = metrics.join(
        read_parquet_file(folder / "timings.parquet"), keys=keys, join_type="left outer", use_threads=False
    )
    return joined.sort_by([(key, "ascending") for key in keys])
