"""What commands print: messages, errors, progress, names that could end a line."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from sparseoco.cli import console
from sparseoco.cli.console import ProgressLines, progress_bars
from sparseoco.cli.summaries import learner_line
from sparseoco.core.formatting import plural
from sparseoco.core.logs import report_progress
from sparseoco.learners import ALGORITHMS
from sparseoco.pipeline.run_file import name_keys
from tests.support.commands import Cli
from tests.support.texts import write_reviews

# ----------------------------------------------------------------------------------------------------------------------
# What commands say of common mistakes: the key, file or option that matters, and what to do.


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
        ("a.jsonl", '{"text": "a", "label": null}\n', ["label field 'label' is missing or null", "--max-bad-rows"], []),
        ("a.jsonl", '{"text": null, "label": "x"}\n', ["text field 'text' is missing or null"], ["--text-field"]),
        ("a.csv", "good,pos\nbad,neg\n", ["'good', 'pos'", "--text-field", "--label-field", "--no-header"], []),
        ("a.tsv", "text\tstars\ngood\tpos\n", ["'text', 'stars'", "--label-field"], ["--text-field"]),
        ("a.csv", "text,label\ngood,nan\n", ["label field 'label' is missing", "--max-bad-rows"], ["--label-field"]),
    ],
)
def test_a_missing_field(tmp_path: Path, name: str, data: str, values: list[str], others: list[str], cli: Cli) -> None:
    (tmp_path / name).write_text(data)
    error = cli("ingest", tmp_path / name, "--out", tmp_path / "store", code=2).err
    assert error.endswith("[missing-field]\n")
    assert [value for value in values if value not in error] == []
    assert [value for value in others if value in error] == []


def test_messages_about_a_run_file_name_its_keys(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.csv").write_text("good,pos\nbad,neg\n")
    (tmp_path / "a.txt").write_text('{"text": "a", "label": "x"}\n' * 3)
    for inputs, command in (("a.csv", "doctor"), ("a.csv", "run"), ("a.csv", "nightly"), ("a.txt", "run")):
        (tmp_path / "a.toml").write_text(f'[ingest]\ninputs = ["{inputs}"]\n')
        printed = "".join(cli(command, tmp_path / "a.toml", code=None))
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


def test_folders_that_cannot_be_created(tmp_path: Path, cli: Cli) -> None:
    reviews = write_reviews(tmp_path / "reviews.jsonl", rows=8)
    for out, said in (
        (reviews, "is a file. Choose another. [io-error]"),
        (reviews / "x", "is a file. Choose another. [io-error]"),
        ("/proc/x", "/proc/x does not exist. [missing-file]"),
    ):
        assert cli("ingest", reviews, "--out", out, code=3).err.endswith(f"{said}\n")


def test_models_stores_and_folds(tmp_path: Path, cli: Cli) -> None:
    reviews, run = write_reviews(tmp_path / "reviews.jsonl", rows=60), tmp_path / "run"
    assert "1 shard\n" in cli("ingest", reviews, "--out", run / "shards").out
    for _ in range(2):
        assert "replaced" not in cli("train", run / "shards", "--out", run / "model").err
    error = cli("train", run / "shards", "--out", run / "model", "--set", "eta=0.1").err
    assert "model of other settings, which is replaced: adagrad eta=0.3" in error
    (tmp_path / "lines.txt").write_text("wave boat\n")
    cli("ingest", tmp_path / "lines.txt", "--out", tmp_path / "unlabelled", "--min-df", 1)
    for arguments, value in (
        (("train", tmp_path / "unlabelled", "--out", tmp_path / "x"), "[no-labels]"),
        (("evaluate", run / "model", tmp_path / "lines.txt"), "[no-labels]"),
        (("predict", run / "shards", reviews), f"did you mean {run / 'model'}?"),
        (("predict", run / "model" / "weights.parquet", reviews), f"did you mean {run / 'model'}?"),
        (("predict", tmp_path / "none", reviews), "does not exist"),
        (("train", run, "--out", tmp_path / "x"), f"did you mean {run / 'shards'}?"),
        (("search", run / "shards", "--out", tmp_path / "x", "--folds", "61"), "60 documents"),
        (("search", run / "shards", "--out", tmp_path / "x", "--grid", "lm=1"), "did you mean lam?"),
    ):
        assert value in cli(*arguments, code=2).err
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text(json.dumps({}))
    assert "no model yet" in cli("predict", tmp_path / "begun", reviews, code=2).err


def test_documents_without_terms_are_counted(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.csv").write_text("text,label\nwave boat,a\nboat,b\n?!,a\n,b\n")
    error = cli("ingest", tmp_path / "a.csv", "--out", tmp_path / "store").err
    assert "2 documents without a term of the vocabulary" in error


def test_parameters_that_are_shown() -> None:
    assert learner_line("stda", {"lam": 1e-3, "gamma": 1.0, "V": 1e8, "p": "inf"}) == "stda lam=0.001 gamma=1 p=inf"
    assert learner_line("adagrad", {"eta": 0.3, "lam": 1e-5, "delta": 1e-6}) == "adagrad eta=0.3 lam=1e-05"
    assert (plural(1, "shard"), plural(0, "shard"), plural(2, "class", "classes")) == (
        "1 shard",
        "0 shards",
        "2 classes",
    )


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "terminal").open("w+") as file:
        monkeypatch.setattr(console, "errors", Console(file=file, force_terminal=True, width=100))
        with progress_bars():
            for done in range(11):
                report_progress("search", done, 10)
                report_progress("evaluate", done, 0)  # of an unknown total
        file.seek(0)
        drawn = file.read()
    assert "search" in drawn
    assert "100%" in drawn
    assert "\x1b[?25h" in drawn  # the cursor is shown again


@pytest.mark.parametrize("terminal", [False, True])
def test_only_plain_lines_when_piped_or_dumb(terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with (tmp_path / "pipe").open("w") as file:
        monkeypatch.setattr(console, "errors", Console(file=file, force_terminal=terminal))
        with progress_bars():
            report_progress("search", 1, 10)
            monkeypatch.setattr(console, "FIRST_LINE", 0.0)
            report_progress("train", 1, 10)
    assert (tmp_path / "pipe").read_text() == "train: 10% after 0.00 s, no estimate yet\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_the_next_command(terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """It is printed on a terminal only."""
    reviews, store = write_reviews(tmp_path / "reviews.jsonl", rows=8), tmp_path / "a store"
    monkeypatch.setattr(console, "output", Console(force_terminal=terminal))
    said = cli("ingest", reviews, "--out", store)
    assert (f"next: sparseoco search '{store}' --out RUN" in said.out) == terminal
    assert "\x1b" not in said.out + said.err


def test_a_corpus_too_small_for_a_test_set(tmp_path: Path, cli: Cli) -> None:
    write_reviews(tmp_path / "reviews.jsonl", rows=20)
    (tmp_path / "few.toml").write_text(
        '[ingest]\ninputs = ["reviews.jsonl"]\n[search]\nfolds = 2\nepochs = 1\n'
        "[search.algorithms.fobos]\nlam = [1e-3]\n[evaluate]\nholdout = 0.001\n"
    )
    assert "note: there are no test documents" in cli("run", tmp_path / "few.toml").out


# ----------------------------------------------------------------------------------------------------------------------
# How long a step will take, where there is no terminal to draw a bar on.


def lines_of(reports: Iterable[tuple[float, str, int, int]]) -> list[str]:
    """The lines of reports of progress, each with the seconds at which it comes."""
    now, lines = [0.0], list[str]()
    report = ProgressLines(lines.append, lambda: now[0])
    for seconds, step, done, total in reports:
        now[0] = seconds
        report(step, done, total)
    return lines


def test_lines_say_how_far_a_step_is_and_how_long_it_will_take() -> None:
    steps = [(float(seconds), "search", 200 + seconds, 1200) for seconds in range(0, 1000, 10)]
    lines = lines_of([*steps, (990.0, "train", 0, 100), (1030.0, "train", 0, 100)])
    assert lines[0] == "search: 19% after 30.0 s, about 16 min 10 s left"  # 30 of the 1,000 that were left
    waits = ["30.0 s", *(f"{minutes} min 0 s" for minutes in (1, 2, 4, 8, 16))]
    assert [line.split(",")[0].split(" after ")[1] for line in lines[:-1]] == waits
    assert lines[-1] == "train: 0% after 40.0 s, no estimate yet"


def test_there_is_no_estimate_before_there_was_progress_for_a_while() -> None:
    done = {0: 0, 38: 0, 39: 1, 61: 2, 130: 4_000, 300: 30_000}  # the first 39 seconds compile
    assert lines_of((float(seconds), "search", rows, 40_000) for seconds, rows in done.items()) == [
        "search: 0% after 38.0 s, no estimate yet",
        "search: 0% after 1 min 1 s, no estimate yet",
        "search: 10% after 2 min 10 s, about 13 min 39 s left",
        "search: 75% after 5 min 0 s, about 1 min 27 s left",
    ]


def test_short_steps_print_nothing() -> None:
    assert lines_of([*((2.0 * done, "search", done, 10) for done in range(11)), (120.0, "search", 10, 10)]) == []


# ----------------------------------------------------------------------------------------------------------------------
# Ids and labels with tabs, newlines and control characters, in the text output of every command: fault 56.


LABELS = "a\tb\nc\x1b[31m", "[red]\\d\r"
IDS = ["one\ttwo\nthree", "\x1b]0;title\x07", "\\t", "\u2028"]


@pytest.mark.fault(56)
def test_names_cannot_forge_lines_columns_or_colours(tmp_path: Path, cli: Cli) -> None:
    rows = [{"id": IDS[i % 4] + f"{i}", "text": f"word{i % 2}", "label": LABELS[i % 2]} for i in range(20)]
    texts = tmp_path / "a.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store, model = tmp_path / "store", tmp_path / "model"
    cli("ingest", texts, "--out", store, "--min-df", "1")
    shown = cli("train", store, "--out", model).out
    lines = cli("predict", model, texts, "--margins").out.splitlines()
    assert [len(line.split("\t")) for line in lines] == [3] * 20
    ids = [json.loads('"' + line.split("\t")[0] + '"') for line in lines]
    assert ids == [row["id"] for row in rows]
    shown += "".join(lines).replace("\t", "")
    for command in (("explain", model, texts), ("evaluate", model, texts), ("compare", model, model)):
        shown += cli(*command).out
    assert [json.loads(line)["id"] for line in cli("explain", model, texts, "--json").out.split("\n")[:-1]] == ids
    assert r"a\tb\nc\u001b[31m" in shown
    assert not {"\x1b", "\t", "\r", "\x07", "\u2028"} & set(shown)


# ----------------------------------------------------------------------------------------------------------------------
# The command that lists the learners and shows one.


@pytest.mark.parametrize(
    "name", ["cl-fobos", "passive-aggressive", "ons", "caos-erm", "optimistic-averaging", "cao-rcd"]
)
def test_one_learner_in_full(name: str, cli: Cli) -> None:
    shown = cli("algorithms", name).out
    algorithm = ALGORITHMS[name]
    for text in (algorithm.formula, algorithm.source, *algorithm.loss_names, *algorithm.penalties):
        assert text in shown
    for parameter in algorithm.parameters:
        assert f"{parameter.name} = {parameter.default}  {parameter.meaning}\n" in shown
        assert all(value in shown for value in (*parameter.choices, *map(str, parameter.grid)))
