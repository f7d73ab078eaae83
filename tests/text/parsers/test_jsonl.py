"""orjson and Python's parser agree on every line."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.jsonl import read_jsonl
from sparseoco.text.parsers.rows import SLACK, Chunk

scalars = st.one_of(
    st.text(max_size=12),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.sampled_from([None, True, False, [], {}, ["a"], "-0", 0, "\ud83d", "\ude00", "\U0001f600"]),
)
values = scalars | st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
rows = st.dictionaries(st.sampled_from(["text", "label", "id", "é", "split", 'q"']), values, max_size=5)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    row = draw(rows)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    line = json.dumps(row, ensure_ascii=draw(st.booleans()), separators=separators).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(line)))
        line = line[:place] + draw(st.sampled_from(BYTES)) + line[place + draw(st.integers(0, 1)) :]
    return line.replace(b"\n", b" ")


BYTES = [bytes([b]) for b in b'"\\{}[],: 0-9ue.tfn\x00\x1f\r'] + [
    b"\\u", b"\\u00e9", b"\\uD83d\\uDe00", b"\\ud83d", b"null", b"true", b"[[", b"]}",
    b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc0\x80", b"\xf0\x9f\x98\x80",
]  # fmt: skip


def chunk(data: bytes) -> Chunk:
    padded = np.frombuffer(data + b"\n" + bytes(SLACK - 1), np.uint8).copy()
    return Chunk(padded, len(data), name="f", short="f", line=1, offset=0)


def values_of(documents: Documents) -> Any:
    labels = None if documents.labels is None else documents.labels.tolist()
    columns = {name: values.tolist() for name, values in documents.columns.items()}
    carried = {name: (values.type, values.to_pylist()) for name, values in documents.carried.items()}
    found = documents.texts(), documents.ids.to_pylist(), labels, documents.lines.tolist(), documents.bad, columns
    fields = {name: values.tolist() for name, values in documents.fields.items()}
    return *found, carried, repr(fields)


def refuse(raw: bytes) -> Any:
    raise orjson.JSONDecodeError("", "", 0)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(lines(), max_size=6),
    st.booleans(),
    st.sampled_from(
        [
            {},
            {"where": {"split": "a"}},
            {"where": {"é": "true", "label": "1"}},
            {"weight_field": "é", "group_field": 'q"', "labels": "multi"},
            {"time_field": "split", "labels": "numbers"},
            {"time_field": "é", "weight_field": "é", "group_field": "id", "where": {"split": "-1.5"}},
            {"carried": ("é", "text", "id", "label", "split", "none")},
            {"carried": ("é", "label"), "labels": "multi", "group_field": "é", "where": {"split": "a"}},
            {"carried": ("é", "label"), "labels": "numbers", "weight_field": "é", "encoding_errors": "replace"},
            {"carried": ("é", "split"), "fields": {"é": {"type": "category"}, "split": {"type": "number"}}},
            {"carried": ("id", "é"), "fields": {"é": {"type": "text"}, "id": {"type": "category"}}},
        ]
    ),
)
@example([b'{"text":"a\\"b\\\\","label":-0}', b'{"text":"","text":"x","label":"a"}'], True, {})
@example([b'{"text":"x","label":12345678901234567890123,"id":12345678901234567890123}'], True, {})
@example([b'\xef\xbb\xbf{"text":"x","label":"a"}', b"", b" \r", b'{"text":"\xe2\x82"', b'{"a":tru'], True, {})
@example([b'{"text":"x","label":1e400}', b'{"text":"x","label":-0.0}'], True, {"labels": "numbers"})
@example(['{"text":"x","é":1e39}'.encode(), '{"text":"x","é":-0.0}'.encode()], False, {"weight_field": "é"})
def test_both_parsers_agree(found: list[bytes], labelled: bool, chosen: dict[str, Any]) -> None:
    options = TextOptions(**chosen)
    data = b"\n".join(found)
    fast = read_jsonl(chunk(data), options, labelled=labelled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparseoco.text.parsers.jsonl.orjson.loads", refuse)
        slow = read_jsonl(chunk(data), options, labelled=labelled)
    assert values_of(fast) == values_of(slow)
