"""The learners: one short file a family, found by name. Adding one is adding its file, and an oracle in the tests."""

from sparseoco.learners.registry import (
    ALGORITHMS,
    algorithm_names,
    check_algorithm_name,
    dense_learners,
    find_algorithm,
    streaming,
)

__all__ = [
    "ALGORITHMS",
    "algorithm_names",
    "check_algorithm_name",
    "dense_learners",
    "find_algorithm",
    "streaming",
]
