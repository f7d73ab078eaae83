"""A RUN folder with believable numbers, for reports to be made from."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparseoco.offline.bounds import Bound, NoBound
from sparseoco.offline.regret.bounds import spread_marks
from sparseoco.offline.regret.tables import REGRET, SLOPES, slope_row
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import (
    CURVES,
    FEATURE_SURVIVAL,
    METRICS_SCHEMA,
    TIMINGS,
    WEIGHTS,
    write_parquet,
    write_result_table,
)
from sparseoco.store.weighting import Weighting
from sparseoco.training.decisions import Predictions, predictions_table

ALGORITHMS = {"cl-fobos": "eta0", "fobos": "eta0", "rda": "gamma", "stda": "gamma"}
WORDS = [
    "array_like",
    "shape",
    "axis",
    "returns",
    "kernel",
    "session",
    "query",
    "table",
    "flow",
    "task",
    "dtype",
    "ndarray",
    "chunk",
    "graph",
    "schema",
    "field",
    "estimator",
    "n_samples",
    "sparse",
    "compile",
    "typing",
    "block",
    "url",
    "async",
    "engine",
    "column",
    "matrix",
    "optimize",
    "float",
    "none",
]


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
    folder: Path,
    *,
    classes=(("neg", 12500), ("pos", 12500)),
    per_algorithm=1,
    folds=5,
    epochs=3,
    features=116_178,
    broken=0,
    all_broken=False,
    words=WORDS,
    name="reviews",
    empty_model=False,
    evaluated=False,
    rule="one-standard-error",
    regret=False,
) -> Path:
    """Write run.json, search/* and model/* of a run that never was; equal arguments give equal files."""
    random = np.random.default_rng(7)
    configurations = grid(per_algorithm)
    documents = sum(rows for _, rows in classes)
    columns = 1 if len(classes) == 2 else len(classes)
    baseline = 1 - max(rows for _, rows in classes) / documents
    training = documents * (folds - 1) // folds if folds > 1 else documents
    metrics, curves, kept, timings = [], [], [], []
    results = []
    for number, (algorithm, parameters) in enumerate(configurations):
        step = next(v for k, v in parameters.items() if k != "lam")
        status, reason = ("ok", "")
        if all_broken or number >= len(configurations) - broken:
            status, reason = [
                ("diverged", "weights are not finite at t = 1,204"),
                ("failed", "worker died 4 times <b>"),
            ][number % 2]
        sparsity = min(1.0, 1.2e-5 / parameters["lam"]) ** 0.7 * (0.5 if "da" in algorithm else 1.0) * 0.3
        error = baseline * (0.14 + 0.05 * abs(math.log(step)) + 0.8 * math.exp(-60 * sparsity))
        error, nonzeros = min(error, baseline), int(sparsity * features * columns) if error < 0.9 * baseline else 0
        error += {"cl-fobos": -0.01, "stda": -0.005}.get(algorithm, 0) * baseline
        results.append((number, algorithm, parameters, status, error, nonzeros))
        for fold in range(folds):
            noise = random.normal(0, 0.01 * baseline)
            for epoch in range(1, (1 if status != "ok" else epochs) + 1):
                bad = status != "ok"
                held_out = None if bad else float(np.clip(error + noise + 0.02 * baseline / epoch, 0, 1))
                metrics.append(
                    {
                        "configuration": number,
                        "algorithm": algorithm,
                        "parameters": json.dumps(parameters, sort_keys=True),
                        **Weighting().model_dump(),
                        "loss": "logistic",
                        "penalty": "l1",
                        "fold": fold,
                        "epoch": epoch,
                        "rows": epoch * training + (fold == 0),
                        "progressive_loss": math.nan if bad else error * 2,
                        "progressive_error": math.nan if bad else error * 1.2 / epoch,
                        "held_out_rows": documents - training,
                        "held_out_loss": held_out,
                        "held_out_error": held_out if folds > 1 else None,
                        "nonzeros": nonzeros + 13 * fold if nonzeros else 0,
                        "status": status,
                        "reason": reason,
                    }
                )
                timings.append({"configuration": number, "fold": fold, "epoch": epoch, "seconds": 0.21 + 0.01 * number})
            if status == "ok":
                marks = [
                    *np.unique(np.geomspace(1, epochs * training, 40).astype(int))[:-1],
                    epochs * training + (fold == 0),
                ]
                for rows in marks:
                    so_far = (
                        error * 1.1 + (baseline - error) * (1 + rows / 30) ** -0.45 + random.normal(0, 0.3 / (5 + rows))
                    )
                    curves.append(
                        {
                            "configuration": number,
                            "fold": fold,
                            "rows": int(rows),
                            "progressive_loss": so_far,
                            "progressive_error": float(np.clip(so_far, 0, 1)),
                        }
                    )
                for power in range(2, 15):
                    size = int(features * 0.6 * 2.0 ** -(power - 2)) + 1
                    share = 1 / (1 + math.exp(-(power - 8 + 3 * (algorithm == "fobos")) * 0.7)) * min(1, sparsity * 8)
                    kept.append(
                        {
                            "configuration": number,
                            "fold": fold,
                            "documents_from": 2 ** (power - 1),
                            "documents_to": 2**power - 1,
                            "features": size,
                            "nonzeros": int(share * size * columns),
                        }
                    )
    for table, rows, schema in (
        ("metrics", metrics, METRICS_SCHEMA),
        ("curves", curves, CURVES),
        ("feature_survival", kept, FEATURE_SURVIVAL),
        ("timings", timings, TIMINGS),
    ):
        write_result_table(folder / "search" / f"{table}.parquet", rows, schema)
    commit_json(
        folder / "run.json",
        {
            "name": name,
            "seed": 1,
            "version": "0.1.0",
            "search": {"loss": "logistic", "folds": folds, "epochs": epochs},
            "corpus": {
                "store": "9f2c" * 16,
                "rows": documents,
                "features": features,
                "classes": [{"name": of, "rows": rows} for of, rows in classes],
            },
        },
    )
    if evaluated:
        _write_evaluation(folder, classes)
    fine = [r for r in results if r[3] == "ok"]
    if regret:
        _write_regret(folder, results, documents)
    if fine:
        _write_best_and_model(folder, min(fine, key=lambda r: r[4]), classes, words, random, epochs, rule, empty_model)
    return folder


def _write_best_and_model(folder, best, classes, words, random, epochs, rule, empty_model):
    number, algorithm, parameters, _, error, nonzeros = best
    described = {"configuration": number, "epochs": epochs, "algorithm": algorithm, "parameters": parameters}
    commit_json(
        folder / "search" / "best.json",
        described | {"rule": rule, "error": error, "standard_error": 0.004, "nonzeros": nonzeros},
    )
    provenance = {"sparseoco": "0.1.0", "store": "9f2c" * 16, "rows": 25000, "sources": 1, "sources_sha256": "ab" * 32}
    commit_json(
        folder / "model" / "model.json",
        {"algorithm": algorithm, "classes": [of for of, _ in classes], "provenance": provenance},
    )
    rows = []
    for feature in range(0 if empty_model else 400):
        for of, _ in classes[1:] if len(classes) == 2 else classes:
            word = words[feature % len(words)] + (
                "" if feature < len(words) else f" {words[feature // len(words) % len(words)]}"
            )
            weight = float(random.normal()) / (1 + feature / 40)
            rows.append(
                {
                    "feature_id": feature * 3,
                    "feature": word,
                    "class": of,
                    "weight": weight,
                    "count": 90_000 // (feature + 1),
                    "documents": 20_000 // (feature + 1),
                }
            )
    table = pa.Table.from_pylist(rows, schema=WEIGHTS)
    write_parquet(folder / "model" / "weights.parquet", table)


def _write_evaluation(folder, classes):
    confusion = [
        [rows // 2 if truth == answer else k + 1 for k, (answer, _) in enumerate(classes)] for truth, rows in classes
    ]
    scores = [{"name": of, "rows": rows, "precision": 0.9, "recall": 0.8, "f1": 0.847} for of, rows in classes]
    commit_json(
        folder / "evaluation.json",
        {"rows": 7532, "error": 0.1234, "majority_error": 0.9, "classes": scores, "confusion": confusion},
    )


def _write_regret(folder, results, documents):
    """Regret like √T for the first of each algorithm: one far under its bound, one without a bound, one that failed."""
    marks, slopes = [], []
    first = {algorithm: (number, parameters) for number, algorithm, parameters, *_ in reversed(results)}
    bounds = {
        "cl-fobos": Bound("Togari and Yamashita 2016, Theorem 1", "2GD + …", (), lambda T, q: 1e9 * np.sqrt(T)),
        "fobos": Bound(
            "Duchi and Singer 2009, Theorem 6", "2GD + …", (), lambda T, q: 60 * np.sqrt(T), note="as cited"
        ),
        "rda": NoBound("No paper here bounds <it>."),
        "stda": NoBound("none"),
    }
    for algorithm, (number, parameters) in first.items():
        scale = {"cl-fobos": 20.0, "fobos": 14.0, "rda": 9.0}.get(algorithm)
        key = {
            "configuration": number,
            "algorithm": algorithm,
            "parameters": json.dumps(parameters, sort_keys=True),
            "objective": "Σ_t f_t(w) + Tλ‖w‖₁",
        }
        own = []
        for T in spread_marks(documents) if scale else []:
            bound = bounds[algorithm]
            limit = None if isinstance(bound, NoBound) else float(bound.value(T, {}))
            value = scale * T**0.5 * (1 + 0.1 * math.sin(T))
            loss = {"learner_loss": 0.4 * T + value, "optimum": 0.4 * T, "gap": 1e-3 * value, "regret": value}
            error = 0.0 if algorithm == "cl-fobos" else 1e-3 * value
            name = None if limit is None else bound.name
            exact = {"exact": error == 0, "penalty_error": error, "bound": limit, "bound_name": name}
            own.append(key | {"T": T} | loss | exact)
        failed = ("ok", "") if scale else ("failed", "the optimum of <it> was not found")
        marks += own
        slopes.append(key | slope_row(own, bounds[algorithm], *failed))
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
