"""`run` as a person sees it: a live panel on a terminal, one line an event anywhere else."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import humanize
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nightlab.agents.context import Lab
from nightlab.agents.documents import format_effect
from nightlab.cli.common import console, short
from nightlab.knowledge.records import StudyStatus, utc_now
from nightlab.night import Outcome, run_night
from nightlab.status import Snapshot, snapshot_of

if TYPE_CHECKING:
    from nightlab.graph.opening import Place

__all__ = ["render", "run_with_display"]


def render(snapshot: Snapshot, *, alive: bool) -> RenderableType:
    """The panel of `run` and `status`."""
    facts = Table.grid(padding=(0, 2))
    state = snapshot.status.value if alive or snapshot.status is not StudyStatus.RUNNING else "interrupted"
    facts.add_row("state", f"{state}, {snapshot.phase}")
    facts.add_row("experiments", _counts(snapshot))
    facts.add_row("baseline", _baseline(snapshot))
    facts.add_row("best so far", _best(snapshot))
    facts.add_row("budget", _budget(snapshot))
    for slot in snapshot.slots:
        facts.add_row(f"slot {slot.slot}", _slot(slot.number, slot.variable, slot.seed, slot.seconds))
    for question in snapshot.questions:
        facts.add_row("question", f"{question.text} nightlab answer {question.id} {'|'.join(question.options)}")
    return Group(
        Panel(facts, title=f"nightlab · {snapshot.study}", title_align="left"), Text(snapshot.last_event[:160])
    )


def _counts(snapshot: Snapshot) -> str:
    verdicts = ", ".join(f"{n} {kind}" for kind, n in sorted(snapshot.verdicts.items()))
    return f"{snapshot.experiments}" + (f" ({verdicts})" if verdicts else "")


def _baseline(snapshot: Snapshot) -> str:
    if snapshot.baseline is None:
        return "not measured yet"
    return f"{snapshot.metric} {snapshot.baseline:.5g} {snapshot.unit} ({snapshot.baseline_runs} runs)"


def _best(snapshot: Snapshot) -> str:
    best = snapshot.best
    if best is None:
        return "–"
    text = f"{best.number:02d} {best.variable}: {best.value:.5g} {snapshot.unit}"
    if best.effect:
        text += f", {format_effect(best.effect)}"
    return f"{text}, {best.label}"


def _budget(snapshot: Snapshot) -> str:
    of = f" of {snapshot.runs_budget}" if snapshot.runs_budget else ""
    text = f"{snapshot.runs_ended}{of} runs"
    if snapshot.runs_failed:
        text += f", {snapshot.runs_failed} failed"
    if snapshot.started_at:
        until = snapshot.finished_at or utc_now()
        text += f", {humanize.precisedelta(round((until - snapshot.started_at).total_seconds()))}"
    if snapshot.expected_end and snapshot.finished_at is None:
        text += f", expected end {_clock(snapshot.expected_end)} at the latest"
    return text


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


def _slot(number: int | None, variable: str, seed: int | None, seconds: float | None) -> str:
    if number is None:
        return "free"
    return f"{number:02d} {variable}, seed {seed}, {seconds or 0:.0f} s"


class _Display:
    """Follows a lab: redraws the panel, or prints the events that are new."""

    def __init__(self, live: Live | None) -> None:
        self.live = live
        self.seen = 0

    def attach(self, lab: Lab) -> None:
        if self.live is None:
            events = lab.ledger.events()
            self.seen = events[-1].id if events else 0
        lab.on_change = lambda: self.update(lab)
        self.update(lab)

    def update(self, lab: Lab) -> None:
        if self.live is not None:
            self.live.update(render(snapshot_of(lab.ledger, lab.study, lab.now()), alive=True), refresh=True)
            return
        for event in lab.ledger.events(after=self.seen):
            number = f" {event.number:02d}" if event.number is not None else ""
            sys.stdout.write(f"{_clock(event.time)}  {event.kind}{number}: {event.text}\n")
            self.seen = event.id
        sys.stdout.flush()


def run_with_display(file: Path, *, allow_dirty: bool = False) -> int:
    """Run the night of `file` and show it; returns the exit status: 0 finished, stopped or waiting, 1 no baseline."""
    out = console()
    if not out.is_terminal:
        outcome = run_night(file, allow_dirty=allow_dirty, say=_say, watch=_Display(None).attach)
        return _closing(outcome)
    with Live(Text("opening the study …"), console=out, auto_refresh=False) as live:
        outcome = run_night(file, allow_dirty=allow_dirty, say=out.print, watch=_Display(live).attach)
    return _closing(outcome)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _closing(outcome: Outcome) -> int:
    """The last lines: what was won, and where everything lies."""
    from nightlab.knowledge.ledger import Ledger
    from nightlab.report.write import load_report

    paths = outcome.place.paths
    with Ledger.open(paths.ledger) as ledger:
        row = ledger.study_row()
        report = load_report(ledger, row.study, paths)
        questions = ledger.questions(open_only=True)
    _say("")
    if outcome.already_finished:
        _say(f"The study {row.name} is finished already; nothing was started. More budget in the study file goes on.")
    elif outcome.status is StudyStatus.STOPPED:
        _say("Stopped. Jobs still running go on by themselves; `nightlab run` takes them over.")
    for question in questions:
        _say(f"{question.text} Answer with: nightlab answer {question.id} {'|'.join(question.options)}")
    _say(report.headline)
    _say(f"report   {short(paths.final_report_html)}")
    _say(f"table    {short(paths.results_csv)}")
    _say(f"winner   {_winner(outcome.place)}")
    return 1 if outcome.status is StudyStatus.FINISHED and report.baseline_failed else 0


def _winner(place: Place) -> str:
    from nightlab.knowledge.ledger import Ledger

    with Ledger.open(place.paths.ledger) as ledger:
        row = ledger.study_row()
        best = snapshot_of(ledger, row.study, utc_now()).best
    if best is None or not best.confirmed:
        return "none confirmed"
    return f"{best.branch} (take it: git merge {best.branch})"
