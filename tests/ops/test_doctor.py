import gzip
import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from distributed import LocalCluster

from sparseoco.core.errors import InputError, StorageError
from sparseoco.execution import clusters as connect
from sparseoco.ops import doctor as machine
from sparseoco.ops.doctor import Finding, examine
from sparseoco.pipeline.nightly.records import TABLES, add_increment
from sparseoco.pipeline.run_file import load_run_file, name_keys
from sparseoco.pipeline.steps import run_ingest
from sparseoco.search import packing
from sparseoco.storage.commit import exclusive_lock
from sparseoco.store.shards import Store
from sparseoco.text import readers as preview
from sparseoco.training.block import Block, search_settings
from tests.support.commands import Cli
from tests.support.http_servers import answering
from tests.support.ingests import write_files
from tests.support.searches import plain_search
from tests.support.stores import make_store
from tests.support.texts import write_run_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return write_run_file(tmp_path)


def messages(findings: list[Finding], state: str) -> list[str]:
    return [finding.message for finding in findings if finding.state == state]


def test_the_search_is_checked_on_small_text_and_on_shards(file: Path, cli: Cli) -> None:
    out = cli("doctor", file).out
    assert "It fits 150 documents" in out
    assert "all can be opened" in out
    assert "A process with 2 tasks takes about " in out
    assert not (file.parent / "run").exists()  # nothing is left behind
    run_ingest(load_run_file(file))
    findings = json.loads(cli("doctor", file, "--json").out)
    assert any("It fits 150 documents" in finding["message"] for finding in findings)
    assert sorted(path.name for path in (file.parent / "run").iterdir()) == ["shards"]


def test_the_memory_is_that_of_the_blocks_that_packing_makes(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "shards"))
    options = plain_search(algorithms={"rda": {"gamma": [1.0, 2.0], "lam": [1e-3]}}, folds=3, epochs=2)
    capacity = packing.capacity_per_task(1, 1 << 30, 1, options, store)
    needed = machine.process_memory(options, store, capacity, threads=1)
    block = Block.of(search_settings(options, store)[0], options.configurations())  # of every fold
    own = packing.state_bytes(block, store) + packing.evaluation_bytes(block, 3, store)
    shared = packing.PROCESS_BYTES + packing.corpus_bytes(store)
    assert needed == shared + own + packing.CHUNK_BYTES + packing.FEATURE_BYTES * store.n_features
    more = machine.process_memory(options, store, capacity, threads=3)
    assert more - shared == 3 * (needed - shared)


def test_a_search_for_which_there_is_too_little_memory_is_an_error(file: Path) -> None:
    file.write_text(file.read_text().replace("[search]", '[search]\nmax_memory = "100MB"'))
    (found,) = [finding for finding in examine(file) if finding.state == "error"]
    assert (found.subject, found.code) == ("search", "out-of-memory")


def test_missing_evaluation_text_hides_no_other_finding(file: Path) -> None:
    file.write_text(file.read_text().replace("[evaluate]", '[evaluate]\ninputs = ["none.jsonl"]'))
    (message,) = messages(examine(file), "error")
    assert message.endswith("none.jsonl does not exist.")
    assert any("A process with 2 tasks" in message for message in messages(examine(file), "ok"))


def test_an_unreachable_store_of_test_text_hides_no_other_finding(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Mock(side_effect=StorageError("s3://there does not answer.", code="no-answer"))
    monkeypatch.setattr("sparseoco.ops.doctor._check_test_set", refused)
    assert messages(examine(file), "error") == ["s3://there does not answer."]
    assert any("A process with 2 tasks" in message for message in messages(examine(file), "ok"))


def test_inputs_may_be_deleted_once_increments_are_ingested(file: Path) -> None:
    (file.parent / "incoming").mkdir()
    text = (file.parent / "places.jsonl").rename(file.parent / "incoming" / "places.jsonl")
    file.write_text(file.read_text().replace('"places.jsonl"', '"incoming"'))
    run_ingest(load_run_file(file))
    (message,) = [finding.message for finding in examine(file) if finding.subject == "inputs"]
    assert message.startswith("1 source, ")
    assert message.endswith(", 0 of them new, all can be opened.")
    text.unlink()
    assert any("is an empty folder" in message for message in messages(examine(file), "error"))
    add_increment(file.parent / "run", 1, {name: [{"promoted": False}] if name == "history" else [] for name in TABLES})
    findings = examine(file)
    assert "There are no new files." in messages(findings, "ok")
    assert not messages(findings, "error")
    text.with_name("others.jsonl").write_text("no JSON\n")
    findings = examine(file)
    assert [finding.code for finding in findings if finding.state == "warning"] == ["malformed-record"]
    assert not messages(findings, "error")


def test_errors_come_first(file: Path, cli: Cli) -> None:
    file.write_text(file.read_text().replace('"places.jsonl"', '"none.jsonl"'))
    lines = cli("doctor", file, code=1).out.splitlines()
    assert lines[0].startswith("error     inputs: ")
    assert "none.jsonl does not exist" in lines[0]
    assert sum("none.jsonl does not exist" in line for line in lines) == 1
    file.write_text(file.read_text().replace("folds = 3", "folds = 0"))
    assert messages(examine(file), "error")[0].startswith(f"{file}: search.folds")


@pytest.mark.fault(17)
def test_a_folder_that_is_locked_or_not_writable_is_an_error(file: Path) -> None:
    with exclusive_lock(file.parent / "run"):
        assert any("is locked by process" in message for message in messages(examine(file), "error"))
    (file.parent / "run" / ".lock").unlink()
    (file.parent / "run").rmdir()
    (file.parent / "run").write_text("a file")
    assert messages(examine(file), "error")


@pytest.mark.fault(47)
def test_versions_that_fail_late_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"fastapi": "0.165.0", "sqlalchemy": "2.1.0"}
    real = machine.version
    monkeypatch.setattr(machine, "version", lambda name: there.get(name, real(name)))
    problems = messages(list(machine.installed()), "error")
    assert len(problems) == 2
    assert any("every flow run would fail" in message for message in problems)
    assert any("silently never" in message for message in problems)


def test_the_health_of_the_prefect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for code, state in ((200, "ok"), (401, "error")):
        known = {"Basic dXNlcjpzZWNyZXQ=": code}
        with answering(lambda path, headers: known.get(headers["Authorization"], 500)) as port:  # noqa: B023
            monkeypatch.setenv("PREFECT_API_URL", f"http://user:secret@127.0.0.1:{port}/api")
            (found,) = machine.prefect()
        assert (found.state, "secret" in found.message, "status 401" in found.message) == (state, False, code == 401)
    (missing,) = machine.prefect()
    assert (missing.state, "secret" in missing.message) == ("error", False)
    for address in ("http://[::1", "http://127.0.0.1:x/api", "127.0.0.1/api"):
        monkeypatch.setenv("PREFECT_API_URL", address)
        (wrong,) = machine.prefect()
        assert wrong.state == "error"
        assert "set PREFECT_API_URL to a URL such as" in wrong.message


def test_the_workers_versions_and_files_of_a_scheduler_are_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "run").mkdir()
    shape = {"n_workers": 1, "threads_per_worker": 3, "memory_limit": "3GB"}
    pages = {"dashboard_address": connect.LOOPBACK, "worker_dashboard_address": connect.LOOPBACK}
    with LocalCluster(processes=False, **shape, **pages) as cluster:
        # In this process; a scheduler of another one has an address like this one's.
        text = file.read_text().replace("threads = 2", f'scheduler = "{cluster.scheduler_address}"')
        file.write_text(text)
        findings = examine(file)
    ok = messages(findings, "ok")
    assert any("1 worker on 1 host, 3 concurrent tasks" in message for message in ok)
    assert any("have the versions installed here" in message for message in ok)
    assert any("All workers see files written to" in message for message in ok)
    assert any("A process with 3 tasks" in message and "it has 2.79 GiB" in message for message in ok)
    assert not list((file.parent / "run").iterdir())
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.2)
    findings = examine(file)
    assert [message.partition(" at ")[0] for message in messages(findings, "error")] == ["No Dask scheduler answers"]
    assert not any("A process with" in message for message in messages(findings, "ok"))


def sample_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read small slices of small inputs, too."""
    monkeypatch.setattr(preview, "WHOLE_BYTES", 0)
    monkeypatch.setattr(preview, "SLICES", 1)
    monkeypatch.setattr(machine, "SLICE", 1 << 11)


def test_of_large_text_a_sample_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_everything(monkeypatch)
    findings = examine(file)
    assert not messages(findings, "error")
    (read,) = [message for message in messages(findings, "ok") if "once there are shards" in message]
    assert " of the text can be read. " in read
    assert not any("It fits" in message for message in messages(findings, "ok"))
    file.write_text(file.read_text().replace("[ingest]", '[ingest]\ntext_field = "body"'))
    (found,) = [finding for finding in examine(file) if finding.state == "error"]
    assert (found.subject, found.code) == ("inputs", "missing-field")


def test_rows_that_cannot_be_read_are_counted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = file.parent / "places.jsonl"
    lines = source.read_bytes().splitlines(keepends=True)
    source.write_bytes(b"".join([lines[0], b"no JSON\n" * 3, *lines[1:] * 20]))
    file.write_text(file.read_text().replace("min_df = 1", 'min_df = 1\nduplicates = "all"\nmax_bad_rows = 10'))
    assert [finding.message for finding in examine(file) if "cannot be read" in finding.message] == [
        "3 rows of all of the text cannot be read, and max_bad_rows is 10."
    ]
    sample_everything(monkeypatch)
    found = [finding for finding in examine(file) if "cannot be read" in finding.message]
    assert [finding.state for finding in found] == ["warning"]
    assert found[0].message.startswith("3 rows of a sample of ")
    file.write_text(file.read_text().replace("max_bad_rows = 10", "max_bad_rows = 2"))
    (found,) = [finding for finding in examine(file) if finding.state == "error"]
    assert found.code == "too-many-bad-rows"
    assert f"{source}, line 4: not valid JSON" in found.message


def records(**changed: object) -> list[dict[str, object]]:
    """Rows of two classes; a field is replaced by a value, or by what a function gives for the row's number."""
    rows = [
        {"text": f"good old word{k % 7}", "label": "ab"[k % 2], "key": f"r{k}", "stars": k % 5 + 0.5} for k in range(80)
    ]
    for name, value in changed.items():
        for k, row in enumerate(rows):
            row[name] = value(k) if callable(value) else value
    return rows


def as_jsonl(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


LATIN = "caf\N{LATIN SMALL LETTER E WITH ACUTE} au lait".encode("latin-1")
JSONL = as_jsonl(records())
CSV = "\n".join(["text,label", *(f"{row['text']},{row['label']}" for row in records()), ""]).encode()
BROKEN = {
    "a file of a folder in another encoding": ("folder", b"", "", "encoding"),
    "a line in another encoding": ("a.jsonl", JSONL.replace(b"word3", LATIN), "", "encoding"),
    "another encoding": ("a.csv", CSV.decode().encode("utf-16"), "", "encoding"),
    "no JSON in the first line": ("a.jsonl", b"no JSON\n" + JSONL, "", "malformed-record"),
    "a missing column": ("a.csv", CSV + b"good,a,b\n", "", "malformed-record"),
    "more bad rows than allowed": ("a.jsonl", b"no JSON\n" * 3 + JSONL, "max_bad_rows = 2", "too-many-bad-rows"),
    "labels that are floats": ("a.jsonl", JSONL, "label_field = 'stars'", "invalid-labels"),
    "lists of labels": ("a.jsonl", as_jsonl(records(label=["a"])), "", "invalid-labels"),
    "numbers that are none": ("a.csv", CSV, "labels = 'numbers'", "invalid-labels"),
    "no label": ("a.jsonl", JSONL, "label_field = 'class'", "missing-field"),
    "no text": ("a.csv", CSV, "text_field = 'body'", "missing-field"),
    "no header": ("a.csv", CSV.partition(b"\n")[2], "", "missing-field"),
    "no group": ("a.jsonl", JSONL, "group_field = 'author'", "missing-field"),
    "an id as label": ("a.jsonl", JSONL, "label_field = 'key'", "invalid-labels"),
    "one class": ("a.jsonl", as_jsonl(records(label="sea")), "", "one-class"),
    "one class by where": ("a.jsonl", JSONL, "where = { label = 'a' }", "one-class"),
    "no labels": ("a.txt", b"good word\n" * 80, "", "no-labels"),
    "the same id twice": ("a.jsonl", as_jsonl(records(id=lambda k: k // 2)), "", "duplicate-id"),
    "no document": ("a.jsonl", JSONL, "where = { label = 'c' }", "no-documents"),
    "no feature": ("a.jsonl", JSONL, "min_df = 100", "empty-vocabulary"),
    "a truncated file": ("a.jsonl.gz", gzip.compress(JSONL)[:-20], "", "corrupt-file"),
    "more folds than documents": ("a.jsonl", JSONL, "[search]\nfolds = 90", "too-many-folds"),
    "a metric of two classes": (
        "a.jsonl",
        as_jsonl(records(label=lambda k: k % 3)),
        "[search]\nmetric = 'f1'",
        "invalid-metric",
    ),
    "no groups for folds": ("a.jsonl", JSONL, "[search]\nfolds_by = 'group'", "missing-column"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_doctor_refuses_what_run_refuses_with_the_same_sentence(tmp_path: Path, broken: str, cli: Cli) -> None:
    name, data, options, code = BROKEN[broken]
    if name == "folder":
        texts = {f"{'ab'[k % 2]}/{k}.txt": LATIN if k == 40 else b"good old word" for k in range(60)}
        write_files(tmp_path / name, texts)
    else:
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a.toml").write_text(f'[ingest]\ninputs = ["{name}"]\n{options}\n')
    printed = cli("doctor", tmp_path / "a.toml", "--json", code=1).out
    found = [finding for finding in json.loads(printed) if finding["state"] == "error"]
    refused = cli("run", tmp_path / "a.toml", code=2).err.splitlines()[-1]
    assert [f"sparseoco: {finding['message']} [{finding['code']}]" for finding in found] == [refused]
    assert found[0]["code"] == code


@pytest.mark.parametrize("seed", range(6))
def test_what_doctor_accepts_is_ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = records()[: random.integers(2, 80)]
    odd = [("label", None), ("label", 0.5), ("label", ""), ("label", "x" * 9), ("text", None), ("id", "r0"), ("id", 3)]
    for number in random.integers(0, len(rows), random.integers(0, 3)).tolist():
        name, value = odd[random.integers(len(odd))]
        rows[number][name] = value
    lines = as_jsonl(rows).splitlines(keepends=True)
    for number in random.integers(0, len(lines), random.integers(0, 2)).tolist():
        lines[number] = [b"no JSON\n", b"[]\n", lines[number].replace(b"good", LATIN), b"\n"][random.integers(4)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    options = ["max_bad_rows = 3", "duplicates = 'first'", "encoding_errors = 'replace'", "min_df = 1", "max_df = 40"]
    chosen = [options[k] for k in range(len(options)) if random.random() < 0.4]
    file = tmp_path / "a.toml"
    file.write_text("\n".join(["[ingest]", 'inputs = ["a.jsonl"]', *chosen]))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    found = [(finding.code, finding.message) for finding in examine(file) if finding.subject == "inputs"]
    found = [(code, message) for code, message in found if code]
    run, refused = load_run_file(file), list[tuple[str, str]]()
    try:
        run_ingest(run)
    except InputError as error:
        refused = [(error.code, name_keys(str(error)))]
    assert found == refused
