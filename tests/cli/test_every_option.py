"""Every option of every command changes the result for every kind of input, or is refused: none is ignored in silence.

The options are those of the application itself: one that has no entry in `TABLE` fails a test.
"""

import gzip
import io
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
import typer
from distributed import Client

from sparseoco.cli import app
from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import connect
from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.pipeline.nightly.run import NightlyResult
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.text import formats
from tests.support.commands import call
from tests.support.every_format import FORMATS, LABELS, documents, write_formats, write_labelled

# Kinds of input


def kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


TEXT, NONE = kinds(*FORMATS), kinds()
TABLES, DELIMITED, COUNTED = kinds("parquet", "arrow"), kinds("csv", "tsv"), kinds("svmlight", "processed")
RECORDS = kinds("jsonl", "records") | DELIMITED | TABLES
SVMLIGHT, LINES, FOLDER, TSV = map(kinds, ("svmlight", "lines", "folder", "tsv"))
STDIN, ONE = kinds("stdin"), kinds("jsonl")
TWO, NUMBERS, MANY, SETS = map(kinds, LABELS)  # stores with these labels
STORES = TWO | NUMBERS | MANY | SETS
CSV = kinds("csv")
EARLY = {
    "ingest": kinds("jsonl", "svmlight", "packed"),
    "score": kinds("jsonl", "csv", "folder"),
    **dict.fromkeys(("predict", "evaluate", "explain"), kinds("jsonl", "csv", "folder", "stdin")),
    **dict.fromkeys(("search", "train"), TWO),
}
"""Where an option applies, the kinds to try without -m slow, if not all. An ingest tries all options of reading."""


# Entries of the table


class Case(NamedTuple):
    """An option with a value, and what becomes of it.

    Parameters
    ----------
    given : the option, first, and others that make a difference only together.
    applies : the kinds of input of which the outcome is another one with them.
    kinds : all kinds to try; of those where it does not apply, it is refused.
    among : arguments of both calls, where it applies.
    first : arguments of an earlier call into the same folder.
    variant : the folder of the inputs.
    base : arguments of both calls, by default those in `BASE`, without those that are given.
    errors : codes with which it may end where it applies.
    refused : the code where it does not.
    free : why the outcome is the same where it applies, if it is.
    """

    given: str
    applies: frozenset[str] = TEXT
    kinds: frozenset[str] = TEXT
    among: str = ""
    first: str | None = None
    variant: str = "plain"
    base: str | None = None
    errors: tuple[str, ...] = ()
    refused: str = "unsupported-combination"
    free: str = ""


def only(applies: frozenset[str], given: str, **others: Any) -> Case:
    """A case for the kinds of input where it applies."""
    return Case(given, applies, applies, **others)


def never(tried: frozenset[str], given: str, refused: str = "unsupported-combination", **others: Any) -> Case:
    """A case that is refused."""
    return Case(given, NONE, tried, refused=refused, **others)


class Elsewhere(str):
    """Why an option is not tried here."""


Entries = dict[str, list[Case] | Elsewhere]
BASE = {
    "ingest": "--min-df 1 --ngram-range 1,1",
    "predict": "--margins",
    "explain": "--json",
    "evaluate": "--json --predictions {out}.parquet",
    "search": "--algorithm adagrad --grid eta=0.1,0.5 --grid lam=1e-3 --folds 2 --epochs 2",
    "regret": "--marks 3 --tol 0.9",
    "generate": "--bytes 2kB --vocabulary 300",
}
DEFAULT, PLACE, LIMIT = "it is the default", "where results are written", "a limit that is not reached"
SPEED = "it changes the speed or the memory, not the result"

READING: dict[str, list[Case]] = {
    "--format": [
        only(TEXT - LINES, "--format lines", errors=("not-text", "no-labels")),
        only(LINES, "--format svmlight", errors=("malformed-record",)),
    ],
    "--text-field": [Case("--text-field title", RECORDS)],
    "--label-field": [Case("--label-field other", RECORDS)],
    "--id-field": [Case("--id-field key", RECORDS)],
    "--header": [Case("--header", free=DEFAULT)],
    "--no-header": [Case("--no-header", DELIMITED, among="--text-field 5 --id-field 1")],
    "--encoding": [Case("--encoding cp1252", TEXT - TABLES)],
    "--include": [Case("--include *1*", FOLDER | kinds("records"))],
    "--exclude": [Case("--exclude *1*", FOLDER | kinds("records"))],
    "--where": [Case("--where split=train", RECORDS), Case("--where split=x", RECORDS, errors=("no-documents",))],
    "--encoding-errors": [only(TEXT - kinds("arrow"), "--encoding-errors replace", variant="broken")],
    "--max-bad-rows": [only(TEXT - kinds("arrow"), "--max-bad-rows 1", variant="broken")],
}
OF_MODEL = ("--format", "--text-field", "--id-field", "--header", "--no-header", "--encoding", "--include")
OF_MODEL += ("--exclude", "--where")


def reading(names: Iterable[str], *, ascii: frozenset[str] = NONE, **changes: Any) -> Entries:
    """These entries of `READING`; kinds that are `ascii` have nothing to read in another encoding."""
    found: Entries = {name: list(READING[name]) for name in names}
    found["--no-header"] = [case._replace(**changes) for case in READING["--no-header"]]
    for name in ("--encoding", "--encoding-errors", "--max-bad-rows"):
        if name in found:
            found[name] = [case._replace(kinds=case.kinds - ascii) for case in READING[name]]
    return found


def cluster(tried: frozenset[str]) -> Entries:
    """The entries of options of the cluster; `Commands` checks that a cluster gets them."""
    given = {"cluster": "{cluster}", "scheduler": "tcp://127.0.0.1:1", "workers": "2", "threads": "2", "memory": "2GB"}
    found: Entries = {f"--{name}": [only(tried, f"--{name} {value}", free=SPEED)] for name, value in given.items()}
    for name in ("--workers", "--threads", "--memory"):
        more = f"{name} {given[name[2:]]} --scheduler tcp://127.0.0.1:1"
        found[name] = [*found[name], never(tried, more, "invalid-option")]
    return found


INGEST: Entries = {
    "--out": Elsewhere(PLACE),
    "--analyzer": [Case("--analyzer char", TEXT - COUNTED)],
    "--ngram-range": [Case("--ngram-range 2,2", TEXT - COUNTED)],
    "--lowercase": [Case("--lowercase", free=DEFAULT)],
    "--no-lowercase": [Case("--no-lowercase", TEXT - COUNTED)],
    "--strip-accents": [Case("--strip-accents unicode", TEXT - COUNTED)],
    "--token-pattern": [Case("--token-pattern short_words", TEXT - COUNTED)],
    "--stop-words": [Case("--stop-words english", TEXT - COUNTED)],
    "--max-token-length": [Case("--max-token-length 6", TEXT - COUNTED)],
    **reading(READING, among="--text-field 5 --id-field 1 --label-field 3"),
    "--weight-field": [Case("--weight-field weight", RECORDS)],
    "--group-field": [Case("--group-field author", RECORDS)],
    "--time-field": [Case("--time-field date", RECORDS)],
    "--labels": [Case("--labels multi", TEXT - LINES)],
    "--class": [Case("--class sea --class wood --class wöd --class sand", TEXT - LINES)],
    "--min-df": [Case("--min-df 3")],
    "--max-df": [Case("--max-df 2")],
    "--max-features": [Case("--max-features 3")],
    "--hash-bits": [Case("--hash-bits 4")],
    "--duplicates": [
        only(RECORDS - kinds("records"), "--duplicates first", variant="twice"),
        only(TEXT - RECORDS, "--duplicates first", free="documents are named by file and line"),
    ],
    "--max-line-bytes": [Case("--max-line-bytes 8", TEXT - TABLES, errors=("line-too-long",))],
    "--shard-bytes": [Case("--shard-bytes 1024", free=SPEED)],
    "--vocabulary": [
        only(TEXT - SVMLIGHT, "--vocabulary extend", first="", variant="more"),
        Case("--vocabulary extend", free="it is of files that are ingested later"),
        never(ONE, "--vocabulary extend --hash-bits 4", "invalid-option"),
    ],
    "--dry-run": [Case("--dry-run")],
    **cluster(ONE),
}
KEPT = TEXT - FOLDER  # documents can be written
SCORE: Entries = {
    "--out": Elsewhere(PLACE),
    **reading((*OF_MODEL, "--encoding-errors", "--max-bad-rows"), ascii=SVMLIGHT),
    "--label-field": [
        Case("--label-field other", RECORDS, TEXT - LINES, among="--labelled"),
        never(TEXT, "--label-field other"),
    ],
    "--column": [Case("--column title", RECORDS, TEXT)],
    "--labelled": [Case("--labelled", TEXT - LINES, TEXT, refused="no-labels")],
    "--also": [only(TEXT, "--also x={other}")],
    "--keep-top": [Case("--keep-top 2", KEPT, TEXT)],
    "--keep-above": [
        Case("--keep-above 0.4", KEPT, TEXT),
        never(ONE, "--keep-above 0.5 --keep-top 1", "invalid-option"),
    ],
    "--keep-class": [
        only(KEPT - SVMLIGHT, "--keep-class sea", among="--keep-top 1"),
        never(TEXT, "--keep-class sea", "invalid-option"),
    ],
    "--keep-as": [
        only(TEXT, "--keep-as ids", among="--keep-top 2"),
        never(TEXT, "--keep-as ids", "invalid-option"),
    ],
    "--new-model": [
        only(TEXT - LINES, "--new-model replace", first="--labelled"),
        only(TEXT, "--new-model replace", free="there is nothing to replace"),
    ],
    "--shard-bytes": [Case("--shard-bytes 1024", TEXT, TEXT, free=SPEED)],
    **cluster(ONE),
}


def printed(**more: list[Case]) -> Entries:
    """The entries of predict and explain; standard input, by default lines, has records."""
    found = reading(OF_MODEL, ascii=SVMLIGHT)
    for name in ("--text-field", "--id-field", "--where"):
        found[name] = [*READING[name], only(STDIN, READING[name][0].given)]
    for name in ("--include", "--exclude", "--no-header"):
        found[name] = [*found[name], never(STDIN, READING[name][0].given)]
    found["--format"] = [*READING["--format"], only(STDIN, "--format jsonl")]
    return found | {f"--{name}": cases for name, cases in more.items()}


EVERY = TEXT | STDIN
EXPLAIN = printed(
    id=[Case("--id d1", RECORDS - TSV, EVERY - TSV, refused="unknown-document")],
    terms=[only(EVERY, "--terms 1")],
    json=[only(EVERY, "--json")],
)
EXPLAIN["--class"] = [only(EVERY - SVMLIGHT, "--class wood"), never(EVERY, "--class nothing", "unknown-class")]
EVALUATE: Entries = {
    **reading((*OF_MODEL, "--label-field"), among="--text-field 5 --id-field 1 --label-field 3"),
    "--predictions": [only(TEXT - LINES, "--predictions {out}.parquet")],
    "--json": [only(TEXT - LINES, "--json")],
    "--slice": [Case("--slice title", RECORDS)],
}
for entry, cases in EVALUATE.items():  # lines have no labels, and the model knows two
    EVALUATE[entry] = [
        case._replace(kinds=case.kinds - LINES, errors=(*case.errors, "unknown-class"))
        for case in cases
        if isinstance(case, Case)
    ]
EPOCHS = "--algorithm caos-erm"
LEARNING: Entries = {
    "--out": Elsewhere(PLACE),
    "--loss": [Case("--loss logistic", STORES - NUMBERS, STORES), never(TWO, "--loss huber", "invalid-metric")],
    "--penalty": [only(STORES, "--penalty l2", base="--algorithm fobos --dtype float64")],
    "--feature-groups": [
        only(STORES, "--feature-groups groups.csv --penalty group", base="--algorithm fobos --dtype float64"),
        never(TWO, "--feature-groups groups.csv", "invalid-option"),
    ],
    "--intercept": [only(STORES, "--intercept", free=DEFAULT)],
    "--no-intercept": [only(STORES, "--no-intercept")],
    "--class-weight": [
        Case("--class-weight balanced", TWO | MANY, STORES),
        never(TWO, "--class-weight nothing=2", "unknown-class"),
    ],
    "--shuffle": [only(STORES, "--shuffle none"), never(TWO, "--shuffle none", "invalid-option", base=EPOCHS)],
    "--dtype": [only(STORES, "--dtype float64")],
    "--seed": [only(STORES, "--seed 3")],
    "--warm-start": [only(STORES, "--warm-start {model}")],
    "--features-from": [only(STORES, "--features-from {model}")],
    "--max-memory": [only(STORES, "--max-memory 1GB", free=SPEED)],
    "--tf": [only(STORES, "--tf binary")],
    "--idf": [only(STORES, "--idf false")],
    "--norm": [only(STORES, "--norm none")],
    "--epochs": [only(STORES, "--epochs 3")],
    **cluster(TWO),
}
SEARCH: Entries = {
    **LEARNING,
    "--algorithm": [only(TWO, "--algorithm rda")],
    "--grid": [only(TWO, "--grid delta=0.5")],
    "--samples": [only(TWO, "--samples 1")],
    "--folds": [only(STORES, "--folds 3")],
    "--folds-by": [
        only(STORES, "--folds-by group"),
        only(STORES, "--folds-by time"),
        never(TWO, "--folds-by time", "invalid-option", base=EPOCHS),
    ],
    "--metric": [Case("--metric f1", TWO, STORES, refused="invalid-metric")],
    "--select": [only(STORES, "--select at_most=3"), only(STORES, "--select one-standard-error")],
    "--positive-class": [Case("--positive-class wood", TWO, STORES, refused="invalid-positive-class")],
    "--time-limit": [only(TWO, "--time-limit 1h", free=LIMIT)],
    "--halving": [
        only(TWO, "--halving 2"),
        never(TWO, "--halving 2", "invalid-option", base=EPOCHS),
        never(TWO, "--halving 2", "invalid-option", base="--grid parts=2"),
    ],
    "--threshold": [Case("--threshold top=0.1", TWO | SETS, STORES)],
}
TRAIN: Entries = {
    **LEARNING,
    "--algorithm": [only(TWO, "--algorithm rda")],
    "--set": [only(STORES, "--set lam=0.1")],
}
OPTIMUM: Entries = {
    "--out": Elsewhere(PLACE),
    "--alpha": [only(TWO, "--alpha 3")],
    "--loss": [Case("--loss squared_hinge", TWO, TWO | NUMBERS, refused="invalid-labels")],
    "--penalty": [only(TWO, "--penalty l2")],
    "--l1-ratio": [
        only(TWO, "--l1-ratio 0.2", among="--penalty elastic_net"),
        never(TWO, "--l1-ratio 0.2", "invalid-option"),
    ],
    "--box": [only(TWO, "--box 0.1")],
    "--intercept": [only(TWO, "--intercept")],
    "--tol": [only(TWO, "--tol 1e-2")],
    "--max-passes": [only(TWO, "--max-passes 2")],
    "--tf": [only(TWO, "--tf binary")],
    "--idf": [only(TWO, "--idf false")],
    "--norm": [only(TWO, "--norm none")],
    **cluster(TWO),
}
REGRET: Entries = {
    "--configuration": [only(TWO, "--configuration 0"), never(TWO, "--configuration 9", "unknown-configuration")],
    "--marks": [only(TWO, "--marks 5")],
    "--tol": [only(TWO, "--tol 0.1")],
    "--store": [only(TWO, "--store {store}", free=DEFAULT)],
    **cluster(TWO),
}
NIGHTLY: Entries = {
    f"--{name}": [only(ONE, f"--{name} {value}"), never(ONE, f"--{name} {value}", base="--rollback 1")]
    for name, value in {
        "window": 3,
        "confidence": 0.5,
        "margin": 0.1,
        "keep-models": 3,
        **dict.fromkeys(("max-drop", "max-shift", "max-bad-share"), 0.5),
    }.items()
}
NIGHTLY |= {
    "--if-running": [only(ONE, "--if-running wait"), only(ONE, "--if-running wait", base="--rollback 1")],
    "--rollback": [only(ONE, "--rollback 1")],
    **{
        f"--{name}": [only(ONE, f"--{name}"), never(ONE, f"--{name}", base="--rollback 1")]
        for name in ("accept", "discard")
    },
    "--cluster": [only(ONE, "--cluster {cluster}")],
}
CORPUS = {"bytes": "3kB", "files": 2, "vocabulary": 500, "exponent": 1.5, "classes": 3, "seed": 1}
PAPERS = dict.fromkeys(("repetitions", "draws", "rounds", "domain"), "stda")
TABLE: dict[str, Entries] = {
    "demo": {"--out": Elsewhere(PLACE)},
    "init": {"--out": Elsewhere(PLACE), "--force": [only(ONE, "--force", first="")]},
    "fetch": {"--out": Elsewhere(PLACE), "--from": [never(ONE, "--from here")]},
    "generate": {f"--{name}": [only(ONE, f"--{name} {value}")] for name, value in CORPUS.items()},
    "doctor": {"--cluster": [never(ONE, "--cluster {cluster}")], "--json": [only(ONE, "--json")]},
    "run": {"--cluster": Elsewhere("as that of nightly: both take it from `load_run_file`")},
    "nightly": NIGHTLY,
    "status": {"--json": [only(TWO, "--json")], "--watch": [only(TWO, "--watch 1", free="the run is complete")]},
    "report": {},
    "clean": {"--keep-models": [never(TWO, "--keep-models 1")], "--dry-run": [only(TWO, "--dry-run")]},
    "ingest": INGEST,
    "search": SEARCH,
    "train": TRAIN,
    "score": SCORE,
    "predict": printed(margins=[only(EVERY, "--margins")], proba=[only(EVERY, "--proba")]),
    "evaluate": EVALUATE,
    "explain": EXPLAIN,
    "leaderboard": dict.fromkeys(("--metric", "--json"), Elsewhere("tests/pipeline/test_leaderboard")),
    "compare": {
        "--features": [only(ONE, "--features 1")],
        "--where": [Case("--where split=train", ONE, ONE | LINES | kinds("nothing"))],
        "--json": [only(ONE, "--json")],
    },
    "export": {"--to": Elsewhere("there is one kind"), "--out": Elsewhere(PLACE)},
    "algorithms": {},
    "check-learner": dict.fromkeys(("--dense", "--no-dense"), Elsewhere("tests/learners/test_outside.py")),
    "optimum": OPTIMUM,
    "regret": REGRET,
    "reproduce": {
        **{f"--{name}": [never(ONE, f"--{name} 3", base=paper)] for name, paper in PAPERS.items()},
        **dict.fromkeys(("--data", "--out"), Elsewhere(PLACE)),
    },
    "errors": {},
    "schema": {},
}


# What commands do


class Outcome(NamedTuple):
    """The exit code of a call, the code of its error, and its result, in which the options themselves are not."""

    exit: int
    error: str
    result: Any


class Commands:
    """Calls of the commands in this process, on inputs in the working directory, over one cluster."""

    def __init__(self, patch: pytest.MonkeyPatch, client: Client) -> None:
        self.patch, self.calls, self.said = patch, 0, ""
        self.known: dict[tuple[Any, ...], Outcome] = {}
        self.nights: list[tuple[Any, ...]] = []

        @contextmanager
        def connected(options: ClusterOptions, scratch: Path) -> Iterator[Client | None]:
            if options != ClusterOptions():
                raise InputError("A cluster of these options would be started.", code="no-workers")
            yield None if sys.argv[1] in ("ingest", "score") else client  # of few documents: without tasks

        def nightly(run: RunFile, decided: Any = None) -> NightlyResult:
            self.nights.append((run.nightly, run.cluster, decided))
            return NightlyResult([], None, "")

        patch.setattr(steps, "connect", connected)
        patch.setattr("sparseoco.pipeline.nightly.run_nightly", nightly)
        patch.setattr("sparseoco.pipeline.nightly.roll_back", nightly)
        patch.setattr(formats, "FREE_BYTES", 1 << 10)
        patch.setattr("sparseoco.search.selection.MIN_RUNG_ROWS", 3)

    def call(self, line: str, stdin: bytes = b"") -> tuple[int, str]:
        """The exit code, and what is printed."""
        self.calls += 1
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = call(self.patch, *line.split())
        self.said = err.getvalue()
        return code, out.getvalue()

    def must(self, line: str) -> None:
        """A call that ends well."""
        assert self.call(line)[0] == 0, self.said

    def outcome(self, command: str, kind: str, case: Case, options: str) -> Outcome:
        """The outcome of a command with these options and those of the case's baseline, for an input of this kind."""
        base = BASE.get(command, "") if case.base is None else case.base
        several = {"--algorithm", "--grid"} if command in ("search", "train") else set()
        for flag in set(re.findall("--[a-z-]+", f"{case.given} {case.among}")) - several:
            base = re.sub(rf"{flag}( (?!--)\S+)?( |$)", "", base)
        key = command, kind, case.variant, case.first, base, options
        if key not in self.known:
            out = Path(f"out{self.calls}")
            if case.first is not None:
                self.must(_line(command, kind, "plain", out, f"{base} {case.first}"))
            line = _line(command, kind, case.variant, out, f"{base} {options}")
            code, said = self.call(line, Path("plain/a.jsonl").read_bytes() if kind == "stdin" else b"")
            error = re.findall(r"\[([a-z-]+)\]\n", self.said)
            result = None if code else self.nights[-1] if command == "nightly" else _result(command, out, said)
            self.known[key] = Outcome(code, error[0] if error else "", result)
        return self.known[key]


def _line(command: str, kind: str, variant: str, out: Path, options: str) -> str:
    """The line of a call; {model}, {store}, … are names of what is there, and {out} is a new name."""
    model = f"model-{kind if kind in (*COUNTED, *LABELS) else 'text'}"
    store = f"store-{kind if kind in LABELS else 'text'}"
    given = options.format(model=model, store=store, other="model-other", cluster="cluster.toml", out=out)
    text = {"packed": "packed.jsonl.gz", "stdin": "", "nothing": ""}.get(kind)
    text = f"{variant}/{FORMATS.get(kind)}" if text is None else text
    if variant == "twice":
        text = f"plain/{FORMATS[kind]} {text}"
    if command in ("regret", "status"):
        shutil.copytree("run", out)
    if command == "clean":
        shutil.copytree(store, out)
        (out / f"shard-{'0' * 24}.parquet").touch()
    arguments: dict[str, Any] = {
        "init": f"{text} --out {out}.toml",
        "nightly": "run.toml",
        "ingest": f"{text} --out {out}",
        "score": f"{model} {text} --out {out}",
        "compare": f"{model} model-other {text}",
        "reproduce": f"--data . --out {out}",
        **dict.fromkeys(("fetch", "doctor"), ""),
        **dict.fromkeys(("generate", "status", "clean", "regret"), out),
        **dict.fromkeys(("search", "train", "optimum"), f"{store} --out {out}"),
        **dict.fromkeys(("predict", "explain", "evaluate"), f"{model} {text}"),
    }
    return f"{command} {arguments[command]} {given}"


def _result(command: str, out: Path, said: str) -> Any:
    """What a command has written, or printed."""
    match command:
        case "ingest":
            return _store(out) if out.exists() else None
        case "search":
            tables = _rows(out / "search" / "metrics.parquet"), read_json(out / "search" / "best.json")
            return *tables, _model(out / "model")
        case "train":
            return _model(out)
        case "generate":
            return {path.name: path.read_bytes() for path in out.glob("text/*")}
        case "score":
            kept = [path.read_bytes() for path in sorted(out.glob("kept/*"))]
            return [_rows(path) for path in sorted(out.glob("parts/*"))], sorted(kept)
        case "regret" | "optimum":
            return [_rows(path) for path in sorted(out.rglob("*.parquet")) if "cells" not in str(path)]
        case "evaluate":
            predictions = Path(f"{out}.parquet")
            return said, _rows(predictions) if predictions.exists() else None
    return re.sub(r"out\d+|last written \S+ \S+ ago", "", said), sorted(path.name for path in out.glob("shard-*"))


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table without what differs from call to call."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in pq.read_table(path).to_pylist()]


def _model(folder: Path) -> tuple[Any, ...]:
    described = read_json(folder / "model.json")
    names = ("classes", "positive_class", "threshold", "thresholds", "calibration", "intercept", "dtype")
    return _rows(folder / "weights.parquet"), [described.get(name) for name in names]


def _store(folder: Path) -> tuple[Any, ...]:
    """The content of a store, but for its division into shards."""
    store = Store.open(folder)
    matrix, terms = read_shards(folder)
    shards = [store.read(k, ids=True) for k in range(store.n_shards)]
    labels = [own.labels.indicator(len(store.classes)) if store.is_multilabel else own.labels for own in shards]
    columns = [{name: values.tolist() for name, values in own.columns.items()} for own in shards]
    ids = [name for own in shards for name in own.ids.to_pylist()]
    counts = terms, matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist(), ids
    labels = [label for own in labels for label in own.tolist()]
    return *counts, labels, columns, store.manifest.labels.kind, store.classes, store.manifest.features.kind


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The commands, and their inputs in the working directory."""
    folder = tmp_path_factory.mktemp("options")
    with pytest.MonkeyPatch.context() as patch, connect(ClusterOptions(threads=2), folder / ".scratch") as client:
        patch.chdir(folder)
        found = Commands(patch, client)
        _write_inputs(folder)
        for kind in LABELS:
            labels = kind if kind in ("multi", "numbers") else "classes"
            columns = f"--group-field group --time-field time --labels {labels}"
            found.must(f"ingest {kind}.jsonl --out store-{kind} --min-df 1 {columns}")
            found.must(f"train store-{kind} --out model-{kind} --epochs 2 --set lam=3e-2")
        for name, kind in (("text", "jsonl"), ("svmlight", "svmlight"), ("processed", "processed")):
            found.must(f"ingest plain/{FORMATS[kind]} --out store-{name} --min-df 1")
            found.must(f"train store-{name} --out model-{name} --epochs 2")
        found.must("ingest plain/a.jsonl --out store-other --min-df 1 --label-field other")
        found.must("train store-other --out model-other --epochs 1 --set lam=1e-2")
        found.must(f"search store-two --out run {BASE['search']}")
        yield found


def _write_inputs(folder: Path) -> None:
    for variant, rows in {
        "plain": documents("d"),
        "twice": documents("d"),
        "broken": documents("d"),
        "more": documents("e", " later"),
    }.items():
        write_formats(folder / variant, rows, b"wave \xff" if variant == "broken" else b"")
    for kind in LABELS:
        write_labelled(folder / f"{kind}.jsonl", kind)
    line = (folder / "plain" / "a.jsonl").read_bytes().partition(b"\n")[0]
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(line + b"\n" * 9000))
    (folder / "cluster.toml").write_text("threads = 2\n")
    (folder / "groups.csv").write_text("term,group\nwave,a\ntree,a\nold,a\nboat,b\ngrey,b\n")
    (folder / "run.toml").write_text('[ingest]\ninputs = ["nothing.jsonl"]\n')


# The tests


def test_every_option_has_an_entry() -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("sparseoco", [], resilient_parsing=True)
    for command in group.list_commands(context):
        params = group.get_command(context, command).get_params(context)
        flags = [[*param.opts, *param.secondary_opts] for param in params if param.param_type_name == "option"]
        assert sorted(TABLE[command]) == sorted({flag for own in flags for flag in own} - {"-h", "--help"}), command


CASES = [
    pytest.param(command, case, id=f"{command} {case.given}{'' if case.applies else ' refused'}")
    for command, entries in TABLE.items()
    for found in entries.values()
    if not isinstance(found, Elsewhere)
    for case in found
]


@pytest.mark.parametrize(("command", "case"), CASES)
def test_an_option_changes_the_outcome_or_is_refused(commands: Commands, command: str, case: Case) -> None:
    for kind in sorted(case.kinds & early(command, case) | case.kinds - case.applies):
        check(commands, command, case, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "case"), CASES)
def test_other_kinds_of_input(commands: Commands, command: str, case: Case) -> None:
    for kind in sorted(case.kinds & case.applies - early(command, case)):
        check(commands, command, case, kind)


def early(command: str, case: Case) -> frozenset[str]:
    every = command == "ingest" and case.given.split()[0] in READING
    return case.kinds if every else EARLY.get(command, case.kinds)


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("ingest", "--exclude *1*"),
        ("search", "--algorithm adagrad"),
        ("score", "--column title"),
        ("explain", "--id d1"),
    ],
)
def test_a_value_of_a_list_may_be_repeated(commands: Commands, command: str, given: str) -> None:
    case = next(case for case in TABLE[command][given.split()[0]] if isinstance(case, Case))
    kind = {"ingest": "records", "search": "two"}.get(command, "jsonl")
    assert commands.outcome(command, kind, case, f"{given} {given}") == commands.outcome(command, kind, case, given)


def check(commands: Commands, command: str, case: Case, kind: str) -> None:
    """The option applies to an input of this kind, and makes another outcome; or it does not, and is refused."""
    flag = case.given.split()[0]
    if kind not in case.applies:
        found = commands.outcome(command, kind, case, case.given)
        assert (found.exit, found.error) == (2, case.refused), (kind, commands.said)
        if case.refused == "unsupported-combination":  # it names the option
            assert flag.removeprefix("--").removeprefix("no-").partition("-")[0] in commands.said, commands.said
        return
    found = commands.outcome(command, kind, case, f"{case.given} {case.among}")
    if flag in cluster(NONE) and case.free and command != "generate":
        assert found.error == "no-workers"  # the cluster gets it
        return
    assert found.exit == 0 or found.error in case.errors, (kind, commands.said)
    without = commands.outcome(command, kind, case, case.among)
    assert (found == without) == bool(case.free), (kind, without, found)
