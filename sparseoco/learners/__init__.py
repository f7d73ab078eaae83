"""The learners: one short file per family, found by name. To add one, add its file here and an oracle in the tests.

A module of this package that has ``NAME = Algorithm(…)`` at its top level, an argument per line, defines a learner;
nothing else registers it. Names and drivers are read from the sources, because importing a learner imports numba; the
module itself is imported when its learner is first used.

A learner may also live outside: in a file that the user names, or in an installed package (`name_learner`).
"""

import hashlib
import re
import sys
from collections import Counter, UserDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from sparseoco.core.errors import InputError, error_text
from sparseoco.core.formatting import not_one_of
from sparseoco.learners.parameters import L1_RATIO, ONLINE_DRIVERS, RADIUS

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm

MODULES = (
    *("subgradient", "fobos", "sgft", "dual_averaging", "adagrad", "optimistic_ftrl", "cao_ftrl", "caos_erm"),
    *("optimistic_averaging", "cao_rcd", "ons", "exponentiated", "arow", "passive_aggressive", "scinol"),
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
        elif isinstance(found, OutsideSource):
            found = self.data[name] = found.load()
        return found


ALGORITHMS = Algorithms(_sources())


def algorithm_names(*drivers: str) -> list[str]:
    """Names of the package's learners with these drivers, by default of all; imports none of them."""
    own = [(name, learner) for name, learner in ALGORITHMS.data.items() if VERSION not in name]
    return [name for name, learner in own if not drivers or learner.driver in drivers]


def check_algorithm_name(name: Any, *, online: bool = False) -> str:
    """Return `name` if it is that of a learner, without importing it.

    Of learners outside the package it knows those that `name_learner` has named in this process, and installed ones.

    Raises
    ------
    InputError
        The name is unknown; the message lists the known ones, with `online` only those of online learners. Or it is
        that of a file which nobody named here, or of another version of an installed learner.
    """
    if isinstance(name, str) and (name in ALGORITHMS or (VERSION in name and _check_outside(name))):
        return name
    known = algorithm_names(*(ONLINE_DRIVERS if online else ()))
    raise InputError(f"algorithm={name!r} is not known; {not_one_of(name, known)}.", code="unknown-algorithm")


def check_outside(name: str) -> None:
    """Raises `InputError` if a file of ours names a learner outside the package that is not known here."""
    if VERSION in name:
        check_algorithm_name(name)


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


# ----------------------------------------------------------------------------------------------------------------------
# Learners outside the package.
#
# Within a process, in results and in models such a learner is called LABEL@DIGEST: the file and the variable, or the
# name of an entry point, and the first digits of the SHA-256 of the source. So whatever has the name of a learner in
# its digest, as cells and checkpoints do, has the version of its code; the place of the file is not part of it.
#
# A name is not enough to run code: what is read from a model, a store or a run is looked up among those that the user
# named (`name_learner`) and those that are installed. Workers are sent the path and the digest by the tasks.


ENTRY_POINTS = "sparseoco.learners"
VERSION = "@"
DIGITS = 16
_LOADING = RLock()
_IMPORTED: dict[str, str] = {}  # the digests of installed modules, which Python imports once


class OutsideSource(NamedTuple):
    """A learner outside the package: where it is, and the version of the code that is meant."""

    label: str
    variable: str
    sha256: str
    path: str = ""
    """The absolute path of its file; empty if it is installed."""
    module: str = ""
    """The module of an installed one."""

    @property
    def name(self) -> str:
        """Its name, with the version."""
        return f"{self.label}{VERSION}{self.sha256[:DIGITS]}"

    def load(self) -> "Algorithm":
        """The learner, by running its code. Raises `InputError` if there is none, or the code is another version."""
        from dataclasses import replace

        from sparseoco.learners.contract import Algorithm

        with _LOADING:
            found = getattr(self._imported() if self.module else self._executed(), self.variable, None)
        if found is None:
            message = f"{self._file} has no {self.variable}: name the variable of the learner, {self._file}:NAME."
            raise InputError(message, code="unknown-algorithm")
        if not isinstance(found, Algorithm) or not found.online:
            what = "a learner with driver stream or dense" if isinstance(found, Algorithm) else "an Algorithm"
            raise InputError(f"{self.variable} in {self._file} is not {what}.", code="not-a-learner")
        if found.name in algorithm_names():
            message = f"{self._file}: the learner {self.variable} has the name of a learner of sparseoco, {found.name}."
            raise InputError(f"{message} Give it another.", code="learner-name-taken")
        return replace(found, name=self.name)

    @property
    def _file(self) -> str:
        return self.path or self.module

    def _check(self, source: bytes) -> None:
        if hashlib.sha256(source).hexdigest() != self.sha256:
            raise InputError(
                f"{self._file} is not the version of the learner that was named, {self.name}: make the same file "
                "readable under this path on all machines, and start again if you changed it.",
                code="learner-changed",
            )

    def _imported(self) -> ModuleType:
        self._check(_module_source(self.module))
        if _IMPORTED.setdefault(self.module, self.sha256) != self.sha256:
            message = f"{self.module} has changed since this process imported it: start again, workers included."
            raise InputError(message, code="learner-changed")
        return _run(self._file, lambda: import_module(self.module))

    def _executed(self) -> ModuleType:
        """The module of the file. It has the name of its digest: kernels are cached by the names of functions."""
        source = _read(self.path)
        self._check(source)
        module = ModuleType(f"sparseoco_learner_{self.sha256}")
        known = sys.modules.setdefault(module.__name__, module)
        if known is module:
            try:  # the bytes that were checked, which a cache of Python need not have
                _run(self.path, lambda: exec(compile(source, self.path, "exec"), vars(module)))
            except InputError:
                del sys.modules[module.__name__]
                raise
        return known


def _run(file: str, code: Any) -> Any:
    try:
        return code()
    except Exception as error:
        message = f"{file} cannot be loaded: {type(error).__name__}: {error_text(error)}."
        raise InputError(message, code="not-a-learner") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{path}, the file of a learner, cannot be read: {error_text(error)}."
        raise InputError(message, code="missing-file") from error


def _module_source(module: str) -> bytes:
    from importlib.util import find_spec

    spec = _run(module, lambda: find_spec(module))
    return _read(spec.origin if spec is not None and spec.origin else module)


def installed_learners() -> dict[str, OutsideSource]:
    """The learners of installed packages, the entry points of the group ``sparseoco.learners``, by name.

    Raises `InputError` for one that has the name of another or of one of the package.
    """
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINTS)
    times = Counter([*algorithm_names(), *(point.name for point in points)])
    for point in points:
        if times[point.name] > 1 or VERSION in point.name or ":" in point.name:
            message = f"The entry point {point.name} = {point.value} in {ENTRY_POINTS} has the name of another learner"
            raise InputError(f"{message}, or one with : or {VERSION}.", code="learner-name-taken")
    return {
        point.name: OutsideSource(
            point.name, point.attr, hashlib.sha256(_module_source(point.module)).hexdigest(), module=point.module
        )
        for point in points
    }


def name_learner(given: Any, folder: Any = "") -> Any:
    """The name of a learner that the user gives, by which it is known from here on.

    Learners of the package have their own names. ``PATH.py:NAME`` is the variable NAME of a file of Python code, which
    is run now; other names are those of installed packages. What is no name of either is returned as it is.

    Parameters
    ----------
    given : str
        As the user wrote it, never what was read from a model, a store or a run.
    folder : path, optional
        What a relative path is relative to, by default the working directory.

    Raises
    ------
    InputError
        There is no such file or variable, it is not a learner, or has the name of another.
    """
    path, _, variable = str(given).rpartition(":")
    if not isinstance(given, str) or given in ALGORITHMS or VERSION in variable:
        return given
    if given.endswith(".py") or path.endswith(".py"):
        if "://" in str(folder) or "://" in path:
            raise InputError(f"{given}: the file of a learner must be a local file.", code="not-local")
        if not variable.isidentifier():
            raise InputError(f"{given} names no learner: write {path or given}:NAME.", code="unknown-algorithm")
        file = str((Path(folder) / Path(path).expanduser()).resolve())
        source = OutsideSource(f"{Path(file).name}:{variable}", variable, hashlib.sha256(_read(file)).hexdigest(), file)
    elif (found := installed_learners().get(given)) is None:
        return given
    else:
        source = found
    return add_source(source, load=True)


def add_source(source: OutsideSource | None, *, load: bool = False) -> str:
    """Know a learner that the user named, in this process or in the one that sent the task; its name."""
    if source is None:
        return ""
    found = source.load() if load else source
    ALGORITHMS.data.setdefault(source.name, found)
    _SOURCES[source.name] = source
    return source.name


_SOURCES: dict[str, OutsideSource] = {}


def learner_sources() -> list[OutsideSource]:
    """All that are known here: what a task needs that reads models of any learner."""
    return list(_SOURCES.values())


def learner_source(name: str) -> OutsideSource | None:
    """Where a learner outside the package is, None for others: what a task needs to know it."""
    return _SOURCES.get(name)


def _check_outside(name: str) -> bool:
    """Know an installed learner by its name with the version. Raises `InputError` for all others."""
    label = name.partition(VERSION)[0]
    if ":" in label and any(other.startswith(label + VERSION) for other in _SOURCES):
        message = f"{name} is another version of {label} than the file that you named: restore it, or train again."
        raise InputError(message, code="learner-changed")
    if ":" in label:
        raise InputError(
            f"The learner {name} is in a file, and no file is run unless you name it: sparseoco --learner "
            f"FOLDER/{label} COMMAND, or sparseoco.learners.name_learner in Python.",
            code="learner-not-named",
        )
    source = installed_learners().get(label)
    if source is None:
        raise InputError(f"The learner {name} is not installed: install its package.", code="learner-not-named")
    if source.name != name:
        message = f"{name} is another version of the installed learner {label}: install that one, or train again."
        raise InputError(message, code="learner-changed")
    return bool(add_source(source))
