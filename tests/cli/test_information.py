"""The command that lists the learners and shows one."""

import pytest

from sparseoco.learners import ALGORITHMS
from tests.support.commands import call


@pytest.mark.parametrize("name", ["cl-fobos", "passive-aggressive", "ons", "caos-erm", "cao-rcd"])
def test_one_learner_in_full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert call(monkeypatch, "algorithms", name) == 0
    shown = capsys.readouterr().out
    algorithm = ALGORITHMS[name]
    for text in (algorithm.formula, algorithm.source, *algorithm.loss_names, *algorithm.penalties):
        assert text in shown
    for parameter in algorithm.parameters:
        assert f"{parameter.name} = {parameter.default}  {parameter.meaning}\n" in shown
        assert all(value in shown for value in (*parameter.choices, *map(str, parameter.grid)))


def test_an_unknown_learner_is_an_error_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "algorithms", "fobo") == 2
    error = capsys.readouterr().err
    assert "did you mean fobos?" in error
    assert error.endswith("[unknown-algorithm]\n")
