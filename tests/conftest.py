"""What several rooms' tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.task import make_repository


@pytest.fixture(scope="session")
def finished_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study file of one finished night, in its repository; to be looked at only."""
    from nightlab.night import run_night

    file = make_repository(tmp_path_factory.mktemp("finished") / "repo")
    run_night(file, say=lambda _: None)
    return file
