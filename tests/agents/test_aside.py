"""The thread beside the night: one thing at a time, and whatever it cannot bear is raised where somebody looks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nightlab.agents.aside import Aside, StoppedError
from tests.agents.lab import opened
from tests.task import make_repository


def raising(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(3), MemoryError()])
def test_what_the_thread_cannot_bear_is_raised_once(error: BaseException) -> None:
    aside = Aside()
    assert aside.start(lambda: raising(error)) and aside.wait(30)
    with pytest.raises(type(error)):
        aside.take()
    aside.take()
    assert not aside.has_news


def test_it_does_one_thing_at_a_time_and_nothing_after_its_end() -> None:
    aside, go_on, later = Aside(), threading.Event(), threading.Event()
    assert aside.start(lambda: go_on.wait(30))
    assert aside.is_busy and not aside.has_news and not aside.start(later.set)
    go_on.set()
    aside.close(30)
    assert aside.has_news and aside.busy_seconds == 0.0
    assert not aside.start(later.set) and not later.is_set()


def test_a_stop_is_no_failure() -> None:
    aside = Aside()
    assert aside.start(lambda: raising(StoppedError())) and aside.wait(30)
    aside.take()


def test_what_fails_because_the_lab_has_ended_is_not_told() -> None:
    aside, go_on = Aside(), threading.Event()
    assert aside.start(lambda: raising(ValueError("no tree any more")) if go_on.wait(30) else None)
    aside.close(0.0)
    go_on.set()
    aside.close(30)
    assert aside.has_news
    aside.take()


def test_a_lab_that_ends_before_it_looked_tells_it_all_the_same(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo")
    with pytest.raises(ValueError, match="a bug"), opened(file) as lab:
        assert lab.aside.start(lambda: raising(ValueError("a bug"))) and lab.aside.wait(30)
    with pytest.raises(RuntimeError, match="the night"), opened(file) as lab:
        assert lab.aside.start(lambda: raising(ValueError("a bug"))) and lab.aside.wait(30)
        raise RuntimeError("the night itself")
