"""Where commands write, and the limits of the system that they run in."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.cli.console import error_exits
from tests.support.commands import call
from tests.support.texts import write_reviews


@pytest.mark.fault(58)
def test_folders_whose_names_are_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reviews, bad = write_reviews(tmp_path / "reviews.jsonl", rows=10), tmp_path / "d\udcff"
    bad.mkdir()
    for command in (
        ("ingest", reviews, "--out", bad / "store"),
        ("train", tmp_path, "--out", bad / "model"),
        ("status", bad),
        ("run", bad / "run.toml"),
        ("predict", bad, reviews),
        ("evaluate", tmp_path, reviews, "--predictions", bad / "x.parquet"),
        ("--log", bad / "log", "status", tmp_path),
    ):
        assert call(monkeypatch, *command) == 2
        error = capfd.readouterr().err
        assert r"d\xff" in "".join(error.replace("│", "").split())  # whose lines may be in a box
        assert "Traceback" not in error
    monkeypatch.chdir(bad)
    assert call(monkeypatch, "ingest", reviews, "--out", "store") == 2
    assert os.listdir(os.fsencode(bad)) == []


@pytest.mark.fault(43)
def test_folders_with_odd_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews = write_reviews(tmp_path / "reviews.jsonl", rows=10)
    for name in ('a\nb "q" *?[\t', "-d", "é" * 127 + "x"):
        store = tmp_path / name
        assert call(monkeypatch, "ingest", reviews, "--out", store) == 0
        assert call(monkeypatch, "status", store) == 0
    assert r'a\nb "q" *?[\t' in capsys.readouterr().out


@pytest.mark.fault(3)
@pytest.mark.parametrize("limit_bytes", [200_000_000, 250_000_000, 400_000_000, 700_000_000])
def test_less_memory_than_the_libraries_need(limit_bytes: int, tmp_path: Path) -> None:
    """OpenBLAS would wait for memory without end at some of these limits, and abort at others."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    command = [sys.executable, "-m", "sparseoco", "ingest", str(write_reviews(tmp_path / "a.jsonl")), "--out"]
    done = subprocess.run(
        [*command, str(tmp_path / "store")], capture_output=True, text=True, check=False, preexec_fn=limit
    )
    assert done.returncode == 1
    assert "[out-of-memory]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.fault(3)
def test_a_library_that_hides_why_it_cannot_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), error_exits():
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file 'libllvmlite.so'")  # noqa: B904 - as llvmlite
    assert "[out-of-memory]" in capsys.readouterr().err


@pytest.mark.fault(19)
def test_too_few_threads(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), error_exits():
        raise RuntimeError("can't start new thread")
    assert "[no-threads]" in capsys.readouterr().err
    with pytest.raises(RuntimeError), error_exits():
        raise RuntimeError("another")


def test_default_folders(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A default is a path, not text: it goes through the same checks."""
    assert call(monkeypatch, "fetch") == 0
    assert "imdb" in capsys.readouterr().out
