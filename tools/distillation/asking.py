"""Asks a teacher many questions at once: patient with a busy server, stopped by a budget, a bad key or a dead one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tenacity import RetryCallState, Retrying

from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.chat_pace import Pace, fault_in
from nightlab.tools.distillation.journal import Journal
from nightlab.tools.distillation.prompts import Prompt
from nightlab.tools.distillation.teacher import Connection

__all__ = ["Asked", "Question", "ask_all"]

PATIENT = Pace(attempts=6, longest_wait_seconds=300.0)
"""Longer than a night would be: no slot waits beside it."""
LASTING = (FaultKind.KEY, FaultKind.MODEL)
MOST_IN_VAIN = 5
"""So many questions in a row without an answer, and the server is left alone."""


@dataclass(frozen=True)
class Question:
    """One sample of one prompt."""

    key: str
    prompt: Prompt
    sample: int


@dataclass
class Asked:
    """What came of it."""

    answered: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    """Reasons; these questions are asked again next time."""
    not_asked: int = 0
    stopped: str = ""
    """Why the rest was not asked; empty: it was."""
    out_of_budget: bool = False


class _OutOfBudgetError(Exception):
    """The budget does not bear another attempt."""


def ask_all(
    questions: Iterable[Question],
    connection: Connection,
    journal: Journal,
    *,
    workers: int = 4,
    budget_tokens: int | None = None,
    pace: Pace | None = None,
) -> Asked:
    """Ask what the journal does not hold, `workers` at a time; every answer is in the journal when this returns.

    A question is sent only where the budget bears the most it can be charged, all questions ever noted in this journal
    counted. Raises DiskError.
    """
    return _Asker(connection, journal, budget_tokens, pace or PATIENT).run(questions, workers)


class _Asker:
    def __init__(self, connection: Connection, journal: Journal, budget: int | None, pace: Pace) -> None:
        self.connection, self.journal, self.budget, self.pace = connection, journal, budget, pace
        self.asked = Asked()
        self._in_vain = 0
        self._stop = threading.Event()
        self._quiet_until = 0.0

    def run(self, questions: Iterable[Question], workers: int) -> Asked:
        running: dict[Future[None], Question] = {}
        with ThreadPoolExecutor(workers, thread_name_prefix="teacher") as pool:
            try:
                for question in questions:
                    if self.journal.is_done(question.key):
                        continue
                    while len(running) >= workers:
                        self._settle(running)
                    if self._stop.is_set() or not self._has_room(question, running):
                        self.asked.not_asked += 1
                        continue
                    running[pool.submit(self._answer, question)] = question
                while running:
                    self._settle(running)
            finally:
                # On Ctrl-C or a full disk the waiting threads end at once, those in flight with their answer.
                self._stop.set()
        return self.asked

    def _has_room(self, question: Question, running: dict[Future[None], Question]) -> bool:
        """Reserve the question's tokens, after what is in flight has given its own back where they are needed."""
        tokens = self.connection.teacher.tokens_at_most(question.prompt)
        while not self.journal.reserve(question.key, tokens, self.budget):
            if not running:
                self._end(f"the budget of {self.budget:,} tokens does not bear another question", out_of_budget=True)
                return False
            self._settle(running)
        if self._stop.is_set():
            self.journal.release(question.key)
            return False
        return True

    def _settle(self, running: dict[Future[None], Question]) -> None:
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            self._count(future, running.pop(future))

    def _count(self, future: Future[None], question: Question) -> None:
        try:
            future.result()
        except _OutOfBudgetError:
            self.asked.unanswered["the budget does not bear another attempt"] += 1
        except ChatError as fault:
            if self.journal.is_done(question.key):
                return
            self.asked.unanswered[str(fault)] += 1
            self._in_vain += 1
            is_long = (fault.retry_after_seconds or 0.0) > self.pace.longest_wait_seconds
            if fault.kind in LASTING or is_long or self._in_vain >= MOST_IN_VAIN:
                self._end(str(fault))
        else:
            self.asked.answered += 1
            self._in_vain = 0

    def _end(self, reason: str, *, out_of_budget: bool = False) -> None:
        self.asked.stopped = self.asked.stopped or reason
        self.asked.out_of_budget |= out_of_budget
        self._stop.set()

    def _answer(self, question: Question) -> None:
        """Ask until it is answered. Raises ChatError for the last failure."""
        attempts: Retrying = Retrying(
            retry=self._is_worth_it,
            stop=lambda state: state.attempt_number >= self.pace.attempts or self._stop.is_set(),
            wait=self.pace.wait_seconds,
            sleep=self._sleep,
            reraise=True,
        )
        for attempt in attempts:
            with attempt:
                self._once(question, attempt.retry_state.attempt_number)

    def _once(self, question: Question, number: int) -> None:
        teacher, key = self.connection.teacher, question.key
        most = teacher.tokens_at_most(question.prompt)
        # The first attempt's tokens are reserved already.
        if number > 1 and not self.journal.reserve(key, most, self.budget):
            raise _OutOfBudgetError
        self._sleep(self._quiet_until - time.monotonic())
        if self._stop.is_set():
            self.journal.release(key)
            raise ChatError(FaultKind.BUSY, "the run was stopped before it was asked")
        try:
            said = self.connection.ask(question.prompt, question.sample)
        except ChatError as fault:
            self._note(key, fault)
            raise
        known = said.input_tokens is not None and said.output_tokens is not None
        # A server that does not tell is charged at its most.
        self.journal.answer(key, said, (said.input_tokens or 0) + (said.output_tokens or 0) if known else most)

    def _note(self, key: str, fault: ChatError) -> None:
        if fault.retry_after_seconds and fault.retry_after_seconds <= self.pace.longest_wait_seconds:
            self._quiet_until = max(self._quiet_until, time.monotonic() + fault.retry_after_seconds)
        if fault.kind is FaultKind.TOO_LONG or (fault.kind is FaultKind.UNSUPPORTED and self.journal.answers):
            # Where others were answered, it is this prompt that the server does not take.
            self.journal.refuse(key, f"{fault.kind.value}: {fault}")
        elif not fault.was_sent:
            self.journal.release(key)

    def _is_worth_it(self, state: RetryCallState) -> bool:
        fault = fault_in(state)
        return fault is not None and self.pace.bears(fault)

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(max(0.0, seconds))
