"""The n-th read or write of a file fails, is interrupted or is short, for many n: the same files, or one sentence.

`faults.c` is compiled for it; without a compiler the test is skipped.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.chaos.readers import __name__ as readers
from tests.storage.buckets.contents import contents
from tests.support.forks import Forks
from tests.support.texts import write_run_file

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
        expected = contents(folder)
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
            left = contents(folder)
            assert {name: left.get(name) for name in expected} == expected, (fault, number)
            shutil.rmtree(folder / "out", ignore_errors=True)
            if calls < number:
                break
            number += STRIDE
        assert number > 3
        assert failed or fault in ("interrupted read", "short read", "short write")
        assert not failed or fault not in ("interrupted read", "short read", "short write")
