import re
from pathlib import Path

import pytest

from sparseoco.pipeline.run_file import load_run_file

README = (Path(__file__).parents[1] / "README.md").read_text()
RUN_FILES = [block for block in re.findall(r"```toml\n(.*?)```", README, re.S) if "[ingest]" in block]


@pytest.mark.parametrize("text", RUN_FILES)
def test_run_files_are_valid(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reviews.toml"
    path.write_text(text)
    run = load_run_file(path)
    assert run.out == tmp_path / ("runs/reviews" if "out =" in text else "reviews")
    assert run.search.configurations()


def test_python_compiles() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 2
    for block in blocks:
        compile(block, "README.md", "exec")
