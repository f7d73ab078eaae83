"""Experiments of the papers, run again: their data and parameters → tables, figures, what holds and what does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sparseoco.papers.caos import reproduce_caos
from sparseoco.papers.cl_fobos import reproduce_cl_fobos
from sparseoco.papers.onseg import reproduce_onseg
from sparseoco.papers.truncation import reproduce_sgft, reproduce_stda

__all__ = [
    "PAPERS",
    "Paper",
    "reproduce_caos",
    "reproduce_cl_fobos",
    "reproduce_onseg",
    "reproduce_sgft",
    "reproduce_stda",
]


class Paper(NamedTuple):
    """A paper: what its command is told to say of it, and the function that runs its experiments.

    ``run(data, out, progress=…)`` takes the options of the command that it has parameters for, and returns the page.
    """

    meaning: str
    run: Callable[..., Path]


PAPERS: Final = {
    "onseg": Paper("Liu et al. 2019, §4", reproduce_onseg),
    "stda": Paper("Oiwa et al. 2012, §V", reproduce_stda),
    "sgft": Paper("Oiwa et al. 2011, §5", reproduce_sgft),
    "cl-fobos": Paper("Togari and Yamashita 2016, §5", reproduce_cl_fobos),
    "caos": Paper("Mohri and Yang 2015, who print none: what they prove and say", reproduce_caos),
}
"""By the name of the paper's method."""
