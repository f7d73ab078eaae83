"""The example of a nightly run is a run file, and what its page says of it holds."""

from pathlib import Path

from sparseoco.learners import find_algorithm
from sparseoco.pipeline.run_file import load_run_file

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_example_is_a_run_file() -> None:
    run = load_run_file(DEPLOY / "nightly.toml")
    assert run.ingest.vocabulary == "extend"
    assert all(find_algorithm(name).driver == "stream" for name in run.search.algorithms)
    assert sum("change:" in line for line in (DEPLOY / "nightly.toml").read_text().splitlines()) == 3
