"""Ids and labels with tabs, newlines and control characters, in the text output of every command: fault 56."""

import json
from pathlib import Path

import pytest

from tests.support.commands import call

LABELS = "a\tb\nc\x1b[31m", "[red]\\d\r"
IDS = ["one\ttwo\nthree", "\x1b]0;title\x07", "\\t", "\u2028"]


@pytest.mark.fault(56)
def test_names_cannot_forge_lines_columns_or_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": IDS[i % 4] + f"{i}", "text": f"word{i % 2}", "label": LABELS[i % 2]} for i in range(20)]
    texts = tmp_path / "a.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store, model = tmp_path / "store", tmp_path / "model"
    assert call(monkeypatch, "ingest", texts, "--out", store, "--min-df", "1") == 0
    assert call(monkeypatch, "train", store, "--out", model) == 0
    shown = capsys.readouterr().out
    assert call(monkeypatch, "predict", model, texts, "--margins") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split("\t")) for line in lines] == [3] * 20
    ids = [json.loads('"' + line.split("\t")[0] + '"') for line in lines]
    assert ids == [row["id"] for row in rows]
    shown += "".join(lines).replace("\t", "")
    for command in (("explain", model, texts), ("evaluate", model, texts), ("compare", model, model)):
        assert call(monkeypatch, *command) == 0
        shown += capsys.readouterr().out
    assert call(monkeypatch, "explain", model, texts, "--json") == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.split("\n")[:-1]] == ids
    assert r"a\tb\nc\u001b[31m" in shown
    assert not {"\x1b", "\t", "\r", "\x07", "\u2028"} & set(shown)
