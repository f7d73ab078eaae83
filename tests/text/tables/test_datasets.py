"""Folders of tables: partitions, and datasets of Hugging Face."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from tests.support.errors import raises_code
from tests.support.tables import documents, write_stream


def test_partitions_are_fields(tmp_path: Path) -> None:
    table = pa.table({"text": ["a b", "c d"], "part": ["x", "y"]})
    for language in ("en", "fr", "a%2Fb"):
        for year in (2023, 2024):
            folder = tmp_path / "in" / f"lang={language}" / f"year={year}"
            folder.mkdir(parents=True)
            pq.write_table(table, folder / "part-0.parquet")
    (tmp_path / "in" / "_SUCCESS").touch()
    found = documents(tmp_path / "in", 1 << 20, label_field="lang")
    assert [row[1] for row in found] == ["a/b"] * 4 + ["en"] * 4 + ["fr"] * 4
    assert len(documents(tmp_path / "in", 1024, label_field="part", where={"lang": "fr", "year": "2024"})) == 2
    assert documents(tmp_path / "in", 1024, label_field="year", labels="numbers")[0][1] == 2023.0
    null = tmp_path / "in" / "lang=__HIVE_DEFAULT_PARTITION__"
    null.mkdir()
    pq.write_table(table, null / "x.parquet")
    with raises_code("missing-field", "x.parquet, row group 1, row 1"):
        ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions(label_field="lang"))
    pq.write_table(table.append_column("lang", pa.array(["z", "z"])), null / "x.parquet")
    with raises_code("duplicate-column", "x.parquet", "lang"):
        ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions(label_field="lang"))


FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}


def save_to_disk(folder: Path, labels: list[int], *, in_schema: bool) -> None:
    """A dataset as the library `datasets` writes it, with a file of a cache that is no part of it."""
    folder.mkdir(parents=True)
    table = pa.table({"text": [f"text {label}" for label in labels], "label": labels})
    if in_schema:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
    names = [f"data-{k:05}-of-00002.arrow" for k in range(2)]
    for k, name in enumerate(names):
        write_stream(table.slice(k * 2, 2), folder / name, 1)
    write_stream(table, folder / "cache-0123.arrow", 10)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))


@pytest.mark.parametrize("in_schema", [False, True])
def test_datasets_saved_to_disk(tmp_path: Path, in_schema: bool) -> None:
    save_to_disk(tmp_path / "one", [0, 1, 1, 0], in_schema=in_schema)
    assert [row[1] for row in documents(tmp_path / "one", 1024)] == ["neg", "pos", "pos", "neg"]
    for part in ("train", "test"):
        save_to_disk(tmp_path / "both" / part, [1, 0, 1], in_schema=in_schema)
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(documents(tmp_path / "both", 1024)) == 6
    assert len(documents(tmp_path / "both", 1024, where={"split": "train"})) == 3
    save_to_disk(tmp_path / "unlabelled", [1, -1, 0], in_schema=in_schema)
    with raises_code("missing-field", "data-00000-of-00002.arrow, row 2"):
        ingest([str(tmp_path / "unlabelled")], tmp_path / "out", TextOptions())
    chosen = documents(tmp_path / "one", 1024, include=["data-*"], exclude=["*.json"])
    assert [row[1] for row in chosen] == ["neg", "pos", "pos", "neg"]
    (tmp_path / "both" / "test" / "data-00001-of-00002.arrow").unlink()
    with raises_code("missing-file", "test/state.json", "data-00001-of-00002.arrow"):
        find_sources([str(tmp_path / "both")], TextOptions())
    (tmp_path / "one" / "state.json").write_text("{}")
    with raises_code("corrupt-file", "state.json"):
        find_sources([str(tmp_path / "one")], TextOptions())


def test_datasets_as_on_the_hub(tmp_path: Path) -> None:
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    (tmp_path / "in" / "README.md").write_text("about")
    table = pa.table({"text": ["a", "b"], "label": [0, 1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001-ab12"):
        pq.write_table(table, data / f"{name}.parquet")
    assert [row[1] for row in documents(tmp_path / "in", 1024, where={"split": "train"})] == ["neg", "pos"] * 2
    assert len(documents(tmp_path / "in", 1024, where={"split": "test"})) == 2
    (data / "notes.txt").write_text("of mine")
    (tmp_path / "parts" / "test").mkdir(parents=True)
    pq.write_table(table, tmp_path / "parts" / "test" / "0000.parquet")
    assert len(documents(tmp_path / "parts", 1024, where={"split": "test"})) == 2
    with raises_code("mixed-folder", "notes.txt"):
        find_sources([str(tmp_path / "in")], TextOptions())
