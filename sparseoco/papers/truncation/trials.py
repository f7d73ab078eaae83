"""Trials of the experiments of Oiwa et al. 2011 and 2012."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from sparseoco import __version__
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.option_models import OptionModel, validate
from sparseoco.kernels.order import fold_rows, gather
from sparseoco.learners import find_algorithm
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, as_rows, column, extend, mean, mean_and_deviation, mean_rows, select
from sparseoco.papers.sources import Documents, DocumentSource
from sparseoco.papers.truncation.claims import RDA, STDA_INF, UNPRINTED, PrintedTable, error_at
from sparseoco.search.selection import choose
from sparseoco.storage.locations import read_toml
from sparseoco.training.learner import Learner
from sparseoco.training.options import SearchOptions, Select
from sparseoco.training.stream import ordered_rows, range_rows_of
from sparseoco.training.validation import check_size

# ----------------------------------------------------------------------------------------------------------------------
# The methods of an experiment: TOML → searches, each with a name and the tables of a run file's `[search]`.
#
# A method has the keys `algorithms` and `penalty` of `[search]`; all others belong to the experiment, so that all
# methods are trained and evaluated alike.


AS_PRINTED = {"intercept": False, "features": {"tf": "count", "idf": False, "norm": "none"}}
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


class _MethodTable(OptionModel):
    algorithms: dict[str, Any]
    penalty: str = "l1"


class _AddedFile(OptionModel):
    methods: dict[str, _MethodTable] = Field(min_length=1)


class Protocol(_AddedFile):
    """What an experiment runs, as in its file: the `[search]` of all methods, changes to it for more than two classes,
    and the methods' own tables by name."""

    search: dict[str, Any]
    more_classes: dict[str, Any] = Field({})

    def for_classes(self, n_classes: int) -> list[TunedMethod]:
        """The methods, for so many classes. Raises `InputError` naming the key."""
        return [self._method(name, n_classes) for name in self.methods]

    def adding(self, path: Path) -> "Protocol":
        """With the methods of a TOML file after its own.

        Raises `InputError` naming the file and the key: a file that cannot be read, an unknown key, a value out of
        range, a name that is taken, more than one learner per method, several values of anything but lam.
        """
        added = validate(_AddedFile, read_toml(path), str(path)).methods
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
    options = method.search.model_dump(include={"loss", "penalty", "dtype"})
    grid = method.configurations if grid is None else grid
    return Learner(method.algorithm, grid=grid, n_features=n_features, n_classes=n_classes, **options)


def published_protocol(name: str) -> Protocol:
    """The experiment's own, by its name: stda or sgft."""
    path = Path(__file__).with_name(f"{name}.toml")
    return validate(Protocol, read_toml(path), str(path))


# ----------------------------------------------------------------------------------------------------------------------
# The trainings of both papers: every method on ten times nine of ten folds, and without every two neighbours.
#
# A training is of all λ of a method together, and of methods of the same learner that differ in other values than
# static ones: columns are independent, so the bits are the same as if each had been trained alone.


TOGETHER: Final = 24
"""The most columns of several methods that are trained together: of 400,000 features they are 0.2 GB."""
SHARES: Final = np.linspace(0.0, 1.0, 101)
"""Of the features with a nonzero weight."""


class Trial(NamedTuple):
    """A method on a data set."""

    name: str
    documents: Documents
    method: TunedMethod
    counted: bool = False
    """Whether to count the occurrences of the features with nonzero weights."""

    @property
    def folds(self) -> int:
        """Their number."""
        return self.method.search.folds

    @property
    def weights(self) -> int:
        """Their number per configuration."""
        return len(self.documents.terms) * self._outputs

    @property
    def columns(self) -> int:
        """Those of the learner: one per λ and class, one for two classes."""
        return len(self.method.strengths) * self._outputs

    @property
    def _outputs(self) -> int:
        classes = len(self.documents.classes)
        return 1 if classes == 2 else classes

    @property
    def loop(self) -> tuple[Any, ...]:
        """What trials that are trained together have in common: the documents, all of the search but values of
        parameters that are not static."""
        shared = self.method.search.model_dump_json(exclude={"algorithms"})
        static = find_algorithm(self.method.algorithm).static_values(self.method.configurations[0])
        return self.documents.digest, shared, self.method.algorithm, static

    def key(self, held: Sequence[int]) -> dict[str, Any]:
        """Everything a training depends on."""
        return {
            "documents": self.documents.digest,
            "search": self.method.search.model_dump(mode="json"),
            "held": list(held),
            "counted": self.counted,
            "sparseoco": __version__,
        }

    def fold_rows(self, fold: int) -> NDArray[np.int64]:
        """The rows of a fold, in order."""
        rows: NDArray[np.int64] = fold_rows(self.method.search.seed, 0, len(self.documents.labels), fold, self.folds)
        return rows

    def learned(self, held: Sequence[int]) -> NDArray[np.bool_]:
        """(n,) whether a row is in the training set, if these folds are held out."""
        learned = np.ones(len(self.documents.labels), bool)
        for fold in held:
            learned[self.fold_rows(fold)] = False
        return learned

    def occurrences(self, held: Sequence[int]) -> NDArray[np.int64]:
        """(features,) sums of the counts in the training set, if these folds are held out."""
        counts: NDArray[np.float64] = self.documents.rows.T @ self.learned(held).astype(np.float64)
        return counts.astype(np.int64)


def check_trial(trial: Trial) -> None:
    """Raise `InputError` if a fold has no documents, for they are drawn at random, or the learner's state is too large
    for so many features."""
    if any(len(trial.fold_rows(fold)) == 0 for fold in range(trial.folds)):
        size = len(trial.documents.labels)
        raise InputError(f"{trial.name} has {size} documents: too few for {trial.folds} folds.", code="too-small")
    check_size(trial.method.algorithm, trial.documents.rows.shape[1])


def held_out_folds(folds: int) -> list[tuple[int, ...]]:
    """The folds that each training holds out: every one, and every two neighbours."""
    return [(fold,) for fold in range(folds)] + [(fold, (fold + 1) % folds) for fold in range(folds)]


def groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials in their order, those together that can share a compiled loop, up to `TOGETHER` columns."""
    found: dict[tuple[Any, ...], list[list[Trial]]] = {}
    for trial in trials:
        own = found.setdefault(trial.loop, [[]])
        if own[-1] and sum(other.columns for other in own[-1]) + trial.columns > TOGETHER:
            own.append([])
        own[-1].append(trial)
    return [group for own in found.values() for group in own]


def group_cells(group: Sequence[Trial]) -> list[Cell]:
    """The trainings of a group, in the order of `held_out_folds`; each gives a result per trial."""
    return [
        Cell({"trials": [trial.key(held) for trial in group]}, partial(_run, group, held))
        for held in held_out_folds(group[0].folds)
    ]


def learn(trial: Trial, grid: list[dict[str, Any]], held: Sequence[int]) -> Learner:
    """Train configurations of the method on all folds but these; with one held out, on the rows and in the order of
    the search."""
    rows, labels = trial.documents.rows, trial.documents.labels
    search = trial.method.search
    learner = new_learner(trial.method, rows.shape[1], len(trial.documents.classes), grid)
    learned = trial.learned(held)
    range_rows = range_rows_of(search.shuffle, len(labels), len(rows.indices))
    for epoch in range(1, search.epochs + 1):
        order = ordered_rows(search.seed, epoch, range_rows, len(labels), 0, len(labels), -1, search.folds)
        learner.learn_rows(*gather(order[learned[order]], rows.indptr, rows.indices, rows.data, labels))
    return learner


def _run(group: Sequence[Trial], held: tuple[int, ...]) -> list[dict[str, Any]]:
    """For each trial, per λ: errors on each held-out fold with its number of rows, and nonzero weights.

    With one fold held out also the largest norm r of a coordinate, of learners that have it, and, if asked, the
    occurrences in the training set of the features with a nonzero weight, at `SHARES` of them from the rarest.
    """
    begun = thread_time()
    first = group[0]
    learner = learn(first, [values for trial in group for values in trial.method.configurations], held)
    rows, labels = first.documents.rows, first.documents.labels
    folds = [first.fold_rows(fold) for fold in held]
    errors = [learner.evaluate(*gather(own, rows.indptr, rows.indices, rows.data, labels))[1] for own in folds]
    nonzeros, diverged = learner.nonzeros(), learner.diverged
    results: list[dict[str, Any]] = []
    start = 0
    for trial in group:
        numbers = range(start, start + len(trial.method.strengths))
        start = numbers.stop
        part = slice(numbers.start, numbers.stop)
        results.append(
            {
                "errors": [wrong[part].tolist() for wrong in errors],
                "rows": [len(own) for own in folds],
                "nonzeros": nonzeros[part].tolist(),
                "diverged": diverged[part].tolist(),
                "norms": _norms(learner, numbers) if len(held) == 1 else [],
                "occurrences": _occurrences(trial, learner, numbers, held) if trial.counted and len(held) == 1 else [],
            }
        )
    seconds = (thread_time() - begun) / start
    return [result | {"seconds": seconds * len(result["nonzeros"])} for result in results]


def _norms(learner: Learner, numbers: Sequence[int]) -> list[float]:
    """The largest norm r of any coordinate, per configuration; empty for learners without it."""
    states = [learner.slots_of(number) for number in numbers]
    return [float(state["r"].max()) for state in states if "r" in state]


def _occurrences(trial: Trial, learner: Learner, numbers: Sequence[int], held: Sequence[int]) -> list[list[int]]:
    """Per configuration of two classes, numbers of occurrences; none if all weights are 0."""
    counts = trial.occurrences(held)
    order = np.argsort(counts, kind="stable")
    counts, weights = counts[order], learner.weights()[:, numbers]
    selected = [counts[own] for own in (weights != 0)[order].T]
    return [own[np.round(SHARES * (len(own) - 1)).astype(np.int64)].tolist() if len(own) else [] for own in selected]


# ----------------------------------------------------------------------------------------------------------------------
# Table V and Figure 2 of 2012: the features that STDA p = ∞ and RDA select, with counts.
#
# In every fold, STDA has the λ that was chosen for it, and RDA the λ that selects the most similar number of features:
# which features are selected depends mostly on their number.


PAIR: Final = (STDA_INF, RDA)
HELD_OUT: Final = 0
"""The fold whose training set Table V is of."""
SAMPLES: Final = 10


def features_cell(trials: tuple[Trial, Trial], numbers: tuple[int, int]) -> Cell:
    """The features of the largest weights that only one method selects, with the λ of these numbers; two classes."""

    def run() -> Any:
        documents, counts = trials[0].documents, trials[0].occurrences((HELD_OUT,))
        weights = [
            learn(trial, [trial.method.configurations[k]], (HELD_OUT,)).weights()[:, 0]
            for trial, k in zip(trials, numbers, strict=True)
        ]
        rows = []
        for own, other, trial in zip(weights, reversed(weights), trials, strict=True):
            alone = np.flatnonzero((own != 0) & (other == 0))
            largest = alone[np.lexsort((alone, -np.abs(own[alone])))][:SAMPLES]
            columns = {
                "rank": range(1, len(largest) + 1),
                "feature": [documents.terms[feature].replace("_", " ") for feature in largest.tolist()],
                "count": counts[largest],
                "weight": own[largest],
            }
            rows += [{"set": trial.name, "method": trial.method.name} | row for row in as_rows(columns)]
        return rows

    pair = [{"set": trial.name, "method": trial.method.name} | trial.key((HELD_OUT,)) for trial in trials]
    return Cell({"features": list(numbers), "pair": pair}, run)


# ----------------------------------------------------------------------------------------------------------------------
# The protocols of both papers: ten folds, 20 passes, evaluated on the held-out fold, with λ chosen by one of `RULES`.
#
# 2011 chooses one λ "to achieve the highest precision rate" of the ten-fold cross-validation: that of the least mean
# error over the ten folds, which are also those it reports. 2012 tunes λ within the nine folds of each training set and
# does not say how. Here, for fold f, λ is the one with the best results on folds f − 1 and f + 1, each predicted by
# weights trained without it and without f; then all λ are trained on all folds but f. That is 20 trainings per method
# and data set, each of all λ together: ten hold out one fold, as a search of the method does, and ten hold out two
# neighbours, each of which tunes for both. Within the nine, two rules: the least error, and the sparsest within one
# standard error of the least, for the "highly predictable sparse weight vector" of 2012.


TEN_FOLD: Final = "least error over the ten folds"
LEAST: Final = "least error within nine folds"
SPARSEST: Final = "sparsest within one standard error within nine folds"
RULES: Final = (TEN_FOLD, LEAST, SPARSEST)
_WITHIN: Final[dict[str, Select]] = {LEAST: "best", SPARSEST: "one-standard-error"}

_Tuning = Sequence[tuple[Mapping[str, Any], int]]
"""Results of trainings, each with the index of the fold used among those it holds out."""


def result_rows(trial: Trial, parts: Sequence[Mapping[str, Any]], rule: str) -> list[Row]:
    """A row per fold: the λ of the rule, its error and sparsity; `parts` are the results of the cells."""
    by_held = dict(zip(held_out_folds(trial.folds), parts, strict=True))
    rows = []
    for fold, k in enumerate(_chosen(trial, by_held, rule)):
        own = by_held[(fold,)]
        errors, n_rows = own["errors"][0][k], own["rows"][0]
        row = {"fold": fold, "lam": trial.method.strengths[k], "rows": n_rows, "errors": errors}
        rows.append(row | {"error": errors / n_rows, "sparsity": 1 - own["nonzeros"][k] / trial.weights})
    return rows


def path_rows(trial: Trial, parts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row per fold and λ: the error on this fold, which is held out, sparsity, and the largest norm in the state."""
    return [
        {
            "fold": fold,
            "lam": lam,
            "error": part["errors"][0][k] / part["rows"][0],
            "sparsity": 1 - part["nonzeros"][k] / trial.weights,
            "norm": part["norms"][k] if part["norms"] else None,
        }
        for fold, part in enumerate(parts[: trial.folds])
        for k, lam in enumerate(trial.method.strengths)
    ]


def _chosen(trial: Trial, by_held: Mapping[tuple[int, ...], Mapping[str, Any]], rule: str) -> list[int]:
    """The number of the λ that a rule chooses for each fold."""
    folds = range(trial.folds)
    if rule == TEN_FOLD:
        rows = [row for fold in folds for row in _search_rows(trial, [(by_held[(fold,)], 0)], fold)]
        return [_choose(trial, rows, "best")] * len(folds)
    chosen = []
    for fold in folds:
        before, after = (fold - 1) % len(folds), (fold + 1) % len(folds)
        neighbours = [(by_held[before, fold], 0), (by_held[fold, after], 1)]
        chosen.append(_choose(trial, _search_rows(trial, neighbours), _WITHIN[rule]))
    return chosen


def _choose(trial: Trial, rows: Sequence[Row], selection: Select) -> int:
    """The number of the λ that a search would choose by these rows."""
    try:
        return choose(rows, selection).configuration
    except SparseocoError as error:
        raise SparseocoError(f"{trial.method.name} on {trial.name}: {error}", code=error.code) from error


def _search_rows(trial: Trial, tuning: _Tuning, number: int = 0) -> list[Row]:
    """Rows like a search's: each λ on the rows of all these folds, as one fold of this number."""
    rows = []
    total = sum(part["rows"][fold] for part, fold in tuning)
    for configuration in trial.method.search.configurations():
        k = configuration.number
        wrong = sum(part["errors"][fold][k] for part, fold in tuning)
        status = "diverged" if any(part["diverged"][k] for part, _ in tuning) else "ok"
        rows.append(
            {
                "configuration": k,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                "epoch": trial.method.search.epochs,
                "fold": number,
                "status": status,
                "reason": "" if status == "ok" else status,
                "held_out_rows": total,
                "held_out_error": wrong / total,
                "nonzeros": sum(part["nonzeros"][k] for part, _ in tuning) / len(tuning),
            }
        )
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# A paper's experiments on a set of documents.


class Paper(NamedTuple):
    """What a paper compares: its name, also that of its methods' file, its data sets, their printed documents and
    features, tables, its own rule for λ, and the curves of its drawings."""

    name: str
    sources: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int]]
    printed: tuple[PrintedTable, ...]
    schemas: dict[str, pa.Schema]
    rule: str
    curves: Callable[[], list[Row]]


def run_data_set(
    run: Run, paper: Paper, protocol: Protocol, published: Protocol, source: DocumentSource, documents: Documents
) -> Records:
    """All rows of a data set."""
    counted = PAIR if "features" in paper.schemas else ()
    large = source.all_words or len(documents.classes) > 2
    trials = [
        Trial(source.name, documents, method, method.name in counted)
        for method in protocol.for_classes(len(documents.classes))
        if not (large and method.name in UNPRINTED)
    ]
    for trial in trials:
        check_trial(trial)
    parts = _train(run, trials, published, source.title)
    records: Records = {"sets": [_describe(paper.sizes, source, documents)]}
    for trial in trials:
        own = parts[trial.method.name]
        key = {"set": source.name, "method": trial.method.name}
        path = path_rows(trial, own)
        extend(records, {"paths": [key | row for row in path]})
        means = mean_rows(path, ("lam",), ("error", "sparsity"))
        for rule in RULES:
            ruled, rows = key | {"rule": rule}, result_rows(trial, own, rule)
            results = _with_printed(paper.printed, source, ruled, rows, means)
            extend(records, {"folds": [ruled | row for row in rows], "results": results})
        seconds = sum(part["seconds"] for part in own)
        timing = {"trainings": len(own), "columns": len(trial.method.strengths), "seconds": seconds}
        extend(records, {"timings": [key | timing]})
    if counted:
        extend(records, _features(run, trials, parts, records["folds"]))
    return records


def _train(run: Run, trials: Sequence[Trial], published: Protocol, title: str) -> dict[str, list[dict[str, Any]]]:
    """The results of all trainings, in the order of `held_out_folds`, by method.

    Methods of the paper are not trained together with added ones, so that adding one leaves their cells as they are.
    """
    ours = [trial for trial in trials if trial.method.name in published.methods]
    added = [trial for trial in trials if trial.method.name not in published.methods]
    together = dict(enumerate([*groups(ours), *groups(added)]))
    results = run.cells_by(title, {number: group_cells(group) for number, group in together.items()})
    return {
        trial.method.name: [parts[k] for parts in results[number]]
        for number, group in together.items()
        for k, trial in enumerate(group)
    }


def _features(
    run: Run, trials: Sequence[Trial], parts: dict[str, list[dict[str, Any]]], folds: Sequence[Row]
) -> Records:
    """Table V of one fold, and Figure 2 of all."""
    by_name = {trial.method.name: trial for trial in trials}
    ours, theirs = (by_name[name] for name in PAIR)
    records: Records = {"frequencies": []}
    for row in select(folds, method=ours.method.name, rule=SPARSEST):
        fold, chosen = row["fold"], ours.method.strengths.index(row["lam"])
        own = [parts[name][fold] for name in PAIR]
        selected = [np.array(part["nonzeros"]) for part in own]
        similar = int(np.argmin(np.abs(np.log((selected[1] + 1) / (selected[0][chosen] + 1)))))
        numbers = chosen, similar
        for method, part, k in zip(PAIR, own, numbers, strict=True):
            key = {"set": ours.name, "method": method, "fold": fold, "selected": part["nonzeros"][k]}
            shown = zip(SHARES.tolist(), part["occurrences"][k], strict=False)
            records["frequencies"] += [key | {"share": share, "count": count} for share, count in shown]
        if fold == HELD_OUT:
            (records["features"],) = run.cells("features", [features_cell((ours, theirs), numbers)])
    return records


def _describe(sizes: Mapping[str, tuple[int, int]], source: DocumentSource, documents: Documents) -> Row:
    n_documents, n_features = sizes[source.paper]
    return {
        "set": source.name,
        "title": source.title,
        "corpus": source.corpus,
        "paper_set": source.paper,
        "documents": documents.rows.shape[0],
        "features": documents.rows.shape[1],
        "classes": len(documents.classes),
        "nonzeros": documents.rows.nnz,
        "paper_documents": n_documents,
        "paper_features": n_features,
        "differs": source.differs,
    }


def _with_printed(
    tables: Sequence[PrintedTable], source: DocumentSource, key: Row, rows: Sequence[Row], path: Sequence[Row]
) -> list[Row]:
    """A row per printed table that has the method, with its result if it has the set; one if no table has it."""
    average, deviation = mean_and_deviation(column(rows, "error"))
    ours = {"error": average, "deviation": deviation, "sparsity": mean(column(rows, "sparsity"))}
    results: list[Row] = []
    for table in tables:
        if key["method"] in table.methods:
            row = key | ours | {"table": table.name}
            if source.paper in table.results:
                result = table.results[source.paper][key["method"]]
                row |= {f"paper_{name}": share for name, share in result._asdict().items()}
                row["error_there"] = error_at(path, result.sparsity)
            results.append(_PRINTED_NOTHING | row)
    return results or [_PRINTED_NOTHING | key | ours | {"table": ""}]


_PRINTED_NOTHING: Final = dict.fromkeys(("paper_error", "paper_deviation", "paper_sparsity", "error_there"))
