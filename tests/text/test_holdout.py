import json
from pathlib import Path

import pyarrow as pa
import pytest

from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents

ROWS = 400


def ids_of(path: Path, options: TextOptions, *, withheld: bool) -> list[str]:
    batches = read_documents([str(path)], options, withheld=withheld, batch_bytes=2000)
    return [name for batch in batches for name in batch.ids.to_pylist()]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    lines = [{"id": f"d{i}", "label": "ab"[i % 2], "text": f"word{i} common"} for i in range(ROWS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_document_is_either_learned_or_withheld(texts: Path, tmp_path: Path) -> None:
    options = TextOptions(holdout=0.25)
    kept, withheld = (ids_of(texts, options, withheld=part) for part in (False, True))
    assert sorted([*kept, *withheld]) == sorted(f"d{i}" for i in range(ROWS))
    assert 0.15 * ROWS < len(withheld) < 0.35 * ROWS
    manifest = ingest([str(texts)], tmp_path / "store", options, shard_bytes=3000)
    store = Store.open(tmp_path / "store")
    stored = [name for k in range(manifest.n_shards) for name in store.read(k, ids=True).ids.to_pylist()]
    assert stored == kept


def test_the_draw_depends_on_ids_only(texts: Path, tmp_path: Path) -> None:
    options = TextOptions(holdout=0.1)
    withheld = ids_of(texts, options, withheld=True)
    reversed_ = tmp_path / "reversed.jsonl"
    reversed_.write_text("\n".join(reversed(texts.read_text().splitlines())))
    assert ids_of(reversed_, options, withheld=True) == withheld[::-1]
    more = set(ids_of(texts, TextOptions(holdout=0.2), withheld=True))
    assert set(withheld) < more


def test_counted_documents_are_drawn_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.svmlight"
    path.write_text("".join(f"{'+-'[i % 2]}1 1:{i + 1} {i + 2}:1\n" for i in range(100)))
    options = TextOptions(holdout=0.3)
    parts = [list(read_documents([str(path)], options, withheld=part)) for part in (False, True)]
    everything = {
        (name, float(batch.counts[batch.indptr[k]]))
        for part in parts
        for batch in part
        for k, name in enumerate(batch.ids.to_pylist())
    }
    assert {value for _, value in everything} == set(map(float, range(1, 101)))
    assert all(isinstance(batch.labels, pa.Array) for part in parts for batch in part)
