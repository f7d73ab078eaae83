"""Commands of saved models: predict, evaluate, explain, compare, export, score."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from sparseoco.cli.app import MODELS, STEPS, command
from sparseoco.cli.console import cell, output, print_error, print_line, progress_bars
from sparseoco.cli.options import READING, ClusterFlags, ModelOptions, ReadingFlags
from sparseoco.core.errors import InputError
from sparseoco.core.formatting import integer, metric_name, metric_with_error, percent, plural, signed
from sparseoco.core.option_models import validate
from sparseoco.pipeline.run_file import EvaluateOptions
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.locations import Location
from sparseoco.text.options import OF_FILES, TextOptions

if TYPE_CHECKING:
    from sparseoco.pipeline.explanation import Explanation, ModelComparison, WeightChange

# ----------------------------------------------------------------------------------------------------------------------
# Explanations and comparisons of models, as tables on the terminal.


def print_explanation(found: "Explanation") -> None:
    """Print the prediction of a text, and what its terms add to the margin."""
    head = cell(f"{found.id}: " if found.id else "")
    head.append(cell(_prediction(found.prediction), "bold"))
    if found.probability is not None:
        head.append(cell(f"  (probability of {found.of}: {percent(found.probability)})"))
    output.print(head)
    table = Table("term", box=None, pad_edge=False)
    for name in ("value", "weight", "adds"):
        table.add_column(name, justify="right")
    for term in found.terms:
        numbers = f"{term.value:.4g}", signed(term.weight), _added(term.contribution)
        table.add_row(cell(term.feature), *numbers, style="" if term.contribution > 0 else "dim")
    others = found.known - len(found.terms)
    if others > 0:
        table.add_row(cell(f"{others:,} other terms", "italic"), "", "", _added(found.rest))
    if found.intercept:
        table.add_row(cell("intercept", "italic"), "", "", _added(found.intercept))
    kind = f"margin of {found.of}" + (f" over {found.against}" if found.against else "") if found.of else "prediction"
    table.add_row(cell(kind, "bold"), "", "", _added(found.margin))
    if found.threshold:
        table.add_row(cell("threshold"), "", "", _added(found.threshold))
    output.print(table)
    output.print()


def _prediction(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(value) or "no class") if isinstance(value, list) else str(value)


def _added(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def print_comparison(found: "ModelComparison") -> None:
    """Print what changed between two models."""
    from sparseoco.training.metrics import trained_on_sentence

    table = Table("", "first", "second", "in both", box=None, pad_edge=False)
    for name, counts in (("features used", found.features), ("nonzero weights", found.weights)):
        table.add_row(name, *map(integer, counts))
    for row in found.evaluations:
        values = (
            (integer(value) if row.name == "rows" else metric_with_error(row.name, value, None))
            for value in (row.first, row.second)
        )
        table.add_row("evaluated on" if row.name == "rows" else metric_name(row.name), *values, "")
    output.print(table)
    if found.cosine is not None:
        output.print(f"cosine of the weights: {found.cosine:.4f}")
    if found.evaluations and not found.same_text:
        output.print("The models were evaluated on different text: give INPUT to evaluate both on the same.")
    for which, names in zip(("first", "second"), found.trained_on, strict=True):
        if names:
            print_line(f"{which}: {trained_on_sentence(names)}")
    if found.options:
        table = Table("option", "first", "second", box=None, pad_edge=False)
        for option in found.options:
            table.add_row(cell(option.name), cell(_short(option.first)), cell(_short(option.second)))
        output.print()
        output.print(table)
    for title, rows in (
        ("gained", found.gained),
        ("lost", found.lost),
        ("changed most", found.changed),
        ("intercepts", found.intercepts),
    ):
        if rows:
            output.print()
            output.print(_weights_table(title, rows))


def _weights_table(title: str, rows: "list[WeightChange]") -> Any:
    table = Table(title, "class", box=None, pad_edge=False)
    for name in ("first", "second", "change"):
        table.add_column(name, justify="right")
    for row in rows:
        weights = ("–" if value == 0 else signed(value) for value in (row.first, row.second))
        table.add_row(cell(row.feature), cell(row.of), *weights, signed(row.change))
    return table


def _short(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


# ----------------------------------------------------------------------------------------------------------------------
# Commands that use saved models.


@command(MODELS)
def predict(
    model: Location,
    inputs: list[str] | None = None,
    *,
    margins: bool = False,
    proba: bool = False,
    given: ReadingFlags,
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
    from sparseoco.cli.summaries import STDIN, checked_lines, print_outcome, with_stdin
    from sparseoco.pipeline.evaluation import predict_files, predict_lines
    from sparseoco.training.models import Model

    opened = Model(model)
    if inputs in (None, [STDIN]) and not given:
        lines = checked_lines(sys.stdin.buffer, opened.text)
        print_outcome(predict_lines(opened, lines, sys.stdout, margins=margins, proba=proba))
        return
    with with_stdin(inputs or [STDIN]) as files:
        print_outcome(predict_files(opened, files, given, sys.stdout, margins=margins, proba=proba))


@command(MODELS)
def evaluate(
    model: Location,
    inputs: list[str],
    *,
    given: Annotated[dict[str, Any], ModelOptions(TextOptions, only=(*READING, "label_field"), defaults=False)],
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

    with progress_bars() as progress:
        where, reading = given.get("where", {}), OF_FILES | given
        with with_stdin(inputs) as files:
            opened = Model(model)
            if predictions is not None:
                check_predictions(predictions, opened, files, reading)
            result = evaluate_model(opened, files, where, progress, predictions, reading=reading)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    warn_of_classes(result.get("never_predicted", ()), "evaluated documents")
    warn_of_learned(result.get("trained_on", ()))
    print_line(summarize_evaluation(result))
    if "classes" not in result:
        return
    names = ["precision", "recall", "f1", "average_precision", "threshold"]
    names = [name for name in names if name in result["classes"][0]]
    table = Table("class", "documents", *(metric_name(name) for name in names))
    for row in result["classes"]:
        figures = ("–" if row[name] is None else f"{row[name]:.3f}" for name in names)
        table.add_row(cell(row["name"]), f"{row['rows']:,}", *figures)
    output.print(table)


@command(MODELS)
def explain(
    model: Location,
    inputs: list[str] | None = None,
    *,
    ids: Annotated[list[str] | None, typer.Option("--id")] = None,
    of: Annotated[str | None, typer.Option("--class")] = None,
    terms: Annotated[int, typer.Option(min=1)] = 10,
    given: ReadingFlags,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show why texts get their predictions: what each term adds to the margin, the intercept, the probability.

    A term adds its weight times its value. The terms of greatest absolute contribution come first.

    Example: sparseoco explain model reviews.jsonl --where split=test --terms 5

    Parameters
    ----------
    inputs : INPUT
        Inputs as for ingest; by default the lines of standard input.
    ids : ID
        Only the documents with these ids; may be repeated.
    of : NAME
        The class to explain; by default the predicted one.
    terms : N
        Terms to show of each text.
    as_json
        Print one JSON object per text.
    """
    from sparseoco.cli.summaries import STDIN, checked_lines, print_outcome, with_stdin
    from sparseoco.pipeline.evaluation import document_batches, text_batches
    from sparseoco.pipeline.explanation import Explainer, explain_batches
    from sparseoco.text.readers import ReadOutcome
    from sparseoco.training.models import Model

    opened = Model(model)
    explainer = Explainer(opened, terms=terms, of=of)
    outcome = ReadOutcome()
    with with_stdin(inputs or ([STDIN] if given else [])) as files:
        lines = checked_lines(sys.stdin.buffer, opened.text)
        batches: Any = ((texts, None) for texts in text_batches(opened, lines, outcome))
        if files:
            found = document_batches(opened, files, given, outcome)
            batches = ((batch, batch.ids.to_pylist()) for batch in found)
        for explanation in explain_batches(explainer, batches, ids or ()):
            if as_json:
                print(json.dumps(explanation.described, ensure_ascii=False))
            else:
                print_explanation(explanation)
    print_outcome(outcome)


@command(MODELS)
def compare(
    first: Location,
    second: Location,
    inputs: list[str] | None = None,
    *,
    features: Annotated[int, typer.Option(min=1)] = 10,
    given: Annotated[dict[str, Any], ModelOptions(EvaluateOptions, only=("where",))],
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
        raise InputError("--where is of the documents of INPUT: name some.", code="unsupported-combination")
    from sparseoco.pipeline.explanation import compare_models
    from sparseoco.training.models import Model

    with progress_bars() as progress:
        found = compare_models(
            Model(first), Model(second), inputs or (), given.get("where", {}), limit=features, progress=progress
        )
    if as_json:
        print(json.dumps(found.described, indent=1, ensure_ascii=False))
    else:
        print_comparison(found)


# ----------------------------------------------------------------------------------------------------------------------
# The command that writes a model for other libraries.


@command(MODELS)
def export(model: Location, *, to: Literal["sklearn"], out: Location) -> None:
    """Write a model as a fitted scikit-learn pipeline, which predicts the same without sparseoco.

    The file is read with skops.io.load and has no pickle: docs/operations/serving.md.

    Example: sparseoco export model --to sklearn --out model.skops

    Parameters
    ----------
    to : KIND
        sklearn: a fitted pipeline.
    out : FILE
        File to write; one of another pipeline is replaced.
    """
    from sparseoco.estimators.export import export_sklearn
    from sparseoco.training.models import Model

    opened = Model(model)
    pipeline = export_sklearn(opened, out)
    steps = ", ".join(type(step).__name__ for step in pipeline)
    print_line(f"pipeline: {out} ({steps}; {plural(len(pipeline[0].vocabulary), 'feature')})")
    if opened.has_probabilities and not hasattr(pipeline, "predict_proba"):
        print_error("The pipeline has no predict_proba: the calibration gives all texts one probability of a class.")


# ----------------------------------------------------------------------------------------------------------------------
# The command that scores a corpus.


KEEPING = dict.fromkeys(("keep_top", "keep_above", "keep_class", "keep_as"), "Kept documents")


@command(STEPS)
def score(
    model: Location,
    inputs: list[str],
    *,
    out: Location,
    given: Annotated[dict[str, Any], ModelOptions(ScoreOptions, flags={"columns": "--column"}, panels=KEEPING)],
    reading: Annotated[
        dict[str, Any],
        ModelOptions(
            TextOptions,
            only=(*READING, "label_field", "encoding_errors", "max_bad_rows"),
            defaults=False,
        ),
    ],
    cluster: ClusterFlags,
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
        raise InputError(
            "Standard input cannot be read again: save it to a file, or use sparseoco predict.",
            code="unsupported-combination",
        )
    from sparseoco.cli.summaries import summarize_scores
    from sparseoco.pipeline import steps

    with progress_bars() as progress:
        steps.score(str(model), inputs, out, options, cluster, reading=reading, progress=progress)
    summarize_scores(out)
