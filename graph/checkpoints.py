"""The SQLite checkpointer of a study, kept small: only the newest checkpoints are of use to a resumed lab.

The saver of langgraph-checkpoint-sqlite 3 implements no pruning (`prune` raises NotImplementedError), and a night of
a thousand experiments would otherwise leave tens of megabytes behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver

__all__ = ["open_checkpoints", "prune"]

KEEP = 8
"""Newest checkpoints of the supervisor that stay."""


@contextmanager
def open_checkpoints(path: Path) -> Iterator[SqliteSaver]:
    """The saver on `path`; waits up to 30 s for another process's write."""
    connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        saver = SqliteSaver(connection)
        saver.setup()
        yield saver
    finally:
        connection.close()


def prune(saver: SqliteSaver, thread: str) -> None:
    """Drop all but the newest checkpoints of the supervisor and everything of its agents' finished calls.

    To be called between supervisor steps, when no agent is at work.
    """
    with saver.lock:
        connection = saver.conn
        connection.execute(
            """DELETE FROM checkpoints WHERE thread_id = ? AND (checkpoint_ns != '' OR checkpoint_id NOT IN (
                 SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ''
                 ORDER BY checkpoint_id DESC LIMIT ?))""",
            (thread, thread, KEEP),
        )
        connection.execute(
            """DELETE FROM writes WHERE thread_id = ? AND NOT EXISTS (
                 SELECT 1 FROM checkpoints c WHERE c.thread_id = writes.thread_id
                 AND c.checkpoint_ns = writes.checkpoint_ns AND c.checkpoint_id = writes.checkpoint_id)""",
            (thread,),
        )
        connection.commit()
        connection.execute("PRAGMA incremental_vacuum").fetchall()
