"""Kept documents, and the folders of scores."""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import validate
from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline.steps import score
from sparseoco.scoring.kept import (
    KEPT,
    Counts,
    Ranking,
    count_digits,
    find_border,
    key_value,
    ordered_keys,
    read_kept,
    read_kept_files,
)
from sparseoco.scoring.options import ScoreOptions, kept_rows
from sparseoco.scoring.parts import PARTS
from sparseoco.training.models import Model
from tests.scoring.test_score import scored, table
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

# ----------------------------------------------------------------------------------------------------------------------
# The border of kept documents: that of sorting all scores, with many ties, signs and any division into parts.


few = st.sampled_from([-1.5, -0.0, 0.0, 1e-300, 0.25, 0.25000001, 1.0, 3.0])
scores = st.lists(few, min_size=1) | st.lists(st.floats(allow_nan=False), min_size=1)


@given(scores, st.integers(0, 1 << 20), st.integers(1, 5), st.sampled_from([0, 2, 1 << 20]))
def test_border_is_that_of_sorting(values: list[float], number: int, pieces: int, max_values: int) -> None:
    every = np.array(values)
    rows = 1 + number % len(values)

    def count(*digit: int) -> Iterator[Counts]:
        return (count_digits(part, *digit) for part in np.array_split(every, pieces))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparseoco.scoring.kept.MAX_VALUES", max_values)
        border = find_border(rows, count)
    assert border.value == np.sort(every)[::-1][rows - 1]
    kept = border.keeps(every)
    assert border.rows == kept.sum() == (every >= border.value).sum() >= rows
    assert border.ties == (every == border.value).sum()
    assert border.rows - border.ties < rows


@given(scores)
def test_keys_have_the_order_of_values(values: list[float]) -> None:
    every = np.array(values)
    keys = ordered_keys(every)
    assert ((every[:, None] < every) == (keys[:, None] < keys)).all()
    assert [key_value(int(key)) for key in keys] == values


@pytest.mark.parametrize(
    ("asked", "rows", "kept"),
    [
        ("10%", 1000, 100),
        ("10 %", 1001, 101),
        ("0.1", 30, 3),
        ("100%", 7, 7),
        ("5", 3, 3),
        ("2", 3, 2),
        (".5", 5, 3),
        ("1e-1", 30, 3),
    ],
)
def test_kept_rows(asked: str, rows: int, kept: int) -> None:
    assert kept_rows(asked, rows) == kept


@pytest.mark.parametrize(
    "asked",
    ["0", "0%", "101%", "-1", "1.5", "1.0", "ten", "1/0", "nan", "", ".", "1e99999999", "1e-99999999", "9" * 5000],
)
def test_invalid_shares(asked: str) -> None:
    with pytest.raises(InputError, match="keep_top"):
        validate(ScoreOptions, {"keep_top": asked})


def test_top_and_above() -> None:
    with pytest.raises(InputError, match="keep_above: cannot be combined"):
        validate(ScoreOptions, {"keep_top": "10%", "keep_above": 0.5})
    for name, value in (("keep_class", "a"), ("keep_model", "m"), ("keep_as", "ids")):
        with raises_code("invalid-option", name, "keep_top"):
            validate(ScoreOptions, {name: value})
        assert validate(ScoreOptions, {name: value, "keep_above": 0.5}).keeps
    assert not validate(ScoreOptions, {"keep_as": "documents"}).keeps


@pytest.mark.parametrize("of", ["value", "negative", "complement"])
def test_what_is_not_a_number_comes_last(of: str) -> None:
    values = Ranking("margin", of, "margin").values(pa.chunked_array([[np.nan, 0.5, -np.inf, np.inf]]))
    assert not np.isnan(values).any()
    assert values[0] == -np.inf
    border = find_border(1, lambda *digit: [count_digits(values, *digit)])
    assert np.flatnonzero(border.keeps(values)).tolist() == [3 if of == "value" else 2]


# ----------------------------------------------------------------------------------------------------------------------
# Kept documents: exactly those that sorting all scores gives, in the files of the input or as rows of the scores.


ROWS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and documents of few different scores, in two files."""
    folder = tmp_path_factory.mktemp("kept")
    random_model(folder / "run", positive_class="b")
    random_model(folder / "many", classes=3, seed=1)
    texts = random_texts(20, 7)
    few = np.random.default_rng(0).integers(0, len(texts), ROWS)
    data = jsonl([texts[k] for k in few]).splitlines(keepends=True)
    (folder / "one.jsonl").write_bytes(b"".join(data[:250]))
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(b"".join(data[250:])))
    return folder


INPUTS = ["one.jsonl", "two.jsonl.gz"]


def lines(folder: Path) -> list[bytes]:
    packed = gzip.decompress((folder / "two.jsonl.gz").read_bytes())
    return ((folder / "one.jsonl").read_bytes() + packed).splitlines(keepends=True)


def kept_lines(out: Path) -> list[bytes]:
    """The kept lines, in the order of the input."""
    kept = read_kept(out)
    assert kept is not None
    found = b""
    for entry in read_kept_files(out, kept):
        data = (out / KEPT / entry.file).read_bytes()
        data = gzip.decompress(data) if entry.file.endswith(".gz") else data
        assert data.count(b"\n") == entry.rows
        found += data
    return found.splitlines(keepends=True)


@pytest.mark.parametrize("asked", ["10%", "1", "33", "100%", "0.5"])
def test_the_best_share_with_ties(folder: Path, tmp_path: Path, asked: str) -> None:
    out = tmp_path / "out"
    scored(folder, INPUTS, out, keep_top=asked)
    margins = table(out)["margin"].to_numpy()
    rows = {"10%": 40, "1": 1, "33": 33, "100%": ROWS, "0.5": 200}[asked]
    border = np.sort(margins)[::-1][rows - 1]
    wanted = [line for line, margin in zip(lines(folder), margins, strict=True) if margin >= border]
    kept = read_kept(out)
    assert kept is not None
    assert kept_lines(out) == wanted
    assert (kept.value, kept.rows, kept.documents) == (border, len(wanted), ROWS)
    assert kept.ties == (margins == border).sum() > 1
    assert {path.name for path in (out / KEPT).iterdir()} == {e.file for e in read_kept_files(out, kept)}
    scored(folder, INPUTS, tmp_path / "ids", keep_top=asked, keep_as="ids")
    by_id = read_kept(tmp_path / "ids")
    assert by_id is not None
    found = [pq.read_table(tmp_path / "ids" / KEPT / e.file) for e in read_kept_files(tmp_path / "ids", by_id)]
    assert pa.concat_tables(found).replace_schema_metadata().equals(table(out).filter(pa.array(margins >= border)))


@pytest.mark.parametrize("name", ["a", "b", None])
def test_above_a_probability(folder: Path, tmp_path: Path, name: str | None) -> None:
    out = tmp_path / "out"
    scored(folder, INPUTS, out, keep_above=0.6, keep_class=name)
    found = table(out)["probability"].to_numpy()
    found = 1.0 - found if name == "a" else found
    assert kept_lines(out) == [line for line, p in zip(lines(folder), found, strict=True) if p > 0.6]


def test_a_class_of_many(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="keep_class"):
        scored(folder, INPUTS, out, model="many", keep_top="10%")
    with pytest.raises(InputError, match="there is no class x; choose one of a, b, c"):
        scored(folder, INPUTS, out, model="many", keep_top="10%", keep_class="x")
    scored(folder, INPUTS, out, model="many", keep_top="10%", keep_class="c")
    found = table(out)["probability c"].to_numpy()
    assert kept_lines(out) == [
        line for line, p in zip(lines(folder), found, strict=True) if p >= np.sort(found)[::-1][39]
    ]


def test_the_negative_class_of_two(folder: Path, tmp_path: Path) -> None:
    scored(folder, INPUTS, tmp_path / "out", keep_top="10%", keep_class="a")
    found = table(tmp_path / "out")["margin"].to_numpy()
    wanted = [line for line, m in zip(lines(folder), found, strict=True) if m <= np.sort(found)[39]]
    assert kept_lines(tmp_path / "out") == wanted


def test_a_model_of_several(folder: Path, tmp_path: Path) -> None:
    also = (f"many={folder / 'many'}",)
    options: dict[str, Any] = {"also": also, "keep_top": "10%", "keep_class": "a"}
    with pytest.raises(InputError, match="there is no model other; choose one of run, many"):
        scored(folder, INPUTS, tmp_path / "out", keep_model="other", **options)
    scored(folder, INPUTS, tmp_path / "out", keep_model="many", **options)
    found = table(tmp_path / "out")["many.probability a"].to_numpy()
    wanted = [line for line, p in zip(lines(folder), found, strict=True) if p >= np.sort(found)[::-1][39]]
    assert kept_lines(tmp_path / "out") == wanted


def test_numbers(folder: Path, tmp_path: Path) -> None:
    model = random_model(tmp_path / "run", labels="numbers")
    out = tmp_path / "out"
    scored(folder, ["one.jsonl"], out, model=str(tmp_path / "run"), keep_above=0.25)
    found = model.margins([json.loads(line)["text"] for line in lines(folder)[:250]])[:, 0]
    assert kept_lines(out) == [line for line, z in zip(lines(folder), found, strict=False) if z > 0.25]
    with pytest.raises(InputError, match="predicts numbers"):
        scored(folder, ["one.jsonl"], out, model=str(tmp_path / "run"), keep_above=0.25, keep_class="a")


def test_another_choice_replaces_the_first(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scored(folder, INPUTS, out, keep_top="10%")
    scores = folder_bytes(out / PARTS)
    scored(folder, INPUTS, out, keep_top="20%")
    scored(folder, INPUTS, tmp_path / "new", keep_top="20%")
    assert_same_folder(out, tmp_path / "new", without=())
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    scored(folder, INPUTS, out, keep_top="20%")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert folder_bytes(out / PARTS) == scores
    scored(folder, INPUTS, out)
    assert read_kept(out) is None
    assert not list((out / KEPT).iterdir())


def test_new_files_move_the_border(folder: Path, tmp_path: Path) -> None:
    scored(folder, INPUTS[:1], tmp_path / "out", keep_top="10%")
    with pytest.raises(InputError, match="was scored earlier and is not among the inputs"):
        scored(folder, INPUTS[1:], tmp_path / "out", keep_top="10%")
    scored(folder, INPUTS, tmp_path / "out", keep_top="10%")
    scored(folder, INPUTS, tmp_path / "new", keep_top="10%")
    assert kept_lines(tmp_path / "out") == kept_lines(tmp_path / "new")


def test_a_kept_file_that_was_damaged_before_the_end(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scored(folder, INPUTS, out, keep_top="10%")
    whole = folder_bytes(out)
    (out / "kept.json").unlink()
    first = next((out / KEPT).iterdir())
    first.write_bytes(b"{}\n" * 5)
    scored(folder, INPUTS, out, keep_top="10%")
    assert folder_bytes(out) == whole


def test_parquet_and_zstd(folder: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in lines(folder)[:250]]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=50)
    packed = zstandard.ZstdCompressor().compress((folder / "one.jsonl").read_bytes())
    (tmp_path / "rows.jsonl.zst").write_bytes(packed)
    margins = Model(folder / "run").margins([row["text"] for row in rows])[:, 0]
    wanted = np.flatnonzero(margins >= np.sort(margins)[::-1][24])
    for name in ("rows.parquet", "rows.jsonl.zst"):
        out = tmp_path / f"out-{name}"
        scored(tmp_path, [name], out, model=str(folder / "run"), keep_top="25")
        kept = read_kept(out)
        assert kept is not None
        files = [out / KEPT / entry.file for entry in read_kept_files(out, kept)]
        if name.endswith("parquet"):
            assert pa.concat_tables(map(pq.read_table, files)).to_pylist() == [rows[k] for k in wanted]
        else:
            found = b"".join(zstandard.ZstdDecompressor().decompressobj().decompress(f.read_bytes()) for f in files)
            assert found.splitlines(keepends=True) == [lines(folder)[k] for k in wanted]


def test_documents_without_a_format(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for k, text in enumerate(random_texts(30, 7)):
        (tmp_path / "texts" / f"{k}.txt").write_text(text)
    with pytest.raises(InputError, match='set keep_as = "ids"'):
        scored(tmp_path, ["texts"], tmp_path / "out", model=str(folder / "run"), keep_top="10%")
    manifest = scored(tmp_path, ["texts"], tmp_path / "out", model=str(folder / "run"), keep_top="10%", keep_as="ids")
    kept = read_kept(tmp_path / "out")
    assert kept is not None
    assert manifest.rows == 30
    assert kept.rows >= 3


# ----------------------------------------------------------------------------------------------------------------------
# Folders of scores: inputs that were touched, runs that stop between two commits, damage, other folders.


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and two files."""
    copied = tmp_path_factory.mktemp("folders")
    random_model(copied / "run", positive_class="b")
    random_model(copied / "other", positive_class="b", seed=9)
    (copied / "one.jsonl").write_bytes(jsonl(random_texts(200, 7)))
    (copied / "two.jsonl.gz").write_bytes(gzip.compress(jsonl(random_texts(100, 8))))
    return copied


@pytest.fixture
def copied(origin: Path, tmp_path: Path) -> Path:
    """A copy."""
    return Path(shutil.copytree(origin, tmp_path / "folder"))


def stopped_at(target: str, run: Callable[[], Any]) -> None:
    """Stop a run where it calls a function."""

    def stop(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"sparseoco.scoring.{target}", stop)
        with pytest.raises(KeyboardInterrupt):
            run()


def test_documents_of_files_that_were_touched_are_kept(copied: Path) -> None:
    scored(copied, INPUTS, copied / "out", keep_top="10%")
    scored(copied, INPUTS, copied / "whole", keep_top="20%")
    for name in INPUTS:
        os.utime(copied / name, (1, 1))
    scored(copied, INPUTS, copied / "out", keep_top="20%")
    assert_same_folder(copied / "out" / KEPT, copied / "whole" / KEPT, without=())


def test_parts_that_are_damaged_while_a_run_is_stopped(copied: Path) -> None:
    out = copied / "out"
    scored(copied, INPUTS, copied / "whole")
    stopped_at("score.commit_scores", lambda: scored(copied, INPUTS, out))
    for path in (out / PARTS).iterdir():
        path.write_bytes(path.read_bytes()[:-50])
    scored(copied, INPUTS, out)
    assert_same_folder(out, copied / "whole", without=())


@pytest.mark.parametrize("target", ["kept._commit", "score.remove_unlisted", "score.remove_other_files"])
def test_nothing_is_left_of_scores_that_were_replaced(copied: Path, target: str) -> None:
    options: dict[str, Any] = {"model": "other", "new_model": "replace", "keep_top": "10%"}
    scored(copied, INPUTS, copied / "out", keep_top="10%")
    stopped_at(target, lambda: scored(copied, INPUTS, copied / "out", **options))
    scored(copied, INPUTS, copied / "out", **options)
    scored(copied, INPUTS, copied / "new", **options)
    assert_same_folder(copied / "out", copied / "new", without=())


def test_another_choice_was_stopped_and_its_files_removed(copied: Path) -> None:
    out = copied / "out"
    stopped_at("kept._commit", lambda: scored(copied, INPUTS, out, keep_top="10%"))
    stopped_at("score.write_distribution", lambda: scored(copied, INPUTS, out, keep_top="20%"))
    scored(copied, INPUTS, out, keep_top="10%")
    kept = read_kept(out)
    assert kept is not None
    assert {path.name for path in (out / KEPT).iterdir()} == {entry.file for entry in read_kept_files(out, kept)}


@pytest.mark.parametrize("keep_as", ["documents", "ids"])
def test_kept_files_that_were_changed_are_written_again(copied: Path, keep_as: str) -> None:
    def run() -> None:
        scored(copied, INPUTS, copied / "out", keep_top="10%", keep_as=keep_as)

    run()
    before = folder_bytes(copied / "out")
    first, second, *_ = (copied / "out" / KEPT).iterdir()
    for change in (lambda: first.write_bytes(first.read_bytes() + b"x"), lambda: second.replace(first), first.unlink):
        change()
        run()
        assert folder_bytes(copied / "out") == before


def test_documents_are_kept_by_a_link_to_their_file(copied: Path) -> None:
    (copied / "link.jsonl").symlink_to(copied / "one.jsonl")
    scored(copied, ["link.jsonl"], copied / "out", keep_top="10%")
    scored(copied, ["one.jsonl"], copied / "out", keep_top="20%")
    kept = read_kept(copied / "out")
    assert kept is not None
    assert kept.rows == 40


def test_rows_of_scores_do_not_replace_documents(copied: Path) -> None:
    texts = random_texts(100, 7)
    pq.write_table(pa.table({"id": [str(k) for k in range(100)], "text": texts}), copied / "table.parquet")
    scored(copied, ["table.parquet"], copied / "out", keep_top="30%")
    before = folder_bytes(copied / "out" / KEPT)
    stopped_at(
        "kept._commit",
        lambda: scored(copied, ["table.parquet"], copied / "out", keep_top="30%", keep_as="ids"),
    )
    scored(copied, ["table.parquet"], copied / "out", keep_top="30%")
    assert folder_bytes(copied / "out" / KEPT) == before


@pytest.mark.parametrize("options", [{"keep_class": "x"}, {"keep_model": "x"}])
def test_what_cannot_be_kept_is_said_before_anything_is_scored(copied: Path, options: dict[str, str]) -> None:
    with pytest.raises(InputError):
        scored(copied, INPUTS, copied / "out", keep_top="10%", **options)
    (copied / "texts").mkdir()
    (copied / "texts" / "a.txt").write_text("one")
    with pytest.raises(InputError, match="each document is a file of its own"):
        scored(copied, [*INPUTS, "texts"], copied / "out", keep_top="10%")
    assert not (copied / "out" / PARTS).exists()


@pytest.mark.parametrize(
    ("item", "out"),
    [("corpus", "corpus"), ("corpus", "corpus/out"), ("corpus/parts", "corpus"), ("corpus/parts", "corpus/parts/out")],
)
def test_scores_among_the_inputs(copied: Path, item: str, out: str) -> None:
    (copied / "corpus" / "parts").mkdir(parents=True)
    for name in INPUTS:
        shutil.copy(copied / name, copied / "corpus" / "parts" / name)
    before = folder_bytes(copied / "corpus")
    with pytest.raises(InputError, match="choose another"):
        scored(copied, [item], copied / out)
    assert folder_bytes(copied / "corpus") == before


def test_files_of_others_are_not_removed(copied: Path) -> None:
    (copied / "out" / PARTS).mkdir(parents=True)
    (copied / "out" / PARTS / "notes.parquet").write_bytes(b"mine")
    scored(copied, INPUTS, copied / "out", keep_top="10%")
    assert (copied / "out" / PARTS / "notes.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["run/shards", "run/model"])
def test_folders_of_other_things(copied: Path, name: str) -> None:
    before = folder_bytes(copied / "run")
    with raises_code("folder-not-empty", name):
        score(
            str(copied / "run"),
            [str(copied / INPUTS[0])],
            copied / name,
            ScoreOptions(),
            ClusterOptions(threads=1),
        )
    assert folder_bytes(copied / "run") == before
