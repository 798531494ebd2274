"""`inbox --serve`: the page on which questions are answered, while no lab is there to show it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from nightlab.cli.common import command, opened
from nightlab.configs.loading import load_study
from nightlab.configs.notify import AnswerPage, Notify
from nightlab.errors import ConfigError, Fault, StudyBusyError
from nightlab.graph.answering import AnswerDesk, hearing
from nightlab.graph.opening import Place
from nightlab.graph.process import running_lab
from nightlab.graph.questions import settle
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyStatus, utc_now
from nightlab.tools.notify import Notifier
from nightlab.tools.notify.channel import Memory
from nightlab.worktrees.git import Git

__all__ = ["serve_questions"]

LOCAL = AnswerPage(listen="127.0.0.1:8765")
"""Where the page is when the study does not say."""
LOOK_SECONDS = 0.5
FLUSH_SECONDS = 15.0


def serve_questions(file: Path) -> None:
    """Show the page and hear replies until no question is open, a lab takes over, or Ctrl-C.

    Raises StudyBusyError where the running lab hears answers itself, ConfigError where nothing can be opened.
    """
    notify = load_study(file).study.notify
    with opened(file) as (ledger, _, place):
        _refuse_beside_a_lab(notify, place)
        settle(ledger, utc_now())
        if not ledger.questions(open_only=True):
            typer.echo("No question is open.")
            return
        try:
            with _page(file, notify, ledger, place):
                _follow(file, notify, ledger, place)
        except KeyboardInterrupt:
            typer.echo("The page is closed.")


def _refuse_beside_a_lab(notify: Notify, place: Place) -> None:
    lab = running_lab(place.paths)
    if notify.hears and lab is not None:
        raise StudyBusyError(f"the lab that runs (process {lab.pid}) hears the answers itself", pid=lab.pid)


@contextmanager
def _page(file: Path, notify: Notify, ledger: Ledger, place: Place) -> Iterator[None]:
    go_on = f"No lab is running; in the study's folder: {command('run', file)}"
    is_over = ledger.study_row().status is StudyStatus.FINISHED
    desk = AnswerDesk(
        ledger, Git(place.root), place.paths, place.redactor, go_on="It is recorded." if is_over else go_on
    )
    settings = notify if notify.answers.listen else notify.model_copy(update={"answers": LOCAL})
    told: list[str] = []
    with (
        Notifier(
            notify.targets if notify.replies else [],
            place.redactor,
            kinds=notify.kinds,
            memory=Memory(seen=ledger.was_told, mark=ledger.mark_told),
        ) as notifier,
        hearing(desk, settings, tell=notifier.send, note=told.append) as ways,
    ):
        for line in told:
            typer.echo(line[0].upper() + line[1:])
        if ways is None:
            raise ConfigError(Fault("questions cannot be answered from afar", file=file, mend="see above"))
        for question in ledger.questions(open_only=True):
            typer.echo(f"\n{question.id}: {question.text}\n  {ways(question).link or 'by reply only'}")
        typer.echo("\nThe page stays until every question is answered; Ctrl-C closes it.")
        yield


def _follow(file: Path, notify: Notify, ledger: Ledger, place: Place) -> None:
    """Show the answers as they come in."""
    told = {question.id for question in ledger.questions() if question.answer is not None}
    while True:
        settle(ledger, utc_now())
        questions = ledger.questions()
        for question in questions:
            if question.answer is not None and question.id not in told:
                typer.echo(f"{question.id}: {question.answer}, by {question.answered_by}")
                told.add(question.id)
        if len(told) == len(questions):
            is_over = ledger.study_row().status is StudyStatus.FINISHED
            typer.echo("No question is open any more." + ("" if is_over else f" Go on: {command('run', file)}"))
            return
        if notify.hears and running_lab(place.paths) is not None:
            typer.echo("A lab has started; it hears the answers itself.")
            return
        time.sleep(LOOK_SECONDS)
