"""The planted ideas of the bench against the demo's own script: each passes, or is refused, as it was planted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.model_night import make_repository, sections
from bench.planted import PLANTED, Planted
from nightlab.agents.context import Lab
from nightlab.agents.idea_checks import check_edits
from nightlab.knowledge.records import Edit
from tests.agents.lab import opened

LATER = ("near-duplicate", "smoke")
"""Found by other means than reading one change."""
PASSES = ("kept", "not kept", "less code", "mended", "questioned", *LATER)
NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened(make_repository(tmp_path_factory.mktemp("demo") / "repo", 10, **sections(NOBODY, NOBODY))) as lab:
        yield lab


def causes(lab: Lab, planted: Planted, answer: int) -> set[str]:
    edits = [Edit(path=planted.path, search=one, replace=other) for one, other in planted.answers[answer]]
    return {refusal.cause for refusal in check_edits(lab, edits)}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.title)
def test_it_is_what_it_was_planted_as(lab: Lab, planted: Planted) -> None:
    found = causes(lab, planted, -1)
    if planted.expected in PASSES:
        assert found == set()
    else:
        assert found & set(planted.expected.split(" or "))


def test_the_one_that_is_sent_back_does_not_apply_at_first(lab: Lab) -> None:
    (sent_back,) = [planted for planted in PLANTED if len(planted.answers) > 1]
    assert causes(lab, sent_back, 0) == {"not-found"}
