"""A search: every (configuration, fold), packed into blocks of columns, run on Dask, found again by what it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed, get_worker
from distributed.core import Status

from sparseoco.cluster.block import NO_FOLD, Block, Setting, Tables, cell_path, run_block, train_block
from sparseoco.cluster.connect import worker_shape
from sparseoco.commit import digest_value, read_json
from sparseoco.config import Configuration, SearchOptions
from sparseoco.errors import InputError, SparseocoError
from sparseoco.learner import bytes_per_column
from sparseoco.learners import find_algorithm
from sparseoco.metrics import SEARCH_TABLES
from sparseoco.shards import Store

Progress = Callable[[str, int, int], None]

BLOCK_COLUMNS = 64  # wider blocks share no more of a feature's cache lines
MEMORY_SHARE = 0.7  # of what a task may use; the rest is for the stream and the interpreter
TOPIC = "sparseoco-rows"
ENDING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def run_search(
    client: Client,
    configurations: Sequence[Configuration],
    options: SearchOptions,
    store: Store,
    cells: Path,
    progress: Progress,
) -> Tables:
    """The tables of a search, rows in order of configuration, fold and epoch.

    Results already in `cells` are used, however they were grouped; the rest is packed into blocks and run. What cannot
    be run becomes a row with the reason.

    Raises `InputError` if not even one configuration fits in memory, `SparseocoError` for what would stop every block
    (a damaged shard, a full disk).
    """
    settings = [_setting(options, store, fold) for fold in _folds(options)]
    found = _read_cells(cells, settings)
    tasks, memory = worker_shape(client)
    blocks = []
    for setting in settings:
        for group in _groups(configurations):
            missing = [c for c in group if (setting.fold, _identity(c.algorithm, c.parameters)) not in found]
            # Wider than an even share would leave a task with nothing to do.
            share = -(-len(group) * len(settings) // tasks)
            width = max(1, min(columns_at_once(group[0], options, store, memory), share))
            blocks += [_block(setting, missing[first : first + width]) for first in range(0, len(missing), width)]
    total = len(configurations) * len(settings)
    failures = _run_blocks(client, blocks, store, cells, total, progress)
    found = _read_cells(cells, settings)
    tables: Tables = {name: [] for name in SEARCH_TABLES}
    for configuration in configurations:
        identity = _identity(configuration.algorithm, configuration.parameters)
        for setting in settings:
            failed = {"epoch": setting.epochs, "status": "failed", "reason": failures.get((setting.fold, identity), "")}
            result = found.get((setting.fold, identity), {"metrics": [failed]})
            for name, rows in result.items():
                tables[name] += [_numbered(row, name, configuration, setting) for row in rows]
    return tables


def train_model(
    client: Client,
    configuration: Configuration,
    options: SearchOptions,
    epochs: int,
    store: Store,
    model: Path,
    progress: Progress,
) -> None:
    """Learn one configuration on all the data, on the cluster; its model goes to the folder `model`.

    Raises `InputError` if it does not fit in memory, `SparseocoError` if it cannot be trained, with the reason.
    """
    columns_at_once(configuration, options, store, worker_shape(client)[1])
    setting = _setting(options, store, NO_FOLD).model_copy(update={"epochs": epochs})
    block = _block(setting, [configuration])
    with _told_rows(client, "train", [block], 1, store.n_rows, progress) as finished:
        future = _submit(client, train_block, block, store, model)
        error = future.exception()
        if error is not None:
            raise SparseocoError(f"Training failed: {_reason(error)}.")
        finished(block)


def columns_at_once(configuration: Configuration, options: SearchOptions, store: Store, memory: int) -> int:
    """How many configurations compiled as this one share a block: as share cache lines and fit in `memory` bytes.

    Raises `InputError`, with the figure, if not even one fits.
    """
    outputs = len(store.classes) if len(store.classes) > 2 else 1
    each = outputs * bytes_per_column(
        configuration.algorithm,
        store.n_features,
        options.dtype,
        loss=options.loss,
        penalty=options.penalty,
        parameters=configuration.parameters,
    )
    if each > memory * MEMORY_SHARE:
        raise InputError(
            f"One configuration of {configuration.algorithm} needs {each / 1e9:.1f} GB ({store.n_features:,} features "
            f"× {outputs} columns) and a task has {memory / 1e9:.1f} GB: keep fewer features at ingest "
            "(--min-df, --max-features, --hash-bits) or give workers more memory."
        )
    return max(1, min(BLOCK_COLUMNS // outputs, int(memory * MEMORY_SHARE // each)))


def _folds(options: SearchOptions) -> Sequence[int]:
    return range(options.folds) if options.folds > 1 else [NO_FOLD]


def _setting(options: SearchOptions, store: Store, fold: int) -> Setting:
    return Setting(
        manifest=store.manifest.digest,
        loss=options.loss,
        penalty=options.penalty,
        dtype=options.dtype,
        fold=fold,
        folds=options.folds if fold != NO_FOLD else 1,
        epochs=options.epochs,
        seed=options.seed,
        shuffle=options.shuffle,
    )


def _groups(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Configurations that can share a kernel: of one algorithm, equal in the parameters that are compiled in."""
    groups: dict[tuple[Any, ...], list[Configuration]] = {}
    for configuration in configurations:
        parameters = find_algorithm(configuration.algorithm).parameters
        compiled = tuple(configuration.parameters[p.name] for p in parameters if p.static)
        groups.setdefault((configuration.algorithm, *compiled), []).append(configuration)
    return list(groups.values())


def _block(setting: Setting, configurations: Sequence[Configuration]) -> Block:
    return Block(
        setting=setting,
        algorithm=configurations[0].algorithm,
        configurations=tuple(configuration.parameters for configuration in configurations),
    )


def _identity(algorithm: str, parameters: dict[str, Any]) -> str:
    return digest_value([algorithm, parameters])


def _read_cells(folder: Path, settings: Sequence[Setting]) -> dict[tuple[int, str], Tables]:
    """Results by (fold, identity of the configuration)."""
    found = {}
    for setting in settings:
        for path in sorted(folder.glob(f"{setting.digest}-*.json")):
            for result in read_json(path)["results"]:
                found[setting.fold, _identity(result["algorithm"], result["parameters"])] = result["tables"]
    return found


def _numbered(row: dict[str, Any], table: str, configuration: Configuration, setting: Setting) -> dict[str, Any]:
    key: dict[str, Any] = {"configuration": configuration.number, "fold": setting.fold}
    if table == "metrics":
        key |= {
            "algorithm": configuration.algorithm,
            "parameters": configuration.parameters_json,
            "loss": setting.loss,
            "penalty": setting.penalty,
        }
    return key | row


def _run_blocks(
    client: Client, blocks: Sequence[Block], store: Store, cells: Path, total: int, progress: Progress
) -> dict[tuple[int, str], str]:
    """Run blocks to their cells; gives the reason of each (fold, configuration) that could not be run."""
    failures: dict[tuple[int, str], str] = {}
    with _told_rows(client, "search", blocks, total, store.n_rows, progress) as finished:
        futures = {_submit(client, run_block, block, store, cell_path(cells, block)): block for block in blocks}
        for future in as_completed(futures, loop=client.loop):
            block = futures[future]
            if future.status == "error":
                reason = _reason(future.exception())
                failures |= {
                    (block.setting.fold, _identity(block.algorithm, parameters)): reason
                    for parameters in block.configurations
                }
            finished(block)
    return failures


def _submit(client: Client, function: Any, block: Block, store: Store, result: Path) -> Future:
    # Paths and a description travel, nothing larger; the key lets a lost task be run again anywhere.
    return client.submit(
        _run_on_worker,
        function,
        block.model_dump(mode="json"),
        str(store.folder.resolve()),
        str(result.resolve()),
        key=f"block-{block.digest}",
    )


def _run_on_worker(function: Any, description: dict[str, Any], store: str, result: str) -> None:
    worker = get_worker()
    block = Block.model_validate(description)

    def report(rows: int) -> None:
        if worker.status in ENDING:
            raise SparseocoError("The worker was asked to end.")
        worker.log_event(TOPIC, {"block": block.digest, "rows": rows})

    function(block, Store.open(store), Path(result), Path(worker.local_directory), report)


@contextmanager
def _told_rows(
    client: Client, step: str, blocks: Sequence[Block], total: int, n_rows: int, progress: Progress
) -> Iterator[Callable[[Block], None]]:
    """Turn what workers report into `progress`, in examples × configurations; yields what to call when a block ends."""
    by_digest = {block.digest: block for block in blocks}
    done = dict.fromkeys(by_digest, 0)
    epochs = blocks[0].setting.epochs if blocks else 1
    waiting = sum(len(block.configurations) for block in blocks)
    before = (total - waiting) * n_rows * epochs

    def tell() -> None:
        weighted = sum(rows * len(by_digest[digest].configurations) for digest, rows in done.items())
        progress(step, before + weighted, total * n_rows * epochs)

    def reported(event: tuple[float, dict[str, Any]]) -> None:
        digest = event[1]["block"]
        if digest in done:
            done[digest] = max(done[digest], event[1]["rows"])
            tell()

    def finished(block: Block) -> None:
        done[block.digest] = n_rows * epochs
        tell()

    tell()
    client.subscribe_topic(TOPIC, reported)
    try:
        yield finished
    finally:
        client.unsubscribe_topic(TOPIC)


def _reason(error: BaseException) -> str:
    """A sentence for a block that failed; errors that every block would meet are raised instead."""
    if isinstance(error, SparseocoError):
        raise error
    if isinstance(error, KilledWorker):
        return "its worker was killed each time it was tried, most likely for want of memory"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error}"
