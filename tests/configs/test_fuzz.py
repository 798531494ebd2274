"""Whatever stands in the file, a person gets a study or one line a mistake."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightlab.configs.fields import fields_of, sections
from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from tests.configs.sample import SAMPLE

KEYS = sorted({key for section in sections().values() for key in fields_of(section)} | {"lr", "a b", "", "<<"})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["json", "regex", "log", "(", "(a)", "9h", "07:30", "{lr}", "x.json", "0,5", "10" * 300]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
PIECES = [
    "\t",
    "\n",
    "  ",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "&a ",
    "*a",
    "!x ",
    "|",
    "#",
    "%",
    "\\U",
    "\x85",
    "?",
]
quick = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def check(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    try:
        load_study(file)
    except ConfigError as error:
        lines = str(error).split("\n")
        assert len(lines) == len(error.faults) > 0
        for line in lines:
            assert line.isprintable()
            line.encode()
            assert len(line) < 600


@quick
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    check(content, tmp_path / "study.yaml")


@quick
@given(st.lists(st.sampled_from([*PIECES, *KEYS]), max_size=25).map("".join))
def test_any_signs_of_yaml(tmp_path: Path, text: str) -> None:
    check(text.encode(), tmp_path / "study.yaml")


@quick
@given(st.integers(0, len(SAMPLE)), st.integers(0, 12), st.sampled_from([*PIECES, ""]))
def test_a_damaged_study(tmp_path: Path, start: int, length: int, piece: str) -> None:
    check((SAMPLE[:start] + piece + SAMPLE[start + length :]).encode(), tmp_path / "study.yaml")


@quick
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
def test_any_value_under_any_key(tmp_path: Path, data: dict[str, object]) -> None:
    text = yaml.safe_dump(yaml.safe_load(SAMPLE) | data, allow_unicode=True)
    check(text.encode("utf-8", "surrogatepass"), tmp_path / "study.yaml")
