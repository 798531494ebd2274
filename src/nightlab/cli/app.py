"""The command line's root: which commands there are, and how an error reaches a person.

Importing this module must stay cheap (`nightlab --help` is measured by a test): every command imports what it needs
inside its own function.
"""

from __future__ import annotations

import codecs
import io
import sys
from typing import Annotated

import typer

from nightlab.cli.catalog import register as register_catalog
from nightlab.cli.reading import register as register_reading
from nightlab.cli.recovering import register as register_recovering
from nightlab.cli.running import register as register_running
from nightlab.cli.upkeep import register as register_upkeep
from nightlab.errors import NightlabError

__all__ = ["app", "main"]

app = typer.Typer(
    name="nightlab",
    help="An autonomous overnight research lab for model training.",
    epilog="See it work: nightlab demo. In your repository: nightlab init, nightlab check, nightlab run.",
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
register_upkeep(app)
register_recovering(app)
register_catalog(app)


PLAIN = {"−": "-", "–": "-", "…": "...", "→": "->", "±": "+-", "·": "-", "≤": "<=", "≥": ">=", "×": "x"}
"""What stands for a sign that a terminal's encoding does not hold; any other becomes a question mark."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def main() -> None:
    """Entry point of `nightlab`: a user's mistake is one line a fault on stderr and exit status 2."""
    codecs.register_error("nightlab-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="nightlab-plain")
    try:
        app(prog_name="nightlab")
    except NightlabError as error:
        sys.stderr.writelines(f"nightlab: {line}\n" for line in str(error).splitlines())
        sys.exit(2)
