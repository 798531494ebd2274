"""What people type on a telephone is understood, or answered with what would be."""

from __future__ import annotations

import pytest

from nightlab.knowledge.records import Question
from nightlab.tools.notify.reply import allowed, read_reply


def question(question_id: str, *options: str, answer: str | None = None) -> Question:
    return Question(
        id=question_id, study="s", kind="k", text="t", options=list(options), default=options[0], answer=answer
    )


PLAN = question("plan", "yes", "no")
FAILURE = question("failure-lr-out-of-memory", "leave-out", "go-on", "stop")
ASKED = [PLAN, FAILURE, question("old", "a", "b", answer="a")]


@pytest.mark.parametrize(
    "text",
    ["plan yes", "  Plan   YES ", "plan yes.", '"plan yes"', "PLAN: yes!", "nightlab answer plan yes", "plan\nyes"],
)
def test_case_space_and_signs_do_not_matter(text: str) -> None:
    assert read_reply(text, ASKED) == (PLAN, "yes")


def test_options_with_hyphens_are_themselves() -> None:
    assert read_reply("Failure-LR-out-of-memory Leave-Out", ASKED) == (FAILURE, "leave-out")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it was empty"),
        (" . ", "it was empty"),
        ("yes", "there is no question yes"),
        ("plan", "question plan needs one of its options behind it"),
        ("plan maybe", "question plan has no option maybe"),
        ("plan yes please", "question plan has no option yes please"),
        ("plan " + "x" * 500, "question plan has no option " + "x" * 39 + "…"),
    ],
)
def test_anything_else_says_why(text: str, why: str) -> None:
    assert read_reply(text, ASKED) == why


def test_what_would_be_understood_are_the_open_questions() -> None:
    assert allowed(ASKED) == ["plan yes|no", "failure-lr-out-of-memory leave-out|go-on|stop"]
