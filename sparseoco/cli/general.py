"""Commands that are not about one step or one model: first files and corpora, checks and progress, the reference."""

import inspect
import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparseoco.cli.console import as_dicts, names_of_keys, output, print_line, print_next, print_table, progress_bars
from sparseoco.cli.options import ANALYSIS, INFORMATION, RUNS, START, ClusterFile, Count, command, size_in_bytes, stated
from sparseoco.core.errors import GROUPS, InputError, error_entries, unsupported
from sparseoco.core.formatting import did_you_mean, duration, not_one_of, plural
from sparseoco.papers import PAPERS
from sparseoco.storage.locations import Location

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm
    from sparseoco.ops.status import Status

# ----------------------------------------------------------------------------------------------------------------------
# The command that writes a first run file.


@command(START)
def init(inputs: list[str], *, out: Path = Path("run.toml"), force: bool = False) -> None:
    """Write a run file for your data, with comments, after looking at a sample of it.

    It chooses the fields of the text and of the label, finds out whether labels are classes, lists of classes or
    numbers, uses a split into training and test data if there is one, and shows other options in comments. It says what
    would not be read or learned. Otherwise the file runs as it is: check what was chosen, and change what is wrong.

    Example: sparseoco init reviews.jsonl --out reviews.toml

    Parameters
    ----------
    out : RUN_FILE
        The run file to write (.toml).
    force
        Replace the file if it exists.
    """
    if out.suffix != ".toml":
        raise InputError(f"{out}: the name of a run file must end in .toml.", code="unknown-format")
    if out.exists() and not force:
        raise InputError(f"{out} exists: replace it with --force, or choose another --out.", code="file-exists")
    import tomllib

    from sparseoco.cli.summaries import describe_kind, print_lists
    from sparseoco.pipeline.init import propose, run_file_text
    from sparseoco.pipeline.run_file import parse_run_file
    from sparseoco.storage.commit import commit_bytes
    from sparseoco.storage.locations import absolute_path
    from sparseoco.text.options import TextOptions
    from sparseoco.text.sources import check_apart

    check_apart(out, inputs, TextOptions(), is_file=True)
    if any(absolute_path(item) == absolute_path(str(out.with_suffix(""))) for item in inputs):
        raise unsupported(
            f"A run of {out} is written to the folder {out.stem} beside it, which is an input: choose another --out, "
            f"such as {out.stem}-run.toml."
        )
    with names_of_keys():
        found, proposal = propose(list(inputs))
    text = run_file_text(list(inputs), out, proposal)
    name = out.name.removesuffix(".toml")
    run = parse_run_file({"name": name, "out": name} | tomllib.loads(text), source=str(out), folder=out.parent)
    for kind in found.kinds:
        for line in describe_kind(kind, run.ingest.text):
            print_line(line)
    print_lists(found)
    commit_bytes(out, text.encode())
    for warning in proposal.warnings:
        print_line(f"warning: {warning}")
    print_line(f"run file: {out}")
    name = shlex.quote(str(out))
    if proposal.problem is not None:
        print_line(f"warning: {proposal.problem}")
        print_line(f"next: correct the file, then sparseoco doctor {name}")
    else:
        print_line(f"next: sparseoco doctor {name}, then sparseoco run {name}")


# ----------------------------------------------------------------------------------------------------------------------
# Commands that get corpora: public ones, and synthetic ones.


@command(START)
def fetch(corpus: str | None = None, *, out: Path = Path("corpora"), local: Path | None = None) -> None:
    """Download a public corpus and verify its checksum.

    It prints the [ingest] table of a run file for the corpus. **--from** takes a copy that you have downloaded.

    Example: sparseoco fetch imdb --out corpora

    Parameters
    ----------
    corpus : NAME
        A corpus; by default, list them.
    out : FOLDER
        Local folder of the corpora.
    local : --from PATH
        The downloaded file, or a folder of such files, to use instead of the network.
    """
    from sparseoco.datasets import corpora

    if corpus is None:
        if local is not None:
            raise unsupported("--from is a copy of a corpus: name it too.")
        cards = corpora.list_cards()
        print_table(("name", "title", "licence"), [(card.name, card.title, card.licence) for card in cards])
        return
    with progress_bars():
        fetched = corpora.fetch(corpus, out, local=local)
    print_line(fetched.folder)
    print(f"In a run file:\n\n{fetched.ingest_table()}")
    print_next("writes a whole run file", "init", *fetched.inputs)


@command(START)
def generate(
    out: Location,
    *,
    size: str,
    files: Count = None,
    vocabulary: int = 1_000_000,
    exponent: float = 1.1,
    classes: int = 2,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Generate a synthetic corpus: JSON lines of Zipf-distributed words, labelled by the few words in planted.json.

    Use it to measure ingest and search at a size of your choice; the same options give the same bytes.

    Example: sparseoco generate corpus --bytes 1MB --vocabulary 5000

    Parameters
    ----------
    out : OUT
        Folder of the corpus: OUT/text and OUT/planted.json.
    size : --bytes SIZE
        Total size of the files: 500MB, 5GB.
    files : N
        Number of files; by default one per 256 MiB.
    vocabulary : N
        Number of distinct words.
    exponent : X
        Exponent of Zipf's law.
    classes : N
        Number of classes.
    seed : N
        Seed of the text.
    """
    from sparseoco.datasets import synthetic

    total = size_in_bytes(size, "--bytes")
    corpus = synthetic.SyntheticCorpus(
        total, files or -(-total // synthetic.FILE_BYTES), vocabulary, exponent, classes, seed
    )
    with progress_bars():
        synthetic.generate(corpus, out)
    print_line(out / "text")
    print_next("converts it to shards", "ingest", out / "text", "--out", "STORE")


# ----------------------------------------------------------------------------------------------------------------------
# Commands that show things: the demonstration, the learners, checks of a run and its progress, papers' experiments.


DRIVERS = {
    "stream": "Online, over the nonzero features of each row",
    "dense": "Online, over all features in each round: for few features (see --features-from)",
    "epoch": "Full passes over the data, with rounds over randomly drawn rows",
    "pass": "Full passes over the data, a round each",
    "coordinate": "Rounds over randomly drawn features",
}
"""The kinds of learners, by `Algorithm.driver`, in the order of the list."""


@command(START)
def demo(*, out: Path = Path("demo-run")) -> None:
    """Classify the docstrings of the installed packages by library, and write a report.

    It needs no data and no network: the corpus is written to **--out**, and so are the run and its report.

    Example: sparseoco demo --out demo-run

    Parameters
    ----------
    out : FOLDER
        Folder of the demonstration.
    """
    from sparseoco.cli.summaries import summarize_run
    from sparseoco.pipeline.demo import run_demo

    with progress_bars():
        described, page = run_demo(out)
    summarize_run(described.out, page, tested=True)
    print_next("writes a run file for your own text", "init", "INPUT")


@command(ANALYSIS)
def algorithms(learner: str | None = None) -> None:
    """List the learners, or show one: formula, source, losses, penalties, parameters and default grid.

    The parameters are those of **train --set** and **search --grid**, and of a table of a run file's [search].

    Example: sparseoco algorithms cl-fobos

    Parameters
    ----------
    learner : NAME
        A learner to show in full; by default, list them all.
    """
    from sparseoco.learners import ALGORITHMS, find_algorithm, installed_learners, name_learner

    if learner is not None:
        _print_algorithm(find_algorithm(name_learner(learner)))
        return
    for installed in installed_learners():
        name_learner(installed)
    for driver, title in DRIVERS.items():
        output.print(f"[reverse]{title}[/reverse]\n")
        for algorithm in (algorithm for algorithm in ALGORITHMS.values() if algorithm.driver == driver):
            _print_formula(algorithm)
    print_line("Parameters of one of them: sparseoco algorithms NAME")


@command(ANALYSIS)
def check_learner(learner: str, *, dense: bool = True) -> None:
    """Check a learner of yours against what the loops rely on, and name the first step that fails.

    Its functions are played in Python on a small stream, with every penalty and every choice of a parameter: weights
    are finite, and those that lazy updates give are those of updating every coordinate in every round. Then the
    compiled loops learn the same rows: the bits are the same for any chunks, columns, and after save and load.
    The exit code is 1 if a check fails. The docstring of sparseoco.training.check has the details.

    Example: sparseoco check-learner ./mine.py:NAME

    Parameters
    ----------
    learner : FILE.py:NAME
        The variable of a file that has the learner, or the name of an installed one.
    dense : --dense/--no-dense
        Compare with updates of every coordinate. Leave it out for a method that treats the features of a row
        differently by definition, as a cumulative penalty does.
    """
    from sparseoco.learners import name_learner
    from sparseoco.training.check import check_learner as findings

    failed = False
    for check, problem in findings(name_learner(learner), dense=dense):
        print_line(f"{'FAILED' if problem else 'ok':<8}{check}" + f": {problem}" * bool(problem))
        failed = failed or bool(problem)
    if failed:
        raise typer.Exit(1)


def _print_formula(algorithm: "Algorithm") -> None:
    output.print(f"[bold]{algorithm.name}[/bold]  {algorithm.source}")
    output.print(f"    {algorithm.formula}\n", markup=False)


def _print_algorithm(algorithm: "Algorithm") -> None:
    _print_formula(algorithm)
    print_line(f"trained: {DRIVERS[algorithm.driver][0].lower()}{DRIVERS[algorithm.driver][1:]}")
    print_line(f"losses: {', '.join(algorithm.loss_names)}")
    others = f" (no others: {algorithm.why})" if len(algorithm.penalties) == 1 else ""
    print_line(f"penalties: {', '.join(algorithm.penalties)}{others}")
    print_line("parameters:")
    for parameter in algorithm.parameters:
        print_line(f"    {parameter.name} = {parameter.default}  {parameter.meaning}")
        if parameter.choices:
            print_line(f"        one of {', '.join(parameter.choices)}")
        if parameter.grid:
            print_line(f"        searched by default: {', '.join(map(str, parameter.grid))}")


@command(RUNS)
def doctor(file: Location | None = None, *, cluster_file: ClusterFile = None, as_json: bool = False) -> None:
    """Check whether a run would succeed here, and how much memory it takes.

    Problems are listed first; the exit code is 1 if there are any.

    Example: sparseoco doctor reviews.toml

    Parameters
    ----------
    file : RUN_FILE
        Path or URI of a run file (TOML); by default only this machine is checked.
    """
    if cluster_file is not None and file is None:
        raise unsupported("--cluster is of a run: name a run file too.")
    from sparseoco.ops.doctor import examine

    findings = examine(file, cluster_file)
    if as_json:
        print(json.dumps(as_dicts(findings), indent=1))
    else:
        for finding in findings:
            suffix = f" [{finding.code}]" if finding.code else ""
            print_line(f"{finding.state:<8}  {finding.subject}: {finding.message}{suffix}")
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(1)


Interval = Annotated[float | None, typer.Option(min=0.5)]


@command(RUNS)
def status(run: Location, *, as_json: bool = False, watch: Interval = None) -> None:
    """Show the progress of a run, read from its files: steps, cells, the best so far, running processes.

    It never changes the run, and works from any machine that reads its folder.

    Example: sparseoco status reviews

    Parameters
    ----------
    run : RUN
        Folder of a run, of shards, of a model or of scores.
    watch : SECONDS
        Repeat at this interval until the run is complete.
    """
    from sparseoco.ops.status import read_status

    while True:
        found = read_status(run)
        print(json.dumps(as_dicts(found) | {"under_way": found.under_way})) if as_json else _print_status(found)
        if watch is None or found.ended:
            return
        time.sleep(watch)
        print_line()


def _print_status(found: "Status") -> None:
    name = f"{found.name}: " if found.name else ""
    written = "" if found.seconds is None else f", last written {duration(found.seconds)} ago"
    print_line(f"{name}{found.run}{written}")
    for lock in found.locks:
        print_line(lock.message)
    if not found.locks and not found.ended:
        print_line("no process is running")
    for step in found.steps:
        print_line(f"{step.name:<8}  {step.state:<11}  {step.summary}".rstrip())
    if found.increments is not None:
        from sparseoco.pipeline.nightly import left_out_lines

        print_line(found.increments.summary)
        for line in left_out_lines(found.increments.left_out):
            print_line(line)
    for error in found.errors:
        print_line(f"failed: {error}")


@command(RUNS)
def clean(run: Location, *, keep_models: Count = None, dry_run: bool = False) -> None:
    """Remove what no later run, rollback or report needs, and print how much it was.

    That is: models beyond **--keep-models**, results of other settings than those in run.json, data files that no
    manifest lists, and staging files of an earlier boot.

    Example: sparseoco clean reviews --dry-run

    Parameters
    ----------
    run : RUN
        Folder of a run, of nightly runs or of shards.
    keep_models : N
        Of nightly runs, keep the models of the last N promotions and the deployed one; by default all.
    dry_run
        Print what would be removed, and end.
    """
    from dask.utils import format_bytes

    from sparseoco.ops.status import clean as remove

    removed = remove(run, keep_models=keep_models, dry_run=dry_run)
    for entry in removed:
        print_line(f"{entry.kind}: {plural(entry.files, 'file')}, {format_bytes(entry.bytes)}")
    if not removed:
        print_line("nothing to remove")
    elif dry_run:
        print_line("nothing was removed (--dry-run)")


PAPER_HELP = "; ".join(f"{name}: {paper.meaning}" for name, paper in PAPERS.items()) + "."
PaperName = Annotated[str, typer.Argument(help=PAPER_HELP)]
Repetitions = Annotated[int | None, typer.Option(min=2)]


@command(ANALYSIS)
def reproduce(
    paper: PaperName,
    *,
    data: Path,
    out: Path,
    repetitions: Repetitions = None,
    draws: Repetitions = None,
    rounds: Count = None,
    domain: str | None = None,
) -> None:
    """Repeat a paper's experiments: tables, figures, and which of its claims hold.

    Experiments on data sets that are not in the folder are left out, and the page names them.

    Example: sparseoco reproduce cl-fobos --data corpora --out cl-fobos

    Parameters
    ----------
    paper : PAPER
        The paper.
    data : FOLDER
        Folder of the paper's data sets; experiments on missing ones are skipped.
    out : FOLDER
        Folder of the tables and the page.
    repetitions : N
        Repetitions of randomised experiments.
    draws : N
        onseg: random draws of stocks.
    rounds : N
        cl-fobos: examples per run.
    domain : NAME
        cl-fobos: domain of the reviews; by default the first in the folder.
    """
    if paper not in PAPERS:
        raise InputError(f"Unknown paper {paper!r}: {not_one_of(paper, PAPERS)}.", code="unknown-paper")
    options = stated(repetitions=repetitions, draws=draws, rounds=rounds, domain=domain)
    run = PAPERS[paper].load()
    for name in options.keys() - inspect.signature(run).parameters.keys():
        raise unsupported(f"The experiments of {paper} have no --{name.replace('_', '-')}.")
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars():
        page = run(data, out, **options)
    claims = read_parquet_file(out / "claims.parquet").to_pylist()
    print_table(("claim", "where", "holds here"), [(row["claim"], row["where"], row["holds"]) for row in claims])
    print_line(f"report: {page}")


# ----------------------------------------------------------------------------------------------------------------------
# Commands that print the reference: what the codes of errors mean, and the JSON Schema of run files.


@command(INFORMATION)
def errors(code: str | None = None) -> None:
    """Explain the code of an error.

    It prints what the error means, what to do, and the exit code of a command that ends with it; without a code, all
    codes.

    Example: sparseoco errors missing-field

    Parameters
    ----------
    code : CODE
        The code in brackets at the end of an error; by default all.
    """
    entries = error_entries()
    if code is None:
        for group, title in GROUPS.items():
            print_line(f"{title}: {', '.join(name for name, entry in entries.items() if entry.group == group)}")
        return
    name = code.strip("[]")
    if name not in entries:
        hint = did_you_mean(name, entries) or "sparseoco errors lists them."
        raise InputError(f"There is no error with the code {name!r}: {hint}", code="unknown-error-code")
    entry = entries[name]
    print_line(entry.meaning)
    print_line(entry.remedy)
    print_line(f"exit code {' or '.join(map(str, entry.exit))}")


@command(INFORMATION)
def schema() -> None:
    """Print the JSON Schema of run files.

    With it editors complete keys, show what they mean and mark mistakes; the first line of a run file names it:
    #:schema ./run-file.schema.json

    Example: sparseoco schema
    """
    from sparseoco.pipeline.run_file import run_file_schema

    print(json.dumps(run_file_schema(), indent=1, ensure_ascii=False))
