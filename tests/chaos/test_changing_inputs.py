"""Inputs that change at random moments of an ingest: the store has one version of the text, or the run says so.

SPARSEOCO_CHAOS_TRIALS is five times the number of changes of each kind of input, SPARSEOCO_CHAOS_SEED the seed.
"""

import gzip
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import feather

from sparseoco.core.errors import SparseocoError
from sparseoco.text import stored
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 5
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
Result = tuple[str, list[str]]


def rows(seed: int, n: int = 4000) -> list[dict[str, str]]:
    rng = random.Random(seed)
    return [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": " ".join(f"w{rng.randrange(3000)}" for _ in range(12))}
        for k in range(n)
    ]


def lines(seed: int) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows(seed))


def records(seed: int) -> bytes:
    """CSV with records of two lines."""
    each = (f'{row["id"]},{row["label"]},"{row["text"][:20]}\n ""{row["text"][20:]}"\n' for row in rows(seed))
    return ("id,label,text\n" + "".join(each)).encode()


def table(write: Callable[[pa.Table, pa.BufferOutputStream], None]) -> Callable[[int], bytes]:
    def content(seed: int) -> bytes:
        sink = pa.BufferOutputStream()
        write(pa.Table.from_pylist(rows(seed)), sink)
        return bytes(sink.getvalue().to_pybytes())

    return content


CONTENTS: dict[str, Callable[[int], bytes]] = {
    "a.jsonl": lines,
    "a.csv": records,
    "a.jsonl.gz": lambda seed: gzip.compress(lines(seed), 1, mtime=0),
    "a.jsonl.zst": lambda seed: zstandard.ZstdCompressor(1).compress(lines(seed)),
    "a.parquet": table(lambda rows, sink: pq.write_table(rows, sink, row_group_size=500)),
    "a.feather": table(lambda rows, sink: feather.write_feather(rows, sink, chunksize=500)),
    "b.feather": table(lambda rows, sink: feather.write_feather(rows, sink, chunksize=500, compression="uncompressed")),
    "p/7.txt": lambda seed: (" ".join(row["text"] for row in rows(seed, 50))).encode(),
}


def replace(path: Path, other: bytes) -> None:
    status = path.stat()
    new = path.parent.parent / "new"
    new.write_bytes(other)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def cut(path: Path, other: bytes) -> None:
    os.truncate(path, len(other) // 3)


def append(path: Path, other: bytes) -> None:
    with path.open("ab") as file:
        file.write(other)


def rewrite(path: Path, other: bytes) -> None:
    """Same size, and its time is set back."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write((other + bytes(status.st_size))[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def write_slowly(path: Path, other: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for begin in range(0, len(other), 1 + len(other) // 7):
            file.write(other[begin : begin + 1 + len(other) // 7])
            time.sleep(0.01)


def touch(path: Path, other: bytes) -> None:
    os.utime(path)


def recreate(path: Path, other: bytes) -> None:
    path.unlink()
    time.sleep(0.005)
    path.write_bytes(other)


CHANGES = [replace, cut, append, rewrite, write_slowly, touch, recreate]


def run(source: Path, out: Path) -> Result:
    try:
        ingest([str(source)], out, TextOptions(), shard_bytes=50_000)
    except SparseocoError as error:
        return error.code, [str(error)]
    return "", sorted(path.name for path in out.iterdir() if path.name.startswith(("shard-", "vocabulary-")))


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(53, 54)
@pytest.mark.parametrize("name", list(CONTENTS))
def test_inputs_that_change_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 100_000)
    before, after = CONTENTS[name](1), CONTENTS[name](2)
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
        change, wait, out = rng.choice(CHANGES), rng.random() * seconds, tmp_path / f"out-{trial}"
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
