"""Every kind of artifact: commands that leave a small one, its files, and commands that read it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.nightly_runs import arrive, prepare
from tests.support.texts import write_reviews, write_run_file

Command = list[str]
READ = "tests.chaos.readers:"
LINES = "the grey wave and old tide\nmoss fox tree\ntram street lamp roof\n\n"


class Kind(NamedTuple):
    """A kind of artifact.

    Parameters
    ----------
    prepare : callable
        Writes the inputs to a folder.
    build : list of commands
        Leave the artifacts.
    files : tuple of str
        Patterns of the artifacts.
    read : list of commands
        Each trial runs one of them, in turn.
    arrive : callable
        Changes the inputs between the two.
    warm : bool
        Whether readers find compiled code loaded.
    """

    prepare: Callable[[Path], object]
    build: list[Command]
    files: tuple[str, ...]
    read: list[Command]
    arrive: Callable[[Path], object] = lambda folder: None
    warm: bool = True


def _rich(folder: Path) -> None:
    """Records with several labels, sample weights, groups, times and fields."""
    write_reviews(folder / "places.jsonl", rows=60, classes=3)
    rows = [json.loads(line) for line in (folder / "places.jsonl").read_text().splitlines()]
    for k, row in enumerate(rows):
        row["label"] = [row["label"]] if k % 3 else [row["label"], "sea"]
        row |= {"w": k % 4 / 2, "by": f"g{k // 5}", "at": 1e9 + k, "title": row["text"][:9], "price": k * 1.5}
    (folder / "places.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rich.toml").write_text(
        'out = "run"\n[ingest]\ninputs = ["places.jsonl"]\nlabels = "multi"\nmin_df = 1\nshard_bytes = 8192\n'
        'weight_field = "w"\ngroup_field = "by"\ntime_field = "at"\nngram_range = [1, 1]\n'
        '[ingest.fields.title]\ntype = "text"\n[ingest.fields.text]\ntype = "text"\n'
        '[ingest.fields.price]\ntype = "number"\ntransform = "bins"\nbins = 3\n'
        "[search]\nfolds = 2\nepochs = 1\nalgorithms.rda = { lam = [1e-3] }\n[cluster]\nthreads = 1\n"
    )


def _reviews(folder: Path) -> None:
    write_run_file(folder)
    path = folder / "places.toml"
    path.write_text(path.read_text().replace("folds = 3", "folds = 2").replace("threads = 2", "threads = 1"))


def _nightly(folder: Path) -> None:
    prepare(folder, 2, **{"threads = 2": "threads = 1", "confidence = 0": "confidence = 0\nmargin = 0.9"})


INGEST = ["ingest", "places.jsonl", "--out", "store", "--min-df", "1", "--shard-bytes", "8192"]
SEARCH = ["--algorithm", "rda", "--grid", "lam=0.001,0.01", "--folds", "2", "--epochs", "2", "--threads", "1"]
OPTIMUM = ["optimum", "store", "--out", "opt", "--alpha", "1,10", "--threads", "1"]
TRAIN = ["train", "store", "--out", "model", "--threads", "1"]
COUNTS = ["--tf", "count", "--no-idf", "--norm", "none", "--threads", "1"]
WARM = ["train", "run/shards", "--out", "next", "--algorithm", "rda", "--warm-start", "run/model", *COUNTS]
AUTO = ["train", "store", "--out", "mix", "--algorithm", "auto", "--grid", "adagrad.lam=0.001,0.01", "--threads", "1"]
THREADS = ["--threads", "1"]
GENERATE = ["generate", "corpus", "--bytes", "20KB", "--vocabulary", "500"]
SCORE = ["score", "run", "places.jsonl", "--out", "scores", "--keep-class", "sea", "--shard-bytes", "8192", *THREADS]

KINDS: dict[str, Kind] = {
    "store": Kind(
        _reviews,
        [INGEST],
        ("store/*",),
        [[READ + "store", "store"], [*TRAIN, "--algorithm", "rda"], ["status", "store"], INGEST],
    ),
    "hashed store": Kind(
        _reviews,
        [[*INGEST, "--hash-bits", "8"]],
        ("store/*",),
        [[READ + "store", "store"], [*INGEST, "--hash-bits", "8"]],
    ),
    "rich store": Kind(
        _rich,
        [["run", "rich.toml"]],
        ("run/shards/*",),
        [[READ + "store", "run/shards"], ["run", "rich.toml"]],
    ),
    "search": Kind(
        _reviews,
        [["run", "places.toml"]],
        ("run/run.json", "run/search/*", "run/evaluation.json", "run/test.parquet", "run/report/leaderboard.parquet"),
        [
            ["report", "run"],
            ["status", "run", "--json"],
            [READ + "metrics", "run"],
            ["run", "places.toml"],
            ["regret", "run", "--marks", "3"],
        ],
    ),
    "cells": Kind(_reviews, [["run", "places.toml"]], ("run/search/cells/*",), [["run", "places.toml"]]),
    "checkpoints": Kind(
        _reviews,
        [INGEST, [READ + "ended_at_commit", "30", "search", "store", "--out", "run", *SEARCH]],
        ("run/search/cells/*", "run/search/checkpoints/*", "run/run.json"),
        [["search", "store", "--out", "run", *SEARCH]],
    ),
    "model": Kind(
        _reviews,
        [["run", "places.toml"]],
        ("run/model/*",),
        [
            ["predict", "run/model", "--proba", "--margins"],
            ["explain", "run/model", "--json"],
            ["compare", "run/model", "run/model", "--json"],
            ["evaluate", "run", "places.jsonl", "--json"],
            ["status", "run/model"],
            [
                "train",
                "run/shards",
                "--out",
                "next",
                "--algorithm",
                "rda",
                "--warm-start",
                "run/model",
                "--threads",
                "1",
            ],
            ["report", "run"],
        ],
    ),
    "mixture": Kind(
        _reviews,
        [INGEST, AUTO],
        ("mix/*",),
        [["predict", "mix", "--proba", "--margins"], [READ + "mixture_page", "mix"], [READ + "tables", "mix"], AUTO],
    ),
    "nightly": Kind(
        _nightly,
        [["nightly", "places.toml"]],
        ("run/*.json", "run/*.parquet", "run/nightly/**/*", "run/models/**/*", "run/shards/*"),
        [
            ["nightly", "places.toml"],
            ["status", "run", "--json"],
            ["predict", "run", "--proba"],
            ["nightly", "places.toml", "--rollback", "1"],
        ],
        lambda folder: arrive(folder, 3),
    ),
    "regret": Kind(
        _reviews,
        [["run", "places.toml"], ["regret", "run", "--marks", "3"]],
        ("run/regret/**/*",),
        [["report", "run"], ["regret", "run", "--marks", "3"], [READ + "tables", "run/regret"]],
    ),
    "optimum": Kind(
        _reviews,
        [INGEST, OPTIMUM],
        ("opt/**/*",),
        [OPTIMUM, ["predict", "opt/alpha-1.0", "--margins"], [READ + "tables", "opt"]],
    ),
    "scores": Kind(
        _reviews,
        [["run", "places.toml"], [*SCORE, "--keep-top", "10%"]],
        ("scores/*", "scores/*/*"),
        [[*SCORE, "--keep-top", "10%"], [*SCORE, "--keep-top", "20%"], [READ + "scores", "scores"]],
    ),
    "staged pieces": Kind(
        _reviews, [[READ + "ended_before_manifest", *INGEST]], ("store/**/*", "store/.staging/**/*"), [INGEST]
    ),
    "fetched corpus": Kind(
        lambda folder: (folder / "c.txt").write_text("hello\n" * 9),
        [[READ + "fetched", "c.txt", "corpora"]],
        ("corpora/**/*",),
        [[READ + "fetched", "c.txt", "corpora"]],
    ),
    "synthetic corpus": Kind(lambda folder: None, [GENERATE], ("corpus/**/*",), [GENERATE]),
    "compile cache": Kind(
        lambda folder: None, [[READ + "kernels"]], ("cache/**/*.nb?",), [[READ + "kernels"]], warm=False
    ),
}
