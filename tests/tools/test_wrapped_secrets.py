"""Base64 broken into lines, as programs print it; and that the quick first look overlooks nothing in a long log."""

from __future__ import annotations

import base64
import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.tools.redacted_files import redact_file
from nightlab.tools.redaction import Redactor
from nightlab.tools.secret_probe import PROBE_BYTES, Probe
from tests.tools.test_redaction import KEY, PEM, TOKENS

LONG = bytes(n * n % 251 for n in range(900)).hex()


def printed(text: str, *options: str) -> str:
    """What the `base64` command prints."""
    done = subprocess.run(["base64", *options], input=text.encode(), capture_output=True, check=True)
    return done.stdout.decode()


def decoded(text: str) -> bytes:
    """Everything that somebody gets who takes the breaks out and decodes."""
    joined = text.replace("\\r\\n", "").replace("\\n", "").replace("\r", "").replace("\n", "").replace(" ", "")
    clean = "".join(c if c.isalnum() or c in "+/" else "." for c in joined)
    found = b""
    for part in clean.split("."):
        for skipped in range(4):
            whole = part[skipped:]
            found += base64.b64decode(whole[: len(whole) // 4 * 4])
    return found


BREAKS: list[Callable[[str], str]] = [
    str,
    lambda text: textwrap.indent(text, "    "),
    lambda text: text.replace("\n", "\r\n"),
    lambda text: json.dumps({"data": text}),
    repr,
    lambda text: json.dumps(text.replace("\n", "\r\n")),
]


@pytest.mark.parametrize("secret", [KEY, LONG, PEM.strip()], ids=["key", "long", "pem"])
@pytest.mark.parametrize("before", [*range(0, 78, 7), 54, 55, 56, 57, 58])
def test_a_secret_in_what_base64_prints_is_gone(secret: str, before: int) -> None:
    redactor = Redactor([("K", secret)])
    for options in ((), ("-w", "64")):
        plain = printed("x" * before + secret + "y" * 100, *options)
        assert len(plain.splitlines()) > 1 and secret.encode() in decoded(plain)
        for breaks in BREAKS:
            safe = redactor.redact(f"head\n{breaks(plain)}\ntail")
            assert secret.encode() not in decoded(safe)
            assert "[redacted:K]" in safe and safe.startswith("head\n") and safe.endswith("\ntail")


@given(st.integers(0, 200), st.integers(16, 90), st.integers(1, 5000))
def test_wherever_the_lines_and_the_pieces_break(before: int, width: int, size: int) -> None:
    text = base64.b64encode(b"x" * before + KEY.encode() + b"y" * 50).decode()
    raw = ("step 1\n" * 9000 + "\n".join(textwrap.wrap(text, width)) + "\nstep 2\n" * 20).encode()
    redactor = Redactor([("K", KEY)])
    safe = b"".join(redactor.redact_bytes(raw[at : at + size] for at in range(0, len(raw), size)))
    assert KEY.encode() not in decoded(safe.decode()) and b"[redacted:K]" in safe
    assert safe.decode() == redactor.redact(raw.decode())


def test_base64_of_something_else_stays() -> None:
    plain = printed(KEY[::-1] * 20)
    assert Redactor([("K", KEY)]).redact(plain) is plain


@pytest.mark.parametrize("secret", [KEY, TOKENS["github"], TOKENS["pem"], f"Authorization: Bearer {KEY[::-1]}"])
def test_at_no_place_of_a_long_log_is_a_secret_overlooked(secret: str) -> None:
    """Around the blocks a log is read in, and far from them."""
    redactor = Redactor([("K", KEY)])
    block = 1 << 16
    places = [edge + shift for edge in (block, 2 * block, 4 * block) for shift in (-60, -21, -7, -1, 0, 1, 30)]
    for place in [*places, 0, 5 * block]:
        log = bytearray(b"step 12 loss 2.5\n" * 25_000)
        log[place : place + len(secret) + 2] = f"\n{secret}\n".encode()
        for size in (block, 1 << 18, 10_007):
            pieces = (bytes(log[at : at + size]) for at in range(0, len(log), size))
            safe = b"".join(redactor.redact_bytes(pieces))
            assert secret.encode() not in safe and b"[redacted" in safe
            assert safe.count(b"step 12") >= log.count(b"step 12") - 1


@given(
    st.lists(st.binary(min_size=PROBE_BYTES, max_size=12), min_size=1, max_size=20),
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.data(),
)
def test_the_first_look_never_overlooks_a_beginning(
    starts: list[bytes], before: bytes, after: bytes, data: st.DataObject
) -> None:
    probe = Probe(starts)
    assert probe.may_hold(before + data.draw(st.sampled_from(starts)) + after)
    known = {start[:PROBE_BYTES] for start in starts}
    there = any(before[at : at + PROBE_BYTES] in known for at in range(len(before)))
    assert probe.may_hold(before) == there


def test_a_file_is_replaced_only_where_it_holds_a_secret(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("step 1 https://example.org/x\n" * 20_000)
    before = log.stat()
    assert not redact_file(log, Redactor([("K", KEY)]))
    assert (log.stat().st_ino, log.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with log.open("a") as more:
        more.write(printed("user:" + KEY))
    assert redact_file(log, Redactor([("K", KEY)]))
    assert KEY.encode() not in decoded(log.read_text()[-400:]) and log.read_text().count("step 1") == 20_000
