"""A corpus in a bucket is scored into a bucket as one on this machine."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from tests.storage.buckets.contents import contents
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

KEEP = {"keep_top": "10%", "keep_class": "b", "shard_bytes": 4096}


@pytest.mark.parametrize(
    ("keep_as", "cluster"),
    [
        pytest.param("documents", ClusterOptions(workers=2), marks=pytest.mark.slow),
        ("ids", ClusterOptions(threads=2)),
    ],
)
def test_scores_in_a_bucket(bucket: Location, tmp_path: Path, keep_as: str, cluster: ClusterOptions) -> None:
    random_model(tmp_path / "run")
    for path in (tmp_path / "run" / "model").iterdir():
        commit_bytes(bucket / "model" / path.name, path.read_bytes())
    rows = pa.Table.from_pylist([{"id": f"t{k}", "text": text} for k, text in enumerate(random_texts(200, 4))])
    pq.write_table(rows, tmp_path / "b.parquet", row_group_size=50)
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(200, 3)))
    for name in ("a.jsonl", "b.parquet"):
        commit_bytes(bucket / "in" / name, (tmp_path / name).read_bytes())
    options = ScoreOptions(**KEEP, keep_as=keep_as)
    out = bucket / f"scores-{options.keep_as}"
    manifest = steps.score(str(bucket / "model"), [str(bucket / "in")], out, options, cluster)
    assert manifest.rows == 400
    local = tmp_path / f"scores-{options.keep_as}"
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.parquet")]
    steps.score(str(tmp_path / "run"), inputs, local, options, ClusterOptions())
    found, expected = contents(out), contents(local)
    assert len(found) == len(expected)
    kept = {
        side: sorted(data or b"" for name, data in files.items() if name.startswith("kept/"))
        for side, files in (("remote", found), ("local", expected))
    }
    if options.keep_as == "documents":
        assert kept["remote"] == kept["local"]
    assert b"".join(kept["remote"])
