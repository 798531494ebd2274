"""YAML as a person means it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.yaml_reader import read_scalar, read_yaml
from nightlab.errors import ConfigError

FILE = Path("study.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-2.5e+1", -25.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("0", 0),
        ("-0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("007", "007"),
        ("010", "010"),
        ("-08", "-08"),
        ("007.5", 7.5),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("10:30", "10:30"),
        ("1:30", "1:30"),
        ("2026-01-31", "2026-01-31"),
        ("0,95", "0,95"),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("none", "none"),
        ("-.inf", float("-inf")),
        ("1.2.3", "1.2.3"),
        ("1e", "1e"),
        ("e5", "e5"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = read_scalar(text)
    assert (type(read), read) == (type(value), value)


def test_endless_numbers_stay_text() -> None:
    assert read_scalar("9" * 5000) == "9" * 5000


def test_quoted_scalars_and_keys_are_text() -> None:
    document = read_yaml("on: '1'\n1: \"true\"\n~: |\n  5\nplain: !!str 7\n", FILE)
    assert document.data == {"on": "1", "1": "true", "~": "5\n", "plain": "7"}
    assert document.quoted == {("on",), ("1",), ("~",), ("plain",)}


def test_every_key_and_item_has_its_line() -> None:
    document = read_yaml("# head\na: 1\nb:\n  c: [1,\n    2]\n  d:\n    - x\n    - {y: 1}\n", FILE)
    assert document.lines == {
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
        ("b", "d"): 6,
        ("b", "d", 0): 7,
        ("b", "d", 1): 8,
        ("b", "d", 1, "y"): 8,
    }
    assert document.line(("b", "absent", "deeper")) == 3
    assert document.line(("absent",)) is None


def test_anchors_are_shared_values() -> None:
    document = read_yaml("a: &levels [1e-3, 1e-2]\nb: *levels\n", FILE)
    assert document.data == {"a": [0.001, 0.01], "b": [0.001, 0.01]}


def test_the_first_of_two_equal_keys_keeps_its_value_and_lines() -> None:
    document = read_yaml("a: {x: 1}\nb: 2\na: {x: 3}\n", FILE)
    assert document.data == {"a": {"x": 1}, "b": 2}
    assert document.line(("a", "x")) == 1
    assert [str(fault) for fault in document.faults] == [
        "study.yaml:3: a: is given twice (it stands in line 1 already; keep one of them)"
    ]


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigError, match="longer than 20000 values"):
        read_yaml("\n".join(lines), FILE)


def test_aliases_that_nest_are_stopped() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]
    with pytest.raises(ConfigError, match="deeper than 20 levels"):
        read_yaml("\n".join(lines), FILE)


def test_an_alias_within_itself_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="no &a stands above it"):
        read_yaml("a: &a [*a]\n", FILE)


@pytest.mark.parametrize("text", ['a: "\\UFFFFFFFF"', 'a: "\\U00110000"', "%YAML " + "1" * 5000 + ".1\n---\na: 1"])
def test_what_the_parser_lets_out_is_a_fault(text: str) -> None:
    with pytest.raises(ConfigError, match="is not valid YAML"):
        read_yaml(text, FILE)
