"""The learners: one short file a family, found by name in `ALGORITHMS`.

A new learner is one file, one line here, and one oracle in the tests.
"""

from sparseoco.core.errors import InputError
from sparseoco.learners.adagrad import ADAGRAD
from sparseoco.learners.ao_eg import AO_EG
from sparseoco.learners.bandit import OGDEG, ONSEG
from sparseoco.learners.cao_ftrl import AO_FTRL, AO_GD, CAO_FTRL, FTRL_PROXIMAL
from sparseoco.learners.cao_rcd import CAO_RCD
from sparseoco.learners.caos_erm import CAOS_ERM
from sparseoco.learners.caos_ftrl import CAOS_FTRL
from sparseoco.learners.cl_fobos import CL_FOBOS
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.cumulative import CUMULATIVE_L1, SGFT_CUMULATIVE
from sparseoco.learners.fobos import FOBOS, SG_L1
from sparseoco.learners.l_fobos import L_FOBOS
from sparseoco.learners.ogd import OGD
from sparseoco.learners.ons import ONS
from sparseoco.learners.rda import RDA
from sparseoco.learners.sgft import SGFT
from sparseoco.learners.stda import STDA
from sparseoco.learners.subgradient import SUBGRADIENT

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        SUBGRADIENT,
        FOBOS,
        SG_L1,
        L_FOBOS,
        CL_FOBOS,
        CUMULATIVE_L1,
        SGFT,
        SGFT_CUMULATIVE,
        RDA,
        STDA,
        ADAGRAD,
        FTRL_PROXIMAL,
        AO_FTRL,
        AO_GD,
        CAO_FTRL,
        CAOS_FTRL,
        CAOS_ERM,
        CAO_RCD,
        OGD,
        ONS,
        OGDEG,
        ONSEG,
        AO_EG,
    )
}


def streaming() -> list[str]:
    """The learners that take sparse rows in turn, once each, and touch the features of the row alone."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.driver == "stream"]


def dense_learners() -> list[str]:
    """The learners that take rows in turn, once each, and touch all features in every round."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.driver == "dense"]


def find_algorithm(name: str, *, online: bool = False) -> Algorithm:
    """The learner of that name; `InputError` names the ones there are, those alone that are `online` if so asked."""
    try:
        return ALGORITHMS[name]
    except (KeyError, TypeError):
        there = [known for known, algorithm in ALGORITHMS.items() if algorithm.online or not online]
        raise InputError(f"algorithm={name!r} is not known; choose one of {', '.join(there)}.") from None
