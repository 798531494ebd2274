"""The ledger's pages about code ideas: what a model was asked for, what it proposed, what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, insert, select

from nightlab.errors import LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, fetch_all, fetch_one, select_as
from nightlab.knowledge.records import Idea, IdeaState

__all__ = ["IdeaBook"]


class IdeaBook(Database):
    """Ideas in the order they were asked for; at most one is being asked for."""

    def begin_idea(self, *, asked: dict[str, Any], prompt: str) -> Idea:
        """Write, before it is sent, what a model is asked for; one that is under way already is returned as it is."""
        with self._write() as connection:
            idea = tables.ideas.c
            query = select_as(tables.ideas, Idea).where(idea.state == IdeaState.ASKING)
            if held := fetch_one(connection, query, Idea):
                return held
            highest = connection.execute(select(func.max(idea.number))).scalar() or 0
            new = Idea(number=highest + 1, asked=asked, prompt=prompt)
            connection.execute(insert(tables.ideas).values(**as_row(new)))
        return new

    def update_idea(self, number: int, **changes: Any) -> Idea:
        """Change fields of an idea that is being asked for. Raises LedgerError once it is decided."""
        query = select_as(tables.ideas, Idea).where(tables.ideas.c.number == number)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Idea), f"idea {number}")
            if held.state is not IdeaState.ASKING:
                raise LedgerError(f"idea {number}: it is {held.state} already and changes no more")
            return self._update(connection, tables.ideas, Idea, {"number": number}, changes)

    def amend_idea(self, number: int, *, mended: str, **changes: Any) -> Idea:
        """Give an accepted idea other edits, once, because of the failure `mended`.

        Raises LedgerError for one that is not accepted or was amended before.
        """
        query = select_as(tables.ideas, Idea).where(tables.ideas.c.number == number)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Idea), f"idea {number}")
            if held.state is not IdeaState.ACCEPTED or held.mended:
                raise LedgerError(f"idea {number}: is {held.state}{', amended before' if held.mended else ''}")
            changes = {**changes, "mended": mended}
            return self._update(connection, tables.ideas, Idea, {"number": number}, changes)

    def ideas(self, *, states: Iterable[IdeaState] | None = None) -> list[Idea]:
        """Ideas in the order they were asked for."""
        query = select_as(tables.ideas, Idea).order_by(tables.ideas.c.number)
        if states is not None:
            query = query.where(tables.ideas.c.state.in_(list(states)))
        with self._read() as connection:
            return fetch_all(connection, query, Idea)
