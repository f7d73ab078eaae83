"""The learners: one short file per family, found by name. To add one, add its file here and an oracle in the tests.

A module of this package that has ``NAME = Algorithm(…)`` at its top level, an argument per line, defines a learner;
nothing else registers it. Names and drivers are read from the sources, because importing a learner imports numba; the
module itself is imported when its learner is first used.
"""

import re
from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import not_one_of
from sparseoco.learners.parameters import L1_RATIO, ONLINE_DRIVERS, RADIUS

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm

MODULES = (
    *("subgradient", "fobos", "sgft", "dual_averaging", "adagrad", "optimistic_ftrl", "cao_ftrl", "caos_erm"),
    *("cao_rcd", "ons", "exponentiated", "arow", "passive_aggressive", "scinol"),
)
"""The order of learners in help and tables, related ones together; those of other modules follow."""

_DEFINITION = re.compile(r"^(\w+) = Algorithm\(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_ARGUMENT = re.compile(r'^    (name|driver)="(.+)",$', re.MULTILINE)


class Source(NamedTuple):
    """Where a learner is defined, and its `Algorithm.driver`."""

    module: str
    variable: str
    driver: str


def _sources() -> dict[str, Source]:
    """The learners of this package by name, in the order of help and tables."""
    found = {}
    texts = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.py")}
    rank = {module: i for i, module in enumerate(MODULES)}
    for module in sorted(texts, key=lambda name: (rank.get(name, len(MODULES)), name)):
        for variable, definition in _DEFINITION.findall(texts[module]):
            given = {"driver": "stream"} | dict(_ARGUMENT.findall(definition))
            found[given["name"]] = Source(f"{__package__}.{module}", variable, given["driver"])
    return found


class Algorithms(UserDict[str, Any]):
    """The learners by name, each imported on first access; a program may add its own."""

    def __getitem__(self, name: str) -> "Algorithm":
        found = self.data[name]
        if isinstance(found, Source):
            found = self.data[name] = getattr(import_module(found.module), found.variable)
        return found


ALGORITHMS = Algorithms(_sources())


def algorithm_names(*drivers: str) -> list[str]:
    """Names of the learners with these drivers, by default of all; imports none of them."""
    return [name for name, learner in ALGORITHMS.data.items() if not drivers or learner.driver in drivers]


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
    raise InputError(f"algorithm={name!r} is not known; {not_one_of(name, known)}.", code="unknown-algorithm")


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
    own = ALGORITHMS[name].parameters if name in ALGORITHMS else ()  # of a damaged model
    left_out = {each.name for each in own if not each.grid and parameters.get(each.name) == each.default}
    return {key: value for key, value in parameters.items() if key not in left_out}


def takes_intercept(name: str, penalty: str) -> bool:
    """Whether the learner of this name can learn an intercept with the penalty. Raises `InputError`."""
    from sparseoco.learners.penalties import find_penalty  # loads numba

    return find_algorithm(name).takes_intercept(find_penalty(penalty))
