"""Reading a topic as ntfy writes it; addresses as Apprise writes them."""

from __future__ import annotations

import pytest

from nightlab.errors import ConfigError
from nightlab.tools.notify.ntfy import MAX_BYTES, Topic, check_replies, open_topic
from tests.tools.notify.ntfy_stub import ntfy_stub


@pytest.mark.parametrize(
    ("entry", "topic"),
    [
        ("ntfy://night-4711", Topic("https://ntfy.sh/night-4711")),
        ("ntfys://Night_4711/", Topic("https://ntfy.sh/Night_4711")),
        ("ntfy://box.example/night", Topic("http://box.example/night")),
        ("ntfys://box.example:8443/night", Topic("https://box.example:8443/night")),
        ("ntfys://ada:p%40ss@box.example/night", Topic("https://box.example/night", "ada", "p@ss")),
        ("ntfys://tk_abc@box.example/night", Topic("https://box.example/night", "", "", "tk_abc")),
        ("ntfys://tk_abc@night", Topic("https://ntfy.sh/night", "", "", "tk_abc")),
    ],
)
def test_addresses(entry: str, topic: Topic) -> None:
    assert open_topic(entry) == open_topic("env:WHERE", {"WHERE": f" {entry} "}) == topic
    assert check_replies(entry) == []


@pytest.mark.parametrize(
    "entry",
    ["", "ntfy://", "night", "https://ntfy.sh/s3cr3t", "ntfy://box/s3cr3t/two", "ntfy://box:80", "ntfy://box:x/s3cr3t"],
)
def test_a_wrong_address_is_named_without_being_shown(entry: str) -> None:
    (fault,) = check_replies("env:WHERE", {"WHERE": entry})
    assert fault.key == "notify.replies" and fault.mend and "s3cr3t" not in str(fault)
    with pytest.raises(ConfigError, match="ntfy topic" if entry else "WHERE is not set"):
        open_topic("env:WHERE", {"WHERE": entry})


def test_nothing_declared_is_nothing_wrong() -> None:
    assert check_replies(None) == []


def test_messages_are_read_in_order_and_the_rest_is_left_out() -> None:
    with ntfy_stub() as there:
        there.publish("night", "old")
        there.clock += 10
        first, second = there.publish("night", "plan yes"), there.publish("night", "ünï", title="a title")
        there.publish("other", "plan no")
        topic = Topic(f"http://{there.address}/night", "", "", "tk_abc")
        with topic.client() as client:
            messages, server_time = topic.read(client, str(there.clock))
        assert [(one.id, one.message, one.title) for one in messages] == [
            (first, "plan yes", ""),
            (second, "ünï", "a title"),
        ]
        assert server_time == there.clock
        assert there.polls == [{"poll": "1", "since": str(there.clock), "authorization": "Bearer tk_abc"}]


def test_a_flood_is_read_in_parts() -> None:
    with ntfy_stub() as there:
        for _ in range(40):
            there.publish("night", "x" * (MAX_BYTES // 20))
        topic = Topic(f"http://{there.address}/night")
        with topic.client() as client:
            messages, _ = topic.read(client, "1m")
        assert 15 < len(messages) < 30
