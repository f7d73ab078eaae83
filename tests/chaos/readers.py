"""Functions that run in the forks: some leave artifacts, others read all that an artifact holds."""

import hashlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from sparseoco.cli import main
from sparseoco.kernels.columns import MEASURE, MEASURE_ABSOLUTE
from sparseoco.scoring.kept import read_kept, read_kept_files
from sparseoco.scoring.parts import PARTS, read_part, read_scores
from sparseoco.storage.locations import location
from sparseoco.storage.tables import read_parquet_file
from sparseoco.store.corpus import Corpus
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import Weighting
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.search_tables import read_metrics
from tests.support.texts import write_reviews

TEXTS = ["the grey wave and old tide", "moss fox tree", "tram street lamp roof", ""]


def _digest(*values: Any) -> str:
    """SHA-256 of arrays and of what `repr` shows of anything else."""
    digest = hashlib.sha256()
    for value in values:
        data = np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
        digest.update(data + b"\0")
    return digest.hexdigest()


def scores(folder: str) -> str:
    """All that a folder of scores holds and lists."""
    found, kept = read_scores(location(folder)), read_kept(location(folder))
    parts = [read_part(location(folder) / PARTS / entry.file).to_pydict() for entry in found.parts]
    sources = [(entry.rows, entry.sha256) for entry in found.sources]
    return _digest(parts, sources, list(read_kept_files(location(folder), kept)))


def store(folder: str) -> str:
    """All that a store holds, as shards and as arrays for training; weights of a learner trained on them."""
    opened = Store.open(folder)
    X, terms = read_shards(folder)
    shards = [opened.read(shard, ids=True) for shard in range(opened.n_shards)]
    ids = [part.ids.to_pylist() for part in shards]
    columns = [opened.column(name) for name in opened.manifest.columns]
    idf = term_weights(opened, Weighting(tf="log", idf=True, norm="l2")).values(X.indptr, X.indices, X.data)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(opened, Path(scratch))
        rows = [array for array in corpus.whole() if array is not None]
        learner = Learner(
            "rda",
            grid={"lam": [1e-3]},
            n_features=opened.n_features,
            n_classes=len(opened.classes),
            multilabel=opened.is_multilabel,
        )
        learner.learn_rows(*corpus.rows(0, corpus.n_rows))
    labels, described = opened.labels(), opened.vocabulary().to_pydict()
    return _digest(*X.indptr.tolist(), X.indices, X.data, terms, ids, labels, columns, idf, *rows, described) + _digest(
        learner.weights(), opened.classes, opened.document_frequencies()
    )


def tables(folder: str) -> str:
    """All result tables of a folder."""
    paths = sorted(Path(folder).rglob("*.parquet"))
    return _digest(*((str(path), read_parquet_file(path).to_pydict()) for path in paths))


def metrics(run: str) -> str:
    """The metrics of a search."""
    return _digest(read_metrics(run).to_pydict())


def model(folder: str) -> str:
    """Predictions of a model."""
    opened = Model(folder)
    return _digest(opened.classes, opened.predict(TEXTS), opened.decision_function(TEXTS), opened.predict_proba(TEXTS))


def ended_before_manifest(*command: str) -> None:
    """Run an ingest that is killed when all but its manifest is committed."""
    import sparseoco.text.ingest

    sparseoco.text.ingest.commit_manifest = lambda *_, **__: os._exit(0)  # type: ignore[assignment]
    sys.argv = ["sparseoco", *command]
    main()


def kernels() -> str:
    """What two small kernels compute."""
    weights, norms, sizes = np.arange(6.0).reshape(3, 2) % 3, np.zeros(2), np.zeros((3, 2))
    MEASURE(weights, *sizes)
    MEASURE_ABSOLUTE(weights, norms)
    return _digest(sizes, norms)


def loaded() -> None:
    """Load the compiled code that most commands need, before forks; leaves no thread."""
    kernels()
    with tempfile.TemporaryDirectory() as folder:
        text, out = write_reviews(Path(folder) / "reviews.jsonl", classes=3), Path(folder) / "store"
        ingest([str(text)], out, TextOptions())
        store(str(out))
    assert threading.active_count() == 1


def with_fault(kind: str, number: str, folder: str, report: str, *command: str) -> None:
    """Run a command while the n-th read or write below a folder fails; the calls counted go to the file `report`."""
    import ctypes

    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    sys.argv = ["sparseoco", *command]
    shim.fault_set(folder.encode(), int(kind), ctypes.c_long(int(number)))
    try:
        main()
    finally:
        Path(report).write_text(str(shim.fault_calls()))
