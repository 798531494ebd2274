"""The command line's root: which commands there are, and how an error reaches a person.

Importing this module must stay cheap (`nightlab --help` is measured by a test): every command imports what it needs
inside its own function.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nightlab.cli.catalog import register as register_catalog
from nightlab.cli.reading import register as register_reading
from nightlab.cli.running import register as register_running
from nightlab.errors import NightlabError

__all__ = ["app", "main"]

app = typer.Typer(
    name="nightlab",
    help="An autonomous overnight research lab for model training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(show: bool) -> None:
    if show:
        import nightlab

        typer.echo(f"nightlab {nightlab.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """An autonomous overnight research lab for model training."""


register_running(app)
register_reading(app)
register_catalog(app)


def main() -> None:
    """Entry point of `nightlab`: a user's mistake is one line a fault on stderr and exit status 2."""
    try:
        app()
    except NightlabError as error:
        sys.stderr.write(f"nightlab: {error}\n")
        sys.exit(2)
