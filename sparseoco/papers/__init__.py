"""The papers' experiments: their data and parameters → tables, figures, and which of their claims hold."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PAPERS", "Paper"]


class Paper(NamedTuple):
    """A paper whose experiments can be run again; they are imported when they are used."""

    meaning: str
    module: str
    function: str

    @property
    def run(self) -> Callable[..., Path]:
        """``run(data, out, progress=…)``: takes the options of the command that it has parameters for, gives a page."""
        run: Callable[..., Path] = getattr(import_module(f"{__name__}.{self.module}"), self.function)
        return run


PAPERS: Final = {
    "onseg": Paper("Liu et al. 2019, §4", "onseg", "reproduce_onseg"),
    "stda": Paper("Oiwa et al. 2012, §V", "truncation", "reproduce_stda"),
    "sgft": Paper("Oiwa et al. 2011, §5", "truncation", "reproduce_sgft"),
    "cl-fobos": Paper("Togari and Yamashita 2016, §5", "cl_fobos", "reproduce_cl_fobos"),
    "caos": Paper("Mohri and Yang 2015, theory only: its claims tested", "caos", "reproduce_caos"),
}
"""By the name of the paper's method."""
