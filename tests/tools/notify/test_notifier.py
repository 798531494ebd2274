"""Messages arrive over real HTTP, through services that fail, hang or are down; the lab never notices."""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any

import pytest

from nightlab.errors import LedgerError
from nightlab.tools.notify import Notice, NoticeKind, Notifier
from nightlab.tools.notify.channel import Counts, Memory, Pace
from nightlab.tools.redaction import Redactor
from tests.tools.notify.server import service

FAST = Pace(kind_pause_seconds=0.0, attempts=4, first_wait_seconds=0.01, longest_wait_seconds=0.05)
VALUE = "private-v4lue"


def notice(number: int = 1, kind: NoticeKind = NoticeKind.CONFIRMED, *, text: str = "text") -> Notice:
    return Notice(kind, "demo", f"{kind}/{number}", f"title {number}", (text,))


def notifier(*targets: str, pace: Pace = FAST, memory: Memory | None = None) -> Notifier:
    return Notifier(targets, Redactor([("MY_KEY", VALUE)]), pace=pace, memory=memory)


def test_a_message_arrives_without_secrets() -> None:
    with service() as there, notifier(there.url(path="hook")) as lab:
        lab.send(notice(text=f"key {VALUE}\nnightlab answer q-1 yes"))
        assert lab.close(20)
        assert there.paths[0].startswith("/hook")
        assert there.received == [
            {
                "version": "1.0",
                "title": "nightlab demo: title 1",
                "message": "key [redacted:MY_KEY]\nnightlab answer q-1 yes",
                "attachments": [],
                "type": "success",
            }
        ]
        assert lab.counts == Counts(delivered=1)


def test_a_long_text_is_cut_but_never_within_a_secret() -> None:
    with service() as there:
        lab = notifier(there.url())
        for number, length in enumerate(range(1480, 1501)):
            lab.send(notice(number, text="x" * length + VALUE + "y" * 9000))
            there.wait_for(number + 1)
        assert lab.close(20)
    for sent in there.received:
        assert len(sent["message"]) == 1500
        assert VALUE[:4] not in sent["message"]


def test_a_service_that_fails_twice_gets_the_message_the_third_time() -> None:
    with service(500, 503) as there:
        lab = notifier(there.url())
        lab.send(notice())
        there.wait_for(3)
        assert lab.close(20)
        assert len(there.received) == 3
        assert lab.counts == Counts(delivered=1)


def test_a_service_that_fails_for_good_is_counted_and_may_be_told_again() -> None:
    with service(*[500] * 4) as there:
        lab = notifier(there.url())
        lab.send(notice())
        there.wait_for(4)
        while lab.counts.failed == 0:
            threading.Event().wait(0.01)
        lab.send(notice())
        there.wait_for(5)
        assert lab.close(20)
        assert lab.counts == Counts(delivered=1, failed=1)


def test_services_that_hang_or_are_down_hold_up_neither_the_lab_nor_the_others() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        down = f"json://127.0.0.1:{unused.getsockname()[1]}/?cto=5"
    with service(hanging=True) as hanging, service() as well:
        lab = notifier(hanging.url(), down, well.url(), pace=Pace(kind_pause_seconds=0.0, first_wait_seconds=30.0))
        for number in range(5):
            lab.send(notice(number))
        hanging.wait_for(1)
        while lab.counts.delivered < 5:
            threading.Event().wait(0.01)
        assert not lab.close(0.0)
        while lab.counts.failed < 10:
            threading.Event().wait(0.01)
        assert lab.counts == Counts(delivered=5, failed=10)


def test_waiting_for_a_lost_service_ends_with_the_lab() -> None:
    with service(500) as there:
        lab = notifier(there.url(), pace=Pace(first_wait_seconds=3600.0, longest_wait_seconds=3600.0))
        lab.send(notice())
        there.wait_for(1)
        # The hour's wait is cut short: the second attempt comes at once and is taken.
        assert lab.close(20)
        assert lab.counts == Counts(delivered=1)


def test_a_burst_becomes_one_message_a_kind() -> None:
    with service() as there:
        lab = notifier(there.url(), pace=Pace(kind_pause_seconds=3600.0))
        lab.send(notice(0))
        there.wait_for(1)
        for number in range(1, 6):
            lab.send(notice(number))
        lab.send(notice(9, NoticeKind.QUESTION))
        assert lab.close(20)
        titles = sorted(sent["title"] for sent in there.received)
        assert titles[-2:] == ["nightlab demo: title 0", "nightlab demo: title 9"]
        assert titles[0].endswith("messages (confirmed), the last: title 5")
        assert len(titles) == 3
        assert lab.counts == Counts(delivered=7)


def test_what_was_told_is_not_told_again_even_by_the_next_lab() -> None:
    told: set[str] = set()
    memory = Memory(told.__contains__, told.add)
    with service() as there, service(*[500] * 4) as failing:
        for _ in range(2):
            lab = notifier(there.url(), failing.url(), memory=memory)
            lab.send(notice())
            lab.send(notice())
            assert lab.close(20)
        assert len(there.received) == 1
        # The service that took nothing from the first lab gets it from the second.
        assert len(failing.received) == 5
        assert len(told) == 2


def test_a_memory_that_fails_costs_a_repeat_at_most(caplog: pytest.LogCaptureFixture) -> None:
    def broken(key: str) -> Any:
        raise LedgerError(f"cannot look up {VALUE}")

    with service() as there, caplog.at_level(logging.WARNING):
        lab = notifier(there.url(), memory=Memory(broken, broken))
        lab.send(notice())
        assert lab.close(20)
        assert lab.counts == Counts(delivered=1)
    assert "LedgerError: cannot look up [redacted:MY_KEY]" in caplog.text
    assert VALUE not in caplog.text


def test_only_wanted_kinds_are_told() -> None:
    with service() as there:
        lab = Notifier([there.url()], Redactor(), kinds=["question"], pace=FAST)
        lab.send(notice(1))
        lab.send(notice(2, NoticeKind.QUESTION))
        assert lab.close(20)
        assert [sent["title"] for sent in there.received] == ["nightlab demo: title 2"]


def test_a_full_queue_and_a_closed_notifier_drop_and_count() -> None:
    with service(hanging=True) as there:
        lab = notifier(there.url(), pace=Pace(kind_pause_seconds=0.0, attempts=1, queue_size=2))
        lab.send(notice(0))
        there.wait_for(1)
        for number in range(1, 50):
            lab.send(notice(number))
        assert lab.counts.dropped >= 40
        there.answering.set()
        assert lab.close(20)
        dropped = lab.counts.dropped
        lab.send(notice(99))
        assert lab.counts.dropped == dropped + 1


def test_each_chat_service_gets_its_own_form(monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise.plugins.dingtalk import NotifyDingTalk
    from apprise.plugins.feishu import NotifyFeishu
    from apprise.plugins.slack import NotifySlack

    with service() as there:
        root = there.url("http").partition("/?")[0]
        monkeypatch.setattr(NotifyDingTalk, "notify_url", root + "/robot/send?access_token={token}")
        monkeypatch.setattr(NotifyFeishu, "notify_url", root + "/hook/{token}/")
        monkeypatch.setattr(NotifySlack, "webhook_url", root + "/services")
        lab = notifier(
            "dingtalk://abcd1234", "feishu://abcd1234-ef56", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7"
        )
        lab.send(notice(text=f"a < b, *not bold*, {VALUE}"))
        there.wait_for(3)
        lab.close(20)
        sent = {path.split("/")[1].split("?")[0]: body for path, body in zip(there.paths, there.received, strict=True)}
    assert set(sent) == {"robot", "hook", "services"}
    assert sent["robot"]["msgtype"] == "text"
    for body in sent.values():
        assert "title 1" in str(body)
        assert "[redacted:MY_KEY]" in str(body)
        assert VALUE not in str(body)
