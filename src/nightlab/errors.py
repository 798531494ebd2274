"""The one tree of errors a person may meet.

::

    NightlabError
    ├── ConfigError        the study file: which file, key, value, and the mend
    ├── GitError           the training repository or a worktree
    ├── LedgerError        the study's records
    ├── DiskError          a disk that takes no more: full, over quota, read-only, broken
    ├── LauncherError      a configuration that cannot be turned into a command
    ├── BackendError       a backend that cannot take, find or end a job
    ├── MetricError        a metric that cannot be read as a finite number
    ├── BudgetError        a budget that is spent or cannot cover the plan
    ├── ModelError         no language model gave a usable answer
    ├── PatchError         edits of the code that cannot be applied
    ├── StressError        a stress test that cannot be run: server, prompts, data
    ├── LockedError        a change to a locked parameter or a frozen path
    └── StudyBusyError     another lab is running this study

A failed training job is data (`Run.cause`), never one of these. The command line prints `str(error)`, one line, and
exits with 2.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BackendError",
    "BudgetError",
    "ConfigError",
    "DiskError",
    "Fault",
    "GitError",
    "LauncherError",
    "LedgerError",
    "LockedError",
    "MetricError",
    "ModelError",
    "NightlabError",
    "PatchError",
    "StressError",
    "StudyBusyError",
]


@dataclass(frozen=True)
class Fault:
    """One mistake in a file a person wrote: where, which value, what is wrong, how to mend it."""

    message: str
    file: Path | None = None
    line: int | None = None
    key: str | None = None
    value: object = None
    mend: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        key = f"{self.key}: " if self.key else ""
        mend = f" ({self.mend})" if self.mend else ""
        return f"{place}{key}{self.message}{mend}"


class NightlabError(Exception):
    """Base of every error that is meant for a person; `str()` is one line that says what, where and how to mend it."""


class ConfigError(NightlabError):
    """One or more faults in the study file; all of them are carried at once."""

    def __init__(self, faults: list[Fault] | Fault | str) -> None:
        if isinstance(faults, str):
            faults = Fault(faults)
        self.faults: list[Fault] = faults if isinstance(faults, list) else [faults]
        super().__init__("\n".join(str(fault) for fault in self.faults))


class GitError(NightlabError):
    """Git refused, or the repository is not in the state the lab needs."""


class LedgerError(NightlabError):
    """The ledger cannot be opened, or a record in it contradicts what is to be written.

    `damaged`: the file itself is broken or has lost records; `nightlab recover` rebuilds it.
    """

    def __init__(self, message: str, *, damaged: bool = False) -> None:
        self.damaged = damaged
        super().__init__(message)


class DiskError(NightlabError):
    """The disk takes no more; what was to be replaced is whole. `path` is what could not be written.

    A study pauses on it: the same command goes on once there is room.
    """

    def __init__(self, message: str, *, path: Path) -> None:
        self.path = path
        super().__init__(message)

    @classmethod
    def because(cls, path: Path, reason: str) -> DiskError:
        """The error for `path`, with what is free on its disk and how to go on."""
        return cls(f"{path}: cannot be written: {reason} ({_room(path)})", path=path)

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[None]:
        """Turn the OSErrors of a disk that takes no more into this error; any other passes."""
        try:
            yield
        except OSError as error:
            if error.errno in NO_MORE:
                raise cls.because(path, error.strerror or "the disk takes no more") from error
            raise


NO_MORE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Full, over quota, above the process's limit, read-only, broken."""


def _room(path: Path) -> str:
    """What is free where `path` lies, and how to go on; loaded only when there is something to say."""
    import shutil

    import humanize

    place = next((folder for folder in (path, *path.absolute().parents) if folder.exists()), Path("/"))
    free = humanize.naturalsize(shutil.disk_usage(place).free)
    return f"{free} free on its disk; make room there, then the same command goes on"


class LauncherError(NightlabError):
    """The configuration cannot be rendered into a command."""


class BackendError(NightlabError):
    """The backend cannot take, find or end a job."""


class MetricError(NightlabError):
    """The metric is absent, ambiguous or not a finite number; `cause` is a short identifier for the record."""

    def __init__(self, message: str, *, cause: str) -> None:
        self.cause = cause
        super().__init__(message)


class BudgetError(NightlabError):
    """The budget is spent, or too small for what was asked."""


class ModelError(NightlabError):
    """No language model gave a usable answer; whoever asked goes on by the rules."""


class PatchError(NightlabError):
    """Edits of the code that cannot be applied exactly; `cause` is a short identifier for the record."""

    def __init__(self, message: str, *, cause: str) -> None:
        self.cause = cause
        super().__init__(message)


class StressError(NightlabError):
    """A load or stress test that cannot be run: a server that does not get ready, prompts or data of no use."""


class LockedError(NightlabError):
    """An experiment would change what no experiment may change."""


class StudyBusyError(NightlabError):
    """Another lab holds this study; `pid` is its process."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        self.pid = pid
        super().__init__(message)
