"""The command line: thin, a command a step. What it can do, `sparseoco.steps` does."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from rich.table import Table

from sparseoco import __version__, steps
from sparseoco.cluster.connect import ClusterOptions
from sparseoco.config import Configuration, SearchOptions, describe_invalid, load_run_file
from sparseoco.console import errors, output, progress_bars, sentences
from sparseoco.corpora import fetch, list_cards
from sparseoco.demo import run_demo
from sparseoco.errors import InputError
from sparseoco.evaluation import evaluate_model
from sparseoco.learners import ALGORITHMS, find_algorithm
from sparseoco.model import Model
from sparseoco.prediction import predict_files, predict_lines
from sparseoco.report import write_report
from sparseoco.text.options import SHARD_BYTES, TextOptions

app = typer.Typer(
    name="sparseoco",
    help=(
        "Sparse online learning over large text corpora: raw text to shards, search, model and report.\n\n"
        "Begin with **sparseoco demo**. A run of your own is a file: **sparseoco run FILE** takes every step in it; "
        "each step is also a command. Whatever is interrupted goes on where it was when run again."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

STEPS, FILES, HELP = "Steps of a run", "Models and text", "Finding out"
T = TypeVar("T", bound=BaseModel)
Choice = StrEnum  # a typer option with a fixed set of words


class LabelList(Choice):
    ERROR, FIRST, SKIP, JOIN = "error", "first", "skip", "join"


class Labels(Choice):
    CLASSES, NUMBERS = "classes", "numbers"


class Duplicates(Choice):
    ERROR, FIRST, ALL = "error", "first", "all"


class Encoding(Choice):
    ERROR, REPLACE, SKIP = "error", "replace", "skip"


class Select(Choice):
    ERROR, ONE_STANDARD_ERROR = "error", "one-standard-error"


class Dtype(Choice):
    FLOAT32, FLOAT64 = "float32", "float64"


Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler.", rich_help_panel="Cluster"),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Start this many worker processes here.", rich_help_panel="Cluster"),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads a worker (or of this process).", rich_help_panel="Cluster"),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Memory a worker may use: 4GB.", rich_help_panel="Cluster"),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="FIELD=VALUE", help="Take only rows whose field has this value; repeatable, all must hold."
    ),
]
Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUT...", help="Files, folders or fsspec addresses; .gz and .zst too.")
]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command(rich_help_panel=STEPS)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run file (.toml or .yaml).")],
) -> None:
    """Take every step of a run file: ingest, search, train, evaluate, report."""
    described = load_run_file(file)
    with progress_bars() as progress:
        page = steps.run_all(described, progress)
    _tell_run(described.out, page)


@app.command(rich_help_panel=STEPS)
def ingest(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the shards; new files are added to it.")],
    format: Annotated[
        str,
        typer.Option(metavar="FORMAT", help="auto, jsonl, csv, tsv, lines, folder, svmlight or processed."),
    ] = "auto",
    text_field: Annotated[str, typer.Option(help="Field or column of the text.")] = "text",
    label_field: Annotated[str, typer.Option(help="Field or column of the label.")] = "label",
    id_field: Annotated[
        str, typer.Option(help="Field of the document's id; made from file and line where there is none.")
    ] = "id",
    where: Where = None,
    labels: Annotated[
        Labels, typer.Option(help="Labels are names of classes, or numbers to predict.")
    ] = Labels.CLASSES,
    label_list: Annotated[LabelList, typer.Option(help="What to do with a label that is a list.")] = LabelList.ERROR,
    ngrams: Annotated[tuple[int, int], typer.Option(metavar="LOW HIGH", help="Lengths of n-grams, in words.")] = (1, 1),
    min_df: Annotated[
        str, typer.Option(metavar="N", help="Drop terms in fewer documents (2), or a smaller share (0.01).")
    ] = "1",
    max_df: Annotated[str, typer.Option(metavar="N", help="Drop terms in more documents, or a larger share.")] = "1.0",
    max_features: Annotated[int | None, typer.Option(metavar="N", help="Keep only the most frequent terms.")] = None,
    hash_bits: Annotated[
        int | None, typer.Option(metavar="B", help="Hash terms to 2^B features; needs no vocabulary.")
    ] = None,
    hash_seed: Annotated[int, typer.Option(metavar="S", help="Seed of the hash.")] = 0,
    lowercase: Annotated[bool, typer.Option("--lowercase/--no-lowercase", help="Lower-case the text first.")] = True,
    binary: Annotated[bool, typer.Option("--binary", help="Count presence only.")] = False,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Two documents of one id: error, keep the first, keep all.")
    ] = Duplicates.ERROR,
    encoding_errors: Annotated[Encoding, typer.Option(help="Text that is not UTF-8.")] = Encoding.ERROR,
    max_bad_rows: Annotated[
        int, typer.Option(metavar="N", help="Set aside up to this many bad rows, and count them.")
    ] = 0,
    shard_bytes: Annotated[int, typer.Option(metavar="N", help="Bytes of raw text a shard.")] = SHARD_BYTES,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Raw text to Parquet shards of word counts; the counts are exactly scikit-learn's CountVectorizer's."""
    options = TextOptions.of(
        {
            "format": format,
            "text_field": text_field,
            "label_field": label_field,
            "id_field": id_field,
            "where": _pairs(where, "--where"),
            "labels": labels.value,
            "label_list": label_list.value,
            "ngram_range": ngrams,
            "min_df": _count_or_share(min_df, "--min-df"),
            "max_df": _count_or_share(max_df, "--max-df"),
            "max_features": max_features,
            "hash_bits": hash_bits,
            "hash_seed": hash_seed,
            "lowercase": lowercase,
            "binary": binary,
            "duplicates": duplicates.value,
            "encoding_errors": encoding_errors.value,
            "max_bad_rows": max_bad_rows,
        }
    )
    cluster = _cluster(scheduler, workers, threads, memory)
    with progress_bars() as progress:
        manifest = steps.ingest_texts(inputs, out, options, cluster, shard_bytes=shard_bytes, progress=progress)
    print(
        f"{out}: {manifest.rows:,} documents, {manifest.features.count:,} features, {manifest.nonzeros:,} nonzeros, "
        f"{len(manifest.shards):,} shards"
    )
    if manifest.labels.classes:
        print("classes: " + ", ".join(f"{entry.name} ({entry.rows:,})" for entry in manifest.labels.classes))
    if manifest.quarantined_rows:
        errors.print(f"{manifest.quarantined_rows:,} bad rows set aside, listed in {out}/{manifest.quarantine[0].file}")


@app.command(rich_help_panel=STEPS)
def search(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A folder of shards made by ingest.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the run.")],
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", metavar="NAME", help="A learner to try; repeatable. By default all."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="[NAME.]PARAMETER=V,V,…",
            help="Values of a parameter, of one learner or of all that have it; LOW..HIGH draws at random.",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Draw this many configurations a learner; else the whole grid.")
    ] = None,
    loss: Annotated[str, typer.Option(help="logistic, hinge, squared_hinge.")] = "logistic",
    folds: Annotated[int, typer.Option(min=1, help="Folds of cross-validation; 1 judges by progressive error.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 1,
    select: Annotated[Select, typer.Option(help="Least error, or sparsest within one standard error.")] = Select.ERROR,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Stream in an order shuffled by the seed.")
    ] = True,
    dtype: Annotated[Dtype, typer.Option(help="Type of the weights.")] = Dtype.FLOAT32,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Try configurations by cross-validation, many in one pass, and learn the best of them on all the data."""
    options = _checked(
        SearchOptions,
        {
            "algorithms": _algorithms(algorithm or list(ALGORITHMS), grid or []),
            "samples": samples,
            "loss": loss,
            "folds": folds,
            "epochs": epochs,
            "select": select.value,
            "shuffle": shuffle,
            "dtype": dtype.value,
            "seed": seed,
        },
    )
    cluster = _cluster(scheduler, workers, threads, memory)
    with progress_bars() as progress:
        steps.search(store, out, options, cluster, name=out.resolve().name, progress=progress)
        steps.train_best(store, out, cluster, progress=progress)
        page = write_report(out)
    _tell_run(out, page)


@app.command(rich_help_panel=STEPS)
def train(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A folder of shards made by ingest.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the model.")],
    algorithm: Annotated[str, typer.Option("--algorithm", metavar="NAME", help="The learner.")] = "cl-fobos",
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="A parameter of the learner; repeatable."),
    ] = None,
    loss: Annotated[str, typer.Option(help="logistic, hinge, squared_hinge.")] = "logistic",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 1,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Stream in an order shuffled by the seed.")
    ] = True,
    dtype: Annotated[Dtype, typer.Option(help="Type of the weights.")] = Dtype.FLOAT32,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Learn one configuration on all the data."""
    values = {key: _value(value) for key, value in _pairs(parameters, "--set").items()}
    chosen = find_algorithm(algorithm).configuration(values)
    options = _checked(
        SearchOptions,
        {"algorithms": {algorithm: values}, "loss": loss, "shuffle": shuffle, "dtype": dtype.value, "seed": seed},
    )
    configuration = Configuration(number=0, algorithm=algorithm, parameters=chosen)
    cluster = _cluster(scheduler, workers, threads, memory)
    with progress_bars() as progress:
        steps.train(store, out, configuration, options, cluster, epochs=epochs, progress=progress)
    _tell_model(Model(out))


@app.command(rich_help_panel=STEPS)
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or a search.")],
) -> None:
    """Write the page and the leaderboard of a run."""
    print(write_report(run))


@app.command(rich_help_panel=FILES)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT...]", help="Files as for ingest; without any, lines of standard input."),
    ] = None,
    margins: Annotated[
        bool, typer.Option("--margins", help="Print the margin of each class beside the prediction.")
    ] = False,
    where: Where = None,
    format: Annotated[str, typer.Option(metavar="FORMAT", help="As for ingest.")] = "auto",
    text_field: Annotated[str | None, typer.Option(help="Field or column of the text.")] = None,
) -> None:
    """Predict new text: a line out for a line in; for files the document's id, a tab, the prediction."""
    opened = Model(model)
    if inputs:
        options = {"where": _pairs(where, "--where"), "format": format}
        if text_field is not None:
            options["text_field"] = text_field
        predict_files(opened, inputs, options, sys.stdout, margins=margins)
    else:
        predict_lines(opened, sys.stdin.buffer, sys.stdout, margins=margins)


@app.command(rich_help_panel=FILES)
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model.")],
    inputs: Inputs,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare predictions with the labels of text the model has not seen."""
    with progress_bars() as progress:
        result = evaluate_model(Model(model), inputs, _pairs(where, "--where"), progress)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"error {result['error']:.2%} of {result['rows']:,} documents "
        f"(always the largest class: {result['majority_error']:.2%})"
    )
    table = Table("class", "documents", "precision", "recall", "F1")
    for row in result["classes"]:
        figures = (f"{row[name]:.3f}" for name in ("precision", "recall", "f1"))
        table.add_row(row["name"], f"{row['rows']:,}", *figures)
    output.print(table)


@app.command(rich_help_panel=FILES, name="fetch")
def fetch_corpus(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A corpus; without it, the list of them.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it goes.")] = Path("corpora"),
    local: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A copy you have, where there is no network.")
    ] = None,
) -> None:
    """Get a public corpus by name, checked against its digest."""
    if name is None:
        table = Table("name", "what", "licence")
        for entry in list_cards():
            table.add_row(entry.name, entry.title, entry.licence)
        output.print(table)
        return
    with progress_bars() as progress:
        fetched = fetch(name, out, local=local, progress=progress)
    print(f"{fetched.folder}\nIn a run file:\n\n{fetched.ingest_table()}")


@app.command(rich_help_panel=HELP)
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the demonstration.")] = Path("demo-run"),
) -> None:
    """Learn which library a docstring belongs to, from the packages installed here, and write a report."""
    with progress_bars() as progress:
        described, page = run_demo(out, progress)
    _tell_run(described.out, page)


@app.command(rich_help_panel=HELP)
def algorithms() -> None:
    """The learners: formula, source, parameters."""
    for algorithm in ALGORITHMS.values():
        output.print(f"[bold]{algorithm.name}[/bold]  {algorithm.source}")
        output.print(f"    {algorithm.formula}", markup=False)
        for parameter in algorithm.parameters:
            output.print(f"    {parameter.name} = {parameter.default}  {parameter.meaning}", markup=False)
        output.print()


def main() -> None:
    """Entry point of the `sparseoco` command."""
    with sentences():
        app(prog_name="sparseoco")


def _tell_run(folder: Path, page: Path) -> None:
    _tell_model(Model(folder / "model"))
    evaluation = folder / "evaluation.json"
    if evaluation.exists():
        result = json.loads(evaluation.read_bytes())
        print(f"on {result['rows']:,} documents it has not seen: error {result['error']:.2%}")
    print(f"report: {page}")


def _tell_model(model: Model) -> None:
    described = model.description
    parameters = " ".join(f"{key}={value}" for key, value in described["parameters"].items())
    print(f"model: {model.folder} ({described['algorithm']} {parameters}; {described['nonzeros']:,} nonzero weights)")


def _cluster(scheduler: str | None, workers: int | None, threads: int | None, memory: str | None) -> ClusterOptions:
    return _checked(ClusterOptions, {"scheduler": scheduler, "workers": workers, "threads": threads, "memory": memory})


def _checked(kind: type[T], values: dict[str, Any]) -> T:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(describe_invalid(error)) from None


def _pairs(items: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InputError(f"{option} {item}: write it as NAME=VALUE.")
        pairs[key] = value
    return pairs


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _count_or_share(text: str, option: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} {text}: write a whole number of documents or a share such as 0.01.") from None


def _algorithms(names: list[str], grid: list[str]) -> dict[str, dict[str, Any]]:
    """The tables of a search: the defaults of each learner, replaced by what `--grid` says."""
    tables = {name: dict(find_algorithm(name).grid) for name in names}
    for key, values in _pairs(grid, "--grid").items():
        owner, _, parameter = key.rpartition(".")
        if owner and owner not in tables:
            raise InputError(f"--grid {key}: {owner} is not among the learners tried ({', '.join(tables)}).")
        takers = [owner] if owner else [n for n in names if parameter in {p.name for p in find_algorithm(n).parameters}]
        if not takers:
            raise InputError(f"--grid {key}: none of {', '.join(names)} has a parameter {parameter}.")
        for name in takers:
            tables[name][parameter] = _range_or_list(values)
    return tables


def _range_or_list(text: str) -> Any:
    low, dots, high = text.partition("..")
    if dots:
        return {"low": _value(low), "high": _value(high)}
    return [_value(value) for value in text.split(",")]
