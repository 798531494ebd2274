"""Whatever stands in a file, it is measured or named as broken: nothing of it stops a night."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nightlab.errors import ConfigError
from tests.tools.datasets.files import findings_of

KEYS = st.sampled_from(
    [
        "instruction",
        "input",
        "output",
        "messages",
        "conversations",
        "chosen",
        "rejected",
        "text",
        "label",
        "history",
        "role",
        "content",
        "from",
        "value",
        "kto_tag",
        "x",
    ]
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "human", "gpt", "robot"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12) | ROLES
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(VALUES, max_size=5), st.sampled_from(["auto", "alpaca", "sharegpt", "openai", "preference", "kto", "text"])
)
@example(rows=[{"messages": 1}], form="auto")
def test_rows_of_anything(tmp_path: Path, rows: list[Any], form: str) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        found = findings_of(tmp_path, train="a.jsonl", eval="a.jsonl", format=form, window=8)
    except ConfigError as error:
        assert "tell no format" in str(error)
    else:
        "".join(one.text for one in found).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from([".json", ".jsonl", ".csv", ".tsv", ".txt"]))
def test_bytes_of_anything(tmp_path: Path, data: bytes, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(data)
    try:
        findings_of(tmp_path, train=f"a{suffix}")
    except ConfigError as error:
        assert "tell no format" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "a \\ud800 b"}',
        '{"text": "' + "x" * 300_000 + '"}',
        '{"text": "\\u0000\\u0007"}',
        '{"text": "🙂🙂🙂 ZWJ 👩‍👩‍👧"}',
        '{"text": "مرحبا بالعالم"}',
        '{"messages": [{"role": "\\udfff", "content": "x"}]}',
        '{"instruction": "q", "output": "a", "history": [["a"], []]}',
        '{"text": ' + "9" * 5_000 + "}",
        '{"text": "a", "text": "b"}',
        '{"": ""}',
        "null",
        "NaN",
    ],
)
def test_single_rows_that_broke_readers_before(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "fine"}}\n{text}\n')
    found = findings_of(tmp_path, train="a.jsonl", window=100)
    assert "2 training rows" in "".join(one.text for one in found)
    "".join(f"{one.text}{one.evidence}" for one in found).encode()
