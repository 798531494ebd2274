"""`run` as a person sees it: a live panel on a terminal, one line an event anywhere else."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from nightlab.agents.code_space import study_of
from nightlab.agents.context import Lab
from nightlab.cli.common import command, console, short
from nightlab.cli.panel import answer_command, event_line, render
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import JobState, Question, StudyStatus, utc_now
from nightlab.night import Outcome, run_night
from nightlab.report.load import load_report
from nightlab.report.model import StudyReport
from nightlab.report.numbers import count
from nightlab.status import Snapshot, snapshot_of

__all__ = ["run_with_display"]

INTERRUPTED = 130


class _Lines:
    """Follows a lab where there is no terminal: one line an event."""

    def __init__(self) -> None:
        self.attached = False
        self.seen = 0

    def attach(self, lab: Lab) -> None:
        events = lab.ledger.events()
        self.seen = events[-1].id if events else 0
        self.attached = True
        lab.on_change = lambda: self.update(lab)

    def update(self, lab: Lab) -> None:
        for event in lab.ledger.events(after=self.seen):
            _say(event_line(event))
            self.seen = event.id

    def stopping(self) -> None:
        # Called from a signal handler: nothing buffered may be touched.
        os.write(2, b"Stopping at the next step; running jobs go on. Ctrl-C again ends the lab at once.\n")


class _Panel:
    """Follows a lab on a terminal: a panel redrawn at each change, and every second for the times in it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.attached = False
        self.snapshot: Snapshot | None = None
        self.is_stopping = False
        self.live: Live | None = None
        self.hang_up: Callable[[], None] | None = None

    def attach(self, lab: Lab) -> None:
        self.attached = True
        lab.on_change = lambda: self.update(lab)
        self.update(lab)

    def update(self, lab: Lab) -> None:
        self.snapshot = snapshot_of(lab.ledger, lab.study, lab.now())
        if self.live:
            try:
                self.live.refresh()
            except OSError as error:
                # The terminal is gone, and the signal that says so has yet to come.
                if error.errno != errno.EIO or self.hang_up is None:
                    raise
                self.hang_up()

    def stopping(self) -> None:
        self.is_stopping = True

    def draw(self) -> RenderableType:
        if self.snapshot is None:
            return Text()
        alive = self.snapshot.status is StudyStatus.RUNNING
        stopping = self.is_stopping and alive
        return render(self.snapshot, utc_now(), self.file, alive=alive, stopping=stopping, every_budget=False)


def run_with_display(file: Path, *, allow_dirty: bool = False) -> int:
    """Run the night of `file` and show it; returns the exit status.

    0: finished, stopped or waiting for an answer; 1: the baseline gave no value; 130: interrupted.
    """
    out = console()
    display = _Panel(file) if out.is_terminal else _Lines()
    try:
        with _hang_up_survived() as hang_up:
            if isinstance(display, _Lines):
                outcome = run_night(
                    file, allow_dirty=allow_dirty, say=_say, watch=display.attach, on_stop=display.stopping
                )
            else:
                display.hang_up = hang_up
                with Live(console=out, get_renderable=display.draw, refresh_per_second=1) as display.live:
                    outcome = run_night(
                        file, allow_dirty=allow_dirty, say=out.print, watch=display.attach, on_stop=display.stopping
                    )
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{_interrupted(file, begun=display.attached)}\n")
        return INTERRUPTED
    return _closing(outcome, file)


@contextmanager
def _hang_up_survived() -> Iterator[Callable[[], None]]:
    """A terminal that is closed ends the display, not the night; yields what ends the display."""
    # Asked now: a terminal that is gone no longer says that it is one.
    shown_on = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def hang_up() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in shown_on:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)

    def go_on(_number: int, _frame: FrameType | None) -> None:
        hang_up()

    before = signal.getsignal(signal.SIGHUP)
    # Under `nohup` it is ignored: then nothing else would say that the terminal is gone.
    if before in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(signal.SIGHUP, go_on)
    try:
        yield hang_up
    finally:
        signal.signal(signal.SIGHUP, before)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _interrupted(file: Path, *, begun: bool) -> str:
    if not begun:
        return "Interrupted before the study began; nothing is left behind."
    return f"Interrupted. Running jobs go on by themselves; `{command('run', file)}` takes them over."


def _closing(outcome: Outcome, file: Path) -> int:
    """The last lines: how it ended, what was won, where everything lies."""
    paths = outcome.place.paths
    with Ledger.open(paths.ledger) as ledger:
        report = load_report(ledger, study_of(ledger), paths)
        questions = ledger.questions(open_only=True)
        running = len(ledger.jobs(states=(JobState.RUNNING,)))
    out = console()
    out.print()
    if outcome.already_finished:
        out.print("This study is finished already; nothing was started. A larger budget in its file goes on with it.")
    elif outcome.status is StudyStatus.STOPPED:
        out.print(f"Stopped; {_go_on(running)}.")
    for question in questions:
        out.print(question.text)
    out.print(report.headline)
    for name, text in [*_places(outcome, report), *_next_commands(outcome, questions, running, file)]:
        # Never broken: to be copied as a whole.
        out.print(f"{name:8} {text}", soft_wrap=True)
    return 1 if outcome.status is StudyStatus.FINISHED and report.noise is None else 0


def _go_on(running: int) -> str:
    if not running:
        return "no job is running"
    return f"{count(running, 'running job')} {'goes' if running == 1 else 'go'} on without the lab"


def _places(outcome: Outcome, report: StudyReport) -> Iterator[tuple[str, str]]:
    paths = outcome.place.paths
    yield "report", short(paths.final_report_html)
    yield "table", short(paths.results_csv)
    if report.winner is None:
        yield "winner", "none confirmed"
        return
    yield "winner", report.winner.branch
    here = paths.root == Path.cwd().resolve()
    yield "take it", f"git {'' if here else f'-C {short(paths.root)} '}merge {report.winner.branch}"


def _next_commands(
    outcome: Outcome, questions: Sequence[Question], running: int, file: Path
) -> Iterator[tuple[str, str]]:
    for question in questions:
        yield "answer", answer_command(question, file)
    if outcome.status is not StudyStatus.FINISHED:
        yield "go on", command("run", file) + (" (after the answer)" if questions else "")
        if running:
            yield "end jobs", command("stop", file, "--kill-jobs")
