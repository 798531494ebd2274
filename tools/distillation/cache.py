"""A teacher's likeliest next tokens on disk: written once, example by example, and read through memory maps.

The files are described in `cache_files`. Needs numpy only.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from nightlab.configs.files import sync_folder, write_atomically
from nightlab.errors import ConfigError, DiskError, Fault
from nightlab.tools.distillation.cache_files import DRAFT, FILES, HEADER, INDEX_ROW, Header

__all__ = ["CacheWriter", "LogitCache", "Rows", "refuse_finished"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """What the teacher expects at the targets of one example, in their order."""

    ids: Array
    """(targets, k), likeliest first."""
    logs: Array
    """(targets, k), log-probabilities at temperature 1."""
    tail: Array
    """(targets, temperatures), log Σ p^(1/T) over the other tokens; −60,000 where there are none."""


def refuse_finished(folder: Path) -> None:
    """Raise ConfigError where the folder holds a finished cache."""
    if (folder / HEADER).exists():
        raise ConfigError(Fault("holds a finished cache", folder, mend="name another folder, or delete it"))


class CacheWriter:
    """Writes a cache; after `kill -9` the same call goes on behind the last whole example.

    Raises ConfigError where another writer is at work, the folder holds a finished cache, or one begun with another
    header.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header
        self._files: dict[str, BinaryIO] = {}
        self._opened = ExitStack()
        self._known: set[int] = set()
        self._rows = self._examples = 0

    def __enter__(self) -> Self:
        refuse_finished(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            self._files = {name: opened.enter_context((self.folder / name).open("ab")) for name in FILES}
            self._claim()
            self._resume()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self._opened.close()

    @property
    def examples(self) -> int:
        return self._examples

    @property
    def rows(self) -> int:
        return self._rows

    def __contains__(self, key: object) -> bool:
        """Whether the example of this key is written."""
        return key in self._known

    def add(self, key: int, rows: Rows) -> None:
        """Append an example, unless it is there. Raises DiskError; ValueError for rows of other shapes."""
        if key in self._known:
            return
        parts = {"ids.bin": rows.ids, "logs.bin": rows.logs, "tail.bin": rows.tail}
        for name, (kind, width) in self.header.row_types.items():
            if parts[name].shape != (len(rows.ids), width):
                raise ValueError(f"{name} takes rows of {width}, not {parts[name].shape}")
            self._write(name, np.ascontiguousarray(parts[name], dtype=kind).tobytes())
        # Only what the index names counts, so it is told last.
        self._write("index.bin", np.array([key, self._rows + len(rows.ids)], dtype=INDEX_ROW).tobytes())
        self._known.add(key)
        self._rows, self._examples = self._rows + len(rows.ids), self._examples + 1

    def finish(self) -> None:
        """Have everything on disk, and only then the header that makes it a cache. Raises DiskError."""
        for name, file in self._files.items():
            with DiskError.at(self.folder / name):
                os.fsync(file.fileno())
        counts = {"examples": self._examples, "rows": self._rows}
        write_atomically(self.folder / HEADER, json.dumps(self.header.to_json() | counts, indent=2) + "\n")
        (self.folder / DRAFT).unlink()
        sync_folder(self.folder)

    def _write(self, name: str, content: bytes) -> None:
        with DiskError.at(self.folder / name):
            self._files[name].write(content)
            self._files[name].flush()

    def _claim(self) -> None:
        """Be the only writer, of a cache with this header."""
        try:
            fcntl.flock(self._files["index.bin"], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(Fault("is being written by another process", self.folder)) from error
        draft = self.folder / DRAFT
        # One that ended before its first example, for a template that does not fit say, holds nothing to go on with.
        is_begun = (self.folder / "index.bin").stat().st_size >= 2 * INDEX_ROW.itemsize
        if is_begun and draft.exists():
            if _read_header(draft) != self.header:
                raise ConfigError(
                    Fault("was begun with other settings", self.folder, mend="give the same ones, or another folder")
                )
        else:
            write_atomically(draft, json.dumps(self.header.to_json()) + "\n")

    def _resume(self) -> None:
        """Cut the files behind the last example that is whole in all of them."""
        sizes = {name: (self.folder / name).stat().st_size for name in FILES}
        whole = min(sizes[name] // self.header.row_bytes(name) for name in self.header.row_types)
        index = np.fromfile(self.folder / "index.bin", dtype=INDEX_ROW)
        index = index[: index.size // 2 * 2].reshape(-1, 2)
        index = index[: int(np.searchsorted(index[:, 1], whole, side="right"))]
        self._known = {int(key) for key in index[:, 0]}
        self._examples, self._rows = len(index), int(index[-1, 1]) if len(index) else 0
        for name in self.header.row_types:
            self._files[name].truncate(self._rows * self.header.row_bytes(name))
        self._files["index.bin"].truncate(self._examples * 2 * INDEX_ROW.itemsize)


class LogitCache:
    """A finished cache, open for reading; any number of processes may.

    Raises ConfigError, in one line, for a folder that is none, is unfinished or was damaged, and where `fingerprint`
    is of another tokenizer than the cache's.
    """

    def __init__(self, folder: Path, *, fingerprint: str = "") -> None:
        self.folder = folder
        if not (folder / HEADER).exists():
            state = "is an unfinished cache" if (folder / DRAFT).exists() else "is no logit cache"
            raise ConfigError(Fault(state, folder, mend="run the dump to its end"))
        self.header = _read_header(folder / HEADER)
        if fingerprint and self.header.fingerprint and fingerprint != self.header.fingerprint:
            raise ConfigError(
                Fault(
                    f"is of another tokenizer ({self.header.fingerprint}, the student's is {fingerprint})",
                    folder,
                    mend="a student needs its teacher's tokenizer",
                )
            )
        told = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        self.examples, self.rows = int(told["examples"]), int(told["rows"])
        self._check_sizes()
        self._maps = {name: self._map(name, *self.header.row_types[name]) for name in self.header.row_types}
        index = np.fromfile(folder / "index.bin", dtype=INDEX_ROW).reshape(-1, 2)
        self._ends = index[:, 1].astype(np.int64)
        self._order = np.argsort(index[:, 0], kind="stable")
        self._keys = index[self._order, 0]

    def __len__(self) -> int:
        return self.examples

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and self._place(key) is not None

    def find(self, key: int, targets: int) -> Rows:
        """The rows of an example with so many targets. Raises ConfigError where the cache does not hold it."""
        if (place := self._place(key)) is None:
            raise ConfigError(
                Fault(
                    "does not hold an example of the training data",
                    self.folder,
                    mend="train on the very tokens that were dumped: same template, cutoff and labels, no packing",
                )
            )
        first, last = int(self._ends[place - 1]) if place else 0, int(self._ends[place])
        if last - first != targets:
            raise ConfigError(Fault(f"has {last - first} rows for an example with {targets} targets", self.folder))
        ids, logs, tail = (self._maps[name][first:last] for name in self.header.row_types)
        return Rows(ids, logs, tail)

    def _place(self, key: int) -> int | None:
        place = int(np.searchsorted(self._keys, np.uint64(key)))
        return int(self._order[place]) if place < len(self._keys) and int(self._keys[place]) == key else None

    def _check_sizes(self) -> None:
        wanted = {name: self.rows * self.header.row_bytes(name) for name in self.header.row_types}
        wanted["index.bin"] = self.examples * 2 * INDEX_ROW.itemsize
        for name, size in wanted.items():
            file = self.folder / name
            found = file.stat().st_size if file.exists() else 0
            if found != size:
                raise ConfigError(
                    Fault(f"has {found:,} bytes, the header says {size:,}", file, mend="copy it again, or dump again")
                )

    def _map(self, name: str, kind: np.dtype[Any], width: int) -> Array:
        # An empty file cannot be mapped.
        if not self.rows:
            return np.empty((0, width), kind)
        return np.memmap(self.folder / name, dtype=kind, mode="r", shape=(self.rows, width))


def _read_header(file: Path) -> Header:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(Fault(f"cannot be read: {error}", file)) from error
    return Header.of_json(told, file)
