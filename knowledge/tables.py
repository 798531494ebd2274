"""The ledger's tables and the SQLite connection behind them.

One ledger holds one study. Everything here is SQLAlchemy Core without SQLite's own types, so that another database
needs only another URL.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeDecorator

__all__ = [
    "SCHEMA_VERSION",
    "UtcDateTime",
    "calls",
    "events",
    "experiments",
    "ideas",
    "jobs",
    "ledger_engine",
    "meta",
    "metadata",
    "notices",
    "observations",
    "questions",
    "reading_engine",
    "reviews",
    "runs",
    "spend",
    "stresses",
    "study",
    "verdicts",
]

SCHEMA_VERSION = 3
"""Raised by one with every change of a table; an older ledger is brought up to it (`migration.py`)."""

LOCK_TIMEOUT_SECONDS = 30


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored and returned in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        # SQLite keeps no time zone: what comes back naive was written as UTC.
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData()

meta = Table("meta", metadata, Column("name", String, primary_key=True), Column("value", String, nullable=False))

study = Table(
    "study",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_study_a_ledger"), primary_key=True),
    Column("name", String, nullable=False),
    Column("study", JSON, nullable=False),
    Column("base_commit", String, nullable=False),
    Column("status", String, nullable=False),
    Column("phase", String, nullable=False),
    Column("deadline", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("graph_version", String, nullable=False),
    Column("design", JSON(none_as_null=True)),
    Column("paused", Boolean, nullable=False),
    Column("notices", JSON, nullable=False),
    Column("frozen_hashes", JSON, nullable=False),
)

experiments = Table(
    "experiments",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("configuration", String, nullable=False, unique=True),
    Column("study", String, nullable=False),
    Column("scenario", String, nullable=False),
    Column("method", String, nullable=False),
    Column("base_model", String, nullable=False),
    Column("variable", String, nullable=False),
    Column("technique", String),
    Column("parameters", JSON, nullable=False),
    Column("changed", JSON, nullable=False),
    Column("phase", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("branch", String, nullable=False, unique=True),
    Column("base_commit", String, nullable=False),
    Column("commit", String),
    Column("card_commit", String),
    Column("note", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("study", String, nullable=False),
    Column("number", Integer, ForeignKey("experiments.number"), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("phase", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("cause", String),
    Column("detail", Text, nullable=False),
    Column("next_step", String),
    Column("overrides", JSON, nullable=False),
    Column("extra_env", JSON, nullable=False),
    Column("remedies", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    UniqueConstraint("number", "seed", "attempt"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("key", String, ForeignKey("runs.key"), primary_key=True),
    Column("backend", String, nullable=False),
    Column("native_id", String),
    Column("slot", Integer, nullable=False),
    Column("directory", String, nullable=False),
    Column("worktree", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("intent_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("exit_code", Integer),
    Column("timed_out", Boolean, nullable=False),
    Column("wall_seconds", Float),
    Column("cpu_seconds", Float),
    Column("peak_memory_bytes", BigInteger),
)

observations = Table(
    "observations",
    metadata,
    Column("key", String, ForeignKey("runs.key"), primary_key=True),
    Column("values", JSON, nullable=False),
    Column("sources", JSON, nullable=False),
    Column("read_at", UtcDateTime, nullable=False),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", Integer, ForeignKey("experiments.number"), nullable=False),
    Column("kind", String, nullable=False),
    Column("effect", JSON(none_as_null=True)),
    Column("basis", String, nullable=False),
    Column("label", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("decided_at", UtcDateTime, nullable=False),
    Index("ix_verdicts_latest", "number", "id"),
)

questions = Table(
    "questions",
    metadata,
    Column("id", String, primary_key=True),
    Column("study", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("text", Text, nullable=False),
    Column("options", JSON, nullable=False),
    Column("default", String, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("blocks", JSON, nullable=False),
    Column("deadline", UtcDateTime),
    Column("asked_at", UtcDateTime, nullable=False),
    Column("answer", String),
    Column("answered_by", String),
    Column("answered_at", UtcDateTime),
)

spend = Table(
    "spend",
    metadata,
    Column("key", String, ForeignKey("runs.key"), primary_key=True),
    Column("reserved_runs", Integer, nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("wall_seconds", Float, nullable=False),
    Column("gpu_hours", Float, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("reserved_gpu_hours", Float, nullable=False),
    Column("reserved_cost_usd", Float, nullable=False),
)

calls = Table(
    "calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String, nullable=False, index=True),
    Column("purpose", String, nullable=False),
    Column("model", String, nullable=False),
    Column("prompt_hash", String, nullable=False),
    Column("prompt", String, nullable=False),
    Column("endpoint", String, nullable=False),
    Column("method", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("reserved_input_tokens", BigInteger, nullable=False),
    Column("reserved_output_tokens", BigInteger, nullable=False),
    Column("reserved_cost_usd", Float, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("seconds", Float),
    Column("outcome", Text, nullable=False),
    Column("answer", Text),
    Column("reserved_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
)

ideas = Table(
    "ideas",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", String, nullable=False, index=True),
    Column("name", String, nullable=False),
    Column("title", Text, nullable=False),
    Column("rationale", Text, nullable=False),
    Column("expected", Text, nullable=False),
    Column("edits", JSON, nullable=False),
    Column("lines_added", Integer, nullable=False),
    Column("lines_removed", Integer, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("requires", JSON, nullable=False),
    Column("conflicts", JSON, nullable=False),
    Column("cause", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("asked", JSON(none_as_null=True)),
    Column("model", String, nullable=False),
    Column("prompt", String, nullable=False),
    Column("mended", String, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

reviews = Table(
    "reviews",
    metadata,
    Column("key", String, primary_key=True),
    Column("number", Integer, ForeignKey("experiments.number"), nullable=False, index=True),
    Column("basis", String, nullable=False),
    Column("state", String, nullable=False),
    Column("asked", JSON(none_as_null=True)),
    Column("model", String, nullable=False),
    Column("independent", Boolean, nullable=False),
    Column("items", JSON, nullable=False),
    Column("another_run", Boolean, nullable=False),
    Column("pair_seed", Integer),
    Column("note", Text, nullable=False),
    Column("asked_at", UtcDateTime, nullable=False),
)

stresses = Table(
    "stresses",
    metadata,
    Column("key", String, primary_key=True),
    Column("number", Integer, ForeignKey("experiments.number"), nullable=False, index=True),
    Column("check", String, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("run", String, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("slot", Integer),
    Column("directory", String, nullable=False),
    Column("worktree", String, nullable=False),
    Column("native_id", String),
    Column("losses", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("wall_seconds", Float),
    Column("values", JSON, nullable=False),
    Column("detail", Text, nullable=False),
    Column("gpu_hours", Float, nullable=False),
    Column("cost_usd", Float, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", UtcDateTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("number", Integer, ForeignKey("experiments.number")),
    Column("text", Text, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("key", String, primary_key=True),
    Column("time", UtcDateTime, nullable=False),
)


def reading_engine(path: Path, *, whole: bool = False) -> Engine:
    """An engine on the SQLite file `path` that never writes.

    `whole`: nothing stands in its journal and nobody writes it now, so that not even a lock is needed beside it.
    """
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT_SECONDS, check_same_thread=False)

    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect)
    event.listen(engine, "connect", _without_own_transactions)
    event.listen(engine, "begin", _begin)
    return engine


def ledger_engine(path: Path) -> Engine:
    """An engine on the SQLite file `path`: WAL, every commit synced to disk, foreign keys checked.

    Transactions on a connection with the option `writes` take the write lock at their start, so that reading before
    writing can neither race nor fail half-way; others only read.
    """
    url = URL.create("sqlite", database=str(path))
    engine = create_engine(url, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _without_own_transactions(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver starts none by itself, `_begin` does.
    connection.isolation_level = None


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    _without_own_transactions(connection, _entry)
    cursor = connection.cursor()
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()


def _begin(connection: Any) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
