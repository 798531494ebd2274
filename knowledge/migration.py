"""Bringing an older ledger up to this version's tables: what is missing is added, nothing is changed or dropped."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Column, Connection, Table, inspect, update
from sqlalchemy.schema import CreateColumn

from nightlab.configs.files import sync_folder
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.records import (
    Event,
    Experiment,
    Idea,
    Job,
    ModelCall,
    Observation,
    Question,
    Review,
    Run,
    Spend,
    StudyRow,
    Verdict,
)
from nightlab.knowledge.sqlite import disk_error
from nightlab.knowledge.stress import Stress

__all__ = ["ADDED_TABLES", "kept_copy", "migrate"]

ADDED_TABLES = frozenset({"notices", "calls", "ideas", "reviews", "stresses"})
"""Tables that an older ledger may lack; one without any other is damaged."""

_KINDS: dict[str, type[BaseModel]] = {
    "study": StudyRow,
    "experiments": Experiment,
    "runs": Run,
    "jobs": Job,
    "observations": Observation,
    "verdicts": Verdict,
    "questions": Question,
    "spend": Spend,
    "calls": ModelCall,
    "ideas": Idea,
    "reviews": Review,
    "stresses": Stress,
    "events": Event,
}


def kept_copy(path: Path, version: str) -> Path:
    """Where the ledger stays as an older nightlab wrote it."""
    return path.with_name(f"{path.name}.version-{version}")


def migrate(connection: Connection, path: Path, version: str) -> None:
    """Add the tables and columns that the ledger at `path` lacks, in the transaction of `connection`, which writes.

    A copy of it is kept first. Rows get the value their record has by default. Raises LedgerError for a column that
    nothing stands for, DiskError when the disk takes no more; the ledger is then as it was.
    """
    missing = _missing(connection, path, version)
    _keep(path, kept_copy(path, version))
    tables.metadata.create_all(connection)
    for table, column in missing:
        definition = CreateColumn(column).compile(dialect=connection.dialect)
        name = connection.dialect.identifier_preparer.format_table(table)
        given = f" DEFAULT {_literal(connection, table, column)}"
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {definition}{given}")
    row = tables.meta.c.name == "schema"
    connection.execute(update(tables.meta).where(row).values(value=str(tables.SCHEMA_VERSION)))


def _missing(connection: Connection, path: Path, version: str) -> list[tuple[Table, Column[Any]]]:
    inspector = inspect(connection)
    found = []
    for table in tables.metadata.sorted_tables:
        if not inspector.has_table(table.name):
            continue
        held = {column["name"] for column in inspector.get_columns(table.name)}
        found += [(table, column) for column in table.columns if column.name not in held]
    for table, column in found:
        if not column.nullable and not _has_default(table, column):
            raise LedgerError(
                f"{path}: was written by an older nightlab (schema version {version}) and holds no "
                f"{table.name}.{column.name} (finish the study with the nightlab that began it)"
            )
    return found


def _has_default(table: Table, column: Column[Any]) -> bool:
    kind = _KINDS.get(table.name)
    return kind is not None and column.name in kind.model_fields and not kind.model_fields[column.name].is_required()


def _literal(connection: Connection, table: Table, column: Column[Any]) -> str:
    """The column's value in rows that are there already, as SQL."""
    kind = _KINDS[table.name]
    value = kind.model_fields[column.name].get_default(call_default_factory=True)
    written = column.type.dialect_impl(connection.dialect).bind_processor(connection.dialect)
    value = written(value) if written is not None else value
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return repr(int(value) if isinstance(value, bool) else value)
    return "'{}'".format(str(value).replace("'", "''"))


def _keep(path: Path, copy: Path) -> None:
    """Copy the ledger, its journal included, whole or not at all."""
    temporary = copy.with_name(f".{copy.name}.tmp")
    with DiskError.at(copy):
        try:
            _copy(path, temporary)
            temporary.replace(copy)
        except sqlite3.Error as error:
            raise disk_error(copy, error) or LedgerError(f"{copy}: cannot be written: {error}") from error
        finally:
            _remove(temporary)
        sync_folder(copy.parent)


def _copy(path: Path, temporary: Path) -> None:
    _remove(temporary)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(temporary)) as target:
        source.backup(target)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(temporary: Path) -> None:
    for side in ("", "-wal", "-shm", "-journal"):
        temporary.with_name(temporary.name + side).unlink(missing_ok=True)
