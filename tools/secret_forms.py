"""How a secret may be spelled in a text, and what keys look like that nobody declared.

A value is looked for as it is and as JSON (twice over), Python, shell, HTML and URL quoting write it, in hexadecimal,
and in base64 at each of the three alignments it can have inside a longer encoded text, e.g. in a `Basic` header, or
broken into lines (values of ten characters and more). Not covered: compression, encryption, a value printed in pieces.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from urllib.parse import quote, quote_plus

__all__ = [
    "MINIMUM_CHARACTERS",
    "SHAPE_WINDOW_BYTES",
    "TOKEN_SHAPES",
    "as_bytes",
    "base64_spellings",
    "literals",
    "spellings",
]

MINIMUM_CHARACTERS = 6
"""Shorter values are common words and numbers: looking for them would shred every text."""

_LINE_CHARACTERS = 16
_HEX_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_QUOTINGS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    lambda text: repr(text)[1:-1],
    lambda text: repr(text)[1:-1].replace("\\'", "'").replace("'", "\\'"),
    lambda text: text.replace("'", "'\"'\"'"),
    html.escape,
    lambda text: html.escape(text, quote=False),
    # Markup and Jinja write quotes as decimal references.
    lambda text: html.escape(text, quote=False).replace('"', "&#34;").replace("'", "&#39;"),
    lambda text: quote(as_bytes(text), safe=""),
    lambda text: quote(as_bytes(text)),
    lambda text: quote_plus(as_bytes(text)),
    lambda text: _HEX_ESCAPE.sub(lambda match: match[0].lower(), quote(as_bytes(text), safe="")),
)


def as_bytes(text: str) -> bytes:
    """UTF-8; the bytes that Python hides in surrogates (`os.environ` does) come back as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def spellings(value: str) -> set[bytes]:
    """Every form to look for; none when the value is shorter than `MINIMUM_CHARACTERS`.

    Of a value of several lines each longer line is looked for as well: logs print them one at a time.
    """
    value = value.strip()
    lines = [line.strip() for line in value.splitlines()] if "\n" in value or "\r" in value else []
    parts = [value, *(line for line in lines if len(line) >= _LINE_CHARACTERS and "-----" not in line)]
    return {form for part in parts if len(part) >= MINIMUM_CHARACTERS for form in _forms(part)}


def base64_spellings(value: str) -> set[bytes]:
    """Those of the forms that are plain base64: what may be broken into lines."""
    value = value.strip()
    return (
        {core for text in _once(value) for core in _cores(as_bytes(text))}
        if len(value) >= MINIMUM_CHARACTERS
        else set()
    )


def _once(value: str) -> set[str]:
    return {value, *(quoting(value) for quoting in _QUOTINGS)}


def _forms(value: str) -> set[bytes]:
    once = _once(value)
    twice = once | {quoting(text) for text in once for quoting in _QUOTINGS}
    forms = {as_bytes(text) for text in twice} | {text.encode("utf-8", "surrogatepass") for text in twice}
    raw = as_bytes(value)
    forms |= {raw.hex().encode(), raw.hex().upper().encode()}
    return forms | {form for text in once for form in _base64_forms(as_bytes(text))}


def _base64_forms(raw: bytes) -> set[bytes]:
    cores = _cores(raw)
    return cores | {quote(core, safe="").encode() for core in cores if b"-" not in core and b"_" not in core}


def _cores(raw: bytes) -> set[bytes]:
    """The characters of a base64 text that depend on `raw` alone, for each position of `raw` in what was encoded."""
    cores = set()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)
        cores.add(encoded[-(-8 * before // 6) : 8 * (before + len(raw)) // 6])
    return cores | {core.translate(bytes.maketrans(b"+/", b"-_")) for core in cores}


def literals(forms: Iterable[bytes]) -> bytes:
    """A pattern for any of the forms, the longest first; branched by first bytes, for one long list is slow to try."""
    branches: dict[bytes, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for form in sorted(forms, key=lambda form: (-len(form), form)):
        branches[form[:1]][form[1:2]].append(form[2:])
    return b"|".join(
        re.escape(first)
        + b"(?:%s)"
        % b"|".join(re.escape(second) + b"(?:%s)" % b"|".join(map(re.escape, rests)) for second, rests in then.items())
        for first, then in branches.items()
    )


def _token(prefix: bytes, rest: bytes) -> bytes:
    """A key that starts a word. The prefix comes first, for the search is fast where a pattern starts with text.

    It may follow an escape (`\n`, `%3D`) or a colour, whose last character is a letter or a digit.
    """
    before = (
        rb"(?<![A-Za-z0-9]%s)",
        rb"(?<=\\[nrtbf]%s)",
        rb"(?<=%%[0-9A-Fa-f]{2}%s)",
        rb"(?<=u00[0-9A-Fa-f]{2}%s)",
        rb"(?<=[0-9;]m%s)",
    )
    return prefix + b"(?:" + b"|".join(behind % prefix for behind in before) + b")" + rest


# What an earlier pass has put there is no key.
_FRESH = rb"(?!\[redacted|\*\*\*)"
_ARMOUR = rb"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# The second form is a block that was cut off: only lines of base64, not the prose that may follow.
_PEM = (
    rb"-----BEGIN "
    + _ARMOUR
    + rb"(?:(?:[^-]|-(?!----)){0,16384}+-----END "
    + _ARMOUR
    + rb"|(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/=]{16,200}){0,200})"
)
_SHAPES: tuple[tuple[bytes, bytes], ...] = (
    (b"PRIVATE", _PEM),
    (b"sk-", _token(b"sk-", rb"(?=[\w-]{0,200}?[A-Za-z0-9]{16})(?=[A-Za-z_-]{0,200}[0-9])[\w-]{20,4096}")),
    (b"hf_", _token(b"hf_", rb"[A-Za-z0-9]{20,200}")),
    (b"gh", _token(b"gh[pousr]_", rb"[A-Za-z0-9]{20,500}")),
    (b"github_pat_", _token(b"github_pat_", rb"\w{20,500}")),
    (b"glpat-", _token(b"glpat-", rb"[\w-]{20,200}")),
    (b"AKIA", _token(b"AKIA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])")),
    (b"ASIA", _token(b"ASIA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])")),
    (b"AIza", _token(b"AIza", rb"[\w-]{35}")),
    (b"xox", _token(b"xox[abeoprs]-", rb"(?=[A-Za-z-]{0,200}[0-9])[A-Za-z0-9-]{10,500}")),
    (b"xapp-", _token(b"xapp-", rb"[0-9][A-Za-z0-9-]{10,500}")),
    (b"eyJ", _token(b"eyJ", rb"[\w-]{10,512}+\.eyJ[\w-]{4,4096}\.[\w-]{8,4096}")),
    (
        b"uthorization",
        rb"([Aa]uthorization[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}(?i:basic|bearer|token)\s{1,4})"
        + _FRESH
        + rb"[^\s\"'\\,;]{1,4096}",
    ),
    (
        b"earer",
        rb"([Bb]earer(?:\s|%20|\+){1,4})" + _FRESH + rb"(?=[\w.~+/=-]{20}|[A-Za-z._~+/-]{0,19}[0-9])[\w.~+/=-]{8,4096}",
    ),
    (b"://", rb"(://[^\s/@:\"'<>]{0,200}:)" + _FRESH + rb"[^\s/@\"'<>]{1,200}(?=@)"),
    (b"token=", rb"([?&](?:access_|auth_)?token=)" + _FRESH + rb"[^\s&#\"'<>\\]{6,4096}"),
    (b"key=", rb"([?&](?:api_?|access_)?key=)" + _FRESH + rb"[^\s&#\"'<>\\]{6,4096}"),
    (b"hooks.slack", rb"(hooks\.slack(?:-gov)?\.com/services/)" + _FRESH + rb"[\w/-]{8,200}"),
    (b"/bot/v2/hook/", rb"(/bot/v2/hook/)" + _FRESH + rb"[\w-]{8,200}"),
)

TOKEN_SHAPES = tuple((hint, re.compile(pattern)) for hint, pattern in _SHAPES)
"""Keys known by their shape, each with a piece of text without which there is none (a quick first look).

What a pattern's group holds stands before the key and is kept.
"""

SHAPE_WINDOW_BYTES = 1 << 16
"""No match is longer, what it looks at before and behind included."""
