"""Decisions of nightly runs: promotion, and rollback to the model of an earlier increment."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import FolderInUseError, SparseocoError, StorageError
from sparseoco.ops.status import read_status
from sparseoco.pipeline.nightly import nightly_markdown, records, roll_back, run_nightly
from sparseoco.pipeline.nightly.evaluation import Comparison
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage import commit
from sparseoco.storage.commit import exclusive_lock, read_json
from sparseoco.training.models import Model
from tests.support.commands import Cli
from tests.support.damage import failing_commit, stopped_at
from tests.support.errors import raises_code
from tests.support.nightly_runs import (
    PROMOTES,
    UNGUARDED,
    arrive,
    contents,
    copy_of,
    nights,
    prepare,
    promoting,
    rows_of,
)

# ----------------------------------------------------------------------------------------------------------------------
# Which configuration is chosen and promoted, from synthetic figures and from unusual increments.


def increment(documents: int, *errors: float | None, nonzeros: int = 10) -> list[dict[str, Any]]:
    """Rows of configurations 0, 1, …; None for one that diverged."""
    return [
        {
            "configuration": k,
            "algorithm": "fobos",
            "parameters": f'{{"lam": {k}}}',
            "documents": documents,
            "progressive_error": 0.9 if error is None else error,
            "nonzeros": nonzeros - k,
            "status": "diverged" if error is None else "ok",
            "reason": "diverged at row 3" if error is None else "",
        }
        for k, error in enumerate(errors)
    ]


def test_errors_of_a_window_are_those_of_its_documents() -> None:
    increments = [increment(100, 0.5, 0.1), increment(0, 0.0, 0.0), increment(900, 0.1, 0.2)]
    choice = records.choose_candidate(increments, "best")
    assert (choice.row["configuration"], choice.window) == (0, 2)
    assert choice.window_error == pytest.approx(0.14)
    assert choice.row["progressive_error"] == 0.1
    assert records.choose_candidate(increments[:1], "best").row["configuration"] == 1
    # √(0.14·0.86/1000) = 0.011: 0.19 is too far; at 0.145 the sparser one is taken.
    assert records.choose_candidate(increments, "one-standard-error").row["configuration"] == 0
    near = [increment(100, 0.5, 0.5), increment(900, 0.1, 0.105)]
    assert records.choose_candidate(near, "one-standard-error").row["configuration"] == 1


def test_diverged_configurations_are_not_chosen() -> None:
    assert (
        records.choose_candidate([increment(10, 0.0, 0.5), increment(10, None, 0.5)], "best").row["configuration"] == 1
    )
    assert (
        records.choose_candidate([increment(10, None, 0.5), increment(10, 0.0, 0.5)], "best").row["configuration"] == 1
    )
    with raises_code("no-candidate", "diverged at row 3", kind=SparseocoError):
        records.choose_candidate([increment(10, None, None)], "best")


def test_no_worse_by_the_margin_or_better_by_its_confidence_interval() -> None:
    assert records.decide(Comparison("error"), deployed=False, margin=0.0, confidence=0.95).promoted
    assert not records.decide(Comparison("error"), deployed=True, margin=0.0, confidence=0.95).promoted  # undefined
    for metric, sign in (("error", 1), ("roc_auc", -1)):
        for worse, width, margin, confidence, expected in (
            (0.0, 0.1, 0.0, 0, True),
            (0.001, 0.1, 0.0, 0, False),
            (0.001, 0.1, 0.002, 0, True),
            (-0.02, 0.01, 0.0, 0.95, True),
            (-0.02, 0.03, 0.0, 0.95, False),
            (0.0, 0.0, 0.0, 0.95, False),  # no reason
            (0.01, 0.01, 0.03, 0.95, True),
            (0.01, 0.03, 0.03, 0.95, False),
        ):
            difference = sign * worse
            compared = Comparison(
                metric, 100, 0.5 + difference, 0.5, difference, difference - width, difference + width
            )
            found = records.decide(compared, deployed=True, margin=margin, confidence=confidence)
            assert found.promoted == expected
            assert ("95% interval" in found.reason) == (confidence > 0)


def test_only_a_better_model_is_promoted(tmp_path: Path) -> None:
    """The interval is in the history; the metric of the search is followed by the candidate and the promotion."""
    changes = {"confidence = 0": "confidence = 0.9", "seed = 3": 'seed = 3\nmetric = "f1_macro"'}
    rows = []
    for increment in (1, 2):
        run = prepare(tmp_path, **changes)
        arrive(tmp_path, increment)
        rows += run_nightly(run).increments
    first, second = rows
    assert first["promoted"]
    assert (first["metric"], first["deployed_value"], first["difference"]) == ("f1_macro", None, None)
    assert second["difference"] == pytest.approx(second["value"] - second["deployed_value"])
    assert second["low"] <= second["difference"] <= second["high"]
    assert second["promoted"] == (second["low"] > 0)
    assert 0.8 < second["value"] <= 1
    by_class = [row for row in rows_of(tmp_path / "run", "history-classes") if row["increment"] == 2]
    assert all(0 <= row[name] <= 1 for row in by_class for name in ("recall", "deployed_recall", "precision"))
    recall = sum(row["recall"] * row["documents"] for row in by_class) / second["documents"]
    assert 1 - recall == pytest.approx(second["error"])


def test_a_rare_class_has_a_threshold_by_default(tmp_path: Path) -> None:
    """It is chosen on the newest progressive margins, as one that is set."""
    models = []
    for name, search in {"default": "seed = 0", "set": 'threshold = "f1"', "none": 'threshold = "none"'}.items():
        run = prepare(tmp_path / name, **{"seed = 3": search})
        path = arrive(tmp_path / name, 1, rows=200, classes=2)
        lines = path.read_text().splitlines(keepends=True)
        common, rare = ([line for line in lines if f'"label": "{label}"' in line] for label in ("sea", "wood"))
        path.write_text("".join(common + rare[:10]))
        assert run_nightly(run).increments[0]["promoted"]
        models.append(Model(run.out).thresholds)
    default, given, none = models
    assert (default.outputs, none) == (given.outputs, None)
    assert (default.rule.since.partition(" has ")[2], given.rule.since) == ("9.1% of the documents", "")


def test_increments_unlike_the_others(four_nights: Path, tmp_path: Path) -> None:
    """A model that is worse is not promoted; files without documents change nothing; a new class is refused."""
    run = copy_of(four_nights, tmp_path, 1, **UNGUARDED)
    upside_down = arrive(tmp_path, 2, to="later")
    text = upside_down.read_text()
    for a, b in (("sea", "?"), ("wood", "sea"), ("?", "wood")):
        text = text.replace(f'"label": "{a}"', f'"label": "{b}"')
    upside_down.write_text(text)
    run_nightly(run)
    arrive(tmp_path, 3, to="later")
    outcome = run_nightly(run)
    assert "not promoted" in records.increment_line(outcome.increments[0]) or outcome.increments[0]["promoted"]
    (tmp_path / "later" / "increment-4.jsonl").write_text("")
    empty = run_nightly(run).increments[0]
    assert (empty["documents"], empty["promoted"], empty["error"], empty["deployed_error"]) == (0, False, None, None)
    arrive(tmp_path, 5, to="later")
    assert run_nightly(run).increments[0]["error"] is not None
    assert rows_of(tmp_path / "run", "history")[3]["reason"] == "the new files contain no documents"
    odd = arrive(tmp_path, 6, to="later")
    odd.write_text(odd.read_text().replace('"label": "sea"', '"label": "moon"'))
    with raises_code("unknown-class", odd, "3 classes"):
        run_nightly(run)
    odd.unlink()
    assert run_nightly(run).message.startswith("Nothing new")


def test_a_class_that_comes_later(tmp_path: Path) -> None:
    """Named from the beginning, it is learned when it comes; a row of any other is set aside where that is allowed."""
    named = 'inputs = ["incoming"]\nclasses = ["wood", "sea", "town", "moon"]'
    run = prepare(tmp_path, 1, **{'inputs = ["incoming"]': named}, **UNGUARDED)
    assert run_nightly(run).increments[0]["promoted"]
    later = arrive(tmp_path, 2)
    later.write_text(later.read_text().replace('"label": "sea"', '"label": "moon"'))
    (row,) = run_nightly(run).increments
    mix = {
        row["class"]: row["documents"] for row in rows_of(tmp_path / "run", "history-classes") if row["increment"] == 2
    }
    assert mix == {"moon": 30, "sea": 0, "town": 30, "wood": 30}
    assert row["deployed_error"] > 1 / 3 > row["error"]
    assert "moon" in (tmp_path / "run" / "nightly.html").read_text()
    odd = arrive(tmp_path, 3)
    odd.write_text(odd.read_text().replace('"label": "sea"', '"label": "mars"', 1))
    with raises_code("unknown-class", odd, "4 classes"):
        run_nightly(run)
    lenient = prepare(tmp_path, **{'inputs = ["incoming"]': f"{named}\nmax_bad_rows = 1"}, **UNGUARDED)
    assert run_nightly(lenient).increments[0]["documents"] == 89


def test_a_grid_that_changes(four_nights: Path, tmp_path: Path) -> None:
    """A new configuration learns all earlier increments, with the bits of one that was there from the start."""
    nights(tmp_path, 2, **{"lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0]": "lam = [1e-4], eta0 = [0.3]"})
    arrive(tmp_path, 3)
    run_nightly(prepare(tmp_path))
    assert [row["increment"] for row in rows_of(tmp_path / "run", "history")] == [1, 2, 3]
    always, later = (
        [row for row in rows_of(run, "history-configurations") if row["increment"] == 3]
        for run in (four_nights / "run", tmp_path / "run")
    )
    assert later == always


def test_a_grid_that_changes_during_an_increment(tmp_path: Path) -> None:
    """The model that serves is the candidate that the history names, not one that a killed run had left."""
    with stopped_at("sparseoco.pipeline.nightly.records.add_increment"):
        run_nightly(prepare(tmp_path, 1))
    run_nightly(prepare(tmp_path, 1, **{"lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0]": "lam = [1e-3], eta0 = [0.01]"}))
    (row,) = rows_of(tmp_path / "run", "history")
    described = read_json(tmp_path / "run" / "models" / "00000001" / "model.json")
    assert (described["algorithm"], described["parameters"]) == (row["algorithm"], json.loads(row["parameters"]))


def test_states_of_another_version(four_nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is learned again, and the deployed model is evaluated by its weights, as before."""
    run = copy_of(four_nights, tmp_path, 2)
    monkeypatch.setattr("sparseoco.training.learner.FORMAT", 99)
    arrive(tmp_path, 3, to="later")
    run_nightly(run)
    whole, later = (rows_of(run, "history")[2] for run in (four_nights / "run", tmp_path / "run"))
    assert later["deployed_error"] == whole["deployed_error"]
    assert later["error"] == whole["error"]


# ----------------------------------------------------------------------------------------------------------------------
# Rolling back to the model of an earlier increment: at once, for all readers, until a later one is promoted.


def history_of(promoted: str) -> list[dict[str, Any]]:
    """Increments that were promoted (`+`) or not (`-`)."""
    rows = ({"increment": n, "promoted": c == "+", "store": f"store {n}"} for n, c in enumerate(promoted, 1))
    return [dict.fromkeys(records.HISTORY.names) | row for row in rows]


def rollback(after: int, increment: int) -> dict[str, Any]:
    return {"after": after, "increment": increment, "store": f"store {after}"}


def deployed_increment(promoted: str, *rollbacks: tuple[int, int]) -> int | None:
    deployed = records.find_deployed(history_of(promoted), [rollback(*made) for made in rollbacks])
    return None if deployed is None else deployed.increment


def test_the_deployed_model() -> None:
    assert deployed_increment("") is None
    assert deployed_increment("--") is None
    assert deployed_increment("+-+") == 3
    assert deployed_increment("+-+", (3, 1)) == 1
    assert deployed_increment("+-+--", (3, 1)) == 1
    assert deployed_increment("+-+--", (3, 1), (4, 3)) == 3
    assert deployed_increment("++++", (3, 2), (3, 1)) == 4
    assert deployed_increment("++++", (3, 2), (4, 1)) == 1
    # Increments that are decided again find a rollback where it was made, and no other.
    assert [deployed_increment("+++--"[:n], (3, 2), (4, 1)) for n in range(1, 6)] == [1, 2, 2, 1, 1]
    # A rollback of another history, or to an increment that now is not promoted, has no effect.
    assert records.find_deployed(history_of("++"), [rollback(2, 1) | {"store": "another"}]) == records.find_deployed(
        history_of("++"), []
    )
    assert deployed_increment("-+", (2, 1)) == 2


@pytest.fixture(scope="module")
def increments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return promoting(tmp_path_factory.mktemp("choosing"), 3)


@pytest.fixture
def run(increments: Path, tmp_path: Path) -> RunFile:
    """The same in a folder of its own, with the inputs where they are."""
    return copy_of(increments, tmp_path, 3, **PROMOTES)


def said(run: RunFile) -> list[int]:
    """The deployed model, on which the status, the page and the model folder agree."""
    found = read_status(run.out).increments
    line = f"he model of increment {found.deployed['increment']} is deployed"
    assert line in found.summary
    assert line in nightly_markdown(run.out, run.name)
    assert line in (run.out / "nightly.html").read_bytes().decode()
    assert Model(run.out).folder.name == f"{read_json(run.out / 'promoted.json')['increment']:08d}"
    return [found.deployed["increment"], read_json(run.out / "promoted.json")["increment"]]


def test_a_rollback_holds_until_the_next_promotion(run: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {name: (run.out / f"{name}.parquet").read_bytes() for name in records.TABLES}
    with monkeypatch.context() as patch:
        patch.setattr("sparseoco.pipeline.nightly.run.connect", None)  # nothing is started
        outcome = roll_back(run, 1)
        assert outcome.message.startswith("Rolled back from the model of increment 2 to that of increment 1: ")
        assert said(run) == [1, 1]
        assert "by a rollback after increment 3" in nightly_markdown(run.out, run.name)
        page = (run.out / "nightly.html").read_bytes().decode()
        assert "a rollback after increment 3, from the model of increment 2" in page
        before = contents(run.out)
        assert roll_back(run, 1).message == "The model of increment 1 is already deployed."
        assert run_nightly(run).message.startswith("Nothing new")
        assert contents(run.out) == before
    assert {name: (run.out / f"{name}.parquet").read_bytes() for name in records.TABLES} == tables
    later = run.out.parent / "later"
    (later / "increment-4.jsonl").write_text("")
    assert not run_nightly(run).increments[0]["promoted"]
    assert said(run) == [1, 1]
    page = (run.out / "nightly.html").read_bytes().decode()
    assert "The last increment, 4, did not replace it: the new files contain no documents." in page
    assert "not promoted: the new files contain no documents</span>" in page
    arrive(later.parent, 5, to="later")
    (row,) = run_nightly(run).increments
    assert (row["deployed"], row["promoted"]) == (1, True)
    came = [json.loads(line) for line in (later / "increment-5.jsonl").read_text().splitlines()]
    champion = Model(run.out / "models" / "00000001").predict([document["text"] for document in came])
    wrong = sum(document["label"] != label for document, label in zip(came, champion, strict=True))
    assert row["deployed_error"] == wrong / len(came)
    assert said(run) == [5, 5]
    assert [(row["after"], row["increment"]) for row in records.read_history(run.out, "history-rollbacks")] == [(3, 1)]
    page = (run.out / "nightly.html").read_bytes().decode()
    # One cell of a card on a narrow screen: a mark and what it marks stay together.
    assert re.search(
        rf'<span>{row["algorithm"]} <span class="badge">deployed</span><br><small [^<]*</small></span></td>', page
    )
    assert page.count('class="badge">deployed<') == page.count('class="badge">candidate<') == 1


def test_rolling_back_and_forward(run: RunFile) -> None:
    roll_back(run, 1)
    assert roll_back(run, 2).message.startswith("Rolled back from the model of increment 1 to that of increment 2: ")
    assert said(run) == [2, 2]
    assert ", from the model of" not in (run.out / "nightly.html").read_bytes().decode()
    roll_back(run, 1)
    assert said(run) == [1, 1]
    assert [row["increment"] for row in records.read_history(run.out, "history-rollbacks")] == [1, 2, 1]


def test_increments_that_cannot_be_rolled_back_to(run: RunFile, tmp_path: Path) -> None:
    before = contents(run.out)
    for increment in (3, 4, 0):
        with raises_code("no-model", f"Increment {increment} ", "1, 2."):
            roll_back(run, increment)
    weights = run.out / "models" / "00000001" / "weights.parquet"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with raises_code("corrupt-model", "weights.parquet", kind=StorageError):
        roll_back(run, 1)
    weights.write_bytes(whole)
    assert contents(run.out) == before
    shutil.rmtree(weights.parent)
    with raises_code("missing-model", "increment 1 ", kind=StorageError):
        roll_back(run, 1)
    shutil.move(weights.parents[1] / "00000002", weights.parents[1] / "away")
    with raises_code("missing-model", "increment 2 ", kind=StorageError):  # though it is named
        roll_back(run, 2)
    shutil.move(weights.parents[1] / "away", weights.parents[1] / "00000002")
    with exclusive_lock(run.out), raises_code("folder-in-use", kind=FolderInUseError):
        roll_back(run, 2)
    fresh = prepare(tmp_path / "fresh", 1)
    with raises_code("no-model", fresh.out):
        roll_back(fresh, 1)
    assert not fresh.out.exists()


def test_a_run_keeps_the_models_that_its_file_says(run: RunFile) -> None:
    roll_back(run, 1)
    (run.out / "models" / "00000003").mkdir()  # left by a run that was killed: `clean` removes it
    for keep, increment, kept in ((None, 4, [1, 2, 3, 4]), (1, 5, [5]), (2, 6, [5, 6])):
        run = run.model_copy(update={"nightly": run.nightly.model_copy(update={"keep_models": keep})})
        arrive(run.out.parent, increment, to="later")
        assert run_nightly(run).increments[0]["promoted"]
        assert sorted(int(path.name) for path in (run.out / "models").iterdir()) == kept
    with raises_code("missing-model", "increment 2 is missing", kind=StorageError):
        roll_back(run, 2)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_full_disk_between_two_writes(run: RunFile, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """At every sync of the three files: the same command again leaves what an undisturbed one does."""
    monkeypatch.setattr(
        "sparseoco.pipeline.nightly.records._now", lambda: records.read_history(run.out, "history-timings")[0]["ended"]
    )
    copy = run.model_copy(update={"out": run.out.parent / "whole"})
    shutil.copytree(str(run.out), str(copy.out))
    roll_back(copy, 1)
    with failing_commit(at), raises_code("disk-full", kind=StorageError):
        roll_back(run, 1)
    roll_back(run, 1)
    assert contents(run.out) == contents(copy.out)
    assert (run.out / "nightly.html").read_bytes() == (copy.out / "nightly.html").read_bytes()


@pytest.mark.parametrize("left", [b"", b"[]", None])
def test_the_reference_to_the_model_is_rewritten(run: RunFile, left: bytes | None) -> None:
    path = run.out / "promoted.json"
    whole = path.read_bytes()
    path.unlink() if left is None else path.write_bytes(left)
    assert run_nightly(run).message.startswith("Nothing new")
    assert path.read_bytes() == whole


def test_increments_without_a_decision_are_not_on_the_page(run: RunFile) -> None:
    """A run killed before an increment was in the history has left its rows in the other tables."""
    rows: dict[str, list[dict[str, Any]]] = {
        "history-configurations": [],
        "history-classes": [{"class": "moon", "documents": 5}],
        "history-timings": [],
    }
    history = (run.out / "history.parquet").read_bytes()
    records.add_increment(run.out, 4, rows | {"history": [{"promoted": True}]})
    commit.commit_bytes(run.out / "history.parquet", history)
    roll_back(run, 1)
    assert "moon" not in (run.out / "nightly.html").read_bytes().decode()


def test_the_command(run: RunFile, cli: Cli) -> None:
    file = run.out.parent / "places.toml"
    printed = cli("nightly", file, "--rollback", 1).out
    assert "to that of increment 1" in printed
    assert "nightly.html" in printed
    assert json.loads(cli("status", run.out, "--json").out)["increments"]["rolled_back"].startswith("20")
    assert "Increment 3 " in cli("nightly", file, "--rollback", 3, code=2).err
    with exclusive_lock(run.out):
        assert "is in use by process" in cli("nightly", file, "--rollback", 2, code=3).err
