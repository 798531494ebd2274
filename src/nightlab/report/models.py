"""What the language models did for the study, and where the rules decided in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nightlab.agents.llm import FALLBACK, fallback_of
from nightlab.knowledge.call_book import PurposeCalls
from nightlab.knowledge.records import Event
from nightlab.report.model import ModelUse, ModelUseRow
from nightlab.report.numbers import count, listing, money

__all__ = ["model_use"]


def model_use(calls: Sequence[PurposeCalls], events: Iterable[Event]) -> ModelUse | None:
    """The section of the report; None where no model was asked and none was missed."""
    missed = [event for event in events if event.kind == FALLBACK]
    if not calls and not missed:
        return None
    by_rules = Counter(fallback_of(event.text)[0] for event in missed)
    sums = {one.purpose: one for one in calls}
    rows = [_row(purpose, sums.get(purpose), by_rules[purpose]) for purpose in sorted({*sums, *by_rules})]
    return ModelUse(_sentence(calls, missed), tuple(rows))


def _row(purpose: str, calls: PurposeCalls | None, by_rules: int) -> ModelUseRow:
    if calls is None:
        return ModelUseRow(purpose, "0", "0", "–", "0", "0", "0", str(by_rules))
    numbers = (calls.calls, calls.tokens, calls.answers, calls.refused, calls.unanswered, by_rules)
    sent, tokens, answers, refused, unanswered, rules = (f"{number:,}" for number in numbers)
    return ModelUseRow(purpose, sent, tokens, money(calls.cost_usd), answers, refused, unanswered, rules)


def _sentence(calls: Sequence[PurposeCalls], missed: Sequence[Event]) -> str:
    sent, tokens = sum(one.calls for one in calls), sum(one.tokens for one in calls)
    cost_usd = sum(one.cost_usd for one in calls)
    parts = [f"{count(sent, 'call')}, {tokens:,} tokens" + (f", {money(cost_usd)}" if cost_usd else "")]
    if refused := sum(one.refused for one in calls):
        parts.append(f"{count(refused, 'answer')} could not be used")
    if unanswered := sum(one.unanswered for one in calls):
        parts.append(f"{count(unanswered, 'call')} got no answer")
    return f"{'; '.join(parts)}. {_fallbacks(calls, missed)}".strip()


def _fallbacks(calls: Sequence[PurposeCalls], missed: Sequence[Event]) -> str:
    if not missed:
        return ""
    last = max((one.last_answer_at for one in calls if one.last_answer_at), default=None)
    since = [event for event in missed if last is None or event.time > last]
    if since:
        when = f"From {since[0].time:%H:%M} UTC on" if last else "In all of it"
        return f"{when} the rules decided, because {fallback_of(since[0].text)[1].rstrip('.')}."
    purposes = listing(sorted({fallback_of(event.text)[0] for event in missed}))
    return f"{count(len(missed), 'time')} the rules decided in their place ({purposes})."
