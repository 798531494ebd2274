"""Parameter files: only the changed value changes, every value comes back with its type."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nightlab.configs.study import Scalar
from nightlab.errors import LauncherError
from nightlab.tools.launchers import json_text, yaml_text
from nightlab.tools.launchers.parameter_file import read_parameters, render_parameters

JSON_FILE = """{
    "model": {"width": 64, "layers": [1, 2,   3], "act": "relu"},
    "optim" : {
        "lr": 1e-3,
        "betas": [0.9, 0.95]
    },
\t"a.b": 1, "note": "é \\u00e9"
}"""

YAML_FILE = """\
# Settings of the model.
model:
    width: 64      # units
    layers: [1, 2,   3]
    act: 'relu'

optim: {lr: 3e-4, name: adam}
text: |
    two
    lines

schedule:
    - {at: 1, by: 2}
    -   at: 3
steps: 100
empty:
"""

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["none", "null", "~", "yes", "off", "1e-3", "1_000", "010", "12:30:00", "2024-01-01", "0x1f", "y", ""]
    ),
    st.sampled_from(
        ["a: b", "- x", "#c", " lead", "trail ", "&a", "*a", "!t", "%d", "@x", "{x}", "[x]", "'", '"', "a\nb"]
    ),
)


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def render(tree: Path, path: str, parameters: dict[str, Scalar], text: str | None = None) -> str:
    if text is not None:
        (tree / path).write_bytes(text.encode())
    return render_parameters(tree, path, parameters)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"model.width": 128},
            [
                '-    "model": {"width": 64, "layers": [1, 2,   3], "act": "relu"},',
                '+    "model": {"width": 128, "layers": [1, 2,   3], "act": "relu"},',
            ],
        ),
        ({"optim.lr": 1e-05}, ['-        "lr": 1e-3,', '+        "lr": 1e-05,']),
        ({"optim.lr": 0.001, "model.act": "relu", "a.b": 1}, []),
        (
            {"optim.eps": 1e-08},
            ['-        "betas": [0.9, 0.95]', '+        "betas": [0.9, 0.95],', '+        "eps": 1e-08'],
        ),
        (
            {"new.depth": 2},
            [
                '-\t"a.b": 1, "note": "é \\u00e9"',
                '+\t"a.b": 1, "note": "é \\u00e9", "new": {"depth": 2}',
            ],
        ),
    ],
)
def test_json_changes_only_what_is_set(tmp_path: Path, parameters: dict[str, Scalar], expected: list[str]) -> None:
    assert changed_lines(JSON_FILE, render(tmp_path, "p.json", parameters, JSON_FILE)) == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"model.width": 128}, ["-    width: 64      # units", "+    width: 128      # units"]),
        ({"optim.lr": 1e-05}, ["-optim: {lr: 3e-4, name: adam}", "+optim: {lr: 1.0e-05, name: adam}"]),
        ({"optim.lr": 3e-4, "model.act": "relu", "steps": 100}, []),
        ({"optim.eps": 0.5}, ["-optim: {lr: 3e-4, name: adam}", "+optim: {lr: 3e-4, name: adam, eps: 0.5}"]),
        ({"model.bias": True}, ["+    bias: true"]),
        ({"model.norm.eps": 0.1, "seed": 3}, ["+    norm:", "+      eps: 0.1", "+seed: 3"]),
        ({"empty": "no"}, ["-empty:", '+empty: "no"']),
        ({"text": "short"}, ["-text: |", "-    two", "-    lines", "+text: short"]),
    ],
)
def test_yaml_changes_only_what_is_set(tmp_path: Path, parameters: dict[str, Scalar], expected: list[str]) -> None:
    assert changed_lines(YAML_FILE, render(tmp_path, "p.yaml", parameters, YAML_FILE)) == expected


def test_line_ends_and_a_missing_last_newline_are_kept(tmp_path: Path) -> None:
    assert render(tmp_path, "p.yaml", {"a": 2, "c": 4}, "a: 1\r\nb: 3\r\n") == "a: 2\r\nb: 3\r\nc: 4\r\n"
    assert render(tmp_path, "q.yaml", {"b": 4}, "a: 1") == "a: 1\nb: 4\n"
    assert render(tmp_path, "p.json", {"a": 2}, '{"a": 1}') == '{"a": 2}'


@pytest.mark.parametrize(("path", "text"), [("p.json", "{ }"), ("p.yaml", "{}"), ("q.yaml", "# only a comment")])
def test_an_empty_document_takes_parameters(tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / path).write_text(render(tmp_path, path, {"a.b": 1, "a.c": "x"}, text), encoding="utf-8")
    assert read_parameters(tmp_path, path, ["a.b", "a.c", "a.d"]) == {"a.b": 1, "a.c": "x"}


def test_the_last_of_two_equal_keys_is_the_one_that_counts(tmp_path: Path) -> None:
    assert render(tmp_path, "p.json", {"a": 3}, '{"a": 1, "a": 2}') == '{"a": 1, "a": 3}'
    assert render(tmp_path, "p.yaml", {"a": 3}, "a: 1\na: 2\n") == "a: 1\na: 3\n"


def test_a_key_with_dots_is_found_before_nested_keys(tmp_path: Path) -> None:
    text = '{"a": {"b": 1}, "a.b": 2}'
    assert render(tmp_path, "p.json", {"a.b": 3}, text) == '{"a": {"b": 1}, "a.b": 3}'


@pytest.mark.parametrize("path", ["p.json", "p.yaml"])
@given(value=SCALARS, other=SCALARS)
def test_every_value_comes_back_with_its_type(
    tmp_path_factory: pytest.TempPathFactory, path: str, value: Scalar, other: Scalar
) -> None:
    tree = tmp_path_factory.mktemp("tree")
    parameters = {"group.value": value, "other": other}
    (tree / path).write_bytes(render_parameters(tree, path, parameters).encode())
    assert repr(read_parameters(tree, path, parameters)) == repr(parameters)
    swapped = {"group.value": other, "other": value}
    (tree / path).write_bytes(render_parameters(tree, path, swapped).encode())
    assert repr(read_parameters(tree, path, swapped)) == repr(swapped)


@given(value=SCALARS)
def test_written_yaml_means_the_same_to_a_yaml_1_1_reader(value: Scalar) -> None:
    text = yaml_text.dumps({"value": value})
    assert repr(yaml.safe_load(text)["value"]) == repr(value)


@given(
    st.dictionaries(st.text('ab."\\ é', min_size=1, max_size=4), SCALARS, min_size=1, max_size=4), SCALARS, st.data()
)
def test_json_put_equals_a_change_of_the_document(
    document: dict[str, Scalar], value: Scalar, data: st.DataObject
) -> None:
    indent = data.draw(st.sampled_from([None, 0, 2]))
    key = data.draw(st.sampled_from([*document, "new"]))
    text = json_text.put(json.dumps(document, indent=indent), [key], value)
    assert repr(json.loads(text)) == repr({**document, key: value})


@pytest.mark.parametrize(
    ("path", "text", "parameters", "word"),
    [
        ("p.json", "{broken", {"a": 1}, r"p\.json: .*mend the file"),
        ("p.yaml", "a: [1", {"a": 1}, r"p\.yaml: .*mend the file"),
        ("p.yaml", "a: 1\n---\nb: 2\n", {"a": 2}, r"p\.yaml"),
        ("p.json", "[1]", {"a": 1}, "holds a list"),
        ("p.yaml", "- a\n", {"a": 1}, "holds a list"),
        ("p.json", '{"a": {"b": 1}}', {"a": 1}, "a is a section"),
        ("p.yaml", "a: [1, 2]\n", {"a": 1}, "a is a section"),
        ("p.json", '{"a": 1}', {"a.b": 1}, "a is one value"),
        ("p.json", '{"a": 1}', {"a": float("inf")}, "cannot be set to inf"),
        ("p.json", None, {"a": float("nan")}, r"use a \.yaml file"),
        ("p.json", None, {"a": 1, "a.b": 2}, "a is one value"),
        ("p.yaml", "base: &x 1\na: *x\n", {"a": 2}, "alias"),
        ("p.toml", None, {"a": 1}, "neither JSON nor YAML"),
        ("../p.json", None, {"a": 1}, "inside the worktree"),
        (".git/p.json", None, {"a": 1}, "inside the worktree"),
    ],
)
def test_what_has_no_place_is_refused(
    tmp_path: Path, path: str, text: str | None, parameters: dict[str, Scalar], word: str
) -> None:
    with pytest.raises(LauncherError, match=word) as caught:
        render(tmp_path, path, parameters, text)
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_tree_is_refused(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside.json").write_text("{}", encoding="utf-8")
    (tree / "p.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(LauncherError, match="inside the worktree"):
        render_parameters(tree, "p.json", {"a": 1})


def test_infinity_is_a_yaml_value(tmp_path: Path) -> None:
    assert render(tmp_path, "p.yaml", {"clip": float("inf"), "low": float("-inf")}) == "clip: .inf\nlow: -.inf\n"
