"""docs/reference/files.md has every column of every table, with its type, and every key of the JSON files."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.offline.cluster.optimum import OPTIMUM, PASSES
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.pipeline.nightly.history import QUARANTINE, ROLLBACKS, TABLES
from sparseoco.report.results import ChoiceRecord, EvaluationRecord, RunRecord, write_leaderboard
from sparseoco.scoring.distribution import DISTRIBUTION_SCHEMA as DISTRIBUTION
from sparseoco.scoring.kept import KeptDescription
from sparseoco.scoring.manifest import PartTable, ScoredSourceTable, ScoreManifest
from sparseoco.search.mixture_task import COLUMNS, MIXTURE_REGRET, MIXTURE_TIMINGS
from sparseoco.storage.metric_names import COMPUTED
from sparseoco.storage.tables import SEARCH_TABLES, WEIGHTS
from sparseoco.store.entries import IncrementTable, ShardTable, SourceTable
from sparseoco.store.manifest import Manifest
from sparseoco.store.segments import NAMES
from sparseoco.store.shards import write_quarantine
from sparseoco.training.models import CURVE, VOCABULARY_SCHEMA, ModelDescription
from tests.support.stores import make_store

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text()
SECTIONS = {
    title: body
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]
    for title, _, body in [part.partition("\n")]
}
SCHEMAS = {
    **{f"`search/{name}.parquet`": schema for name, schema in SEARCH_TABLES.items()},
    **{f"`{name}.parquet`": schema for name, schema in TABLES.items()},
    "`history-rollbacks.parquet`": ROLLBACKS,
    "`history-quarantine.parquet`": QUARANTINE,
    "`vocabulary-DIGEST.parquet`, `names-DIGEST.parquet`": NAMES,
    "`shards-DIGEST.parquet`": ShardTable.schema,
    "`sources-DIGEST.parquet`": SourceTable.schema,
    "`increments-DIGEST.parquet`": IncrementTable.schema,
    "`model/weights.parquet`": WEIGHTS,
    "`model/vocabulary.parquet`": VOCABULARY_SCHEMA,
    "`model/curve.parquet`": CURVE,
    "`model/regret.parquet`": MIXTURE_REGRET,
    "`model/columns.parquet`": COLUMNS,
    "`model/timings.parquet`": MIXTURE_TIMINGS,
    "`regret/regret.parquet`": REGRET,
    "`regret/slopes.parquet`": SLOPES,
    "`distribution.parquet`": DISTRIBUTION,
    "`parts-DIGEST.parquet`": PartTable.schema,
    "Input files of scores: `sources-DIGEST.parquet`": ScoredSourceTable.schema,
    "`optimum.parquet`": OPTIMUM,
    "`passes.parquet`": PASSES,
}
RECORDS: dict[str, Any] = {
    "`run.json`": RunRecord.model_fields,
    "`manifest-VERSION.json`": Manifest.model_fields,
    "`search/best.json`": ChoiceRecord.model_fields,
    "`model/model.json`": ModelDescription.__annotations__,
    "`evaluation.json`": [*EvaluationRecord.model_fields, *COMPUTED],
    "`manifest.json`": ScoreManifest.model_fields,
    "`kept.json`": KeptDescription.model_fields,
}


def listed(title: str) -> dict[str, str]:
    """Columns and types of the table of a section."""
    return dict(re.findall(r"^\| `([^`]+)` \| (.+?) \| .+ \|$", SECTIONS[title], flags=re.MULTILINE))


def columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: f"`{field.type}`" for field in schema}


@pytest.mark.parametrize("title", SCHEMAS)
def test_columns_are_those_of_the_code(title: str) -> None:
    assert list(listed(title).items()) == list(columns(SCHEMAS[title]).items())


@pytest.mark.parametrize("title", RECORDS)
def test_keys_are_those_of_the_code(title: str) -> None:
    rows = re.findall(r"^\| (`.+?) \|", SECTIONS[title], flags=re.MULTILINE)
    assert set(RECORDS[title]) <= set(re.findall(r"`([^`]+)`", " ".join(rows)))


def test_columns_of_the_leaderboard(tmp_path: Path) -> None:
    write_leaderboard(tmp_path / "leaderboard.parquet", [])
    assert listed("`report/leaderboard.parquet`") == columns(pq.read_schema(tmp_path / "leaderboard.parquet"))


def test_columns_of_shards_and_quarantined_rows(tmp_path: Path) -> None:
    (shard, *_) = make_store(tmp_path, rows=20).glob("shard-*.parquet")
    page = listed("`shard-DIGEST.parquet`")
    for field in pq.read_schema(shard):
        kind = re.sub(r"element: (\w+) not null", r"\1", str(field.type))
        assert f"`{kind}`" in page[field.name], field
    file = write_quarantine(tmp_path, [("reviews.jsonl", 3, 120, "no label")]).file
    assert listed("`quarantine-DIGEST.parquet`") == columns(pq.read_schema(tmp_path / file))


def test_every_table_of_the_page_is_checked() -> None:
    made_of_data = ("`shard-", "`quarantine-", "`report/", "`search/held_out", "`test.parquet`", "`parts/")
    tables = {title for title in SECTIONS if ".parquet`" in title}
    assert {title for title in tables if not title.startswith(made_of_data)} == set(SCHEMAS)
