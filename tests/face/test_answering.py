"""A question answered from its notification: by the link and by a reply, while a lab runs and while none does."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.graph.questions import PLAN
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Question, StudyStatus
from tests.face.calling import call
from tests.face.gated import GatedStudy, wait_until
from tests.task import make_repository
from tests.tools.notify.ntfy_stub import ntfy_stub
from tests.tools.notify.server import service

SHORT: dict[str, Any] = {
    "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1},
    "space": {"lr": {"levels": [0.01]}},
    "budget": {"runs": 8},
    "approvals": {"plan": "ask", "base_model": "auto", "winner": "auto"},
}
LINK = re.compile(r"http://127\.0\.0\.1:\d+/q/\S+")


def asked(file: Path, question_id: str = PLAN) -> Question:
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        question = ledger.question(question_id)
    assert question is not None
    return question


def test_a_lab_that_waits_for_an_answer_goes_on_after_the_link(tmp_path: Path) -> None:
    with service() as there:
        notify = {"targets": [there.url()], "answers": {"listen": "127.0.0.1:0"}}
        study = GatedStudy(tmp_path, notify=notify, **SHORT)
        study.open()
        with study.start() as lab:
            there.wait_for(1)
            (link,) = LINK.findall(there.received[0]["message"])
            page = httpx.get(link)
            assert page.status_code == 200 and "improve_guide.md" in page.text
            wait_until(lambda: study.status()["status"] == StudyStatus.WAITING)
            assert lab.poll() is None and asked(study.file).answer is None
            done = httpx.post(link, data={"option": "yes", "by": "Ada"})
            assert done.status_code == 200 and "The lab goes on with it." in done.text
            out, _ = lab.communicate(timeout=120)
        assert lab.returncode == 0 and "finished: every verdict is in" in out
        assert "plan: yes, by Ada (link)" in out and "staying: for answers (plan)" in out
    question = asked(study.file)
    assert (question.answer, question.answered_by) == ("yes", "Ada (link)")
    assert study.status()["experiments"] == 1


def test_a_lab_that_waits_for_an_answer_goes_on_after_a_reply(tmp_path: Path) -> None:
    with ntfy_stub() as there:
        topic = f"ntfy://{there.address}/night"
        study = GatedStudy(tmp_path, notify={"targets": [topic], "replies": topic}, **SHORT)
        study.open()
        with study.start() as lab:
            told = there.wait_for("night", "question plan")
            assert "Or as a message on the study's ntfy topic: plan yes|no" in told
            there.clock += 60
            there.publish("night", " Plan  YES. ")
            out, _ = lab.communicate(timeout=180)
        assert lab.returncode == 0 and "finished: every verdict is in" in out and "plan: yes, by reply" in out
        assert "question plan is answered: yes" in "".join(there.texts("night"))
        assert not [text for text in there.texts("night") if "not understood" in text], (
            "its own messages are no replies"
        )


def test_a_question_is_answered_while_no_lab_is_running(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", **SHORT)
    assert call(file.parent, "inbox", "--serve").status == 2, "nothing has begun"
    assert call(file.parent, "run").status == 0
    file.write_text(file.read_text() + "notify: {answers: {listen: '127.0.0.1:0'}}\n")
    command = [sys.executable, "-u", "-m", "nightlab", "inbox", "--serve"]
    with subprocess.Popen(command, cwd=file.parent, text=True, stdout=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        shown = ""
        while not (links := LINK.findall(shown)):
            shown += serving.stdout.readline()
        done = httpx.post(links[0], data={"option": "no"})
        assert "No lab is running" in done.text
        out, _ = serving.communicate(timeout=60)
    assert serving.returncode == 0 and "plan: no, by link" in out and "Go on: nightlab run" in out
    assert asked(file).answer == "no"
    assert call(file.parent, "inbox", "--serve").out == "No question is open.\n"


def test_stop_ends_a_lab_that_stays_for_an_answer(tmp_path: Path) -> None:
    study = GatedStudy(tmp_path, notify={"answers": {"listen": "127.0.0.1:0"}}, **SHORT)
    study.open()
    with study.start() as lab:
        wait_until(lambda: study.status().get("status") == StudyStatus.WAITING)
        refused = call(study.root, "inbox", "--serve")
        assert refused.status == 2 and "hears the answers itself" in refused.err
        assert call(study.root, "stop").status == 0
        out, _ = lab.communicate(timeout=60)
    assert lab.returncode == 0 and "(after the answer)" in out
    assert asked(study.file).answer is None


def test_the_page_is_handed_over_to_a_lab_that_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    study = GatedStudy(tmp_path, **SHORT)
    study.open()
    ran = call(study.root, "run")
    assert ran.status == 0, ran.err
    study.file.write_text(study.file.read_text() + f"notify: {{answers: {{listen: '{listen}'}}}}\n")
    command = [sys.executable, "-u", "-m", "nightlab", "inbox", "--serve"]
    with subprocess.Popen(command, cwd=study.root, text=True, stdout=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        shown = ""
        while not (links := LINK.findall(shown)):
            shown += serving.stdout.readline()
        with study.start() as lab:
            out, _ = serving.communicate(timeout=60)
            assert serving.returncode == 0 and "A lab has started" in out
            wait_until(lambda: study.status()["status"] == StudyStatus.WAITING)
            assert "The lab goes on with it." in httpx.post(links[0], data={"option": "yes"}).text
            out, _ = lab.communicate(timeout=120)
    assert f"answers by link: http://{listen}" in out and "finished: every verdict is in" in out


def test_a_wrong_address_is_found_before_the_night_and_a_right_one_is_a_secret(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", **SHORT, notify={"replies": "https://box.example/n1ght-topic"})
    found = call(file.parent, "check")
    assert found.status == 2 and "notify.replies: is not the address of one ntfy topic" in found.err
    assert "n1ght-topic" not in found.err
    file.write_text(file.read_text().replace("https://box", "ntfys://box"))
    assert locate(load_study(file)).redactor.redact("GET /n1ght-topic/json") == "GET /[redacted:notify]/json"
