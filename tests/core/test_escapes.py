"""Escapes of names in lines of text: fault 56."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.formatting import printable, tsv_field, tsv_list

NAMES = st.text(st.one_of(st.characters(), st.sampled_from("\t\n\r\\,\x1b\x85\u2028\u202e\udc80")))


@pytest.mark.fault(56)
@given(NAMES)
@settings(max_examples=50)
def test_a_field_is_one_column_of_one_line_and_can_be_read_back(name: str) -> None:
    field = tsv_field(name)
    assert len(f"{field}x".splitlines()) == 1
    assert "\t" not in field
    assert "\x1b" not in field
    field.encode()
    assert json.loads('"' + field.replace('"', '\\"') + '"') == name


@pytest.mark.fault(56)
@given(st.lists(NAMES, min_size=1))
@settings(max_examples=50)
def test_a_list_of_labels_can_be_read_back(names: list[str]) -> None:
    fields = tsv_list(names).split(",")
    assert [json.loads('"' + field.replace('"', '\\"') + '"') for field in fields] == names


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_is_not_changed(name: str) -> None:
    assert printable(name) == name
