"""The command for a ledger that is lost: recover."""

from __future__ import annotations

import typer

from nightlab.cli.common import DEFAULT, StudyOption, command, short

__all__ = ["register"]


def recover(study: StudyOption = DEFAULT) -> None:
    """Rebuild a damaged or lost ledger.

    From the experiments' branches and the logs of their jobs; what is left of the old one is kept beside it.
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
    if done.started:
        typer.echo(f"{count(done.started, 'run')} more had been started: the next `run` reads how they ended.")
    for gap in done.not_restored:
        typer.echo(f"not restored: {gap}")
    typer.echo("What was planned but not started is planned again.")
    if done.kept:
        typer.echo(f"The damaged ledger is kept as {short(done.kept)}.")
    typer.echo(f"Go on: {command('run', study)}")


def register(app: typer.Typer) -> None:
    app.command()(recover)
