"""Commands that inform: algorithms, errors, schema and others."""

import inspect
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparseoco.cli.app import ANALYSIS, INFORMATION, RUNS, START, command
from sparseoco.cli.console import output, print_line, print_next, print_table, progress_bars
from sparseoco.cli.options import ClusterFile, Count, stated
from sparseoco.core.error_codes import GROUPS, error_entries
from sparseoco.core.errors import InputError
from sparseoco.core.formatting import did_you_mean, duration, not_one_of, plural
from sparseoco.papers import PAPERS
from sparseoco.storage.locations import Location

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm
    from sparseoco.ops.status import Status

# ----------------------------------------------------------------------------------------------------------------------
# Commands that show things: the demonstration, the learners, checks of a run and its progress, papers' experiments.


DRIVERS = {
    "stream": "Online, over the nonzero features of each row",
    "dense": "Online, over all features in each round: for few features (see --features-from)",
    "epoch": "Full passes over the data, with rounds over randomly drawn rows",
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

    with progress_bars() as progress:
        described, page = run_demo(out, progress)
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
    from sparseoco.learners import ALGORITHMS, find_algorithm

    if learner is not None:
        _print_algorithm(find_algorithm(learner))
        return
    for driver, title in DRIVERS.items():
        output.print(f"[reverse]{title}[/reverse]\n")
        for algorithm in (algorithm for algorithm in ALGORITHMS.values() if algorithm.driver == driver):
            _print_formula(algorithm)
    print_line("Parameters of one of them: sparseoco algorithms NAME")


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
        raise InputError("--cluster is of a run: name a run file too.", code="unsupported-combination")
    from sparseoco.ops.doctor import examine

    findings = examine(file, cluster_file)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            suffix = f" [{finding.code}]" if finding.code else ""
            print_line(f"{finding.state:<8}  {finding.subject}: {finding.message}{suffix}")
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(1)


@command(RUNS)
def status(
    run: Location, *, as_json: bool = False, watch: Annotated[float | None, typer.Option(min=0.5)] = None
) -> None:
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
        print(json.dumps(_plain(found) | {"under_way": found.under_way})) if as_json else _print_status(found)
        if watch is None or found.ended:
            return
        time.sleep(watch)
        print_line()


def _plain(value: Any) -> Any:
    """Named tuples as dicts."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


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


@command(ANALYSIS)
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="; ".join(f"{name}: {paper.meaning}" for name, paper in PAPERS.items()) + ".")
    ],
    *,
    data: Path,
    out: Path,
    repetitions: Annotated[int | None, typer.Option(min=2)] = None,
    draws: Annotated[int | None, typer.Option(min=2)] = None,
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
        raise InputError(
            f"The experiments of {paper} have no --{name.replace('_', '-')}.", code="unsupported-combination"
        )
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars() as progress:
        page = run(data, out, **options, progress=progress)
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
