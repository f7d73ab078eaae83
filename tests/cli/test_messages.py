"""What commands say of common mistakes: the key, file or option that matters, and what to do."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sparseoco.cli import console
from sparseoco.cli.console import ProgressLines, progress_bars, rate
from sparseoco.cli.summaries import learner_line
from sparseoco.core.formatting import plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.run_file import name_keys
from tests.support.commands import call
from tests.support.texts import write_reviews


@pytest.mark.parametrize(
    ("name", "data", "values", "others"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n',
            ["label field 'label' is missing", "'text'", "--label-field"],
            ["--text-field", "--max-bad-rows"],
        ),
        ("a.jsonl", '{"text": "a"}\n{"text": "b", "label": "x"}\n', ["--max-bad-rows"], ["--label-field"]),
        ("a.jsonl", '{"text": "a", "label": null}\n', ["label field 'label' is null", "--max-bad-rows"], []),
        ("a.jsonl", '{"text": null, "label": "x"}\n', ["text field 'text' is null"], ["--text-field"]),
        ("a.csv", "good,pos\nbad,neg\n", ["'good', 'pos'", "--text-field", "--label-field", "--no-header"], []),
        ("a.tsv", "text\tstars\ngood\tpos\n", ["'text', 'stars'", "--label-field"], ["--text-field"]),
        ("a.csv", "text,label\ngood,nan\n", ["label field 'label' is missing", "--max-bad-rows"], ["--label-field"]),
    ],
)
def test_a_field_that_is_missing_or_null(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    data: str,
    values: list[str],
    others: list[str],
) -> None:
    (tmp_path / name).write_text(data)
    assert call(monkeypatch, "ingest", tmp_path / name, "--out", tmp_path / "store") == 2
    error = capsys.readouterr().err
    assert error.endswith("[missing-field]\n")
    assert [value for value in values if value not in error] == []
    assert [value for value in others if value in error] == []


def test_messages_about_a_run_file_name_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("good,pos\nbad,neg\n")
    (tmp_path / "a.txt").write_text('{"text": "a", "label": "x"}\n' * 3)
    for inputs, command in (("a.csv", "doctor"), ("a.csv", "run"), ("a.csv", "nightly"), ("a.txt", "run")):
        (tmp_path / "a.toml").write_text(f'[ingest]\ninputs = ["{inputs}"]\n')
        assert call(monkeypatch, command, tmp_path / "a.toml") > 0
        printed = "".join(capsys.readouterr())
        wanted = ("text_field and label_field", "header = false") if inputs == "a.csv" else ("set format",)
        assert [value for value in wanted if value not in printed] == []
        assert "--" not in printed


def test_flags_become_keys_with_their_values() -> None:
    for flags, keys in {
        "it may be cp1252: set --encoding cp1252.": 'it may be cp1252: set encoding = "cp1252".',
        "set --encoding to its codec": "set encoding to its codec",
        "set folds (--folds) to fewer": "set folds to fewer",
        "more than max_bad_rows = 3 allows (--max-bad-rows).": "more than max_bad_rows = 3 allows.",
        "keep fewer (--max-features, --min-df) with --max-bad-rows 2": "keep fewer (max_features, min_df) with "
        "max_bad_rows = 2",
        "remove or --exclude it": "remove or exclude it",
        "smaller steps with --grid": "smaller steps with [search.algorithms]",
        "sparseoco nightly RUN_FILE --rollback INCREMENT": "sparseoco nightly RUN_FILE --rollback INCREMENT",
    }.items():
        assert name_keys(flags) == keys


def test_a_row_that_is_malformed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "x"}\nno JSON\nno JSON\n')
    for allowed, code in ((0, "malformed-record"), (1, "too-many-bad-rows")):
        command = ("ingest", tmp_path / "a.jsonl", "--out", tmp_path / "store", "--max-bad-rows", allowed)
        assert call(monkeypatch, *command) == 2
        error = capsys.readouterr().err
        assert error.endswith(f"[{code}]\n")
        assert "--max-bad-rows" in error


def test_folders_that_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews = write_reviews(tmp_path / "reviews.jsonl", rows=8)
    for out, value in ((reviews, "is a file"), (reviews / "x", "is a file"), ("/proc/x", "cannot be created")):
        assert call(monkeypatch, "ingest", reviews, "--out", out) == 3
        error = capsys.readouterr().err
        assert value in error
        assert error.endswith("[io-error]\n")


@pytest.mark.parametrize(
    ("table", "code", "values"),
    [
        ("[search]\nfold = 3", "unknown-option", ["search.fold", "did you mean folds?"]),
        ("[search]\nmetric = 'averge_precision'", "invalid-option", ["did you mean average_precision?"]),
        ("[search]\nmetric = 'accuracy'", "invalid-option", ["error, which is 1 − accuracy", "balanced_accuracy"]),
        ("[search]\nloss = 'logstic'", "unknown-loss", ["search.loss", "did you mean logistic?"]),
        ("[search]\npenalty = 'elasticnet'", "unknown-penalty", ["search.penalty", "did you mean elastic_net?"]),
        ("[search]\nshuffle = 'row'", "invalid-option", ["search.shuffle", "did you mean rows?"]),
        ("[search]\nalgorithms.cl-fobo = {}", "unknown-algorithm", ["did you mean cl-fobos?"]),
        ("[search]\nalgorithms.rda = { gama = 1 }", "unknown-parameter", ["'gama'", "did you mean gamma?"]),
        ("[serch]", "unknown-option", ["serch", "did you mean search?"]),
        ("[cluster]\nworker = 2", "unknown-option", ["cluster.worker", "did you mean workers?"]),
    ],
)
def test_misspelled_keys_and_values(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: str,
    code: str,
    values: list[str],
) -> None:
    (tmp_path / "a.toml").write_text(f"[ingest]\ninputs = ['a.jsonl']\n{table}\n")
    assert call(monkeypatch, "run", tmp_path / "a.toml") == 2
    error = capsys.readouterr().err
    assert error.endswith(f"[{code}]\n")
    assert [value for value in values if value not in error] == []


def test_misspelled_options_of_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[ingest]\ninputs = ['a']\nfields.title = { type = 'text', ngram_rang = [1, 2] }\n"
    (tmp_path / "a.toml").write_text(text)
    assert call(monkeypatch, "run", tmp_path / "a.toml") == 2
    assert "did you mean ngram_range?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("serach", "search"),
        ("search store --out run --fold 3", "--folds"),
        ("fetch imbd", "did you mean imdb?"),
        ("reproduce cl-fobo --data . --out x", "did you mean cl-fobos?"),
    ],
)
def test_misspelled_commands_and_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, value: str
) -> None:
    assert call(monkeypatch, *arguments.split()) == 2
    assert value in capsys.readouterr().err


def test_models_stores_and_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews, run = write_reviews(tmp_path / "reviews.jsonl", rows=60), tmp_path / "run"
    assert call(monkeypatch, "ingest", reviews, "--out", run / "shards") == 0
    assert call(monkeypatch, "train", run / "shards", "--out", run / "model") == 0
    said = capsys.readouterr()
    assert "1 shard\n" in said.out
    assert "replaced" not in said.err
    assert call(monkeypatch, "train", run / "shards", "--out", run / "model") == 0
    assert "replaced" not in capsys.readouterr().err
    assert call(monkeypatch, "train", run / "shards", "--out", run / "model", "--set", "eta=0.1") == 0
    assert "model of other settings, which is replaced: adagrad eta=0.3" in capsys.readouterr().err
    for arguments, value in (
        (("predict", run / "shards", reviews), f"did you mean {run / 'model'}?"),
        (("predict", run / "model" / "weights.parquet", reviews), f"did you mean {run / 'model'}?"),
        (("predict", tmp_path / "none", reviews), "does not exist"),
        (("train", run, "--out", tmp_path / "x"), f"did you mean {run / 'shards'}?"),
        (("search", run / "shards", "--out", tmp_path / "x", "--folds", "61"), "60 documents"),
        (("search", run / "shards", "--out", tmp_path / "x", "--grid", "lm=1"), "did you mean lam?"),
    ):
        assert call(monkeypatch, *arguments) == 2
        assert value in capsys.readouterr().err
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text(json.dumps({}))
    assert call(monkeypatch, "predict", tmp_path / "begun", reviews) == 2
    assert "no model yet" in capsys.readouterr().err


def test_documents_without_terms_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("text,label\nwave boat,a\nboat,b\n?!,a\n,b\n")
    assert call(monkeypatch, "ingest", tmp_path / "a.csv", "--out", tmp_path / "store") == 0
    assert "2 documents without a term of the vocabulary" in capsys.readouterr().err


def test_parameters_that_are_shown() -> None:
    assert learner_line("stda", {"lam": 1e-3, "gamma": 1.0, "V": 1e8, "p": "inf"}) == "stda lam=0.001 gamma=1 p=inf"
    assert learner_line("adagrad", {"eta": 0.3, "lam": 1e-5, "delta": 1e-6}) == "adagrad eta=0.3 lam=1e-05"
    assert without_defaults("auto", {"of": 3}) == {"of": 3}
    assert (plural(1, "shard"), plural(0, "shard"), plural(2, "class", "classes")) == (
        "1 shard",
        "0 shards",
        "2 classes",
    )


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "terminal").open("w+") as file:
        monkeypatch.setattr(console, "errors", Console(file=file, force_terminal=True, width=100))
        with progress_bars() as report:
            for done in range(11):
                report("search", done, 10)
                report("evaluate", done, 0)  # of an unknown total
        file.seek(0)
        drawn = file.read()
    assert "search" in drawn
    assert "100 %" in drawn
    assert "\x1b[?25h" in drawn  # the cursor is shown again
    assert (rate(25.0, 1000), rate(0.5, 1000), rate(None, 1000), rate(1.0, 0)) == ("2.5 %/s", "3.0 %/min", "", "")


@pytest.mark.parametrize("terminal", [False, True])
def test_only_plain_lines_when_piped_or_dumb(terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with (tmp_path / "pipe").open("w") as file:
        monkeypatch.setattr(console, "errors", Console(file=file, force_terminal=terminal))
        with progress_bars() as report:
            assert isinstance(report, ProgressLines)
            report("search", 1, 10)
    assert (tmp_path / "pipe").read_text() == ""


def test_the_next_command_on_a_terminal_only(tmp_path: Path) -> None:
    reviews = write_reviews(tmp_path / "reviews.jsonl", rows=8)
    command = [sys.executable, "-m", "sparseoco", "ingest", str(reviews), "--out", str(tmp_path / "a store")]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "next:" not in piped.stdout
    assert "\x1b" not in piped.stdout + piped.stderr
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                data = os.read(leader, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not data:
                break
            shown += data
    os.close(leader)
    assert process.returncode == 0
    assert f"next: sparseoco search '{tmp_path / 'a store'}' --out RUN".encode() in shown


def test_a_corpus_too_small_for_a_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_reviews(tmp_path / "reviews.jsonl", rows=20)
    (tmp_path / "few.toml").write_text(
        '[ingest]\ninputs = ["reviews.jsonl"]\n[search]\nfolds = 2\nepochs = 1\n'
        "[search.algorithms.fobos]\nlam = [1e-3]\n[evaluate]\nholdout = 0.001\n"
    )
    assert call(monkeypatch, "run", tmp_path / "few.toml") == 0
    assert "note: there are no test documents" in capsys.readouterr().out
