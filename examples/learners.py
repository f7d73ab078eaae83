"""Error against sparsity: what the main learners reach on corpora of yours, as a table and a picture.

    python examples/learners.py OUT NAME=FILE …

Each file has labelled documents as `sparseoco ingest` reads them. `OUT/NAME/` becomes a run, `OUT/learners.csv` and
`OUT/learners.svg` show all of them. A call that is repeated resumes; it searches nothing twice. `pip install
matplotlib` for the picture.

All learners have the default features, the hinge loss, three folds and three epochs. But for `arow`, which has no
penalty, each has three or four step sizes and seven penalties relative to λ_max. A row of the table is a configuration
after an epoch, the mean over the folds, that no configuration of the same learner beats in both nonzero weights and
held-out error.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco import read_metrics
from sparseoco.cli.console import progress_bars
from sparseoco.pipeline.run_file import parse_run_file
from sparseoco.pipeline.steps import run_all

PENALTIES = [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1]
STEPS: dict[str, dict[str, list[float]]] = {
    "adagrad": {"eta": [0.1, 0.3, 1.0]},
    "ftrl-proximal": {"R": [0.3, 1.0, 3.0, 10.0]},
    "rda": {"gamma": [0.01, 0.03, 0.1, 0.3]},
    "stda": {"gamma": [0.01, 0.03, 0.1, 0.3]},
    "cl-fobos": {"eta0": [3.0, 10.0, 30.0, 100.0]},
    "cumulative-l1": {"eta0": [3.0, 10.0, 30.0, 100.0]},
    "sgft": {"eta0": [3.0, 10.0, 30.0, 100.0]},
    "arow": {"r": [0.01, 0.1, 1.0, 10.0]},
}
SEARCH = {
    "folds": 3,
    "epochs": 3,
    "loss": "hinge",
    "algorithms": {
        name: steps if name == "arow" else {**steps, "lam": {"relative": PENALTIES}} for name, steps in STEPS.items()
    },
}


class Point(NamedTuple):
    """A configuration of a learner after an epoch, the mean over the folds."""

    corpus: str
    learner: str
    nonzeros: float
    error: float
    parameters: str
    epoch: int


def search(name: str, file: Path, out: Path) -> None:
    """Compare all configurations on one corpus: the run `out`/`name`."""
    values: dict[str, Any] = {
        "name": name,
        "out": str(out / name),
        "ingest": {"inputs": [str(file)]},
        "evaluate": {"holdout": 0.0},
        "search": SEARCH,
    }
    with progress_bars() as progress:
        run_all(parse_run_file(values, source=name, folder=Path()), progress)


def fronts(name: str, run: Path) -> list[Point]:
    """The fronts of all learners in the tables of a run."""
    cells = defaultdict(list)
    for row in read_metrics(run).to_pylist():
        cells[row["algorithm"], row["parameters"], row["epoch"]].append(row)
    by_learner = defaultdict(list)
    for (learner, parameters, epoch), rows in cells.items():
        if len(rows) == SEARCH["folds"] and all(row["held_out_error"] is not None for row in rows):
            nonzeros, error = (sum(row[key] for row in rows) / len(rows) for key in ("nonzeros", "held_out_error"))
            by_learner[learner].append(Point(name, learner, nonzeros, error, parameters, epoch))
    return [point for learner in STEPS for point in front(by_learner[learner])]


def front(points: list[Point]) -> Iterator[Point]:
    """The points that no other beats in both nonzeros and error, by nonzeros."""
    least = float("inf")
    for point in sorted(points, key=lambda p: (p.nonzeros, p.error)):
        if point.error < least:
            least = point.error
            yield point


def draw(points: list[Point], path: Path) -> None:
    """A panel for each corpus, a line for each learner."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "learners", "font.size": 9, "font.family": "sans-serif"}
    corpora = list(dict.fromkeys(point.corpus for point in points))
    figure, axes = plt.subplots(1, len(corpora), figsize=(max(7.5, 3.8 * len(corpora)), 4.6), squeeze=False)
    for corpus, axis in zip(corpora, axes[0], strict=True):
        for number, learner in enumerate(STEPS):
            own = [p for p in points if (p.corpus, p.learner) == (corpus, learner)]
            line = {"color": f"C{number}", "marker": "osD^vP*X"[number], "markersize": 4, "linewidth": 1.2}
            axis.plot([p.nonzeros for p in own], [100 * p.error for p in own], label=learner, **line)
        errors = [p.error for p in points if p.corpus == corpus]
        axis.set(xscale="log", xlim=(10, None), title=corpus, xlabel="nonzero weights")
        axis.set_ylim(90 * min(errors), 100 * min(5 * min(errors), max(errors)))
        axis.grid(color="#dddddd", linewidth=0.6)
    axes[0][0].set_ylabel("held-out error, %")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})


def main(out: str, *corpora: str) -> None:
    """Search each corpus; write the table and the picture."""
    points = []
    for name, file in (corpus.split("=", 1) for corpus in corpora):
        search(name, Path(file), Path(out))
        points += fronts(name, Path(out) / name)
        with (Path(out) / "learners.csv").open("w", newline="") as table:
            writer = csv.writer(table, lineterminator="\n")
            writer.writerow(Point._fields)
            for point in points:
                writer.writerow(point._replace(nonzeros=round(point.nonzeros), error=round(point.error, 5)))
    draw(points, Path(out) / "learners.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
