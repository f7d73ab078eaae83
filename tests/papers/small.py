"""Small synthetic files in the formats of the experiments, and their tables."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from sparseoco.papers.rows import Row, select
from sparseoco.papers.sources import Documents, choose_sources, find_sources, load_documents

NEWS: Final = {
    "comp.graphics": "drawing images",
    "sci.space": "orbits",
    "soc.religion.christian": "doubts",
    "comp.os.ms-windows.misc": "crashes",
}
EACH: Final = 60
"""Messages of each group."""
REVIEW_WORDS: Final = (
    *("good", "bad", "book", "read", "never", "again", "story", "time", "love", "waste", "plot", "dull", "fine"),
)


def rows_of(out: Path, table: str, **values: Any) -> list[Row]:
    """The rows of a table of an experiment that have these values."""
    return select(pq.read_table(out / f"{table}.parquet").to_pylist(), **values)


def load(folder: Path, name: str, work: Path) -> Documents:
    """The documents of a set of a folder."""
    (source,), files = find_sources(folder, choose_sources(name))
    return load_documents(source, files, work)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write lines, compressed."""
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def write_reviews(folder: Path, rows: int = 120) -> Path:
    """books.svmlight.gz and its feature_names.tsv: 40 words, two of which identify the class in four rows of five."""
    draw = np.random.default_rng(3)
    lines = []
    for _ in range(rows):
        label = int(draw.integers(2))
        words = sorted({int(word) for word in draw.integers(4, 40, 6)} | {2 * int(draw.random() < 0.8) + label})
        lines.append(f"{2 * label - 1} " + " ".join(f"{word}:{draw.integers(1, 4)}" for word in words))
    write_lines(folder / "books.svmlight.gz", lines)
    (folder / "feature_names.tsv").write_text("".join(f"{k}\tword_{k}\n" for k in range(40)))
    return folder


def write_data(folder: Path, rows: int = 14) -> Path:
    """All six files; 110 stocks in one panel, one of them with a gap, and 5 in the other."""
    rng = np.random.default_rng(11)

    def table(matrix: np.ndarray) -> list[str]:
        return [",".join(f"{value:.6g}" for value in row) for row in matrix]

    X = rng.random((rows, 8))
    rings = np.round(5 + 10 * X[:, 0])
    header = "Sex,Lenght,Diameter,Height,Whole_weight,Shucked_weight,Viscera_weight,Shell_weight,Rings"
    abalone = [f"M,{line},{y:g}" for line, y in zip(table(X[:, :7]), rings, strict=True)]
    (folder / "abalone.data").write_text("\n".join([header, *abalone]) + "\n")
    kin = np.column_stack([rng.normal(size=(rows, 8)), rng.normal(size=rows)])
    (folder / "kin8nm.csv").write_text("\n".join(table(kin)) + "\n")
    Z = rng.uniform(-1, 1, (rows, 34))
    Z[:, 1] = 0
    good = np.where(Z[:, 0] + 0.1 * Z[:, 2] > 0, 1, 2)
    (folder / "ionosphere.data").write_text("\n".join(table(np.column_stack([good, Z]))) + "\n")
    B = rng.integers(1, 11, (rows, 9))
    sick = np.where(B[:, 0] > 5, 4, 2)
    (folder / "breast.data").write_text("\n".join(table(np.column_stack([sick, np.arange(rows), B]))) + "\n")
    panels = folder / "portfolios"
    panels.mkdir()
    relatives = np.cumprod(rng.lognormal(0.001, 0.02, (40, 5)), axis=0)
    text = "\n".join(["A,B,C,D,x", *table(relatives)]) + "\n"
    (panels / "nyse_o.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    prices = 10 * np.cumprod(rng.lognormal(0.001, 0.02, (30, 110)), axis=0)
    weeks = [f"2017-06-{day:02},{line}" for day, line in enumerate(table(prices), start=1)]
    weeks[3] = weeks[3].replace("," + weeks[3].split(",")[7] + ",", ",,", 1)
    names = ",".join(str(600000 + k) for k in range(110))
    (panels / "shanghai_weekly.csv").write_text("\n".join([f"date,{names}", *weeks]) + "\n")
    return folder


def _signed(k: int, words: list[int]) -> str:
    """A line of SVMlight: a class of two, and words with counts of 1 to 3."""
    return f"{2 * (k % 2) - 1} " + " ".join(f"{word}:{1 + (word + k) % 3}" for word in words)


def write_separable(folder: Path, rows: int = 40, words: int = 12) -> Path:
    """books.svmlight.gz: words with an odd number occur more often in one class."""
    draw = np.random.default_rng(5)
    odd = np.arange(words) % 2
    chosen = [np.flatnonzero(draw.random(words) < 0.3 + 0.3 * (odd == k % 2)).tolist() or [0] for k in range(rows)]
    write_lines(folder / "books.svmlight.gz", [_signed(k, own) for k, own in enumerate(chosen)])
    return folder


def write_counts_and_text(folder: Path) -> Path:
    """books.svmlight.gz and, of other reviews, books.jsonl.gz."""
    draw = np.random.default_rng(3)
    chosen = [np.flatnonzero(draw.random(12) < 0.4).tolist() or [0] for _ in range(40)]
    write_lines(folder / "books.svmlight.gz", [_signed(k, own) for k, own in enumerate(chosen)])
    draw = np.random.default_rng(4)
    texts = [" ".join(draw.choice(REVIEW_WORDS, 5)) for _ in range(20)]
    rows = [{"id": str(k), "label": ("negative", "positive")[k % 2], "text": text} for k, text in enumerate(texts)]
    write_lines(folder / "books.jsonl.gz", [json.dumps(row) for row in rows])
    return folder


def write_reviews_and_news(folder: Path) -> Path:
    """`write_reviews`, and 20news-bydate.jsonl.gz with four groups, one message of which is an encoded file."""
    write_reviews(folder)
    draw = np.random.default_rng(3)
    news = []
    for k in range(EACH * len(NEWS)):
        group = list(NEWS)[k % len(NEWS)]
        text = f"The {NEWS[group]} of message{k % 7}" + (" noise" if draw.random() < 0.5 else "")
        news.append({"id": str(k // 2), "label": group, "text": text + (" ax" * 1001 if k == 1 else "")})
    write_lines(folder / "20news-bydate.jsonl.gz", [json.dumps(message) for message in news])
    return folder


class SmallExperiment(NamedTuple):
    """How its files are written, and the options of a quick run."""

    write: Callable[[Path], Path]
    options: dict[str, int]


SMALL: Final = {
    "caos": SmallExperiment(write_separable, {"repetitions": 2}),
    "cl-fobos": SmallExperiment(write_counts_and_text, {"repetitions": 2, "rounds": 450}),
    "onseg": SmallExperiment(write_data, {"repetitions": 2, "draws": 2}),
    "stda": SmallExperiment(write_reviews_and_news, {"passes": 1}),
    "sgft": SmallExperiment(write_reviews, {"passes": 1}),
}
