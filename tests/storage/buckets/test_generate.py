"""A made corpus in a bucket."""

from pathlib import Path

import pytest

from sparseoco.datasets.synthetic import SyntheticCorpus, generate
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location
from tests.storage.buckets.contents import contents
from tests.support.commands import call


def test_a_made_corpus_is_the_same_in_a_bucket(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ("--bytes", "60kB", "--files", 3, "--vocabulary", 5000)
    for out in (tmp_path / "made", bucket / "made"):
        assert call(monkeypatch, "generate", out, *made) == 0
        assert capsys.readouterr().out.strip() == f"{out}/text"
    assert contents(bucket / "made") == contents(tmp_path / "made")
    remove_file(bucket / "made" / "text" / "part-00001.jsonl")  # as if it had been killed before that one
    generate(SyntheticCorpus(60_000, 3, 5000), bucket / "made")
    assert contents(bucket / "made") == contents(tmp_path / "made")
    assert call(monkeypatch, "generate", bucket / "made", *made, "--seed", 2) == 2
    assert "has another synthetic corpus" in capsys.readouterr().err
