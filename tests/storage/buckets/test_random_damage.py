"""One answer of an object store during an ingest is damaged: the same store, or one sentence and then the same.

SPARSEOCO_CHAOS_TRIALS is ten times the number of damaged answers of each kind, SPARSEOCO_CHAOS_SEED the seed.
"""

import gzip
import os
import random
import threading
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location
from sparseoco.text import stored
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.support.ingests import file_bytes, jsonl, random_texts
from tests.support.s3_proxy import Answer, Request, damaged_answers

TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 10
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


def flip_head(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(head=_flip(answer.head, rng))


def flip_body(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(body=_flip(answer.body, rng))


def cut(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(body=answer.body[: rng.randrange(len(answer.body))])


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def put_inputs(bucket: Location) -> dict[str, str]:
    """What is ingested, by name, and the beginning of the keys of its objects."""
    rows = jsonl(random_texts(150))
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"label": "pn"[k % 2], "text": f"word w{k}"} for k in range(90)]), table)
    objects = {"a.jsonl": rows, "b.jsonl.gz": gzip.compress(rows, mtime=0), "d.parquet": table.getvalue().to_pybytes()}
    for k in range(30):
        objects[f"c/{'pn'[k % 2]}/{k}.txt"] = f"word w{k}".encode()
    for name, data in objects.items():
        commit_bytes(bucket / "raw" / name, data)
    return {name: f"{bucket}/raw/{name}" for name in ("a.jsonl", "b.jsonl.gz", "c", "d.parquet")}


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(59)
@pytest.mark.parametrize("damage", [flip_head, flip_body, cut])
def test_one_damaged_answer(
    tmp_path: Path,
    bucket: Location,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str,
    damage: object,
) -> None:
    """But for the content of a table, of which ranges are read: only TLS protects it."""
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    inputs = put_inputs(bucket)
    asked = 0

    def counted(request: Request, answer: Answer) -> Answer:
        nonlocal asked
        asked += 1
        return answer

    def run(source: str, out: Path) -> str:
        try:
            ingest([source], out, TextOptions(max_bad_rows=5), shard_bytes=4096)
        except SparseocoError as error:
            return error.code
        return ""

    requests, lock = {}, threading.Lock()
    for name, source in inputs.items():
        asked = 0
        with damaged_answers(endpoint, counted) as proxy, monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy)
            assert run(source, tmp_path / "expected" / name) == ""
        requests[name] = asked
    wrong = []
    for trial in range(TRIALS):
        rng = random.Random(f"{SEED} {trial}")
        name = rng.choice([*inputs][: 3 if damage is flip_body else 4])
        number, answers = rng.randrange(requests[name]), count()

        def damaged(request: Request, answer: Answer) -> Answer:
            with lock:
                hit = next(answers) == number  # noqa: B023 - called within this trial
            return damage(answer, rng) if hit and answer.body else answer  # type: ignore[operator]  # noqa: B023

        out = tmp_path / f"{trial}"
        with damaged_answers(endpoint, damaged) as proxy, monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy)
            code = run(inputs[name], out)
        if code and (list(out.glob("manifest-*")) or run(inputs[name], out)):
            wrong.append(f"{trial}: {name}, answer {number}: {code}, and not again")
        elif file_bytes(out) != file_bytes(tmp_path / "expected" / name):
            wrong.append(f"{trial}: {name}, answer {number}: {code or 'another store'}")
    assert not wrong, "\n".join([f"seed {SEED}:", *wrong])
