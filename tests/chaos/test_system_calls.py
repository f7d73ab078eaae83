"""Reads and writes that fail, and inputs that change: the same files, or one sentence."""

import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import inputs as stored
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.chaos.readers import __name__ as readers
from tests.support.damage import CHANGES
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.forks import Forks
from tests.support.ingests import COMPRESSORS
from tests.support.tables import TABLE_WRITERS, WRITERS
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# The n-th read or write of a file fails, is interrupted or is short, for many n: the same files, or one sentence.
#
# `faults.c` is compiled for it; without a compiler the test is skipped.


STRIDE = int(os.environ.get("SPARSEOCO_CHAOS_STRIDE", "5"))  # 1: every n
FAULTS = {"no space": 1, "read error": 2, "interrupted read": 3, "short read": 4, "write error": 5, "short write": 6}
INGEST = ["ingest", "places.jsonl", "--out", "out", "--min-df", "1", "--threads", "1"]
TRAIN = ["train", "store", "--out", "out", "--algorithm", "rda", "--threads", "1"]
PREDICT = ["predict", "model", "places.jsonl", "--proba"]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library to preload."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(15, 18)
@pytest.mark.parametrize("command", [INGEST, TRAIN, PREDICT], ids=lambda command: command[0])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_call_that_fails(fault: str, command: list[str], shim: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    write_run_file(folder)
    with Forks(folder, "tests.chaos.readers:kernels", LD_PRELOAD=shim) as forks:
        prepared = [[*INGEST[:3], "store", *INGEST[4:]], ["train", "store", "--out", "model", *TRAIN[4:]]]
        for first in prepared:
            assert forks.run(first, seconds=600).code == 0
        whole = forks.run(command, seconds=600)
        assert whole.code == 0
        expected = folder_bytes(folder)
        shutil.rmtree(folder / "out", ignore_errors=True)
        number, failed = 1, 0
        while True:
            end = forks.run([f"{readers}:with_fault", str(FAULTS[fault]), str(number), f"{folder}/", "calls", *command])
            assert end.code is not None, (fault, number)
            assert end.code >= 0, (fault, number)
            assert "Traceback" not in end.err, (fault, number, end.err)
            calls = int((folder / "calls").read_text())
            (folder / "calls").unlink()
            if end.code == 0:
                assert end.out == whole.out, (fault, number)
            else:
                failed += 1
                assert len([line for line in end.err.splitlines() if line.startswith("sparseoco: ")]) == 1, end.err
                assert forks.run(command).out == whole.out, (fault, number)
            assert_same_folder(folder, expected, more=True, what=(fault, number))
            shutil.rmtree(folder / "out", ignore_errors=True)
            if calls < number:
                break
            number += STRIDE
        assert number > 3
        assert failed or fault in ("interrupted read", "short read", "short write")
        assert not failed or fault not in ("interrupted read", "short read", "short write")


# ----------------------------------------------------------------------------------------------------------------------
# Inputs that change at random moments of an ingest: the store has one version of the text, or the run says so.
#
# SPARSEOCO_CHAOS_TRIALS is five times the number of changes of each kind of input, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 5
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
Result = tuple[str, list[str]]


def rows(seed: int, n: int = 4000) -> list[dict[str, str]]:
    rng = random.Random(seed)
    return [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": "\n".join(f"w{rng.randrange(3000)}" for _ in range(12))}
        for k in range(n)
    ]


INPUTS = [*(f"{name}{packing}" for name in ("a.jsonl", "a.csv") for packing in COMPRESSORS), *TABLE_WRITERS, "p/7.txt"]


def content(folder: Path, name: str, seed: int) -> bytes:
    if "/" in name:
        return " ".join(row["text"] for row in rows(seed, 50)).encode()
    base = next(base for base in WRITERS if name.startswith(base))
    WRITERS[base](pa.Table.from_pylist(rows(seed)), folder / base, 500)
    return COMPRESSORS[name.removeprefix(base)]((folder / base).read_bytes())


def run(source: Path, out: Path) -> Result:
    try:
        ingest([str(source)], out, TextOptions(), shard_bytes=50_000)
    except SparseocoError as error:
        return error.code, [str(error)]
    return "", sorted(path.name for path in out.iterdir() if path.name.startswith(("shard-", "vocabulary-")))


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(53, 54)
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_change_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 100_000)
    before, after = (content(tmp_path, name, seed) for seed in (1, 2))
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    source = tmp_path / "in" if "/" in name else path
    if "/" in name:
        for k, row in enumerate(rows(0, 800)):
            other = tmp_path / "in" / row["label"] / f"{k}.txt"
            other.parent.mkdir(exist_ok=True)
            other.write_text(row["text"])
    path.write_bytes(before)
    run(source, tmp_path / "compiled")
    started = time.monotonic()
    expected = run(source, tmp_path / "expected")
    seconds = time.monotonic() - started
    assert expected[0] == ""
    wrong = []
    for trial in range(TRIALS):
        rng = random.Random(f"{SEED} {name} {trial}")
        change = rng.choice([*CHANGES, lambda path, _: os.utime(path)])
        wait, out = rng.random() * seconds, tmp_path / f"out-{trial}"
        path.write_bytes(before)
        time.sleep(0.02)  # more than a tick of the clock of the file system
        later = threading.Timer(wait, change, (path, after))
        later.start()
        found = run(source, out)
        later.join()
        place = f"{trial}: {change.__name__} after {wait:.3f} s: {found}"
        if found == expected:
            continue
        if found[0] == "input-changed":
            if list(out.glob("manifest-*")):
                wrong.append(f"{place}, committed")
            path.write_bytes(before)
            if run(source, out) != expected:
                wrong.append(f"{place}, and not again")
        elif found != run(source, tmp_path / f"other-{trial}"):
            wrong.append(place)
        for folder in ("out", "other"):
            shutil.rmtree(tmp_path / f"{folder}-{trial}", ignore_errors=True)
    assert not wrong, "\n".join([f"seed {SEED}:", *wrong])
