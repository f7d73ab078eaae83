"""The steps of a run as commands: thin, what they can do `sparseoco.pipeline.steps` does."""

from typing import Annotated

import typer

from sparseoco.cli.app import STEPS, command, summarize_mixture, summarize_model, summarize_run
from sparseoco.cli.console import errors, progress_bars
from sparseoco.cli.options import (
    Cluster,
    Dtype,
    Duplicates,
    Encoding,
    Epochs,
    FeaturesFrom,
    File,
    Inputs,
    LabelList,
    Labels,
    Loss,
    Memory,
    Penalty,
    Run,
    Scheduler,
    Seed,
    Select,
    Store,
    Threads,
    VocabularyPolicy,
    WarmStart,
    Where,
    Workers,
    checked,
    cluster_options,
    count_or_share,
    halving_table,
    mixture_tables,
    number_or_word,
    pairs,
    place,
    search_tables,
)
from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import load_cluster_file, load_run_file
from sparseoco.report import write_report
from sparseoco.storage.locations import Location
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.training.model import Model
from sparseoco.training.options import Configuration, MixtureOptions, SearchOptions

SOONER = "Done sooner"
TRIED = ("cl-fobos", "fobos", "rda", "stda")  # what a search tries where it is told nothing: two primal, two dual


@command(rich_help_panel=STEPS)
def run(
    file: File,
    cluster_file: Cluster = None,
) -> None:
    """Take every step of a run file: ingest, search, train, evaluate, report."""
    described = load_run_file(file)
    if cluster_file is not None:
        described = described.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    with progress_bars() as progress:
        page = steps.run_all(described, progress)
    summarize_run(described.out, page)


@command(rich_help_panel=STEPS)
def ingest(
    inputs: Inputs,
    out: Annotated[
        Location,
        typer.Option("--out", parser=place, metavar="FOLDER", help="Folder of the shards; new files are added to it."),
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="auto (told by name and first line), jsonl, csv, tsv, lines, folder, svmlight or processed.",
        ),
    ] = "auto",
    text_field: Annotated[str, typer.Option(metavar="FIELD", help="Field or column of the text.")] = "text",
    label_field: Annotated[str, typer.Option(metavar="FIELD", help="Field or column of the label.")] = "label",
    id_field: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Field of the document's id; made from file and line where there is none."),
    ] = "id",
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether CSV names its columns; without, they are 1, 2, …")
    ] = True,
    where: Where = None,
    labels: Annotated[
        Labels, typer.Option(help="Labels are names of classes, or numbers to predict.")
    ] = Labels.CLASSES,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="A class that labels may name; repeatable. By default those that the first files have: name them all "
            "where files added later may have others.",
        ),
    ] = None,
    label_list: Annotated[LabelList, typer.Option(help="What to do with a label that is a list.")] = LabelList.ERROR,
    ngrams: Annotated[tuple[int, int], typer.Option(metavar="LOW HIGH", help="Lengths of n-grams, in words.")] = (1, 1),
    min_df: Annotated[
        str, typer.Option(metavar="N", help="Drop terms in fewer documents than this number (2) or share (0.01).")
    ] = "1",
    max_df: Annotated[
        str, typer.Option(metavar="N", help="Drop terms in more documents than this number (1000) or share (0.5).")
    ] = "1.0",
    max_features: Annotated[
        int | None, typer.Option(metavar="N", help="Keep only so many of the most frequent terms; by default all.")
    ] = None,
    hash_bits: Annotated[
        int | None,
        typer.Option(metavar="B", help="Hash terms to 2^B features, without a vocabulary; by default there is one."),
    ] = None,
    hash_seed: Annotated[int, typer.Option(metavar="S", help="Seed of the hash.")] = 0,
    lowercase: Annotated[bool, typer.Option("--lowercase/--no-lowercase", help="Lower-case the text first.")] = True,
    binary: Annotated[
        bool, typer.Option("--binary", help="Count a term once a document, however often it is there.")
    ] = False,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Two documents of one id: error, keep the first, keep all.")
    ] = Duplicates.ERROR,
    encoding_errors: Annotated[
        Encoding,
        typer.Option(
            help="Text that is not UTF-8: error, mark what is wrong (replace), leave the document out (skip)."
        ),
    ] = Encoding.ERROR,
    max_bad_rows: Annotated[
        int, typer.Option(metavar="N", help="Set aside up to this many bad rows, and count them.")
    ] = 0,
    shard_bytes: Annotated[int, typer.Option(metavar="N", help="Bytes of raw text in a shard.")] = SHARD_BYTES,
    vocabulary: Annotated[
        VocabularyPolicy, typer.Option(help="Terms that files added later bring: dropped, or added after the last id.")
    ] = VocabularyPolicy.FROZEN,
    cluster_file: Cluster = None,
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
            "header": header,
            "where": pairs(where, "--where"),
            "labels": labels.value,
            "classes": classes,
            "label_list": label_list.value,
            "ngram_range": ngrams,
            "min_df": count_or_share(min_df, "--min-df"),
            "max_df": count_or_share(max_df, "--max-df"),
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
    cluster = cluster_options(cluster_file, scheduler, workers, threads, memory)
    with progress_bars() as progress:
        manifest = steps.ingest_texts(
            inputs, out, options, cluster, shard_bytes=shard_bytes, vocabulary=vocabulary.value, progress=progress
        )
    print(
        f"{out}: {manifest.rows:,} documents, {manifest.features.count:,} features, {manifest.nonzeros:,} nonzeros, "
        f"{len(manifest.shards):,} shards"
    )
    if manifest.labels.classes:
        print("classes: " + ", ".join(f"{entry.name} ({entry.rows:,})" for entry in manifest.labels.classes))
    if manifest.quarantined_rows:
        files = ", ".join(entry.file for entry in manifest.quarantine)
        errors.print(f"{manifest.quarantined_rows:,} bad rows set aside, listed in {out}: {files}")


@command(rich_help_panel=STEPS)
def search(
    store: Store,
    out: Annotated[Location, typer.Option("--out", parser=place, metavar="FOLDER", help="Folder of the run.")],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="A learner to try (see sparseoco algorithms); repeatable. By default " + ", ".join(TRIED) + ".",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="[NAME.]PARAMETER=V,V,…",
            help="Values of a parameter, of one learner or of all that have it, instead of their own; LOW..HIGH draws "
            "at random (see --samples); repeatable.",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(metavar="N", help="Draw this many configurations of each learner; by default the whole grid."),
    ] = None,
    loss: Loss = "logistic",
    penalty: Penalty = "l1",
    folds: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Folds of cross-validation; 1 judges by progressive error, epoch methods by training error.",
        ),
    ] = 5,
    epochs: Epochs = 1,
    select: Annotated[Select, typer.Option(help="Least error, or sparsest within one standard error.")] = Select.ERROR,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Stream in an order shuffled by the seed.")
    ] = True,
    warm_start: WarmStart = None,
    features_from: FeaturesFrom = None,
    dtype: Annotated[Dtype, typer.Option(help="Type of the weights.")] = Dtype.FLOAT32,
    seed: Seed = 0,
    halving: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="Successive halving: at rungs within the first pass keep one configuration in FACTOR.",
            rich_help_panel=SOONER,
        ),
    ] = None,
    min_rows: Annotated[
        int | None,
        typer.Option(
            "--min-rows",
            min=1,
            metavar="N",
            help="No rung before so many rows; by default 1,000.",
            rich_help_panel=SOONER,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Stop a configuration after N epochs in a row without improvement.",
            rich_help_panel=SOONER,
        ),
    ] = None,
    min_improvement: Annotated[
        float,
        typer.Option(
            "--min-improvement",
            min=0,
            metavar="X",
            help="With --patience: what an epoch must lower the error by to count.",
            rich_help_panel=SOONER,
        ),
    ] = 0.0,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            help="Seconds, 30min or 2h after which nothing is begun; the best of what is there is taken, and the same "
            "command goes on.",
            rich_help_panel=SOONER,
        ),
    ] = None,
    cluster_file: Cluster = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="What a worker, or this process, should use in all: 2GB; blocks of columns are sized by it.",
            rich_help_panel="Cluster",
        ),
    ] = None,
) -> None:
    """Try configurations by cross-validation, many in one pass, and learn the best of them on all the data."""
    if "auto" in (algorithm or ()):
        raise InputError("auto tries a grid in one pass, without a search: sparseoco train STORE --algorithm auto.")
    tried = [name for name in TRIED if penalty in find_algorithm(name).penalties] or list(TRIED)
    options = checked(
        SearchOptions,
        {
            "algorithms": search_tables(algorithm or tried, grid or [], penalty),
            "samples": samples,
            "loss": loss,
            "penalty": penalty,
            "folds": folds,
            "epochs": epochs,
            "select": select.value,
            "shuffle": shuffle,
            "warm_start": warm_start,
            "features_from": features_from,
            "dtype": dtype.value,
            "seed": seed,
            "halving": halving_table(halving, min_rows),
            "patience": patience,
            "min_improvement": min_improvement,
            "time_limit": time_limit,
            "max_memory": max_memory,
        },
    )
    cluster = cluster_options(cluster_file, scheduler, workers, threads, memory)
    with progress_bars() as progress:
        steps.search(store, out, options, cluster, name=out.resolve().name, progress=progress)
        steps.train_best(store, out, cluster, progress=progress)
        page = write_report(out)
    summarize_run(out, page)


@command(rich_help_panel=STEPS)
def train(
    store: Store,
    out: Annotated[Location, typer.Option("--out", parser=place, metavar="FOLDER", help="Folder of the model.")],
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help="The learner (see sparseoco algorithms), or auto.")
    ] = "cl-fobos",
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PARAMETER=VALUE",
            help="A parameter of the learner (see sparseoco algorithms); repeatable.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="[NAME.]PARAMETER=V,V,…",
            help="With auto: values to mix, of one learner or of all that have it; where learners are named, those "
            "alone; repeatable.",
        ),
    ] = None,
    loss: Loss = "logistic",
    penalty: Penalty = "l1",
    epochs: Epochs = 1,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", help="Stream in an order shuffled by the seed.")
    ] = True,
    warm_start: WarmStart = None,
    features_from: FeaturesFrom = None,
    dtype: Annotated[Dtype, typer.Option(help="Type of the weights.")] = Dtype.FLOAT32,
    seed: Seed = 0,
    cluster_file: Cluster = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Learn one configuration on all the data; or, by **--algorithm auto**, a grid of them at once, weighed as it goes.

    auto needs no tuning: one pass trains every configuration and mixes their predictions by what each got wrong so far.
    It takes **--set** by=error|loss, predict=last|none and keep=mixture|best (the heaviest configuration alone).
    """
    given = {
        "loss": loss,
        "penalty": penalty,
        "shuffle": shuffle,
        "warm_start": warm_start,
        "features_from": features_from,
        "dtype": dtype.value,
        "seed": seed,
    }
    cluster = cluster_options(cluster_file, scheduler, workers, threads, memory)
    if algorithm == "auto":
        mixing = checked(MixtureOptions, dict(pairs(parameters, "--set")))
        options = checked(SearchOptions, {"algorithms": mixture_tables(grid or [], penalty)} | given)
        with progress_bars() as progress:
            page = steps.train_auto(store, out, options, mixing, cluster, epochs=epochs, progress=progress)
        summarize_model(Model(out))
        summarize_mixture(out, page)
        return
    if grid:
        raise InputError(f"--grid says what auto mixes; a parameter of {algorithm} is --set NAME=VALUE.")
    values = {key: number_or_word(value) for key, value in pairs(parameters, "--set").items()}
    chosen = find_algorithm(algorithm).under(find_penalty(penalty)).configuration(values)
    options = checked(SearchOptions, {"algorithms": {algorithm: values}} | given)
    configuration = Configuration(number=0, algorithm=algorithm, parameters=chosen)
    with progress_bars() as progress:
        steps.train(store, out, configuration, options, cluster, epochs=epochs, progress=progress)
    summarize_model(Model(out))


@command(rich_help_panel=STEPS)
def report(
    run: Run,
) -> None:
    """Write the page and the leaderboard of a run."""
    print(write_report(run))
