"""The table [score] of a run file: the model of the run scores a corpus as a step of it."""

from pathlib import Path

import pytest

from sparseoco.core.errors import InputError
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.scoring.kept import read_kept
from sparseoco.scoring.manifest import read_scores
from sparseoco.training.models import find_model
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, prepare
from tests.support.texts import write_reviews, write_run_file

TABLE = """
[score]
inputs = ["crawl"]
columns = ["split"]
keep_top = "10%"
keep_class = "town"
also = ["again=run/model"]
new_model = "replace"
"""


def test_scores_of_a_run(tmp_path: Path) -> None:
    path = write_run_file(tmp_path)
    (tmp_path / "crawl").mkdir()
    write_reviews(tmp_path / "crawl" / "a.jsonl", rows=120, classes=3, first=1000)
    path.write_text(path.read_text().replace("folds = 3", "folds = 2") + TABLE)
    run = load_run_file(path)
    page = run_steps.run_all(run)
    assert page.name == "report.html"
    assert run.scores == tmp_path / "run" / "scores"
    found, kept = read_scores(run.scores), read_kept(run.scores)
    assert found is not None
    assert kept is not None
    assert [model.name for model in found.manifest.models] == ["run", "again"]
    assert found.manifest.rows == 120
    assert kept.rows >= 12
    write_reviews(tmp_path / "crawl" / "b.jsonl", rows=60, classes=3, first=5000)
    run_steps.run_score(run)
    more = read_scores(run.scores)
    assert more is not None
    assert more.manifest.rows == 180
    assert more.parts[0] == found.parts[0]
    assert (run.scores / "scores.html").exists()
    store = {"inputs": (str(run.store),), "columns": (), "keep_as": "ids", "where": {"split": "test"}}
    assert run.score is not None
    with raises_code("unsupported-combination", "where"):  # the documents of a store were chosen by the ingest
        run_steps.run_score(run.model_copy(update={"score": run.score.model_copy(update=store)}))


def test_the_deployed_model_of_nightly_runs(tmp_path: Path) -> None:
    prepare(tmp_path)
    path = tmp_path / "places.toml"
    path.write_text(path.read_text() + '\n[score]\ninputs = ["crawl.jsonl"]\nlabelled = true\nnew_model = "replace"\n')
    write_reviews(tmp_path / "crawl.jsonl", rows=60, classes=3, first=1000)
    run = load_run_file(path)
    folders = []
    for increment in (1, 2):
        arrive(tmp_path, increment)
        run_nightly(run)
        run_steps.run_score(run)
        found = read_scores(run.scores)
        assert found is not None
        assert found.manifest.rows == 60
        (model,) = found.manifest.models
        assert model.folder == str(find_model(run.out))
        folders.append(model.folder)
    assert folders[0] != folders[1]


def test_a_run_file_without_the_table(tmp_path: Path) -> None:
    assert run_steps.run_score(load_run_file(write_run_file(tmp_path))) is None


@pytest.mark.parametrize("line", ['keep_top = "0%"', "keep_above = 0.5\nkeep_top = '5%'", "keep = 3"])
def test_mistakes_name_the_key(tmp_path: Path, line: str) -> None:
    path = write_run_file(tmp_path)
    path.write_text(path.read_text() + '\n[score]\ninputs = ["a"]\n' + line + "\n")
    with pytest.raises(InputError, match=r"score[.:] ?keep"):
        load_run_file(path)
