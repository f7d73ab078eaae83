"""The methods of an experiment: TOML → searches, each with a name and the tables of a run file's `[search]`.

A method has the keys `algorithms` and `penalty` of `[search]`; all others belong to the experiment, so that all methods
are trained and evaluated alike.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.storage.toml_files import read_toml
from sparseoco.training.learner import Learner
from sparseoco.training.options.search import SearchOptions

AS_PRINTED = {
    "loss": "logistic",
    "epochs": 1,
    "intercept": False,
    "features": {"tf": "count", "idf": False, "norm": "none"},
}
"""What the papers do where a file does not say otherwise."""


class TunedMethod(NamedTuple):
    """A learner and its λ, as options of `sparseoco.pipeline.steps.search`."""

    name: str
    search: SearchOptions

    @property
    def algorithm(self) -> str:
        """The learner's name."""
        (algorithm,) = self.search.algorithms
        return algorithm

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """All parameters, λ by λ."""
        return [configuration.parameters for configuration in self.search.configurations()]

    @property
    def strengths(self) -> list[float]:
        """λ, ascending; 0 for a penalty that has none."""
        return [configuration.get("lam", 0.0) for configuration in self.configurations]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_File = TypeVar("_File", bound=_Table)


class _MethodTable(_Table):
    algorithms: dict[str, Any]
    penalty: str = "l1"


class _AddedFile(_Table):
    methods: dict[str, _MethodTable] = Field(min_length=1)


class Protocol(_AddedFile):
    """What an experiment runs, as in its file: the `[search]` of all methods, changes to it for more than two classes,
    and the methods' own tables by name."""

    search: dict[str, Any]
    more_classes: dict[str, Any] = {}

    def for_classes(self, n_classes: int) -> list[TunedMethod]:
        """The methods, for so many classes. Raises `InputError` naming the key."""
        return [self._method(name, n_classes) for name in self.methods]

    def adding(self, path: Path) -> "Protocol":
        """With the methods of a TOML file after its own.

        Raises `InputError` naming the file and the key: a file that cannot be read, an unknown key, a value out of
        range, a name that is taken, more than one learner per method, several values of anything but lam.
        """
        added = _read(path, _AddedFile).methods
        for name in added:
            if name in self.methods or not name.strip():
                problem = "the experiment has a method of that name" if name.strip() else "a method needs a name"
                raise InputError(f"{path}: methods.{name}: {problem}; choose another.", code="invalid-name")
        protocol = self.model_copy(update={"methods": self.methods | added})
        try:
            for name in added:
                for n_classes in (2, 3) if self.more_classes else (2,):
                    protocol._check(name, n_classes)
        except InputError as error:
            raise InputError(f"{path}: {error}", code=error.code) from None
        return protocol

    def _method(self, name: str, n_classes: int) -> TunedMethod:
        shared = AS_PRINTED | self.search | (self.more_classes if n_classes > 2 else {})
        options = validate(SearchOptions, shared | self.methods[name].model_dump(), under=("methods", name))
        return TunedMethod(name, options)

    def _check(self, name: str, n_classes: int) -> None:
        method = self._method(name, n_classes)
        key = f"methods.{name}.algorithms"
        if len(method.search.algorithms) != 1:
            raise InputError(
                f"{key}: a method has one learner; give each of these its own name.", code="unsupported-combination"
            )
        grid: Mapping[str, Any] = method.search.algorithms[method.algorithm]
        for parameter, values in grid.items():
            if parameter != "lam" and len(values) > 1:
                raise InputError(
                    f"{key}.{method.algorithm}.{parameter}: only λ is tuned; give each of these values its own method.",
                    code="unsupported-combination",
                )
        if any(left >= right for left, right in pairwise(method.strengths)):
            raise InputError(f"{key}.{method.algorithm}.lam: values must be ascending.", code="invalid-option")
        try:
            new_learner(method, 1, n_classes)
        except InputError as error:
            raise InputError(f"methods.{name}: {error}", code=error.code) from None


def new_learner(
    method: TunedMethod, n_features: int, n_classes: int, grid: list[dict[str, Any]] | None = None
) -> Learner:
    """A learner of a method's configurations, or of those given."""
    return Learner(
        method.algorithm,
        loss=method.search.loss,
        penalty=method.search.penalty,
        grid=method.configurations if grid is None else grid,
        n_features=n_features,
        n_classes=n_classes,
        dtype=method.search.dtype,
    )


def published_protocol(name: str) -> Protocol:
    """The experiment's own, by its name: stda or sgft."""
    return _read(Path(__file__).with_name(f"{name}.toml"), Protocol)


def _read(path: Path, kind: type[_File]) -> _File:
    return validate(kind, read_toml(path), str(path))
