"""The tasks of a full-gradient pass, and the tree in which their sums are added.

A *run* is an aligned range of leaves. Its sums stay in a file of the host that computed them, from which all processes
of that host read, mapped. A task for a range of features then adds the runs of its host in the fixed tree of the
leaves; of another host it needs the sums of whole subtrees only, which are the same whoever adds them. So each gradient
crosses the network at most once per host if the runs of a host are a subtree, and no task but a run holds one whole.

A run whose file is not on this host, because the host that had it is gone, is computed again.
"""

import shutil
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.offline.partial_sums import FeatureSums, Floats, Partial
from sparseoco.offline.passes import (
    Leaves,
    PassRequest,
    Source,
    WithIntercept,
    leaf_conjugates,
    leaf_squares,
    leaf_totals,
    leaf_weights,
    tree_sum,
)
from sparseoco.storage.checkpoints import is_complete, map_array, write_array, write_checkpoint
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference, open_store
from sparseoco.store.weighting import Weighting
from sparseoco.store.worker import host_file, host_folder, worker_corpus
from sparseoco.training.class_weights import ClassWeighted


class RowsSource(NamedTuple):
    """The rows that a task reads: the path of a store, the weighting of its counts, the weights of its classes, and
    whether the intercept is the last feature."""

    store: StoreReference
    weighting: Weighting
    class_weights: tuple[float, ...] | None = None
    intercept: bool = False


class Pass(NamedTuple):
    """A pass over some columns, for its tasks.

    files    prefix of its files in the shared folder
    scratch  name of its folder on every host, within one of the run
    weights  npy (features, all columns of the pass's weights); None for weights 0
    columns  (first, last) of them
    request  None for the sums of squares of the features
    """

    source: RowsSource
    leaves: Leaves
    files: str
    scratch: str
    weights: str | None
    columns: tuple[int, int]
    request: PassRequest | None

    def slopes(self, leaf: int) -> Location:
        """npy (rows of the leaf, columns)."""
        return location(f"{self.files}-slopes-{leaf}.npy")

    def total(self, part: int, parts: int) -> Location:
        """npz `loss_sum` and `exact_sum` (columns,), `gradient` of one of `parts` equal ranges of the features."""
        return location(f"{self.files}-total-{part}-of-{parts}.npz")

    def features(self, part: int, parts: int) -> tuple[int, int]:
        """The features (first, last) of a range."""
        n_features = self.leaves.shape.n_features
        return n_features * part // parts, n_features * (part + 1) // parts


class Hosts(NamedTuple):
    """Which host has which runs: `edges` (hosts + 1,), the first run of every host and the end; `size` leaves a run."""

    edges: tuple[int, ...]
    size: int

    def add(self, subtree: Callable[[int, int, int], Any], first: int = 0, last: int = -1) -> Any:
        """The sum of runs first..last, all by default, from that of the largest subtrees within a host.

        ``subtree(host, first, last)`` returns the sum of a subtree.
        """
        last = self.edges[-1] if last == -1 else last
        host = bisect_right(self.edges, first) - 1
        if last <= self.edges[host + 1]:
            return subtree(host, first, last)
        middle = (first + last) // 2
        return self.add(subtree, first, middle) + self.add(subtree, middle, last)

    def subtrees(self, host: int) -> list[tuple[int, int]]:
        """The (first, last) runs of the largest subtrees of a host, in order."""
        found = self.add(lambda owner, first, last: [(first, last)] if owner == host else [])
        return list(found)


def open_rows(source: RowsSource) -> Source:
    """The weighted rows of a store on this worker."""
    store = open_store(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: Source = corpus if own is None else ClassWeighted(corpus, own)
    return WithIntercept(rows, store.n_features) if source.intercept else rows


def compute_run(task: Pass, first: int, last: int) -> None:
    """Compute the sums of leaves first..last into a file of this host, unless it exists."""
    run_sums(task, first, last)


def run_sums(task: Pass, first: int, last: int) -> Partial:
    """The sums of leaves first..last, mapped from files of this host, which are written if missing or corrupt."""
    name = str(host_folder() / task.scratch / f"{first}-{last}")
    losses, features, values = (Path(f"{name}-{part}.npy") for part in ("losses", "features", "values"))
    n_features, columns = task.leaves.shape.n_features, task.columns[1] - task.columns[0]

    def read() -> Partial:
        gradient = read_rows(values, columns)
        found = read_rows(features, 1, np.int64)[:, 0] if len(gradient) < n_features else None
        loss_sum, exact_sum = read_rows(losses, columns)
        return Partial(loss_sum, exact_sum, FeatureSums(n_features, found, gradient))

    with suppress(DamagedError):
        return read()
    sums = _sum_leaves(task, first, last)
    write_array(losses, np.stack(sums[:2]), sync=False)
    if sums.gradient.features is not None:
        write_array(features, sums.gradient.features, sync=False)
    write_array(values, sums.gradient.values, sync=False)  # the last one
    return read()


def _sum_leaves(task: Pass, first: int, last: int) -> Partial:
    rows, span, bounds = open_rows(task.source), task.leaves.span, task.leaves.bounds()
    request, values = task.request, _weights(task)
    buffer = task.leaves.buffer(values.shape[1])

    def leaf(i: int) -> Partial:
        if request is None:
            return leaf_squares(rows, span, bounds[i], buffer)
        total, s = leaf_totals(rows, span, bounds[i], values, request, buffer)
        write_array(task.slopes(i), s)
        return total

    return tree_sum(leaf, first, last)  # type: ignore[no-any-return]


def _weights(task: Pass) -> Floats:
    """(features, columns): the weights of the pass, mapped if it is over all columns."""
    first, last = task.columns
    if task.weights is None or task.request is None:
        return np.zeros((task.leaves.shape.n_features, last - first))
    local = host_file(location(task.weights), host_folder() / task.scratch)
    return np.ascontiguousarray(read_rows(local)[:, first:last])


def subtree_sums(task: Pass, hosts: Hosts, host: int, features: tuple[int, int]) -> list[Partial]:
    """The sums of a host's largest subtrees over a range of features."""
    return [_add_runs(task, hosts, features, *runs) for runs in hosts.subtrees(host)]


def write_total(task: Pass, hosts: Hosts, host: int, others: Sequence[list[Partial]], part: int, parts: int) -> None:
    """Write the total over a range of features, on a host, from the subtrees of the `others` (of all but this)."""
    features = task.features(part, parts)
    given = iter([sums for own in others for sums in own])

    def subtree(owner: int, first: int, last: int) -> Partial:
        return _add_runs(task, hosts, features, first, last) if owner == host else next(given)

    total = hosts.add(subtree)
    arrays = total._asdict() | {"gradient": total.gradient.dense()}
    write_checkpoint(task.total(part, parts), {}, arrays.items())


def total_is_complete(task: Pass, part: int, parts: int) -> bool:
    """Whether the total over a range of features exists and passes its checksums."""
    return is_complete(task.total(part, parts))


def _add_runs(task: Pass, hosts: Hosts, features: tuple[int, int], first: int, last: int) -> Partial:
    def run(i: int) -> Partial:
        return run_sums(task, i * hosts.size, (i + 1) * hosts.size).of(*features)

    return tree_sum(run, first, last)  # type: ignore[no-any-return]


def remove_scratch(name: str) -> None:
    """Remove a folder of this host."""
    shutil.rmtree(host_folder() / name, ignore_errors=True)


def conjugate_sums(task: Pass, first: int, last: int, scale: Floats) -> list[Floats]:
    """Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) of leaves first..last of a pass, from its files of slopes."""
    rows, span, bounds = open_rows(task.source), task.leaves.span, task.leaves.bounds()
    assert task.request is not None
    return [
        leaf_conjugates(
            task.request.loss, read_rows(task.slopes(i), scale.size), leaf_weights(rows, span, bounds[i]), scale
        )
        for i in range(first, last)
    ]


def read_rows(path: Location, columns: int | None = None, dtype: Any = np.float64) -> NDArray[Any]:
    """An npy file (rows, columns) of a pass, mapped; with its last axis as columns by default.

    Raises `DamagedError` if it is missing or corrupt.
    """
    array = map_array(path, dtype)
    return array.reshape(-1, columns or array.shape[-1])
