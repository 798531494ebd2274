"""A few rows of the data a run reads, for a model to see what they look like: few, short, from text files only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from nightlab.worktrees.git import is_below

__all__ = ["first_rows", "is_data", "is_private", "samples_of_inputs"]

DATA = frozenset({".jsonl", ".csv", ".tsv", ".txt", ".json", ".md"})
TRACKED_DATA = frozenset({".jsonl", ".csv", ".tsv", ".txt"})
MOST_FILES = 3
MOST_SEEN = 2_000
"""Files looked at below the inputs; a data set of millions is not walked."""
HEAD_BYTES = 8_192
ROWS = 6
PRIVATE = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".htpasswd", ".pgpass"),
    *(".git-credentials", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ovpn"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credential*", "*secret*", "*password*", "kubeconfig*"),
    *("service-account*.json", "service_account*.json", "*.tfstate", "*.tfvars", "authorized_keys", "known_hosts"),
)
"""Names of files and folders that are there to keep secrets."""


def is_private(path: str) -> bool:
    """Whether a file is there to keep secrets, by its name or a folder's."""
    return any(fnmatch(part.lower(), pattern) for part in PurePosixPath(path).parts for pattern in PRIVATE)


def is_data(path: str) -> bool:
    """Whether a file that git holds is data, by its name and place."""
    *folders, name = PurePosixPath(path.lower()).parts
    suffix = PurePosixPath(name).suffix
    return suffix in TRACKED_DATA or (suffix == ".json" and any("data" in folder for folder in folders))


def first_rows(text: str) -> str:
    """The first whole lines of `text`, a line that goes on behind its beginning not among them."""
    head = text[:HEAD_BYTES]
    lines = head.splitlines()
    # A row cut in its middle may end in half a secret, which nobody would recognise.
    return "\n".join((lines[:-1] if len(head) < len(text) else lines)[:ROWS])


def samples_of_inputs(root: Path, inputs: Sequence[str], hidden: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Path and first rows of the first text files below the study's inputs, nothing of `hidden` among them."""
    taken = 0
    for relative, file in _files(root, inputs):
        if taken == MOST_FILES:
            return
        if PurePosixPath(relative).suffix.lower() not in DATA or is_private(relative) or is_below(relative, hidden):
            continue
        if rows := _rows_of(file):
            taken += 1
            yield relative, rows


def _files(root: Path, inputs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Files by name; a link that leads out of its input is not followed."""
    seen = 0
    for name in inputs:
        place = root / name
        if ".." in place.parts or not place.is_relative_to(root):
            continue
        if place.is_file():
            yield name, place
            continue
        top = place.resolve()
        for folder, folders, files in os.walk(place):
            folders.sort()
            for file in sorted(files):
                seen += 1
                if seen > MOST_SEEN:
                    return
                path = Path(folder, file)
                if path.resolve().is_relative_to(top):
                    yield path.relative_to(root).as_posix(), path


def _rows_of(file: Path) -> str:
    """The first rows of a file; nothing of what is no text or cannot be read."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD_BYTES + 1)
    except OSError:
        return ""
    return "" if b"\0" in head else first_rows(head.decode("utf-8", "replace"))
