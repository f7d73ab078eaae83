"""From text to probabilities: on documents that nobody has seen they are better than those of the loss."""

import json
from pathlib import Path

import numpy as np
import pytest

from sparseoco.pipeline import demo
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.training.decisions import read_predictions
from sparseoco.training.metrics import class_probabilities
from sparseoco.training.models import Model

RUN = """
out = "run"
[ingest]
inputs = ["train.jsonl"]
[search]
algorithms.adagrad = { eta = [0.3], lam = [1e-5, 1e-4] }
folds = 2
epochs = 2
[evaluate]
inputs = ["test.jsonl"]
[cluster]
threads = 2
"""


@pytest.mark.slow
def test_calibrated_probabilities_of_the_demo_corpus(tmp_path: Path) -> None:
    lines = demo.write_corpus(tmp_path / "demo.jsonl").path.read_text().splitlines()[:2400]
    (tmp_path / "train.jsonl").write_text("\n".join(lines[:1600]) + "\n")
    (tmp_path / "test.jsonl").write_text("\n".join(lines[1600:]) + "\n")
    (tmp_path / "run.toml").write_text(RUN)
    run = load_run_file(tmp_path / "run.toml")
    for step in ("ingest", "search", "train", "evaluate"):
        run_steps.STEPS[step](run)
    model = Model(run.out)
    assert model.calibration is not None
    assert model.calibration.rows == 1600
    found = read_predictions(run.out / "test.parquet", model.classes)
    truth = np.arange(len(found.labels)), found.labels
    calibrated = -np.log(model.probabilities(found.margins)[truth]).mean()
    assert calibrated < -np.log(class_probabilities(found.margins, joint=False)[truth]).mean()
    evaluated = json.loads((run.out / "evaluation.json").read_bytes())
    assert evaluated["log_loss"] == pytest.approx(calibrated, rel=1e-6)
    assert evaluated["calibrated"]
