"""The command that scores a corpus."""

from typing import Annotated, Any

import typer

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import progress_bars
from sparseoco.cli.model_options import ModelOptions
from sparseoco.cli.options import (
    READING,
    ClusterFile,
    ClusterFlags,
    InputsArgument,
    ModelArgument,
    cluster_options,
    path_or_uri,
)
from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.locations import Location
from sparseoco.text.options import TextOptions

KEEPING = dict.fromkeys(("keep_top", "keep_above", "keep_class", "keep_model", "keep_as"), "Kept documents")


@command(STEPS)
def score(
    *,
    model: ModelArgument,
    inputs: InputsArgument,
    out: Annotated[
        Location,
        typer.Option(
            "--out", parser=path_or_uri, metavar="FOLDER", help="Folder of the scores; new inputs are appended."
        ),
    ],
    given: Annotated[dict[str, Any], ModelOptions(ScoreOptions, flags={"columns": "--column"}, panels=KEEPING)],
    reading: Annotated[
        dict[str, Any],
        ModelOptions(
            TextOptions,
            only=(*READING, "label_field", "label_depth", "encoding_errors", "max_bad_rows"),
            defaults=False,
        ),
    ],
    cluster_file: ClusterFile = None,
    cluster_flags: ClusterFlags,
) -> None:
    """Score the documents of a corpus of any size: margins, probabilities and predictions as Parquet, one part a split.

    An interrupted run resumes when it is run again; nothing is scored twice.

    Example: sparseoco score model reviews.jsonl --out scores --keep-top 10%
    """
    options = validate(ScoreOptions, given)
    if "-" in inputs:
        raise InputError(
            "Standard input cannot be read again: save it to a file, or use sparseoco predict.",
            code="unsupported-combination",
        )
    cluster = cluster_options(cluster_file, cluster_flags)
    from sparseoco.cli.summaries import summarize_scores
    from sparseoco.pipeline import steps

    with progress_bars() as progress:
        steps.score(str(model), inputs, out, options, cluster, reading=reading, progress=progress)
    summarize_scores(out)
