"""Faults of model servers, told apart by what helps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nightlab.tools.chat_faults import FaultKind, fault_of, retry_after_seconds


def refused(status: int, message: str, code: str | None = None, **headers: str) -> Any:
    import httpx2
    import openai

    response = httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "http://localhost/v1"))
    return fault_of(openai.APIStatusError(message, response=response, body={"message": message, "code": code}))


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Incorrect API key provided: sk-12", FaultKind.KEY),
        (402, "Insufficient Balance", FaultKind.KEY),
        (429, "You exceeded your current quota, insufficient_quota", FaultKind.KEY),
        (429, "Rate limit reached for requests", FaultKind.BUSY),
        (503, "Loading model", FaultKind.BUSY),
        (529, "Overloaded", FaultKind.BUSY),
        (404, "The model `gpt-9` does not exist or you do not have access to it.", FaultKind.MODEL),
        (404, 'model "qwen" not found, try pulling it first', FaultKind.MODEL),
        (400, "Model Not Exist", FaultKind.MODEL),
        (400, "qwen/qwen9 is not a valid model ID", FaultKind.MODEL),
        (404, "Not Found", FaultKind.MODEL),
        (404, "No endpoints found that support tool use.", FaultKind.UNSUPPORTED),
        (400, "This response_format type is unavailable now", FaultKind.UNSUPPORTED),
        (400, "'response_format.type' must be 'json_schema' or 'text'", FaultKind.UNSUPPORTED),
        (400, "Invalid schema for response_format 'answer'", FaultKind.UNSUPPORTED),
        (422, "Extra inputs are not permitted: tools", FaultKind.UNSUPPORTED),
        (501, "not implemented", FaultKind.UNSUPPORTED),
        (400, "This model's maximum context length is 8192 tokens. However, you requested", FaultKind.TOO_LONG),
        (400, "the request exceeds the available context size. try increasing it", FaultKind.TOO_LONG),
        (413, "Request Entity Too Large", FaultKind.TOO_LONG),
        (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", FaultKind.LIMIT_NAME),
    ],
)
def test_what_helps_is_read_from_status_and_words(status: int, message: str, kind: FaultKind) -> None:
    fault = refused(status, message)
    assert (fault.kind, fault.was_sent) == (kind, False)
    assert str(fault) == f"{status} {message}"


def test_a_page_of_an_error_is_cut_to_one_line() -> None:
    fault = refused(502, "<html>\n" + "x" * 9000)
    assert len(str(fault)) <= 200 and "\n" not in str(fault)


NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "Sun, 01 Mar 2026 12:01:30 GMT"}, 90.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "soon"}, None),
        ({}, None),
    ],
)
def test_the_pause_asked_for_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, NOW) == seconds
    assert refused(429, "slow down", **{"retry-after": "3"}).retry_after_seconds == 3.0
