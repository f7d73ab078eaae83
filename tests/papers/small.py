"""Small synthetic files in the formats of the experiments."""

import gzip
from pathlib import Path

import numpy as np


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
