"""Commands that use saved models."""

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Annotated, Any

import typer

from sparseoco.cli.app import MODELS, command
from sparseoco.cli.console import cell, output, print_line, progress_bars
from sparseoco.cli.model_options import ModelOptions
from sparseoco.cli.model_tables import print_comparison, print_explanation
from sparseoco.cli.options import READING, InputsArgument, JsonFlag, ModelArgument, ReadingFlags, path_or_uri
from sparseoco.core.errors import InputError
from sparseoco.pipeline.run_file import EvaluateOptions
from sparseoco.storage.locations import Location
from sparseoco.text.options import OF_FILES, TextOptions


@command(MODELS)
def predict(
    *,
    model: ModelArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Inputs as for ingest; by default the lines of standard input."),
    ] = None,
    margins: Annotated[bool, typer.Option("--margins", help="Also print the margin of each class.")] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Also print the probability of each class.")] = False,
    given: ReadingFlags,
) -> None:
    """Predict the classes of new text: one line of output for each line, or document id and prediction for files.

    Of a folder of plain text, each file is a document. Standard input is read as lines, unless an option says what
    it is. Columns are separated by tabs: the id (of files), the prediction, with **--margins** the margins (of two
    classes one, that of the second), with **--proba** the probabilities, both in the order of the classes in
    model.json: integers by value, other names sorted. In ids and labels, backslashes, tabs, newlines, other control
    characters and lone surrogates are escaped as in JSON strings, and in lists of labels commas, too.

    Example: sparseoco predict model reviews.jsonl --where split=test --margins
    """
    with _quick_imports():
        from sparseoco.cli.inputs import STDIN, checked_lines, print_outcome, with_stdin
        from sparseoco.pipeline.prediction import predict_files, predict_lines
        from sparseoco.training.models.model import Model

    opened = Model(model)
    if inputs in (None, [STDIN]) and not given:
        lines = checked_lines(sys.stdin.buffer, opened.text)
        print_outcome(predict_lines(opened, lines, sys.stdout, margins=margins, proba=proba))
        return
    with with_stdin(inputs or [STDIN]) as files:
        print_outcome(predict_files(opened, files, given, sys.stdout, margins=margins, proba=proba))


class _Without(MetaPathFinder):
    """Makes imports of some modules fail as if they were not installed."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Where a module is: for other finders to say, except for these."""
        if fullname in self.names:
            raise ModuleNotFoundError(fullname)


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Import what the block does without garbage collection, and PyArrow and numba without what they would try to.

    That is pandas, cffi and SciPy's linear algebra: with them, starting takes longer than predicting.
    """
    finder = _Without("pandas", "cffi", "scipy.linalg")
    gc.disable()
    try:
        sys.meta_path.insert(0, finder)
        try:
            import pyarrow
            from numba.core.registry import cpu_target

            pyarrow.array([])  # each tries only once
            cpu_target.typing_context.refresh()
            cpu_target.target_context.refresh()
        finally:
            sys.meta_path.remove(finder)
        yield
    finally:
        gc.freeze()
        gc.enable()


@command(MODELS)
def evaluate(
    *,
    model: ModelArgument,
    inputs: InputsArgument,
    given: Annotated[
        dict[str, Any], ModelOptions(TextOptions, only=(*READING, "label_field", "label_depth"), defaults=False)
    ],
    predictions: Annotated[
        Location | None,
        typer.Option(
            "--predictions",
            parser=path_or_uri,
            metavar="FILE",
            help="Write the id, label and margins of each document to this Parquet file.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare a model's predictions with the labels of new text.

    It prints the metrics of all classes and of each; **--predictions** writes those of every document.

    Example: sparseoco evaluate model reviews.jsonl --where split=test
    """
    from rich.table import Table

    from sparseoco.cli.inputs import with_stdin
    from sparseoco.cli.summaries import summarize_evaluation, warn_of_classes, warn_of_learned
    from sparseoco.core.formatting import metric_name
    from sparseoco.pipeline.evaluation import check_predictions, evaluate_model
    from sparseoco.training.models.model import Model

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
    *,
    model: ModelArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Inputs as for ingest; by default the lines of standard input."),
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Only the documents with these ids; may be repeated.")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="The class to explain; by default the predicted one."),
    ] = None,
    terms: Annotated[int, typer.Option("--terms", min=1, metavar="N", help="Terms to show of each text.")] = 10,
    given: ReadingFlags,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Show why texts get their predictions: what each term adds to the margin, the intercept, the probability.

    A term adds its weight times its value. The terms of greatest absolute contribution come first.

    Example: sparseoco explain model reviews.jsonl --where split=test --terms 5
    """
    with _quick_imports():
        from sparseoco.cli.inputs import STDIN, checked_lines, print_outcome, with_stdin
        from sparseoco.pipeline.explanation import Explainer, explain_batches
        from sparseoco.pipeline.prediction import document_batches, text_batches
        from sparseoco.text.readers import ReadOutcome
        from sparseoco.training.models.model import Model

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
    *,
    first: Annotated[
        Location, typer.Argument(parser=path_or_uri, metavar="MODEL", help="Folder of a saved model, or of a run.")
    ],
    second: Annotated[
        Location, typer.Argument(parser=path_or_uri, metavar="MODEL", help="The model to compare it with.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Labelled text to evaluate both models on."),
    ] = None,
    features: Annotated[
        int, typer.Option("--features", min=1, metavar="N", help="Features to show of each kind.")
    ] = 10,
    given: Annotated[dict[str, Any], ModelOptions(EvaluateOptions, only=("where",))],
    as_json: JsonFlag = False,
) -> None:
    """Show what changed from one model to another: options, weights gained, lost and changed most, and the error.

    With labelled text both models are evaluated on it; otherwise the evaluations of their runs are compared.

    Example: sparseoco compare model run
    """
    if given and not inputs:
        raise InputError("--where is of the documents of INPUT: name some.", code="unsupported-combination")
    from sparseoco.pipeline.model_comparison import compare_models
    from sparseoco.training.models.model import Model

    with progress_bars() as progress:
        found = compare_models(
            Model(first), Model(second), inputs or (), given.get("where", {}), limit=features, progress=progress
        )
    if as_json:
        print(json.dumps(found.described, indent=1, ensure_ascii=False))
    else:
        print_comparison(found)
