"""A RUN folder with numbers of a run that never was, for reports to be made from."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparseoco.offline.bounds import Bound, NoBound
from sparseoco.offline.regret.bounds import MARKS, REGRET, SLOPES, slope_row
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import write_parquet, write_result_table
from sparseoco.store.weighting import Weighting
from sparseoco.training.decisions import Predictions, predictions_table
from sparseoco.training.search_tables import SEARCH_TABLES, WEIGHTS
from sparseoco.training.stream import curve_marks

ALGORITHMS = {"cl-fobos": "eta0", "fobos": "eta0", "rda": "gamma", "stda": "gamma"}
BROKEN = [("diverged", "weights are not finite at t = 1,204"), ("failed", "worker died 4 times <b>")]
FEATURES, STORE = 116_178, "9f2c" * 16
WORDS = [f"word{k}" for k in range(30)]
TWO = (("neg", 12500), ("pos", 12500))


def grid(per_algorithm: int) -> list[tuple[str, dict]]:
    """As many configurations of each algorithm."""
    side = math.ceil(per_algorithm / 4)
    return [
        (
            algorithm,
            {step: [0.1, 0.3, 1.0, 3.0][k // side % 4], "lam": 10.0 ** (-6 + 3 * (k % side) / max(side - 1, 1))},
        )
        for algorithm, step in ALGORITHMS.items()
        for k in range(per_algorithm)
    ]


def write_run(
    folder: Path, classes=TWO, per_algorithm=1, folds=5, epochs=3, broken=0, words=WORDS, name="reviews", tested=False
) -> Path:
    """Write run.json, search/* and model/*; equal arguments give equal files."""
    random, configurations = np.random.default_rng(7), grid(per_algorithm)
    documents = sum(rows for _, rows in classes)
    baseline = 1 - max(rows for _, rows in classes) / documents
    training = documents * (folds - 1) // folds if folds > 1 else documents
    tables = {table: [] for table in SEARCH_TABLES}
    fine = []
    for number, (algorithm, parameters) in enumerate(configurations):
        bad = number >= len(configurations) - broken
        status, reason = BROKEN[number % 2] if bad else ("ok", "")
        error, nonzeros = baseline * random.uniform(0.1, 0.8), int(FEATURES * random.uniform(0.01, 0.2))
        if not bad:
            fine.append((error, number, nonzeros))
        described = {"algorithm": algorithm, "parameters": json.dumps(parameters, sort_keys=True)}
        described |= Weighting().model_dump() | {"loss": "logistic", "penalty": "l1"}
        described |= {"status": status, "reason": reason}
        for fold in range(folds):
            key = {"configuration": number, "fold": fold}
            for epoch in range(1, (1 if bad else epochs) + 1):
                held_out = None if bad else float(np.clip(random.normal(error, 0.01 * baseline), 0, 1))
                row = key | described | {"epoch": epoch, "rows": epoch * training + (fold == 0)}
                row |= {"nonzeros": nonzeros + fold, "progressive_loss": math.nan if bad else 2 * error}
                row |= {"held_out_rows": documents - training}
                row |= {"progressive_error": math.nan if bad else 1.2 * error / epoch, "held_out_loss": held_out}
                tables["metrics"].append(row | {"held_out_error": held_out if folds > 1 else None})
                tables["timings"].append(key | {"epoch": epoch, "seconds": 0.21 + 0.01 * number})
            for rows in () if bad else np.unique(np.geomspace(1, epochs * training, 40).astype(int)).tolist():
                so_far = error + (baseline - error) / rows**0.5
                tables["curves"].append(key | {"rows": rows} | dict.fromkeys(CURVE, so_far))
            for power in () if bad else range(2, 15):
                size = int(FEATURES * 0.6 * 2.0 ** -(power - 2)) + 1
                kept = {"documents_from": 2 ** (power - 1), "documents_to": 2**power - 1, "features": size}
                tables["feature_survival"].append(key | kept | {"nonzeros": size * power // 30})
    for table, rows in tables.items():
        write_result_table(folder / "search" / f"{table}.parquet", rows, SEARCH_TABLES[table])
    corpus = {"store": STORE, "rows": documents, "features": FEATURES}
    corpus["classes"] = [{"name": of, "rows": rows} for of, rows in classes]
    search = {"loss": "logistic", "folds": folds, "epochs": epochs}
    run = {"name": name, "seed": 1, "version": "0.1.0", "search": search, "corpus": corpus}
    commit_json(folder / "run.json", run)
    if tested:
        _write_evaluation(folder, classes)
    if fine:
        error, number, nonzeros = min(fine)
        algorithm, parameters = configurations[number]
        described = {"configuration": number, "epochs": epochs, "algorithm": algorithm, "parameters": parameters}
        measured = {"rule": "one-standard-error", "error": error, "standard_error": 0.004, "nonzeros": nonzeros}
        commit_json(folder / "search" / "best.json", described | measured)
        _write_model(folder / "model", algorithm, [of for of, _ in classes], words)
    return folder


CURVE = ("progressive_loss", "progressive_error")


def _write_model(folder, algorithm, classes, words):
    provenance = {"sparseoco": "0.1.0", "store": STORE, "rows": 25000, "sources": 1, "sources_sha256": "ab" * 32}
    commit_json(folder / "model.json", {"algorithm": algorithm, "classes": classes, "provenance": provenance})
    random, rows = np.random.default_rng(8), []
    named = [f"{first} {second}".strip() for first in ("", *words) for second in words][:400]
    for feature, word in enumerate(named):
        for of in classes[1:] if len(classes) == 2 else classes:
            row = {"feature_id": feature * 3, "feature": word, "class": of, "count": 90_000 // (feature + 1)}
            weight = float(random.normal()) / (1 + feature / 40)
            rows.append(row | {"weight": weight, "documents": 20_000 // (feature + 1)})
    write_parquet(folder / "weights.parquet", pa.Table.from_pylist(rows, schema=WEIGHTS))


def _write_evaluation(folder, classes):
    confusion = [
        [rows // 2 if truth == answer else k + 1 for k, (answer, _) in enumerate(classes)] for truth, rows in classes
    ]
    scores = [{"name": of, "rows": rows, "precision": 0.9, "recall": 0.8, "f1": 0.847} for of, rows in classes]
    commit_json(
        folder / "evaluation.json",
        {"rows": 7532, "error": 0.1234, "majority_error": 0.9, "classes": scores, "confusion": confusion},
    )


def write_regret(folder, configurations, documents):
    """Regret like √T for the first of each algorithm: one far under its bound, one without a bound, one that failed."""
    marks, slopes = [], []
    duchi = "Duchi and Singer 2009, Theorem 6"
    bounds = {
        "cl-fobos": Bound("Togari and Yamashita 2016, Theorem 1", "2GD + …", (), lambda T, q: 1e9 * np.sqrt(T)),
        "fobos": Bound(duchi, "2GD + …", (), lambda T, q: 60 * np.sqrt(T), note="as cited"),
        "rda": NoBound("No paper here bounds <it>."),
        "stda": NoBound("none"),
    }
    scales = {"cl-fobos": 20.0, "fobos": 14.0, "rda": 9.0}
    first = {algorithm: number for number, (algorithm, _) in reversed(list(enumerate(configurations)))}
    for algorithm, number in first.items():
        bound, scale = bounds[algorithm], scales.get(algorithm, 0.0)
        parameters = json.dumps(configurations[number][1], sort_keys=True)
        key = {"configuration": number, "algorithm": algorithm, "parameters": parameters}
        key["objective"] = "Σ_t f_t(w) + Tλ‖w‖₁"
        own = []
        for T in curve_marks(documents, MARKS) if scale else []:
            value = scale * T**0.5 * (1 + 0.1 * math.sin(T))
            error = 0.0 if algorithm == "cl-fobos" else 1e-3 * value
            row = key | {"T": T, "learner_loss": 0.4 * T + value, "optimum": 0.4 * T, "gap": 1e-3 * value}
            row |= {"regret": value, "exact": error == 0, "penalty_error": error, "bound": None, "bound_name": None}
            if isinstance(bound, Bound):
                row |= {"bound": float(bound.value(T, {})), "bound_name": bound.name}
            own.append(row)
        failed = ("ok", "") if scale else ("failed", "the optimum of <it> was not found")
        marks += own
        slopes.append(key | slope_row(own, bound, *failed))
    write_result_table(folder / "regret" / "regret.parquet", marks, REGRET)
    write_result_table(folder / "regret" / "slopes.parquet", slopes, SLOPES)


def write_predictions(folder: Path, classes, *, rows=2000, kind="single", skill=2.0) -> None:
    """Held-out and test predictions of a run that never was."""
    names = [name for name, _ in classes]
    for path, fold, seed in ((folder / "search" / "held_out.parquet", True, 1), (folder / "test.parquet", False, 2)):
        random = np.random.default_rng(seed)
        shares = np.array([size for _, size in classes] or [1.0], float)
        if kind == "several":
            labels = random.random((rows, len(names))) < shares / shares.sum()
            margins = skill * (2.0 * labels - 1) + random.normal(0, 1.5, labels.shape)
        elif kind == "numbers":
            labels = random.normal(3, 2, rows)
            margins = (labels + random.normal(0, 0.5, rows))[:, None]
        else:
            labels = random.choice(len(names), rows, p=shares / shares.sum())
            if len(names) == 2:
                margins = (skill * (2.0 * labels - 1) + random.normal(0, 1.5, rows))[:, None]
            else:
                margins = random.normal(0, 1.0, (rows, len(names)))
                margins[np.arange(rows), labels] += skill
        ids = pa.array([f"document/{path.stem}-{k}" for k in range(rows)])
        folds = random.integers(0, 5, rows).astype(np.int32) if fold else None
        write_parquet(path, predictions_table(Predictions(ids, folds, labels, margins), names))
