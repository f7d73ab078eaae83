"""The learners: one short file per family, found by name. To add one, add its file here and an oracle in the tests."""

from sparseoco.learners.registry import (
    ALGORITHMS,
    algorithm_names,
    check_algorithm_name,
    dense_learners,
    find_algorithm,
    learner_parameter_names,
    streaming,
    takes_intercept,
    without_defaults,
)

__all__ = [
    "ALGORITHMS",
    "algorithm_names",
    "check_algorithm_name",
    "dense_learners",
    "find_algorithm",
    "learner_parameter_names",
    "streaming",
    "takes_intercept",
    "without_defaults",
]
