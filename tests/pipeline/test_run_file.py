import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from sparseoco.core.errors import InputError
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.training.options import SearchOptions

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


def test_a_run_file_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    run = load_run_file(write(tmp_path, RUN))
    assert run.out == tmp_path / "runs" / "reviews"
    assert run.store == run.out / "shards"
    assert run.ingest.inputs == (str(tmp_path / "reviews.jsonl.gz"), "s3://bucket/more.jsonl")
    assert run.ingest.text.ngram_range == (1, 2)
    assert run.ingest.text.where == {"split": "train"}
    assert run.cluster.workers == 2
    configurations = run.search.configurations()
    assert [c.number for c in configurations] == [0, 1, 2, 3]
    assert configurations[0].parameters == {"eta0": 0.5, "lam": 1e-6, "step": "sqrt"}
    assert json.loads(configurations[2].parameters_json)["p"] in ("inf", 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("folds = 3", "fold = 3", "search.fold: there is no such key"),
        ("folds = 3", "folds = 0", "search.folds: must be at least 1"),
        ("folds = 3", 'folds = "many"', "search.folds: must be a whole number"),
        ("folds = 3", 'loss = "huge"', "search: loss='huge' is not known"),
        ("cl-fobos", "cl-fobo", "algorithm='cl-fobo' is not known; choose one of"),
        ("eta0 = 0.5", "eta = 0.5", "cl-fobos has no parameter 'eta'; it has eta0, lam"),
        ("eta0 = 0.5", "eta0 = -1", "cl-fobos: eta0=-1.0 must be greater than 0"),
        ("lam = 1e-4", "lam = 1e999", "stda: lam=inf is not finite"),
        ("eta0 = 0.5", "eta0 = { low = 0.1, high = 1 }", "cl-fobos.eta0 is a range: say how many to draw"),
        ("min_df = 2", "min_df = -2", "min_df"),
        ("min_df = 2", "mindf = 2", "ingest.mindf: there is no such key"),
        ('name = "reviews"', "name = 3", "name: must be text"),
        ('out = "runs/reviews"', "", "out: this key is required"),
        ("inputs = [", "input = [", "ingest.inputs: this key is required"),
        ("workers = 2", "scheduler = 3", "cluster.scheduler: must be text"),
        ("workers = 2", 'memory = "5XX"', "cluster.memory: write a size as bytes"),
        ("workers = 2", 'memory = "10MB"', "cluster.memory: a worker needs at least 512 MiB"),
        ("lam = 1e-4", "lam = true", "true and false are not values of a parameter"),
        ("[search]", "[search", "is not TOML"),
        ("folds = 3", "folds = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_every_error_names_its_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, RUN.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_run_file(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_files_that_are_no_run_files(tmp_path: Path) -> None:
    for name, content, said in (
        ("run.json", b"{}", "must end in .toml"),
        ("run.yaml", b"out: a", "must end in .toml"),
        ("run.toml", b"\xff", "not UTF-8"),
        ("big.toml", b"#" * (2 << 20), "is larger than"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=said):
            load_run_file(tmp_path / name)
    with pytest.raises(InputError, match="No such file"):
        load_run_file(tmp_path / "none.toml")


def test_an_error_without_words_is_named_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.storage.remote.RemotePath.read_range", Mock(side_effect=TimeoutError()))
    with pytest.raises(InputError, match=r"run\.toml.*: TimeoutError\.$"):
        load_run_file("memory://there/run.toml")


def test_random_draws_are_those_of_the_seed_and_within_the_range() -> None:
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


def test_a_grid_that_nobody_would_live_to_see_is_refused_before_it_is_made() -> None:
    wide = [0.001 * (i + 1) for i in range(400)]
    with pytest.raises(ValidationError, match="fobos has 160,000 configurations, more than 100,000: draw some"):
        SearchOptions.model_validate({"algorithms": {"fobos": {"lam": wide, "eta0": wide}}})
