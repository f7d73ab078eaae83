"""The command that writes a model for other libraries."""

from typing import Annotated, Literal

import typer

from sparseoco.cli.app import MODELS, command
from sparseoco.cli.console import print_error, print_line
from sparseoco.cli.options import ModelArgument, path_or_uri
from sparseoco.storage.locations import Location


@command(MODELS)
def export(
    *,
    model: ModelArgument,
    to: Annotated[Literal["sklearn"], typer.Option("--to", metavar="KIND", help="sklearn: a fitted pipeline.")],
    out: Annotated[
        Location,
        typer.Option(
            "--out", parser=path_or_uri, metavar="FILE", help="File to write; one of another pipeline is replaced."
        ),
    ],
) -> None:
    """Write a model as a fitted scikit-learn pipeline, which predicts the same without sparseoco.

    The file is read with skops.io.load and has no pickle: docs/operations/serving.md.

    Example: sparseoco export model --to sklearn --out model.skops
    """
    from sparseoco.core.quantities import plural
    from sparseoco.estimators.export import export_sklearn
    from sparseoco.training.models.model import Model

    opened = Model(model)
    pipeline = export_sklearn(opened, out)
    steps = ", ".join(type(step).__name__ for step in pipeline)
    print_line(f"pipeline: {out} ({steps}; {plural(len(pipeline[0].vocabulary), 'feature')})")
    if opened.has_probabilities and not hasattr(pipeline, "predict_proba"):
        print_error("The pipeline has no predict_proba: the calibration gives all texts one probability of a class.")
