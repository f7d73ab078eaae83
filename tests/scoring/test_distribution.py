"""Distributions of scores, and their bins."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.core.logs import no_progress
from sparseoco.scoring import parts as parts_module
from sparseoco.scoring.distribution import (
    DISTRIBUTION,
    MAX_BINS,
    OTHERS,
    PROBABILITY_BINS,
    BinCounts,
    RunningCounts,
    bin_bounds,
    bin_numbers,
    count_bins,
    merge_counts,
    read_distribution,
    write_distribution,
)
from sparseoco.scoring.kept import KeptDescription, ranking
from sparseoco.scoring.manifest import (
    Listed,
    ModelEntry,
    PartEntry,
    PartTable,
    ScoredSource,
    ScoredSourceTable,
    ScoreManifest,
)
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS
from sparseoco.storage.tables import write_parquet
from sparseoco.store.manifest import FileEntry
from sparseoco.text.options import TextOptions
from sparseoco.text.tasks import TextJob, open_tasks

# ----------------------------------------------------------------------------------------------------------------------
# The distribution of scores: the counts that a loop over all documents gives, in one file whatever the parts.


ROWS = 300
SOURCES = 3


def model(name: str, classes: Sequence[str], *, probabilities: bool = True, label_sets: bool = False) -> ModelEntry:
    positive = classes[1] if len(classes) == 2 and not label_sets else None
    return ModelEntry(
        name=name,
        folder=f"/models/{name}",
        sha256="0" * 64,
        classes=tuple(classes),
        positive_class=positive,
        label_sets=label_sets,
        probabilities=probabilities,
    )


def scores_of(entry: ModelEntry, prefix: str, rng: np.random.Generator) -> dict[str, Any]:
    """Columns of random scores; margins are rounded, and so have ties."""
    margins = np.round(rng.normal(size=(ROWS, entry.outputs)), 2)
    names = list(entry.classes) if entry.outputs > 1 else [""]
    columns: dict[str, Any] = {}
    if not entry.classes:
        columns[f"{prefix}prediction"] = margins[:, 0]
    elif entry.label_sets:
        columns[f"{prefix}prediction"] = pa.array(
            [[c for c, m in zip(entry.classes, row, strict=True) if m > 0] for row in margins], pa.list_(pa.string())
        )
    else:
        winners = margins.argmax(axis=1) if entry.outputs > 1 else (margins[:, 0] > 0).astype(int)
        columns[f"{prefix}prediction"] = [entry.classes[k] for k in winners]
    for name, values in zip(names, margins.T, strict=True):
        columns[f"{prefix}margin {name}".strip()] = values
        if entry.probabilities:
            columns[f"{prefix}probability {name}".strip()] = 1 / (1 + np.exp(-values))
    return columns


def labels_of(entry: ModelEntry, rng: np.random.Generator) -> pa.Array:
    if not entry.classes:
        return pa.array(rng.normal(size=ROWS))
    if entry.label_sets:
        picked = rng.random((ROWS, len(entry.classes))) < 0.4
        return pa.array([[c for c, own in zip(entry.classes, row, strict=True) if own] for row in picked])
    return pa.array([entry.classes[k] for k in rng.integers(0, len(entry.classes), ROWS)])


@contextmanager
def job_in(folder: Path) -> Iterator[TextJob]:
    with open_tasks() as tasks:
        yield TextJob(folder, folder / ".staging", TextOptions(), 1, no_progress, tasks)


def listed(models: Sequence[ModelEntry], parts: Sequence[PartEntry], *, labelled: bool) -> Listed:
    manifest = ScoreManifest(
        sparseoco="0",
        models=tuple(models),
        options={},
        labelled=labelled,
        rows=ROWS,
        n_parts=0,
        part_segments=(),
        n_sources=SOURCES,
        source_segments=(),
    )
    sources = [
        ScoredSource(path=f"/in/{k}", bytes=1, modified_ns=None, sha256="", rows=1, key="") for k in range(SOURCES)
    ]
    return Listed(manifest, PartTable.of(parts), ScoredSourceTable.of(sources))


def write_parts(folder: Path, table: pa.Table, source: np.ndarray, cuts: Sequence[int]) -> list[PartEntry]:
    """Documents in parts that end at the cuts and at the ends of sources, and a part without documents."""
    ends = sorted({0, ROWS, *cuts, *np.flatnonzero(np.diff(source)) + 1})
    entries = []
    for k, (first, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        path = folder / PARTS / f"{k}.parquet"
        write_parquet(path, table.slice(first, stop - first))
        own = int(source[first])
        entries.append(PartEntry(file=path.name, bytes=1, sha256="0" * 64, rows=stop - first, source=own))
    return entries


def described(
    manifest: ScoreManifest, options: ScoreOptions, value: float, *, included: bool = True
) -> KeptDescription:
    order = ranking(manifest.models, options)
    return KeptDescription(
        scores=manifest.digest,
        asked=options.model_dump(
            mode="json", include={"keep_top", "keep_above", "keep_class", "keep_model", "keep_as"}
        ),
        column=order.column,
        of=order.of,
        ranked_by=order.name,
        value=value,
        included=included,
        documents=ROWS,
        rows=1,
        ties=1,
        files=FileEntry(file="x", bytes=1, sha256="0" * 64),
    )


TWO, THREE, SETS = ("ham", "spam"), ("a", "b", "c"), ("x", "y", "z")
CASES: dict[str, tuple[list[ModelEntry], ScoreOptions | None]] = {
    "two": ([model("m", TWO)], ScoreOptions(keep_top="10%")),
    "first of two": ([model("m", TWO)], ScoreOptions(keep_top="10%", keep_class="ham")),
    "above": ([model("m", TWO)], ScoreOptions(keep_above=0.7)),
    "not calibrated": ([model("m", TWO, probabilities=False)], ScoreOptions(keep_top="10%", keep_class="ham")),
    "three": ([model("m", THREE)], None),
    "one of three": ([model("m", THREE)], ScoreOptions(keep_top="5%", keep_class="b")),
    "label sets": ([model("m", SETS, label_sets=True)], ScoreOptions(keep_top="5%", keep_class="y")),
    "all label sets": ([model("m", SETS, label_sets=True)], None),
    "numbers": ([model("m", (), probabilities=False)], ScoreOptions(keep_top="10%")),
    "two models": ([model("m", TWO), model("n", TWO, probabilities=False)], ScoreOptions(keep_top="9", keep_model="n")),
}


def case(name: str, tmp_path: Path, cuts: Sequence[int]) -> tuple[pa.Table, np.ndarray, Listed, KeptDescription | None]:
    models, options = CASES[name]
    rng = np.random.default_rng(7)
    table: dict[str, Any] = {"id": pa.array(map(str, range(ROWS))), "label": labels_of(models[0], rng)}
    for entry in models:
        table |= scores_of(entry, f"{entry.name}." if len(models) > 1 else "", rng)
    source = np.sort(rng.integers(0, SOURCES, ROWS))
    documents = pa.table(table)
    scores = listed(models, write_parts(tmp_path, documents, source, cuts), labelled=True)
    kept = None
    if options is not None:
        kept = described(scores.manifest, options, 0.7, included=options.keep_above is None)
    return documents, source, scores, kept


def class_of(value: Any, of: str | None) -> str | None:
    """A label or prediction as in the file."""
    if isinstance(value, list):
        return None if of is None else of if of in value else f"not {of}"
    return value if isinstance(value, str) else None


@pytest.mark.parametrize("name", CASES)
def test_equal_to_a_loop_over_all_documents(name: str, tmp_path: Path) -> None:
    documents, source, scores, kept = case(name, tmp_path, [50, 170])
    with job_in(tmp_path) as job:
        write_distribution(job, scores, kept)
    found = read_distribution(tmp_path)
    models, options = CASES[name]
    for entry in models:
        prefix = f"{entry.name}." if len(models) > 1 else ""
        own = found.filter(pc.field("model") == entry.name)
        columns = own["column"].unique().to_pylist()
        ranked = kept is not None and entry.name == (options.keep_model or models[0].name)
        assert (kept.ranked_by in columns) if ranked else len(columns) == 1
        for column in columns:
            values = score_values(documents, prefix, column, entry)
            rows = own.filter(pc.field("column") == column).to_pylist()
            expected, expected_kept = Counter(), Counter()
            width = rows[0]["upper"] - rows[0]["lower"]
            limit = None if kept is None else ranked_values(documents, kept)
            chosen = entry.positive_class if options is None else options.keep_class or entry.positive_class
            for k in range(ROWS):
                lower = (
                    min(math.floor(values[k] * 50 + 1e-9), 49) / 50
                    if "probability" in column
                    else math.floor(values[k] / width) * width
                )
                classes = (class_of(documents[c][k].as_py(), chosen) for c in (f"{prefix}prediction", "label"))
                key = (f"/in/{source[k]}", *classes, lower)
                expected[key] += 1
                if limit is not None:
                    expected_kept[key] += limit[k]
            keys = [(row["source"], row["prediction"], row["label"], row["lower"]) for row in rows]
            assert len(set(keys)) == len(keys)
            assert {key: row["documents"] for key, row in zip(keys, rows, strict=True)} == expected
            if kept is None:
                assert {row["kept"] for row in rows} == {None}
            else:
                assert {key: row["kept"] for key, row in zip(keys, rows, strict=True)} == expected_kept
                assert 0 < sum(expected_kept.values()) < ROWS


def test_the_largest_sources_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source, scores, kept = case("two", tmp_path, [50, 170])
    monkeypatch.setattr("sparseoco.scoring.distribution.MAX_SOURCES", 1)
    with job_in(tmp_path) as job:
        write_distribution(job, scores, kept)
    table = read_distribution(tmp_path)
    table = table.filter(pc.field("column") == table["column"][0])
    found = {
        name: pc.sum(table.filter(pc.field("source") == name)["documents"]).as_py()
        for name in set(table["source"].to_pylist())
    }
    sizes = np.bincount(source)
    largest = int(sizes.argmax())
    assert found == {f"/in/{largest}": sizes[largest], OTHERS: ROWS - sizes[largest]}


def score_values(documents: pa.Table, prefix: str, column: str, entry: ModelEntry) -> np.ndarray:
    """The score that a column of the distribution names."""
    kind, _, of = column.partition(" of ")
    if kind == "prediction":
        return documents[f"{prefix}prediction"].to_numpy()
    if kind.startswith("largest "):
        return np.max([documents[f"{kind.split()[1]} {name}"].to_numpy() for name in entry.classes], axis=0)
    if entry.outputs > 1:
        return documents[f"{prefix}{kind} {of}"].to_numpy()
    values = documents[f"{prefix}{kind}"].to_numpy()
    return values if of == entry.classes[1] else 1 - values if kind == "probability" else -values


def ranked_values(documents: pa.Table, kept: KeptDescription) -> np.ndarray:
    """Which documents are kept."""
    values = documents[kept.column].to_numpy()
    values = {"value": values, "negative": -values, "complement": 1 - values}[kept.of]
    return values >= kept.value if kept.included else values > kept.value


@pytest.mark.parametrize("name", ["first of two", "label sets", "two models"])
def test_any_division_into_parts_gives_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    contents = set()
    for k, batch in enumerate((64, 1, 2, 3)):
        monkeypatch.setattr(parts_module, "BATCH", batch)
        folder = tmp_path / str(k)
        _, _, scores, kept = case(name, folder, rng.integers(0, ROWS, 3 * k).tolist())
        with job_in(folder) as job:
            write_distribution(job, scores, kept)
        contents.add((folder / DISTRIBUTION).read_bytes())
    assert len(contents) == 1


def test_is_written_again_only_for_other_scores_or_documents(tmp_path: Path) -> None:
    _, _, scores, kept = case("two", tmp_path, [])
    path = tmp_path / DISTRIBUTION
    with job_in(tmp_path) as job:
        write_distribution(job, scores, kept)
        written = path.stat().st_mtime_ns, path.read_bytes()
        for part in scores.parts:
            (tmp_path / PARTS / part.file).rename(tmp_path / part.file)
        write_distribution(job, scores, kept)  # reads no part
        assert (path.stat().st_mtime_ns, path.read_bytes()) == written
        for part in scores.parts:
            (tmp_path / part.file).rename(tmp_path / PARTS / part.file)
        write_distribution(job, scores, kept.model_copy(update={"value": 0.1}))
        assert path.read_bytes() != written[1]
        path.write_bytes(written[1][:-9])
        write_distribution(job, scores, kept)
    assert path.read_bytes() == written[1]


def test_of_no_documents_it_is_empty(tmp_path: Path) -> None:
    with job_in(tmp_path) as job:
        write_distribution(job, listed([model("m", TWO)], [], labelled=False), None)
    assert read_distribution(tmp_path).num_rows == 0


# ----------------------------------------------------------------------------------------------------------------------
# Counts in bins: those of all values together, whatever the parts they are counted in.


SCORES = st.one_of(
    st.floats(-5, 5), st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1e-30])
)


def counted(values: list[float]) -> BinCounts:
    scores = np.array(values)
    classes = pa.array(["a" if value > 0 else None for value in values], pa.string())
    return count_bins(scores, 3, classes, pa.nulls(len(scores), pa.string()), scores > 1, probability=False)


def rows(counts: BinCounts) -> list[dict]:
    keys = [(name, "ascending") for name in ("bin", "prediction")]
    return counts.table.sort_by(keys).to_pylist()


@given(st.lists(st.lists(SCORES, min_size=1, max_size=8), min_size=1, max_size=6))
def test_merged_counts_are_those_of_all_values(parts: list[list[float]]) -> None:
    together = counted([value for part in parts for value in part])
    running = RunningCounts()
    for part in parts:
        running.add(counted(part))
    for found in (merge_counts([counted(part) for part in parts]), running.total()):
        assert found is not None
        assert found.scale == together.scale
        assert rows(found) == rows(together)


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_bins_hold_their_values_and_are_as_fine_as_possible(values: list[float]) -> None:
    scores = np.array(values)
    scale, numbers = bin_numbers(scores, probability=False)
    lower, upper = bin_bounds(numbers, scale, probability=False)
    assert ((lower <= scores) & (scores < upper)).all()
    assert np.ptp(numbers) < MAX_BINS
    finer = [math.floor(Fraction(value) / Fraction(2) ** (scale - 1)) for value in values]
    exact = math.frexp(max(map(abs, [*values, 2.0**-12])))[1] - 52
    assert scale == exact or max(finer) - min(finer) >= MAX_BINS


@given(st.lists(st.floats(0, 1), min_size=1))
def test_probabilities_have_bins_of_two_per_cent(values: list[float]) -> None:
    scores = np.array([*values, 0.0, 0.58, 1.0])
    scale, numbers = bin_numbers(scores, probability=True)
    lower, upper = bin_bounds(numbers, scale, probability=True)
    assert ((lower <= scores) & ((scores < upper) | (scores == 1.0))).all()
    assert (numbers.min(), numbers.max()) == (0, PROBABILITY_BINS - 1)
    assert lower[-2] == 0.58


def test_without_counts_there_is_no_sum() -> None:
    assert RunningCounts().total() is None


def test_infinite_values_are_in_the_first_and_last_bin() -> None:
    counts = merge_counts([counted([math.inf, 1.0]), counted([-math.inf, 2.0])])
    lower, upper = bin_bounds(counts.table["bin"].to_numpy(), counts.scale, probability=False)
    assert sum(counts.table["documents"].to_pylist()) == 4
    assert lower.min() <= -8e307
    assert upper.max() >= 8e307
