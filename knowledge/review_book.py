"""The ledger's pages about reviews: what a reviewer was asked about a claim, and what it said."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, insert

from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, fetch_one, select_as
from nightlab.knowledge.records import Review, ReviewState

__all__ = ["ReviewBook"]


class ReviewBook(Database):
    """Reviews of claims, one for each experiment and basis."""

    def begin_review(self, review: Review) -> Review:
        """Write, before it is sent, what a reviewer is asked; one there is already is returned as it stands."""
        query = _of(review.number, review.basis)
        review = self.safe(review)
        with self._write() as connection:
            if held := fetch_one(connection, query, Review):
                return held
            connection.execute(insert(tables.reviews).values(**as_row(review)))
        return review

    def end_review(self, key: str, state: ReviewState, **changes: Any) -> Review:
        """Write what came of asking; a review that has its end already is returned as it stands."""
        query = select_as(tables.reviews, Review).where(tables.reviews.c.key == key)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Review), f"review {key}")
            if held.state is not ReviewState.ASKING:
                return held
            changes = {**changes, "state": state, "asked": None}
            return self._update(connection, tables.reviews, Review, {"key": key}, changes)

    def update_review(self, key: str, **changes: Any) -> Review:
        """Write what became of the pair of runs that a reviewer asked for: `pair_seed` or `note`."""
        with self._write() as connection:
            return self._update(connection, tables.reviews, Review, {"key": key}, changes)

    def review(self, number: int, basis: str) -> Review | None:
        """The review of an experiment's claim on this basis, None before one was asked for."""
        return self._one(_of(number, basis), Review)

    def reviews(self, *, asking_only: bool = False) -> list[Review]:
        """Reviews by experiment, in the order they were asked for."""
        query = select_as(tables.reviews, Review).order_by(tables.reviews.c.asked_at, tables.reviews.c.key)
        if asking_only:
            query = query.where(tables.reviews.c.state == ReviewState.ASKING)
        return self._all(query, Review)


def _of(number: int, basis: str) -> Select[Any]:
    review = tables.reviews.c
    return select_as(tables.reviews, Review).where(review.number == number, review.basis == basis)
