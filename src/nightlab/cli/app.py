"""The command line's root: which commands there are, and how an error reaches a person.

Importing this module must stay cheap (`nightlab --help` is measured by a test): every command imports what it needs
inside its own function.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import traceback
from typing import Annotated

import typer

from nightlab.cli.asking import register as register_asking
from nightlab.cli.catalog import register as register_catalog
from nightlab.cli.data import register as register_data
from nightlab.cli.distilling import register as register_distilling
from nightlab.cli.reading import register as register_reading
from nightlab.cli.recovering import register as register_recovering
from nightlab.cli.running import register as register_running
from nightlab.cli.scoring import register as register_scoring
from nightlab.cli.stress import register as register_stress
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
register_asking(app)
register_upkeep(app)
register_recovering(app)
register_catalog(app)
register_data(app)
register_scoring(app)
register_stress(app)
register_distilling(app)


PLAIN = {"−": "-", "–": "-", "…": "...", "→": "->", "±": "+-", "·": "-", "≤": "<=", "≥": ">=", "×": "x"}
"""What stands for a sign that a terminal's encoding does not hold; any other becomes a question mark."""


BROKEN = (
    "nightlab: this is a fault of nightlab itself, told above; records and jobs are as they were. `nightlab status` "
    "shows them, the same command goes on; the jobs' logs are in .nightlab/<study>/logs\n"
)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


# The search works on small matrices, where several threads cost more than they give, and the cores belong to the jobs.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Entry point of `nightlab`: a user's mistake is one line a fault on stderr and exit status 2."""
    for variable in ONE_THREAD:
        os.environ.setdefault(variable, "1")
    codecs.register_error("nightlab-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="nightlab-plain")
    try:
        app(prog_name="nightlab")
    except NightlabError as error:
        sys.stderr.writelines(f"nightlab: {line}\n" for line in _safe(error, str(error)).splitlines())
        sys.exit(2)
    except Exception as error:  # noqa: BLE001 - the last resort: what Python would print may hold a secret
        sys.stderr.write(_safe(error, "".join(traceback.format_exception(error))) + BROKEN)
        sys.exit(1)


def _safe(error: Exception, text: str) -> str:
    """The text without secrets; loads what knows them only now."""
    from nightlab.tools.redaction import redactor_for

    return redactor_for(error).redact(text)
