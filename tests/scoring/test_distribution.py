"""Distributions of scores, and their bins."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.scoring import distribution as module
from sparseoco.scoring import parts
from sparseoco.scoring.distribution import (
    DISTRIBUTION,
    MAX_BINS,
    PROBABILITY_BINS,
    BinCounts,
    bin_bounds,
    bin_numbers,
    count_bins,
    merge_counts,
    read_distribution,
)
from sparseoco.scoring.kept import KeptDescription, read_kept
from sparseoco.scoring.parts import ModelEntry, read_scores
from tests.scoring.test_score import scored, table
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

# ----------------------------------------------------------------------------------------------------------------------
# The distribution of scores: the counts that a loop over all documents gives, in one file whatever the parts.


SIZES = {"a.jsonl": 24, "b.jsonl": 78, "c.jsonl": 42}
"""Documents of each input."""
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "two": ({"positive_class": "b"}, lambda k: "ab"[k % 2]),
    "margins": ({"positive_class": "b", "loss": "hinge"}, lambda k: "ab"[k % 2]),
    "three": ({"classes": 3, "seed": 1}, lambda k: "abc"[k % 3]),
    "sets": ({"classes": 3, "labels": "multi"}, lambda k: list("abc"[k % 4 :])),
    "numbers": ({"labels": "numbers"}, lambda k: k / 2),
}
"""Models, and labels for the documents of each."""
CASES: dict[str, dict[str, Any]] = {
    "two": {"keep_top": "10%"},
    "two, the other class": {"keep_top": "10%", "keep_class": "a"},
    "two, above": {"keep_above": 0.4},
    "two, unlabelled": {"keep_top": "10%", "labelled": False},
    "margins": {"keep_top": "10%", "keep_class": "a"},
    "three": {},
    "three, a class": {"keep_top": "5%", "keep_class": "b"},
    "sets": {},
    "sets, a class": {"keep_top": "5%", "keep_class": "b"},
    "numbers": {"keep_top": "10%"},
    "margins, another model": {"also": "two", "keep_top": "9"},
}
"""What is kept of the scores of a model."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, each with documents that have labels of its kind."""
    folder = tmp_path_factory.mktemp("distribution")
    for name, (described, label) in MODELS.items():
        random_model(folder / name, **described)
        for k, (source, size) in enumerate(SIZES.items()):
            (folder / name / source).write_bytes(jsonl(random_texts(size, k), label=label))
    return folder


def distributed(folder: Path, name: str, out: Path, **changed: Any) -> pa.Table:
    """The distribution of a case."""
    model, options = name.partition(",")[0], {"labelled": True, "keep_as": "ids", **CASES[name], **changed}
    if "also" in options:
        options["also"] = (f"{options['also']}={folder / options['also']}",)
    if not {"keep_top", "keep_above"} & options.keys():
        options.pop("keep_as")
    scored(folder / model, list(SIZES), out, model="model", **options)
    return read_distribution(out)


def class_of(value: Any, of: str | None) -> str | None:
    """A label or prediction as in the file."""
    if isinstance(value, list):
        return None if of is None else of if of in value else f"not {of}"
    return value if isinstance(value, str) else None


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


@pytest.mark.parametrize("name", CASES)
def test_equal_to_a_loop_over_all_documents(name: str, folder: Path, tmp_path: Path) -> None:
    found = distributed(folder, name, tmp_path / "out")
    scores, kept, documents = read_scores(tmp_path / "out"), read_kept(tmp_path / "out"), table(tmp_path / "out")
    options = CASES[name]
    sources = np.repeat([str(folder / name.partition(",")[0] / source) for source in SIZES], list(SIZES.values()))
    labels = documents["label"].to_pylist() if options.get("labelled", True) else [None] * len(sources)
    limit = None if kept is None else ranked_values(documents, kept)
    for entry in scores.manifest.models:
        prefix = f"{entry.name}." if "also" in options else ""
        own = found.filter(pc.field("model") == entry.name)
        columns = own["column"].unique().to_pylist()
        ranked = kept is not None and entry.name == scores.manifest.models[0].name
        assert (kept.ranked_by in columns) if ranked else len(columns) == 1
        chosen = options.get("keep_class") or entry.positive_class
        predictions = documents[f"{prefix}prediction"].to_pylist()
        for column in columns:
            values = score_values(documents, prefix, column, entry)
            rows = own.filter(pc.field("column") == column).to_pylist()
            width = rows[0]["upper"] - rows[0]["lower"]
            expected, expected_kept = Counter(), Counter()
            for k, source in enumerate(sources.tolist()):
                lower = (
                    min(math.floor(values[k] * 50 + 1e-9), 49) / 50
                    if "probability" in column
                    else math.floor(values[k] / width) * width
                )
                key = (source, class_of(predictions[k], chosen), class_of(labels[k], chosen), lower)
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
                assert 0 < sum(expected_kept.values()) < len(sources)


def test_the_largest_sources_have_their_names(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SOURCES", 1)
    found = distributed(folder, "three", tmp_path / "out").group_by("source").aggregate([("documents", "sum")])
    sizes = dict(zip(found["source"].to_pylist(), found["documents_sum"].to_pylist(), strict=True))
    assert sizes == {str(folder / "three" / "b.jsonl"): 78, module.OTHERS: 66}


@pytest.mark.parametrize("name", ["two, the other class", "sets, a class", "margins, another model"])
def test_any_division_into_parts_gives_the_same_table(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for shard_bytes, batch in ((1 << 20, 64), (1024, 1), (2048, 2), (4096, 3)):
        monkeypatch.setattr(parts, "BATCH", batch)
        monkeypatch.setattr(module, "TOGETHER", batch + 1)
        found.append(distributed(folder, name, tmp_path / f"{batch}", shard_bytes=shard_bytes))
    assert all(each.equals(found[0]) for each in found)


def test_is_written_again_only_for_other_scores_or_documents(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / DISTRIBUTION
    distributed(folder, "two", tmp_path)
    written = path.stat().st_mtime_ns, path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "count_scores", None)  # no part is counted
        distributed(folder, "two", tmp_path)
    assert (path.stat().st_mtime_ns, path.read_bytes()) == written
    distributed(folder, "two", tmp_path, keep_top="20%")
    assert path.read_bytes() != written[1]
    distributed(folder, "two", tmp_path)
    path.write_bytes(written[1][:-9])
    distributed(folder, "two", tmp_path)
    assert path.read_bytes() == written[1]


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
    counts = [counted(part) for part in parts]
    for found in (merge_counts(counts), merge_counts([merge_counts(counts[:2]), *counts[2:]])):
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


def test_infinite_values_are_in_the_first_and_last_bin() -> None:
    counts = merge_counts([counted([math.inf, 1.0]), counted([-math.inf, 2.0])])
    lower, upper = bin_bounds(counts.table["bin"].to_numpy(), counts.scale, probability=False)
    assert sum(counts.table["documents"].to_pylist()) == 4
    assert lower.min() <= -8e307
    assert upper.max() >= 8e307
