"""The allowed classes: those of the options, or those of the first ingest; and rows with other labels."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparseoco.storage.commit import commit_json, digest_value, read_json
from sparseoco.store.manifest import Manifest
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.ingests import file_bytes, ingest_bytes, jsonl, random_texts, store_content

FORMS = {
    "a.jsonl": b'{"label":"p","text":"one"}\n{"label":"q","text":"two"}\n{"label":"n","text":"four"}\n',
    "b.jsonl": b'{"label":"p","text":"\\u0061"}\n{"label":"\\u0071","text":"two"}\n{"label":"\\u006e","text":"four"}\n',
    "a.csv": b'label,text\np,"one\nmore"\nq,two\nn,four\n',
    "a.tsv": b"label\ttext\np\tone\nq\ttwo\nn\tfour\n",
    "a.review": b"one:1 #label#:p\ntwo:1 #label#:q\nfour:1 #label#:n\n",
}
OFFSETS = {"a.jsonl": 27, "b.jsonl": 30, "a.csv": 24, "a.tsv": 17, "a.review": 16}


def classes_of(manifest: Manifest) -> dict[str, int]:
    return {entry.name: entry.rows for entry in manifest.labels.classes}


def bad_rows(folder: Path, manifest: Manifest) -> list[tuple[int, int, str]]:
    table = pq.read_table(folder / manifest.quarantine[-1].file).to_pydict()
    return list(zip(table["line"], table["offset"], table["reason"], strict=True))


@pytest.mark.fault(32)
@pytest.mark.parametrize("name", FORMS)
def test_row_with_unknown_class_is_bad(tmp_path: Path, name: str) -> None:
    form = "processed" if name.endswith("review") else "auto"
    options = {"classes": ("p", "n"), "format": form}
    with raises_code("unknown-class", f"{name}, line ", "2 classes"):
        ingest_bytes(tmp_path, name, FORMS[name], **options)
    manifest = ingest_bytes(tmp_path, name, FORMS[name], max_bad_rows=1, **options)
    assert classes_of(manifest) == {"n": 1, "p": 1}
    ((_, offset, reason),) = bad_rows(tmp_path / "out", manifest)
    assert offset == OFFSETS[name]
    assert "q" not in reason


def test_unknown_classes_in_svmlight_and_folders(tmp_path: Path) -> None:
    manifest = ingest_bytes(tmp_path, "a.svm", b"+1 1:1\n3 1:2\n-1 2:1\n", classes=("-1", "1"), max_bad_rows=1)
    assert classes_of(manifest) == {"-1": 1, "1": 1}
    assert bad_rows(tmp_path / "out", manifest)[0][:2] == (2, 7)
    for label in "pqn":
        (tmp_path / "texts" / label).mkdir(parents=True)
        (tmp_path / "texts" / label / "1.txt").write_text(f"word {label}")
    named = TextOptions(classes=("n", "p"))
    with raises_code("unknown-class", "texts/q/1.txt: ", "2 classes"):
        ingest([str(tmp_path / "texts")], tmp_path / "folder", named)
    options = named.model_copy(update={"max_bad_rows": 1})
    assert classes_of(ingest([str(tmp_path / "texts")], tmp_path / "folder", options)) == {"n": 1, "p": 1}


@pytest.mark.fault(31, 32)
def test_class_that_first_occurs_later(tmp_path: Path) -> None:
    """A class in the options exists from the beginning; the shards equal those of a store whose first files had it."""
    first, more = (
        jsonl(random_texts(50)),
        jsonl(random_texts(20, 1), id=lambda k: f"e{k}", label=lambda k: "pqn"[k % 3]),
    )
    named = {"classes": ("q", "p", "n")}
    manifest = ingest_bytes(tmp_path, "a.jsonl", first, **named)
    assert classes_of(manifest) == {"n": 25, "p": 25, "q": 0}
    manifest = ingest_bytes(tmp_path, "b.jsonl", more, **named)
    assert (manifest.version, classes_of(manifest)) == (2, {"n": 31, "p": 32, "q": 7})
    assert store_content(tmp_path / "out")[2][-3:] == [0, 1, 2]

    ingest_bytes(tmp_path, "c.jsonl", first + more, out="found")
    ingest_bytes(tmp_path, "c.jsonl", first + more, out="named", classes=("n", "q", "p"))
    shards = [
        {k: v for k, v in file_bytes(tmp_path / out).items() if "manifest" not in k} for out in ("found", "named")
    ]
    assert shards[0] == shards[1]

    ingest_bytes(tmp_path, "a.jsonl", first, out="closed")
    with raises_code("unknown-class", "b.jsonl, line 2: ", "2 classes", "max_bad_rows"):
        ingest_bytes(tmp_path, "b.jsonl", more, out="closed")
    manifest = ingest_bytes(tmp_path, "b.jsonl", more, out="closed", max_bad_rows=7)
    assert (manifest.rows, manifest.quarantined_rows) == (63, 7)
    assert [line for line, _, _ in bad_rows(tmp_path / "closed", manifest)] == [2, 5, 8, 11, 14, 17, 20]


def test_limit_of_bad_rows_holds_for_all_shards(tmp_path: Path) -> None:
    """However the files are split, the same row is one too many."""
    lines = jsonl(random_texts(200)).splitlines(keepends=True)
    for k in range(20, 200, 20):
        lines[k] = b"{\n"
    (tmp_path / "b.jsonl").write_bytes(jsonl(random_texts(3), id=lambda k: f"b{k}") + b"{\n")
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for size in (1024, 1 << 20):

        def take(allowed: int, size: int = size) -> Manifest:
            return ingest(inputs, tmp_path / str(size), TextOptions(max_bad_rows=allowed), shard_bytes=size)

        with raises_code("too-many-bad-rows", "a.jsonl, line 81: ", "max_bad_rows = 3"):
            take(3)
        with raises_code("too-many-bad-rows", "b.jsonl, line 4: "):
            take(9)
        assert take(10).quarantined_rows == 10


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"classes": ["a"]}, ("classes", "two or more")),
        ({"classes": ["a", "b", "a"]}, ("classes", "distinct")),
        ({"classes": ["a", ""]}, ("classes",)),
        ({"classes": ["a", "b"], "labels": "numbers"}, ("classes", 'labels = "classes"')),
    ],
)
def test_invalid_classes(options: dict[str, object], named: tuple[str, ...]) -> None:
    with raises_code("invalid-option", *named):
        TextOptions.of(options)


def test_store_from_before_an_option_existed(tmp_path: Path) -> None:
    """Its manifest lacks the option: files can be added with the default value."""
    first = ingest_bytes(tmp_path, "a.jsonl", jsonl(random_texts(10)))
    path = tmp_path / "out" / "manifest-00000001.json"
    described = read_json(path)
    del described["options"]["classes"]
    described["options_digest"] = digest_value(described["options"])
    path.unlink()
    commit_json(path, described)
    more = jsonl(random_texts(5, 1), id=lambda k: f"e{k}")
    assert ingest_bytes(tmp_path, "b.jsonl", more).rows == first.rows + 5
    with raises_code("options-changed", tmp_path / "out", "(classes)"):
        ingest_bytes(tmp_path, "b.jsonl", more, classes=("n", "p"))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(10)))
    arguments = ["ingest", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--class", "q", "--class", "p"]
    assert call(monkeypatch, *arguments) == 2
    assert "line 2: the label is not one of the 2 classes" in " ".join(capsys.readouterr().err.split())
    assert call(monkeypatch, *arguments, "--class", "n") == 0
    assert "n (5), p (5), q (0)" in capsys.readouterr().out
