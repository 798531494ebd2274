"""At most one message a kind and study in a pause; nothing is lost, nothing waits longer than the pause."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nightlab.tools.notify.messages import Notice, NoticeKind
from nightlab.tools.notify.throttle import Throttle

PAUSE_SECONDS = 60.0


def notice(kind: NoticeKind, study: str, number: int) -> Notice:
    return Notice(kind, study, f"{number}", f"title {number}")


def test_the_first_goes_at_once_the_rest_together_after_the_pause() -> None:
    throttle = Throttle(PAUSE_SECONDS)
    assert throttle.wait_seconds(0) is None
    throttle.hold(notice(NoticeKind.CONFIRMED, "a", 1))
    assert throttle.wait_seconds(0) == 0
    assert [len(group) for group in throttle.due(0)] == [1]
    for number in (2, 3):
        throttle.hold(notice(NoticeKind.CONFIRMED, "a", number))
    throttle.hold(notice(NoticeKind.CONFIRMED, "b", 4))
    assert [[one.key for one in group] for group in throttle.due(10)] == [["4"]]
    assert throttle.wait_seconds(10) == 50
    assert throttle.held == 2
    assert [[one.key for one in group] for group in throttle.due(60)] == [["2", "3"]]
    throttle.hold(notice(NoticeKind.CONFIRMED, "a", 5))
    assert throttle.due(61) == []
    assert [[one.key for one in group] for group in throttle.due(61, everything=True)] == [["5"]]


@given(st.lists(st.tuples(st.floats(0, 50), st.sampled_from(NoticeKind), st.sampled_from("ab")), max_size=60))
def test_nothing_is_lost_and_the_pause_is_kept(steps: list[tuple[float, NoticeKind, str]]) -> None:
    throttle, now = Throttle(PAUSE_SECONDS), 0.0
    sent: dict[tuple[str, NoticeKind], list[float]] = {}
    told = []
    for number, (seconds, kind, study) in enumerate(steps):
        now += seconds
        throttle.hold(notice(kind, study, number))
        for group in throttle.due(now):
            assert len({(one.study, one.kind) for one in group}) == 1
            sent.setdefault((group[0].study, group[0].kind), []).append(now)
            told += [one.key for one in group]
    told += [one.key for group in throttle.due(now, everything=True) for one in group]
    assert sorted(told, key=int) == [str(number) for number in range(len(steps))]
    for times in sent.values():
        assert all(later - earlier >= PAUSE_SECONDS for earlier, later in pairwise(times))
