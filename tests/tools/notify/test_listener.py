"""Replies reach the lab once and in order, whatever becomes of the server, the lab or its disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nightlab.errors import LedgerError
from nightlab.tools.notify.listener import Listening, listening
from nightlab.tools.notify.ntfy import Message, Topic
from nightlab.tools.redaction import Redactor
from tests.tools.notify.ntfy_stub import NtfyStub, ntfy_stub

FAST = Listening(every_seconds=0.02, first_wait_seconds=0.01, longest_wait_seconds=0.05)


class Taken:
    """What was taken; `fault` is raised for a text instead, the first time it comes."""

    def __init__(self, fault: tuple[str, Exception] | None = None) -> None:
        self.texts: list[str] = []
        self.fault = fault
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self.changed:
            if self.fault and self.fault[0] == message.message:
                error, self.fault = self.fault[1], None
                raise error
            self.texts.append(message.message)
            self.changed.notify_all()

    def wait_for(self, *texts: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.texts == list(texts), timeout=30), self.texts


@pytest.fixture
def there() -> Iterator[NtfyStub]:
    with ntfy_stub() as stub:
        yield stub


@contextmanager
def heard(there: NtfyStub, memory: Path, take: Callable[[Message], None]) -> Iterator[None]:
    """A listener that has looked once."""
    before = len(there.polls)
    with listening(Topic(f"http://{there.address}/night"), take, memory, Redactor(), FAST):
        there.wait_for_polls(before + 2 - len(there.polls))
        yield


def test_what_was_there_before_is_no_reply_and_a_restart_reads_nothing_twice(there: NtfyStub, tmp_path: Path) -> None:
    memory, taken = tmp_path / "replies.json", Taken()
    there.publish("night", "of another night")
    with heard(there, memory, taken):
        # All within one second of the server's clock.
        there.publish("night", "one")
        there.publish("night", "two")
        taken.wait_for("one", "two")
        there.wait_for_polls(2)
    there.clock += 5
    there.publish("night", "while no lab ran")
    with heard(there, memory, taken):
        taken.wait_for("one", "two", "while no lab ran")
        there.publish("night", "three")
        taken.wait_for("one", "two", "while no lab ran", "three")
    with heard(there, memory, taken):
        there.wait_for_polls(2)
    taken.wait_for("one", "two", "while no lab ran", "three")


def test_another_topic_begins_anew(there: NtfyStub, tmp_path: Path) -> None:
    memory, taken = tmp_path / "replies.json", Taken()
    with heard(there, memory, taken):
        there.wait_for_polls(1)
    there.clock += 5
    there.publish("other", "plan yes")
    with listening(Topic(f"http://{there.address}/other"), taken, memory, Redactor(), FAST):
        there.wait_for_polls(3)
    assert taken.texts == []


@pytest.mark.parametrize("held", ["", "{", '{"topic": 3}'])
def test_a_damaged_memory_begins_anew(there: NtfyStub, tmp_path: Path, held: str) -> None:
    memory, taken = tmp_path / "replies.json", Taken()
    memory.write_text(held)
    there.publish("night", "old")
    with heard(there, memory, taken):
        there.publish("night", "new")
        taken.wait_for("new")


def test_the_labs_own_notifications_are_no_replies(there: NtfyStub, tmp_path: Path) -> None:
    taken = Taken()
    with heard(there, tmp_path / "replies.json", taken):
        there.publish("night", "plan yes", title="nightlab tiny: question plan (approve-plan)")
        there.publish("night", "plan no", title="Ada")
        taken.wait_for("plan no")


def test_a_server_that_fails_is_asked_again(there: NtfyStub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken = Taken()
    there.statuses += [503, 429]
    with caplog.at_level(logging.WARNING), heard(there, tmp_path / "replies.json", taken):
        there.wait_for_polls(2)
        there.statuses += [500]
        there.publish("night", "plan yes")
        taken.wait_for("plan yes")
    assert "reading replies: HTTPStatusError" in caplog.text


def test_records_in_trouble_get_the_reply_again_and_a_fault_of_our_own_costs_one_reply(
    there: NtfyStub, tmp_path: Path
) -> None:
    taken = Taken(("plan yes", LedgerError("locked")))
    with heard(there, tmp_path / "replies.json", taken):
        there.publish("night", "plan yes")
        there.publish("night", "plan no")
        taken.wait_for("plan yes", "plan no")
        taken.fault = ("bad", RuntimeError("a fault"))
        there.publish("night", "bad")
        there.publish("night", "good")
        taken.wait_for("plan yes", "plan no", "good")


def test_a_memory_that_cannot_be_written_costs_nothing_now(there: NtfyStub, tmp_path: Path) -> None:
    taken = Taken()
    (tmp_path / "file").write_text("")
    with heard(there, tmp_path / "file" / "replies.json", taken):
        there.publish("night", "plan yes")
        taken.wait_for("plan yes")
        there.wait_for_polls(2)
    assert taken.texts == ["plan yes"]


def test_a_server_that_is_away_does_not_keep_the_lab(tmp_path: Path) -> None:
    gone = Topic("http://127.0.0.1:9/night")
    with listening(gone, Taken(), tmp_path / "replies.json", Redactor(), Listening(longest_wait_seconds=3600.0)):
        pass
