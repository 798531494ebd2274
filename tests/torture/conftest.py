"""One nursery and one undisturbed night for all crash tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.matrix import Reference, undisturbed
from tests.torture.nights import Nursery

RUNS = 12
"""Enough for a night that does everything, and confirms something."""


@pytest.fixture(scope="package")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="package")
def calm(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return undisturbed(nursery, tmp_path_factory.mktemp("torture") / "calm", runs=RUNS)
