"""What the independent reviewer said of the night's claims."""

from __future__ import annotations

from collections.abc import Iterable

from nightlab.agents.review_words import told
from nightlab.knowledge.records import Review, ReviewState
from nightlab.report.model import ReviewRow

__all__ = ["review_rows"]


def review_rows(reviews: Iterable[Review]) -> tuple[ReviewRow, ...]:
    """One row a review that has come to an end, by experiment."""
    ended = [one for one in reviews if one.state is not ReviewState.ASKING]
    return tuple(
        ReviewRow(one.number, told(one), tuple((i.check, i.answer, i.evidence, i.reason) for i in one.items), _run(one))
        for one in sorted(ended, key=lambda one: one.number)
    )


def _run(review: Review) -> str:
    """What became of the pair of runs it asked for."""
    if review.state is not ReviewState.ANSWERED:
        return ""
    return f"The pair it asked for ran on seed {review.pair_seed}." if review.pair_seed is not None else review.note
