"""Scores of a corpus and of a store."""

import gzip
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from distributed import Client, LocalCluster

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.scoring.distribution import DISTRIBUTION
from sparseoco.scoring.kept import KEPT, read_kept
from sparseoco.scoring.manifest import ScoreManifest, read_scores
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS, Scoring, model_versions, read_part
from sparseoco.scoring.score import score
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.models import Model, amend_model
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

# ----------------------------------------------------------------------------------------------------------------------
# Scores of a corpus: those of `Model.margins` bit for bit, whatever the format, the parts, the workers, the kills.


ROWS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the same documents in several formats."""
    folder = tmp_path_factory.mktemp("scores")
    random_model(folder / "run")
    data = jsonl(random_texts(ROWS, 7), url=lambda k: f"u{k}")
    (folder / "plain.jsonl").write_bytes(data)
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(data))
    (folder / "packed.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    pq.write_table(pa.Table.from_pylist(documents(folder)), folder / "table.parquet", row_group_size=64)
    return folder


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "plain.jsonl").read_text().splitlines()]


def scored(
    folder: Path, inputs: list[str], out: Path, *, model: str = "run/model", reading: Any = None, client: Any = None,
    **options: Any,
) -> ScoreManifest:  # fmt: skip
    chosen = ScoreOptions(**{"shard_bytes": 4096} | options)
    paths = [str(folder / name) for name in inputs]
    return score(model_versions(str(folder / model), chosen.also), paths, out, chosen, reading or {}, client=client)


def table(out: Path) -> pa.Table:
    """All parts, in order."""
    found = read_scores(out)
    assert found is not None
    parts = [read_part(out / PARTS / entry.file) for entry in found.parts]
    assert [len(part) for part in parts] == [entry.rows for entry in found.parts]
    return pa.concat_tables([part.replace_schema_metadata() for part in parts])


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz", "packed.jsonl.zst", "table.parquet"])
def test_scores_are_those_of_the_model(folder: Path, tmp_path: Path, name: str) -> None:
    rows, model = documents(folder), Model(folder / "run/model")
    manifest = scored(folder, [name], tmp_path / "out", columns=("url", "label"))
    found = table(tmp_path / "out")
    margins = model.margins([row["text"] for row in rows])
    assert manifest.rows == ROWS
    assert manifest.n_parts > 1
    assert found["id"].to_pylist() == [row["id"] for row in rows]
    assert found["row"].to_pylist() == list(range(1, ROWS + 1))
    assert found["url"].to_pylist() == [row["url"] for row in rows]
    assert found["margin"].to_numpy().tobytes() == margins[:, 0].tobytes()
    assert found["probability"].to_numpy().tobytes() == model.probabilities(margins)[:, 1].tobytes()
    assert found["prediction"].to_pylist() == model.decide(margins)


@pytest.mark.parametrize(
    "described",
    [
        {"classes": 4},
        {"classes": 3, "loss": "hinge"},
        {"classes": 3, "labels": "multi"},
        {"labels": "numbers"},
        {"hash_bits": 6, "min_df": 1},
        {"weighting": {"tf": "count", "idf": False, "norm": "none"}},
        {"analyzer": "char", "ngram_range": (2, 3)},
    ],
)
def test_every_kind_of_model(tmp_path: Path, described: dict[str, Any]) -> None:
    model = random_model(tmp_path / "run", **described)
    (tmp_path / "new.jsonl").write_bytes(jsonl(random_texts(50, 3)))
    scored(tmp_path, ["new.jsonl"], tmp_path / "out")
    found, margins = table(tmp_path / "out"), model.margins(random_texts(50, 3))
    names = ["margin"] if model.outputs == 1 else [f"margin {name}" for name in model.classes]
    assert np.stack([found[name].to_numpy() for name in names], axis=1).tobytes() == margins.tobytes()
    assert found["prediction"].to_pylist() == model.decide(margins)
    assert ("probability" in "".join(found.column_names)) == model.has_probabilities


def test_several_models_read_the_text_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = random_model(tmp_path / "other", classes=3, seed=5, weighting={"tf": "count", "idf": False, "norm": "none"})
    reads = []
    real = Scoring.run
    monkeypatch.setattr(Scoring, "run", lambda *args: reads.append(args[1].key) or real(*args))
    also = (f"second={tmp_path / 'other'}/model",)
    manifest = scored(folder, ["plain.jsonl"], tmp_path / "out", also=also)
    found = table(tmp_path / "out")
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
        scored(folder, ["plain.jsonl"], tmp_path / "out", **options)
    if given is not None:  # an option that is given is of both
        manifest = scored(folder, ["plain.jsonl"], tmp_path / "out", reading=given, **options)
        assert manifest.rows == ROWS


def test_two_models_of_one_name(folder: Path) -> None:
    with pytest.raises(InputError, match="NAME=MODEL"):
        model_versions(str(folder / "run"), [str(folder / "run/model")])


def test_parts_do_not_depend_on_how_the_work_is_done(folder: Path, tmp_path: Path) -> None:
    one = scored(folder, ["plain.jsonl"], tmp_path / "one", shard_bytes=1 << 20)
    many = scored(folder, ["plain.jsonl"], tmp_path / "many", shard_bytes=1024)
    assert one.n_parts == 1 < many.n_parts
    assert table(tmp_path / "one").equals(table(tmp_path / "many"))
    threads: dict[str, Any] = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **threads) as cluster, Client(cluster) as client:
        scored(folder, ["plain.jsonl"], tmp_path / "cluster", shard_bytes=1024, client=client)
    assert_same_folder(tmp_path / "cluster", tmp_path / "many", without=())


def test_new_files_add_parts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    scored(folder, ["plain.jsonl"], out)
    before = folder_bytes(out / PARTS)
    ran = []
    real = Scoring.run
    monkeypatch.setattr(Scoring, "run", lambda *args: ran.append(args[1].name) or real(*args))
    manifest = scored(folder, ["plain.jsonl", "packed.jsonl.gz"], out)
    assert set(ran) == {str(folder / "packed.jsonl.gz")}
    assert manifest.rows == 2 * ROWS
    assert before.items() <= folder_bytes(out / PARTS).items()
    assert table(out)["margin"][:ROWS].equals(table(out)["margin"][ROWS:])
    everything = folder_bytes(out)
    assert scored(folder, ["packed.jsonl.gz"], out) == manifest
    assert folder_bytes(out) == everything


@pytest.mark.parametrize("step", range(6))
def test_a_run_that_stops_anywhere_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    options: dict[str, Any] = {"keep_top": "20%", "shard_bytes": 8192}
    inputs = ["plain.jsonl", "packed.jsonl.gz"]
    scored(folder, inputs, tmp_path / "whole", **options)
    written: list[str] = []

    def stop(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            written.append(str(arguments[0]))
            if len(written) == 1 + 4 * step:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for module, name in (("parts", "write_parquet"), ("kept", "write_rows"), ("kept", "commit_json")):
            target = f"sparseoco.scoring.{module}.{name}"
            patch.setattr(target, stop(getattr(__import__(f"sparseoco.scoring.{module}", fromlist=[name]), name)))
        with pytest.raises(KeyboardInterrupt):
            scored(folder, inputs, tmp_path / "out", **options)
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / PARTS).glob("*.parquet")}
    scored(folder, inputs, tmp_path / "out", **options)
    assert_same_folder(tmp_path / "out", tmp_path / "whole", without=())
    assert {path: path.stat().st_mtime_ns for path in parts} == parts  # nothing is scored twice


def test_another_model(folder: Path, tmp_path: Path) -> None:
    random_model(tmp_path / "other", seed=9)
    scored(folder, ["plain.jsonl"], tmp_path / "out")
    with pytest.raises(InputError, match="another model or other options \\(models\\)"):
        scored(folder, ["plain.jsonl"], tmp_path / "out", model=str(tmp_path / "other"))
    before = set(folder_bytes(tmp_path / "out"))
    scored(folder, ["plain.jsonl"], tmp_path / "out", model=str(tmp_path / "other"), new_model="replace")
    scored(folder, ["plain.jsonl"], tmp_path / "new", model=str(tmp_path / "other"))
    assert_same_folder(tmp_path / "out", tmp_path / "new", without=())
    assert not before & set(folder_bytes(tmp_path / "out")) - {"manifest.json", DISTRIBUTION} - {
        name for name in before if name.startswith("sources-")
    }


def test_a_model_that_is_replaced_meanwhile(folder: Path, tmp_path: Path) -> None:
    random_model(tmp_path / "run")
    versions = model_versions(str(tmp_path / "run"), [])
    amend_model(tmp_path / "run" / "model", {"note": 1})
    with pytest.raises(InputError, match="was replaced"):
        score(versions, [str(folder / "plain.jsonl")], tmp_path / "out", ScoreOptions(), {})


def test_a_damaged_part_is_written_again(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    scored(folder, ["plain.jsonl"], out)
    whole = folder_bytes(out)
    parts = sorted((out / PARTS).iterdir())
    parts[0].write_bytes(parts[1].read_bytes())  # another part is no less wrong
    data = bytearray(parts[2].read_bytes())
    data[100] ^= 1
    parts[2].write_bytes(data)
    for path in parts[0], parts[2]:
        with pytest.raises(DamagedError):
            read_part(path)
    (out / "manifest.json").unlink()
    scored(folder, ["plain.jsonl"], out)
    assert folder_bytes(out) == whole


def test_bad_rows_and_empty_inputs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": 1}\n' + (folder / "plain.jsonl").read_bytes())
    with pytest.raises(InputError, match=r"bad.jsonl, line 1: text field 'text' is not a string"):
        scored(tmp_path, ["bad.jsonl"], tmp_path / "out", model=str(folder / "run"))
    reading = {"where": {"id": "nobody"}}
    with pytest.raises(InputError, match="nothing to score"):
        scored(folder, ["plain.jsonl"], tmp_path / "out", reading=reading)


def test_labels(folder: Path, tmp_path: Path) -> None:
    data = (folder / "plain.jsonl").read_text().replace('"p"', '"a"').replace('"n"', '"b"')
    (tmp_path / "labelled.jsonl").write_text(data)
    scored(tmp_path, ["labelled.jsonl"], tmp_path / "out", model=str(folder / "run"), labelled=True)
    assert table(tmp_path / "out")["label"].to_pylist() == ["a", "b"] * (ROWS // 2)
    with pytest.raises(InputError, match="line 1: the label is not one of the 2 classes"):
        scored(folder, ["plain.jsonl"], tmp_path / "other", labelled=True)


# ----------------------------------------------------------------------------------------------------------------------
# Scores of a store, from its counts: those of its text, without it.


scored_store = partial(scored, shard_bytes=None)  # which a store does not take
COUNTS = {"tf": "count", "idf": False, "norm": "none"}


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"weighting": COUNTS},
        {"hash_bits": 6, "min_df": 1},
        {"hash_bits": 6, "min_df": 1, "weighting": COUNTS},
        {"classes": 3, "labels": "multi"},
    ],
)
def test_scores_of_the_store_that_a_model_was_trained_on(tmp_path: Path, described: dict[str, Any]) -> None:
    model = random_model(tmp_path / "run", positive_class="b" if not described.get("labels") else None, **described)
    (tmp_path / "run" / "train.jsonl").rename(tmp_path / "run" / "gone.jsonl")
    scored_store(tmp_path, ["run/shards"], tmp_path / "out", labelled=True)
    (tmp_path / "run" / "gone.jsonl").rename(tmp_path / "run" / "train.jsonl")
    scored_store(tmp_path, ["run/train.jsonl"], tmp_path / "text", labelled=True)
    assert table(tmp_path / "out").equals(table(tmp_path / "text"))
    assert table(tmp_path / "out").num_rows == 60
    assert table(tmp_path / "out")["prediction"].to_pylist() == model.predict(random_texts(60, 0))


def test_a_store_that_has_grown(tmp_path: Path) -> None:
    model = random_model(tmp_path / "run", positive_class="b")
    scored_store(tmp_path, ["run/shards"], tmp_path / "out", keep_top="10%", keep_as="ids")
    before = folder_bytes(tmp_path / "out" / "parts")
    (tmp_path / "run" / "more.jsonl").write_bytes(jsonl(random_texts(30, 8), id=lambda k: f"e{k}", label=lambda k: "a"))
    options = TextOptions.of({"ngram_range": (1, 2), "min_df": 2})
    ingest([str(tmp_path / "run" / "more.jsonl")], tmp_path / "run" / "shards", options, vocabulary="extend")
    assert Store.open(tmp_path / "run" / "shards").n_features > model.description["features"]["count"]
    manifest = scored_store(tmp_path, ["run/shards"], tmp_path / "out", keep_top="10%", keep_as="ids")
    assert manifest.rows == 90
    assert before.items() <= folder_bytes(tmp_path / "out" / "parts").items()
    assert table(tmp_path / "out")["prediction"].to_pylist() == model.predict(random_texts(60, 0) + random_texts(30, 8))
    kept = read_kept(tmp_path / "out")
    assert kept is not None
    assert kept.rows >= 9
    assert len(list((tmp_path / "out" / KEPT).iterdir())) >= 1


def test_what_a_store_cannot_do(tmp_path: Path) -> None:
    random_model(tmp_path / "run", positive_class="b")
    random_model(tmp_path / "other", seed=3)
    out = tmp_path / "out"
    with pytest.raises(InputError, match="has other features than"):
        scored_store(tmp_path, ["other/shards"], out)
    with pytest.raises(InputError, match="score it by itself"):
        scored_store(tmp_path, ["run/shards", "run/train.jsonl"], out)
    with pytest.raises(InputError, match="no documents to write"):
        scored_store(tmp_path, ["run/shards"], out, keep_top="10%")
    with pytest.raises(InputError, match="no other columns"):
        scored_store(tmp_path, ["run/shards"], out, columns=("url",))
    for reading in ({"where": {"split": "test"}}, {"format": "csv"}, {"encoding": "cp1252"}, {"max_bad_rows": 5}):
        with raises_code("unsupported-combination", next(iter(reading)).replace("_", "-"), "run/shards"):
            scored_store(tmp_path, ["run/shards"], out, reading=reading)
    with raises_code("unsupported-combination", "shard-bytes"):
        scored_store(tmp_path, ["run/shards"], out, shard_bytes=4096)
    manifest = scored_store(tmp_path, ["run/shards"], out, reading={"where": {}, "format": "auto"})
    assert manifest.options == {}  # none was applied
    assert scored_store(tmp_path, ["run/shards"], out) == manifest
    with pytest.raises(InputError, match="has the scores of"):
        scored_store(tmp_path, ["run/train.jsonl"], out)
