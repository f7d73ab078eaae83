"""Experiments of the papers, repeated: their data and parameters → tables, figures, and which of their claims hold.

Importing this package loads none of the experiments.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PAPERS", "Paper"]


class Paper(NamedTuple):
    """A paper: its reference for the help, and the function that runs its experiments."""

    meaning: str
    package: str
    function: str

    def load(self) -> Callable[..., Path]:
        """The function ``run(data, out, …)``; its other parameters are options of the command.

        It returns the page.
        """
        function: Callable[..., Path] = getattr(import_module(f"{__name__}.{self.package}.experiment"), self.function)
        return function


PAPERS: Final = {
    "onseg": Paper("Liu et al. 2019, §4", "onseg", "reproduce_onseg"),
    "stda": Paper("Oiwa et al. 2012, §V", "truncation", "reproduce_stda"),
    "sgft": Paper("Oiwa et al. 2011, §5", "truncation", "reproduce_sgft"),
    "cl-fobos": Paper("Togari and Yamashita 2016, §5", "cl_fobos", "reproduce_cl_fobos"),
    "caos": Paper("Mohri and Yang 2015, theorems and remarks (they print no experiments)", "caos", "reproduce_caos"),
}
"""By the name of the paper's method."""
