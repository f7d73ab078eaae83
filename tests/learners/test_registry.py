"""Learners are found in their files, and their names are known without importing any."""

import subprocess
import sys

from sparseoco.learners import ALGORITHMS, algorithm_names, dense_learners, find_algorithm, streaming
from sparseoco.learners.registry import ORDER
from tests.support.errors import raises_code

LIGHT = """
import sys
from sparseoco.learners import algorithm_names, find_algorithm
names = algorithm_names("stream", "dense")
assert "fobos" in names and "caos-erm" not in names and "caos-erm" in algorithm_names()
try:
    find_algorithm("adam")
except ValueError as error:
    assert error.code == "unknown-algorithm", error.code
heavy = {"numba", "numpy", "scipy", "dask", "pandas"} & set(sys.modules)
assert not heavy, heavy
find_algorithm("fobos")
assert "sparseoco.learners.bandit" not in sys.modules
"""


def test_the_registry_parsed_from_sources_equals_the_imported_one() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert algorithm.name == name
        assert name in algorithm_names(algorithm.driver)
        assert (name in streaming() + dense_learners()) == algorithm.online
    assert len(ALGORITHMS) == len(algorithm_names())


def test_the_order_names_learners_that_exist() -> None:
    assert [name for name in ALGORITHMS if name in ORDER] == list(ORDER)


def test_names_are_known_without_importing_a_learner() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_an_unknown_name_lists_the_ones_there_are() -> None:
    with raises_code("unknown-algorithm", "adam", "caos-erm"):
        find_algorithm("adam")
    with raises_code("unknown-algorithm", "adam", "fobos") as caught:
        find_algorithm("adam", online=True)
    assert "caos-erm" not in str(caught.value)
    with raises_code("unknown-algorithm"):
        find_algorithm(["fobos"])  # type: ignore[arg-type]
