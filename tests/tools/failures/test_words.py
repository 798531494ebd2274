"""The cheap test of a line never turns away a line that the expression itself would match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightlab.knowledge.signatures import load_signatures
from nightlab.tools.failures.matching import LineMatcher
from nightlab.tools.failures.words import any_of, required_words

SIGNATURES = load_signatures()
MATCHER = LineMatcher(SIGNATURES)


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        ("CUDA out of memory", ("CUDA out of memory",)),
        (r"size mismatch for .*lora_[AB]", ("size mismatch for ",)),
        ("(?:EADDRINUSE|ddress already)", ("EADDRINUSE", "ddress already")),
        ("(?:no match|[a-z]+)", None),
        ("(?:long)? word", (" word",)),
        ("(?:word){2,3}", ("word",)),
        ("(?i)cuda out of memory", None),
        ("(?i:cuda) out of memory", (" out of memory",)),
        ("(?=ahead)x", None),
        (r"\d+", None),
        ("ab", None),
    ],
)
def test_required_words(regex: str, words: tuple[str, ...] | None) -> None:
    assert required_words(regex) == words


@given(st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_whatever_a_signature_matches_is_tried(data: st.DataObject) -> None:
    signature = data.draw(st.sampled_from(SIGNATURES.entries))
    text = data.draw(st.from_regex(re.compile(signature.regex)))
    tried = {candidate.id for _, candidate in MATCHER.shape(text).candidates}
    assert signature.id in tried


def test_most_lines_are_turned_away() -> None:
    assert MATCHER.shape("step 12: everything is well, 3.5 tokens a second").candidates == ()
    assert {s.id for _, s in MATCHER.shape("{'loss': '0.1'}").candidates} == {"nan_loss"}


@given(st.lists(st.text(min_size=3), min_size=1), st.text(), st.text(), st.integers(0))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_of_finds_every_word(words: list[str], before: str, after: str, which: int) -> None:
    assert any_of(words).search(before + words[which % len(words)] + after)


def test_any_of_nothing_finds_nothing() -> None:
    assert not any_of([]).search("anything")
