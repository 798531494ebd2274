"""A link is worth as much as its key is private."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nightlab.knowledge.records import Question
from nightlab.tools.notify.links import Links, study_key

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def question(question_id: str = "plan", asked_at: datetime = MOMENT) -> Question:
    return Question(
        id=question_id, study="demo", kind="k", text="t", options=["yes", "no"], default="no", asked_at=asked_at
    )


def token_of(links: Links, asked: Question) -> str:
    return links.url(asked).rpartition("/")[2]


def test_the_key_is_random_kept_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "study" / "answer.key"
    key = study_key(path)
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == key
    assert study_key(path) == key and study_key(tmp_path / "other.key") != key
    assert [file.name for file in path.parent.iterdir()] == ["answer.key"]


@pytest.mark.parametrize("held", [b"", b"short", b"g" * 64])
def test_a_damaged_key_is_replaced(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "answer.key"
    path.write_bytes(held)
    path.chmod(0o600)
    assert len(study_key(path)) == 64


def test_a_key_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "answer.key"
    key = study_key(path)
    path.chmod(0o640)
    assert study_key(path) != key and path.stat().st_mode & 0o777 == 0o600


def test_a_link_is_of_one_key_study_question_and_moment() -> None:
    links = Links(b"k" * 64, "demo", "https://box.example/lab/")
    asked = question("spend-usd-1e+06")
    url = links.url(asked)
    assert url.startswith("https://box.example/lab/q/spend-usd-1e%2B06/")
    token = token_of(links, asked)
    assert links.is_signed(asked, token)
    for other in (
        token_of(links, question()),
        token_of(links, question("spend-usd-1e+06", MOMENT + timedelta(microseconds=1))),
        token_of(Links(b"l" * 64, "demo", ""), asked),
        token_of(Links(b"k" * 64, "other", ""), asked),
        token[:-1],
        token.upper(),
        "",
        "ä" * 40,
    ):
        assert other != token and not links.is_signed(asked, other)
