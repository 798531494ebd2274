"""`final_report.md`: the report as plain markdown, every word that came from outside escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from nightlab.configs.files import write_atomically
from nightlab.report.model import StudyReport
from nightlab.report.view import template_values

__all__ = ["Raw", "escape_markdown", "render_markdown", "write_markdown"]

SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$])")
LIST_START = re.compile(r"^(\s*\d*)([-+.)])(?=\s)")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class Raw(str):
    """Text that is markdown already."""

    __slots__ = ()


def escape_markdown(value: object) -> str:
    """One line of text that markdown shows as it is, inside a table too."""
    if isinstance(value, Raw):
        return value
    line = re.sub(r"\s*[\r\n]\s*", " ", CONTROL.sub("", str(value)))
    escaped = LIST_START.sub(r"\1\\\2", SPECIAL.sub(r"\\\1", line.replace("&", "&amp;")))
    # An address must not become a link by itself.
    return escaped.replace("://", ":&#47;&#47;")


def header(cells: Iterable[object]) -> Raw:
    """The head of a table and the line under it."""
    escaped = [escape_markdown(cell) for cell in cells]
    return Raw(f"| {' | '.join(escaped)} |\n|{' --- |' * len(escaped)}")


def code(value: object) -> Raw:
    """A code span for one line of text; its pipes do not end a table's cell."""
    line = " ".join(CONTROL.sub("", str(value)).split())
    longest = max((len(ticks) for ticks in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return Raw(f"{fence}{pad}{line.replace('|', chr(92) + '|')}{pad}{fence}")


def render_markdown(report: StudyReport) -> str:
    """The whole document."""
    # Markdown has no autoescape; `finalize` escapes every value that is not Raw instead.
    environment = Environment(  # noqa: S701
        loader=PackageLoader("nightlab.report"),
        finalize=escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = code
    values = template_values(report)
    values |= {"header": header, "merge": Raw(values["merge"])}
    text = environment.get_template("final_report.md.j2").render(values)
    return re.sub(r"\n{3,}", "\n\n", text)


def write_markdown(report: StudyReport, path: Path, redact: Callable[[str], str] = str) -> None:
    write_atomically(path, redact(render_markdown(report)))
