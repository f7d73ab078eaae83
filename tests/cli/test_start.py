"""How commands start, and where: imports, help, completion, examples, places."""

import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from sparseoco.cli import app
from sparseoco.cli.console import error_exits
from sparseoco.datasets.corpora import list_cards
from sparseoco.learners import algorithm_names
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.papers import PAPERS
from sparseoco.training.options import LOSS_NAMES, METRICS, PENALTY_NAMES
from tests.support.commands import Cli, call
from tests.support.forks import Forks
from tests.support.texts import write_reviews

# ----------------------------------------------------------------------------------------------------------------------
# Commands start without loading numerical libraries that they do not need.


HEAVY = {"dask", "distributed", "numba", "numpy", "pandas", "prefect", "pyarrow", "scipy", "sklearn"}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Forks of a process that has only imported the command line, and what its help is printed with."""
    folder = tmp_path_factory.mktemp("light") / "folder"
    folder.mkdir()
    with Forks(folder, imports=("sparseoco.cli", "typer.rich_utils")) as forks:
        yield forks


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--help", 0, ""),
        ("--version", 0, ""),
        ("search --help", 0, ""),
        ("train --help", 0, ""),
        ("reproduce --help", 0, ""),
        ("serach", 2, "search"),
        ("search", 2, ""),
        ("search STORE --out RUN --fold 3", 2, "--folds"),
        ("search STORE --out RUN --algorithm cl-fobo", 2, "cl-fobos"),
        ("train STORE --out MODEL --algorithm cl-fobo", 2, "cl-fobos"),
        ("ingest text --out STORE --min-df few", 2, "few"),
        ("run none.toml", 2, "none.toml"),
    ],
)
def test_help_and_usage_errors_load_no_numerical_library(light: Forks, arguments: str, code: int, said: str) -> None:
    end = light.run(arguments.split())
    assert end.code == code
    assert said in end.err
    assert not end.loaded & HEAVY


def test_predict_loads_only_what_predicts(light: Forks, tmp_path: Path, cli: Cli) -> None:
    reviews, store, model = write_reviews(tmp_path / "reviews.jsonl"), tmp_path / "store", tmp_path / "model"
    cli("ingest", reviews, "--out", store)
    cli("train", store, "--out", model)
    end = light.run(["predict", str(model)], "the tide, the boat\nmoss; leaf\n")
    assert (end.code, end.out) == (0, "sea\nwood\n")
    assert {"numba", "pyarrow"} <= end.loaded
    assert not end.loaded & {"dask", "distributed", "jinja2", "prefect", "sklearn"}


# ----------------------------------------------------------------------------------------------------------------------
# Values and options that the shell completes, and how quickly.


def completed(light: Forks, words: str, shell: str = "bash") -> list[str]:
    """The completions of the last of these words, which load no numerical library."""
    end = light.run(
        [],
        _SPARSEOCO_COMPLETE=f"complete_{shell}",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
        _TYPER_COMPLETE_ARGS=words,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert "Traceback" not in end.err
    assert not end.loaded & HEAVY
    return [value for value in end.out.splitlines() if value]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("sparseoco ev", ["evaluate"]),
        ("sparseoco search shards --algorithm cl", ["cl-fobos"]),
        ("sparseoco train shards --algorithm aro", ["arow"]),
        ("sparseoco search shards --metric roc", ["roc_auc"]),
        ("sparseoco search shards --loss ", ["auto", *LOSS_NAMES]),
        ("sparseoco search shards --penalty ", list(PENALTY_NAMES)),
        ("sparseoco fetch ", [card.name for card in list_cards()]),
        ("sparseoco reproduce ", list(PAPERS)),
        ("sparseoco algorithms ", algorithm_names()),
        ("sparseoco search shards --shuf", ["--shuffle"]),
        ("sparseoco ingest reviews.jsonl --format c", ["csv"]),
        ("sparseoco ingest rev", []),  # the shell completes files
        ("sparseoco predict mod", []),
    ],
)
def test_values_are_completed_without_numerical_libraries(light: Forks, words: str, values: list[str]) -> None:
    assert completed(light, words) == values


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(light: Forks, shell: str) -> None:
    assert "roc_auc" in "\n".join(completed(light, "sparseoco search shards --metric roc", shell))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(light: Forks, tmp_path: Path, shell: str) -> None:
    disabled = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"
    end = light.run(["--install-completion", shell], **{"HOME": str(tmp_path), disabled: "1"})
    assert end.code == 0, end.err
    scripts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_SPARSEOCO_COMPLETE" in script or "sparseoco" in script for script in scripts)


def test_names_are_those_of_the_registries(light: Forks) -> None:
    assert list(LOSS_NAMES) == list(LOSSES)
    assert list(PENALTY_NAMES) == list(PENALTIES)
    assert completed(light, "sparseoco search shards --metric ") == list(METRICS)


# ----------------------------------------------------------------------------------------------------------------------
# The examples of the help pages: each command has one, all are right, and those that need no network or hours run.


GROUP = typer.main.get_command(app)
CONTEXT = GROUP.make_context("sparseoco", [], resilient_parsing=True)
HELP = {name: str(GROUP.get_command(CONTEXT, name).help) for name in GROUP.list_commands(CONTEXT)}
EXAMPLES = {name: re.findall(r"^ *Example: sparseoco (.+)$", text, re.MULTILINE) for name, text in HELP.items()}
NOT_RUN = {
    "check-learner": "needs a file of the user: tests/learners/test_outside",
    "demo": "takes minutes",
    "fetch": "needs a network",
    "leaderboard": "ranks runs with test documents: tests/pipeline/test_leaderboard",
    "reproduce": "needs the data of a paper",
    "nightly": "trains what run has trained: tests/pipeline/nightly",
}


@pytest.mark.parametrize("name", HELP)
def test_every_command_has_a_summary_a_paragraph_and_an_example_and_describes_its_parameters(name: str) -> None:
    assert all(parameter.help for parameter in GROUP.get_command(CONTEXT, name).get_params(CONTEXT))  # type: ignore[attr-defined]
    summary, paragraph, *others = HELP[name].split("\n\n")
    assert summary.endswith(".")
    assert "\n" not in summary
    assert not paragraph.startswith("Example:")
    assert others[-1].startswith("Example:")
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        first, *arguments = shlex.split(example)
        assert first == name
        GROUP.get_command(CONTEXT, first).make_context(first, arguments)  # raises for unknown options and values


def test_examples_of_help_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "reviews.jsonl", rows=80)
    (tmp_path / "measurements.csv").write_text("length,width,species\n5,3,iris\n7,4,rose\n6,2,iris\n8,4,rose\n")
    later = ("status", "report", "clean", "regret", "doctor")  # need what other examples write
    assert EXAMPLES.keys() >= {"init", "run", "ingest", "search", "train", "predict", "evaluate", *NOT_RUN, *later}
    names = [name for name in EXAMPLES if name not in (*NOT_RUN, *later)]
    assert all(cli(*shlex.split(example)).out for name in (*names, *later) for example in EXAMPLES[name])


# ----------------------------------------------------------------------------------------------------------------------
# Where commands write, and the limits of the system that they run in.


@pytest.mark.fault(58)
def test_names_not_in_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    reviews, bad = write_reviews(tmp_path / "reviews.jsonl", rows=10), tmp_path / "d\udcff"
    bad.mkdir()
    for command in (
        ("ingest", reviews, "--out", bad / "store"),
        ("train", tmp_path, "--out", bad / "model"),
        ("status", bad),
        ("run", bad / "run.toml"),
        ("predict", bad, reviews),
        ("evaluate", tmp_path, reviews, "--predictions", bad / "x.parquet"),
        ("--log", bad / "log", "status", tmp_path),
    ):
        assert call(monkeypatch, *command) == 2
        error = capfd.readouterr().err
        assert r"d\xff" in "".join(error.replace("│", "").split())  # whose lines may be in a box
        assert "Traceback" not in error
    monkeypatch.chdir(bad)
    assert call(monkeypatch, "ingest", reviews, "--out", "store") == 2
    assert os.listdir(os.fsencode(bad)) == []


@pytest.mark.fault(43)
def test_folders_with_odd_names(tmp_path: Path, cli: Cli) -> None:
    reviews = write_reviews(tmp_path / "reviews.jsonl", rows=10)
    for name in ('a\nb "q" *?[\t', "-d", "é" * 127 + "x"):
        store = tmp_path / name
        cli("ingest", reviews, "--out", store)
        assert str(store).replace("\n", r"\n").replace("\t", r"\t") in cli("status", store).out


@pytest.mark.fault(3)
@pytest.mark.parametrize("limit_bytes", [200_000_000, 250_000_000, 400_000_000, 700_000_000])
def test_less_memory_than_the_libraries_need(limit_bytes: int, tmp_path: Path) -> None:
    """OpenBLAS would wait for memory without end at some of these limits, and abort at others."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    command = [sys.executable, "-m", "sparseoco", "ingest", str(write_reviews(tmp_path / "a.jsonl")), "--out"]
    done = subprocess.run(
        [*command, str(tmp_path / "store")], capture_output=True, text=True, check=False, preexec_fn=limit
    )
    assert done.returncode == 1
    assert "[out-of-memory]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.fault(3, 19)
def test_what_libraries_say_of_limits_and_connections(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = OSError("Could not find/load shared object file 'libllvmlite.so'")  # as llvmlite raises it
    hidden.__context__ = OSError("libllvmlite.so: failed to map segment from shared object")
    for error, said in (
        (hidden, "[out-of-memory]\n"),
        (RuntimeError("can't start new thread"), "[no-threads]\n"),
        (TimeoutError(), "sparseoco: TimeoutError. [io-error]\n"),
    ):
        with pytest.raises(SystemExit) as ended, error_exits():
            raise error
        assert ended.value.code == 1
        assert capsys.readouterr().err.endswith(said)
    with pytest.raises(RuntimeError), error_exits():
        raise RuntimeError("another")
