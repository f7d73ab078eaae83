"""The steps of a run as commands, implemented by `sparseoco.pipeline.steps`, and analyses of learners."""

from typing import Annotated, Any

import typer

from sparseoco.cli import options as flags
from sparseoco.cli.console import print_error, print_line, print_next, print_table, progress_bars
from sparseoco.cli.options import ANALYSIS, RUNS, STEPS, ClusterFile, ClusterFlags, FeatureFlags, ModelOptions, command
from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.formatting import amount, number_or_text, plural, plus_minus
from sparseoco.core.option_models import validate
from sparseoco.learners import name_learner
from sparseoco.pipeline.run_file import HeldDecision, NightlyOptions, load_run_file
from sparseoco.storage.locations import Location
from sparseoco.store.weighting import FeatureOptions
from sparseoco.text.options import IngestOptions, StoreOptions, TokenizerOptions
from sparseoco.training.options import DEFAULT_ALGORITHM, OptimumOptions, SearchOptions, resolve

INGEST_PANELS = (
    dict.fromkeys(StoreOptions.model_fields, "Reading")
    | dict.fromkeys((*TokenizerOptions.model_fields, "vocabulary"), "Terms")
    | dict.fromkeys(("min_df", "max_df", "max_features", "hash_bits"), "Terms")
    | dict.fromkeys(("duplicates", "encoding_errors", "max_bad_rows"), "Errors and limits")
    | dict.fromkeys(("max_line_bytes", "shard_bytes"), "Errors and limits")
)
IngestFlags = Annotated[
    dict[str, Any],
    ModelOptions(
        IngestOptions, without=("inputs", "store", "holdout"), flags={"classes": "--class"}, panels=INGEST_PANELS
    ),
]
EARLY_STOPPING = "Early stopping"
SearchFlags = Annotated[
    dict[str, Any],
    ModelOptions(SearchOptions, without=("algorithms", "lambda_max"), panels={"time_limit": EARLY_STOPPING}),
]
Halving = Annotated[float | None, typer.Option(rich_help_panel=EARLY_STOPPING)]
TRAIN_FIELDS = (
    *("loss", "penalty", "feature_groups", "intercept", "class_weight", "epochs", "shuffle"),
    *("warm_start", "features_from", "dtype", "seed", "max_memory"),
)
TrainFlags = Annotated[dict[str, Any], ModelOptions(SearchOptions, only=TRAIN_FIELDS)]
NightlyFlags = Annotated[dict[str, Any], ModelOptions(NightlyOptions, defaults=False)]
OptimumFlags = Annotated[dict[str, Any], ModelOptions(OptimumOptions, flags={"alphas": "--alpha"})]


@command(RUNS)
def run(file: Location, *, cluster_file: ClusterFile = None) -> None:
    """Run every step of a run file: ingest, search, train, evaluate, score, report.

    Steps that are complete are not repeated, and an interrupted one resumes. Without a run file, sparseoco init writes
    one.

    Example: sparseoco run reviews.toml
    """
    described = load_run_file(file, cluster_file)
    from sparseoco.cli.summaries import print_inputs, summarize_ingest, summarize_run, summarize_scores
    from sparseoco.pipeline import steps as run_steps
    from sparseoco.pipeline.ahead import compiled_ahead

    print_inputs(list(described.ingest.inputs), described.store, described.text)
    with compiled_ahead(described), progress_bars():
        page = run_steps.run_all(described)
    summarize_ingest(described.store)
    summarize_run(described.out, page, tested=described.evaluate.names_test_set or described.text.holdout > 0)
    if described.score is not None:
        summarize_scores(described.scores)
    print_next("uses the model", "predict", described.out, "INPUT")


@command(STEPS)
def ingest(
    inputs: list[str], *, out: Location | None = None, given: IngestFlags, dry_run: bool = False, cluster: ClusterFlags
) -> None:
    """Convert raw text to Parquet shards of term counts, identical to those of scikit-learn's CountVectorizer.

    First it prints what it understands of the inputs. The input - is standard input.

    Example: sparseoco ingest reviews.jsonl --out shards --where split=train --min-df 2

    Parameters
    ----------
    out : FOLDER
        Folder of the shards; new inputs are appended. Only --dry-run can do without.
    dry_run
        Print what is understood of the inputs, and end before counting.
    """
    options = validate(IngestOptions, given | {"inputs": inputs})
    if out is None and not dry_run:
        raise InputError("--out FOLDER is required; only --dry-run can do without.", code="missing-option")
    from sparseoco.cli.summaries import print_inputs, summarize_ingest, with_stdin
    from sparseoco.pipeline import steps

    with with_stdin(inputs) as files, progress_bars():
        print_inputs(files, out, options.text)
        if dry_run or out is None:
            return
        manifest = steps.ingest_texts(
            files,
            out,
            options.text,
            cluster,
            shard_bytes=options.shard_bytes,
            vocabulary=options.vocabulary,
        )
    print_line(
        f"{out}: {plural(manifest.rows, 'document')}, {plural(manifest.features.count, 'feature')}, "
        f"{plural(manifest.nonzeros, 'nonzero')}, {plural(manifest.n_shards, 'shard')}"
    )
    if manifest.labels.classes:
        print_line("classes: " + ", ".join(f"{entry.name} ({entry.rows:,})" for entry in manifest.labels.classes))
    summarize_ingest(out, manifest)
    print_next("compares configurations and trains the best", "search", out, "--out", "RUN")


@command(STEPS)
def search(
    store: Location,
    *,
    out: Location,
    algorithms: list[str] | None = None,
    grid: list[str] | None = None,
    given: SearchFlags,
    features: FeatureFlags,
    halving: Halving = None,
    threshold: str | None = None,
    cluster: ClusterFlags,
) -> None:
    """Compare configurations by cross-validation, many in one pass, and train the best of them on all the data.

    The folder **--out** gets the metrics of every configuration, the model and the report. If it has results of the
    same store and options, the search resumes, and only what is new is trained.

    Example: sparseoco search shards --out run --algorithm rda --grid gamma=0.5,1 --folds 3

    Parameters
    ----------
    out : FOLDER
        Folder of the run.
    algorithms : --algorithm NAME
        A learner to try (see sparseoco algorithms), or FILE.py:NAME, one of a file of yours; by default adagrad.
        Repeatable.
    grid : [NAME.]PARAMETER=V,V,…
        Values of a parameter, of one learner or of all that have it, instead of the default grid; LOW..HIGH is a range
        to draw from (see --samples), and for lam and alpha relative:V,V,… are values times λ_max, the least penalty at
        which all weights are 0. Repeatable.
    halving : FACTOR
        Successive halving: at each rung within the first pass, keep one configuration in FACTOR.
    threshold : RULE
        How the threshold of a class is chosen on the held-out folds: f1 (the greatest), precision=P or recall=R (at
        least), top=SHARE (of the documents), or none (a margin of 0); by default f1 if a class is rare or the metric
        ranks documents, else none.
    """
    tables = flags.search_tables(algorithms or [DEFAULT_ALGORITHM], grid or [], given.get("penalty", "l1"))
    given |= flags.stated(features=features, algorithms=tables, threshold=threshold, halving=halving)
    options = validate(SearchOptions, given)
    from sparseoco.cli.summaries import summarize_run
    from sparseoco.pipeline import steps
    from sparseoco.report.page import write_report

    with progress_bars():
        steps.search(store, out, options, cluster, name=out.resolve().name)
        steps.train_best(store, out, cluster)
        page = write_report(out)
    summarize_run(out, page, tested=False)
    print_next("tests the model on other text", "evaluate", out, "INPUT")


@command(STEPS)
def train(
    store: Location,
    *,
    out: Location,
    given: TrainFlags,
    features: FeatureFlags,
    cluster: ClusterFlags,
    algorithm: str = DEFAULT_ALGORITHM,
    parameters: list[str] | None = None,
) -> None:
    """Train one configuration on all the data.

    Parameters that are not set have the defaults of the learner (see **sparseoco algorithms NAME**).
    **sparseoco search** compares their values.

    Example: sparseoco train shards --out model --algorithm rda --set lam=1e-4 --epochs 2

    Parameters
    ----------
    out : FOLDER
        Folder of the model.
    algorithm : NAME
        The learner (see sparseoco algorithms), or FILE.py:NAME, one of a file of yours.
    parameters : --set PARAMETER=VALUE
        A parameter of the learner (see sparseoco algorithms). Repeatable.
    """
    values = {name: number_or_text(value) for name, value in flags.pairs(parameters, "--set").items()}
    given["features"] = validate(FeatureOptions, features)
    _ = given["features"].weighting  # one only
    options = validate(SearchOptions, given | {"algorithms": {name_learner(algorithm): values}})
    from sparseoco.cli.summaries import NEW, summarize_model, warn_of_classes, warn_of_other_model
    from sparseoco.pipeline import steps
    from sparseoco.store.shards import Store
    from sparseoco.training.models import Model

    with progress_bars():
        options = resolve(options, Store.open(store))
        (configuration,) = options.configurations()
        warn_of_other_model(out, configuration, options)
        steps.train(store, out, configuration, options, cluster, epochs=options.epochs)
    model = Model(out)
    warn_of_classes(model.never_predicted, NEW)
    summarize_model(model)
    print_next("tests the model on other text", "evaluate", out, "INPUT")


@command(RUNS)
def report(run: Location) -> None:
    """Write the report and the leaderboard of a run.

    Commands that run a search write both. Use this one after a new version of sparseoco; nothing is trained.

    Example: sparseoco report run
    """
    from sparseoco.report.page import write_report

    print_line(write_report(run))


@command(RUNS)
def nightly(
    file: Location,
    *,
    given: NightlyFlags,
    cluster_file: ClusterFile = None,
    rollback: flags.Count = None,
    accept: bool = False,
    discard: bool = False,
) -> None:
    """Ingest new files, evaluate the deployed model on them, continue training, and promote a better model.

    The first increment trains every configuration of the search. Later ones continue where training stopped, and end at
    once if no file is new. A new file that cannot be read is named and left out until it changes. An increment unlike
    those before is held: the command ends with exit code 4, now and until the increment is accepted or discarded.
    Options given here override those of the run file's [nightly] table.

    Example: sparseoco nightly nightly.toml --keep-models 7

    Parameters
    ----------
    rollback : INCREMENT
        Deploy the model of this increment again, until a later increment promotes another; nothing is ingested or
        trained.
    accept
        Learn the increment that is held.
    discard
        Remove the increment that is held, and leave its files out until they change.
    """
    described = load_run_file(file, cluster_file)
    options = validate(NightlyOptions, described.nightly.model_dump() | given)
    described = described.model_copy(update={"nightly": options})
    of_run = [*given.keys() - {"if_running"}, *["accept"] * accept, *["discard"] * discard]
    for name in of_run if rollback is not None else ():
        raise unsupported(
            f"--{name.replace('_', '-')} is of a run, and --rollback only deploys an earlier model: leave it out."
        )
    if accept and discard:
        raise unsupported("An increment that is held is either accepted or discarded: leave out --accept or --discard.")
    from sparseoco.cli.summaries import summarize_ingest
    from sparseoco.pipeline.nightly import increment_line, left_out_lines, roll_back, run_nightly

    with progress_bars():
        held: HeldDecision | None = "accepted" if accept else "discarded" if discard else None
        outcome = roll_back(described, rollback) if rollback else run_nightly(described, held)
    for line in left_out_lines(outcome.left_out):
        print_error(line)
    for increment in outcome.increments:
        print_line(increment_line(increment))
    if outcome.increments:
        summarize_ingest(described.store)
    if outcome.message:
        print_line(outcome.message)
    if outcome.page is not None:
        print_line(f"report: {outcome.page}")
        print_next("shows the increments", "status", described.out)


# ----------------------------------------------------------------------------------------------------------------------
# What learners are compared with: the offline optimum and regret.


@command(ANALYSIS)
def optimum(
    store: Location, *, out: Location, given: OptimumFlags, features: FeatureFlags, cluster: ClusterFlags
) -> None:
    """Minimise the regularised loss over all the data, to a certified duality gap, for each alpha.

    The weights of each alpha are saved as a model: the best that any learner of the same objective can reach.

    Example: sparseoco optimum shards --out optimum --alpha 1,10

    Parameters
    ----------
    out : FOLDER
        Folder of the tables and models.
    """
    options = validate(OptimumOptions, given | {"weighting": validate(FeatureOptions, features).weighting})
    from sparseoco.pipeline import comparators
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars():
        folder = comparators.optimum(store, out, options, cluster)
    rows, table = read_parquet_file(folder / "optimum.parquet").to_pylist(), list[tuple[str, ...]]()
    for row in rows:
        reached = f"{row['objective']:.9g}", f"{row['gap']:.2g}", f"{row['relative_gap']:.1e}"
        table.append((f"{row['alpha']:g}", row["class"], *reached, f"{row['passes']:,}", f"{row['nonzeros']:,}"))
    print_table(("alpha", "class", "objective", "gap", "relative gap", "passes", "nonzeros"), table, numbers=5)
    print_line(f"models: {folder}/alpha-*")
    if not all(row["converged"] for row in rows):
        print_error(f"Not converged to {options.tol:g}: allow more passes (--max-passes) or a larger gap (--tol).")


@command(ANALYSIS)
def regret(
    run: Location,
    *,
    configuration: list[int] | None = None,
    marks: Annotated[int | None, typer.Option(min=3)] = None,
    tol: float | None = None,
    store: Location | None = None,
    cluster: ClusterFlags,
) -> None:
    """Compute the regret of learners against the best fixed weights: curves, slopes and the papers' bounds.

    For epoch methods, the convergence of the objective to its optimum.

    Example: sparseoco regret run --configuration 1

    Parameters
    ----------
    configuration : N
        Number of a configuration in the leaderboard; by default the best of each algorithm. Repeatable.
    marks : N
        Rounds at which regret is computed, spaced logarithmically; by default 12.
    tol : X
        Duality gap of the optima, relative to the objective at 0; by default 0.001.
    store : STORE
        Folder of the shards; by default that of the run itself.
    """
    given = flags.stated(marks=marks, tol=tol)
    from sparseoco.pipeline import comparators
    from sparseoco.report.page import write_report
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars():
        folder = comparators.regret(run, cluster, numbers=configuration, store_folder=store, **given)
        page = write_report(run)
    rows = list[tuple[Any, ...]]()
    for end in read_parquet_file(folder / "slopes.parquet").to_pylist():
        figures = f"{end['status']}: {end['reason']}", "", "", ""
        if end["regret"] is not None:
            slope = plus_minus(end["slope"], end["slope_error"])
            figures = amount(end["regret"]), amount(end["per_round"]), slope, amount(end["bound"])
        rows.append((end["configuration"], end["algorithm"], *figures))
    print_table(("no.", "algorithm", "regret", "per round", "slope", "bound"), rows, numbers=4)
    print_line(f"report: {page}")
