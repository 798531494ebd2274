"""The command for a ledger that is lost: recover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from nightlab.cli.common import DEFAULT, StudyOption, command, short

if TYPE_CHECKING:
    from nightlab.graph.recovery import Recovery

__all__ = ["register"]


def recover(study: StudyOption = DEFAULT) -> None:
    """Rebuild a damaged or lost ledger.

    From its newest sound copy, and what is newer from the experiments' branches and the logs of their jobs; what is
    left of the old one is kept beside it.
    """
    from nightlab.configs.loading import load_study
    from nightlab.graph.opening import locate
    from nightlab.graph.recovery import recover as rebuild
    from nightlab.report.numbers import count

    loaded = load_study(study)
    place = locate(loaded)
    done = rebuild(place, loaded.study)
    ledger = short(place.paths.ledger)
    if done is None:
        typer.echo(f"{ledger} is whole; nothing was changed.")
        return
    found = [
        count(done.experiments, "experiment"),
        f"{count(done.ended, 'run')} with {'their' if done.ended != 1 else 'its'} end",
        count(done.verdicts, "verdict"),
        count(done.questions, "question"),
    ]
    typer.echo(f"Rebuilt {ledger}: {', '.join(found[:-1])} and {found[-1]}.")
    for line in _origins(done):
        typer.echo(line)
    if done.started:
        typer.echo(f"{count(done.started, 'run')} more had been started: the next `run` reads how they ended.")
    for gap in done.not_restored:
        typer.echo(f"not restored: {gap}")
    if done.copy is None:
        typer.echo("What was planned but not started is planned again.")
    if done.kept:
        typer.echo(f"The damaged ledger is kept as {short(done.kept)}.")
    typer.echo(f"Go on: {command('run', study)}")


def _origins(done: Recovery) -> Iterator[str]:
    from nightlab.report.numbers import count

    if done.copy and done.copied_at:
        newer = f"{count(done.from_cards, 'ended run')} from result cards, {done.from_folders} more from job folders"
        yield f"It starts from the copy of {done.copied_at:%Y-%m-%d %H:%M:%S} UTC, {short(done.copy)}; newer: {newer}."
    else:
        yield "There is no sound copy of it: everything comes from branches and job folders."
    if done.retold:
        yield f"{count(done.retold, 'event')} of its story could be told anew."


def register(app: typer.Typer) -> None:
    app.command()(recover)
