"""Results of a search: cells that are corrupt, or under the name of another, are removed and computed again."""

import shutil
from pathlib import Path

import pytest

from sparseoco.storage.commit import commit_json
from sparseoco.training.block import Cells


@pytest.mark.fault(52)
def test_a_cell_under_the_name_of_another_is_removed(tmp_path: Path) -> None:
    first, second = tmp_path / "setting-block-1-100.json", tmp_path / "setting-block-2-100.json"
    commit_json(first, {"setting": {}, "position": [1, 100], "results": []})
    shutil.copy(first, second)
    (tmp_path / "setting-other-1-100.json").write_text("{}")
    Cells(tmp_path, ["setting"])
    assert list(tmp_path.iterdir()) == [first]
