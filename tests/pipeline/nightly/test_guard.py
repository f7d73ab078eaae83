"""Increments unlike those before are held, until they are accepted or discarded."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparseoco.core.errors import HeldError
from sparseoco.ops.status import read_status
from sparseoco.pipeline.nightly import nightly_markdown, records, run_nightly
from sparseoco.pipeline.nightly.evaluation import IncrementEvaluation
from sparseoco.pipeline.nightly.guard import Arrival, unlike
from sparseoco.pipeline.run_file import NightlyOptions, RunFile
from sparseoco.store.manifest import latest_manifest
from tests.support.commands import Cli
from tests.support.damage import failing_commit
from tests.support.errors import raises_code
from tests.support.nightly_runs import arrive, contents, copy_of, prepare, rows_of

# ----------------------------------------------------------------------------------------------------------------------
# Which increments are held, from figures.


def manifest(classes: dict[str, int], *, bad: int = 0, dropped: int = 0) -> Any:
    labels = SimpleNamespace(classes=[SimpleNamespace(name=name, rows=rows) for name, rows in classes.items()])
    rows = sum(classes.values())
    return SimpleNamespace(rows=rows, quarantined_rows=bad, dropped_terms=dropped, labels=labels)


def night(measured: IncrementEvaluation, rows: tuple[int, int] = (100, 100), **more: int) -> Arrival:
    before = manifest({"a": 500, "b": 500})
    return Arrival(manifest({"a": 500 + rows[0], "b": 500 + rows[1]}, **more), before, measured)


def earlier(**columns: float) -> list[dict[str, Any]]:
    """Two increments before."""
    names = ("deployed_error", "error", "deployed_rmse", "unknown_to_deployed")
    return [{"documents": 500} | dict.fromkeys(names) | columns for _ in range(2)]


def reasons(arrival: Arrival, history: list[dict[str, Any]], **options: Any) -> list[str]:
    return unlike(NightlyOptions(**options), arrival, history)


def test_an_error_that_rises_by_more_than_chance_and_a_margin() -> None:
    spread = math.sqrt(0.2 * 0.8 / 200 + 0.1 * 0.9 / 1000)
    limit = 0.2 - 0.1 - 1.96 * spread
    worse = night(IncrementEvaluation(10.0, 0.0, 0.5, 0.2))
    for name in ("deployed_error", "error"):
        assert not reasons(worse, earlier(**{name: 0.1}), max_drop=limit + 1e-9)
        (reason,) = reasons(worse, earlier(**{name: 0.1}), max_drop=limit - 1e-9)
        assert reason == "the error of the deployed model is 20.0 % on it, and was 10.0 % before".replace(" %", "\xa0%")
    assert not reasons(worse, earlier(), max_drop=0.0)  # there is nothing to compare it with
    assert not reasons(night(IncrementEvaluation(10.0)), earlier(error=0.1), max_drop=0.0)  # or no model
    assert not reasons(worse, [*earlier(deployed_error=0.1), *earlier(deployed_error=0.2)], max_drop=0.0, window=2)


def test_the_error_of_numbers() -> None:
    worse = night(IncrementEvaluation(10.0, 0.0, 0.5, None, 3.0, 0.1))
    spread = 0.1 * math.sqrt(1 + 200 / 1000)
    limit = (3.0 - 2.0 - 1.96 * spread) / 2.0
    assert not reasons(worse, earlier(deployed_rmse=2.0), max_drop=limit + 1e-9)
    assert reasons(worse, earlier(deployed_rmse=2.0), max_drop=limit - 1e-9)
    assert not reasons(worse, earlier(), max_drop=0.0)


def test_shares_of_labels_that_jump() -> None:
    found, chance = IncrementEvaluation(10.0), 1.96 * math.sqrt(0.25 * (1 / 1000 + 1 / 200))
    assert not reasons(night(found, (160, 40)), [], max_shift=0.3 - chance + 1e-9)
    (reason,) = reasons(night(found, (160, 40)), [], max_shift=0.3 - chance - 1e-9)
    assert reason == "80.0\xa0% of its labels are a, and 50.0\xa0% were before"


@pytest.mark.parametrize("seed", range(3))
def test_chance_alone_holds_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(100):
        a, wrong = int(random.binomial(40, 0.5)), int(random.binomial(40, 0.1))
        arrival = night(IncrementEvaluation(10.0, 0.0, 0.5, wrong / 40), (a, 40 - a))
        assert not reasons(arrival, earlier(deployed_error=0.1))


def test_words_that_the_deployed_model_does_not_know() -> None:
    """Those outside the vocabulary, and those that later increments brought."""
    strange = night(IncrementEvaluation(60.0, 10.0), dropped=40)
    assert strange.unknown == 0.5
    assert not reasons(strange, earlier(unknown_to_deployed=0.2), max_shift=0.31)
    assert reasons(strange, earlier(unknown_to_deployed=0.2), max_shift=0.29)
    assert not reasons(strange, earlier(), max_shift=0.0)


def test_rows_that_could_not_be_read() -> None:
    arrival = night(IncrementEvaluation(10.0), bad=50)
    assert not reasons(arrival, [], max_bad_share=0.2)
    assert reasons(arrival, [], max_bad_share=0.19) == ["50 of its 250 rows could not be read"]


# ----------------------------------------------------------------------------------------------------------------------
# A night of exchanged labels.


def upside_down(path: Path) -> None:
    """Exchange two of three labels."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["label"] = {"sea": "wood", "wood": "sea"}.get(row["label"], row["label"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def held(four_nights: Path, tmp_path: Path) -> RunFile:
    """A run of three increments whose fourth is held."""
    run = copy_of(four_nights, tmp_path, 3)
    upside_down(arrive(tmp_path, 4, to="later"))
    with raises_code("held", "Increment 4 is held: the error of the deployed model is", kind=HeldError):
        run_nightly(run)
    return run


def test_it_is_held_until_it_is_decided(held: RunFile, cli: Cli) -> None:
    arrive(held.out.parent, 5, to="later")
    before = contents(held.out)
    said = cli("nightly", held.out.parent / "places.toml", code=4).err
    assert said.startswith("sparseoco: Increment 4 is held")
    assert said.endswith("[held]\n")
    assert contents(held.out) == before
    page = held.out / "nightly.html"
    page.write_text("of the night before, as if killed before it was written")
    cli("nightly", held.out.parent / "places.toml", code=4)
    assert len(rows_of(held.out, "history")) == 3
    line = "Increment 4 is held: the error of the deployed model"
    assert nightly_markdown(held.out, "places").split("\n\n")[1].startswith(f"**{line}")
    assert "Increment 4 is held</strong>" in (held.out / "nightly.html").read_text()
    increments = read_status(held.out).increments
    assert increments is not None
    assert increments.summary.startswith(line)
    assert str(increments.held).startswith(line)
    assert f"error nightly: {line}" in " ".join(cli("doctor", held.out.parent / "places.toml", code=1).out.split())


def test_accepted_it_is_learned(held: RunFile, cli: Cli) -> None:
    printed = cli("nightly", held.out.parent / "places.toml", "--accept").out
    assert "increment 4: 90 documents" in printed
    assert "Increment 4 was accepted." in printed
    assert rows_of(held.out, "history")[3]["deployed_error"] > 0.5
    assert [row["decision"] for row in rows_of(held.out, "history-held")] == ["accepted"]
    (held.out / "history.parquet").unlink()  # decided again, it is not held again
    assert len(run_nightly(held).increments) == 4


@pytest.mark.parametrize("commit", [None, 1, 2, 3])
def test_discarded_it_has_not_come(four_nights: Path, held: RunFile, cli: Cli, commit: int | None) -> None:
    """Also if the command is stopped at a commit; its file is read once it has changed."""
    later = held.out.parent / "later" / "increment-4.jsonl"
    if commit is not None:
        with failing_commit(commit):
            cli("nightly", held.out.parent / "places.toml", "--discard", code=3)
    printed = cli("nightly", held.out.parent / "places.toml", "--discard")
    assert "Increment 4 was discarded: 1 file left out until changed." in printed.out
    assert "increment 4 was discarded: the error" in printed.err
    assert latest_manifest(held.store).version == 3
    assert [row["decision"] for row in rows_of(held.out, "history-held")] == ["discarded"]
    tables = ("history-held", "history-quarantine", "sources-", "manifest")

    def results(run: Path) -> dict[str, bytes]:
        return {name: data for name, data in contents(run).items() if not any(word in name for word in tables)}

    wanted = results(four_nights / "after-3")
    assert {name: data for name, data in results(held.out).items() if name in wanted} == wanted
    upside_down(later)  # as it should have been
    assert run_nightly(held).increments[0]["increment"] == 4
    found = results(held.out)
    assert {name for name, data in results(four_nights / "after-4").items() if found.get(name) != data} == set()


def test_what_cannot_be_decided(four_nights: Path, tmp_path: Path, cli: Cli) -> None:
    copy_of(four_nights, tmp_path, 2)
    for flags, code in (
        (["--accept"], "not-held"),
        (["--discard"], "not-held"),
        (["--accept", "--discard"], "unsupported-combination"),
    ):
        assert f"[{code}]" in cli("nightly", tmp_path / "places.toml", *flags, code=2).err


def test_numbers_on_another_scale(tmp_path: Path) -> None:
    numbers = {"min_df = 1": 'min_df = 1\nlabels = "numbers"', 'loss = "logistic"': 'loss = "squared"'}
    numbers["algorithms.cl-fobos = { lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0] }"] = (
        "algorithms.adagrad = { lam = [1e-4] }"
    )
    numbers["algorithms.rda = { lam = [1e-3], gamma = [1, 3] }"] = ""
    run = prepare(tmp_path, **numbers)
    for increment in range(1, 4):
        path = arrive(tmp_path, increment)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        scale = 5 if increment == 3 else 1
        values = {"sea": 1.0, "town": 2.0, "wood": 3.0}
        path.write_text("".join(json.dumps(row | {"label": scale * values[row["label"]]}) + "\n" for row in rows))
        if increment < 3:
            (row,) = run_nightly(run).increments
    assert row["deployed_rmse"] == pytest.approx(row["deployed_value"])
    with raises_code("held", "the RMSE of the deployed model is", kind=HeldError):
        run_nightly(run)
    assert records.held(run.out)
