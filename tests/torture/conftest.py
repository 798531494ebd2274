"""One nursery and one undisturbed, eventful night for all crash tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.events import undisturbed_events
from tests.torture.matrix import Reference
from tests.torture.nights import Nursery


@pytest.fixture(scope="package")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="package")
def calm(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return undisturbed_events(nursery, tmp_path_factory.mktemp("torture") / "calm")
