"""Commands that use saved models."""

import json
import sys
from importlib.abc import MetaPathFinder
from typing import Annotated, Any

import typer

from sparseoco.cli.app import MODELS, command
from sparseoco.cli.console import output, progress_bars
from sparseoco.cli.model_options import ModelOptions
from sparseoco.cli.options import InputsArgument, JsonFlag, ModelArgument, path_or_uri
from sparseoco.pipeline.run_file import EvaluateOptions
from sparseoco.storage.locations import Location
from sparseoco.text.options import TextOptions


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
    given: Annotated[dict[str, Any], ModelOptions(TextOptions, only=("where", "format", "text_field"), defaults=False)],
) -> None:
    """Predict the classes of new text: one line of output for each line, or document id and prediction for files.

    Example: sparseoco predict model reviews.jsonl --where split=test --margins
    """
    _import_pyarrow()
    from sparseoco.pipeline.prediction import predict_files, predict_lines
    from sparseoco.training.model import Model

    opened = Model(model)
    if inputs:
        predict_files(opened, inputs, {"where": {}, "format": "auto"} | given, sys.stdout, margins=margins, proba=proba)
    else:
        predict_lines(opened, sys.stdin.buffer, sys.stdout, margins=margins, proba=proba)


class _WithoutPandas(MetaPathFinder):
    """Makes `import pandas` fail as if it were not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Where a module is: for other finders to say, except for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def _import_pyarrow() -> None:
    """Import PyArrow, without the pandas that its first conversion tries to import: it takes as long as predicting."""
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    import pyarrow

    pyarrow.array([])  # tries only once
    sys.meta_path.remove(finder)


@command(MODELS)
def evaluate(
    *,
    model: ModelArgument,
    inputs: InputsArgument,
    given: Annotated[dict[str, Any], ModelOptions(EvaluateOptions, without=("inputs",))],
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

    Example: sparseoco evaluate model reviews.jsonl --where split=test
    """
    from rich.table import Table
    from rich.text import Text

    from sparseoco.cli.summaries import summarize_evaluation
    from sparseoco.pipeline.evaluation import evaluate_model
    from sparseoco.training.model import Model

    with progress_bars() as progress:
        result = evaluate_model(Model(model), inputs, given.get("where", {}), progress, predictions)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(summarize_evaluation(result))
    if "classes" not in result:
        return
    table = Table("class", "documents", "precision", "recall", "F1")
    for row in result["classes"]:
        figures = (f"{row[name]:.3f}" for name in ("precision", "recall", "f1"))
        table.add_row(Text(row["name"]), f"{row['rows']:,}", *figures)
    output.print(table)
