"""The plain values of a study file: a parameter's value, a path inside the repository."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

__all__ = ["RepositoryPath", "Scalar"]

Scalar = bool | int | float | str
"""A parameter's value: one YAML scalar."""


def _inside_repository(path: str) -> str:
    """`path` unchanged; ValueError when it is empty, absolute or steps out of the repository."""
    if not path.strip():
        raise ValueError("is empty")
    if PurePosixPath(path).is_absolute() or path.startswith("~") or ".." in PurePosixPath(path).parts:
        raise ValueError("must lie inside the repository; write it relative to the repository's top folder")
    return path


RepositoryPath = Annotated[str, AfterValidator(_inside_repository)]
"""A file or folder, relative to the repository's top folder and inside it."""
