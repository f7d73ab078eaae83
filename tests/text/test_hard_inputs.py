"""Inputs and stores as the world makes them: refused in a sentence, or taken as what they are."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparseoco.errors import InputError
from sparseoco.shards import Store
from tests.text.test_ingest import WORDS, jsonl, run

# Limits of the system and of formats


def test_more_pieces_than_files_may_be_open(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl([" ".join(WORDS[:4] * 10) for _ in range(2000)]))
    program = (
        "import resource, sys; from pathlib import Path; from sparseoco.ingest import ingest;"
        "from sparseoco.text.options import TextOptions;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128));"
        "m = ingest([sys.argv[1]], Path(sys.argv[2]), TextOptions(ngram_range=(1, 2)), shard_bytes=1024);"
        "assert (m.rows, len(m.shards) > 300) == (2000, True), m"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "row", "options"),
    [
        ("a.jsonl", b'{"text":"ab","label":' + b"9" * 400 + b"}", {"labels": "numbers"}),
        ("a.jsonl", b'{"text":"ab","label":["a,b","c"]}', {"label_list": "join"}),
        ("a.svm", b"1 " + b"7" * 5000 + b":1", {}),
        ("a.svm", b"1 9223372036854775808:1", {}),
        ("a.svm", b"1 1:1_0", {}),
        ("a.svm", b"1_0 1:1", {}),
        ("a.svm", b"1_0 1:1", {"labels": "numbers"}),
        ("a.review", b"ab:1 #label#:positive #label#:negative", {}),
    ],
)
def test_rows_that_are_bad(tmp_path: Path, name: str, row: bytes, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"{name}, line 1: "):
        run(tmp_path, name, row + b"\n", **options)


@pytest.mark.parametrize("more", [b"trailing", b"x", b"\0\0then", b"x" * 100])
def test_bytes_after_a_gzip_stream(tmp_path: Path, more: bytes) -> None:
    with pytest.raises(InputError, match="other bytes follow"):
        run(tmp_path, "a.jsonl.gz", gzip.compress(jsonl(["ab"])) + more)
    run(tmp_path, "b.jsonl.gz", gzip.compress(jsonl(["ab"])) + bytes(700), out="padded")


def test_only_numbered_manifests_count(tmp_path: Path) -> None:
    manifest = run(tmp_path, "a.jsonl", jsonl(["ab"]))
    (tmp_path / "out" / "manifest-zzz.json").write_text("{}")
    assert Store.open(tmp_path / "out").manifest == manifest
