"""What a person reads: what, where, what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.configs.notify import NoticeKind as DeclaredKind
from nightlab.knowledge.records import Effect, Question
from nightlab.tools.notify.messages import (
    Notice,
    NoticeKind,
    best_confirmed,
    breaker_tripped,
    disk_low,
    merged,
    question_asked,
    study_ended,
)

REPORT = Path("/repo/.nightlab/demo/final_report.html")
QUESTION = Question(
    id="q-3",
    study="demo",
    kind="plan",
    text="Go on with 12 experiments?",
    options=["approve", "stop", "try something else"],
    default="stop",
    evidence="3 factors, 9 runs",
)
EFFECT = Effect(delta=0.0421, low=0.031, high=0.0532, unit="bits/byte", runs=3, baseline_runs=3)


def every_notice() -> list[Notice]:
    return [
        question_asked(QUESTION, report=REPORT, deadline=datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        best_confirmed("demo", "val_bpb", 7, EFFECT, branch="experiment-07-x", report=REPORT),
        study_ended("demo", "No change was confirmed.", report=REPORT, night="2026-01-01"),
        breaker_tripped(
            "demo", "out-of-memory", 5, log=Path("/repo/.nightlab/demo/logs/experiment-04/stderr.log"), occasion="q-4"
        ),
        disk_low("demo", Path("/repo/.nightlab"), 1_200_000_000, 5_000_000_000, occasion="1"),
    ]


def test_every_kind_has_its_message() -> None:
    notices = every_notice()
    assert {notice.kind for notice in notices} == set(NoticeKind)
    assert len({notice.key for notice in notices}) == len(notices)
    for notice in notices:
        assert notice.heading.startswith("nightlab demo: ")
        assert len(notice.heading) < 100
        assert "\n\n" not in notice.body


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (0, ["12 experiments?", "nightlab answer q-3 approve\nnightlab answer q-3 stop\n", "q-3 'try something else'"]),
        (0, ["3 factors, 9 runs", "Without an answer by 2026-01-02 03:04 UTC: stop.", str(REPORT)]),
        (
            1,
            ["val_bpb: better than the baseline by 0.0421 [+0.031, +0.0532] bits/byte", "experiment-07-x", str(REPORT)],
        ),
        (2, ["No change was confirmed.", f"Report: {REPORT}"]),
        (3, ["experiment-04/stderr.log", "nightlab inbox"]),
        (4, ["/repo/.nightlab", "nightlab gc", "nightlab run"]),
    ],
)
def test_the_message_says_where_and_what_to_do(position: int, said: list[str]) -> None:
    body = every_notice()[position].body
    for words in said:
        assert words in body


def test_the_kinds_are_those_a_study_may_name() -> None:
    assert set(NoticeKind) == set(get_args(DeclaredKind))


def test_without_a_deadline_the_safe_answer_is_named() -> None:
    assert "The safe answer: stop." in question_asked(QUESTION, report=REPORT).body


def notice(number: int) -> Notice:
    return Notice(NoticeKind.CONFIRMED, "demo", f"confirmed/{number}", f"experiment {number:02d}", (f"line {number}",))


def test_several_become_one_with_the_last_in_full() -> None:
    assert merged([notice(1)]) == notice(1)
    one = merged([notice(number) for number in range(1, 15)])
    assert one.title == "14 messages (confirmed), the last: experiment 14"
    assert one.body.count("- experiment") == 10
    assert "- and 4 more" in one.body
    assert one.body.endswith("line 14")


@given(st.lists(st.text(max_size=60), max_size=4), st.text(max_size=60))
def test_there_is_always_a_text_and_the_heading_is_one_line(lines: list[str], title: str) -> None:
    one = Notice(NoticeKind.ENDED, "demo", "k", title, tuple(lines))
    assert one.body.strip()
    assert len(one.heading.splitlines()) == 1
