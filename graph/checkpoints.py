"""The SQLite checkpointer of a study, kept small: only the newest checkpoints are of use to a resumed lab.

The saver of langgraph-checkpoint-sqlite 3 implements no pruning (`prune` raises NotImplementedError), and a night of
a thousand experiments would otherwise leave tens of megabytes behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import ERROR
from langgraph.checkpoint.sqlite import SqliteSaver

from nightlab.configs.files import set_aside
from nightlab.configs.wording import one_line
from nightlab.knowledge.sqlite import disk_error

__all__ = ["mend_checkpoints", "open_checkpoints", "prune"]

MAX_TOLD = 200
TABLES = ("checkpoints", "writes")

KEEP = 8
"""Newest checkpoints of the supervisor that stay."""


@contextmanager
def open_checkpoints(path: Path) -> Iterator[SqliteSaver]:
    """The saver on `path`; waits up to 30 s for another process's write.

    Raises DiskError, also from within the block, when the disk takes no more.
    """
    connection = _connect(path)
    try:
        # Of use only before the first table is made.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        saver = _Saver(connection)
        saver.setup()
        yield saver
    except sqlite3.Error as error:
        if refused := disk_error(path, error):
            raise refused from error
        raise
    finally:
        connection.close()


def mend_checkpoints(path: Path, thread: str) -> str | None:
    """Set a damaged checkpoint file aside, so that it is begun anew: the ledger holds everything that counts.

    Returns what was wrong and where the copy is kept, in one line; None for a file that is whole, or not there yet.
    """
    if not path.exists() or not path.stat().st_size or (damage := _damage(path, thread)) is None:
        return None
    damage = one_line(damage[:MAX_TOLD])
    return f"{path}: is damaged: {damage} (begun anew; the old file is kept as {set_aside(path).name})"


class _Saver(SqliteSaver):
    """Keeps no errors: nothing reads them from here, and their text may hold a secret."""

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        kept = [(channel, value) for channel, value in writes if channel != ERROR]
        super().put_writes(config, kept, task_id, task_path)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=30, check_same_thread=False)


def _damage(path: Path, thread: str) -> str | None:
    """What is wrong with the file, or with the checkpoint a lab would go on from."""
    connection = _connect(path)
    try:
        verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if verdict != "ok":
            return verdict
        saver = SqliteSaver(connection)
        saver.setup()
        if _columns(connection) != _expected_columns():
            return "its tables are not a checkpointer's"
        saver.get_tuple({"configurable": {"thread_id": thread}})
    except sqlite3.DatabaseError as error:
        # The driver's own errors, for text that is none any more, carry no code.
        if getattr(error, "sqlite_errorname", "SQLITE_CORRUPT").startswith(_DAMAGE):
            return str(error)
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
        # Whatever the decoder makes of bytes that are no checkpoint any more.
        return f"its last checkpoint cannot be read: {error}"
    finally:
        connection.close()
    return None


_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_IOERR_SHORT_READ", "SQLITE_CANTOPEN_ISDIR")


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    query = "SELECT name FROM pragma_table_info(?)"
    return {(table, name) for table in TABLES for (name,) in connection.execute(query, (table,))}


def _expected_columns() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        SqliteSaver(connection).setup()
        return _columns(connection)


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
