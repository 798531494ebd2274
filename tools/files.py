"""Writing a document so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

from nightlab.configs.files import write_atomically

__all__ = ["write_atomically"]
