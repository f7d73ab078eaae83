"""The learners by name, known before any of them is imported.

A module of this package that has ``NAME = Algorithm(name=…, …)`` at its top level defines a learner; nothing else
registers it. Names and drivers are read from the sources, because importing a learner imports numba; the module itself
is imported when its learner is first used.
"""

import ast
from collections.abc import Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.learners.parameters import L1_RATIO, ONLINE_DRIVERS, RADIUS

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm

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
    "optimistic-ftrl",
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
"""The order in help and tables, related learners together; learners not listed here follow, sorted by name."""

_PARSER = Lock()  # in Python 3.11 parsing in several threads can raise SystemError (recursion depth mismatch)


class Source(NamedTuple):
    """Where a learner is defined, and its `Algorithm.driver`."""

    module: str
    variable: str
    driver: str


@cache
def sources() -> dict[str, Source]:
    """The learners of this package by name, in the order of help and tables, without importing them."""
    found = {}
    for path in Path(__file__).parent.glob("*.py"):
        text = path.read_text()
        if " = Algorithm(" in text:
            with _PARSER:
                tree = ast.parse(text)
            for name, variable, driver in _definitions(tree):
                found[name] = Source(f"{__package__}.{path.stem}", variable, driver)
    rank = {name: i for i, name in enumerate(ORDER)}
    return {name: found[name] for name in sorted(found, key=lambda name: (rank.get(name, len(ORDER)), name))}


def _definitions(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(name, variable, driver) of every ``variable = Algorithm(name=…, …)`` at the top level."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(variable)], ast.Call(ast.Name("Algorithm"), keywords=keywords)):
                given = {word.arg: word.value.value for word in keywords if isinstance(word.value, ast.Constant)}
                yield str(given["name"]), variable, str(given.get("driver", "stream"))


class Algorithms(MutableMapping[str, "Algorithm"]):
    """The learners by name, each imported on first access; a program may add its own."""

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
    """Names of the learners with these drivers, by default of all; imports none of them."""
    own = {name: algorithm.driver for name, algorithm in ALGORITHMS._loaded.items()}
    known = {name: source.driver for name, source in sources().items()} | own
    return [name for name, driver in known.items() if not drivers or driver in drivers]


def streaming() -> list[str]:
    """Learners of a stream of sparse rows that update only the features of the row."""
    return algorithm_names("stream")


def dense_learners() -> list[str]:
    """Learners of a stream of rows that update all features in every round."""
    return algorithm_names("dense")


def check_algorithm_name(name: Any, *, online: bool = False) -> str:
    """Return `name` if it is that of a learner, without importing it.

    Raises
    ------
    InputError
        The name is unknown; the message lists the known ones, with `online` only those of online learners.
    """
    if isinstance(name, str) and name in ALGORITHMS:
        return name
    known = algorithm_names(*(ONLINE_DRIVERS if online else ()))
    close = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {close[0]}? Choose one of" if close else "choose one of"
    raise InputError(f"algorithm={name!r} is not known; {hint} {', '.join(known)}.", code="unknown-algorithm")


def find_algorithm(name: str, *, online: bool = False) -> "Algorithm":
    """The learner with this name. Raises `InputError` for an unknown one."""
    return ALGORITHMS[check_algorithm_name(name, online=online)]


def learner_parameter_names() -> set[str]:
    """The names of the parameters of all learners and penalties; imports all learners."""
    learners = (parameter for algorithm in ALGORITHMS.values() for parameter in algorithm.parameters)
    return {parameter.name for parameter in (*learners, L1_RATIO, RADIUS)}


def without_defaults(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a learner without those that no default search varies and that have their default.

    Examples
    --------
    >>> without_defaults("adagrad", {"eta": 0.3, "lam": 1e-05, "delta": 1e-06, "schedule": "constant"})
    {'eta': 0.3, 'lam': 1e-05}
    """
    own = ALGORITHMS[name].parameters if name in ALGORITHMS else ()  # a mixture is no learner
    left_out = {each.name for each in own if not each.grid and parameters.get(each.name) == each.default}
    return {key: value for key, value in parameters.items() if key not in left_out}


def takes_intercept(name: str, penalty: str) -> bool:
    """Whether the learner of this name can learn an intercept with the penalty. Raises `InputError`."""
    from sparseoco.learners.penalties import find_penalty  # loads numba

    return find_algorithm(name).takes_intercept(find_penalty(penalty))
