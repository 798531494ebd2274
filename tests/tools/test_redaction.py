"""No secret gets through, whatever it is wrapped in; nothing else changes."""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import shlex
import traceback
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.tools.redaction import (
    RedactingFilter,
    Redactor,
    check_secrets,
    declared_secrets,
    environment_secrets,
)

KEY = "q7Zr-9pW_xT4/uV2+k=Lm"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAwX2hVbqz\n" * 20 + "-----END RSA PRIVATE KEY-----\n"

# Marks are letters, digits of the name and `[].:`; secrets of other characters cannot be spelled by one.
secrets = st.text(
    st.characters(codec="utf-8", exclude_characters="redact[]:*N\n\r \t"), min_size=6, max_size=40
).filter(lambda value: len(value.strip()) >= 6)
prose = st.text("abc de.,:/=&%\\\"'<>\n", max_size=20)


def json_twice(text: str) -> str:
    return json.dumps(json.dumps({"deep": [text]}))


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WRAPPINGS: list[Callable[[str], str]] = [
    str,
    repr,
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    json_twice,
    quote,
    lambda text: quote(text, safe=""),
    quote_plus,
    lambda text: quote(quote(text, safe=""), safe=""),
    lambda text: urlencode({"a": "b", "key": text}),
    html.escape,
    shlex.quote,
    lambda text: text.encode().hex(),
    base64_of,
    lambda text: base64_of("u:" + text),
    lambda text: base64_of("us:" + text + "!"),
    lambda text: base64.urlsafe_b64encode(("use:" + text).encode()).decode(),
    lambda text: base64_of(json.dumps({"password": text})),
]


def carries(text: str, secret: str) -> bool:
    """Whether someone who undoes one of the wrappings finds the secret in `text`."""
    return secret in text or any(wrap(secret) in text for wrap in WRAPPINGS)


@given(secret=secrets, before=prose, after=prose, wrap=st.sampled_from(WRAPPINGS))
def test_a_secret_survives_no_wrapping(secret: str, before: str, after: str, wrap: Callable[[str], str]) -> None:
    redactor = Redactor([("N", secret)])
    safe = redactor.redact(before + wrap(secret) + after)
    assert "[redacted:N]" in safe
    assert not carries(safe, secret)


def nested(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf | st.none() | st.booleans() | st.integers() | prose,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(leaf | prose, inner, max_size=4) | st.tuples(inner),
        max_leaves=12,
    )


@given(data=st.data(), secret=secrets)
def test_a_secret_survives_no_nesting(data: st.DataObject, secret: str) -> None:
    wrapped = data.draw(nested(st.sampled_from([wrap(secret) for wrap in WRAPPINGS]).map(lambda text: f"a {text} b")))
    shown = json.dumps(Redactor([("N", secret)]).redact_data(wrapped), ensure_ascii=False)
    assert secret not in shown
    assert json.dumps(secret)[1:-1] not in shown


@given(st.text(), st.lists(secrets, max_size=3))
def test_text_without_secrets_is_the_same_object(text: str, values: list[str]) -> None:
    redactor = Redactor([(f"N{i}", value) for i, value in enumerate(values)])
    if not any(value.strip() in text for value in values):
        assert redactor.redact(text) is text
        assert redactor.redact_data({"a": [text, 1.5, None, True]}) == {"a": [text, 1.5, None, True]}


@pytest.mark.parametrize(
    "text",
    [
        "risk-adjusted-learning-rate-schedule-v2 and sk-learn, sk-",
        "step 100 | loss: 2.345678 | lr: 3.0e-04 | tok/sec: 123456",
        "commit 97c4bb3f0c1f2e3d4c5b6a79887766554433221100 on experiment-03-pydoc-pretrain-lr",
        "Bearer tokens are refused; hf_transformers_cache and ghp_ stay",
        "see https://example.org:8080/a/b?monkey=banana&page=2, mail me@example.org",
        "max_tokens=4096 pad_token=<pad> key=value",
        "the line -----BEGIN PRIVATE KEY----- starts a key block, and this prose follows it",
        "tensor([[1, 2]]) sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_what_only_looks_a_little_like_a_key_stays(text: str) -> None:
    assert Redactor().redact(text).replace("[redacted]", "-----BEGIN PRIVATE KEY-----") == text


TOKENS = {
    "openai": "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1w",
    "deepseek": "sk-0123456789abcdef0123456789abcdef",
    "anthropic": "sk-ant-api03-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7-_xX",
    "hugging face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ456789",
    "github fine": "github_pat_11ABCDEFG0abcdefghijkl_0123456789abcdef",
    "gitlab": "glpat-aB3dE6gH9jK2mN5pQ8sT",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "slack": "xoxb-123456789012-abcdefABCDEF",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "pem": PEM.strip(),
    "pem escaped": json.dumps(PEM.strip())[1:-1],
    "pem cut off": PEM[:200].strip(),
}


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", 'key="{}"', "a\n{}\nb", r"a\n{}\nb", "x%3D{}", "\x1b[32m{}\x1b[0m", '{{"k": "{}"}}', "({}),"]
)
def test_keys_are_known_by_their_shape(kind: str, around: str) -> None:
    safe = Redactor().redact(around.format(TOKENS[kind]))
    assert safe == around.format("[redacted]")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Authorization: Bearer abc", "Authorization: Bearer [redacted]"),
        ('"authorization": "Basic dTpw"', '"authorization": "Basic [redacted]"'),
        ("curl -H 'X: Bearer a1b2c3d4e5'", "curl -H 'X: Bearer [redacted]'"),
        ("bearer abcdefghijklmnopqrstuvwxyz", "bearer [redacted]"),
        ("postgresql://me:pw@db/x", "postgresql://me:[redacted]@db/x"),
        ("POST /robot/send?access_token=0f9e8d7c6b&x=1", "POST /robot/send?access_token=[redacted]&x=1"),
        ("https://hooks.slack.com/services/T1/B2/x3y4z5", "https://hooks.slack.com/services/[redacted]"),
        ("/open-apis/bot/v2/hook/ab12-cd34-ef", "/open-apis/bot/v2/hook/[redacted]"),
    ],
)
def test_what_stands_before_a_key_is_kept(text: str, safe: str) -> None:
    assert Redactor().redact(text) == safe


def test_a_named_value_keeps_its_name_behind_a_known_prefix() -> None:
    redactor = Redactor([("MY_TOKEN", "abc defg1 hij!klm"), ("OTHER_KEY", TOKENS["github"])])
    assert redactor.redact("Bearer abc defg1 hij!klm") == "Bearer [redacted:MY_TOKEN]"
    assert redactor.redact(f"https://u:{TOKENS['github']}@x") == "https://u:[redacted:OTHER_KEY]@x"


def test_marks_never_spell_a_secret() -> None:
    redactor = Redactor([("API_KEY", "redacted"), ("PASSWORD", "PASSWORD")])
    safe = redactor.redact("redacted and PASSWORD")
    assert safe == "*** and ***"


def test_each_line_of_a_long_secret_is_one() -> None:
    redactor = Redactor([("CERT", PEM)])
    assert redactor.redact("read MIIEowIBAAKCAQEAwX2hVbqz from file") == "read [redacted:CERT] from file"


def test_bytes_hidden_in_surrogates_are_found_in_text_and_logs() -> None:
    redactor = Redactor([("RAW_KEY", "pass\udc80\udcffword")])
    assert redactor.redact("x pass\udc80\udcffword") == "x [redacted:RAW_KEY]"
    assert b"".join(redactor.redact_bytes([b"x pass\x80", b"\xffword"])) == b"x [redacted:RAW_KEY]"
    assert redactor.redact("lone \ud800 stays") == "lone \ud800 stays"


def test_numbers_are_secrets_only_as_a_whole() -> None:
    redactor = Redactor([("PIN_KEY", "12345678")])
    assert redactor.redact_data({"pin": 12345678, "loss": 0.12345678, "n": 912345678}) == {
        "pin": "[redacted:PIN_KEY]",
        "loss": 0.12345678,
        "n": 912345678,
    }


def test_bottomless_data_ends() -> None:
    bottomless: list[Any] = [KEY]
    bottomless += [bottomless, bottomless]
    assert KEY not in str(Redactor([("K", KEY)]).redact_data(bottomless))


@given(
    st.lists(
        st.sampled_from([KEY, TOKENS["github"], TOKENS["pem"], "loss: 2\n", "Bearer ", "-----BEGIN ", "é", "x" * 9000]),
        max_size=30,
    ),
    st.lists(st.integers(1, 30_000), min_size=1, max_size=20),
)
def test_a_log_in_pieces_is_redacted_as_in_one(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts) * 5
    raw, position = text.encode(), 0
    pieces: list[bytes] = []
    while position < len(raw):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(raw[position : position + size])
        position += size
    redactor = Redactor([("K", KEY)])
    assert b"".join(redactor.redact_bytes(pieces)).decode() == redactor.redact(text)


def test_a_large_log_is_redacted_in_flat_memory() -> None:
    redactor = Redactor([("K", KEY)])
    line = b"step 1 | loss: 2.5 | https://example.org/x " + b"y" * 5000
    tracemalloc.start()
    try:
        found = sum(
            piece.count(b"[redacted:K]") for piece in redactor.redact_bytes(line + KEY.encode() for _ in range(4000))
        )
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == 4000
    assert peak_bytes < 12 << 20


def test_an_exception_loses_its_secrets_causes_and_notes_included() -> None:
    error = RuntimeError({"key": KEY})
    error.__cause__ = ValueError(f"refused {KEY}")
    error.__cause__.add_note(f"tried {quote(KEY, safe='')}")
    assert KEY in "".join(traceback.format_exception(error))
    safe = Redactor([("K", KEY)]).redact_exception(error)
    assert safe.count("[redacted:K]") == 3
    assert "RuntimeError" in safe
    assert KEY not in safe


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(KEY)


def test_log_records_lose_their_secrets_and_never_fail() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(message)s|%(extra)s", defaults={"extra": ""}))
    handler.addFilter(RedactingFilter(Redactor([("K", KEY)])))
    logger = logging.Logger("redaction-test")
    logger.addHandler(handler)
    logger.warning("key %s of %s", KEY, {"deep": [KEY]}, extra={"extra": {"k": KEY}})
    logger.warning("%s", Unprintable())
    logger.error("failed", exc_info=ValueError(KEY), stack_info=True)
    shown = out.getvalue()
    assert KEY not in shown
    assert shown.count("[redacted:K]") == 4
    assert "cannot be shown: RuntimeError" in shown
    assert "ValueError: [redacted:K]" in shown


def test_the_environment_gives_keys_not_settings(tmp_path: Path) -> None:
    environment = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "12345678",
        "PWD": "/home/me/project",
        "SSH_AUTH_SOCK": str(tmp_path),
        "AUTH_METHOD": "disabled",
        "MAX_TOKENS": "131072",
        "HOME": "/home/me-and-you",
    }
    assert environment_secrets(environment) == [("OPENAI_API_KEY", KEY), ("DB_PASSWORD", "12345678")]


def test_declared_secrets_are_variables_or_values() -> None:
    environment = {"WORD": "hunter-two", "SHORT": "abc"}
    declared = ["WORD", "env:WORD", "env:ABSENT", "ABSENT_TOO", "a literal value"]
    assert declared_secrets(declared, environment) == [("WORD", "hunter-two")] * 2 + [("", "a literal value")]
    redactor = Redactor.of(declared, {**environment, "X_TOKEN": KEY}, more=[("target", "json://u:pw@h")])
    assert redactor.redact(f"a literal value, hunter-two, {KEY}, json://u:pw@h") == (
        "[redacted], [redacted:WORD], [redacted:X_TOKEN], [redacted:target]"
    )


def test_values_too_short_to_hide_are_found_at_check_time() -> None:
    faults = check_secrets(["SHORT", "abc", "long enough"], {"SHORT": "abc"})
    assert [fault.key for fault in faults] == ["secrets.0", "secrets.1"]
    assert "SHORT" in str(faults[0])
    assert Redactor([("SHORT", "abc")]).redact("abc") == "abc"
