"""Questions at the command line: inbox, answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import DEFAULT, JsonOption, StudyOption, command, opened, person, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from nightlab.knowledge.records import Question

__all__ = ["register"]


def inbox(
    study: StudyOption = DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Those already answered, too.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer in the browser and by replies; for when no lab is running.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """What the lab asks you.

    Each question with its evidence, its options, and what holds without an answer.
    """
    from nightlab.graph.process import running_lab
    from nightlab.graph.questions import settle
    from nightlab.knowledge.records import utc_now

    if serve:
        if every or json:
            raise typer.BadParameter("stands alone, without --all and --json", param_hint="--serve")
        from nightlab.cli.serving import serve_questions

        serve_questions(study)
        return
    now = utc_now()
    with opened(study) as (ledger, _, place):
        # A running lab does it by itself.
        if running_lab(place.paths) is None:
            settle(ledger, now)
        questions = ledger.questions(open_only=not every)
    if json:
        print_json([question.model_dump(mode="json") for question in questions])
    elif questions:
        typer.echo("\n\n".join("\n".join(_lines(question, now, study)) for question in questions))
    else:
        typer.echo("Nothing has been asked yet." if every else "No question is open.")


def _lines(question: Question, now: datetime, file: Path) -> Iterator[str]:
    from nightlab.cli.panel import answer_command, clock

    yield f"{question.id} ({question.kind}, asked {clock(question.asked_at, now)})"
    yield f"  question  {question.text}"
    if question.evidence:
        yield f"  evidence  {question.evidence}"
    if question.answer is not None and question.answered_at is not None:
        yield f"  answered  {question.answer}, by {question.answered_by}, {clock(question.answered_at, now)}"
        return
    yield f"  waits     {', '.join(question.blocks) or 'nothing'}"
    until = f" without an answer by {clock(question.deadline, now)}" if question.deadline else ", but never by itself"
    yield f"  default   {question.default}{until}"
    yield f"  answer    {answer_command(question, file)}"


def answer(
    question: Annotated[str, typer.Argument(help="Id of the question.", metavar="ID")],
    choice: Annotated[str, typer.Argument(help="One of its options.", metavar="OPTION")],
    study: StudyOption = DEFAULT,
    by: Annotated[str, typer.Option("--by", help="Who answers (default: you).", metavar="NAME")] = "",
) -> None:
    """Answer a question of the lab."""
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.answering import record_answer
    from nightlab.graph.backups import copy_without_lab
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import StudyStatus
    from nightlab.worktrees.git import Git

    with opened(study) as (ledger, _, place):
        known = [asked.id for asked in ledger.questions()]
        if question not in known:
            mend = f"asked so far: {', '.join(known)}" if known else "nothing has been asked yet"
            raise ConfigError(Fault(f"has no question {question}", file=study, mend=mend))
        answered, done = record_answer(ledger, Git(place.root), question, choice, by=by or person())
        is_over = ledger.study_row().status is StudyStatus.FINISHED
        is_running = running_lab(place.paths) is not None
    if not is_running:
        copy_without_lab(place.paths)
    if done or is_over:
        go_on = f"Now {done}." if done else "It is noted; the study has ended."
    else:
        go_on = "The lab goes on with it." if is_running else f"Go on: {command('run', study)}"
    typer.echo(f"{answered.id}: {answered.answer}. {go_on}")


def register(app: typer.Typer) -> None:
    for function in (inbox, answer):
        app.command()(function)
