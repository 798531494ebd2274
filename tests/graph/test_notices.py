"""A night whose people are told, over real HTTP, and whose lab never notices when they cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightlab.graph.decisions import failure_question
from nightlab.graph.driver import run_lab
from nightlab.graph.notices import open_notices
from nightlab.graph.questions import PLAN, raise_question
from nightlab.knowledge.records import StudyStatus
from nightlab.tools.failures.breaker import Trip
from nightlab.tools.notify.channel import Pace
from tests.agents.lab import new_lab, opened
from tests.face.calling import call
from tests.task import make_repository
from tests.tools.notify.server import Service, service

FAST = Pace(kind_pause_seconds=0.0, attempts=3, first_wait_seconds=0.01, longest_wait_seconds=0.05)
TRIP = Trip(cause="out-of-memory", factor="width", numbers=(3, 5), failures=3)
FLUSH_SECONDS = 30.0


def telling(*targets: str, **changes: Any) -> dict[str, Any]:
    """A short night with a winner."""
    study: dict[str, Any] = {
        "notify": {"targets": list(targets)},
        "search": {"baseline_replicates": 2, "confirm_seeds": 3, "confirm_candidates": 1},
        "space": {"lr": {"levels": [0.01]}},
        "budget": {"runs": 12},
    }
    return study | changes


def titles(there: Service) -> list[str]:
    return sorted(str(message["title"]).removeprefix("nightlab tiny: ") for message in there.received)


def test_what_happened_is_told_once_also_after_a_restart(tmp_path: Path) -> None:
    with service() as there:
        with new_lab(tmp_path, **telling(there.url(), approvals={"plan": "ask"})) as lab:
            with open_notices(lab, FAST, FLUSH_SECONDS):
                assert run_lab(lab) is StudyStatus.WAITING
            file = lab.study_file
        assert titles(there) == ["question plan (approve-plan)"]
        assert "nightlab answer plan yes" in there.received[0]["message"]
        for answer in (None, "yes"):
            with opened(file) as lab:
                if answer:
                    lab.ledger.answer(PLAN, answer, by="ada")
                with open_notices(lab, FAST, FLUSH_SECONDS):
                    run_lab(lab)
        assert titles(there) == ["experiment 01 is the new best", "question plan (approve-plan)", "the study has ended"]
        with opened(file) as lab, open_notices(lab, FAST, FLUSH_SECONDS):
            run_lab(lab)
        assert len(there.received) == 3
        shown = json.loads(call(file.parent, "status", "--json").out)
        assert shown["notices"]["delivered"] == 3 and shown["notices"]["failed"] == 0
        assert shown["notices"]["repeated"] >= 1


def test_a_breaker_tells_the_cause_and_asks(tmp_path: Path) -> None:
    with service() as there, new_lab(tmp_path, **telling(there.url())) as lab:
        with open_notices(lab, FAST, FLUSH_SECONDS):
            for _ in range(2):
                failure_question(lab, TRIP)
        assert titles(there) == [
            "question failure-width-out-of-memory (repeated-failure)",
            "stopped after 3 equal failures: out-of-memory",
        ]


def test_a_question_answered_by_itself_is_not_told(tmp_path: Path) -> None:
    with service() as there, new_lab(tmp_path, **telling(there.url(), approvals={"spend": "auto"})) as lab:
        with open_notices(lab, FAST, FLUSH_SECONDS):
            raise_question(lab, lab.study.approvals.spend, "spend", "s", "More?", options=["no", "yes"], default="no")
        assert there.received == []


def test_only_what_is_wanted_is_told(tmp_path: Path) -> None:
    with service() as there:
        notify = {"targets": [there.url()], "kinds": ["ended"]}
        with new_lab(tmp_path, **telling(notify=notify)) as lab, open_notices(lab, FAST, FLUSH_SECONDS):
            assert run_lab(lab) is StudyStatus.FINISHED
        assert titles(there) == ["the study has ended"]
        assert "Experiment 01 (lr-0-01) is confirmed" in there.received[0]["message"]


def test_a_service_that_never_answers_does_not_stop_the_lab(tmp_path: Path) -> None:
    with service(hanging=True) as there, new_lab(tmp_path, **telling(there.url())) as lab:
        with open_notices(lab, FAST, FLUSH_SECONDS):
            assert run_lab(lab) is StudyStatus.FINISHED
        counts = lab.ledger.study_row().notices
        assert counts["delivered"] == 0 and counts["failed"] >= 2


def test_a_lab_killed_after_asking_tells_when_it_comes_back(tmp_path: Path) -> None:
    with service() as there, new_lab(tmp_path, **telling(there.url())) as lab:
        failure_question(lab, TRIP)
        with open_notices(lab, FAST, FLUSH_SECONDS):
            pass
        assert titles(there) == ["question failure-width-out-of-memory (repeated-failure)"]


def test_a_target_that_is_gone_is_told_in_the_story_and_the_night_goes_on(tmp_path: Path) -> None:
    with new_lab(tmp_path, **telling("env:NO_SUCH_CHANNEL")) as lab:
        with open_notices(lab, FAST):
            assert run_lab(lab) is StudyStatus.FINISHED
        (told,) = [event.text for event in lab.ledger.events() if event.kind == "notify"]
        assert "NO_SUCH_CHANNEL is not set" in told


@pytest.mark.parametrize("word", ["check", "run"])
def test_a_bad_target_is_found_before_the_night(tmp_path: Path, word: str) -> None:
    file = make_repository(tmp_path / "repo", **telling("slack://incomplete", "env:NO_SUCH_CHANNEL"))
    found = call(file.parent, word)
    assert found.status == 2
    assert "notify.targets.0: the slack:// URL is not complete" in found.err
    assert "notify.targets.1: variable NO_SUCH_CHANNEL is not set" in found.err
