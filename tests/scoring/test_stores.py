"""Scores of a store, from its counts: those of its text, without it."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import InputError
from sparseoco.scoring.kept import KEPT, read_kept
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.scoring import test_score
from tests.scoring.test_score import contents, table
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

scored = partial(test_score.scored, shard_bytes=None)  # which a store does not take
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
    scored(tmp_path, ["run/shards"], tmp_path / "out", labelled=True)
    (tmp_path / "run" / "gone.jsonl").rename(tmp_path / "run" / "train.jsonl")
    scored(tmp_path, ["run/train.jsonl"], tmp_path / "text", labelled=True)
    assert table(tmp_path / "out").equals(table(tmp_path / "text"))
    assert table(tmp_path / "out").num_rows == 60
    assert table(tmp_path / "out")["prediction"].to_pylist() == model.predict(random_texts(60, 0))


def test_a_store_that_has_grown(tmp_path: Path) -> None:
    model = random_model(tmp_path / "run", positive_class="b")
    scored(tmp_path, ["run/shards"], tmp_path / "out", keep_top="10%", keep_as="ids")
    before = contents(tmp_path / "out" / "parts")
    (tmp_path / "run" / "more.jsonl").write_bytes(jsonl(random_texts(30, 8), id=lambda k: f"e{k}", label=lambda k: "a"))
    options = TextOptions.of({"ngram_range": (1, 2), "min_df": 2})
    ingest([str(tmp_path / "run" / "more.jsonl")], tmp_path / "run" / "shards", options, vocabulary="extend")
    assert Store.open(tmp_path / "run" / "shards").n_features > model.description["features"]["count"]
    manifest = scored(tmp_path, ["run/shards"], tmp_path / "out", keep_top="10%", keep_as="ids")
    assert manifest.rows == 90
    assert before.items() <= contents(tmp_path / "out" / "parts").items()
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
        scored(tmp_path, ["other/shards"], out)
    with pytest.raises(InputError, match="score it by itself"):
        scored(tmp_path, ["run/shards", "run/train.jsonl"], out)
    with pytest.raises(InputError, match="no documents to write"):
        scored(tmp_path, ["run/shards"], out, keep_top="10%")
    with pytest.raises(InputError, match="no other columns"):
        scored(tmp_path, ["run/shards"], out, columns=("url",))
    for reading in ({"where": {"split": "test"}}, {"format": "csv"}, {"encoding": "cp1252"}, {"max_bad_rows": 5}):
        with raises_code("unsupported-combination", next(iter(reading)).replace("_", "-"), "run/shards"):
            scored(tmp_path, ["run/shards"], out, reading=reading)
    with raises_code("unsupported-combination", "shard-bytes"):
        scored(tmp_path, ["run/shards"], out, shard_bytes=4096)
    manifest = scored(tmp_path, ["run/shards"], out, reading={"where": {}, "format": "auto"})
    assert manifest.options == {}  # none was applied
    assert scored(tmp_path, ["run/shards"], out) == manifest
    with pytest.raises(InputError, match="has the scores of"):
        scored(tmp_path, ["run/train.jsonl"], out)
