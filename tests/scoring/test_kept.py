"""Kept documents, the folders of scores, and distributions of scores."""

import json
import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.scoring import distribution, parts
from sparseoco.scoring import kept as borders
from sparseoco.scoring.kept import KEPT, read_kept, read_kept_files
from sparseoco.scoring.options import ScoreOptions, kept_rows
from sparseoco.scoring.parts import PARTS, ModelEntry, read_scores
from tests.scoring.test_score import scored, table
from tests.support.damage import KINDS, damage, stopped_at
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.ingests import COMPRESSORS, decompress, jsonl, random_texts
from tests.support.models import random_model

# ----------------------------------------------------------------------------------------------------------------------
# The border of kept documents: that of sorting all scores, with many ties, signs and any division into parts.


few = st.sampled_from([-1.5, -0.0, 0.0, 1e-300, 0.25, 0.25000001, 1.0, 3.0])
scores = st.lists(few, min_size=1) | st.lists(st.floats(allow_nan=False), min_size=1)


@settings(max_examples=50)
@given(scores, st.integers(0, 1 << 20), st.integers(1, 5))
def test_border_is_that_of_sorting(values: list[float], number: int, pieces: int) -> None:
    every = np.array(values)
    rows = 1 + number % len(values)

    def count(*digit: int) -> Iterator[np.ndarray]:
        return (borders.count_digits(part, *digit) for part in np.array_split(every, pieces))

    border = borders.find_border(rows, count)
    assert border.value == np.sort(every)[::-1][rows - 1]
    kept = border.keeps(every)
    assert border.rows == kept.sum() == (every >= border.value).sum() >= rows
    assert border.ties == (every == border.value).sum()
    assert border.rows - border.ties < rows


@settings(max_examples=30)
@given(scores)
def test_every_value_can_be_the_border(values: list[float]) -> None:
    every = np.array(values)
    borders_of = (
        borders.find_border(rows, lambda *digit: [borders.count_digits(every, *digit)])
        for rows in range(1, len(values) + 1)
    )
    assert [border.value for border in borders_of] == sorted(values, reverse=True)


@pytest.mark.parametrize(
    ("asked", "rows", "kept"),
    [("10%", 1000, 100), ("10 %", 1001, 101), ("0.05%", 2001, 2), ("100%", 7, 7), ("5", 3, 3), ("2", 3, 2)],
)
def test_kept_rows(asked: str, rows: int, kept: int) -> None:
    assert kept_rows(asked, rows) == kept


INVALID = ["0", "0%", "101%", "-1", "1.5", "0.1", "1e-1", "ten", "1/0", "nan", "", ".", "1e99999999", "1e-99999999"]


@pytest.mark.parametrize("asked", [*INVALID, "9" * 5000])
def test_invalid_shares(asked: str) -> None:
    with pytest.raises(InputError, match="keep_top"):
        validate(ScoreOptions, {"keep_top": asked})


def test_top_and_above() -> None:
    with pytest.raises(InputError, match="keep_above: cannot be combined"):
        validate(ScoreOptions, {"keep_top": "10%", "keep_above": 0.5})
    for name, value in (("keep_class", "a"), ("keep_as", "ids")):
        with raises_code("invalid-option", name, "keep_top"):
            validate(ScoreOptions, {name: value})
        assert validate(ScoreOptions, {name: value, "keep_above": 0.5}).keeps
    assert not validate(ScoreOptions, {"keep_as": "documents"}).keeps


@pytest.mark.parametrize("of", ["value", "negative", "complement"])
def test_what_is_not_a_number_comes_last(of: str) -> None:
    order = borders.Ranking(column="margin", of=of, ranked_by="margin")
    values = order.values(pa.chunked_array([[np.nan, 0.5, -np.inf, np.inf]]))
    assert not np.isnan(values).any()
    assert values[0] == -np.inf
    border = borders.find_border(1, lambda *digit: [borders.count_digits(values, *digit)])
    assert np.flatnonzero(border.keeps(values)).tolist() == [3 if of == "value" else 2]


# ----------------------------------------------------------------------------------------------------------------------
# Kept documents: exactly those that sorting all scores gives, in the files of the input or as rows of the scores.


SIZE = 60
FORMATS = [*(f"a.jsonl{packing}" for packing in COMPRESSORS), "b.parquet"]
ROWS = SIZE * len(FORMATS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and documents of few different scores, in files of every format, and each a file of its own."""
    folder = tmp_path_factory.mktemp("kept")
    random_model(folder / "run", positive_class="b")
    random_model(folder / "other", positive_class="b", seed=9)
    random_model(folder / "many", classes=3, seed=1)
    random_model(folder / "numbers", labels="numbers")
    texts = random_texts(20, 7)
    rng = np.random.default_rng(0)
    for name in FORMATS:
        data = jsonl([texts[k] for k in rng.integers(0, len(texts), SIZE)])
        if name.endswith("parquet"):
            rows = [json.loads(line) for line in data.splitlines()]
            pq.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=30)
        else:
            (folder / name).write_bytes(COMPRESSORS[name.removeprefix("a.jsonl")](data))
    (folder / "texts").mkdir()
    for k, text in enumerate(random_texts(30, 7)):
        (folder / "texts" / f"{k}.txt").write_text(text)
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The documents of a file."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in decompress(path).splitlines()]


def kept_rows_of(out: Path) -> list[dict[str, Any]]:
    """The kept documents, in the order of the input; there are no other files."""
    kept = read_kept(out)
    entries = list(read_kept_files(out, kept))
    assert {path.name for path in (out / KEPT).iterdir()} == {entry.file for entry in entries}
    found = [rows_of(out / KEPT / entry.file) for entry in entries]
    assert [len(rows) for rows in found] == [entry.rows for entry in entries]
    return [row for rows in found for row in rows]


CASES: dict[str, tuple[str, dict[str, Any], str, float]] = {
    **{f"top {asked}": ("run", {"keep_top": asked}, "margin", 1) for asked in ("10%", "1", "33", "100%", "50%")},
    "above": ("run", {"keep_above": 0.4}, "probability", 1),
    "above, named": ("run", {"keep_above": 0.4, "keep_class": "b"}, "probability", 1),
    "above, the other": ("run", {"keep_above": 0.6, "keep_class": "a"}, "probability", -1),
    "the other": ("run", {"keep_top": "10%", "keep_class": "a"}, "margin", -1),
    "one of many": ("many", {"keep_top": "10%", "keep_class": "c"}, "probability c", 1),
    "a number": ("numbers", {"keep_above": -0.5}, "prediction", 1),
    "of two models": ("many", {"keep_top": "10%", "keep_class": "a", "also": "run"}, "many.probability a", 1),
}
"""Model, options, the column that decides and its sign."""


@pytest.mark.parametrize(
    ("case", "keep_as"),
    [*((case, "ids") for case in CASES), *((case, "documents") for case in ("top 10%", "above", "one of many"))],
)
def test_kept_are_those_of_sorting_all_scores(folder: Path, tmp_path: Path, case: str, keep_as: str) -> None:
    model, options, column, sign = CASES[case]
    options = dict(options)
    also = (str(folder / options.pop("also")),) if "also" in options else ()
    inputs = [*FORMATS, *(["texts"] if keep_as == "ids" else [])]
    scored(folder, inputs, tmp_path / "out", model=model, also=also, keep_as=keep_as, **options)
    scores = table(tmp_path / "out")
    values, documents = sign * scores[column].to_numpy(), len(scores)
    found, kept = kept_rows_of(tmp_path / "out"), read_kept(tmp_path / "out")
    if "keep_top" in options:
        border = np.sort(values)[::-1][kept_rows(options["keep_top"], documents) - 1]
        wanted = values >= border
        assert kept.ties == (values == border).sum() > 1
    else:
        border = options["keep_above"]
        wanted = (values if sign > 0 else 1 + values) > border
    assert 0 < wanted.sum() < documents or options == {"keep_top": "100%"}
    assert (kept.value, kept.rows, kept.documents) == (border, wanted.sum(), documents)
    if keep_as == "ids":
        expected = scores.filter(pa.array(wanted)).to_pylist()
    else:
        rows = [row for name in FORMATS for row in rows_of(folder / name)]
        expected = [row for row, chosen in zip(rows, wanted, strict=True) if chosen]
    assert found == expected


@pytest.mark.parametrize(
    ("model", "inputs", "options", "said"),
    [
        ("many", FORMATS, {}, "keep_class"),
        ("many", FORMATS, {"keep_class": "x"}, "there is no class x; choose one of a, b, c"),
        ("run", FORMATS, {"keep_class": "x"}, "there is no class x"),
        ("numbers", FORMATS, {"keep_class": "a"}, "predicts numbers"),
        ("run", ["texts"], {}, 'set keep_as = "ids"'),
        ("run", [*FORMATS, "texts"], {}, "each document is a file of its own"),
    ],
)
def test_what_cannot_be_kept_is_said_before_anything_is_scored(
    folder: Path, tmp_path: Path, model: str, inputs: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        scored(folder, inputs, tmp_path / "out", model=model, keep_top="10%", **options)
    assert not (tmp_path / "out" / PARTS).exists()


# ----------------------------------------------------------------------------------------------------------------------
# Folders of scores: inputs that were touched, runs that stop between two commits, damage, other folders.


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the models and the inputs."""
    return Path(shutil.copytree(folder, tmp_path / "folder"))


def test_other_choices_and_new_files_give_what_a_new_folder_has(copied: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scored(copied, FORMATS, tmp_path / "new", keep_top="20%")
    scored(copied, FORMATS, out, keep_top="10%")
    scores = folder_bytes(out / PARTS)
    scored(copied, FORMATS[:2], tmp_path / "grown", keep_top="20%")
    with pytest.raises(InputError, match="was scored earlier and is not among the inputs"):
        scored(copied, FORMATS[1:], tmp_path / "grown", keep_top="20%")
    scored(copied, FORMATS, tmp_path / "grown", keep_top="20%")
    assert kept_rows_of(tmp_path / "grown") == kept_rows_of(tmp_path / "new")
    for name in FORMATS:
        os.utime(copied / name, (1, 1))  # documents of files that were touched are kept
    scored(copied, FORMATS, out, keep_top="20%")
    assert_same_folder(out / KEPT, tmp_path / "new" / KEPT, without=())
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    scored(copied, FORMATS, out, keep_top="20%")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert folder_bytes(out / PARTS) == scores
    scored(copied, FORMATS, out)
    assert read_kept(out) is None
    assert not list((out / KEPT).iterdir())


TOP = {"keep_top": "10%"}
OTHER_MODEL = {**TOP, "model": "other", "new_model": "replace"}
SEQUENCES = {
    "new": (None, TOP, TOP),
    "replaced": (TOP, OTHER_MODEL, OTHER_MODEL),
    "fewer": ({"keep_top": "20%"}, TOP, TOP),
    "and back": (TOP, {"keep_top": "20%"}, TOP),
    "other rows, and back": (TOP, {**TOP, "keep_as": "ids"}, TOP),
}
"""Options of a run, of one that is stopped and of the next one."""


STOPS = ["kept.commit_json", "kept.write_data_file"]
STOPS += ["score.write_distribution", "score.remove_unlisted", "score.remove_other_files"]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_nothing_is_left_of_what_was_stopped(folder: Path, tmp_path: Path, sequence: str) -> None:
    inputs, (first, stopped, last) = ["a.jsonl", "b.parquet"], SEQUENCES[sequence]
    if first is not None:
        scored(folder, inputs, tmp_path / "first", **first)
    scored(folder, inputs, tmp_path / "new", **last)
    for target in STOPS:
        out = tmp_path / target
        if first is not None:
            shutil.copytree(tmp_path / "first", out)
        with stopped_at(f"sparseoco.scoring.{target}"):
            scored(folder, inputs, out, **stopped)
        scored(folder, inputs, out, **last)
        assert_same_folder(out, tmp_path / "new", without=())


@pytest.mark.parametrize("keep_as", ["documents", "ids"])
def test_kept_files_that_were_changed_are_written_again(folder: Path, tmp_path: Path, keep_as: str) -> None:
    def run() -> None:
        scored(folder, FORMATS, tmp_path, keep_top="10%", keep_as=keep_as)

    run()
    before = folder_bytes(tmp_path)
    first, second, *_ = (tmp_path / KEPT).iterdir()
    changes = [lambda kind=kind: damage(first, kind, random.Random(1)) for kind in KINDS]
    changes += [lambda: second.replace(first), (tmp_path / "kept.json").unlink]
    for change in changes:
        change()
        run()
        assert folder_bytes(tmp_path) == before


def test_documents_are_kept_by_a_link_to_their_file(copied: Path) -> None:
    (copied / "link.jsonl").symlink_to(copied / "a.jsonl")
    scored(copied, ["link.jsonl"], copied / "out", keep_top="10%")
    scored(copied, ["a.jsonl"], copied / "out", keep_top="20%")
    assert read_kept(copied / "out").rows >= SIZE / 5


@pytest.mark.parametrize(("item", "out"), [("texts", "texts"), ("texts", "texts/out"), ("texts", ".")])
def test_scores_among_the_inputs(copied: Path, item: str, out: str) -> None:
    before = folder_bytes(copied)
    with pytest.raises(InputError, match="choose another"):
        scored(copied, [item], copied / out)
    assert folder_bytes(copied) == before


def test_files_of_others_are_not_removed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / "notes.parquet").write_bytes(b"mine")
    scored(folder, FORMATS, tmp_path, keep_top="10%")
    assert (tmp_path / PARTS / "notes.parquet").read_bytes() == b"mine"


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
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
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
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, each with documents that have labels of its kind."""
    corpora = tmp_path_factory.mktemp("distribution")
    for name, (described, label) in MODELS.items():
        random_model(corpora / name, **described)
        for k, (source, size) in enumerate(SIZES.items()):
            (corpora / name / source).write_bytes(jsonl(random_texts(size, k), label=label))
    return corpora


def distributed(corpora: Path, name: str, out: Path, **changed: Any) -> pa.Table:
    """The distribution of a case."""
    model, options = name.partition(",")[0], {"labelled": True, "keep_as": "ids", **DISTRIBUTIONS[name], **changed}
    if "also" in options:
        options["also"] = (f"{options['also']}={corpora / options['also']}",)
    if not {"keep_top", "keep_above"} & options.keys():
        options.pop("keep_as")
    scored(corpora / model, list(SIZES), out, model="model", **options)
    return distribution.read_distribution(out)


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


def ranked_values(documents: pa.Table, kept: borders.KeptDescription) -> np.ndarray:
    """Which documents are kept."""
    values = documents[kept.column].to_numpy()
    values = {"value": values, "negative": -values, "complement": 1 - values}[kept.of]
    return values >= kept.value if kept.included else values > kept.value


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_equal_to_a_loop_over_all_documents(name: str, corpora: Path, tmp_path: Path) -> None:
    found = distributed(corpora, name, tmp_path / "out")
    scores, kept, documents = read_scores(tmp_path / "out"), read_kept(tmp_path / "out"), table(tmp_path / "out")
    options = DISTRIBUTIONS[name]
    sources = np.repeat([str(corpora / name.partition(",")[0] / source) for source in SIZES], list(SIZES.values()))
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


def test_the_largest_sources_have_their_names(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "MAX_SOURCES", 1)
    found = distributed(corpora, "three", tmp_path / "out").group_by("source").aggregate([("documents", "sum")])
    sizes = dict(zip(found["source"].to_pylist(), found["documents_sum"].to_pylist(), strict=True))
    assert sizes == {str(corpora / "three" / "b.jsonl"): 78, distribution.OTHERS: 66}


@pytest.mark.parametrize("name", ["two, the other class", "sets, a class", "margins, another model"])
def test_any_division_into_parts_gives_the_same_table(
    name: str, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for shard_bytes, batch in ((1 << 20, 64), (1024, 1), (4096, 3)):
        monkeypatch.setattr(parts, "BATCH", batch)
        monkeypatch.setattr(distribution, "TOGETHER", batch + 1)
        found.append(distributed(corpora, name, tmp_path / f"{batch}", shard_bytes=shard_bytes))
    assert all(each.equals(found[0]) for each in found)


def test_is_written_again_only_for_other_scores_or_documents(corpora: Path, tmp_path: Path) -> None:
    path = tmp_path / distribution.DISTRIBUTION
    distributed(corpora, "two", tmp_path)
    written = path.stat().st_mtime_ns, path.read_bytes()
    with patch.object(distribution, "count_scores", None):  # no part is counted
        distributed(corpora, "two", tmp_path)
    assert (path.stat().st_mtime_ns, path.read_bytes()) == written
    distributed(corpora, "two", tmp_path, keep_top="20%")
    assert path.read_bytes() != written[1]
    distributed(corpora, "two", tmp_path)
    path.write_bytes(written[1][:-9])
    distributed(corpora, "two", tmp_path)
    assert path.read_bytes() == written[1]


# ----------------------------------------------------------------------------------------------------------------------
# Counts in bins: those of all values together, whatever the parts they are counted in.


SCORES = st.one_of(
    st.floats(-5, 5), st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1e-30])
)


def counted(values: list[float]) -> distribution.BinCounts:
    scores = np.array(values)
    classes = pa.array(["a" if value > 0 else None for value in values], pa.string())
    order = borders.Ranking(column="margin", of="value", ranked_by="margin")
    score = distribution.ShownScore("", "", "margin", (order,), False, None, False)
    table = pa.table({"margin": scores, "prediction": classes})
    return distribution.count_bins(score, table, 3, scores > 1)


def rows(counts: distribution.BinCounts) -> list[dict]:
    keys = [(name, "ascending") for name in ("bin", "prediction")]
    return counts.table.sort_by(keys).to_pylist()


@settings(max_examples=40)
@given(st.lists(st.lists(SCORES, min_size=1, max_size=8), min_size=1, max_size=6))
def test_merged_counts_are_those_of_all_values(parts: list[list[float]]) -> None:
    together = counted([value for part in parts for value in part])
    counts = [counted(part) for part in parts]
    for found in (
        distribution.merge_counts(counts),
        distribution.merge_counts([distribution.merge_counts(counts[:2]), *counts[2:]]),
    ):
        assert found.scale == together.scale
        assert rows(found) == rows(together)


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_bins_hold_their_values_and_are_as_fine_as_possible(values: list[float]) -> None:
    scores = np.array(values)
    scale, numbers = distribution.bin_numbers(scores, probability=False)
    lower, upper = distribution.bin_bounds(numbers, scale, probability=False)
    assert ((lower <= scores) & (scores < upper)).all()
    assert np.ptp(numbers) < distribution.MAX_BINS
    finer = [math.floor(Fraction(value) / Fraction(2) ** (scale - 1)) for value in values]
    exact = math.frexp(max(map(abs, [*values, 2.0**-12])))[1] - 52
    assert scale == exact or max(finer) - min(finer) >= distribution.MAX_BINS


@given(st.lists(st.floats(0, 1), min_size=1))
def test_probabilities_have_bins_of_two_per_cent(values: list[float]) -> None:
    scores = np.array([*values, 0.0, 0.58, 1.0])
    scale, numbers = distribution.bin_numbers(scores, probability=True)
    lower, upper = distribution.bin_bounds(numbers, scale, probability=True)
    assert ((lower <= scores) & ((scores < upper) | (scores == 1.0))).all()
    assert (numbers.min(), numbers.max()) == (0, distribution.PROBABILITY_BINS - 1)
    assert lower[-2] == 0.58


def test_infinite_values_are_in_the_first_and_last_bin() -> None:
    counts = distribution.merge_counts([counted([math.inf, 1.0]), counted([-math.inf, 2.0])])
    lower, upper = distribution.bin_bounds(counts.table["bin"].to_numpy(), counts.scale, probability=False)
    assert sum(counts.table["documents"].to_pylist()) == 4
    assert lower.min() <= -8e307
    assert upper.max() >= 8e307
