"""Folders of scores: inputs that were touched, runs that stop between two commits, damage, other folders."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline.steps import score
from sparseoco.scoring.kept import KEPT, read_kept, read_kept_files
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import PARTS
from tests.scoring.test_score import contents, scored
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model

INPUTS = ["one.jsonl", "two.jsonl.gz"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and two files."""
    folder = tmp_path_factory.mktemp("folders")
    random_model(folder / "run", positive_class="b")
    random_model(folder / "other", positive_class="b", seed=9)
    (folder / "one.jsonl").write_bytes(jsonl(random_texts(200, 7)))
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(jsonl(random_texts(100, 8))))
    return folder


@pytest.fixture
def folder(origin: Path, tmp_path: Path) -> Path:
    """A copy."""
    return Path(shutil.copytree(origin, tmp_path / "folder"))


def stopped_at(target: str, run: Callable[[], Any]) -> None:
    """Stop a run where it calls a function."""

    def stop(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"sparseoco.scoring.{target}", stop)
        with pytest.raises(KeyboardInterrupt):
            run()


def test_documents_of_files_that_were_touched_are_kept(folder: Path) -> None:
    scored(folder, INPUTS, folder / "out", keep_top="10%")
    scored(folder, INPUTS, folder / "whole", keep_top="20%")
    for name in INPUTS:
        os.utime(folder / name, (1, 1))
    scored(folder, INPUTS, folder / "out", keep_top="20%")
    assert contents(folder / "out" / KEPT) == contents(folder / "whole" / KEPT)


def test_parts_that_are_damaged_while_a_run_is_stopped(folder: Path) -> None:
    out = folder / "out"
    scored(folder, INPUTS, folder / "whole")
    stopped_at("score.commit_scores", lambda: scored(folder, INPUTS, out))
    for path in (out / PARTS).iterdir():
        path.write_bytes(path.read_bytes()[:-50])
    scored(folder, INPUTS, out)
    assert contents(out) == contents(folder / "whole")


@pytest.mark.parametrize("target", ["kept._commit", "score.remove_unlisted", "score.remove_other_files"])
def test_nothing_is_left_of_scores_that_were_replaced(folder: Path, target: str) -> None:
    options: dict[str, Any] = {"model": "other", "new_model": "replace", "keep_top": "10%"}
    scored(folder, INPUTS, folder / "out", keep_top="10%")
    stopped_at(target, lambda: scored(folder, INPUTS, folder / "out", **options))
    scored(folder, INPUTS, folder / "out", **options)
    scored(folder, INPUTS, folder / "new", **options)
    assert contents(folder / "out") == contents(folder / "new")


def test_another_choice_was_stopped_and_its_files_removed(folder: Path) -> None:
    out = folder / "out"
    stopped_at("kept._commit", lambda: scored(folder, INPUTS, out, keep_top="10%"))
    stopped_at("score.write_distribution", lambda: scored(folder, INPUTS, out, keep_top="20%"))
    scored(folder, INPUTS, out, keep_top="10%")
    kept = read_kept(out)
    assert kept is not None
    assert {path.name for path in (out / KEPT).iterdir()} == {entry.file for entry in read_kept_files(out, kept)}


@pytest.mark.parametrize("keep_as", ["documents", "ids"])
def test_kept_files_that_were_changed_are_written_again(folder: Path, keep_as: str) -> None:
    def run() -> None:
        scored(folder, INPUTS, folder / "out", keep_top="10%", keep_as=keep_as)

    run()
    before = contents(folder / "out")
    first, second, *_ = (folder / "out" / KEPT).iterdir()
    for change in (lambda: first.write_bytes(first.read_bytes() + b"x"), lambda: second.replace(first), first.unlink):
        change()
        run()
        assert contents(folder / "out") == before


def test_documents_are_kept_by_a_link_to_their_file(folder: Path) -> None:
    (folder / "link.jsonl").symlink_to(folder / "one.jsonl")
    scored(folder, ["link.jsonl"], folder / "out", keep_top="10%")
    scored(folder, ["one.jsonl"], folder / "out", keep_top="20%")
    kept = read_kept(folder / "out")
    assert kept is not None
    assert kept.rows == 40


def test_rows_of_scores_do_not_replace_documents(folder: Path) -> None:
    texts = random_texts(100, 7)
    pq.write_table(pa.table({"id": [str(k) for k in range(100)], "text": texts}), folder / "table.parquet")
    scored(folder, ["table.parquet"], folder / "out", keep_top="30%")
    before = contents(folder / "out" / KEPT)
    stopped_at("kept._commit", lambda: scored(folder, ["table.parquet"], folder / "out", keep_top="30%", keep_as="ids"))
    scored(folder, ["table.parquet"], folder / "out", keep_top="30%")
    assert contents(folder / "out" / KEPT) == before


@pytest.mark.parametrize("options", [{"keep_class": "x"}, {"keep_model": "x"}])
def test_what_cannot_be_kept_is_said_before_anything_is_scored(folder: Path, options: dict[str, str]) -> None:
    with pytest.raises(InputError):
        scored(folder, INPUTS, folder / "out", keep_top="10%", **options)
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("one")
    with pytest.raises(InputError, match="each document is a file of its own"):
        scored(folder, [*INPUTS, "texts"], folder / "out", keep_top="10%")
    assert not (folder / "out" / PARTS).exists()


@pytest.mark.parametrize(
    ("item", "out"),
    [("corpus", "corpus"), ("corpus", "corpus/out"), ("corpus/parts", "corpus"), ("corpus/parts", "corpus/parts/out")],
)
def test_scores_among_the_inputs(folder: Path, item: str, out: str) -> None:
    (folder / "corpus" / "parts").mkdir(parents=True)
    for name in INPUTS:
        shutil.copy(folder / name, folder / "corpus" / "parts" / name)
    before = contents(folder / "corpus")
    with pytest.raises(InputError, match="choose another"):
        scored(folder, [item], folder / out)
    assert contents(folder / "corpus") == before


def test_files_of_others_are_not_removed(folder: Path) -> None:
    (folder / "out" / PARTS).mkdir(parents=True)
    (folder / "out" / PARTS / "notes.parquet").write_bytes(b"mine")
    scored(folder, INPUTS, folder / "out", keep_top="10%")
    assert (folder / "out" / PARTS / "notes.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["run/shards", "run/model"])
def test_folders_of_other_things(folder: Path, name: str) -> None:
    before = contents(folder / "run")
    with raises_code("folder-not-empty", name):
        score(str(folder / "run"), [str(folder / INPUTS[0])], folder / name, ScoreOptions(), ClusterOptions(threads=1))
    assert contents(folder / "run") == before
