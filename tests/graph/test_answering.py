"""Answers by link and by reply over real HTTP: only who holds a question's own link answers, and only once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightlab.agents.context import Lab
from nightlab.configs.notify import Notify
from nightlab.errors import LedgerError
from nightlab.graph.answering import AnswerDesk, hearing, record_answer
from nightlab.graph.decisions import failure_question
from nightlab.graph.notices import open_notices
from nightlab.graph.questions import DEADLINE, raise_question
from nightlab.graph.staying import run_and_stay
from nightlab.knowledge.records import Question, StudyStatus, utc_now
from nightlab.tools.failures.breaker import Trip
from nightlab.tools.notify.channel import Pace
from nightlab.tools.notify.listener import Listening
from nightlab.tools.notify.messages import Notice
from nightlab.tools.notify.server import MAX_CONNECTIONS, MAX_FORM_BYTES
from tests.agents.lab import new_lab
from tests.tools.notify.ntfy_stub import NtfyStub, ntfy_stub
from tests.tools.notify.server import service

FAST = Listening(every_seconds=0.02, first_wait_seconds=0.01, longest_wait_seconds=0.05)
PACE = Pace(kind_pause_seconds=0.0, attempts=3, first_wait_seconds=0.01, longest_wait_seconds=0.05)
FORGED = "0" * 40
SECRET = "hunter2-hunter2"  # noqa: S105 - what must not be shown


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with new_lab(tmp_path, secrets=[SECRET], approvals={"winner": "ask"}) as opened:
        yield opened


class Open:
    """A study whose answers are heard."""

    def __init__(self, lab: Lab, **notify: Any) -> None:
        self.lab = lab
        self.settings = Notify.model_validate({"answers": {"listen": "127.0.0.1:0"}} | notify)
        self.desk = AnswerDesk(lab.ledger, lab.git, lab.paths, lab.redactor, now=lambda: lab.now())
        self.notes: list[str] = []
        self.told: list[Notice] = []
        self.telling = threading.Condition()

    @contextmanager
    def hearing(self) -> Iterator[Open]:
        with hearing(self.desk, self.settings, tell=self._tell, note=self.notes.append, pace=FAST) as self.ways:
            yield self

    def link(self, question: Question) -> str:
        assert self.ways is not None
        link = self.ways(question).link
        assert link is not None
        return link

    def _tell(self, notice: Notice) -> None:
        with self.telling:
            self.told.append(notice)
            self.telling.notify_all()

    def wait_for_notices(self, count: int) -> None:
        with self.telling:
            assert self.telling.wait_for(lambda: len(self.told) >= count, timeout=30), self.told


@pytest.fixture
def page(lab: Lab) -> Iterator[Open]:
    with Open(lab).hearing() as opened:
        yield opened


def ask(lab: Lab, text: str = "More?", question_id: str = "q-1", policy: str = "ask", evidence: str = "") -> Question:
    approval = lab.study.approvals.winner.model_copy(update={"policy": policy})
    return raise_question(
        lab, approval, "spend", question_id, text, options=["no", "yes"], default="no", evidence=evidence
    )


def stands(lab: Lab, question_id: str = "q-1") -> tuple[str | None, str | None]:
    question = lab.ledger.question(question_id)
    assert question is not None
    return question.answer, question.answered_by


def story(lab: Lab) -> list[str]:
    return [event.text for event in lab.ledger.events() if event.kind == "answered"]


def test_looking_changes_nothing_and_the_button_answers(lab: Lab, page: Open) -> None:
    link = page.link(ask(lab))
    for _ in range(2):
        for method in ("GET", "HEAD"):
            shown = httpx.request(method, link)
            assert shown.status_code == 200 and shown.headers["cache-control"] == "no-store"
            assert (shown.text == "") is (method == "HEAD")
    assert httpx.get(f"{link}?option=yes").status_code == 200
    assert stands(lab) == (None, None) and story(lab) == []
    text = httpx.get(link).text
    assert "More?" in text and '<button name="option" value="yes">' in text and "the safe answer" in text
    done = httpx.post(link, data={"option": "yes", "by": "  Ada\t Lovelace\x00 "})
    assert done.status_code == 200 and "Noted: yes" in done.text
    assert stands(lab) == ("yes", "Ada Lovelace (link)") and story(lab) == ["q-1: yes, by Ada Lovelace (link)"]


def test_without_a_name_it_was_the_link(lab: Lab, page: Open) -> None:
    httpx.post(page.link(ask(lab)), data={"option": "no"})
    assert stands(lab) == ("no", "link")


def test_an_answered_question_is_closed_to_its_link(lab: Lab, page: Open) -> None:
    link = page.link(ask(lab, evidence="what it rests on"))
    httpx.post(link, data={"option": "yes", "by": "Ada"})
    for response in (
        httpx.get(link),
        httpx.post(link, data={"option": "no"}),
        httpx.post(link, data={"option": "yes"}),
    ):
        assert response.status_code == 410 and "answered already: yes, by Ada (link)" in response.text
        assert "More?" not in response.text and "rests on" not in response.text and "<button" not in response.text
    assert stands(lab) == ("yes", "Ada (link)") and len(story(lab)) == 1


def test_two_answers_at_the_same_time_are_one(lab: Lab, page: Open) -> None:
    link = page.link(ask(lab))
    with ThreadPoolExecutor(8) as people:
        options = ["yes", "no"] * 4
        statuses = list(people.map(lambda option: httpx.post(link, data={"option": option}).status_code, options))
    assert set(statuses) <= {200, 409, 410} and 200 in statuses
    assert len(story(lab)) == 1
    answers = {option for option, status in zip(options, statuses, strict=True) if status == 200}
    assert answers == {stands(lab)[0]}


def test_past_its_deadline_a_link_is_worth_nothing(lab: Lab, page: Open) -> None:
    link = page.link(ask(lab, policy="ask-with-default"))
    assert "holds without an answer" in httpx.get(link).text
    lab.now = lambda: utc_now() + timedelta(hours=1)
    for response in (httpx.get(link), httpx.post(link, data={"option": "yes"})):
        assert response.status_code == 410 and "Its deadline has passed: no holds" in response.text
    assert stands(lab) == (None, None), "the lab settles it"
    with pytest.raises(LedgerError, match="was answered 'no' by nightlab: deadline"):
        record_answer(lab.ledger, lab.git, "q-1", "yes", by="ada", now=lab.now())
    assert stands(lab) == ("no", DEADLINE) and story(lab) == ["q-1: no, nobody answered by the deadline"]


def test_a_forged_link_a_strangers_and_no_link_look_the_same(lab: Lab, page: Open) -> None:
    link, other = page.link(ask(lab)), page.link(ask(lab, question_id="q-2"))
    place, _, token = link.rpartition("/")
    root = link.partition("/q/")[0]
    wrong = [
        f"{place}/{FORGED}",
        f"{place}/{other.rpartition('/')[2]}",
        f"{place}/{token[:-1]}",
        f"{place}/",
        place,
        f"{root}/q/no-such/{token}",
        f"{root}/",
        f"{root}/q/%2e%2e%2fledger.sqlite/{token}",
    ]
    pages = {httpx.request(method, url, data={"option": "yes"}) for url in wrong for method in ("GET", "POST")}
    assert {(response.status_code, response.text) for response in pages} == {(404, next(iter(pages)).text)}
    assert lab.study.study not in next(iter(pages)).text
    assert stands(lab) == stands(lab, "q-2") == (None, None)


def test_a_question_asked_anew_has_another_link(lab: Lab, page: Open) -> None:
    question = ask(lab)
    assert page.link(question) == page.link(question)
    stood = lab.ledger.question("q-1")
    assert stood is not None and page.link(stood) == page.link(question), "as told and as the ledger holds it"
    assert page.link(question.model_copy(update={"asked_at": utc_now() + timedelta(days=1)})) != page.link(question)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"option=perhaps",
        b"option=yes&" + b"x" * MAX_FORM_BYTES,
        b"&".join(b"a=1" for _ in range(50)) + b"&option=yes",
        b"\xff\xfe\x00",
        b'{"option": "yes"}',
    ],
)
def test_what_is_no_answer_is_asked_again(lab: Lab, page: Open, content: bytes) -> None:
    answer = httpx.post(page.link(ask(lab)), content=content)
    assert answer.status_code == 400 and "choose one of the buttons" in answer.text
    assert stands(lab) == (None, None)


def test_all_text_is_escaped_and_free_of_secrets(lab: Lab, page: Open) -> None:
    lab.paths.improve_guide.write_text(f"<script>alert(1)</script>\n\x1b[31mred\x1b[0m \x1b]8;;x\x07 {SECRET}\n")
    text = f'<img src=x onerror="alert(1)"> & {SECRET}'
    link = page.link(ask(lab, text, evidence=str(lab.paths.improve_guide)))
    shown = httpx.get(link)
    assert "<script" not in shown.text and "<img" not in shown.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\nred" in shown.text and "&lt;img src=x" in shown.text
    assert SECRET not in shown.text and "\x1b" not in shown.text
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    done = httpx.post(link, data={"option": "yes", "by": "<b>Ada</b>" + SECRET})
    closed = httpx.get(link).text
    assert "<img" not in done.text and "&lt;b&gt;Ada&lt;/b&gt;" in closed and SECRET not in closed
    assert SECRET not in str(stands(lab))


def test_the_evidence_is_shown_from_the_study_folder_only(lab: Lab, page: Open, tmp_path: Path) -> None:
    question = failure_question(lab, Trip(cause="out-of-memory", factor="lr", numbers=(3,), failures=3))
    assert "Look into the evidence" not in httpx.get(page.link(question)).text
    log = lab.paths.experiment_logs(3) / "seed-0-attempt-1" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("first line\n" * 2000 + "CUDA out of memory\n")
    shown = httpx.get(page.link(question)).text
    assert "CUDA out of memory" in shown and shown.count("first line") < 1000
    outside = tmp_path / "outside.md"
    outside.write_text("not for everyone")
    (lab.paths.folder / "inside.md").symlink_to(outside)
    for place in (outside, lab.paths.folder / "inside.md", lab.paths.folder / ".." / ".." / ".." / "outside.md"):
        text = httpx.get(
            page.link(ask(lab, question_id=f"q-{place.name}-{len(place.parts)}", evidence=str(place)))
        ).text
        assert "not for everyone" not in text


def test_a_port_in_use_is_told_once_and_the_night_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with new_lab(tmp_path, notify={"answers": {"listen": listen}}, budget={"runs": 2}) as lab:
            with open_notices(lab) as hears:
                assert not hears and lab.ways_to_answer(ask(lab)).link is None
                assert run_and_stay(lab, hears=hears) is StudyStatus.FINISHED
            (told,) = [event.text for event in lab.ledger.events() if event.kind == "notify"]
    assert told.startswith(f"no answers by link: {listen}: Address already in use (")
    assert "notify.answers.listen" in told


def test_connections_that_say_nothing_hold_up_nobody(lab: Lab, page: Open) -> None:
    link = page.link(ask(lab))
    where = httpx.URL(link)
    silent = [socket.create_connection((where.host, where.port or 0)) for _ in range(MAX_CONNECTIONS - 4)]
    try:
        assert httpx.get(link).status_code == 200
        more = [socket.create_connection((where.host, where.port or 0)) for _ in range(8)]
        silent += more
        with pytest.raises(httpx.TransportError):
            httpx.get(link)
    finally:
        for connection in silent:
            connection.close()
    for garbage in (b"\x00\xff\r\n\r\n", b"GET " + b"x" * 70_000, b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with socket.create_connection((where.host, where.port or 0)) as connection:
            connection.sendall(garbage)
    assert stands(lab) == (None, None)


def test_the_public_address_heads_the_links_whatever_the_proxy_keeps_of_it(lab: Lab) -> None:
    answers = {"listen": "127.0.0.1:0", "public_url": "https://box.example/lab/"}
    with Open(lab, answers=answers).hearing() as opened:
        link = opened.link(ask(lab))
        assert link.startswith("https://box.example/lab/q/q-1/")
        (note,) = opened.notes
        local = note.removeprefix("answers by link: ")
        for path in (httpx.URL(link).path, httpx.URL(link).path.removeprefix("/lab")):
            assert httpx.get(local + path).status_code == 200


def test_the_link_survives_redaction_shortening_and_merging(tmp_path: Path) -> None:
    with service() as there, service() as other:
        # The target's own address looks like a secret of many letters and digits.
        public = f"https://box4711.example/{'x' * 40}"
        targets = [there.url(path="box4711.example/"), other.url()]
        notify = {"targets": targets, "answers": {"listen": "127.0.0.1:0", "public_url": public}}
        with new_lab(tmp_path, notify=notify) as lab:
            with open_notices(lab, Pace(kind_pause_seconds=3600.0), 30.0):
                ask(lab, "first " + "x" * 3000)
                there.wait_for(1)
                for number in (2, 3):
                    ask(lab, "y" * 3000, question_id=f"q-{number}")
            first, second = there.received
    assert first["message"].splitlines()[-1].startswith(f"Answer q-1: {public}/q/q-1/")
    assert [line.partition("/q/")[0] for line in second["message"].splitlines()[-2:]] == [
        f"Answer q-2: {public}",
        f"Answer q-3: {public}",
    ]


def test_a_lab_that_stays_gives_up_in_time(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "approvals": {"plan": "ask"},
        "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1},
        "space": {"lr": {"levels": [0.01]}},
        "budget": {"runs": 8},
        "notify": {"answers": {"listen": "127.0.0.1:0"}, "stay": 0.6},
    }
    with new_lab(tmp_path, **changes) as lab, open_notices(lab) as hears:
        assert run_and_stay(lab, hears=hears) is StudyStatus.WAITING
        assert [event.kind for event in lab.ledger.events()].count("staying") == 1
        lab.deadline = lab.now()
        assert run_and_stay(lab, hears=hears) is StudyStatus.FINISHED, "its time is over"


@pytest.fixture
def topic() -> Iterator[NtfyStub]:
    with ntfy_stub() as stub:
        yield stub


def test_replies_answer_and_wrong_ones_are_told_what_is_allowed(lab: Lab, topic: NtfyStub) -> None:
    ask(lab)
    ask(lab, question_id="q-2")
    replies = f"ntfy://{topic.address}/night"
    with Open(lab, answers={}, replies=replies).hearing() as opened:
        assert opened.ways is not None and opened.ways(ask(lab)).by_reply and opened.ways(ask(lab)).link is None
        topic.wait_for_polls(2)
        for number, text in enumerate(["q-7 yes", "q-1 maybe", "Q-1 Yes", "q-1 yes", "q-1 no"], 1):
            topic.publish("night", text)
            # The same answer again is no news.
            opened.wait_for_notices(min(number, 3) if number < 5 else 4)
        titles = [notice.title for notice in opened.told]
        assert titles == [
            "a reply was not understood: there is no question q-7",
            "a reply was not understood: question q-1 has no option maybe",
            "question q-1 is answered: yes",
            "a reply was not understood: q-1 was answered yes by reply",
        ]
        assert opened.told[0].lines == ("What would be understood now:", "- q-1 no|yes", "- q-2 no|yes")
        assert opened.told[3].lines == ("What would be understood now:", "- q-2 no|yes")
        assert len({notice.key for notice in opened.told}) == 4
    assert stands(lab) == ("yes", "reply") and stands(lab, "q-2") == (None, None)
    assert story(lab) == ["q-1: yes, by reply"]


def test_a_reply_after_the_deadline_comes_too_late(lab: Lab, topic: NtfyStub) -> None:
    ask(lab, policy="ask-with-default")
    with Open(lab, answers={}, replies=f"ntfy://{topic.address}/night").hearing() as opened:
        topic.wait_for_polls(2)
        lab.now = lambda: utc_now() + timedelta(hours=1)
        topic.publish("night", "q-1 yes")
        opened.wait_for_notices(1)
    assert opened.told[0].title == "a reply was not understood: q-1 was answered no by nightlab: deadline"
    assert opened.told[0].lines == ("No question is open now.",)
    assert stands(lab) == ("no", DEADLINE)


def test_an_address_that_is_gone_is_told_and_the_night_goes_on(lab: Lab) -> None:
    with Open(lab, answers={}, replies="env:NO_SUCH_TOPIC").hearing() as opened:
        assert opened.ways is None
    (note,) = opened.notes
    assert note.startswith("no answers by reply: notify.replies: variable NO_SUCH_TOPIC is not set")


def test_nothing_is_heard_unless_the_study_says_so(lab: Lab) -> None:
    with Open(lab, answers={}).hearing() as opened:
        assert opened.ways is None and opened.notes == []
    assert not lab.paths.answer_key.exists()
