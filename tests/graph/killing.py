"""A night that is killed over and over, around its commits: `python -m tests.graph.killing STUDY EVERY`.

One process loads everything once and forks a lab again and again. Each lab is sent SIGKILL just before or just after
one of its commits to ledger or checkpoints, the next one goes on; the last line says how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from sqlalchemy import Connection, Engine, event

from nightlab.knowledge.records import StudyStatus
from nightlab.night import run_night

MOST_KILLS = 400
KINDS = ("before a record", "after a record", "before a checkpoint", "after a checkpoint")


class Executioner:
    """Ends this process at the `count`-th commit of a kind."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind = kind
        self.count = count
        self.writing = False

    def reached(self, kind: str) -> None:
        if kind == self.kind:
            self.count -= 1
            if self.count == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def before_record(self, connection: Connection) -> None:
        self.writing = bool(connection.get_execution_options().get("writes"))
        if self.writing:
            self.reached(KINDS[0])

    def after_record(self, *_: object) -> None:
        # A connection goes back to its pool once its transaction is over.
        if self.writing:
            self.writing = False
            self.reached(KINDS[1])

    def around(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def killed_around(*arguments: Any, **options: Any) -> Any:
            self.reached(KINDS[2])
            result = put(*arguments, **options)
            self.reached(KINDS[3])
            return result

        return killed_around

    def watch(self) -> None:
        event.listen(Engine, "commit", self.before_record)
        event.listen(Engine, "checkin", self.after_record)
        for name in ("put", "put_writes"):
            setattr(SqliteSaver, name, self.around(getattr(SqliteSaver, name)))


def lab(study: Path, executioner: Executioner) -> int:
    """Run the night in a child process; returns how that ended (`os.waitpid`)."""
    child = os.fork()
    if child == 0:
        executioner.watch()
        outcome = run_night(study, say=lambda _: None)
        os._exit(0 if outcome.status is StudyStatus.FINISHED else 1)
    return os.waitpid(child, 0)[1]


def main(study: Path, every: int) -> None:
    for kills in range(MOST_KILLS):
        # The first records of a start are the same each time; further on it must get, or the night never ends.
        kind = KINDS[kills % len(KINDS)]
        status = lab(study, Executioner(kind, every + (kills // len(KINDS)) % 3))
        if status == 0:
            print(kills)  # noqa: T201
            return
        if os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"lab {kills} ended by itself with status {status}")
    sys.exit(f"not finished after {MOST_KILLS} kills")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
