"""The history of a fit: losses, errors, objective and nonzero weights at marks of the stream, also as Parquet."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparseoco.storage.locations import Location, location
from sparseoco.storage.parquet import write_parquet

SCHEMA = pa.schema(
    [
        ("rows", pa.int64()),
        ("configuration", pa.int32()),
        ("output", pa.int32()),  # index of the column in its configuration
        ("progressive_loss", pa.float64()),
        ("progressive_error", pa.float64()),
        ("objective", pa.float64()),
        ("objective_exact", pa.bool_()),
        ("nonzeros", pa.int64()),
    ]
)


class History(NamedTuple):
    """Marks in the order they were made, C configurations of `outputs` columns each."""

    rows: np.ndarray
    """(marks,) int64: rows learned by then."""
    progressive_loss: np.ndarray
    """(marks, C) float64: mean over those rows, each predicted before it was learned."""
    progressive_error: np.ndarray
    """(marks, C) float64."""
    penalty: np.ndarray
    """(marks, C) float64: ψ(w), λ included, of the weights at the mark."""
    objective: np.ndarray
    """(marks, C) float64: R̄(T) = Σ_{t≤T} (f_t(w_t) + ψ(w_t)) / T (Togari and Yamashita 2016, (42)), whatever the
    `schedule` of the penalties."""
    exact: np.ndarray
    """(C,) bool: whether ψ(w_t) was summed in every round; otherwise its sum is estimated by the trapezium rule."""
    nonzeros: np.ndarray
    """(marks, columns) int64."""

    @classmethod
    def empty(cls, exact: np.ndarray, columns: int) -> "History":
        """A history without marks."""
        size = len(exact)
        none = np.zeros((0, size))
        return cls(np.zeros(0, np.int64), none, none, none, none, exact, np.zeros((0, columns), np.int64))

    def restored(self, arrays: Sequence[np.ndarray]) -> "History":
        """A history with saved arrays; raises `ValueError` if they do not fit."""
        marks = len(arrays[0])
        for own, value in zip(self, arrays, strict=True):
            if value.dtype != own.dtype or value.shape != (own.shape if own is self.exact else (marks, *own.shape[1:])):
                raise ValueError(f"its history holds {value.dtype} of shape {value.shape}")
        return History(*arrays)

    def select(self, configurations: np.ndarray, outputs: int) -> "History":
        """The history of these configurations, each of `outputs` columns."""
        columns = (configurations[:, None] * outputs + np.arange(outputs)).ravel()
        return History(
            self.rows,
            self.progressive_loss[:, configurations],
            self.progressive_error[:, configurations],
            self.penalty[:, configurations],
            self.objective[:, configurations],
            self.exact[configurations],
            self.nonzeros[:, columns],
        )

    def marked(
        self,
        rows: int,
        loss_sum: np.ndarray,
        error_count: np.ndarray,
        penalty: np.ndarray,
        penalty_sum: np.ndarray,
        nonzeros: np.ndarray,
    ) -> "History":
        """A history with one more mark; `penalty_sum` is Σ ψ(w_t), and only read where it is exact."""
        before = int(self.rows[-1]) if len(self.rows) else 0
        last, total = np.zeros_like(penalty), np.zeros_like(penalty)
        if len(self.rows):
            last = self.penalty[-1]
            total = (self.objective[-1] - self.progressive_loss[-1]) * before
        estimated = total + (rows - before) * (last + penalty) / 2
        n = max(rows, 1)
        loss = loss_sum / n
        return History(
            np.append(self.rows, rows),
            np.vstack([self.progressive_loss, loss]),
            np.vstack([self.progressive_error, error_count / n]),
            np.vstack([self.penalty, penalty]),
            np.vstack([self.objective, loss + np.where(self.exact, penalty_sum, estimated) / n]),
            self.exact,
            np.vstack([self.nonzeros, nonzeros]),
        )

    def table(self) -> pa.Table:
        """One row per mark and column."""
        marks, columns = self.nonzeros.shape
        outputs = columns // len(self.exact)
        column = np.tile(np.arange(columns), marks)
        mark = np.repeat(np.arange(marks), columns)
        configuration = column // outputs

        def figures(values: np.ndarray) -> Any:
            return values[mark, configuration]

        arrays = [
            self.rows[mark],
            configuration,
            column % outputs,
            figures(self.progressive_loss),
            figures(self.progressive_error),
            figures(self.objective),
            self.exact[configuration],
            self.nonzeros.ravel(),
        ]
        return pa.table(dict(zip(SCHEMA.names, arrays, strict=True)), schema=SCHEMA)

    def write(self, path: str | Location) -> None:
        """Commit `table` as a Parquet file. Raises `StorageError`."""
        write_parquet(location(path), self.table())
