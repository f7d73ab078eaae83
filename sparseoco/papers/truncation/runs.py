"""Runs of the experiments of Oiwa et al. 2011 and 2012: printed results, trainings, λ by a rule, selected features."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.kernels.order import fold_rows, gather
from sparseoco.papers.experiment import Cell, Run
from sparseoco.papers.rows import Records, Row, as_rows, column, extend, mean, mean_rows, select
from sparseoco.papers.sources import Documents, DocumentSource
from sparseoco.search.selection import choose
from sparseoco.storage.locations import read_toml
from sparseoco.training.decisions import predicted_labels
from sparseoco.training.learner import Learner
from sparseoco.training.options import SearchOptions, Select
from sparseoco.training.stream import Order, range_rows_of

# ----------------------------------------------------------------------------------------------------------------------
# The methods and printed results of Oiwa, Matsushima and Nakagawa, 2012 (STDA) and 2011 (SGFT).


class PrintedResult(NamedTuple):
    """A cell of a table: error and sparsity, and the deviation of the error if it is printed, as shares."""

    error: float
    sparsity: float
    deviation: float | None = None


class PrintedTable(NamedTuple):
    """A table of a paper: by set of documents, then by method."""

    name: str
    title: str
    methods: tuple[str, ...]
    results: Mapping[str, Mapping[str, PrintedResult]]


STDA_INF, RDA, SGFT_2, SG_L1 = "STDA p = ∞", "RDA", "SGFT p = 2", "SG-L1"
SG_L1_CUMULATIVE: Final = "SG-L1, cumulative"
SGFT_CUMULATIVE: Final = "SGFT p = 2, cumulative"
OTHER_GAMMAS: Final = ("STDA p = ∞, γ = 0.1", "STDA p = ∞, γ = 10")
NOT_PRINTED: Final = {
    "Not printed: the cumulative forms of §4, on two classes, not of all words": (SGFT_CUMULATIVE, SG_L1_CUMULATIVE),
    "Not printed: β_t = γ√t with other γ, on all sets but those of all words": OTHER_GAMMAS,
}
"""Methods that the papers mention and that their tables do not have: the forms that §4 of 2011 derives, and those of
§V-A of 2012 with β_t ∝ √t."""
UNPRINTED: Final = frozenset(method for methods in NOT_PRINTED.values() for method in methods)
"""They run neither on all words of reviews nor on more than two classes, which take most of the time."""


def _result(cell: Sequence[float]) -> PrintedResult:
    """From per cent: (error, sparsity), or, as in 2011, (precision, deviation, sparsity)."""
    if len(cell) == 2:
        return PrintedResult(*(value / 100 for value in cell))
    precision, deviation, sparsity = cell
    return PrintedResult(round(100 - precision, 2) / 100, sparsity / 100, deviation / 100)


def _table(table: dict[str, Any]) -> PrintedTable:
    methods = tuple(table["methods"])
    results = {
        data_set: dict(zip(methods, map(_result, cells), strict=True)) for data_set, cells in table["rows"].items()
    }
    return PrintedTable(table["name"], table["title"], methods, results)


_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
STDA_TABLES: Final = tuple(map(_table, _PRINTED["stda"]))
SGFT_TABLES: Final = tuple(map(_table, _PRINTED["sgft"]))
SAMPLES: Final[dict[str, list[tuple[str, int]]]] = _PRINTED["samples"]
"""Table V of 2012, by method: features and their occurrences."""


# ----------------------------------------------------------------------------------------------------------------------
# The methods of an experiment: TOML → searches, each with a name and the tables of a run file's `[search]`.


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


class Protocol(NamedTuple):
    """What an experiment runs, as in its file: the `[search]` of all methods, changes to it for more than two classes,
    and the methods' own tables by name."""

    search: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    more_classes: Mapping[str, Any] = {}

    def for_classes(self, n_classes: int) -> list[TunedMethod]:
        """The methods, for so many classes."""
        shared = AS_PRINTED | self.search | dict(self.more_classes if n_classes > 2 else {})
        return [TunedMethod(name, SearchOptions(**shared | table)) for name, table in self.methods.items()]


def published_protocol(name: str, passes: int | None = None) -> Protocol:
    """The experiment's own, by its name, stda or sgft; with another number of passes, if given."""
    protocol = Protocol(**read_toml(Path(__file__).with_name(f"{name}.toml")))
    return protocol if passes is None else protocol._replace(search=protocol.search | {"epochs": passes})


# ----------------------------------------------------------------------------------------------------------------------
# The trainings of both papers: every method on ten times nine of ten folds, and nine times on six.
#
# A training is of all λ of a method together.


ALONE: Final[tuple[tuple[int, ...], ...]] = tuple((fold,) for fold in range(10))
TOGETHER: Final[tuple[tuple[int, ...], ...]] = (
    *((0, 1, 2, 3), (0, 2, 6, 9), (0, 4, 6, 7), (0, 5, 6, 8), (1, 3, 6, 9), (1, 4, 8, 9)),
    *((1, 5, 7, 9), (2, 3, 4, 5), (2, 3, 7, 8)),
)
"""Nine times four of ten folds, the fewest in which every two are together: the weights of a training without them
predict each of the four to tune the λ of the three others."""
TRAININGS: Final = ALONE + TOGETHER
"""The folds that each training holds out."""
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
        """Their number per configuration: a column per class, one for two classes."""
        classes = len(self.documents.classes)
        return len(self.documents.terms) * (1 if classes == 2 else classes)

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
        return np.asarray(fold_rows(self.method.search.seed, 0, len(self.documents.labels), fold, self.folds))

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


def training_cells(trial: Trial) -> list[Cell]:
    """The trainings, in the order of `TRAININGS`."""
    return [Cell(trial.key(held), partial(_run, trial, held)) for held in TRAININGS]


def learn(trial: Trial, grid: list[dict[str, Any]], held: Sequence[int]) -> Learner:
    """Train configurations of the method on all folds but these; with one held out, on the rows and in the order of
    the search."""
    (rows, labels, classes, *_), search = trial.documents, trial.method.search
    options = search.model_dump(include={"loss", "penalty", "dtype"})
    learner = Learner(trial.method.algorithm, grid=grid, n_features=rows.shape[1], n_classes=len(classes), **options)
    learned = trial.learned(held)
    range_rows = range_rows_of(search.shuffle, len(labels), len(rows.indices))
    for epoch in range(1, search.epochs + 1):
        order = Order(search.seed, range_rows).rows(epoch, len(labels), 0, len(labels))
        learner.learn_rows(*gather(order[learned[order]], rows.indptr, rows.indices, rows.data, labels))
    return learner


def _run(trial: Trial, held: tuple[int, ...]) -> dict[str, Any]:
    """Per λ: errors on each held-out fold with its number of rows, and nonzero weights.

    With one fold held out also the documents that are predicted wrongly, the largest norm r of a coordinate, of
    learners that have it, and, if asked, the occurrences in the training set of the features with a nonzero weight, at
    `SHARES` of them from the rarest.
    """
    begun = thread_time()
    learner = learn(trial, trial.method.configurations, held)
    rows, labels = trial.documents.rows, trial.documents.labels
    folds = [trial.fold_rows(fold) for fold in held]
    evaluated = [gather(own, rows.indptr, rows.indices, rows.data, labels) for own in folds]
    result = {
        "errors": [learner.evaluate(*own)[1].tolist() for own in evaluated],
        "rows": [len(own) for own in folds],
        "nonzeros": learner.nonzeros().tolist(),
        "diverged": learner.diverged.tolist(),
    }
    if len(held) == 1:
        (*documents, truth), numbers = evaluated[0], range(len(learner.configurations))
        margins, states = learner.margins(*documents), [learner.slots_of(number) for number in numbers]
        predicted = [predicted_labels(margins[:, number], 0.0, several=False) for number in numbers]
        result["mistakes"] = [folds[0][own != truth].tolist() for own in predicted]
        result["norms"] = [float(state["r"].max()) for state in states if "r" in state]
        result["occurrences"] = _occurrences(trial, learner, held) if trial.counted else []
    return result | {"seconds": thread_time() - begun}


def _occurrences(trial: Trial, learner: Learner, held: Sequence[int]) -> list[list[int]]:
    """Per configuration of two classes, numbers of occurrences; none if all weights are 0."""
    counts = trial.occurrences(held)
    order = np.argsort(counts, kind="stable")
    counts = counts[order]
    selected = [counts[own] for own in (learner.weights() != 0)[order].T]
    return [own[np.round(SHARES * (len(own) - 1)).astype(np.int64)].tolist() if len(own) else [] for own in selected]


# ----------------------------------------------------------------------------------------------------------------------
# Table V and Figure 2 of 2012: the features that STDA p = ∞ and RDA select, with counts; in 2011 SGFT p = 2 and SG-L1.
#
# In every fold, the paper's method has the λ that was chosen for it, and the other the λ that selects the most similar
# number of features: which features are selected depends mostly on their number.


HELD_OUT: Final = 0
"""The fold whose training set Table V is of."""
LISTED: Final = 10
"""Features of each method in Table V."""


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
            largest = alone[np.lexsort((alone, -np.abs(own[alone])))][:LISTED]
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
# does not say how. Here it is tuned by a cross-validation of the nine: each of them is predicted by weights of six
# folds, trained without it and without the fold that λ is for; then all λ are trained on the nine. Within the nine, two
# rules: the least error, and the sparsest within one standard error of the least, for the "highly predictable sparse
# weight vector" of 2012.


TEN_FOLD: Final = "least error over the ten folds"
LEAST: Final = "least error within nine folds"
SPARSEST: Final = "sparsest within one standard error within nine folds"
RULES: Final = (TEN_FOLD, LEAST, SPARSEST)
_WITHIN: Final[dict[str, Select]] = {LEAST: "best", SPARSEST: "one-standard-error"}

Parts = Mapping[tuple[int, ...], Mapping[str, Any]]
"""Results of trainings by the folds held out."""


def result_rows(trial: Trial, parts: Sequence[Mapping[str, Any]], rule: str) -> list[Row]:
    """A row per fold: the λ of the rule, its error and sparsity; `parts` are the results of the cells."""
    by_held = dict(zip(TRAININGS, parts, strict=True))
    rows = []
    for fold, k in enumerate(_chosen(trial, by_held, rule)):
        own = by_held[(fold,)]
        errors, n_rows = own["errors"][0][k], own["rows"][0]
        row = {"fold": fold, "lam": trial.method.strengths[k], "rows": n_rows, "errors": errors}
        row |= {"error": errors / n_rows, "sparsity": 1 - own["nonzeros"][k] / trial.weights}
        rows.append(row | {"mistakes": " ".join(map(str, own["mistakes"][k]))})
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


def _chosen(trial: Trial, parts: Parts, rule: str) -> list[int]:
    """The number of the λ that a rule chooses for each fold."""
    folds = range(trial.folds)
    if rule == TEN_FOLD:
        rows = [row for held in ALONE for row in _search_rows(trial, parts, held, *held)]
        return [choose(rows, "best").configuration] * len(folds)
    chosen = []
    for fold in folds:
        tuning = [
            (other, next(held for held in TOGETHER if {fold, other} <= {*held})) for other in folds if other != fold
        ]
        rows = [row for other, held in tuning for row in _search_rows(trial, parts, held, other)]
        chosen.append(choose(rows, _WITHIN[rule]).configuration)
    return chosen


def _search_rows(trial: Trial, parts: Parts, held: tuple[int, ...], fold: int) -> list[Row]:
    """Rows like a search's: each λ on a fold, by the training without these."""
    part, index = parts[held], held.index(fold)
    rows = []
    for configuration in trial.method.search.configurations():
        k = configuration.number
        status = "diverged" if part["diverged"][k] else "ok"
        rows.append(
            {
                "configuration": k,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                "epoch": trial.method.search.epochs,
                "fold": fold,
                "status": status,
                "reason": "" if status == "ok" else status,
                "held_out_rows": part["rows"][index],
                "held_out_error": part["errors"][index][k] / part["rows"][index],
                "nonzeros": part["nonzeros"][k],
            }
        )
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# A paper's experiments on a set of documents.


class Paper(NamedTuple):
    """What a paper compares: its name, also that of its methods' file, its data sets, their printed documents and
    features, tables, its own rule for λ, and the two methods whose features are counted."""

    name: str
    sources: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int]]
    printed: tuple[PrintedTable, ...]
    rule: str
    pair: tuple[str, str]


def run_data_set(run: Run, paper: Paper, protocol: Protocol, source: DocumentSource, documents: Documents) -> Records:
    """All rows of a data set."""
    counted = paper.pair if len(documents.classes) == 2 else ()
    large = source.all_words or len(documents.classes) > 2
    trials = [
        Trial(source.name, documents, method, method.name in counted)
        for method in protocol.for_classes(len(documents.classes))
        if not (large and method.name in UNPRINTED)
    ]
    if any(len(trials[0].fold_rows(fold)) == 0 for fold in range(trials[0].folds)):
        raise InputError(f"{source.title} has too few documents for {trials[0].folds} folds.", code="too-small")
    parts = run.cells_by(source.title, {trial.method.name: training_cells(trial) for trial in trials})
    (n_documents, n_features), printed_sizes = documents.rows.shape, paper.sizes[source.paper]
    described = {
        "set": source.name,
        "title": source.title,
        "corpus": "20 Newsgroups" if source.groups else source.paper,  # sets of one corpus may share documents
        "paper_set": source.paper,
        "documents": n_documents,
        "features": n_features,
        "classes": len(documents.classes),
        "nonzeros": documents.rows.nnz,
        "paper_documents": printed_sizes[0],
        "paper_features": printed_sizes[1],
        "differs": source.differs,
    }
    records: Records = {"sets": [described], "frequencies": [], "features": []}
    for trial in trials:
        own = parts[trial.method.name]
        key = {"set": source.name, "method": trial.method.name}
        path = path_rows(trial, own)
        extend(records, {"paths": [key | row for row in path]})
        means = mean_rows(path, ("lam",), ("error", "sparsity"))
        for rule in RULES:
            ruled, rows = key | {"rule": rule}, result_rows(trial, own, rule)
            results = _with_printed(paper, source, ruled, rows, means)
            extend(records, {"folds": [ruled | row for row in rows], "results": results})
        seconds = sum(part["seconds"] for part in own)
        timing = {"trainings": len(own), "columns": len(trial.method.strengths), "seconds": seconds}
        extend(records, {"timings": [key | timing]})
    if counted:
        extend(records, _features(run, paper, trials, parts, records["folds"]))
    return records


def _features(
    run: Run, paper: Paper, trials: Sequence[Trial], parts: Mapping[str, list[Row]], folds: Sequence[Row]
) -> Records:
    """Table V of one fold, and Figure 2 of all."""
    by_name = {trial.method.name: trial for trial in trials}
    ours, theirs = (by_name[name] for name in paper.pair)
    records: Records = {"frequencies": []}
    for row in select(folds, method=ours.method.name, rule=paper.rule):
        fold, chosen = row["fold"], ours.method.strengths.index(row["lam"])
        own = [parts[name][fold] for name in paper.pair]
        selected = [np.array(part["nonzeros"]) for part in own]
        similar = int(np.argmin(np.abs(np.log((selected[1] + 1) / (selected[0][chosen] + 1)))))
        numbers = chosen, similar
        for method, part, k in zip(paper.pair, own, numbers, strict=True):
            key = {"set": ours.name, "method": method, "fold": fold, "selected": part["nonzeros"][k]}
            shown = zip(SHARES.tolist(), part["occurrences"][k], strict=False)
            records["frequencies"] += [key | {"share": share, "count": count} for share, count in shown]
        if fold == HELD_OUT:
            (records["features"],) = run.cells("features", [features_cell((ours, theirs), numbers)])
    return records


def _with_printed(paper: Paper, source: DocumentSource, key: Row, rows: list[Row], path: list[Row]) -> list[Row]:
    """A row per printed table that has the method, with its result if it has the set; one if no table has it."""
    errors = column(rows, "error")
    average = sum(errors) / len(errors)
    deviation = (sum((error - average) ** 2 for error in errors) / (len(errors) - 1)) ** 0.5
    ours = {"error": average, "deviation": deviation, "sparsity": mean(column(rows, "sparsity"))}
    results: list[Row] = []
    for table in paper.printed:
        if key["method"] in table.methods:
            row = key | ours | {"table": table.name}
            if source.paper in table.results:
                result = table.results[source.paper][key["method"]]
                row |= {f"paper_{name}": share for name, share in result._asdict().items()}
                row["error_there"] = error_at(path, result.sparsity)
            results.append(_PRINTED_NOTHING | row)
    return results or [_PRINTED_NOTHING | key | ours | {"table": ""}]


def error_at(path: Sequence[Row], sparsity: float) -> float | None:
    """The error at a sparsity, interpolated linearly between neighbouring λ; the least if there are several.

    None if no two neighbours enclose it.
    """
    errors = []
    for left, right in pairwise(path):
        low, high = sorted((left, right), key=lambda row: float(row["sparsity"]))
        gap = high["sparsity"] - low["sparsity"]
        if low["sparsity"] <= sparsity <= high["sparsity"] and gap > 0:
            share = (sparsity - low["sparsity"]) / gap
            errors.append(low["error"] + share * (high["error"] - low["error"]))
    return min(errors, default=None)


_PRINTED_NOTHING: Final = dict.fromkeys(("paper_error", "paper_deviation", "paper_sparsity", "error_there"))
