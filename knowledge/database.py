"""The database below the ledger: opening and checking it, transactions, records to rows and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Engine, Select, Table, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError

from nightlab.configs.paths import has_jobs
from nightlab.configs.study import Study
from nightlab.configs.wording import one_line
from nightlab.errors import DiskError, LedgerError, NightlabError
from nightlab.knowledge import tables
from nightlab.knowledge.migration import ADDED_TABLES, migrate
from nightlab.knowledge.records import Experiment, Run, StudyRow
from nightlab.knowledge.sqlite import disk_error
from nightlab.knowledge.states import check_move

__all__ = ["Database", "as_row", "columns", "damaged", "fetch_all", "fetch_one", "record_of", "select_as", "unchanged"]

R = TypeVar("R", bound=BaseModel)

_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_IOERR_SHORT_READ")

MAX_TOLD = 200
SMALLEST_BYTES = 512
"""SQLite takes what is shorter than a page for an empty file, and writes into it."""

_FIXED = frozenset({"key", "study", "number", "seed", "attempt", "created_at"})
"""What identifies a record; no update changes it."""

_FREE_TEXT = frozenset(
    {"text", "detail", "reason", "note", "evidence", "answered_by", "outcome", "title", "rationale", "expected"}
)
"""Fields that may quote a log, an error or a person. What is executed or identifies a record is kept as it is."""


def unchanged(data: Any) -> Any:
    return data


class _UnreadyError(LedgerError):
    """The ledger has no tables yet, or those of an older version."""


class Database:
    """One open database with the ledger's tables, safe to share between threads.

    `redact` takes secrets out of JSON-able data: free text and the study pass through it before they are written.
    """

    def __init__(self, engine: Engine, redact: Callable[[Any], Any] = unchanged) -> None:
        self._engine = engine
        self._redact = redact
        self._writer = engine.execution_options(writes=True)
        self._joined = threading.local()
        self._place = engine.url.database or str(engine.url)

    @classmethod
    def open(cls, path: Path, *, redact: Callable[[Any], Any] = unchanged) -> Self:
        """Open the SQLite file `path`, made when there is none.

        Raises LedgerError when the file is no ledger, is damaged, has lost its records or has another schema version,
        DiskError when the disk takes no more.
        """
        if cls.exists(path) and path.stat().st_size < SMALLEST_BYTES and has_jobs(path.parent):
            raise damaged(path, "is empty, although its study has begun")
        database = cls(tables.ledger_engine(path), redact)
        try:
            database._check_schema()
        except NightlabError:
            database.close()
            raise
        return database

    @classmethod
    def open_to_read(cls, path: Path, *, redact: Callable[[Any], Any] = unchanged) -> Self:
        """Open the SQLite file `path` without writing anything, also on a disk that takes no more.

        What is empty, or of an older version, is opened for writing once and so made ready. Raises what `open` raises.
        """
        try:
            return cls._opened_to_read(tables.reading_engine(path), redact)
        except _UnreadyError:
            return cls.open(path, redact=redact)
        except (DiskError, LedgerError) as error:
            # SQLite makes a file beside a database that it reads; it needs none where nothing stands in the journal.
            journal = path.with_name(f"{path.name}-wal")
            is_damaged = isinstance(error, LedgerError) and error.damaged
            if is_damaged or (journal.exists() and journal.stat().st_size):
                raise
            return cls._opened_to_read(tables.reading_engine(path, whole=True), redact)

    @classmethod
    def _opened_to_read(cls, engine: Engine, redact: Callable[[Any], Any]) -> Self:
        database = cls(engine, redact)
        try:
            with database._read() as connection:
                held = inspect(connection).get_table_names()
                if not held or database._check_held(connection, held) != str(tables.SCHEMA_VERSION):
                    raise _UnreadyError(f"{database._place}: is to be made ready")
        except NightlabError:
            database.close()
            raise
        return database

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether there is a ledger at `path`. Raises LedgerError where there was one: jobs have run beside it."""
        if not path.exists() and has_jobs(path.parent):
            raise damaged(path, "is gone, although its study has begun")
        return path.exists()

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def safe(self, record: R) -> R:
        """The record as it is written: without secrets."""
        return record.model_copy(update=self._safe_fields(dict(record)))

    def safe_study(self, study: Study) -> Study:
        """The study as it is written: without the secrets it holds."""
        data = study.model_dump(mode="json")
        safe = self._redact(data)
        return study if safe == data else Study.model_validate(safe)

    def _safe_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        safe = {name: self._redact(fields[name]) for name in _FREE_TEXT & fields.keys()}
        # An experiment's `study` is its name.
        return safe | {name: self.safe_study(value) for name, value in fields.items() if isinstance(value, Study)}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything this thread writes in the block one transaction: all of it is kept, or nothing."""
        with self._write() as connection:
            if getattr(self._joined, "connection", None) is not None:
                yield
                return
            self._joined.connection = connection
            try:
                yield
            finally:
                self._joined.connection = None

    def _read(self) -> AbstractContextManager[Connection]:
        return self._transaction(self._engine)

    def _write(self) -> AbstractContextManager[Connection]:
        return self._transaction(self._writer)

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        joined: Connection | None = getattr(self._joined, "connection", None)
        try:
            if joined is None:
                with engine.begin() as connection:
                    yield connection
            else:
                with joined.begin_nested():
                    yield joined
        except DBAPIError as error:
            raise disk_error(Path(self._place), error.orig) or self._refusal(error.orig) from error
        except UnicodeDecodeError as error:
            # From the driver, for names in the file's own catalogue that are none any more.
            raise damaged(self._place, "is damaged: its catalogue is no text") from error

    def _refusal(self, error: BaseException | None) -> LedgerError:
        # The driver's own error for text that is none any more carries no code.
        code = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT" if "Could not decode" in str(error) else "")
        if code.startswith(_DAMAGE):
            return damaged(self._place, f"is damaged: {error}")
        return LedgerError(f"{self._place}: {one_line(str(error)[:MAX_TOLD])}")

    def _all(self, query: Select[Any], kind: type[R]) -> list[R]:
        with self._read() as connection:
            return fetch_all(connection, query, kind)

    def _one(self, query: Select[Any], kind: type[R]) -> R | None:
        with self._read() as connection:
            return fetch_one(connection, query, kind)

    def _check_schema(self) -> None:
        with self._read() as connection:
            held = inspect(connection).get_table_names()
            version = self._check_held(connection, held) if held else None
        if version is not None:
            if version != str(tables.SCHEMA_VERSION):
                self._migrate()
            return
        self._refuse_lost_records()
        with self._write() as connection:
            # Another process may have made the tables since.
            if not inspect(connection).get_table_names():
                tables.metadata.create_all(connection)
                connection.execute(insert(tables.meta).values(name="schema", value=str(tables.SCHEMA_VERSION)))

    def _refuse_lost_records(self) -> None:
        """For a ledger that holds nothing: jobs beside it say that it once did."""
        if has_jobs(Path(self._place).parent):
            raise damaged(self._place, "is empty, although its study has begun")

    def _migrate(self) -> None:
        with self._write() as connection:
            # Another process may have done it since.
            version = self._check_held(connection, inspect(connection).get_table_names())
            if version != str(tables.SCHEMA_VERSION):
                migrate(connection, Path(self._place), version)

    def _check_held(self, connection: Connection, held: list[str]) -> str:
        """The schema version of a ledger that holds these tables, this one's or an older one."""
        missing = sorted(tables.metadata.tables.keys() - set(held))
        if len(missing) == len(tables.metadata.tables):
            raise LedgerError(f"{self._place}: is a database, but not a ledger (move it away)")
        version: str | None = None
        if "meta" in held:
            version = connection.execute(select(tables.meta.c.value).where(tables.meta.c.name == "schema")).scalar()
        is_older = version is not None and version.isdecimal() and int(version) < tables.SCHEMA_VERSION
        if version is not None and version != str(tables.SCHEMA_VERSION) and not is_older:
            raise LedgerError(
                f"{self._place}: has schema version {version}, this nightlab reads {tables.SCHEMA_VERSION} "
                "(use the nightlab that wrote it, or give the study another name)"
            )
        if is_older:
            missing = [name for name in missing if name not in ADDED_TABLES]
        if missing or version is None:
            raise damaged(self._place, f"is damaged: without {', '.join(missing) or 'its version'}")
        if connection.dialect.name == "sqlite":
            self._check_pages(connection)
        return version

    def _check_pages(self, connection: Connection) -> None:
        verdict = str(connection.execute(text("PRAGMA quick_check(1)")).scalar())
        if verdict != "ok":
            raise damaged(self._place, f"is damaged: {verdict.splitlines()[-1]}")
        path = Path(self._place)
        journal = path.with_name(f"{path.name}-wal")
        page_bytes = connection.execute(text("PRAGMA page_size")).scalar_one()
        # The database reads a last page cut short as if zeros followed.
        if path.stat().st_size % page_bytes and not (journal.exists() and journal.stat().st_size):
            raise damaged(self._place, "is damaged: its last page is cut short")

    def _found(self, record: R | None, what: str) -> R:
        if record is None:
            raise LedgerError(f"{self._place}: holds no {what}")
        return record

    def _update(
        self, connection: Connection, table: Table, kind: type[R], where: dict[str, Any], changes: dict[str, Any]
    ) -> R:
        """Change the one row that `where` names. Raises LedgerError for an unknown row or field and an illegal move."""
        what = "study yet" if kind is StudyRow else f"{kind.__name__.lower()} {next(iter(where.values()))}"
        here = [table.c[column] == value for column, value in where.items()]
        held = self._found(fetch_one(connection, select_as(table, kind).where(*here), kind), what)
        fixed = {"name"} if kind is StudyRow else _FIXED
        if refused := sorted(fixed & changes.keys()):
            raise LedgerError(f"{what}: {', '.join(refused)} cannot be changed")
        changes = {**changes, **self._safe_fields(changes)}
        new = _changed(held, changes, what)
        if isinstance(held, Experiment | Run) and isinstance(new, Experiment | Run):
            check_move(what, held.state, new.state)
        if new != held:
            connection.execute(update(table).where(*here).values(**new.model_dump(include=set(changes))))
        return new


def damaged(place: object, what: str) -> LedgerError:
    """The error for a ledger that is broken or has lost records, with its mend."""
    mend = "`nightlab recover` rebuilds it from the branches and logs, and keeps a copy"
    # What is told may quote the file's own bytes.
    return LedgerError(f"{place}: {one_line(what[:MAX_TOLD])} ({mend})", damaged=True)


def columns(table: Table, kind: type[BaseModel]) -> list[Any]:
    """The columns that make a record of this kind."""
    return [table.c[name] for name in kind.model_fields]


def select_as(table: Table, kind: type[BaseModel]) -> Select[Any]:
    return select(*columns(table, kind))


def fetch_all(connection: Connection, query: Select[Any], kind: type[R]) -> list[R]:
    with _readable(kind):
        return [record_of(row._asdict(), kind) for row in connection.execute(query)]


def fetch_one(connection: Connection, query: Select[Any], kind: type[R]) -> R | None:
    with _readable(kind):
        row = connection.execute(query).first()
    return None if row is None else record_of(row._asdict(), kind)


@contextmanager
def _readable(kind: type[BaseModel]) -> Iterator[None]:
    """Damage that the database itself does not see: JSON or a time that is none any more."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise damaged(f"{kind.__name__} in the ledger", f"is damaged: {error}") from error


def record_of(fields: dict[str, Any], kind: type[R]) -> R:
    """The record a row holds. Raises LedgerError where another version of nightlab wrote what this one cannot read."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        mend = "use the nightlab that wrote it, or give the study another name"
        raise LedgerError(f"{kind.__name__} in the ledger: {_first(error)} ({mend})") from error


def as_row(record: BaseModel) -> dict[str, Any]:
    return record.model_dump()


def _changed(held: R, changes: dict[str, Any], what: str) -> R:
    try:
        return type(held).model_validate({**dict(held), **changes})
    except ValidationError as error:
        raise LedgerError(f"{what}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
