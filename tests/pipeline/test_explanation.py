"""Contributions sum to the margin; models are compared feature by feature."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.core.errors import InputError
from sparseoco.pipeline.explanation import Explainer, compare_models
from sparseoco.storage.commit import commit_json
from sparseoco.training.models import Model
from tests.support.commands import Cli
from tests.support.errors import raises_code

TWO = [
    ("sea", "tide boat wave wave"),
    ("wood", "moss leaf tree"),
    ("sea", "boat tide sail"),
    ("wood", "leaf moss bark"),
]
THREE = [*TWO, ("air", "wind cloud kite"), ("air", "kite cloud wind wind")]
TEXTS = ["tide tide moss", "cloud leaf", "unknown words", ""]


def trained(folder: Path, rows: Sequence[tuple[Any, str]], cli: Cli, *options: Any, labels: str = "classes") -> Model:
    folder.mkdir()
    text, store = folder / "text.jsonl", folder / "store"
    lines = [json.dumps({"id": str(k), "label": label, "text": words}) for k, (label, words) in enumerate([*rows] * 6)]
    text.write_text("\n".join(lines) + "\n")
    cli("ingest", text, "--out", store, "--duplicates", "all", "--ngram-range", "1,1", "--labels", labels)
    loss = "squared" if labels == "numbers" else "logistic"
    cli("train", store, "--out", folder / "model", "--algorithm", "adagrad", "--loss", loss, *options)
    return Model(folder / "model")


@pytest.mark.parametrize(("rows", "options"), [(TWO, ("--tf", "log", "--idf", "true", "--norm", "l2")), (THREE, ())])
def test_contributions_sum_to_the_margin(
    tmp_path: Path, cli: Cli, rows: list[tuple[str, str]], options: tuple[str, ...]
) -> None:
    model = trained(tmp_path / "a", rows, cli, *options)
    margins = model.margins(TEXTS)
    for terms in (1, 10):
        found = list(Explainer(model, terms=terms).explain(TEXTS, list("abcd")))
        assert [own.id for own in found] == list("abcd")
        assert [own.prediction for own in found] == model.predict(TEXTS)
        for own, row in zip(found, margins, strict=True):
            if len(model.classes) == 2:
                expected = row[0] if own.of == model.classes[1] else -row[0]
            else:
                ordered = np.sort(row)
                expected = ordered[-1] - ordered[-2]
                assert own.against == model.classes[int(np.argsort(row)[-2])] or ordered[-2] == ordered[-3]
            assert own.margin == pytest.approx(expected)
            total = sum(term.contribution for term in own.terms) + own.rest + own.intercept
            assert total == pytest.approx(own.margin)
            assert all(term.value * term.weight == pytest.approx(term.contribution) for term in own.terms)
            assert len(own.terms) <= terms
    first = found[0]
    assert {term.feature for term in first.terms} <= {"tide", "moss"}
    assert first.probability == pytest.approx(model.predict_proba(TEXTS)[0].max())
    chosen = next(Explainer(model, of="wood").explain(["moss"]))
    assert (chosen.of, chosen.terms[0].feature) == ("wood", "moss")
    assert chosen.terms[0].contribution > 0
    with raises_code("unknown-class", "fire", kind=InputError):
        Explainer(model, of="fire")


def test_several_labels_and_numbers(tmp_path: Path, cli: Cli) -> None:
    sets = [
        (["sea", "wood"], "tide moss"),
        (["sea"], "tide boat"),
        (["wood"], "moss leaf"),
        ([], "stone"),
        (["air"], "kite"),
    ]
    model = trained(tmp_path / "a", sets, cli, "--dtype", "float64", labels="multi")
    found = list(Explainer(model).explain(["tide moss", "kite"]))
    assert set(found[0].prediction) == {"sea", "wood"}
    assert (found[1].prediction, found[1].of, found[1].against) == (["air"], "air", "")
    margins = model.margins(["tide moss", "kite"])
    assert [own.margin for own in found] == pytest.approx(margins.max(axis=1).tolist())
    numbers = trained(tmp_path / "b", [(1.0, "tide"), (3.0, "tide boat"), (-2.0, "moss")], cli, labels="numbers")
    (own,) = Explainer(numbers).explain(["tide boat"])
    assert own.prediction == pytest.approx(own.margin)
    assert (own.of, own.probability, own.threshold) == ("", None, None)
    assert sum(term.contribution for term in own.terms) + own.intercept == pytest.approx(own.margin)


def test_commands(tmp_path: Path, cli: Cli) -> None:
    trained(tmp_path / "a", TWO, cli)
    model, text = tmp_path / "a" / "model", tmp_path / "a" / "text.jsonl"
    printed = cli("explain", model, text, "--id", "1", "--id", "2", "--json").out
    found = [json.loads(line) for line in printed.splitlines()]
    assert [own["id"] for own in found] == ["1", "2"]
    assert [own["prediction"] for own in found] == ["wood", "sea"]
    assert {term["feature"] for term in found[0]["terms"]} <= {"moss", "leaf", "tree"}
    printed = cli("explain", model, text, "--id", "1").out
    assert "1: wood" in printed
    assert "margin of wood over sea" in printed
    assert "[unknown-document]" in cli("explain", model, text, "--id", "nowhere", code=2).err
    for command in ("predict", "explain"):
        assert "[no-documents]" in cli(command, model, text, "--where", "label=nothing", code=2).err
    printed = cli("compare", model, model, text).out
    assert "cosine of the weights: 1.0000" in printed
    assert "gained" not in printed


def test_what_changed(tmp_path: Path, cli: Cli) -> None:
    first = trained(tmp_path / "a", TWO, cli)
    second = trained(tmp_path / "b", [*TWO, ("wood", "fern"), ("sea", "boat")], cli, "--set", "eta=1")
    found = compare_models(first, second, limit=3)
    weights = [dict(zip(of.feature_names, of.weights[:, 0].tolist(), strict=True)) for of in (first, second)]
    assert found.features == (len(weights[0]), len(weights[1]), len(weights[0].keys() & weights[1].keys()))
    assert {row.feature for row in found.gained} == weights[1].keys() - weights[0].keys() == {"fern"}
    assert found.lost == []
    changes = {name: weights[1][name] - weights[0][name] for name in weights[0].keys() & weights[1].keys()}
    largest = sorted(changes, key=lambda name: -abs(changes[name]))[:3]
    assert [abs(row.change) for row in found.changed] == pytest.approx([abs(changes[name]) for name in largest])
    options = {row.name: (row.first, row.second) for row in found.options}
    assert options["parameters.eta"][1] == 1.0
    assert "provenance.store" in options
    dot = sum(weights[0][name] * weights[1][name] for name in changes)
    norms = [sum(w * w for w in of.values()) ** 0.5 for of in weights]
    assert found.cosine == pytest.approx(dot / (norms[0] * norms[1]))
    assert json.dumps(found.described)
    back = compare_models(second, first)
    assert [row.feature for row in back.lost] == ["fern"]


def test_errors_of_evaluated_models(tmp_path: Path, cli: Cli) -> None:
    model = trained(tmp_path / "a", TWO, cli)
    assert compare_models(model, model).evaluations == []
    text = str(tmp_path / "a" / "text.jsonl")
    found = compare_models(model, model, [text])
    measured = {row.name: (row.first, row.second) for row in found.evaluations}
    assert measured["rows"] == (24, 24)
    assert measured["error"] == (0.0, 0.0)
    assert found.same_text
    commit_json(tmp_path / "a" / "evaluation.json", {"rows": 7, "error": 0.25, "inputs": ["x"], "where": {}})
    recorded = compare_models(model, model)
    assert [(row.name, row.first) for row in recorded.evaluations] == [("rows", 7), ("error", 0.25)]
    other = trained(tmp_path / "b", THREE, cli)
    with raises_code("different-classes", kind=InputError):
        compare_models(model, other)
