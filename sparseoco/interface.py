"""What the command line does, as functions and objects of Python: runs, models, evaluations, scores.

Objects have their tables as Arrow tables, which have ``to_pandas()``, and show themselves in notebooks.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from sparseoco.cli.console import progress_bars
from sparseoco.cli.summaries import learner_line, summarize_evaluation
from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.formatting import metric_name, metric_with_error, plural
from sparseoco.core.option_models import validate
from sparseoco.execution.options import ClusterOptions
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import read_parquet_file
from sparseoco.text.options import OF_FILES
from sparseoco.text.readers import arrow_table
from sparseoco.training import models
from sparseoco.training.search_tables import read_metrics

if TYPE_CHECKING:
    from sparseoco.pipeline.explanation import Explanation, ModelComparison

SHOWN_ROWS = 20

# ----------------------------------------------------------------------------------------------------------------------
# How objects show themselves.


def html_table(names: Sequence[str], rows: Sequence[Sequence[Any]], count: int | None = None) -> str:
    """A table in HTML: the first `SHOWN_ROWS` rows, and how many there are (`count` if not all are given)."""
    cells = ("".join(f"<td>{_shown(value)}</td>" for value in row) for row in rows[:SHOWN_ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    count = len(rows) if count is None else count
    more = f"<p>{count:,} rows</p>" if count > SHOWN_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_of(*tables: pa.Table) -> str:
    """Tables in HTML, without those that have no rows."""
    return "".join(
        html_table(t.column_names, [list(row.values()) for row in t.slice(0, SHOWN_ROWS).to_pylist()], t.num_rows)
        for t in tables
        if t.num_rows
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return html.escape("" if value is None else ", ".join(value) if isinstance(value, list) else str(value))


class Evaluation(dict[str, Any]):
    """The predictions of a model compared with labels: metrics by name, as in ``evaluation.json``.

    Attributes
    ----------
    classes : pyarrow.Table
        Precision, recall, F1, … of each class; without rows for numbers.
    confusion : pyarrow.Table
        A row for each true class, with the number of documents predicted as each class; without rows for numbers and
        label sets.
    slices : pyarrow.Table
        Metrics for each value of a field; without rows unless they were asked for.
    """

    metric = "error"

    @property
    def classes(self) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in self.get("classes", ())])

    @property
    def confusion(self) -> pa.Table:
        names = [row["name"] for row in self.get("classes", ())]
        columns = zip(*self.get("confusion", ()), strict=True)
        return pa.table({"class": names} | dict(zip(names, map(list, columns), strict=False)) if names else {})

    @property
    def slices(self) -> pa.Table:
        rows = self.get("slices", ())
        return pa.Table.from_pylist([{name: row[name] for name in row if name != "intervals"} for row in rows])

    def __repr__(self) -> str:
        return f"Evaluation: {summarize_evaluation(self, self.metric)}"

    def _repr_html_(self) -> str:
        rows = [(metric_name(name), value) for name, value in self.items() if isinstance(value, float)]
        return f"<p>{html.escape(repr(self))}</p>{html_table(('metric', 'value'), rows)}{html_of(self.classes)}"


class Explanations(list["Explanation"]):
    """Why texts got their predictions: an `Explanation` of each.

    Attributes
    ----------
    table : pyarrow.Table
        A row for each term that is shown: the number of the text, term, value, weight and contribution.
    """

    @property
    def table(self) -> pa.Table:
        terms = [{"text": number, **term._asdict()} for number, each in enumerate(self) for term in each.terms]
        return pa.Table.from_pylist(terms).rename_columns({"feature": "term"}) if terms else pa.table({})

    def __repr__(self) -> str:
        return "\n".join(map(self._line, self))

    def _repr_html_(self) -> str:
        names = ("term", "value", "weight", "adds")
        shown = self[:SHOWN_ROWS]
        return "".join(f"<p>{html.escape(self._line(each))}</p>{html_table(names, each.terms)}" for each in shown)

    @staticmethod
    def _line(of: "Explanation") -> str:
        terms = ", ".join(f"{term.feature} {term.contribution:+.3f}" for term in of.terms)
        likely = "" if of.probability is None else f" (probability of {of.of}: {of.probability:.1%})"
        return f"{of.prediction}{likely}: {terms or 'no known term'}".replace("-", "−")


class Comparison(NamedTuple):
    """What changed from one model to another: `found`, and its tables."""

    found: "ModelComparison"

    @property
    def evaluations(self) -> pa.Table:
        """Metrics of both models."""
        return pa.Table.from_pylist([row._asdict() for row in self.found.evaluations])

    @property
    def options(self) -> pa.Table:
        """Options that differ, as text."""
        rows = [row._asdict() for row in self.found.options]
        return pa.Table.from_pylist([{name: str(value) for name, value in row.items()} for row in rows])

    @property
    def weights(self) -> pa.Table:
        """The strongest weights that were gained and lost, and those that changed most."""
        kinds = ("gained", "lost", "changed")
        return pa.Table.from_pylist([{"kind": k, **row._asdict()} for k in kinds for row in getattr(self.found, k)])

    def __repr__(self) -> str:
        first, second, both = self.found.features
        measured = [
            f"{metric_name(row.name)} {metric_with_error(row.name, row.first, None)} → "
            f"{metric_with_error(row.name, row.second, None)}"
            for row in self.found.evaluations
            if row.name != "rows"
        ]
        figures = ", ".join(measured) or "not evaluated"
        return f"Comparison: features {first:,} → {second:,}, {both:,} in both; {figures}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{html_of(self.evaluations, self.weights)}"


# ----------------------------------------------------------------------------------------------------------------------
# Models, runs, scores.


class Model(models.Model):
    __doc__ = models.Model.__doc__

    def __repr__(self) -> str:
        described = self.description
        learner = learner_line(described["algorithm"], described["parameters"])
        predicts = ", ".join(self.classes[:6]) + ", …" * (len(self.classes) > 6) if self.classes else "numbers"
        size = plural(described["nonzeros"], "nonzero weight")
        return f"Model({str(self.folder)!r}): {learner}; {self.weighting.label}; {size}; predicts {predicts}"

    def _repr_html_(self) -> str:
        order = sorted(self.table.to_pylist(), key=lambda row: -abs(row["weight"]))
        rows = [(row["feature"], row["class"], row["weight"], row["documents"]) for row in order[:SHOWN_ROWS]]
        table = html_table(("strongest features", "class", "weight", "documents"), rows)
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def explain(self, texts: Any, *, terms: int = 10, of: str | None = None) -> Explanations:
        """Why texts get their predictions: what each of their terms adds to the margin.

        Parameters
        ----------
        texts : as `predict` takes them
        terms : int
            Terms of each text, the strongest first.
        of : str, optional
            The class to explain; by default the predicted one.

        Raises
        ------
        InputError
            If the model has no such class, or the texts cannot be read.
        """
        from sparseoco.pipeline.explanation import Explainer

        return Explanations(Explainer(self, terms=terms, of=of).explain(texts))

    def evaluate(
        self,
        data: Any,
        labels: Any = None,
        *,
        where: Mapping[str, str] | None = None,
        predictions: str | Location | None = None,
        slices: Sequence[str] = (),
        **reading: Any,
    ) -> Evaluation:
        """Compare the model's predictions with labels.

        Parameters
        ----------
        data : paths or data
            With `labels`, texts as `predict` takes them. A table (Arrow, pandas, polars) has the labels in the column
            that the model was trained on. Otherwise a path, or paths, of files or folders as `sparseoco evaluate` takes
            them, read in bounded memory.
        labels : sequence, optional
            Of the texts: names of classes, lists of them for any number of classes, or numbers.
        where : mapping, optional
            Of files: values of fields that documents must have.
        predictions : path, optional
            Of files: receives the id, label and margins of each document.
        slices : sequence of str, optional
            Of files: fields by whose values the metrics are also given, and ``length``.
        **reading
            Of files: options of reading that differ from those of the model's own text.

        Raises
        ------
        InputError
            For data without labels or documents, labels that the model does not know, and options of files where there
            are none.
        """
        from sparseoco.pipeline.evaluation import evaluate_model, evaluate_texts  # loads Dask

        if labels is None and arrow_table(data) is None:
            files = (
                [str(data)] if isinstance(data, str) or hasattr(data, "__fspath__") else [str(item) for item in data]
            )
            path = None if predictions is None else location(predictions)
            with progress_bars():
                found = evaluate_model(self, files, dict(where or {}), path, reading=OF_FILES | reading, slices=slices)
                return Evaluation(found)
        if where or predictions is not None or slices or reading:
            raise unsupported("where, predictions, slices and options of reading are of files.")
        return Evaluation(evaluate_texts(self, data, labels))

    def compare(self, other: "Model | str | Location", data: Any = None, labels: Any = None) -> Comparison:
        """What changes from this model to another: options, weights, and metrics.

        Parameters
        ----------
        other : Model or path
            A model of the same classes.
        data, labels : as `evaluate` takes them, optional
            Both models are evaluated on them; by default their recorded evaluations are compared.

        Raises
        ------
        InputError
            If the models have different classes, or the data cannot be evaluated.
        """
        from sparseoco.pipeline.explanation import compare_models

        second = other if isinstance(other, Model) else Model(other)
        evaluate: Callable[[models.Model], Mapping[str, Any]] | None = None
        if data is not None:
            evaluate = partial(Model.evaluate, data=data, labels=labels)
        return Comparison(compare_models(self, second, evaluate))


class Run:
    """The folder of a run.

    Parameters
    ----------
    folder : str or Location
        Of a run, or of a search.

    Attributes
    ----------
    folder, report : Location
        The folder, and its page.
    name : str

    Raises
    ------
    InputError
        If the folder has no results.
    """

    def __init__(self, folder: str | Location) -> None:
        from sparseoco.report.results import check_results, read_choice, read_run_record

        self.folder = location(folder)
        check_results(self.folder)
        self._best, self.name = read_choice(self.folder), read_run_record(self.folder).name
        self.report = self.folder / "report" / "report.html"

    @cached_property
    def model(self) -> Model:
        """The model of the best configuration."""
        return Model(self.folder / "model")

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The model on the test documents, None without any."""
        from sparseoco.report.results import read_evaluation

        found = read_evaluation(self.folder / "evaluation.json")
        if found is None:
            return None
        evaluation = Evaluation(found.model_dump(exclude_unset=True))
        evaluation.metric = self._best.metric
        return evaluation

    @cached_property
    def leaderboard(self) -> pa.Table:
        """A row for each configuration, the best first."""
        return read_parquet_file(self.folder / "report" / "leaderboard.parquet")

    @cached_property
    def metrics(self) -> pa.Table:
        """A row for each configuration, fold and epoch."""
        return read_metrics(self.folder)

    @cached_property
    def predictions(self) -> pa.Table:
        """Ids, labels and margins of the test documents; without rows where there are none."""
        path = self.folder / "test.parquet"
        return read_parquet_file(path) if path.exists() else pa.table({})

    @cached_property
    def mistakes(self) -> pa.Table:
        """Documents that were predicted wrongly, by models that have not learned them, the most confident first.

        Those at the top may have wrong labels. Columns: ``documents`` (held-out or test), ``id``, ``truth``,
        ``answer``, and the ``probability`` of the answer.
        """
        from sparseoco.report.predictions import mistakes, prediction_sets
        from sparseoco.report.results import read_results

        names = ("id", "truth", "answer", "probability")
        rows = [
            {"documents": found.name, **{name: getattr(row, name) for name in names}}
            for found in prediction_sets(self.folder, read_results(self.folder))
            if found.classes
            for row in mistakes(found, None)
        ]
        order = sorted(rows, key=lambda row: -float(row["probability"]))
        return pa.Table.from_pylist(order) if order else pa.table({name: [] for name in ("documents", *names)})

    def __repr__(self) -> str:
        best = self._best
        chosen = f"{best.metric} {best.value:.4g} ± {best.standard_error:.2g}"
        tested = "" if self.evaluation is None else f"; {self.evaluation!r}"
        return f"Run({self.name!r}): {learner_line(best.algorithm, best.parameters)}, chosen by {chosen}{tested}"

    def _repr_html_(self) -> str:
        best = self.leaderboard.select(["rank", "algorithm", "parameters", "value", "nonzeros"])
        evaluated = "" if self.evaluation is None else self.evaluation._repr_html_()
        return f"<p>{html.escape(repr(self))}</p>{html_of(best)}{evaluated}"


class ScoredCorpus:
    """A folder of scores.

    Parameters
    ----------
    folder : str or Location

    Attributes
    ----------
    folder, report : Location
        The folder, and its page.
    rows : int
        Documents scored.
    files : list of Location
        The Parquet files of the scores, in the order of the documents.

    Raises
    ------
    InputError
        If the folder has no scores.
    """

    def __init__(self, folder: str | Location) -> None:
        from sparseoco.report.scores import PAGE
        from sparseoco.scoring.parts import PARTS, read_scores

        self.folder = location(folder)
        found = read_scores(self.folder)
        if found is None:
            raise InputError(f"{folder} is not a folder of scores.", code="no-results")
        self.report, self.rows = self.folder / PAGE, found.manifest.rows
        self.files: list[Location] = [self.folder / PARTS / name for name in found.parts.table["file"].to_pylist()]

    @property
    def table(self) -> pa.Table:
        """The scores of all documents, in memory; `files` for more than fit."""
        return pa.concat_tables([read_parquet_file(file) for file in self.files])

    def __repr__(self) -> str:
        return (
            f"ScoredCorpus({str(self.folder)!r}): {plural(self.rows, 'document')} in {plural(len(self.files), 'part')}"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Functions.


def run(described: str | Location | Mapping[str, Any], *, folder: str | Location = ".") -> Run:
    """Run every step of a run: ingest, search, train, evaluate, score, report.

    Steps that are complete are not repeated, and an interrupted one resumes.

    Parameters
    ----------
    described : path or mapping
        A run file, or its keys: ``{"ingest": {"inputs": ["reviews.jsonl"]}, "search": {…}}``, by default with
        ``"out": "run"``. With ``workers`` in ``cluster``, a script needs ``if __name__ == "__main__":``.
    folder : path
        Of a mapping: what its paths are relative to.

    Returns
    -------
    Run

    Raises
    ------
    InputError
        For a key that is unknown or invalid, and for inputs that cannot be used.
    StorageError
        For files.
    """
    from sparseoco.pipeline.run_file import load_run_file, parse_run_file
    from sparseoco.pipeline.steps import run_all

    if isinstance(described, Mapping):
        out = str(described.get("out", "run"))
        values = {"name": location(out).name, "out": out} | dict(described)
        options = parse_run_file(values, source="run", folder=location(folder))
    else:
        options = load_run_file(described)
    with progress_bars():
        run_all(options)
    return Run(options.out)


def score(
    model: str | Location | models.Model,
    inputs: str | Sequence[str],
    out: str | Location,
    *,
    cluster: Mapping[str, Any] | None = None,
    reading: Mapping[str, Any] | None = None,
    **options: Any,
) -> ScoredCorpus:
    """Score the documents of a corpus of any size into a folder; an interrupted call resumes when it is repeated.

    Parameters
    ----------
    model : path or Model
    inputs : path or sequence of paths
        Files, folders or URIs.
    out : path
        The folder; new inputs are appended.
    cluster : mapping, optional
        The keys of ``[cluster]`` in a run file; by default the threads of this process.
    reading : mapping, optional
        Options of reading that differ from those of the model's own text, such as ``where``.
    **options
        Those of ``[score]`` in a run file, such as ``keep_top="10%"``.

    Returns
    -------
    ScoredCorpus

    Raises
    ------
    InputError
        For inputs or options that cannot be used.
    StorageError
        For files.
    """
    from sparseoco.pipeline import steps

    folder = str(model.folder if isinstance(model, models.Model) else model)
    files = [inputs] if isinstance(inputs, str) else list(inputs)
    with progress_bars():
        workers = validate(ClusterOptions, dict(cluster or {}))
        chosen = validate(ScoreOptions, options)
        steps.score(folder, files, location(out), chosen, workers, reading=dict(reading or {}))
    return ScoredCorpus(out)
