"""Ideas in the ledger: one is under way at most, and what is decided stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nightlab.errors import LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Edit, IdeaState, Run

Plan = Callable[..., Run]


def test_what_is_under_way_is_found_again(ledger: Ledger) -> None:
    first = ledger.begin_idea(asked={"user": "one"}, prompt="idea 1")
    assert ledger.begin_idea(asked={"user": "two"}, prompt="idea 1") == first
    edits = [Edit(path="train.py", search="a", replace="b")]
    done = ledger.update_idea(
        first.number, state=IdeaState.ACCEPTED, name="x", edits=edits, requires=["w"], asked=None, lines_removed=2
    )
    assert ledger.ideas() == [done] and done.edits == edits and done.lines == -2
    second = ledger.begin_idea(asked={"user": "two"}, prompt="idea 1")
    assert (first.number, second.number) == (1, 2)
    assert ledger.ideas(states=(IdeaState.ASKING,)) == [second]


def test_what_is_decided_changes_no_more(ledger: Ledger) -> None:
    idea = ledger.begin_idea(asked={}, prompt="idea 1")
    ledger.update_idea(idea.number, state=IdeaState.REFUSED, cause="syntax")
    with pytest.raises(LedgerError, match="is refused already"):
        ledger.update_idea(idea.number, state=IdeaState.ACCEPTED)
    with pytest.raises(LedgerError, match="holds no idea 7"):
        ledger.update_idea(7, rounds=1)
