"""Why a text got its prediction: what each of its terms adds to the margin."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.training.models.model import Model


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

    @property
    def described(self) -> dict[str, Any]:
        """As JSON."""
        return self._asdict() | {"terms": [term._asdict() for term in self.terms]}


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

    def explain(
        self, texts: Sequence[str] | Documents | CountedDocuments, ids: Sequence[str] | None = None
    ) -> Iterator[Explanation]:
        """An explanation of each text, in order."""
        model = self.model
        values = model.values(texts)
        weights, intercepts = model.weights, model.intercepts
        margins = np.asarray(values @ weights) + intercepts
        predictions: list[Any] = model.decide(margins)
        if self._several:
            predictions = [[model.classes[k] for k in np.flatnonzero(row)] for row in model.decide_sets(margins)]
        probabilities = model.probabilities(margins) if model.has_probabilities else None
        for row, prediction in enumerate(predictions):
            of, against, column, offset = self._direction(margins[row], prediction, weights, intercepts)
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

    def _direction(
        self,
        margins: NDArray[np.float64],
        prediction: Any,
        weights: NDArray[np.float64],
        intercepts: NDArray[np.float64],
    ) -> tuple[str, str, NDArray[np.float64], float]:
        """The class explained, the one it is explained against, and weights and intercept of their difference."""
        classes = self.model.classes
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


def explain_batches(
    explainer: Explainer, batches: Iterable[tuple[Any, Sequence[str] | None]], chosen: Sequence[str]
) -> Iterator[Explanation]:
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
