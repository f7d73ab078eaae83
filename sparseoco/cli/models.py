"""Commands of saved models: predict, evaluate, explain, compare, export, score."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sparseoco.cli.console import as_dicts, print_error, print_line, print_table, progress_bars
from sparseoco.cli.options import MODELS, READING, STEPS, ClusterFlags, ModelOptions, Positive, ReadingFlags, command
from sparseoco.core.errors import unsupported
from sparseoco.core.formatting import (
    integer,
    metric_figures,
    metric_name,
    metric_with_error,
    metric_with_interval,
    percent,
    plural,
    signed,
)
from sparseoco.core.option_models import validate
from sparseoco.pipeline.run_file import EvaluateOptions
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.locations import Location
from sparseoco.text.options import OF_FILES, TextOptions

if TYPE_CHECKING:
    from sparseoco.pipeline.evaluation import Batches
    from sparseoco.pipeline.explanation import Explanation, ModelComparison
    from sparseoco.training.models import Model

WhereFlags = Annotated[dict[str, Any], ModelOptions(EvaluateOptions, only=("where",))]
LabelledFlags = Annotated[dict[str, Any], ModelOptions(TextOptions, only=(*READING, "label_field"), defaults=False)]
SliceFlags = Annotated[dict[str, Any], ModelOptions(EvaluateOptions, only=("slices",), flags={"slices": "--slice"})]
SCORED = (*READING, "label_field", "encoding_errors", "max_bad_rows")
ScoredFlags = Annotated[dict[str, Any], ModelOptions(TextOptions, only=SCORED, defaults=False)]
KEEPING = dict.fromkeys(("keep_top", "keep_above", "keep_class", "keep_as"), "Kept documents")
ScoreFlags = Annotated[dict[str, Any], ModelOptions(ScoreOptions, flags={"columns": "--column"}, panels=KEEPING)]

# ----------------------------------------------------------------------------------------------------------------------
# Explanations and comparisons of models, as tables on the terminal.


def print_explanation(found: "Explanation") -> None:
    """Print the prediction of a text, and what its terms add to the margin."""
    named = f"{found.id}: " if found.id else ""
    likely = "" if found.probability is None else f"  (probability of {found.of}: {percent(found.probability)})"
    print_line(f"{named}{_prediction(found.prediction)}{likely}")
    rows = [(term.feature, f"{term.value:.4g}", signed(term.weight), _added(term.contribution)) for term in found.terms]
    others = found.known - len(found.terms)
    if others > 0:
        rows.append((f"{others:,} other terms", "", "", _added(found.rest)))
    if found.intercept:
        rows.append(("intercept", "", "", _added(found.intercept)))
    kind = f"margin of {found.of}" + (f" over {found.against}" if found.against else "") if found.of else "prediction"
    rows.append((kind, "", "", _added(found.margin)))
    if found.threshold:
        rows.append(("threshold", "", "", _added(found.threshold)))
    print_table(("term", "value", "weight", "adds"), rows, numbers=3)
    print_line()


def _prediction(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(value) or "no class") if isinstance(value, list) else str(value)


def _added(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def print_comparison(found: "ModelComparison") -> None:
    """Print what changed between two models."""
    from sparseoco.training.metrics import trained_on_sentence

    rows: list[tuple[str, ...]] = [
        ("features used", *map(integer, found.features)),
        ("nonzero weights", *map(integer, found.weights)),
    ]
    for row in found.evaluations:
        if row.name == "rows":
            rows.append(("evaluated on", integer(row.first), integer(row.second), ""))
        else:
            values = (metric_with_error(row.name, value, None) for value in (row.first, row.second))
            rows.append((metric_name(row.name), *values, ""))
    print_table(("", "first", "second", "in both"), rows, numbers=3)
    if found.cosine is not None:
        print_line(f"cosine of the weights: {found.cosine:.4f}")
    if found.evaluations and not found.same_text:
        print_line("The models were evaluated on different text: give INPUT to evaluate both on the same.")
    for which, names in zip(("first", "second"), found.trained_on, strict=True):
        if names:
            print_line(f"{which}: {trained_on_sentence(names)}")
    if found.options:
        print_line()
        changes = [(option.name, _short(option.first), _short(option.second)) for option in found.options]
        print_table(("option", "first", "second"), changes)
    for title, weights in (("gained", found.gained), ("lost", found.lost), ("changed most", found.changed)):
        if weights:
            print_line()
            changed = [(w.feature, w.of, _weight(w.first), _weight(w.second), signed(w.change)) for w in weights]
            print_table((title, "class", "first", "second", "change"), changed, numbers=3)


def _weight(value: float) -> str:
    return "–" if value == 0 else signed(value)


def _short(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


# ----------------------------------------------------------------------------------------------------------------------
# Commands that use saved models.


@command(MODELS)
def predict(
    model: Location, inputs: list[str] | None = None, *, margins: bool = False, proba: bool = False, given: ReadingFlags
) -> None:
    """Predict the classes of new text: one line of output for each line, or document id and prediction for files.

    Of a folder of plain text, each file is a document. Standard input is read as lines, unless an option says what
    it is. Columns are separated by tabs: the id (of files), the prediction, with **--margins** the margins (of two
    classes one, that of the second), with **--proba** the probabilities, both in the order of the classes in
    model.json: integers by value, other names sorted. In ids and labels, backslashes, tabs, newlines, other control
    characters and lone surrogates are escaped as in JSON strings, and in lists of labels commas, too.

    Example: sparseoco predict model reviews.jsonl --where split=test --margins

    Parameters
    ----------
    inputs : INPUT
        Inputs as for ingest; by default the lines of standard input.
    margins
        Also print the margin of each class.
    proba
        Also print the probability of each class.
    """
    from sparseoco.pipeline import evaluation
    from sparseoco.training.models import Model

    opened = Model(model)
    with _texts(opened, inputs, given) as batches:
        evaluation.predict(opened, batches, sys.stdout, margins=margins, proba=proba)


@contextmanager
def _texts(model: "Model", inputs: list[str] | None, given: dict[str, Any]) -> "Iterator[Batches]":
    """Texts to predict: documents of files or, without inputs and options of reading, lines of standard input."""
    from sparseoco.cli.summaries import STDIN, checked_lines, print_outcome, with_stdin
    from sparseoco.pipeline.evaluation import text_and_ids
    from sparseoco.text.readers import ReadOutcome

    outcome = ReadOutcome()
    with with_stdin([] if inputs in (None, [STDIN]) and not given else inputs or [STDIN]) as files:
        lines = checked_lines(sys.stdin.buffer, model.text)
        yield text_and_ids(model, files, given, lines, outcome)
    print_outcome(outcome)


@command(MODELS)
def evaluate(
    model: Location,
    inputs: list[str],
    *,
    given: LabelledFlags,
    parts: SliceFlags,
    predictions: Location | None = None,
    as_json: bool = False,
) -> None:
    """Compare a model's predictions with the labels of new text.

    It prints the metrics of all classes and of each; **--predictions** writes those of every document.

    Example: sparseoco evaluate model reviews.jsonl --where split=test

    Parameters
    ----------
    predictions : FILE
        Write the id, label and margins of each document to this Parquet file.
    """
    from sparseoco.cli.summaries import summarize_evaluation, warn_of_classes, warn_of_learned, with_stdin
    from sparseoco.pipeline.evaluation import check_predictions, evaluate_model
    from sparseoco.training.models import Model

    with progress_bars():
        where, reading = given.get("where", {}), OF_FILES | given
        with with_stdin(inputs) as files:
            opened = Model(model)
            if predictions is not None:
                check_predictions(predictions, opened, files, reading)
            result = evaluate_model(opened, files, where, predictions, reading=reading, **parts)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    warn_of_classes(result.get("never_predicted", ()), "evaluated documents")
    warn_of_learned(result.get("trained_on", ()))
    print_line(summarize_evaluation(result))
    if "slices" in result:
        print_slices(result)
    if "classes" not in result:
        return
    names = ["precision", "recall", "f1", "average_precision", "threshold"]
    names = [name for name in names if name in result["classes"][0]]
    rows = [
        (row["name"], f"{row['rows']:,}", *("–" if row[name] is None else f"{row[name]:.3f}" for name in names))
        for row in result["classes"]
    ]
    print_table(("class", "documents", *map(metric_name, names)), rows, numbers=len(names) + 1)


def print_slices(result: Mapping[str, Any]) -> None:
    """Print the documents and the metrics of each slice, the first with its interval."""
    first, *others = [name for name in ("error", "f1", "f1_macro", "average_precision", "rmse", "r2") if name in result]
    rows = []
    for own in result["slices"]:
        value = "without a value" if own["value"] is None else own["value"]
        figure = metric_with_interval(first, own[first], own["intervals"].get(first))
        figures = (metric_with_error(name, own.get(name), None) for name in others)
        rows.append((f"{own['field']}: {value}", f"{own['rows']:,}", figure, *figures))
    print_table(("slice", "documents", *map(metric_name, (first, *others))), rows, numbers=len(others) + 2)


@command(MODELS)
def explain(
    model: Location,
    inputs: list[str] | None = None,
    *,
    ids: list[str] | None = None,
    of: str | None = None,
    terms: Positive = 10,
    given: ReadingFlags,
    as_json: bool = False,
) -> None:
    """Show why texts get their predictions: what each term adds to the margin, the intercept, the probability.

    A term adds its weight times its value. The terms of greatest absolute contribution come first.

    Example: sparseoco explain model reviews.jsonl --where split=test --terms 5

    Parameters
    ----------
    inputs : INPUT
        Inputs as for ingest; by default the lines of standard input.
    ids : --id ID
        Only the documents with these ids; may be repeated.
    of : --class NAME
        The class to explain; by default the predicted one.
    terms : N
        Terms to show of each text.
    as_json : --json
        Print one JSON object per text.
    """
    from sparseoco.pipeline.explanation import Explainer, explain_batches
    from sparseoco.training.models import Model

    opened = Model(model)
    explainer = Explainer(opened, terms=terms, of=of)
    with _texts(opened, inputs, given) as batches:
        for explanation in explain_batches(explainer, batches, ids or ()):
            if as_json:
                print(json.dumps(as_dicts(explanation), ensure_ascii=False))
            else:
                print_explanation(explanation)


@command(MODELS)
def compare(
    first: Location,
    second: Location,
    inputs: list[str] | None = None,
    *,
    features: Positive = 10,
    given: WhereFlags,
    as_json: bool = False,
) -> None:
    """Show what changed from one model to another: options, weights gained, lost and changed most, and the error.

    With labelled text both models are evaluated on it; otherwise the evaluations of their runs are compared.

    Example: sparseoco compare model run

    Parameters
    ----------
    first : MODEL
        Folder of a saved model, or of a run.
    second : MODEL
        The model to compare it with.
    inputs : INPUT
        Labelled text to evaluate both models on.
    features : N
        Features to show of each kind.
    """
    if given and not inputs:
        raise unsupported("--where is of the documents of INPUT: name some.")
    from sparseoco.pipeline.evaluation import evaluate_model
    from sparseoco.pipeline.explanation import compare_models
    from sparseoco.training.models import Model

    evaluate = partial(evaluate_model, inputs=inputs, where=given.get("where", {})) if inputs else None
    with progress_bars():
        found = compare_models(Model(first), Model(second), evaluate, limit=features)
    if as_json:
        print(json.dumps(as_dicts(found), indent=1, ensure_ascii=False))
    else:
        print_comparison(found)


@command(MODELS)
def leaderboard(runs: list[Location], *, metric: str | None = None, as_json: bool = False) -> None:
    """Rank runs on the same test documents, and show what each is worse than the best, with its 95% interval.

    An interval without 0 is a difference by more than chance: predictions are paired by document.

    Example: sparseoco leaderboard words characters

    Parameters
    ----------
    runs : RUN
        Folders of runs with the same test documents.
    metric : NAME
        Metric to rank by; by default that of the first run's search.
    """
    from sparseoco.cli.summaries import learner_line
    from sparseoco.pipeline.leaderboard import rank_runs

    metric, ranked = rank_runs(runs, metric)
    if as_json:
        print(json.dumps({"metric": metric, "runs": as_dicts(ranked)}, indent=1))
        return
    rows = []
    for rank, own in enumerate(ranked, 1):
        figure = metric_with_interval(metric, own.value, own.interval)
        worse = "" if own.difference is None else "{} [{}, {}]".format(*metric_figures(metric, *own.difference))
        rows.append(
            (str(rank), own.run, learner_line(own.algorithm, own.parameters), f"{own.features:,}", figure, worse)
        )
    print_table(("rank", "run", "model", "features", metric_name(metric), "difference"), rows, numbers=3)


# ----------------------------------------------------------------------------------------------------------------------
# The command that writes a model for other libraries.


@command(MODELS)
def export(model: Location, *, to: Literal["sklearn", "onnx", "sql", "json"], out: Location) -> None:
    """Write a model as a file that predicts the same without sparseoco: scikit-learn, ONNX, SQL or JSON.

    None of them has a pickle: docs/operations/serving.md.

    Example: sparseoco export model --to sklearn --out model.skops

    Parameters
    ----------
    to : KIND
        sklearn: a fitted pipeline, for skops.io.load. onnx: a graph for onnxruntime. sql: tables and views for DuckDB.
        json: terms and weights.
    out : FILE
        File to write; one of the same kind is replaced.
    """
    from sparseoco.estimators.export import export_json, export_onnx, export_sklearn, export_sql
    from sparseoco.training.models import Model

    opened = Model(model)
    if to != "sklearn":
        what, write = {
            "onnx": ("graph", export_onnx),
            "sql": ("statements", export_sql),
            "json": ("model", export_json),
        }[to]
        print_line(f"{what}: {out} ({plural(write(opened, out), 'term')})")
        return
    pipeline = export_sklearn(opened, out)
    steps = ", ".join(type(step).__name__ for step in pipeline)
    print_line(f"pipeline: {out} ({steps}; {plural(len(pipeline[0].vocabulary), 'feature')})")
    if opened.has_probabilities and not hasattr(pipeline, "predict_proba"):
        print_error("The pipeline has no predict_proba: the calibration gives all texts one probability of a class.")


# ----------------------------------------------------------------------------------------------------------------------
# The command that scores a corpus.


@command(STEPS)
def score(
    model: Location, inputs: list[str], *, out: Location, given: ScoreFlags, reading: ScoredFlags, cluster: ClusterFlags
) -> None:
    """Score the documents of a corpus of any size: margins, probabilities and predictions as Parquet, one part a split.

    An interrupted run resumes when it is run again; nothing is scored twice.

    Example: sparseoco score model reviews.jsonl --out scores --keep-top 10%

    Parameters
    ----------
    out : FOLDER
        Folder of the scores; new inputs are appended.
    """
    options = validate(ScoreOptions, given)
    if "-" in inputs:
        raise unsupported("Standard input cannot be read again: save it to a file, or use sparseoco predict.")
    from sparseoco.cli.summaries import summarize_scores
    from sparseoco.pipeline import steps

    with progress_bars():
        steps.score(str(model), inputs, out, options, cluster, reading=reading)
    summarize_scores(out)
