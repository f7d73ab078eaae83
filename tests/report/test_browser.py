"""What the page of a run does: its texts of mistakes, and its controls in a headless browser where one is installed."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from sparseoco import Model
from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.commit import read_json
from tests.support.ingests import jsonl, random_texts
from tests.support.pages import figures

RUN = """
out = "run"
ingest = { inputs = ["texts.jsonl"], min_df = 1, ngram_range = [1, 1] }
search = { algorithms = { adagrad = { eta = [0.3], lam = [1e-5, 1e-3] } }, folds = 2, epochs = 1 }
evaluate = { holdout = 0.4, slices = ["source", "length"] }
cluster = { threads = 1 }
log = { file = "log.jsonl" }
report = { snippets = true }
"""
SECRET = "xyzzy"
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    texts = [f"{text} {SECRET} <b>{k}" for k, text in enumerate(random_texts(120))]
    sources = {"label": lambda k: "pn"[(k + k // 7) % 2], "source": lambda k: "xy"[k % 2]}
    (folder / "texts.jsonl").write_bytes(jsonl(texts, **sources))
    (folder / "run.toml").write_text(RUN)
    steps.run_all(load_run_file(folder / "run.toml"))
    return folder


def page(folder: Path) -> str:
    return (folder / "run" / "report" / "report.html").read_text()


def test_texts_of_mistakes_are_shown_if_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    texts = {own["id"]: own for own in map(json.loads, (folder / "texts.jsonl").read_text().splitlines())}
    model, mistakes = Model(folder / "run"), read_json(folder / "run/report/mistakes.json")["mistakes"]
    assert {own["documents"] for own in mistakes} == {"held-out", "test"}
    shown = unescape(re.sub("<.*?>", "", page(folder)))
    for own in mistakes:
        document = texts[own["id"]]
        assert own["text"].rstrip("…") == " ".join(document["text"].split())[:300]
        assert own["text"] in shown
        if own["documents"] == "test":
            wrong = {"p": "n", "n": "p"}[document["label"]]
            (explained,) = model.explain([document["text"]], terms=6, of=wrong)
            assert own["terms"] == [[term.feature, term.contribution] for term in explained.terms]
    assert SECRET not in (folder / "log.jsonl").read_text()
    assert {"roc", "threshold"} < set(figures(page(folder)))
    for words in ("Test documents by source", "Test documents by length", "few documents"):
        assert words in page(folder)

    shutil.copytree(folder, tmp_path / "copy")
    run = load_run_file(folder / "run.toml")
    other = run.model_copy(update={"out": tmp_path / "copy" / "run", "report": type(run.report)()})
    steps.run_report(other)
    assert f"{SECRET} &lt;b&gt;" in page(folder)
    assert f"{SECRET} &lt;b&gt;" not in page(tmp_path / "copy")
    assert not (tmp_path / "copy" / "run/report/mistakes.json").exists()


def test_mistakes_of_label_sets_have_the_terms_of_the_class_that_was_wrong(tmp_path: Path) -> None:
    texts = random_texts(120)
    labels = {"label": lambda k: ["x"] + ["y"] * (k % 3 == 0) if k % 2 else []}
    (tmp_path / "texts.jsonl").write_bytes(jsonl(texts, **labels))
    (tmp_path / "run.toml").write_text(
        RUN.replace("min_df = 1", 'min_df = 1, labels = "multi"').replace('["source", "length"]', "[]")
    )
    run = load_run_file(tmp_path / "run.toml")
    steps.run_all(run)
    model, mistakes = Model(run.out), read_json(run.out / "report/mistakes.json")["mistakes"]
    assert {own["of"] for own in mistakes} == {"x", "y"}
    for own in mistakes:
        (explained,) = model.explain([texts[int(own["id"][1:])]], terms=6, of=own["of"])
        assert own["terms"] == [[term.feature, term.contribution] for term in explained.terms]
    assert mistakes[0]["text"][:20] in unescape(page(tmp_path))

    right = [text + (" good" if k % 2 else " bad") * 9 for k, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_bytes(jsonl(right))
    (tmp_path / "right.toml").write_text(RUN.replace('"run"', '"right"').replace('["source", "length"]', "[]"))
    steps.run_all(load_run_file(tmp_path / "right.toml"))
    assert read_json(tmp_path / "right/report/mistakes.json")["mistakes"] == []  # nothing is wrong


CONTROLS = """
<script>
const said = {}, text = (of) => of.innerText.trim();
const change = (input, value) => { input.value = value; input.dispatchEvent(new Event("input", { bubbles: true })); };
const slider = document.querySelector(".slider"), [range, wrong, missed] = slider.querySelectorAll("input");
said.start = text(slider.querySelector("p"));
change(range, range.max);
said.none = text(slider.querySelector("p"));
change(wrong, 1000);
slider.querySelector("button").click();
said.careful = text(slider.querySelector("p"));
change(wrong, 0);
change(range, 0);
said.all = text(slider.querySelector("p"));
const table = document.querySelector("table.sortable"), [head] = table.tHead.rows[0].cells;
const order = () => [...table.tBodies[0].rows].map((row) => text(row.cells[0]));
head.querySelector("button").click();
said.rising = order();
head.querySelector("button").click();
said.falling = order();
const legend = document.querySelector(".legend button");
legend.click();
said.off = [legend.getAttribute("aria-pressed"), document.querySelectorAll("g.s.off").length > 0];
document.body.dataset.said = JSON.stringify(said);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_controls_in_a_browser(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page(folder).replace("</body>", f"{CONTROLS}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}"]
    ended = subprocess.run(
        [str(CHROMIUM), *flags, "--dump-dom", f"file://{tmp_path / 'page.html'}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'data-said="(.*?)"', ended.stdout)
    assert found is not None, "a script failed"
    said: dict[str, Any] = json.loads(unescape(found[1]))
    assert re.match(r"Threshold [\d.]+ %\nheld-out: precision ", said["start"])
    assert said["none"].startswith("Threshold above all\n")
    assert "test: precision " in said["start"]
    assert re.search(r"precision –, recall 0.0 %, 0.0 % predicted, cost [\d.]+ per", said["none"])
    assert "recall 100.0 %, 100.0 % predicted, cost 0.0 per" in said["all"]
    assert "threshold = { recall = 1 }" in said["all"]
    careful = re.search(r"held-out: precision (100.0 %|–)", said["careful"])
    assert careful is not None
    assert said["rising"] == said["falling"][::-1] == sorted(said["rising"])
    assert len(said["rising"]) > 1
    assert said["off"] == ["false", True]
