"""Task scores computed by the lab itself from predictions and labels."""

from __future__ import annotations
