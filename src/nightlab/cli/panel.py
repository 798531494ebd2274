"""The panel of `run` and `status`: a snapshot as a person reads it, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nightlab.cli.common import command
from nightlab.knowledge.records import Event, Question, StudyStatus, VerdictKind
from nightlab.report.build import RESOURCES
from nightlab.report.numbers import count, duration
from nightlab.search.spending import BudgetLine
from nightlab.status import SlotNow, Snapshot

__all__ = ["answer_command", "clock", "event_line", "render"]

PHASES = {
    "understand": "starting",
    "baseline": "measuring the baseline",
    "screen": "trying single changes",
    "combine": "combining the best changes",
    "refine": "searching around the best so far",
    "confirm": "confirming on fresh seeds",
    "done": "every verdict is in",
}
VERDICTS = {
    VerdictKind.KEEP: "kept",
    VerdictKind.DISCARD: "discarded",
    VerdictKind.INCONCLUSIVE: "inconclusive",
    VerdictKind.REJECTED: "rejected by review",
    VerdictKind.FAILED: "failed",
    VerdictKind.PRUNED: "pruned",
}
ASKED = {"idea": "a code idea", "review": "the review", "repair": "the repair", "analysis": "the analysis"}
MOST_TOLD = 3
"""Of what is under stress or asked."""
MAX_COLUMNS = 110
MAX_SLOTS = 8
"""Slots that get a line of their own."""


def render(
    snapshot: Snapshot, now: datetime, file: Path, *, alive: bool, stopping: bool = False, every_budget: bool = True
) -> RenderableType:
    """The panel of the study in `file`, the last events under it while a lab is at work.

    `alive`: a lab's process runs the study now; `every_budget`: a line for each limit, not for the tightest only.
    """
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(snapshot, now, file, alive=alive, stopping=stopping, every_budget=every_budget):
        facts.add_row(name, text)
    panel = Constrain(Panel(facts, title=f"nightlab · {snapshot.study}", title_align="left"), MAX_COLUMNS)
    if not alive:
        return panel
    events = [Text(event_line(event), no_wrap=True, overflow="ellipsis") for event in snapshot.recent]
    return Group(panel, *events)


def _facts(
    snapshot: Snapshot, now: datetime, file: Path, *, alive: bool, stopping: bool, every_budget: bool
) -> Iterator[tuple[str, str]]:
    yield "state", _state(snapshot, file, alive=alive, stopping=stopping)
    yield "experiments", _experiments(snapshot)
    yield "baseline", _baseline(snapshot)
    yield "best so far", _best(snapshot)
    yield "budget", _budget(snapshot, every_line=every_budget)
    yield "time", _time(snapshot, now)
    yield from _slots([slot for slot in snapshot.slots if alive or slot.number is not None], now)
    if snapshot.stress:
        yield "stress", _stress(snapshot)
    if snapshot.asked and alive:
        yield "asked", _asked(snapshot, now)
    for question in snapshot.questions:
        yield "question", question.text
        yield "answer", answer_command(question, file) + _without(question, now)


def _state(snapshot: Snapshot, file: Path, *, alive: bool, stopping: bool) -> str:
    if stopping:
        return "stopping at the next step; running jobs go on"
    if snapshot.paused and snapshot.status is not StudyStatus.FINISHED:
        goes_on = f"no new job is started; `{command('resume', file)}` goes on"
        return f"paused: {goes_on}" if alive else f"paused: {goes_on} (no lab is running it)"
    if snapshot.status is StudyStatus.RUNNING and not alive:
        return f"interrupted: its lab is gone; `{command('run', file)}` goes on with it"
    if snapshot.status is StudyStatus.WAITING:
        return "waiting for an answer"
    return f"{snapshot.status.value}: {PHASES.get(snapshot.phase, snapshot.phase)}"


def _experiments(snapshot: Snapshot) -> str:
    verdicts = [f"{snapshot.verdicts[kind]} {word}" for kind, word in VERDICTS.items() if kind in snapshot.verdicts]
    return f"{snapshot.experiments} tried" + (f": {', '.join(verdicts)}" if verdicts else "")


def _baseline(snapshot: Snapshot) -> str:
    if snapshot.baseline is None:
        return "not measured yet"
    return f"{snapshot.metric} {snapshot.baseline_text}, mean of {count(snapshot.baseline_runs, 'run')}"


def _best(snapshot: Snapshot) -> str:
    best = snapshot.best
    if best is None:
        return "nothing better than the baseline" if snapshot.verdicts else "–"
    text = f"{best.number:02d} {best.variable}: {best.value_text}, {best.label}"
    return f"{text}\n{best.change_text}" if best.change_text else text


def _budget(snapshot: Snapshot, *, every_line: bool) -> str:
    """The counts, and below them the tightest limit or, on `every_line`, all of them."""
    parts = [_of(snapshot.runs_ended, snapshot.runs_budget, "run")]
    if snapshot.experiments_budget:
        parts.append(_of(snapshot.experiments, snapshot.experiments_budget, "experiment"))
    if snapshot.runs_failed:
        parts.append(f"{count(snapshot.runs_failed, 'run')} failed")
    limited = [line for line in snapshot.budget if line.share is not None]
    if not every_line:
        tightest = max(limited, key=lambda line: line.share or 0.0, default=None)
        # Counts stand above, the clock in the row below.
        limited = [tightest] if tightest and tightest.resource in ("gpu_hours", "llm_tokens", "cost_usd") else []
    return "\n".join([", ".join(parts), *(_budget_line(line) for line in limited)])


def _budget_line(line: BudgetLine) -> str:
    name, words = RESOURCES[line.resource]
    text = f"{name}: {words(line.used)} used"
    if line.reserved:
        text += f", {words(line.reserved)} reserved"
    text += f" of {words(line.limit or 0.0)}"
    return f"{text}; at the end at most {words(line.forecast)}" if line.forecast is not None else text


def _of(used: int, allowed: int | None, noun: str) -> str:
    return f"{used} of {count(allowed, noun)}" if allowed else count(used, noun)


def _time(snapshot: Snapshot, now: datetime) -> str:
    if snapshot.started_at is None:
        return "not started"
    until = snapshot.finished_at or now
    parts = [_elapsed(until - snapshot.started_at)]
    if snapshot.finished_at:
        return f"{parts[0]}, ended {clock(snapshot.finished_at, now)}"
    if snapshot.status is not StudyStatus.RUNNING:
        parts = [f"{parts[0]} since the first start"]
    elif snapshot.expected_end:
        parts.append(f"expected end {clock(snapshot.expected_end, now)}")
    if snapshot.deadline:
        parts.append(f"deadline {clock(snapshot.deadline, now)}")
    return ", ".join(parts)


def _slots(slots: list[SlotNow], now: datetime) -> Iterator[tuple[str, str]]:
    shown = slots if len(slots) <= MAX_SLOTS else slots[: MAX_SLOTS - 1]
    for slot in shown:
        yield f"slot {slot.slot}", _slot(slot, now)
    if rest := slots[len(shown) :]:
        busy = sum(slot.number is not None for slot in rest)
        yield f"slots {rest[0].slot}–{rest[-1].slot}", f"{busy} of {len(rest)} busy"


def _slot(slot: SlotNow, now: datetime) -> str:
    if slot.number is None:
        return "free"
    what = f"seed {slot.seed}" if slot.repeat is None else f"stress {slot.check} {slot.repeat + 1}"
    text = f"{slot.number:02d} {slot.variable}, {what}"
    return f"{text}, {_elapsed(now - slot.since)}" if slot.since else text


def _stress(snapshot: Snapshot) -> str:
    told = [f"{one.number:02d} {one.check}: {one.ended} of {count(one.repeats, 'repeat')}" for one in snapshot.stress]
    return "; ".join(told[:MOST_TOLD]) + (f"; {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else "")


def _asked(snapshot: Snapshot, now: datetime) -> str:
    """`a model, about the review of 03, for 2 min`."""
    told = [ASKED[one.kind] + (f" of {one.number:02d}" if one.number is not None else "") for one in snapshot.asked]
    first = snapshot.asked[0].since
    since = f", for {_elapsed(now - first)}" if first and len(told) == 1 else ""
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f"a model, about {', '.join(told[:MOST_TOLD])}{more}{since}"


def _elapsed(span: timedelta) -> str:
    seconds = max(0, round(span.total_seconds()))
    return f"{seconds} s" if seconds < 60 else duration(seconds)


def _without(question: Question, now: datetime) -> str:
    return f"\nwithout one by {clock(question.deadline, now)}: {question.default}" if question.deadline else ""


def answer_command(question: Question, file: Path) -> str:
    """`nightlab answer plan yes|no`."""
    return command("answer", file, question.id, "|".join(question.options))


def event_line(event: Event) -> str:
    """`17:06:02  05 measured: seed 0: val_loss 2.28`."""
    number = f"{event.number:02d} " if event.number is not None else ""
    return f"{event.time.astimezone():%H:%M:%S}  {number}{event.kind}: {event.text}"


def clock(moment: datetime, now: datetime) -> str:
    """`17:06`; another day's with its date."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if local.date() == now.astimezone().date() else f"{local:%a %d %b %H:%M}"
