"""The learners by name, known before any of them is imported.

A learner is found where a module of this package has ``NAME = Algorithm(name=…, …)`` at its top level: adding one is
adding that file. Names and drivers are read from the sources, because importing a learner imports numba; the module
itself is imported when its learner is asked for.
"""

import ast
from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparseoco.core.errors import InputError

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm

ONLINE_DRIVERS = ("stream", "dense")
LOSS_NAMES = ("logistic", "hinge", "squared_hinge", "squared", "softmax", "multiclass_hinge")
PORTFOLIO_LOSS_NAMES = ("return", "log_return")
PENALTY_NAMES = ("l1", "l2", "elastic_net", "group", "box")

ORDER = (
    "subgradient",
    "fobos",
    "sg-l1",
    "l-fobos",
    "cl-fobos",
    "cumulative-l1",
    "sgft",
    "sgft-cumulative",
    "rda",
    "stda",
    "adagrad",
    "ftrl-proximal",
    "ao-ftrl",
    "ao-gd",
    "cao-ftrl",
    "caos-ftrl",
    "caos-erm",
    "cao-rcd",
    "ogd",
    "ons",
    "ogdeg",
    "onseg",
    "ao-eg",
)
"""Related learners stand together in help and tables; those not named here follow, by name."""


class Source(NamedTuple):
    """Where a learner is defined, and what runs it (`Algorithm.driver`)."""

    module: str
    variable: str
    driver: str


@cache
def sources() -> dict[str, Source]:
    """The learners of this package by name, in the order of help and tables. Imports none of them."""
    found = {}
    for path in Path(__file__).parent.glob("*.py"):
        text = path.read_text()
        if " = Algorithm(" in text:
            for name, variable, driver in _definitions(ast.parse(text)):
                found[name] = Source(f"{__package__}.{path.stem}", variable, driver)
    places = {name: place for place, name in enumerate(ORDER)}
    return {name: found[name] for name in sorted(found, key=lambda name: (places.get(name, len(ORDER)), name))}


def _definitions(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(name, variable, driver) of every ``variable = Algorithm(name=…, …)`` at the top level."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(variable)], ast.Call(ast.Name("Algorithm"), keywords=keywords)):
                given = {word.arg: word.value.value for word in keywords if isinstance(word.value, ast.Constant)}
                yield str(given["name"]), variable, str(given.get("driver", "stream"))


class Algorithms(MutableMapping[str, "Algorithm"]):
    """The learners by name, each imported when it is first read; a program may add its own."""

    def __init__(self) -> None:
        self._loaded: dict[str, Algorithm] = {}

    def __getitem__(self, name: str) -> "Algorithm":
        if name not in self._loaded:
            source = sources()[name]
            self._loaded[name] = getattr(import_module(source.module), source.variable)
        return self._loaded[name]

    def __setitem__(self, name: str, algorithm: "Algorithm") -> None:
        self._loaded[name] = algorithm

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sources() | self._loaded)

    def __contains__(self, name: object) -> bool:
        return name in sources() or name in self._loaded

    def __len__(self) -> int:
        return len(sources() | self._loaded)


ALGORITHMS = Algorithms()


def algorithm_names(*drivers: str) -> list[str]:
    """The names of the learners that these drivers run, or of all; nothing is imported."""
    own = {name: algorithm.driver for name, algorithm in ALGORITHMS._loaded.items()}
    known = {name: source.driver for name, source in sources().items()} | own
    return [name for name, driver in known.items() if not drivers or driver in drivers]


def streaming() -> list[str]:
    """The learners that take sparse rows in turn, once each, and touch the features of the row alone."""
    return algorithm_names("stream")


def dense_learners() -> list[str]:
    """The learners that take rows in turn, once each, and touch all features in every round."""
    return algorithm_names("dense")


def check_algorithm_name(name: Any, *, online: bool = False) -> str:
    """`name` if a learner has it; nothing is imported.

    Raises
    ------
    InputError
        For any other name; the message lists the ones there are, those alone that learn `online` if so asked.
    """
    if isinstance(name, str) and name in ALGORITHMS:
        return name
    known = algorithm_names(*(ONLINE_DRIVERS if online else ()))
    close = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]}? Choose one of" if close else "choose one of"
    raise InputError(f"algorithm={name!r} is not known; {hint} {', '.join(known)}.", code="unknown-algorithm")


def find_algorithm(name: str, *, online: bool = False) -> "Algorithm":
    """The learner of that name, imported now if it was not. Raises `InputError` as `check_algorithm_name`."""
    return ALGORITHMS[check_algorithm_name(name, online=online)]
