"""Kept documents: exactly those that sorting all scores gives, in the files of the input or as rows of the scores."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from sparseoco.core.errors import InputError
from sparseoco.scoring.kept import KEPT, read_kept, read_kept_files
from sparseoco.scoring.parts import PARTS
from sparseoco.training.models import Model
from tests.scoring.test_score import contents, scored, table
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

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
    scores = contents(out / PARTS)
    scored(folder, INPUTS, out, keep_top="20%")
    scored(folder, INPUTS, tmp_path / "new", keep_top="20%")
    assert contents(out) == contents(tmp_path / "new")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    scored(folder, INPUTS, out, keep_top="20%")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert contents(out / PARTS) == scores
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
    whole = contents(out)
    (out / "kept.json").unlink()
    first = next((out / KEPT).iterdir())
    first.write_bytes(b"{}\n" * 5)
    scored(folder, INPUTS, out, keep_top="10%")
    assert contents(out) == whole


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
