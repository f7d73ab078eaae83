"""Scores of a corpus."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.scoring.distribution import DISTRIBUTION
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS, ScoreManifest, Scoring, model_entries, read_part, read_scores
from sparseoco.scoring.score import ScoreRun
from sparseoco.text.options import TextOptions
from sparseoco.training.models import Model, amend_model
from tests.support.damage import KINDS, damage, stopped_at
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.ingests import COMPRESSORS, jsonl, random_texts
from tests.support.models import random_model

# ----------------------------------------------------------------------------------------------------------------------
# Scores of a corpus: those of `Model.margins` bit for bit, whatever the format, the parts, the workers, the kills.


ROWS = 100
COUNTS = {"tf": "count", "idf": False, "norm": "none"}
MODELS: dict[str, dict[str, Any]] = {
    "run": {},
    "four": {"classes": 4},
    "hinge": {"classes": 3, "loss": "hinge"},
    "sets": {"classes": 3, "labels": "multi"},
    "numbers": {"labels": "numbers"},
    "hashed": {"hash_bits": 6, "min_df": 1},
    "hashed counts": {"hash_bits": 6, "min_df": 1, "weighting": COUNTS},
    "counts": {"weighting": COUNTS, "positive_class": "b"},
    "characters": {"analyzer": "char", "ngram_range": (2, 3)},
}
FORMATS = [*(f"a.jsonl{packing}" for packing in COMPRESSORS), "a.parquet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and the same documents in several formats."""
    folder = tmp_path_factory.mktemp("scores")
    for name, described in MODELS.items():
        random_model(folder / name, **described)
    data = jsonl(random_texts(ROWS, 7), url=lambda k: f"u{k}")
    for packing, pack in COMPRESSORS.items():
        (folder / f"a.jsonl{packing}").write_bytes(pack(data))
    pq.write_table(pa.Table.from_pylist(documents(folder)), folder / "a.parquet", row_group_size=32)
    return folder


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]


def scored(
    folder: Path, inputs: list[str], out: Path, *, model: str = "run/model", reading: Any = None, client: Any = None,
    **options: Any,
) -> ScoreManifest:  # fmt: skip
    chosen = ScoreOptions(**{"shard_bytes": 4096} | options)
    paths = [str(folder / name) for name in inputs]
    run = ScoreRun(model_entries(str(folder / model), chosen.also), paths, out, chosen, reading or {})
    return run.score(client=client)


def table(out: Path) -> pa.Table:
    """All parts, in order."""
    found = read_scores(out)
    parts = [read_part(out / PARTS / entry.file) for entry in found.parts]
    assert [len(part) for part in parts] == [entry.rows for entry in found.parts]
    return pa.concat_tables([part.replace_schema_metadata() for part in parts])


@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_the_model(folder: Path, tmp_path: Path, kind: str) -> None:
    """The same in each format."""
    rows, model = documents(folder), Model(folder / kind / "model")
    manifest = scored(folder, FORMATS, tmp_path / "out", model=kind, columns=("url", "label"))
    parts = Counter(entry.source for entry in read_scores(tmp_path / "out").parts)
    assert len(parts) == len(FORMATS)
    assert min(parts.values()) > 1
    found = table(tmp_path / "out")
    margins = np.tile(model.margins([row["text"] for row in rows]), (len(FORMATS), 1))
    assert manifest.rows == ROWS * len(FORMATS)
    for column in ("id", "url"):
        assert found[column].to_pylist() == [row[column] for row in rows] * len(FORMATS)
    assert found["row"].to_pylist() == [*range(1, ROWS + 1)] * len(FORMATS)
    names = [""] if model.outputs == 1 else [f" {name}" for name in model.classes]
    assert np.stack([found[f"margin{name}"].to_numpy() for name in names], axis=1).tobytes() == margins.tobytes()
    assert ("probability" in "".join(found.column_names)) == model.has_probabilities
    if model.has_probabilities:
        expected = model.probabilities(margins)[:, -len(names) :]
        probabilities = np.stack([found[f"probability{name}"].to_numpy() for name in names], axis=1)
        assert probabilities.tobytes() == expected.tobytes()
    assert found["prediction"].to_pylist() == model.decide(margins)


def test_several_models_read_the_text_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real = Scoring.run
    monkeypatch.setattr(Scoring, "run", lambda *args: reads.append(args[1].key) or real(*args))
    manifest = scored(folder, ["a.jsonl"], tmp_path / "out", also=(f"second={folder / 'hinge'}/model",))
    found, other = table(tmp_path / "out"), Model(folder / "hinge")
    texts = [row["text"] for row in documents(folder)]
    assert found["run.margin"].to_numpy().tobytes() == Model(folder / "run").margins(texts)[:, 0].tobytes()
    assert found["second.margin b"].to_numpy().tobytes() == other.margins(texts)[:, 1].tobytes()
    assert found["second.prediction"].to_pylist() == other.predict(texts)
    assert len(set(reads)) == len(reads) == manifest.n_parts


@pytest.mark.parametrize(
    ("changed", "labelled", "given"),
    [
        ({"text_field": "title"}, False, {"text_field": "text"}),
        ({"id_field": "key"}, False, {"id_field": "id"}),
        ({"header": False}, False, {"header": True}),
        ({"label_field": "stars"}, True, None),
        ({"fields": {"title": {"type": "text"}}}, False, None),
    ],
)
def test_models_that_read_other_fields(
    folder: Path, tmp_path: Path, changed: dict[str, Any], labelled: bool, given: dict[str, Any] | None
) -> None:
    shutil.copytree(folder / "run" / "model", tmp_path / "other" / "model")
    text = Model(tmp_path / "other").text.plain() | changed
    amend_model(tmp_path / "other" / "model", {"text": TextOptions.of(text).plain()})
    options: dict[str, Any] = {"also": (str(tmp_path / "other"),), "labelled": labelled}
    with raises_code("unsupported-combination", next(iter(changed)), "other/model", "run/model"):
        scored(folder, ["a.jsonl"], tmp_path / "out", **options)
    if given is not None:  # an option that is given is of both
        manifest = scored(folder, ["a.jsonl"], tmp_path / "out", reading=given, **options)
        assert manifest.rows == ROWS


def test_parts_do_not_depend_on_how_the_work_is_done(folder: Path, tmp_path: Path, client: Client) -> None:
    one = scored(folder, ["a.jsonl"], tmp_path / "one", shard_bytes=1 << 20)
    many = scored(folder, ["a.jsonl"], tmp_path / "many", shard_bytes=1024)
    assert one.n_parts == 1 < many.n_parts
    assert table(tmp_path / "one").equals(table(tmp_path / "many"))
    scored(folder, ["a.jsonl"], tmp_path / "cluster", shard_bytes=1024, client=client)
    assert_same_folder(tmp_path / "cluster", tmp_path / "many", without=())


def test_new_files_add_parts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    scored(folder, ["a.jsonl"], out)
    before = folder_bytes(out / PARTS)
    ran = []
    real = Scoring.run
    monkeypatch.setattr(Scoring, "run", lambda *args: ran.append(args[1].name) or real(*args))
    manifest = scored(folder, ["a.jsonl", "a.jsonl.gz"], out)
    assert set(ran) == {str(folder / "a.jsonl.gz")}
    assert manifest.rows == 2 * ROWS
    assert before.items() <= folder_bytes(out / PARTS).items()
    assert table(out)["margin"][:ROWS].equals(table(out)["margin"][ROWS:])
    everything = folder_bytes(out)
    assert scored(folder, ["a.jsonl.gz"], out) == manifest
    assert folder_bytes(out) == everything


def test_another_model(folder: Path, tmp_path: Path) -> None:
    scored(folder, ["a.jsonl"], tmp_path / "out")
    with raises_code("options-changed", "(models)"):
        scored(folder, ["a.jsonl"], tmp_path / "out", model="counts")
    with raises_code("options-changed", "labelled)"):
        scored(folder, ["a.jsonl"], tmp_path / "out", labelled=True)
    before = set(folder_bytes(tmp_path / "out"))
    scored(folder, ["a.jsonl"], tmp_path / "out", model="counts", new_model="replace")
    scored(folder, ["a.jsonl"], tmp_path / "new", model="counts")
    assert_same_folder(tmp_path / "out", tmp_path / "new", without=())
    left = before & set(folder_bytes(tmp_path / "out"))
    assert {name for name in left if not name.startswith("sources-")} == {"manifest.json", DISTRIBUTION}


def test_a_model_that_is_replaced_meanwhile(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "run" / "model", tmp_path / "run" / "model")
    versions = model_entries(str(tmp_path / "run"), [])
    with pytest.raises(InputError, match="NAME=MODEL"):  # two of one name
        model_entries(str(tmp_path / "run"), [str(folder / "run/model")])
    amend_model(tmp_path / "run" / "model", {"note": 1})
    with pytest.raises(InputError, match="was replaced"):
        ScoreRun(versions, [str(folder / "a.jsonl")], tmp_path / "out", ScoreOptions(), {}).score()


@pytest.mark.parametrize("kind", [*KINDS, "swapped"])
def test_parts_that_are_damaged_before_the_commit(folder: Path, tmp_path: Path, kind: str) -> None:
    """They are written again; another part is no less wrong."""
    out = tmp_path / "out"
    scored(folder, ["a.jsonl"], tmp_path / "whole")
    with stopped_at("sparseoco.scoring.parts.commit_scores"):
        scored(folder, ["a.jsonl"], out)
    first, *others = sorted((out / PARTS).iterdir())
    if kind == "swapped":
        shutil.copy(others[0], first)
    else:
        for path in (first, *others[1:]):
            damage(path, kind, random.Random(0))
    kept = others[0].stat().st_mtime_ns
    scored(folder, ["a.jsonl"], out)
    assert_same_folder(out, tmp_path / "whole", without=())
    assert others[0].stat().st_mtime_ns == kept  # nothing is scored twice


def test_bad_rows_empty_inputs_and_labels(folder: Path, tmp_path: Path) -> None:
    data = (folder / "a.jsonl").read_bytes()
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": 1}\n' + data)
    model, out = str(folder / "run"), tmp_path / "out"
    with pytest.raises(InputError, match=r"bad.jsonl, line 1: text field 'text' is not a string"):
        scored(tmp_path, ["bad.jsonl"], out, model=model)
    with pytest.raises(InputError, match="nothing to score"):
        scored(folder, ["a.jsonl"], out, reading={"where": {"id": "nobody"}})
    with pytest.raises(InputError, match="line 1: the label is not one of the 2 classes"):
        scored(folder, ["a.jsonl"], out, labelled=True)
    (tmp_path / "labelled.jsonl").write_bytes(data.replace(b'"p"', b'"a"').replace(b'"n"', b'"b"'))
    scored(tmp_path, ["labelled.jsonl"], out, model=model, labelled=True)
    assert table(out)["label"].to_pylist() == ["a", "b"] * (ROWS // 2)
