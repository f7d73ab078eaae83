import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest.mock import Mock

import pytest
from distributed import LocalCluster

from sparseoco.core.errors import StorageError
from sparseoco.execution import clusters as connect
from sparseoco.ops.doctor import Finding, epochs, estimate, examine, machine
from sparseoco.ops.doctor.sampling import guess
from sparseoco.pipeline.nightly.history import TABLES, add_increment
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.pipeline.steps import run_ingest
from sparseoco.search.packing import Capacity, state_bytes
from sparseoco.storage.locks import exclusive_lock
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.training.options import SearchOptions
from tests.support.commands import call
from tests.support.stores import make_store
from tests.support.texts import write_run_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    return write_run_file(tmp_path)


def said(findings: list[Finding], state: str) -> list[str]:
    return [finding.sentence for finding in findings if finding.state == state]


def test_what_a_run_would_take_is_told_by_a_sample_and_by_its_shards(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "doctor", file) == 0
    out = capsys.readouterr().out
    assert "150 documents" in out
    assert "all can be read" in out
    assert "to ingest" in out
    assert not (file.parent / "run").exists()  # nothing is left behind
    assert call(monkeypatch, "ingest", file.parent / "places.jsonl", "--out", file.parent / "run" / "shards") == 0
    capsys.readouterr()
    assert call(monkeypatch, "doctor", file, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert any("200 documents" in finding["sentence"] and "its shards" in finding["sentence"] for finding in told)
    assert sorted(path.name for path in (file.parent / "run").iterdir()) == ["shards"]


def figures(file: Path) -> str:
    """The sentence on time."""
    (sentence,) = [finding.sentence for finding in examine(file) if finding.subject == "time"]
    return sentence


@pytest.mark.parametrize(
    "table",
    [
        "algorithms.caos-erm = { R = [0.3, 1.0] }",
        "algorithms.caos-erm = { rounds = 50, estimate = 'corrected' }",
        "algorithms.cao-rcd = { R = [0.1], rounds = ['pass', 20] }",
    ],
)
def test_the_time_of_epoch_methods_and_of_evaluation_is_told(file: Path, table: str) -> None:
    before, _, after = file.read_text().partition("algorithms.")
    file.write_text(f"{before}{table}\n[evaluate]{after.partition('[evaluate]')[2]}")
    sentence = figures(file)
    for part in ("to ingest", "to search", "to train", "to evaluate"):
        assert part in sentence
    assert "Not in it" not in sentence


def test_what_cannot_be_tried_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file.read_text()
    apart = "algorithms.caos-erm = { R = [0.3], placement = 'dealt' }"
    file.write_text(text.replace("algorithms.rda", f"{apart}\nalgorithms.rda"))
    assert "Not in it: caos-erm, of which no time can be told." in figures(file)
    file.write_text(text.replace("algorithms.rda", "algorithms.caos-erm = { R = [0.3] }\nalgorithms.rda"))
    monkeypatch.setattr(epochs, "TRIED_BYTES", 100)
    assert "Not in it: caos-erm, of which no time can be told." in figures(file)


def test_an_epoch_is_told_by_a_straight_line_through_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(make_store(tmp_path / "shards"))
    options = SearchOptions.model_validate({"algorithms": {"caos-erm": {"R": [0.1, 0.3, 1.0]}}, "folds": 1})
    (job,) = estimate._jobs(options, store, Capacity(1, 1e9))
    rows = estimate._rows(store)
    monkeypatch.setattr(epochs, "_seconds", lambda problem, whole, rows, count: 2.0 + 0.25 * count)
    assert epochs.epoch_seconds(job.block, store, rows, 1.0) == pytest.approx(2.0 + 0.25 * store.n_rows)
    assert epochs.epoch_seconds(job.block, store, rows, 2.0) == pytest.approx(2.0 + 0.5 * store.n_rows)
    monkeypatch.setattr(epochs, "TRIED_BYTES", state_bytes(job.block, store) // 3)  # one configuration stands for three
    assert epochs.epoch_seconds(job.block, store, rows, 1.0) == pytest.approx(3 * (2.0 + 0.25 * store.n_rows))


def test_text_to_evaluate_on_that_is_not_there_hides_nothing_else(file: Path) -> None:
    file.write_text(file.read_text().replace("[evaluate]", '[evaluate]\ninputs = ["none.jsonl"]'))
    (sentence,) = said(examine(file), "wrong")
    assert sentence.endswith("none.jsonl does not exist.")
    assert "to search" in figures(file)


def test_text_to_evaluate_on_in_a_store_that_refuses_hides_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Mock(side_effect=StorageError("s3://there does not answer."))
    monkeypatch.setattr("sparseoco.ops.doctor.run.find_sources", refused)
    assert said(examine(file), "wrong") == ["s3://there does not answer."]
    assert "to search" in figures(file)


def test_inputs_may_be_gone_once_nights_have_taken_them_in(file: Path) -> None:
    (file.parent / "incoming").mkdir()
    text = (file.parent / "places.jsonl").rename(file.parent / "incoming" / "places.jsonl")
    file.write_text(file.read_text().replace('"places.jsonl"', '"incoming"'))
    run_ingest(load_run_file(file))
    (sentence,) = [finding.sentence for finding in examine(file) if finding.subject == "inputs"]
    assert sentence.startswith("1 source, ")
    assert sentence.endswith(", 0 of them new, all can be read.")
    text.unlink()
    assert any("is an empty folder" in sentence for sentence in said(examine(file), "wrong"))
    add_increment(file.parent / "run", 1, {name: [{"promoted": False}] if name == "history" else [] for name in TABLES})
    findings = examine(file)
    assert "They are empty: nothing is new." in said(findings, "fine")
    assert not said(findings, "wrong")


def test_what_is_wrong_comes_first_in_a_sentence(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace('"places.jsonl"', '"none.jsonl"'))
    assert call(monkeypatch, "doctor", file) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("wrong     inputs: ")
    assert "none.jsonl does not exist" in lines[0]
    file.write_text(file.read_text().replace("folds = 3", "folds = 0"))
    assert said(examine(file), "wrong")[0].startswith(f"{file}: search.folds")


def test_a_folder_that_is_held_or_cannot_be_written_is_wrong(file: Path) -> None:
    with exclusive_lock(file.parent / "run"):
        assert any("is held by process" in sentence for sentence in said(examine(file), "wrong"))
    (file.parent / "run" / ".lock").unlink()
    (file.parent / "run").rmdir()
    (file.parent / "run").write_text("a file")
    assert said(examine(file), "wrong")


def test_versions_that_fail_late_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"fastapi": "0.165.0", "sqlalchemy": "2.1.0"}
    real = machine.version
    monkeypatch.setattr(machine, "version", lambda name: there.get(name, real(name)))
    sentences = said(list(machine.installed()), "wrong")
    assert len(sentences) == 2
    assert any("every flow run would fail" in sentence for sentence in sentences)
    assert any("without a word" in sentence for sentence in sentences)


@contextmanager
def answering(code: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://user:secret@127.0.0.1:{server.server_port}/api"
        finally:
            server.shutdown()
            thread.join()


def test_the_prefect_server_is_asked_for_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200) as address:
        monkeypatch.setenv("PREFECT_API_URL", address)
        (well,) = machine.prefect()
    assert well.state == "fine"
    assert "secret" not in well.sentence
    (gone,) = machine.prefect()
    assert (gone.state, "secret" in gone.sentence) == ("wrong", False)
    with answering(401) as address:
        monkeypatch.setenv("PREFECT_API_URL", address)
        (refused,) = machine.prefect()
    assert "says 401" in refused.sentence


def test_a_scheduler_is_asked_for_its_workers_versions_and_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "run").mkdir()
    shape = {"n_workers": 1, "threads_per_worker": 3, "memory_limit": "3GB"}
    pages = {"dashboard_address": connect.LOOPBACK, "worker_dashboard_address": connect.LOOPBACK}
    with LocalCluster(processes=False, **shape, **pages) as cluster:
        # In this process; from another one an address looks no different.
        text = file.read_text().replace("threads = 2", f'scheduler = "{cluster.scheduler_address}"')
        file.write_text(text)
        findings = examine(file)
    fine = said(findings, "fine")
    assert any("1 worker on 1 host, 3 tasks at once" in sentence for sentence in fine)
    assert any("have the versions that are installed here" in sentence for sentence in fine)
    assert any("All workers see what is written to" in sentence for sentence in fine)
    assert any("A process with 3 tasks at once" in sentence and "it has 2.79 GiB" in sentence for sentence in fine)
    assert not list((file.parent / "run").iterdir())
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.2)
    findings = examine(file)
    assert [sentence.partition(" at ")[0] for sentence in said(findings, "wrong")] == ["No Dask scheduler answers"]
    assert said(findings, "doubtful") == ["That is told of a cluster with which nothing is wrong."]


def test_a_queue_is_told_by_what_it_will_be_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, table = file.read_text(), '\nkind = "slurm"\nworkers = 8\nmemory = "16GB"\nslurm.walltime = "08:00:00"'
    file.write_text(text.replace("[cluster]", f"[cluster]{table}"))
    monkeypatch.setenv("PATH", str(file.parent))
    assert said(examine(file), "wrong") == ["sbatch is not found: run this on a machine that submits jobs."]
    (file.parent / "sbatch").touch(mode=0o755)
    findings = examine(file)
    assert not said(findings, "wrong")
    assert any(sentence.startswith("slurm will be asked for 8 workers") for sentence in said(findings, "fine"))
    assert any("A process with 2 tasks at once" in sentence for sentence in said(findings, "fine"))


@pytest.mark.parametrize("form", ["csv", "folder"])
def test_the_size_of_a_store_is_told_by_a_part_of_the_text(tmp_path: Path, form: str) -> None:
    rows = 12_000
    texts = [f'word{i % 977}, "quoted\nover{i % 7} lines"' for i in range(rows)]
    if form == "csv":
        quoted = ('"' + text.replace('"', '""') + '"' for text in texts)
        lines = (f"{text},{'ab'[2 * i // rows]}" for i, text in enumerate(quoted))
        (tmp_path / "texts").write_text("text,label\n" + "\n".join([*lines, ""]))
    else:
        rows = 600
        for i, text in enumerate(texts[:rows]):
            path = tmp_path / "texts" / "ab"[i % 2] / f"{i}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    options = TextOptions(format=form)
    found = guess(find_sources([str(tmp_path / "texts")], options), options, tmp_path / "sample", 1 << 20)
    assert found.whole.n_rows == pytest.approx(rows, rel=0.02)
    assert len(found.whole.classes) == 2
    assert found.whole.manifest.nonzeros == pytest.approx(4 * rows, rel=0.02)
