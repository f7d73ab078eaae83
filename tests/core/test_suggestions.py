"""Suggestions for names that are not known."""

from sparseoco.core.formatting import did_you_mean


def test_a_suggestion_is_a_known_name_or_nothing() -> None:
    assert did_you_mean("cl-fobo", ["fobos", "cl-fobos"]) == "did you mean cl-fobos?"
    assert did_you_mean("x" * 10_000, ["folds"]) == ""
    assert did_you_mean(3, ["folds"]) == ""
