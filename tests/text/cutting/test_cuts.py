"""Files are cut by one rule, in one pass or by surveys of parts of any size, plain or compressed."""

import gzip
import hashlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import digest_value
from sparseoco.text import tasks as job
from sparseoco.text.cutting import Cut, SplitReader, cut_in_order
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.surveys import compose_cuts, memo_name, survey_part
from tests.support.ingests import file_bytes, ingest_bytes

PIECES = [
    '"',
    '""',
    ",",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " ",
    "ab",
    'é"',
    "\ufeff",
    "東京",
    "word " * 9,
    '"x\r\n,"',
    "\n",
]
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=90).map("".join)
HEADS = {
    "lines": "",
    "jsonl": "",
    "csv": "id,label,text\n",
    "tsv": "id\tlabel\ttext\r\n",
    "quoted tsv": '"id"\t"text"\r',
}


def in_order(source: Source, options: TextOptions, shard_bytes: int, data: bytes, block: int) -> list[Cut]:
    """The cuts in one pass over blocks of the file; ends at an error."""
    blocks = (data[begin : begin + block] for begin in range(0, len(data), block))
    found: list[Cut] = []
    try:
        for _, cut, content in cut_in_order(blocks, source, options, shard_bytes):
            assert bytes(content) == data[cut.start : cut.stop]
            found.append(cut)
    except InputError:
        found.append(Cut(-1, 0, 0, 0))
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(list(HEADS)), CONTENTS, st.integers(16, 300), st.integers(1, 300), st.integers(1, 200),
    st.booleans(), st.booleans(), st.sampled_from([40, 1 << 20]),
)  # fmt: skip
@example("csv", 'a\n"' + "b\n" * 40 + '"\r\n' * 9, 16, 20, 200, True, False, 1 << 20)
@example("lines", "ab\r", 16, 1, 1, True, False, 1 << 20)
@example("quoted tsv", "word " * 18 + "\n", 64, 1, 1, False, False, 1 << 20)
def test_surveys_give_the_cuts_of_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, content: str, part: int, shard_bytes: int, block: int,
    header: bool, mark: bool, longest: int,
) -> None:  # fmt: skip
    options = TextOptions.of({"header": header, "max_line_bytes": longest, "format": kind.split()[-1]})
    data = ("\ufeff" * mark + HEADS[kind] + content).encode()
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    (source,) = find_sources([str(path)], options)
    expected = in_order(source, options, shard_bytes, data, block)
    monkeypatch.setattr(stored, "PART_BYTES", part)
    digest = stored.PartsDigest()
    surveys = []
    for number in range(-(-len(data) // part)):
        memo = str(tmp_path / digest_value([str(data)]) / memo_name(source, number, options, shard_bytes))
        surveys.append(survey_part(source, number, options, shard_bytes, memo))
        assert survey_part(source, number, options, shard_bytes, memo) == surveys[-1]
        digest.add_part(surveys[-1].sha256)
    parts = [data[begin : begin + part] for begin in range(0, len(data), part)]
    assert digest.hexdigest() == hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in parts)).hexdigest()
    whole = stored.digest_stored(str(path), "a.txt")
    assert digest.hexdigest() == whole
    found = list(compose_cuts(source, surveys, options, shard_bytes))
    cuts = [each[1]._replace(runs=()) for each in found if each is not None]
    for cut in (each[1] for each in found if each is not None):
        bounds = [cut.start, *(end for end, _ in cut.runs)]
        assert [xxh3_64_intdigest(data[a:b]) for a, b in pairwise(bounds)] == [digest for _, digest in cut.runs]
        assert bounds[-1] == cut.stop
    if None in found:
        assert found.index(None) == len(found) - 1
        assert cuts == expected[: len(cuts)]
        # Left to one pass: an error, a header beyond the first part, a file whose first part has no line feed.
        assert expected[-1:] == [Cut(-1, 0, 0, 0)] or part < 64 or longest == 40 or b"\n" not in data[:part]
    else:
        assert cuts == expected


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(HEADS)), CONTENTS, st.integers(1, 200), st.integers(1, 100))
def test_a_cut_depends_on_its_position_only(
    tmp_path: Path, kind: str, content: str, shard_bytes: int, block: int
) -> None:
    options = TextOptions.of({"format": kind.split()[-1]})
    data = (HEADS[kind] + content).encode()
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    (source,) = find_sources([str(path)], options)
    records = in_order(source, options, 1, data, 1 << 20)
    if Cut(-1, 0, 0, 0) in records:
        return
    assert all(first.stop == second.start for first, second in pairwise(records))
    assert [cut.stop for cut in records[-1:]] == [len(data)] * bool(records)
    if kind in ("lines", "jsonl"):
        assert [data[cut.start : cut.stop] for cut in records] == data.splitlines(keepends=True) or b"\r" in data
    starts = [cut.start for cut in records]
    expected = []
    while len(expected) == 0 or expected[-1].stop < len(data):
        start = expected[-1].stop if expected else min(starts, default=len(data))
        if start == len(data):
            break
        edge = (start // shard_bytes + 1) * shard_bytes
        stop = next((cut.stop for cut in records if cut.stop >= edge), len(data))
        line = next(cut.line for cut in records if cut.start == start)
        expected.append(Cut(start // shard_bytes, start, stop, line))
    assert in_order(source, options, shard_bytes, data, block) == expected


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("pn"), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)), min_size=9),
    st.integers(1024, 3000), st.integers(200, 5000),
)  # fmt: skip
def test_any_parts_and_compression_give_the_same_store(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], shard_bytes: int, part: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    quoted = [(label, text.replace('"', '""')) for label, text in rows * 5]
    data = (
        "id,label,text\n" + "".join(f'{k},{label},"words {text}"\r\n' for k, (label, text) in enumerate(quoted))
    ).encode()
    ingest_bytes(folder, "a.csv", data, out="plain", shard_bytes=shard_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "PART_BYTES", part)
        patch.setattr(job, "TASKS", 1)  # several splits a task
        ingest_bytes(folder, "a.csv", data, out="parts", shard_bytes=shard_bytes)
    ingest_bytes(folder, "a.csv.gz", gzip.compress(data), out="packed", shard_bytes=shard_bytes)
    contents = [
        {
            name: content
            for name, content in file_bytes(folder / out).items()
            if name.startswith(("shard-", "vocabulary-"))
        }
        for out in ("plain", "parts", "packed")
    ]
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) >= 2


@contextmanager
def frames_held() -> Iterator[None]:
    """Another thread holds the frames of all threads, with the arrays in them, as Dask's profiler does."""
    done = threading.Event()

    def hold() -> None:
        while not done.is_set():
            frames = sys._current_frames()
            time.sleep(1e-4)
            del frames

    thread, interval = threading.Thread(target=hold), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


RECORDS = {
    "a.jsonl": (b"", b'{"label":"p","text":"caf\xc3\xa9"}\n'),
    "a.csv": (b"label,text\n", b"p,a b\r\n"),
    "quoted.csv": (b"label,text\n", b'p,"a\n""b"""\n'),
    "a.tsv": (b"label\ttext\n", b"p\ta b\n"),
    "quoted.tsv": (b'"label"\t"text"\n', b'"p"\t"a\nb"\n'),
    "a.txt": (b"", b"a b\n"),
    "a.svmlight": (b"", b"+1 3:1\n"),
    "a.review": (b"", b"a:1 #label#:p\n"),
    "latin-1.csv": (b"label,text\n", b"p,caf\xe9\n"),
    "utf-16.jsonl": (b"", '{"label":"p"}\n'.encode("utf-16-le")),
    "a.jsonl.gz": (b"", b'{"label":"p"}\n'),
    "a.csv.zst": (b"label,text\n", b"p,a b\n"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_profiler_that_holds_frames_does_not_disturb_cutting(tmp_path: Path, name: str) -> None:
    head, record = RECORDS[name]
    data = head + 10_000 * record
    data = gzip.compress(data) if name.endswith(".gz") else data
    data = zstandard.compress(data) if name.endswith(".zst") else data
    (tmp_path / name).write_bytes(data)
    codec = name.partition(".")[0] if name.startswith(("latin", "utf")) else "utf-8"
    options = TextOptions(encoding="utf-16-le" if codec == "utf-16" else codec)
    (source,) = find_sources([str(tmp_path / name)], options)
    with frames_held():
        assert sum(1 for _ in SplitReader(0, source, options, 1)) == 10_000
