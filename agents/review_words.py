"""What a review says, in words for people."""

from __future__ import annotations

from nightlab.knowledge.records import Review, ReviewItem, ReviewState

__all__ = ["told", "told_item"]


def told(review: Review) -> str:
    """What a reviewer said, in a line for people."""
    if review.state is ReviewState.UNANSWERED:
        return f"nobody reviewed the claim, it stands as computed: {review.note}"
    if review.state is ReviewState.ASKING:
        return "a reviewer is asked"
    by = f"{review.model} reviewed it" + (
        "" if review.independent else ", the model that proposed it: no other is named"
    )
    if accused := review.accusations:
        return f"{by}. Questioned: {'; '.join(told_item(item) for item in accused)}"
    unclear = [item.check for item in review.items if item.answer == "unclear"]
    found = f"unclear: {', '.join(unclear)}" if unclear else "nothing to object to"
    return f"{by}. {found[0].upper()}{found[1:]}" + (
        "; it asks for one more pair of runs" if review.another_run else ""
    )


def told_item(item: ReviewItem) -> str:
    return f"{item.check}: {item.reason} (“{item.evidence}”)"
