"""Output never destroys input: what a command read, or what is of another kind, is never written over."""

import os
import shutil
from itertools import product
from pathlib import Path

import pytest
import skops.io

from sparseoco.pipeline.run_file import load_run_file
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a model in `run`, and a folder of inputs."""
    folder = tmp_path_factory.mktemp("outputs")
    random_model(folder / "run", positive_class="b")
    (folder / "data").mkdir()
    (folder / "data" / "a.jsonl").write_bytes(jsonl(random_texts(40, 7), label=lambda k: "ab"[k % 2]))
    return folder


@pytest.fixture
def folder(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as the working directory."""
    shutil.copytree(origin, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


STORE, MODEL = "run/shards", "run/model"
INTO_FOLDERS = {
    "ingest": "ingest data/a.jsonl --out",
    "search": f"search {STORE} --folds 1 --out",
    "train": f"train {STORE} --out",
    "auto": f"train {STORE} --algorithm auto --out",
    "score": f"score {MODEL} data/a.jsonl --out",
    "optimum": f"optimum {STORE} --out",
    "generate": "generate --bytes 10kB",
    "demo": "demo --out",
}
OTHERS = {
    "notes": {"notes.txt": b"mine"},
    "names": dict.fromkeys(("model.json", "run.json", "manifest.json", "planted.json"), b"mine"),
    "tables": {"weights.parquet": b"mine", "metrics.parquet": b"mine"},
    "corpus": {"docstrings.jsonl": b'{"id": 1}\n'},
    "odd": {"shards-notes.parquet": b"mine", "optimum.json": b"{}"},
}


OWN = (("ingest", STORE), ("train", MODEL), ("auto", MODEL))


@pytest.mark.parametrize(
    ("command", "other"), [pair for pair in product(INTO_FOLDERS, (*OTHERS, STORE, MODEL, "run")) if pair not in OWN]
)
def test_a_folder_of_other_things_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, other: str
) -> None:
    for name, data in OTHERS.get(other, {}).items():
        (folder / other).mkdir(exist_ok=True)
        (folder / other / name).write_bytes(data)
    before = contents(folder)
    assert call(monkeypatch, *INTO_FOLDERS[command].split(), other) == 2
    error = capsys.readouterr().err
    # An output in the folder of the shards is noticed first.
    assert "[folder-not-empty]" in error or (other == STORE and "[unsupported-combination]" in error)
    assert contents(folder) == before


@pytest.mark.parametrize("command", ["export {model} --to sklearn --out", "evaluate {model} data --predictions"])
@pytest.mark.parametrize("target", ["a.jsonl", "soft", "hard", MODEL + "/weights.parquet", MODEL + "/model.json"])
def test_a_file_of_another_kind_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, target: str
) -> None:
    shutil.move("data/a.jsonl", "a.jsonl")
    os.link("a.jsonl", "data/b.jsonl")
    os.link("a.jsonl", "hard")
    Path("soft").symlink_to("a.jsonl")
    before = contents(folder)
    assert call(monkeypatch, *command.format(model=MODEL).split(), target) == 2
    assert "[file-exists]" in capsys.readouterr().err
    assert contents(folder) == before


def test_an_input_is_not_replaced_by_predictions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "evaluate", MODEL, "data", "--predictions", "p.parquet") == 0
    before = Path("p.parquet").read_bytes()
    assert call(monkeypatch, "evaluate", MODEL, "data", "--predictions", "p.parquet") == 0
    assert Path("p.parquet").read_bytes() == before
    options = ["--text-field", "id"]
    assert call(monkeypatch, "evaluate", MODEL, "p.parquet", *options, "--predictions", "p.parquet") == 2
    assert call(monkeypatch, "evaluate", MODEL, "data", "--predictions", "data/p.parquet") == 2
    assert capsys.readouterr().err.count("[unsupported-combination]") == 2
    assert Path("p.parquet").read_bytes() == before
    assert call(monkeypatch, "export", MODEL, "--to", "sklearn", "--out", "p.skops") == 0
    assert call(monkeypatch, "export", MODEL, "--to", "sklearn", "--out", "p.skops") == 0
    skops.io.load("p.skops", trusted=[])


def test_a_log_is_only_appended_to_a_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder / "data")
    command = ["ingest", "data", "--out", "store/shards"]
    assert call(monkeypatch, "--log", "data/a.jsonl", *command) == 2
    assert "[file-exists]" in capsys.readouterr().err
    assert contents(folder / "data") == before
    for _ in range(2):  # also in the folder of the output
        assert call(monkeypatch, "--log", "store/shards/log.jsonl", *command) == 0
    assert len(Path("store/shards/log.jsonl").read_text().splitlines()) > 4


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("ingest data --out", "data"),
        ("ingest data --out", "data/store"),
        ("ingest data --exclude drafts --out", "data/store"),
        ("ingest link --out", "data/store"),
        ("ingest data/.. --exclude run --out", "store"),
        ("score run data --out", "data/scores"),
        (f"score run {STORE} --out", f"{STORE}/scores"),
        (f"search {STORE} --out", STORE),
        (f"search {STORE} --out", f"{STORE}/run"),
        (f"train {STORE} --out", f"{STORE}/model"),
        (f"optimum {STORE} --out", f"{STORE}/optimum"),
        ("init data --out", "data/run.toml"),
    ],
)
def test_outputs_among_the_inputs_are_refused_in_front(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, out: str
) -> None:
    Path("link").symlink_to("data")
    before = contents(folder)
    assert call(monkeypatch, *command.split(), out) == 2
    assert "[unsupported-combination]" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize("out", ["store --exclude store", "store --include *.jsonl", ".store"])
def test_outputs_that_are_not_among_the_inputs(folder: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    for _ in range(2):
        assert call(monkeypatch, "ingest", "data", "--out", *f"data/{out}".split()) == 0


@pytest.mark.parametrize(
    "text",
    [
        'ingest.inputs = ["."]',
        'out = "runs/x"\ningest.inputs = ["data/a.jsonl", "runs"]',
        'out = "data/out"\ningest.inputs = ["data"]',
        'out = "run"\ningest = { inputs = ["data"], store = "data/store" }',
        'out = "run"\ningest.inputs = ["data/a.jsonl"]\nevaluate.inputs = ["run"]',
        'out = "run"\ningest.inputs = ["data/a.jsonl"]\nscore = { inputs = ["data"], out = "data/scores" }',
        'out = "run"\ningest.inputs = ["data"]\nlog.file = "data/log.jsonl"',
    ],
)
def test_a_run_file_with_outputs_among_its_inputs(folder: Path, text: str) -> None:
    Path("runs").mkdir()
    Path("run.toml").write_text(text)
    with raises_code("unsupported-combination"):
        load_run_file("run.toml")
