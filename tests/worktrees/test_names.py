from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nightlab.configs.study import Scalar
from nightlab.errors import ConfigError
from nightlab.worktrees.names import branch_name, check_name, slug, variable_slug

SCALARS = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=60))
SLUGS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "baseline"),
        ({"learning_rate": 0.003}, "learning-rate-0-003"),
        ({"learning_rate": 1e-05}, "learning-rate-1e-05"),
        ({"scale": 1e16}, "scale-1e16"),
        ({"scale": -1e-16}, "scale-minus-1e-16"),
        ({"bias": -2}, "bias-minus-2"),
        ({"optim.nesterov": True}, "optim-nesterov-true"),
        ({"activation": "GELU (tanh)"}, "activation-gelu-tanh"),
        ({"tokenizer": "Größe"}, "tokenizer-grosse"),
        ({"init": ""}, "init-empty"),
        ({"width": 64, "lr": 0.1}, "lr-0-1-width-64"),
    ],
)
def test_a_change_reads_as_a_person_would_write_it(changed: dict[str, Scalar], expected: str) -> None:
    assert variable_slug(changed) == expected


def test_many_changes_are_counted_and_still_told_apart() -> None:
    many: dict[str, Scalar] = {f"parameter_{i}": i for i in range(12)}
    text = variable_slug(many)
    assert text.startswith("parameter-0-0-parameter-1-1-") and "-plus-9-" in text
    assert len(text) <= 60
    assert variable_slug({**many, "parameter_11": 99}) != text
    assert variable_slug(dict(reversed(many.items()))) == text


def test_letters_without_an_ascii_form_are_told_apart() -> None:
    assert slug("学习率") != slug("学习量")
    assert slug("lr 学") != slug("lr 习") != slug("lr")
    assert slug("lr 学").startswith("lr-")


@given(st.text())
def test_every_text_has_a_slug_that_is_its_own_slug(text: str) -> None:
    assert check_name(slug(text)) == slug(slug(text))


@given(st.one_of(st.integers(), st.floats()), st.one_of(st.integers(), st.floats()))
@example(0.0, -0.0)
@example(1e16, 1e-16)
@example(0.1, -0.1)
def test_distinct_numbers_have_distinct_slugs(one: float, other: float) -> None:
    assert (variable_slug({"lr": one}) == variable_slug({"lr": other})) == (repr(one) == repr(other))


@given(st.dictionaries(st.text(min_size=1, max_size=80), SCALARS, max_size=6))
def test_every_change_has_a_short_valid_slug(changed: dict[str, Scalar]) -> None:
    assert len(check_name(variable_slug(changed))) <= 60


@given(st.integers(0, 9999), SLUGS, SLUGS, st.text())
def test_every_experiment_has_a_short_valid_branch(number: int, scenario: str, method: str, variable: str) -> None:
    name = branch_name(number, scenario, method, variable)
    assert len(check_name(name)) <= 120
    assert name.startswith(f"experiment-{number:02d}-")


def test_long_variables_with_the_same_beginning_keep_apart() -> None:
    names = {branch_name(3, "s", "m", "v" * 200 + end) for end in "ab"}
    assert len(names) == 2


@pytest.mark.parametrize(
    "name",
    [
        branch_name(0, "pydoc", "pretrain", "baseline"),
        branch_name(12, "tool-use", "sft-lora", variable_slug({"lr": -1e-05})),
        branch_name(100, "s" * 40, "m" * 40, "ünï ~^:?*[\\ @{ .lock"),
    ],
)
def test_git_accepts_the_names(name: str) -> None:
    done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name


@pytest.mark.parametrize("name", ["", "-f", "Upper", "a b", "a/b", "a.lock", "a\n", "ä"])
def test_a_name_that_could_be_an_option_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="lower-case"):
        check_name(name)


def test_no_room_for_the_variable_is_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match="shorten scenario or method"):
        branch_name(0, "s" * 60, "m" * 60, "lr")
