"""Why a model predicts what it does, and what changed between two models."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.pipeline.evaluation import Batches, test_documents
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report import predictions
from sparseoco.report.results import MISTAKE_TEXTS, read_evaluation, read_results
from sparseoco.storage.commit import commit_json, remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.shards import Store
from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Inputs, read_documents
from sparseoco.text.splits import take_documents
from sparseoco.text.tables import close_tables
from sparseoco.training.models import Model

# ----------------------------------------------------------------------------------------------------------------------
# Why a text got its prediction: what each of its terms adds to the margin.


class TermContribution(NamedTuple):
    """A term of a text: its value, after tf, idf and norm, times its weight is what it adds to the margin."""

    feature: str
    value: float
    weight: float
    contribution: float


class Explanation(NamedTuple):
    """A prediction and its reasons.

    Parameters
    ----------
    id : of the document; empty for a line of text.
    prediction : the class, the classes of several labels, or the number.
    of, against : contributions are to the margin of the class `of`, less that of the class `against` if there is one.
    margin : their sum, with the intercept.
    threshold : the margin above which `of` is predicted; of two classes only.
    probability : of the class `of`; None if the model has no probabilities.
    known : different terms of the text that have a nonzero weight.
    terms : the strongest contributions of both signs, the strongest first.
    rest : the sum of the other contributions.
    """

    id: str
    prediction: Any
    of: str
    against: str
    margin: float
    threshold: float | None
    probability: float | None
    intercept: float
    known: int
    terms: list[TermContribution]
    rest: float


class Explainer:
    """Explains the predictions of a model.

    Parameters
    ----------
    terms : contributions to keep of each text.
    of : the class to explain; by default the predicted one, against the next likely; of several labels the first.

    Raises
    ------
    InputError
        If the model has no such class.
    """

    def __init__(self, model: Model, *, terms: int = 10, of: str | None = None) -> None:
        if of is not None and of not in model.classes:
            known = ", ".join(model.classes[:20]) or "numbers"
            raise InputError(f"--class {of}: the model predicts {known}.", code="unknown-class")
        self.model, self.terms, self.of = model, terms, of
        self._several = model.is_multilabel

    def explain(self, texts: Inputs, ids: Sequence[str] | None = None) -> Iterator[Explanation]:
        """An explanation of each text, in order."""
        model = self.model
        values = model.values(texts)
        margins = np.asarray(values @ model.weights) + model.intercepts
        probabilities = model.probabilities(margins) if model.has_probabilities else None
        for row, prediction in enumerate(model.decide(margins)):
            of, against, column, offset = self._direction(margins[row], prediction)
            own = slice(values.indptr[row], values.indptr[row + 1])
            features, x = values.indices[own], values.data[own]
            yield Explanation(
                id="" if ids is None else ids[row],
                prediction=prediction,
                of=of,
                against=against,
                margin=float(x @ column[features] + offset),
                threshold=self._threshold(of),
                probability=None if probabilities is None else float(probabilities[row][model.classes.index(of)]),
                intercept=float(offset),
                known=int(np.count_nonzero(column[features])),
                **self._terms(features, x, column),
            )

    def _direction(self, margins: NDArray[Any], prediction: Any) -> tuple[str, str, NDArray[np.float64], float]:
        """The class explained, the one it is explained against, and weights and intercept of their difference."""
        classes, weights, intercepts = self.model.classes, self.model.weights, self.model.intercepts
        if not classes:
            return "", "", weights[:, 0], float(intercepts[0])
        if self.of is not None or not self._several:
            of = classes.index(self.of if self.of is not None else prediction)
        else:
            of = int(margins.argmax())
        if len(classes) == 2:
            sign = 1.0 if of == 1 else -1.0
            return classes[of], classes[1 - of], sign * weights[:, 0], sign * float(intercepts[0])
        if self.of is not None or self._several:
            return classes[of], "", weights[:, of], float(intercepts[of])
        other = int(np.where(np.arange(len(classes)) == of, -np.inf, margins).argmax())
        difference = weights[:, of] - weights[:, other]
        return classes[of], classes[other], difference, float(intercepts[of] - intercepts[other])

    def _threshold(self, of: str) -> float | None:
        if len(self.model.classes) != 2:
            return None
        margin = 0.0 if self.model.thresholds is None else float(self.model.thresholds.margins[0])
        return margin if of == self.model.classes[1] else -margin

    def _terms(self, features: NDArray[Any], x: NDArray[Any], column: NDArray[np.float64]) -> dict[str, Any]:
        contributions = x * column[features]
        order = np.lexsort((features, -np.abs(contributions)))
        kept = order[: self.terms][contributions[order[: self.terms]] != 0]
        names = self.model.feature_names
        terms = [
            TermContribution(names[features[k]], float(x[k]), float(column[features[k]]), float(contributions[k]))
            for k in kept.tolist()
        ]
        return {"terms": terms, "rest": float(contributions.sum() - contributions[kept].sum())}


def explain_batches(explainer: Explainer, batches: Batches, chosen: Sequence[str]) -> Iterator[Explanation]:
    """Explanations of texts with their ids; of those with `chosen` ids, if there are any.

    Raises `InputError` if an id is not found.
    """
    missing = set(chosen)
    for texts, ids in batches:
        for explanation in explainer.explain(texts, ids):
            if not chosen or explanation.id in chosen:
                missing.discard(explanation.id)
                yield explanation
    if missing:
        raise InputError(f"No document has the id {sorted(missing)[0]}.", code="unknown-document")


SNIPPET: Final = 300
"""Characters of a text that are shown."""
TERMS: Final = 6


def write_mistakes(run: RunFile) -> None:
    """Write the texts of the mistakes on the page of a run to its folder, if its file asks for them; else remove them.

    Each with the terms that decide by the model of all the data, which has learned the held-out documents.

    Raises `InputError` for inputs that have changed, `StorageError` for files.
    """
    path = run.out / MISTAKE_TEXTS
    if not run.report.snippets:
        if path.exists():
            remove_file(path)
        return
    results, model = read_results(run.out), Model(run.out / "model")
    mistakes: list[dict[str, Any]] = []
    for found in predictions.prediction_sets(run.out, results):
        wanted: dict[str, list[str | None]] = defaultdict(list)
        for mistake in predictions.mistakes(found) if found.classes else ():
            wanted[mistake.id].append(model.classes[mistake.output])
        for residual in predictions.residuals(found) if not found.classes else ():
            wanted[residual.id].append(None)
        inputs, where = (list(run.ingest.inputs), run.text.where)
        if found.name == "test":
            inputs, where = test_documents(run)
        options = TextOptions.of(model.text.plain() | {"holdout": run.text.holdout, "where": where})
        withheld = found.name == "test" and run.text.holdout > 0
        ingested = Store.find(run.store)
        for batch in read_documents(inputs, options, labelled=False, withheld=withheld, ingested=ingested):
            if not wanted or not isinstance(batch, Documents):  # counts have no text
                break
            rows = np.flatnonzero(
                pc.is_in(batch.ids, pa.array(list(wanted), pa.string())).to_numpy(zero_copy_only=False)
            )
            for row in rows.tolist():
                own = take_documents(batch, np.array([row]))
                assert isinstance(own, Documents)
                name = str(own.ids[0])
                for of in wanted.pop(name, ()):  # not the next document of this id
                    (explained,) = Explainer(model, terms=TERMS, of=of).explain(own)
                    terms = [(term.feature, term.contribution) for term in explained.terms]
                    shown = {"documents": found.name, "id": name, "of": of or "", "text": _snippet(own, options)}
                    mistakes.append(shown | {"terms": terms})
        close_tables()
    commit_json(path, {"mistakes": mistakes})


def _snippet(document: Documents, options: TextOptions) -> str:
    """The first characters of a document; of several fields with their names."""
    shown = {name: values[0] for name, values in document.fields.items() if np.ndim(values[0]) == 0}
    named = {options.record_fields[name]: value for name, value in shown.items()}
    texts = named or {"": document.strings[0]}
    text = " · ".join(f"{name}: {value}" if name else str(value) for name, value in texts.items())
    short = " ".join(text[: 2 * SNIPPET].split())
    return short if len(short) <= SNIPPET else short[:SNIPPET] + "…"


# ----------------------------------------------------------------------------------------------------------------------
# What changed from one model to another: options, weights, predictions on labelled text.


_OPTIONS: Final = (
    *("algorithm", "parameters", "loss", "penalty", "weighting", "intercept", "epochs", "seed", "shuffle", "dtype"),
    *("class_weight", "calibration", "threshold", "features", "text", "provenance"),
)
_UNTOLD: Final = ("text.classes", "intercept", "provenance.source_digests")
"""Entries too long to show, or numbers that were learned."""
_MEASURES: Final = ("error", "log_loss", "roc_auc", "average_precision", "f1_macro", "rmse", "mae", "r2")


class OptionChange(NamedTuple):
    """An option that differs; None where a model has no such option."""

    name: str
    first: Any
    second: Any


class WeightChange(NamedTuple):
    """The weights of a feature for a class in both models, 0 where there is none."""

    feature: str
    of: str
    first: float
    second: float

    @property
    def change(self) -> float:
        """Second less first."""
        return self.second - self.first


class ModelComparison(NamedTuple):
    """What changed from the first model to the second.

    Parameters
    ----------
    options : those that differ.
    features : used by the first, the second, and both, with a nonzero weight for any class.
    weights : nonzero, of the first, the second, and both.
    cosine : of the weights of both, over all features; None if one has no weights.
    gained, lost, changed : strongest weights that only the second has, that only the first has, and that both have and
        that differ most.
    evaluations : metrics of both, of the same text if it was given, otherwise as recorded when they were evaluated.
    same_text : whether both were evaluated on the same text.
    trained_on : of the first and the second, the inputs that it has learned documents of, as in `evaluate_model`.
    """

    options: list[OptionChange]
    features: tuple[int, int, int]
    weights: tuple[int, int, int]
    cosine: float | None
    gained: list[WeightChange]
    lost: list[WeightChange]
    changed: list[WeightChange]
    evaluations: list[OptionChange]
    same_text: bool
    trained_on: tuple[list[str], list[str]]


def compare_models(
    first: Model, second: Model, evaluate: Callable[[Model], Mapping[str, Any]] | None = None, *, limit: int = 10
) -> ModelComparison:
    """Compare two models of the same classes.

    Features are matched by name, or by number if both models hash them alike. `evaluate` evaluates a model on text; by
    default the evaluations that are recorded are compared.

    Raises
    ------
    InputError
        If the models have different classes, or the text cannot be evaluated.
    """
    if set(first.classes) != set(second.classes):
        raise InputError(
            f"{first.folder} and {second.folder} predict different classes: weights are compared class by class.",
            code="different-classes",
        )
    before, after = _weights(first, second), _weights(second, first)
    both = before.keys() & after.keys()
    changes = [WeightChange(*key, before.get(key, 0.0), after.get(key, 0.0)) for key in before.keys() | after.keys()]
    norms = [float(np.sqrt(sum(w * w for w in of.values()))) for of in (before, after)]
    product = sum(before[key] * after[key] for key in sorted(both))
    used = [{feature for feature, _ in of} for of in (before, after)]
    evaluations, same_text, trained_on = _evaluations(first, second, evaluate)
    return ModelComparison(
        options=_option_changes(first, second),
        features=(len(used[0]), len(used[1]), len(used[0] & used[1])),
        weights=(len(before), len(after), len(both)),
        cosine=product / (norms[0] * norms[1]) if norms[0] and norms[1] else None,
        gained=_strongest((row for row in changes if not row.first), limit),
        lost=_strongest((row for row in changes if not row.second), limit),
        changed=_strongest((row for row in changes if row.first and row.second), limit),
        evaluations=evaluations,
        same_text=same_text,
        trained_on=trained_on,
    )


def _weights(model: Model, other: Model) -> dict[tuple[str, str], float]:
    """The nonzero weights by feature and class; of two classes those of the one that is last by name."""
    hashing = [of.description["features"] for of in (model, other)]
    alike = all(of["kind"] == "hashed" for of in hashing) and hashing[0] == hashing[1]
    table = model.table
    names = table["feature"].to_pylist()
    if alike:
        names = [f"{name} [{number}]" for name, number in zip(names, table["feature_id"].to_pylist(), strict=True)]
    classes, weights = table["class"].to_pylist(), table["weight"].to_pylist()
    if len(model.classes) == 2 and (last := max(model.classes)) != model.classes[1]:
        classes, weights = [last] * len(classes), [-weight for weight in weights]
    return {(name, of): weight for name, of, weight in zip(names, classes, weights, strict=True)}


def _strongest(changes: Iterable[WeightChange], limit: int) -> list[WeightChange]:
    """The largest changes, of those that are not 0."""
    ordered = sorted(changes, key=lambda row: (-abs(row.change), row.feature, row.of))
    return [row for row in ordered[:limit] if row.change]


def _option_changes(first: Model, second: Model) -> list[OptionChange]:
    before, after = (_flat({name: of.description.get(name) for name in _OPTIONS}) for of in (first, second))
    names = [*before, *(name for name in after if name not in before)]
    return [
        OptionChange(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name) and not name.startswith(_UNTOLD)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _evaluations(
    first: Model, second: Model, evaluate: Callable[[Model], Mapping[str, Any]] | None
) -> tuple[list[OptionChange], bool, tuple[list[str], list[str]]]:
    before, after = (evaluate(model) if evaluate else _recorded(model.folder) for model in (first, second))
    compared = ("inputs", "where", "rows")
    same = bool(before) and [before.get(name) for name in compared] == [after.get(name) for name in compared]
    names = [name for name in ("rows", *_MEASURES) if before.get(name) is not None or after.get(name) is not None]
    learned = list(before.get("trained_on", ())), list(after.get("trained_on", ()))
    return [OptionChange(name, before.get(name), after.get(name)) for name in names], same, learned


def _recorded(model: Location) -> dict[str, Any]:
    """The evaluation of a model, in its folder or in that of its run; empty if there is none."""
    for path in (model / "evaluation.json", *([model.parent / "evaluation.json"] if model.name == "model" else [])):
        found = read_evaluation(path)
        if found is not None:
            return found.model_dump()
    return {}
