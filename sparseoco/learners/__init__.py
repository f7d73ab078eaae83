"""The learners: one short file a family, found by name in `ALGORITHMS`.

A new learner is one file, one line here, and one oracle in the tests.
"""

from sparseoco.errors import InputError
from sparseoco.learners.cl_fobos import CL_FOBOS
from sparseoco.learners.definition import Algorithm
from sparseoco.learners.fobos import FOBOS
from sparseoco.learners.rda import RDA
from sparseoco.learners.stda import STDA

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (FOBOS, CL_FOBOS, RDA, STDA)}


def find_algorithm(name: str) -> Algorithm:
    """The learner of that name; `InputError` names the ones there are."""
    try:
        return ALGORITHMS[name]
    except (KeyError, TypeError):
        raise InputError(f"algorithm={name!r} is not known; choose one of {', '.join(ALGORITHMS)}.") from None
