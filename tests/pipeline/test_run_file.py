import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from sparseoco.core.errors import InputError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.training.options import SearchOptions
from tests.support.errors import raises_code

RUN = """
name = "reviews"
out = "runs/reviews"

[ingest]
inputs = ["reviews.jsonl.gz", "s3://bucket/more.jsonl"]
ngram_range = [1, 2]
min_df = 2
where = { split = "train" }

[search]
folds = 3
algorithms.cl-fobos = { lam = [1e-6, 1e-5], eta0 = 0.5 }
algorithms.stda = { p = ["inf", 2], lam = 1e-4 }

[evaluate]
where = { split = "test" }

[cluster]
workers = 2
"""


def write(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_paths_in_a_run_file_are_relative_to_it(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, RUN))
    assert run.out == tmp_path / "runs" / "reviews"
    assert run.store == run.out / "shards"
    assert run.ingest.inputs == (str(tmp_path / "reviews.jsonl.gz"), "s3://bucket/more.jsonl")
    assert run.ingest.text.ngram_range == (1, 2)
    assert run.ingest.text.where == {"split": "train"}
    assert run.cluster.workers == 2
    configurations = run.search.configurations()
    assert [c.number for c in configurations] == [0, 1, 2, 3]
    assert configurations[0].parameters == {"eta0": 0.5, "lam": 1e-6, "step": "sqrt", "average": "none"}
    assert json.loads(configurations[2].parameters_json)["p"] in ("inf", 2)


@pytest.mark.parametrize(
    ("old", "new", "code", "values"),
    [
        ("folds = 3", "fold = 3", "unknown-option", ["search.fold"]),
        ("folds = 3", "folds = 0", "invalid-option", ["search.folds", "at least 1"]),
        ("folds = 3", 'folds = "many"', "invalid-option", ["search.folds"]),
        ("folds = 3", 'loss = "huge"', None, ["search", "loss='huge'"]),
        ("cl-fobos", "cl-fobo", "unknown-algorithm", ["search", "cl-fobo", "cl-fobos"]),
        ("eta0 = 0.5", "eta = 0.5", None, ["cl-fobos", "'eta'", "eta0", "lam"]),
        ("eta0 = 0.5", "eta0 = -1", None, ["cl-fobos", "eta0=-1.0", "0"]),
        ("lam = 1e-4", "lam = 1e999", None, ["stda", "lam=inf"]),
        ("eta0 = 0.5", "eta0 = { low = 0.1, high = 1 }", None, ["cl-fobos.eta0", "samples"]),
        ("min_df = 2", "min_df = -2", "invalid-option", ["ingest", "min_df"]),
        ("min_df = 2", "mindf = 2", "unknown-option", ["ingest.mindf"]),
        ("min_df = 2", 'hash_bits = 9\nvocabulary = "extend"', "invalid-option", ["ingest", "vocabulary"]),
        (
            "ngram_range = [1, 2]",
            'stop_words = "english"\nfields.price = { type = "number" }',
            "invalid-option",
            ["ingest", "stop_words", "fields"],
        ),
        (
            'where = { split = "test" }',
            'where = { split = "test" }\nholdout = 0.2',
            "invalid-option",
            ["evaluate", "holdout"],
        ),
        ("workers = 2", "slurm.walltime = '1:00:00'", "invalid-option", ["cluster", "slurm", "kind"]),
        ('name = "reviews"', "name = 3", "invalid-option", ["name: "]),
        ("runs/reviews", "a\\u0000b", "invalid-option", ["out: "]),
        ("[ingest]", '[ingest]\nstore = "a\\u0000b"', "invalid-option", ["ingest.store: "]),
        ("reviews.jsonl.gz", "a\\u0000b", "invalid-option", ["ingest.inputs: "]),
        ("min_df = 2", "holdout = 0.2", "invalid-option", ["ingest.holdout", "[evaluate]"]),
        ("inputs = [", "input = [", "missing-option", ["ingest.inputs"]),
        ("workers = 2", "scheduler = 3", "invalid-option", ["cluster.scheduler"]),
        ("workers = 2", 'memory = "5XX"', "invalid-option", ["cluster.memory"]),
        ("workers = 2", 'memory = "10MB"', "invalid-option", ["cluster.memory", "512 MiB"]),
        ("lam = 1e-4", "lam = true", "invalid-option", ["search.algorithms"]),
        ("[search]", "[search", "invalid-toml", ["line"]),
        ("folds = 3", "folds = " + "[" * 5000 + "]" * 5000, "invalid-toml", []),
    ],
)
def test_every_error_names_its_key(tmp_path: Path, old: str, new: str, code: str | None, values: list[str]) -> None:
    path = write(tmp_path, RUN.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_run_file(path)
    assert error.value.code == (code or error.value.code)
    for value in [path, *values]:
        assert str(value) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("run.json", b"{}", "unknown-format"),
        ("run.yaml", b"out: a", "unknown-format"),
        ("run.toml", b"\xff", "encoding"),
        ("big.toml", b"#" * (2 << 20), "file-too-large"),
        ("none.toml", None, "missing-file"),
    ],
)
def test_files_that_are_not_run_files(tmp_path: Path, name: str, content: bytes | None, code: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with raises_code(code, tmp_path / name):
        load_run_file(tmp_path / name)


def test_an_error_without_message_is_reported_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.storage.remote.RemotePath.read_range", Mock(side_effect=TimeoutError()))
    with raises_code("unreadable-file", "run.toml", "TimeoutError"):
        load_run_file("memory://there/run.toml")


def test_random_draws_depend_on_the_seed_and_stay_within_the_range() -> None:
    def options(**changes: Any) -> SearchOptions:
        grid = {"lam": {"low": 1e-7, "high": 1e-3}, "eta0": [0.1, 1.0]}
        return SearchOptions.model_validate({"algorithms": {"fobos": grid}, "samples": 200} | changes)

    drawn = options().configurations()
    assert drawn == options().configurations()
    assert drawn != options(seed=1).configurations()
    values = sorted(configuration.parameters["lam"] for configuration in drawn)
    assert 1e-7 <= values[0] < 1e-6
    assert 1e-4 < values[-1] <= 1e-3
    assert abs(values[100] - 1e-5) < 1e-5  # half of the draws below the middle of the logarithm
    assert {configuration.parameters["eta0"] for configuration in drawn} == {0.1, 1.0}


def test_an_enormous_grid_is_rejected_before_it_is_expanded() -> None:
    wide = [0.001 * (i + 1) for i in range(400)]
    with pytest.raises(ValidationError, match=r"fobos.*160,000"):
        SearchOptions.model_validate({"algorithms": {"fobos": {"lam": wide, "eta0": wide}}})


def test_options_of_other_formats(tmp_path: Path) -> None:
    rows = [{"id": f"d{k}", "label": "ab"[k % 2], "text": f"word{k} more"} for k in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    (tmp_path / "test.csv").write_text("id,label,text\nx,a,word more\n")
    table = '[ingest]\ninputs = ["train.parquet"]\nmin_df = 1\n'
    for option in ("header = false", 'encoding = "cp1252"', 'include = ["a"]'):
        run = load_run_file(write(tmp_path, f"{table}{option}"))
        with raises_code("unsupported-combination", option.split()[0].replace("_", "-"), "train.parquet"):
            run_steps.run_ingest(run)
    run = load_run_file(write(tmp_path, f"{table}header = true\nngram_range = [1, 2]"))  # defaults
    run_steps.run_ingest(run)
    run = load_run_file(write(tmp_path, f'out = "b"\n{table}header = false\n[evaluate]\ninputs = ["test.csv"]'))
    run_steps.run_ingest(run)  # it is of the test set
